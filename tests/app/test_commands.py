"""A newcomer's path from a messy table to a decision, and the other commands on tables."""

import base64
import csv
import html.parser
import io
import json
import re
import shlex
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import messy
from relvec import RVC, RVR, GPRegressor, load, save, to_c
from relvec.app import cli
from relvec.app.report.summary import learned_relevance
from relvec.app.tables import evaluate_table, fit_table, predict_table, read_table
from relvec.app.tables.columns import numbers_of

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with tables and a model fitted to each, as the commands leave them."""
    folder = tmp_path_factory.mktemp("newcomer")
    for name, data in (("houses.csv", messy.houses()), ("new.csv", messy.houses(40, seed=9)),
                       ("patients.csv", messy.patients()), ("calls.jsonl", messy.calls())):  # fmt: skip
        (folder / name).write_bytes(data)
    for data, target, *options in (
        ("houses.csv", "Price", "--model", "gp"),
        ("patients.csv", "recovered", "--model", "gp"),
        ("calls.jsonl", "calls", "--task", "count", "--model", "rvm"),
    ):
        out = ["-o", str(folder / f"{data.split('.')[0]}.relvec"), "--json", "--holdout", "0"]
        assert cli.main(["fit", str(folder / data), "--target", target, *options, *out]) == 0
    return folder


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)


def run(capsys, *arguments):
    assert cli.main(list(arguments)) == 0
    return capsys.readouterr().out


def run_json(capsys, *arguments):
    return json.loads(run(capsys, *arguments, "--json"))


def test_fit_says_what_was_done(capsys, tmp_path):
    out = run(capsys, "fit", "houses.csv", "--target", "Price", "--holdout", "0.2", "-o", str(tmp_path / "m.relvec"))
    for words in ("220 rows, 10 columns", "House ID   identifier", "Area (m²)  number", "filled with the median",
                  "Town       category    3 categories", "sold on    date        2019-", "Garden?    boolean",
                  "currency   constant    left out: every cell is 'EUR'", "column 4", "rooms (2)",
                  "rows left out: 'Price' is missing there", "task: regression", " kept", "noise",
                  "smallest model within a standard error of the best", "relevance vector machine", "chosen",
                  "log evidence", "status", "kept out of the fit",
                  "RMSE", "saved:", "next:  relvec report"):  # fmt: skip
        assert words in out, words
    assert (tmp_path / "m.relvec").is_file()


def test_predict_carries_identifiers_through(capsys, tmp_path):
    run(capsys, "predict", "houses.relvec", "new.csv", "-o", str(tmp_path / "out.csv"), "--interval", "0.5")
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["House ID", "mean", "std", "lower", "upper"]
    assert [row["House ID"] for row in rows] == [f"H{i:04d}" for i in range(40)]  # rows without a target too
    numbers = np.array([[float(row[name]) for name in ("mean", "std", "lower", "upper")] for row in rows])
    mean, std, lower, upper = numbers.T
    expected = predict_table(load("houses.relvec"), read_table("new.csv"), coverage=0.5)
    np.testing.assert_array_equal(mean, expected.mean)
    np.testing.assert_array_equal(np.column_stack([lower, upper]), expected.interval)
    assert (lower < mean).all() and (mean < upper).all() and (upper - lower < 2 * std).all()
    price = numbers_of(read_table("new.csv"), "Price")
    known = [(p, y) for p, y in zip(mean, price, strict=True) if np.isfinite(y)]
    assert np.corrcoef(np.array(known).T)[0, 1] > 0.9


def test_predict_to_standard_output(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(messy.houses(3, seed=4))))
    lines = run(capsys, "predict", "houses.relvec", "-", "--keep", "Town").splitlines()
    assert lines[0] == "House ID,Town,mean,std,lower,upper" and len(lines) == 4
    objects = [json.loads(line) for line in run(capsys, "predict", "houses.relvec", "new.csv", "--json").splitlines()]
    assert len(objects) == 40 and set(objects[0]) == {"House ID", "mean", "std", "lower", "upper"}


def test_classes_get_probabilities(capsys):
    rows = list(csv.DictReader(io.StringIO(run(capsys, "predict", "patients.relvec", "patients.csv"))))
    assert list(rows[0]) == ["patient", "class", "probability Yes", "probability no"]
    for row in rows:
        no, yes = float(row["probability no"]), float(row["probability Yes"])
        assert abs(no + yes - 1) < 1e-12 and row["class"] == ("Yes" if yes > no else "no")


def test_counts(capsys):
    rows = list(csv.DictReader(io.StringIO(run(capsys, "predict", "calls.relvec", "calls.jsonl"))))
    assert list(rows[0]) == ["row", "mean", "std", "lower", "upper"]
    assert all(float(row["lower"]) >= 0 and float(row["mean"]) > 0 for row in rows)


@pytest.mark.parametrize(("model", "data", "names"), [
    ("houses", "new.csv", ["RMSE", "MAE", "R2", "coverage", "interval width", "log density"]),
    ("patients", "patients.csv", ["accuracy", "balanced accuracy", "log loss", "Brier score", "AUC"]),
    ("calls", "calls.jsonl", ["RMSE", "MAE", "R2", "deviance", "coverage", "interval width", "log density"]),
])  # fmt: skip
def test_evaluate_gives_every_score_its_uncertainty(capsys, model, data, names):
    found = run_json(capsys, "evaluate", f"{model}.relvec", data)
    assert list(found["scores"]) == names
    for score in found["scores"].values():
        assert score["low"] <= score["value"] <= score["high"] and score["error"] >= 0
    assert any("fitted on" in note for note in found["notes"]) == (data != "new.csv")
    text = run(capsys, "evaluate", f"{model}.relvec", data)
    assert "95% interval" in text and names[0] in text


def test_evaluate_equals_scikit_learn(capsys):
    from sklearn.metrics import log_loss, r2_score, roc_auc_score, root_mean_squared_error

    found = run_json(capsys, "evaluate", "houses.relvec", "new.csv")["scores"]
    table = read_table("new.csv")
    y = numbers_of(table, "Price")
    mean = predict_table(load("houses.relvec"), table).mean
    known = np.isfinite(y)
    assert found["RMSE"]["value"] == pytest.approx(root_mean_squared_error(y[known], mean[known]))
    assert found["R2"]["value"] == pytest.approx(r2_score(y[known], mean[known]))
    # The bootstrap's error of a mean is the standard deviation over the root of n.
    errors = np.abs(y - mean)[known]
    assert found["MAE"]["error"] == pytest.approx(errors.std() / np.sqrt(known.sum()), rel=0.15)
    found = run_json(capsys, "evaluate", "patients.relvec", "patients.csv")["scores"]
    labels = read_table("patients.csv")["recovered"] == "no"  # the second class in alphabetical order
    proba = predict_table(load("patients.relvec"), read_table("patients.csv")).proba
    assert found["AUC"]["value"] == pytest.approx(roc_auc_score(labels, proba[:, 1]))
    assert found["log loss"]["value"] == pytest.approx(log_loss(labels, proba[:, 1]))


def test_cross_validation_is_harder_than_the_rows_of_the_fit(capsys):
    seen = run_json(capsys, "evaluate", "houses.relvec", "houses.csv")
    honest = run_json(capsys, "evaluate", "houses.relvec", "houses.csv", "--cv", "3")
    assert honest["folds"] == 3 and honest["rows"] == seen["rows"]
    assert honest["scores"]["RMSE"]["value"] > seen["scores"]["RMSE"]["value"]
    assert not any("fitted on" in note for note in honest["notes"])


def test_inspect(capsys):
    found = run_json(capsys, "inspect", "houses.relvec")
    model = load("houses.relvec")[-1]
    assert found["kept"] == len(found["vectors"]) == len(model.vectors_)
    assert found["noise"] == pytest.approx(model.noise_variance_**0.5)
    assert found["task"] == "regression" and found["model"] == "Gaussian process"
    assert found["file"] == "houses.relvec" and found["options"] == model.get_params()
    by_row = {vector["row"]: vector for vector in found["vectors"]}
    table = read_table("houses.csv")
    for row, vector in by_row.items():
        assert vector["House ID"] == table["House ID"][row] and vector["Price"] == table["Price"][row]
    assert {vector["kept for"] for vector in found["vectors"]} <= {"relevance", "coverage", "all"}
    weights = [abs(vector["weight"]) for vector in run_json(capsys, "inspect", "calls.relvec")["vectors"]]
    assert weights and weights == sorted(weights, reverse=True)
    text = run(capsys, "inspect", "houses.relvec", "--vectors", "2")
    assert "options" in text and "(2 of" in text


class Page(html.parser.HTMLParser):
    """Collects the tags, attributes and text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize(
    ("model", "data"), [("houses", "new.csv"), ("patients", "patients.csv"), ("calls", "calls.jsonl")]
)
def test_report_is_one_page_that_needs_nothing_else(capsys, tmp_path, model, data):
    pytest.importorskip("matplotlib")  # a report has pictures where it can
    out = tmp_path / "report.html"
    assert "written" in run(capsys, "report", f"{model}.relvec", data, "-o", str(out))
    source = out.read_text(encoding="utf-8")
    page = Page(source)
    assert "script" not in page.tags and not [name for name, _ in page.attributes if name.startswith("on")]
    links = [value for name, value in page.attributes if name in ("src", "href")]
    assert links and all(link.startswith(("data:image/svg+xml;base64,", "#")) for link in links)
    for words in ("How good it is", "95% interval", "The rows it rests on", "Which columns matter", "How the columns"):
        assert words in page.text, words
    pictures = [base64.b64decode(link.split(",")[1]) for link in links if link.startswith("data:")]
    assert len(pictures) >= 4 and all(b"<svg" in picture for picture in pictures)
    if model == "houses":
        assert "H0" in page.text and 'the "Old" Town' in page.text


