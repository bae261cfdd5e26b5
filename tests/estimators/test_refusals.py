"""What cannot be done is refused with words that say what was expected, what came and what to try."""

import json

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fuzz
from relvec import RVC, RVR, GPClassifier, GPRegressor, kernels, relevance_path, save, solvers
from relvec.app import cli
from relvec.app.tables import TableError, as_table, evaluate_table, fit_table
from relvec.app.tables.evaluation import calibrate_table, holds_training_rows
from relvec.app.tables.target import ends_of, prepare_target
from relvec.export import model_file
from relvec.export.c99.source import CSource
from relvec.export.exported import find_thresholds
from relvec.export.model_file import ModelFileError, dumps, loads
from relvec.gaussian_process.classes.fit import fit_classes
from relvec.inference.conformal import cross_interval
from relvec.inference.decisions import change_priors

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=30)
LABELS = np.where(X[:, 0] > 0.0, "b", "a")


# ---------------------------------------------------------------- estimators


@pytest.mark.parametrize(("call", "message"), [
    (lambda: solvers.Stepwise(support_prior="x"), "support_prior must be 'flat' or 'size', got 'x'"),
    (lambda: RVR(likelihood="gamma").fit(X, Y), "likelihood must be one of 'gaussian'.*got 'gamma'"),
    (lambda: RVR(kernel="precomputed", basis="linear").fit(X @ X.T, Y), "other basis functions make no sense"),
    (lambda: GPRegressor(likelihood="gamma").fit(X, Y), "likelihood must be one of 'gaussian'.*got 'gamma'"),
    (lambda: GPRegressor(noise="loud").fit(X, Y), "noise must be one of 'auto'.*got 'loud'"),
    (lambda: GPRegressor(likelihood="student-t").fit(np.arange(10_001.0)[:, None], np.zeros(10_001)),
     "10000 rows: for more fit a sample of the rows, or RelevanceVectorRegressor"),
    (lambda: GPClassifier(kernel="laplace").fit(X, LABELS), "kernel must be 'auto', 'gaussian'.*got 'laplace'"),
    (lambda: relevance_path(X, Y, max_functions=1, n_folds=0).best, "n_folds=2 or more"),
    (lambda: change_priors([[1.0, 0.0]], [0.5, 0.5], [0.0, 1.0]), "probability 0 for all classes"),
    (lambda: fit_classes(X, np.zeros(30, dtype=int), 1), "at least two classes, got 1"),
    (lambda: find_thresholds(None, 1.0), "coverage must lie strictly between 0 and 1, got 1.0"),
    (lambda: CSource("m").table([1.0, np.inf]), "overflow in the units of X and y"),
])  # fmt: skip
def test_values_that_make_no_sense(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_too_few_rows_for_a_coverage_bound_nothing():
    lower, upper = cross_interval(np.zeros((3, 2)), np.ones((3, 2)), 0.99)
    assert lower.tolist() == [-np.inf] * 2 and upper.tolist() == [np.inf] * 2
    lower, upper = cross_interval(np.zeros((3, 2)), np.ones((3, 2)), 0.5)
    assert lower.tolist() == [0.0] * 2 and upper.tolist() == [1.0] * 2


# ---------------------------------------------------------------- model files


@pytest.mark.parametrize(("tree", "arrays", "message"), [
    ({"scalar": 0}, [[2]], r"an array of shape \(2,\) is not one number"),
    ({"objects": {"shape": [3], "items": [1, 2]}}, [], r"2 objects do not make an array of shape \(3,\)"),
])  # fmt: skip
def test_arrays_of_a_file_that_are_something_else(tree, arrays, message):
    entries = [{"dtype": "<f8", "shape": shape, "fortran": False, "readonly": False} for shape in arrays]
    header = {"versions": {"sklearn": "1.0"}, "arrays": entries, "model": tree}
    with pytest.raises(ModelFileError, match=message):
        loads(fuzz.with_header(header, bytes(8 * sum(np.prod(shape, dtype=int) for shape in arrays))))


def test_a_file_nested_deeper_than_any_that_is_written():
    tree = 0
    for _ in range(150):
        tree = [tree]
    with pytest.raises(ModelFileError, match="nested too deep"):
        loads(fuzz.with_header({"versions": {"sklearn": "1.0"}, "arrays": [], "model": tree}, b""))


@pytest.mark.parametrize(("model", "message"), [
    (RVR(basis=type("Own", (), {})), "Own"),
    (RVR(basis=np.frompyfunc(abs, 1, 1)), "abs"),
    (RVR(basis={i: 0 for i in range(20_000)}), "20000 keys that are not all words"),
])  # fmt: skip
def test_parameters_that_no_file_can_hold(model, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dumps(model)


def test_more_words_than_a_file_takes(monkeypatch):
    monkeypatch.setattr(model_file.layout, "MAX_HEADER_ITEMS", 100)
    with pytest.raises(ValueError, match="words and numbers outside of arrays"):
        dumps(RVR(basis=list(range(200))))


# ---------------------------------------------------------------- tables

TABLE = {"x": X[:, 0], "z": X[:, 1], "y": Y}


@pytest.fixture(scope="module")
def fitted():
    return fit_table(TABLE, "y").pipeline


@pytest.fixture(scope="module")
def classes():
    return fit_table({"x": X[:, 0], "y": LABELS}, "y").pipeline


def test_a_table_without_any_target_is_neither_evaluated_nor_calibrated_on(fitted):
    nothing = {**TABLE, "y": np.full(30, np.nan)}
    with pytest.raises(TableError, match="every target is missing"):
        evaluate_table(fitted, nothing)
    with pytest.raises(TableError, match="no row has a target, so there is nothing to calibrate on"):
        calibrate_table(fitted, nothing)


def test_folds_need_rows_of_two_classes_at_least(fitted, classes):
    with pytest.raises(TableError, match=r"between 2 and 30 folds \(the number of rows\), got 31"):
        evaluate_table(fitted, TABLE, folds=31)
    few = np.flatnonzero(LABELS == "a")[:3].tolist() + np.flatnonzero(LABELS == "b").tolist()
    with pytest.raises(TableError, match=r"only one class has as many rows as there are folds \(5\)"):
        evaluate_table(classes, {"x": X[few, 0], "y": LABELS[few]}, folds=5)


def test_a_table_without_the_columns_of_the_vectors_holds_no_training_rows(fitted):
    assert holds_training_rows(fitted, as_table(TABLE))
    assert not holds_training_rows(fitted, as_table({"x": X[:, 0], "y": Y}))


@pytest.mark.parametrize(("table", "options", "message"), [
    ({"y": [1.0, 2.0, 3.0]}, {"task": "magic"}, "task must be one of .*got 'magic'"),
    ({"y": [f"w{i}" for i in range(300)]}, {"task": "classification"}, "300 different values in 300 rows are too many"),
])  # fmt: skip
def test_targets_that_are_none(table, options, message):
    with pytest.raises(TableError, match=message):
        prepare_target(as_table(table), "y", **options)


def test_two_numbers_are_two_classes():
    _, task, _, _ = prepare_target(as_table({"y": [3.0, 7.0] * 10}), "y", "auto")
    assert task == "classification"


def test_an_upper_end_below_the_lower_one_is_refused_with_its_row():
    with pytest.raises(TableError, match=r"row 2.*: the upper end 1 is below the lower end 2"):
        ends_of(as_table({"low": [0.0, 2.0, 3.0], "high": [1.0, 1.0, 4.0]}), "low", "high")


# ---------------------------------------------------------------- commands


def write_csv(path, names, *columns):
    path.write_text("\n".join([names, *(",".join(map(str, row)) for row in zip(*columns, strict=True))]) + "\n")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--target", "y", "--holdout", "0.9"], "--holdout 0.9 leaves"),
    (["--target", "kind", "--model", "rvm", "--noise", "student-t"], "--noise is for regression"),
])  # fmt: skip
def test_fits_that_cannot_be_made(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "few.csv", "x,kind,y", range(8), "abababab", range(8))
    assert cli.main(["fit", "few.csv", *arguments]) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "model.relvec").exists()


