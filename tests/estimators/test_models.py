"""`relvec fit --model`: the family that is asked for, or the smallest that held-out rows cannot tell from the best."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor, load
from relvec.app import cli
from relvec.app.tables.baselines import BASELINES
from relvec.app.tables.families import FAMILIES, compare_families, compared_header

pytest.importorskip("pandas")

TARGETS = {"regression": "y", "classification": "kind", "count": "calls"}
CLASSES = {
    ("rvm", "regression"): RVR, ("gp", "regression"): GPRegressor, ("linear", "regression"): SparseBayesianRegressor,
    ("rvm", "classification"): RVC, ("gp", "classification"): GPClassifier,
    ("linear", "classification"): SparseBayesianClassifier, ("rvm", "count"): RVR, ("linear", "count"): RVR,
}  # fmt: skip


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    """Write a table with a target of every kind: a curve in x and a line in z, and nothing in the others."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, z, u = rng.uniform(-3, 3, (3, 80))
    curve = np.sin(x) + 0.5 * z
    y, calls = curve + 0.1 * rng.normal(size=80), rng.poisson(np.exp(curve))
    columns = [x, z, u, y, np.where(curve > 0, "up", "down"), calls, y + 1.0]
    rows = "".join(",".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))
    (tmp_path / "t.csv").write_text(f"x,z,u,y,kind,calls,most\n{rows}")


def fit(capsys, task, *options):
    """Return what a fit to x, z and u found, as JSON."""
    inputs = ["--features", "x", "z", "u", "--target", TARGETS[task], "--task", task, "--holdout", "0"]
    assert cli.main(["fit", "t.csv", *inputs, *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("task", TARGETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_fitted_or_refused_in_a_sentence(capsys, family, task):
    if (family, task) not in CLASSES:
        assert cli.main(["fit", "t.csv", "--target", TARGETS[task], "--task", task, "--model", family]) == 1
        assert "a Gaussian process has no counts: choose --model rvm or linear" in capsys.readouterr().err
        return
    found, model = fit(capsys, task, "--model", family), load("model.relvec")[-1]
    assert type(model) is CLASSES[family, task]
    assert found["model"] == FAMILIES[family] and found["kept"] == model.fitted_.n_kept and found["compared"] == []
    assert cli.main(["inspect", "model.relvec"]) == 0
    assert f"{FAMILIES[family]}, {task} of" in capsys.readouterr().out


@pytest.mark.parametrize(("task", "family", "most"), [
    ("regression", "linear", "1"), ("regression", "rvm", "2"), ("regression", "gp", "5"), ("count", "rvm", "2"),
    ("classification", "linear", "1"), ("classification", "rvm", "2"), ("classification", "gp", "5"),
])  # fmt: skip
def test_functions_are_at_most_so_many(capsys, task, family, most):
    assert fit(capsys, task, "--model", family, "--functions", most)["kept"] <= int(most)
    assert load("model.relvec")[-1].fitted_.n_kept <= int(most)


@pytest.mark.parametrize(("task", "options", "words"), [
    ("regression", ["--model", "gp", "--kernel", "gaussian"], "a Gaussian process for regression has no --kernel"),
    ("regression", ["--model", "linear", "--width", "1"], "a sparse linear model for regression has no --width"),
    ("regression", ["--model", "linear", "--noise", "student-t"], "sparse linear model for regression has no --noise"),
    ("regression", ["--model", "rvm", "--noise", "heteroscedastic"], "relevance vector machine for regression has no"),
    ("regression", ["--model", "rvm", "--upper", "most"], "are for a Gaussian process: choose --model gp"),
])  # fmt: skip
def test_an_option_of_another_family_is_refused(capsys, task, options, words):
    assert cli.main(["fit", "t.csv", "--target", TARGETS[task], "--task", task, *options]) == 1
    assert words in capsys.readouterr().err


def test_auto_prints_what_it_compared(capsys):
    found = fit(capsys, "regression", "--model", "auto")
    assert [item["family"] for item in found["compared"]] == ["linear", "rvm", "gp"]
    (chosen,) = [item for item in found["compared"] if item["chosen"]]
    assert found["model"] == FAMILIES[chosen["family"]] and chosen["short"] <= chosen["error"]
    assert chosen["family"] != "linear"  # the target is a sine of x
    inputs = ["--features", "x", "z", "u", "--target", "y", "--holdout", "0"]
    assert cli.main(["fit", "t.csv", *inputs]) == 0
    out = capsys.readouterr().out
    assert "the smallest model within a standard error of the best" in out
    assert all(words in out for words in (*compared_header("regression"), *FAMILIES.values(), "chosen"))


@pytest.mark.parametrize("task", TARGETS)
def test_compare_shows_baselines_that_are_never_chosen(capsys, task):
    found = fit(capsys, task, "--model", "linear", "--compare")
    by_name = {item["family"]: item for item in found["compared"]}
    assert (
        list(by_name) == [*BASELINES, "linear"] and by_name["linear"]["chosen"] and found["model"] == FAMILIES["linear"]
    )
    assert by_name["constant"]["density"] < by_name["line"]["density"]  # the target depends on the inputs
    assert np.isfinite([(item["density"], item["rmse"], item["error"]) for item in found["compared"]]).all()


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [("regression", ["--noise", "heteroscedastic"], "Gaussian process, the only one for --noise heteroscedastic"),
     ("regression", ["--width", "1"], "relevance vector machine, the only one for --kernel and --width"),
     ("regression", ["--time-limit", "2"], "Gaussian process, as --time-limit leaves no time to compare")],
)  # fmt: skip
def test_what_leaves_one_model_is_told(capsys, task, options, words):
    assert cli.main(["fit", "t.csv", "--target", TARGETS[task], "--task", task, "--holdout", "0", *options]) == 0
    assert words in capsys.readouterr().out


def test_few_seconds_are_for_one_fit(capsys):
    """Fits that are cut short say little of their families."""
    found = fit(capsys, "regression", "--time-limit", "5")
    assert found["compared"] == [] and found["model"] == FAMILIES["gp"]


def test_few_rows_are_not_compared(capsys, tmp_path):
    (tmp_path / "t.csv").write_text("x,z,u,y\n" + "".join(f"{i},{i * i % 7},{i % 3},{i % 5}\n" for i in range(12)))
    found = fit(capsys, "regression")
    assert found["compared"] == [] and found["model"] == FAMILIES["gp"]


class Made:
    """An estimator of a given size whose log densities are those of the column of X that it is told."""

    def __init__(self, column, size):
        self.column, self.fitted_ = column, SimpleNamespace(n_kept=size)

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))

    def log_predictive_density(self, X, y):
        return X[:, self.column]