def test_c_of_a_process_is_refused_in_the_words_of_to_c(capsys, tmp_path):
    table = {"x": np.linspace(0.0, 3.0, 30).tolist(), "y": np.random.default_rng(0).normal(size=30).tolist()}
    pipeline = fit_table(table, "y", model=RVR(width=1.0)).pipeline
    pipeline.steps[-1] = ("model", GPRegressor(max_vectors=10).fit(pipeline[:-1].transform(table), table["y"]))
    save(pipeline, tmp_path / "process.relvec")
    assert cli.main(["export", str(tmp_path / "process.relvec"), "--c", str(tmp_path / "m.c")]) == 1
    with pytest.raises(NotImplementedError) as refused:
        to_c(pipeline[1:])
    assert capsys.readouterr().err == f"relvec: {refused.value}\n" and not (tmp_path / "m.c").exists()


def test_the_functions_that_predict_as_a_process_are_exported(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).uniform(-10.0, 10.0, 200)
    y = np.sinc(x / np.pi) + 0.1 * np.random.default_rng(1).normal(size=200)
    Path("t.csv").write_text("x,y\n" + "\n".join(f"{a},{b}" for a, b in zip(x, y, strict=True)))
    run(capsys, "fit", "t.csv", "--target", "y", "--model", "gp", "-o", "gp.relvec", "--holdout", "0")
    assert cli.main(["export", "gp.relvec", "--c"]) == 1 and "--distill" in capsys.readouterr().err
    told = run(capsys, "export", "gp.relvec", "--c", "--distill", "t.csv", "--loss", "0.05")
    assert re.search(r"^\d\d? functions kept; they lose 0\.0\d+ nats a row", told) and "written: gp.c" in told
    assert len(Path("gp.c").read_text()) < 10_000
    assert cli.main(["export", "gp.relvec", "--c", "--distill", "t.csv", "--loss", "1e-9"]) == 1
    assert "lose no more than max_loss_nats=1e-09" in capsys.readouterr().err
    run(capsys, "fit", "t.csv", "--target", "y", "--model", "rvm", "-o", "rvm.relvec", "--holdout", "0")
    assert cli.main(["export", "rvm.relvec", "--c", "--distill", "t.csv"]) == 1
    assert "--distill is for a Gaussian process" in capsys.readouterr().err


