"""Tables that mislead without a word elsewhere: what relvec does with each, and the option that changes it."""

import re

import numpy as np
import pytest

from relvec import RVC, RVR, GPRegressor
from relvec.app import cli
from relvec.app.report.summary import format_width
from relvec.app.tables import as_table, fit_table
from relvec.app.tables.evaluation import evaluate_table
from relvec.app.tables.importance import column_importance
from relvec.app.tables.pipelines import plan_table
from relvec.app.tables.table import TableError
from relvec.app.tables.text import format_with_error

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
Y = np.sin(2.0 * X) + 0.1 * RNG.normal(size=N)
ORDER = RNG.permutation(N)
LETTERS = [f"{chr(97 + i % 26)}{i}" for i in ORDER]
ZIP = [30100 + 7 * (i % 30) for i in range(N)]
RATES = [f"{i}%" if i % 2 else f"{i / 100}" for i in ORDER]
DATES = ["31st", *(f"2024-01-{1 + i % 28:02d}" for i in range(1, N))]
TWO_UNITS = [f"{170 + i} cm" if i % 2 else f"1.{70 + i} m" for i in range(N)]

# A column beside x and y; the kind that it becomes; words of its note; what --use of it makes of it, if anything.
COLUMNS = {
    "rownames of R": ("rownames", ORDER, "identifier", "a different number in every row; --use 'rownames'", "number"),
    "caseid": ("caseid", 1000 + ORDER, "identifier", "a different number in every row", "number"),
    "permuted obs": ("obs", ORDER + 1, "identifier", "a different number in every row", "number"),
    "index of pandas": ("Unnamed: 0", ORDER, "identifier", "a different number in every row", "number"),
    "patient": ("patient", ORDER // 2, "identifier", "30 whole numbers that name something", "number"),
    "customer": ("customer", LETTERS, "identifier", "a different text in every row; --use 'customer'", "category"),
    "all-different text": ("code", LETTERS, "identifier", "--use 'code' makes it a category", "category"),
    "long text": ("note", [50 * "a" + c for c in LETTERS], "text", "--use 'note' makes it a category", "category"),
    "zip code": ("zip_code", ZIP, "category", "numbers that name places; --use 'zip_code'", "number"),
    "zip code with zeros": ("zip", [f"0{code}" for code in ZIP], "category", "30 categories", None),
    "constant 0.0 and -0.0": ("flat", ["0.0", "-0.0"] * (N // 2), "constant", "left out: every cell is 0", None),
    "constant -0.0": ("flat", ["-0.0"] * N, "constant", "left out: every cell is 0", None),
    "constant text": ("unit", ["kg"] * N, "constant", "left out: every cell is 'kg'", None),
    "copy in other units": ("feet", 3.28 * X, "copy", "the same as 'x' but for units", "number"),
    "twice the target": ("later", 2.0 * Y, "leak", "it determines the target", "number"),
    "near-copy of the target": ("hint", Y + 0.01 * X, "number", "if it is known only afterwards, give --drop", None),
    "percent and shares": ("rate", RATES, "number", "so 5% is read as 0.05 (--strict", None),
    "currencies": ("cost", [f"{'$€'[i % 2]} {i}" for i in range(N)], "number", "read as equal (--strict refuses", None),
    "two units": ("height", TWO_UNITS, "text", "different units ('m', 'cm'): write them in one", None),
    "one unit": ("power", [f"{90 + i} PS" for i in ORDER], "number", "in PS", None),
    "nines": ("age", np.where(ORDER < 5, -999, 20 + ORDER % 50), "number", "give --missing -999", None),
    "inf": ("ratio", ["inf", *map(str, X[1:])], "number", "1 cell is not a number and read as missing: 'inf'", None),
    "a bad date": ("when", DATES, "date", "read as missing", None),
    "half numbers": ("level", [c if i % 3 == 0 else i for i, c in enumerate(LETTERS)], "text", "--categorical", None),
}  # fmt: skip


@pytest.mark.parametrize("trap", COLUMNS)
def test_a_column_that_misleads_is_told_with_what_was_done(trap):
    name, cells, kind, words, used = COLUMNS[trap]
    table = {"x": X, name: list(cells), "y": Y}
    found = {column.name: column for column in plan_table(table, "y").columns}
    assert (found[name].kind, words in found[name].note) == (kind, True), found[name]
    if used is not None:
        assert {c.name: c.kind for c in plan_table(table, "y", use=[name]).columns}[name] == used


@pytest.mark.parametrize("trap", ["percent and shares", "currencies", "inf"])
def test_strict_refuses_what_is_read_otherwise(trap):
    name, cells, *_ = COLUMNS[trap]
    with pytest.raises(TableError, match=name):
        plan_table({"x": X, name: cells, "y": Y}, "y", strict=True)


def test_copies_of_copies_name_the_column_that_stays():
    table = as_table({"a": X, "c": -2.0 * X, "b": 1.0 + 3.0 * X, "y": Y})
    notes = {column.name: column.note for column in plan_table(table, "y").columns}
    assert "the same as 'a'" in notes["b"] and "the same as 'a'" in notes["c"] and not notes["a"]
    notes = {column.name: column.note for column in plan_table(table, "y", use=["b"]).columns}
    assert "the same as 'b'" in notes["a"] and "the same as 'b'" in notes["c"] and not notes["b"]


def test_numbers_are_as_long_as_what_is_known():
    assert format_width(1e45) == format_width(np.inf) == "nearly straight"
    assert format_with_error(2.3139, 4.4e-16) == "2.3139 ± 0"


def test_no_claim_of_variance_explained_that_new_rows_do_not_meet():
    page = GPRegressor().fit(X[:, None], Y)._repr_html_()
    assert "explained" not in page and "% of the target&#x27;s variance" in page


def run(capsys, *arguments):
    assert cli.main(list(map(str, arguments))) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = np.where(ORDER % 2, "a", "b")
    (tmp_path / "t.csv").write_text("x,flip,y\n" + "".join(f"{a:.6f},{c},{b:.6f}\n" for a, b, c in zip(X, Y, names)))
    fitted = fit_table(as_table({"x": X, "flip": names, "y": Y}), "y", model=RVR(width=1.0))
    return fitted.pipeline


def test_cross_validation_tells_importance_by_rows_held_out(capsys, file):
    run(capsys, "fit", "t.csv", "--target", "y", "--width", "1", "--holdout", "0")
    seen, held_out = run(capsys, "evaluate", "model.relvec", "t.csv"), run(
        capsys, "evaluate", "model.relvec", "t.csv", "--cv", "3")  # fmt: skip
    assert "column of these rows, which took part in the fit, is shuffled): x " in seen
    assert "column of these rows is shuffled): x " in held_out
    assert "relevance" not in seen + held_out  # one importance


def test_importance_says_which_rows_were_shuffled(file):
    table = {"x": X, "flip": np.where(ORDER % 2, "a", "b"), "y": Y}
    assert "the model was fitted to" in column_importance(file, evaluate_table(file, table)).meaning
    folds = column_importance(file, evaluate_table(file, table, folds=3))
    assert folds.names[0] == "x" and "had not seen" in folds.meaning


def test_a_model_without_effects_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(
        "x,y\n" + "".join(f"{a:.6f},{b:.6f}\n" for a, b in zip(X, np.random.default_rng(1).normal(size=N)))
    )
    out = run(capsys, "fit", "t.csv", "--target", "y", "--model", "linear")
    assert "is shuffled): no column has an effect\n" in out


def test_columns_that_are_not_listed_are_counted(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many = np.random.default_rng(1).normal(size=(N, 10))
    rows = np.column_stack([many, many.sum(axis=1) + 0.01 * Y])
    np.savetxt("t.csv", rows, delimiter=",", header=",".join([*"abcdefghij", "y"]), comments="")
    out = run(capsys, "fit", "t.csv", "--target", "y", "--model", "linear")
    assert re.search(r"is shuffled\): .* and 2 columns more$", out, re.MULTILINE)


def test_numbers_in_place_of_classes_are_refused():
    with pytest.raises(ValueError, match=r"[Uu]nknown label type|regress"):
        RVC().fit(X[:, None], Y)


@pytest.mark.parametrize("separator", [";", "sep=;\n"])
def test_semicolons_are_found(capsys, tmp_path, monkeypatch, separator):
    monkeypatch.chdir(tmp_path)
    first = separator if "\n" in separator else ""
    (tmp_path / "t.csv").write_text(first + "x;y\n" + "".join(f"{a:.6f};{b:.6f}\n" for a, b in zip(X, Y)))
    assert "60 rows, 2 columns" in run(capsys, "fit", "t.csv", "--target", "y", "--model", "linear", "--holdout", "0")


def test_intervals_unpack_by_columns():
    mean, low, high = RVR(width=1.0).fit(X[:, None], Y).predict(X[:, None], return_interval=0.9).T
    assert np.all((low < mean) & (mean < high))