def test_a_model_of_another_kind_is_no_pipeline_of_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "new.csv", "x,z", X[:, 0], X[:, 1])
    for model in (RVC(kernel=None, basis="linear"), make_pipeline(StandardScaler(), RVR(kernel=None, basis="linear"))):
        save(model.fit(X, LABELS if isinstance(model, RVC) else Y), tmp_path / "own.relvec")
        assert cli.main(["predict", "own.relvec", "new.csv"]) == 1
        assert "was not made by relvec fit; load it in Python" in capsys.readouterr().err


def test_a_place_that_may_not_be_written_to_is_told_before_the_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "t.csv", "x,y", range(8), range(8))
    monkeypatch.setattr("relvec.app.cli.console.os.access", lambda path, mode: False)
    assert cli.main(["fit", "t.csv", "--target", "y"]) == 1
    assert "you may not write to" in capsys.readouterr().err


@pytest.mark.parametrize("pairs", [0, 10**6], ids=["by products", "by differences"])
def test_kernels_at_distances_that_overflow_are_zero_and_one(pairs, monkeypatch):
    monkeypatch.setattr("relvec.kernels.stationary._MAX_PAIRS_BY_DIFFERENCES", pairs)
    far = np.array([[1e150] + 39 * [0.0], [-1e150] + 39 * [0.0]])
    np.testing.assert_array_equal(kernels.Gaussian(1.0)(far, far), np.eye(2))


# ---------------------------------------------------------------- files whose parts do not belong together


def wrong_model(change):
    """The file of a model with something in it changed, under a right checksum."""
    text, raw = fuzz.split(dumps(RVR(width=1.0).fit(X, Y)))
    header = json.loads(text)
    state = header["model"]["object"]["state"]
    change(state, state["fitted_"]["object"]["state"], header["arrays"])
    return fuzz.with_header(header, raw)


@pytest.mark.parametrize(("change", "message"), [
    (lambda state, fitted, arrays: state.update(n_features_in_=7), "n_features_in_ is 7 and does not match the basis"),
    (lambda state, fitted, arrays: fitted.update(predictors=[]), "do not match the outputs or classes"),
    (lambda state, fitted, arrays: fitted.update(predictors=2 * fitted["predictors"]), "do not match the outputs"),
    (lambda state, fitted, arrays: arrays[fitted["predictors"][0]["object"]["state"]["root"]["array"]].update(
        shape=[int(np.prod(arrays[fitted["predictors"][0]["object"]["state"]["root"]["array"]]["shape"]))]),
     r"root has the shape \(\d+,\), which does not match"),
])  # fmt: skip
def test_files_whose_parts_do_not_belong_together(change, message):
    with pytest.raises(ModelFileError, match=message):
        loads(wrong_model(change))