def test_report_without_matplotlib(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run(capsys, "report", "houses.relvec", "new.csv", "-o", str(tmp_path / "r.html"))
    page = Page((tmp_path / "r.html").read_text())
    assert "relvec[plot]" in page.text and "img" not in page.tags and "RMSE" in page.text


def test_export_to_onnx_predicts_the_same(capsys, tmp_path):
    pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    for model, data in (("houses", "new.csv"), ("patients", "patients.csv")):
        out = tmp_path / f"{model}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the converters
            found = run_json(capsys, "export", f"{model}.relvec", "--onnx", str(out))
        assert found["written"] == [str(out)]
        pipeline = load(f"{model}.relvec")
        X = pipeline[0].transform(read_table(data))
        assert [i["name"] for i in found["inputs"]] == pipeline[0].get_feature_names_out().tolist()
        session = onnxruntime.InferenceSession(out.read_bytes(), providers=["CPUExecutionProvider"])
        got = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"X": X}), strict=True))
        expected = predict_table(pipeline, read_table(data))
        if model == "houses":
            np.testing.assert_allclose(got["mean"].ravel(), expected.mean, rtol=1e-6)
            np.testing.assert_allclose(got["std"].ravel(), expected.std, rtol=1e-6)
        else:
            np.testing.assert_allclose(got["probabilities"], expected.proba, atol=1e-6)


def test_options_reach_the_estimator(capsys, tmp_path):
    options = ("--kernel", "matern32", "--width", "2.5", "--seed", "7", "--time-limit", "30", "--features", "Area (m²)",
               "Town", "--id", "rooms", "--functions", "40", "--memory-limit", "100MB")  # fmt: skip
    found = run_json(capsys, "fit", "houses.csv", "--target", "Price", "-o", str(tmp_path / "m.relvec"), *options)
    assert found["options"]["kernel"] == "matern32" and found["options"]["width"] == 2.5
    assert found["options"]["random_state"] == 7 and found["options"]["time_limit"] == 30.0
    assert found["options"]["max_functions"] == 40 and found["options"]["memory_limit"] == "100MB"
    used = [c["name"] for c in found["columns"] if c["kind"] in ("number", "category", "boolean", "date")]
    assert used == ["Area (m²)", "Town"]
    assert [c["name"] for c in found["columns"] if c["kind"] == "identifier"] == ["rooms"]