def compare(densities, sizes):
    """Return the comparison of made estimators with these log densities (n, k) of rows and sizes."""
    makers, y = dict(zip(FAMILIES, range(len(sizes)), strict=True)), np.zeros(len(densities))
    made = compare_families(
        list(makers), lambda family: Made(makers[family], sizes[makers[family]]), densities, y, "regression"
    )
    return made, [i for i, item in enumerate(made) if item.chosen]


def test_the_smallest_within_a_standard_error_is_chosen():
    behind = np.where(np.arange(90) % 2, 1.0, -1.0)[:, None]  # of mean zero and error 0.1
    best = np.zeros((90, 1))
    made, chosen = compare(np.hstack([best, best - 0.05 - behind, best - 0.2 - behind]), [30, 10, 2])
    assert chosen == [1]  # the third is two errors behind
    assert [item.size for item in made] == [30, 10, 2]
    np.testing.assert_allclose([item.short for item in made], [0.0, 0.05, 0.2], atol=1e-12)
    np.testing.assert_allclose([item.error for item in made][1:], behind.std(ddof=1) / np.sqrt(90))
    assert made[0].cells()[3] == "best" and made[2].cells()[3].startswith("-0.200 ± 0.1")
    assert [item.cells()[1] for item in made] == ["30 functions", "10 vectors", "2 columns"]


def test_of_models_of_one_size_the_better_is_chosen():
    assert compare(np.tile([-1.0, -0.5, -0.7], (30, 1)), [4, 4, 4])[1] == [1]