def test_widths_learned_by_evidence_are_kept_with_the_model(capsys, tmp_path):
    model = str(tmp_path / "m.relvec")
    options = ("--features", "Area (m²)", "Garden?", "rooms", "--width", "learn-per-feature")
    run(capsys, "fit", "houses.csv", "--target", "Price", "-o", model, *options)
    relevance = learned_relevance(load(model))
    assert relevance["Area (m²)"] > relevance["rooms"] and sum(relevance.values()) == pytest.approx(1.0)


def test_unseen_categories_are_said_and_predicted(capsys, tmp_path):
    lines = messy.houses(3, seed=5).decode("utf-8-sig").splitlines()
    table = list(csv.reader(lines))
    table[1][2] = "Atlantis"
    path = tmp_path / "unseen.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(table)
    assert cli.main(["predict", "houses.relvec", str(path)]) == 0
    captured = capsys.readouterr()
    assert "column 'Town': 1 cell holds a category that was not seen in the fit ('Atlantis')" in captured.err
    assert len(captured.out.splitlines()) == 4


def cells(*rows):
    return "\n".join(rows).encode()


BAD_NUMBER = [*(f"{i},{i % 7}" for i in range(30))]
BAD_NUMBER[11] = "eleven,4"


@pytest.mark.parametrize(("data", "target", "message"), [
    (cells("x,y", *BAD_NUMBER), "y", r"bad\.csv, column 'x': expected numbers, got 'eleven' in row 12"),
    (cells("x,y", "1,2", "3"), "y", r"bad\.csv, row 2: 1 cells where the header has 2"),
    (cells("x,y", "1,2", "3,4"), "z", r"bad\.csv: there is no column 'z'; there are 'x', 'y'"),
    (cells("x,price", "1,2", "3,4"), "prize", r"did you mean 'price'"),
    (cells("x,y", "1,", "3,NA"), "y", r"column 'y': 0 rows with a target"),
    (cells("x,y", "1,a", "1,b"), "y", r"no column is left to predict from: 'x' left out: every cell is '1'"),
    (cells("x,y", "1,a", "2,a"), "y", r"column 'y': every row is 'a'; a classifier needs two classes"),
    (b"", "y", r"bad\.csv: the file is empty"),
])  # fmt: skip
def test_errors_name_the_file_the_column_and_the_row(capsys, tmp_path, monkeypatch, data, target, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.csv").write_bytes(data)
    assert cli.main(["fit", "bad.csv", "--target", target, "--strict"]) == 1
    captured = capsys.readouterr()
    assert re.search(message, captured.err), captured.err
    assert captured.err.startswith("relvec: ") and "Traceback" not in captured.err
    assert not (tmp_path / "model.relvec").exists()
    assert cli.main(["fit", "bad.csv", "--target", target, "--json", "--strict"]) == 1
    assert re.search(message, json.loads(capsys.readouterr().err)["error"])


@pytest.mark.parametrize(("arguments", "message"), [
    (["predict", "nowhere.relvec", "new.csv"], "nowhere.relvec: No such file"),
    (["predict", "houses.csv", "new.csv"], "houses.csv"),
    (["fit", "patients.csv", "-o", "never"], "--target one of 'patient', 'age', 'dose', 'note', 'recovered'"),
    (["predict", "houses.relvec", "patients.csv"], "the model needs the columns 'Area (m²)', 'Town'"),
    (["evaluate", "patients.relvec", "calls.jsonl"], "there is no column 'recovered'"),
    (["fit", "houses.csv", "--target", "Price", "--features", "currency", "-o", "never"], "as an input, but left out"),
    (["fit", "houses.csv", "--target", "Price", "--width", "wide", "-o", "never"], "width must be"),
    (["fit", "calls.jsonl", "--target", "hour", "--task", "count", "-o", "never"], "expected a count"),
    (["report", "houses.relvec", "new.csv", "-o", "never.pdf"], "reports cannot be written as '.pdf'"),
])  # fmt: skip
def test_other_errors_end_with_code_1(capsys, folder, arguments, message):
    assert cli.main(arguments) == 1
    assert message in capsys.readouterr().err
    assert not list(folder.glob("never*"))


@pytest.mark.parametrize(("arguments", "message"), [
    (["fit", "houses.csv", "--target", "Price", "--task", "magic"], "invalid choice"),
    (["fit", "houses.csv", "--target", "Price", "--holdout", "2"], "expected a number from 0 to below 1"),
    (["fit", "houses.csv", "--target", "Price", "--time-limit", "-1"], "expected a positive number"),
    (["export", "houses.relvec"], "choose --onnx, --c or both"),
    (["evaluate", "houses.relvec", "new.csv", "--cv", "1"], "2 or more"),
])  # fmt: skip
def test_wrong_arguments_end_with_code_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "predict", "inspect", "evaluate", "report", "export"])
def test_help_has_examples(capsys, command):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0 and f"examples:\n  relvec {command}" in capsys.readouterr().out


def test_without_extras(folder):
    """One sentence says what to install; the commands work where pictures, terminals and exports have no package."""
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"matplotlib", "tqdm", "onnx", "skl2onnx", *sys.argv[1:]}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from relvec.app import cli
if sys.argv[1:]:
    assert cli.main(["fit", "houses.csv", "--target", "Price"]) == 1
    assert cli.main(["predict", "houses.relvec", "new.csv"]) == 1
    raise SystemExit(cli.main(["demo", "--out", "demo"]))
assert cli.main(["predict", "houses.relvec", "new.csv", "-o", "without.csv"]) == 0
assert cli.main(["report", "houses.relvec", "new.csv", "-o", "without.html"]) == 0
assert cli.main(["export", "houses.relvec", "--onnx", "without.onnx"]) == 1
"""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert "relvec[onnx]" in done.stderr
    done = subprocess.run([*command, "pandas"], capture_output=True, text=True, check=True, cwd=folder)
    sentence = "relvec: working with tables needs pandas, which is not installed: pip install 'relvec[tables]'"
    assert done.stderr.splitlines()[:2] == [sentence] * 2


def test_a_column_may_be_empty_in_a_part_of_the_rows():
    x = np.arange(12.0)
    table = {"x": x, "seldom": [1.0, 2.0] + [np.nan] * 10, "y": np.sin(x)}
    pipeline = fit_table(table, "y", model=RVR(width=1.0)).pipeline
    assert np.isfinite(evaluate_table(pipeline, table, folds=6).prediction.mean).all()


CARS = [
    "make;power;price",
    *(f"brand {i % 3};{60 + 3 * i} PS;{4000 + 90 * i + 300 * (i * i % 7)},5" for i in range(40)),
]
CARS[11], CARS[23] = "brand 1;unbekannt;4900", "brand 2;154 kW;5980,5"


def test_a_messy_table_is_fitted_at_the_first_attempt(capsys, tmp_path, monkeypatch):
    """Decimal commas, units, a word for missing cells and another unit: read, listed, and read the same in predict."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cars.csv").write_text("\n".join(CARS))
    fit = ["fit", "cars.csv", "--target", "price", "--width", "2", "-o", "cars.relvec"]
    out = run(capsys, *fit)
    for words in (
        "in PS",
        "2 cells are not numbers",
        "'unbekannt' in row 11",
        "'154 kW' in row 23",
    ):
        assert words in out, out
    assert len(run(capsys, "predict", "cars.relvec", "cars.csv").splitlines()) == 41
    assert cli.main([*fit, "--strict"]) == 1
    error = capsys.readouterr().err
    assert "'unbekannt' in row 11" in error and "'154 kW' in row 23" in error
    out = run(capsys, *fit, "--missing", "unbekannt", "154 kW", "--strict", "--drop-rows")
    assert "2 rows left out: a cell is missing there" in out and re.search(r"rows kept +\d+ of 38 rows", out)


def test_words_for_missing_cells_reach_predict_and_evaluate(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cars.csv").write_text("\n".join(CARS))
    run(capsys, "fit", "cars.csv", "--target", "price", "--width", "2", "-o", "cars.relvec")
    (tmp_path / "new.csv").write_text("make;power;price\nbrand 1;soon;5000\nbrand 2;90 PS;n.n.\nbrand 0;99 PS;5000")
    for command in ("predict", "evaluate"):  # a few are missing all the same, and told
        assert cli.main([command, "cars.relvec", "new.csv"]) == 0
        captured = capsys.readouterr()
        assert "'soon' in row 1" in captured.out + captured.err
        assert "row left out: 'price' is missing there" in captured.out or command == "predict"
        assert cli.main([command, "cars.relvec", "new.csv", "--missing", "soon", "n.n."]) == 0
        captured = capsys.readouterr()
        assert "soon" not in captured.out + captured.err
    (tmp_path / "new.csv").write_text("make;power;price\nbrand 1;soon;5000\nbrand 2;late;5000\nbrand 0;99 PS;5000")
    assert cli.main(["predict", "cars.relvec", "new.csv"]) == 1  # most of a column: it is another one
    assert "'soon' in row 1, 'late' in row 2" in capsys.readouterr().err


def test_a_few_targets_that_are_not_numbers_are_left_out(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{i % 7 + i / 100}" for i in range(40)]
    rows[8] = "8,sold"
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(rows))
    out = run(capsys, "fit", "t.csv", "--target", "y", "--width", "2", "-o", "m.relvec")
    assert "1 row left out: 'y' is not a number there: 'sold' in row 9" in out
    assert "task: regression, because nearly all cells of 'y' are numbers" in out


def test_a_time_limit_holds_for_the_whole_fit_and_is_said(capsys, tmp_path):
    """Once, in plain words, in the output and in the model's report."""
    model, page = str(tmp_path / "m.relvec"), tmp_path / "r.html"
    out = run(capsys, "fit", "houses.csv", "--target", "Price", "--time-limit", "0.05", "-o", model)
    assert out.count("time limit") == 1 and "the time limit of 0.05 s ended the fit" in out and "cut short" not in out
    run(capsys, "report", model, "new.csv", "-o", str(page))
    assert "The time limit of 0.05 s ended the fit" in page.read_text()
    assert load(model)[-1].time_limit == 0.05


def test_a_time_limit_counts_from_the_start_of_the_command(monkeypatch, tmp_path):
    """Reading the table takes a minute, nearly all of the limit: what is left is that of the fit."""
    limits, late = [], []
    read, fit = read_table, GPRegressor.fit
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 60.0 * len(late))
    monkeypatch.setattr("relvec.runtime.clock.time", clock)
    monkeypatch.setattr("relvec.app.cli.fit.read_table", lambda *a: (late.append(True), read(*a))[1])
    monkeypatch.setattr(
        GPRegressor, "fit", lambda self, *a, **k: (limits.append(self.time_limit), fit(self, *a, **k))[1]
    )
    arguments = ["--model", "gp", "--time-limit", "60.1", "--holdout", "0", "--json", "-o", str(tmp_path / "m.relvec")]
    assert cli.main(["fit", "houses.csv", "--target", "Price", *arguments]) == 0
    assert len(limits) == 1 and limits[0] <= 0.1


def test_a_fit_to_all_rows_prints_scores_of_rows_held_out(capsys, tmp_path):
    model = str(tmp_path / "m.relvec")
    found = run_json(capsys, "fit", "houses.csv", "--target", "Price", "--width", "3", "-o", model)
    assert found["rows"] == 215 and load(model)["columns"].record_["rows"] == 215
    held_out = found["holdout"]
    assert held_out["rows"] == 43 and held_out["fitted_rows"] == 172
    assert 0 < held_out["scores"]["RMSE"]["value"] < held_out["scores"]["RMSE"]["baseline"]
    out = run(capsys, "fit", "houses.csv", "--target", "Price", "--width", "3", "-o", model)
    assert "scores on 43 rows, by a second model fitted to the other 172; the one saved has seen all rows" in out
    assert "baseline" in out and re.search(r"importance \(rise of the RMSE when .* is shuffled\): \S.* ± \d", out)
    rises = held_out["importance"]
    assert max(rises, key=lambda name: rises[name]["rise"]) == "Area (m²)" and "\n  relevance" not in out
    assert "holdout" not in run_json(
        capsys, "fit", "houses.csv", "--target", "Price", "--width", "3", "--holdout", "0", "-o", model
    )


def test_a_fit_tells_why_it_has_no_scores(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for n, words in ((700, "scores on 140 rows"), (40, "no scores of rows held out: fewer than 50 rows")):
        (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i % 17},{2 * (i % 17) + i % 3}\n" for i in range(n)))
        assert words in run(capsys, "fit", "t.csv", "--target", "y", "--model", "linear")
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i % 17},{2 * (i % 17) + i % 3}\n" for i in range(90)))
    arguments = ["fit", "t.csv", "--target", "y", "--model", "linear"]
    assert "; --holdout 0.2 keeps rows out" in run(capsys, *arguments, "--time-limit", "0.001")


def test_many_rows_are_enough_for_a_fit_and_its_scores(capsys, tmp_path, monkeypatch):
    """The number of folds and of rows drawn for the comparison is told as it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("relvec.app.cli.fit.MAX_COMPARED_ROWS", 2500)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i % 17},{2 * (i % 17) + i % 3}\n" for i in range(3000)))
    out = run(capsys, "fit", "t.csv", "--target", "y", "--model", "linear", "--compare")
    assert "scores on 300 rows kept out of the fit, as there are many; --holdout 0" in out
    assert "held-out rows: a third of 2,500 rows drawn from 2,700" in out and "3 folds" not in out


def test_a_fit_is_saved_where_its_check_fails(capsys, tmp_path, monkeypatch):
    """A class of a single row is in one of the two parts only."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 13},{'rare' if i == 7 else 'ab'[i % 13 > 6]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("x,y\n" + "\n".join(rows))
    for seed in range(3):
        out = run(capsys, "fit", "t.csv", "--target", "y", "--width", "2", "--seed", str(seed))
        assert "saved: model.relvec" in out and ("scores on 12 rows" in out) != ("no scores of rows held out: " in out)


def test_nines_that_may_stand_for_missing_cells_are_pointed_out(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{-999 if i % 20 == 3 else 20 + i % 50},{99 - i % 30},{i % 7 + i / 100}" for i in range(60)]
    (tmp_path / "t.csv").write_text("age,share,y\n" + "\n".join(rows))
    arguments = ["fit", "t.csv", "--target", "y", "--width", "2", "--holdout", "0"]
    out = run(capsys, *arguments)
    assert out.count("stands for a missing value") == 1
    assert "if -999 (3 cells) stands for a missing value, give --missing -999" in out
    out = run(capsys, *arguments, "--missing=-999")
    assert "stands for a missing value" not in out and "3 missing cells" in out


def test_formulas_are_told_and_escaped_when_asked(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"=cmd({i}),{i % 7},{2 * (i % 7) + i % 2}\n" for i in range(30))
    (tmp_path / "t.csv").write_text("name,x,y\n" + rows)
    assert cli.main(["fit", "t.csv", "--target", "y", "--id", "name", "--width", "2", "-o", "m.relvec"]) == 0
    assert cli.main(["predict", "m.relvec", "t.csv", "-o", "plain.csv"]) == 0
    assert "--escape-formulas" in capsys.readouterr().err
    assert (tmp_path / "plain.csv").read_text().splitlines()[1].startswith("=cmd(0)")
    assert cli.main(["predict", "m.relvec", "t.csv", "--escape-formulas", "-o", "safe.csv"]) == 0
    assert "--escape-formulas" not in capsys.readouterr().err
    assert all(line.startswith("'=cmd(") for line in (tmp_path / "safe.csv").read_text().splitlines()[1:])


def test_control_characters_reach_no_terminal(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{i},k\x1b[2Jey {i % 3},{i * 0.7}" for i in range(30))
    (tmp_path / "t.csv").write_text("x\x1b[31m,a\x1b[0m,y\n" + rows)
    assert cli.main(["fit", "t.csv", "--target", "y", "--width", "1", "--id", "a\\x1b[0m", "-o", "m.relvec"]) == 0
    assert cli.main(["inspect", "m.relvec"]) == 0
    assert cli.main(["predict", "m.relvec", "t.csv", "-o", "p.csv"]) == 0
    assert cli.main(["fit", "t.csv", "--target", "z\x1b[2J"]) == 1
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err and "x\\x1b[31m" in captured.out


def test_what_width_auto_did_is_printed_and_reported(capsys, tmp_path):
    out = run(capsys, "inspect", "houses.relvec")
    assert "chosen by merit" in out
    assert re.search(r"relevance  .*Area \(m²\) \d\d%", out)
    out = run(capsys, "inspect", "patients.relvec")
    assert "chosen by the density of rows held out" in out
    assert run_json(capsys, "inspect", "houses.relvec")["width_rule"] == "merit"
    run(capsys, "report", "patients.relvec", "patients.csv", "-o", str(tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text()
    assert "chosen by the density of rows held out" in page and "log loss" in page


@pytest.mark.parametrize("data, target", [("houses.csv", "Price"), ("patients.csv", "recovered")])
def test_calibrated_intervals_and_sets(capsys, tmp_path, data, target):
    model, again = str(tmp_path / "m.relvec"), str(tmp_path / "again.relvec")
    out = run(capsys, "fit", data, "--target", target, "--calibrate", "0.4", "--holdout", "0.2", "-o", model,
              "--kernel", "linear")  # fmt: skip
    assert re.search(r"calibrated +on \d+ rows: (intervals|sets of classes) hold their coverage", out)
    assert "coverage" in out
    rows = list(csv.DictReader(io.StringIO(run(capsys, "predict", model, data))))
    if data == "patients.csv":
        assert {label for row in rows for label in row["classes"].split(" | ")} == {row["class"] for row in rows}
    found = run_json(capsys, "calibrate", model, data, "-o", again)
    assert load(again)[-1].calibration_.n_rows == found["rows"] > load(model)[-1].calibration_.n_rows
    run(capsys, "export", again, "--c", str(tmp_path / "m.c"), "--interval", "0.8")
    assert "_predict_interval(" in (tmp_path / "m.c").read_text() or "_predict_set(" in (tmp_path / "m.c").read_text()


def test_outliers_are_named_by_their_rows(capsys, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=60)
    y = 3.0 * x + 0.05 * rng.normal(size=60)
    y[16] += 9.0
    data, model = tmp_path / "t.csv", str(tmp_path / "m.relvec")
    data.write_text("x,y\n" + "\n".join(f"{a},{b}" for a, b in zip(x, y)))
    out = run(capsys, "fit", str(data), "--target", "y", "--noise", "student-t", "--kernel", "linear", "-o", model,
              "--holdout", "0")  # fmt: skip
    assert re.search(r"outliers +1 row: 17 \(Student-t noise with [0-9.]+ degrees of freedom\)", out)
    assert "outliers" in run(capsys, "inspect", model)


def test_columns_that_the_noise_depends_on_are_named(capsys, tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(2, 200))
    y = 3.0 * b + 2.0 * a**2 * rng.normal(size=200)
    data = tmp_path / "t.csv"
    data.write_text("a,b,y\n" + "\n".join(f"{i},{j},{k}" for i, j, k in zip(a, b, y)))
    out = run(capsys, "fit", str(data), "--target", "y", "--noise", "heteroscedastic", "-o",
              str(tmp_path / "m.relvec"), "--holdout", "0")  # fmt: skip
    assert re.search(r"noise depends on +a\b", out)


def test_classes_with_few_rows_are_told_and_stay_out_of_the_scores(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=60)
    kinds = ["high" if value > 0 else "low" for value in x]
    kinds[3], kinds[5] = "High", "unsure"
    rows = "".join(f"{value:.3f},{kind}\n" for value, kind in zip(x, kinds))
    (tmp_path / "t.csv").write_text(f"x,kind\n{rows}")
    out = run(capsys, "fit", "t.csv", "--target", "kind", "--kernel", "gaussian", "--width", "2")
    assert "'high', 'High' are different classes here" in out
    assert "with one row, too few to learn from: 'High', 'unsure'" in out
    assert "scores on" in out and "--cv 5" in out
    out = run(capsys, "evaluate", "model.relvec", "t.csv", "--cv", "5")
    assert "58 rows, 5-fold" in out and "2 rows not evaluated" in out


def test_a_class_that_only_rows_held_out_have_is_left_out_of_the_scores(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},{'odd' if i == 1 else 'low' if i < 30 else 'high'}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(f"x,kind\n{rows}")
    for seed in range(20):  # until the odd row is held out
        out = run(capsys, "fit", "t.csv", "--target", "kind", "--width", "1", "--holdout", "0.4", "--seed", str(seed))
        if "'odd'" not in out:
            break
    assert "scores on 23 rows" in out and "1 row not evaluated" in out


def test_a_table_without_some_class_of_the_model_is_cross_validated():
    x = np.random.default_rng(0).normal(size=(90, 1))[:, 0]
    kinds = np.where(x > 0.5, "c", np.where(x > -0.5, "b", "a"))
    pipeline = fit_table({"x": x, "kind": kinds}, "kind", model=RVC(width=1.0)).pipeline
    found = evaluate_table(pipeline, {"x": x[kinds != "b"], "kind": kinds[kinds != "b"]}, folds=3)
    assert found.prediction.proba.shape == (np.sum(kinds != "b"), 3)
    assert {score.name: score.value for score in found.scores}["accuracy"] > 0.9


def test_a_constant_target_shows_no_relevance(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},5\n" for i in range(12)))
    out = run(capsys, "fit", "t.csv", "--target", "y")
    assert "1 different number;" in out and "relevance" not in out


def test_the_next_command_runs_whatever_the_files_are_called(capsys, tmp_path):
    data, model = tmp_path / "my table.csv", tmp_path / "it's $HOME; a model.relvec"
    data.write_text("x,y\n" + "".join(f"{i},{2 * i % 7}\n" for i in range(20)))
    fit = run(capsys, "fit", str(data), "--target", "y", "--kernel", "linear", "--holdout", "0", "-o", str(model))
    calibrate = run(capsys, "calibrate", str(model), str(data))
    for out, rest in ((fit, ["report", str(model), str(data), "--cv"]), (calibrate, ["predict", str(model)])):
        words = shlex.split(out.split("next:  relvec ")[1].splitlines()[0])
        assert words[: len(rest)] == rest


def test_the_next_command_runs_on_three_rows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,y\n1,2\n2,3\n3,5\n")
    out = run(capsys, "fit", "t.csv", "--target", "y")
    assert "next:  relvec report model.relvec t.csv --cv 3" in out
    run(capsys, "evaluate", "model.relvec", "t.csv", "--cv", "3")


def test_the_next_command_reads_the_sheet_that_was_fitted(capsys, tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    monkeypatch.chdir(tmp_path)
    book = openpyxl.Workbook()
    sheet = book.create_sheet("my data")
    for row in (("x", "y"), (1, 2), (2, 3), (3, 5)):
        sheet.append(row)
    book.save("t.xlsx")
    out = run(capsys, "fit", "t.xlsx", "--sheet", "my data", "--target", "y", "--model", "linear")
    run(capsys, *shlex.split(out.split("next:  relvec ")[1].splitlines()[0]))
