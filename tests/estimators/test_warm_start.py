"""Warm starts, and tables of repeated rows: the estimators as they come."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning

from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianRegressor
from relvec.estimators.options import MAX_LEARNED_WIDTHS
from relvec.hyperparameters import widths
from relvec.sparse.class_levels import TOL_NATS


def wave(seed, n=80, d=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, d))
    return X, np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.standard_normal(n)


def classes(seed, n=80):
    X, y = wave(seed, n)
    return X, np.digitize(y, [-0.5, 0.5])


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_starts_from_its_last_fit(seed):
    X, y = wave(seed)
    model = RVR(warm_start=True).fit(X, y)
    steps, before = model.n_iter_, model.predict(X)
    model.fit(X, y)
    assert model.n_iter_ < steps and np.allclose(model.predict(X), before)


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_with_learned_widths_starts_from_its_last_fit(seed):
    X, y = wave(seed)
    model = RVR(kernel="gaussian", warm_start=True).fit(X, y)
    first, learned, steps = model.log_marginal_likelihood_, model.width_, model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < steps and model.status_ == "converged"
    assert model.certificate_ <= 1e-4 and model.log_marginal_likelihood_ > first - 0.1
    assert np.allclose(np.log(model.width_), np.log(learned), atol=0.1) and len(model.tuning_.trials) < 4


@pytest.mark.parametrize("seed", range(3))
def test_a_process_starts_from_its_last_fit(seed):
    X, y = wave(seed)
    model = GPRegressor(warm_start=True).fit(X, y)
    first, learned, evaluations = model.log_marginal_likelihood_, model.width_, model.n_evaluations_
    names = [compared.name for compared in model.selection_]
    model.fit(X, y)
    assert model.n_evaluations_ < evaluations and model.status_ == "converged"
    assert model.log_marginal_likelihood_ > first - 0.05
    assert np.allclose(np.log(model.width_), np.log(learned), atol=0.1)
    assert {compared.name for compared in model.selection_} <= set(names)  # nothing else is compared


def test_a_process_of_classes_starts_from_its_last_fit():
    X, y = classes(0)
    model = GPClassifier(warm_start=True).fit(X, y)
    evaluations, before = model.n_evaluations_, model.predict_proba(X)
    model.fit(X, y)
    assert model.n_evaluations_ < evaluations and model.status_ == "converged"
    assert np.abs(model.predict_proba(X) - before).max() < 0.05


def test_columns_start_from_the_last_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 200))
    y = X[:, :3].sum(axis=1) + 0.2 * rng.normal(size=80)
    model = SparseBayesianRegressor(warm_start=True).fit(X, y)
    steps, selected = model.n_iter_, model.selected_
    model.fit(X, y)
    assert model.n_iter_ < steps and np.array_equal(model.selected_, selected)


@pytest.mark.parametrize("seed", range(3))
def test_a_warm_start_on_changed_data_takes_fewer_steps(seed):
    X, y = wave(seed)
    moved, given = y + 0.02 * np.cos(X[:, 0]), {"kernel": "gaussian"}
    cold = RVR(**given).fit(X, moved)
    warm = RVR(**given, warm_start=True).fit(X, y).fit(X, moved)
    assert warm.n_iter_ < cold.n_iter_ and warm.certificate_ <= 1e-4
    assert warm.log_marginal_likelihood_ > cold.log_marginal_likelihood_ - 1.0
    fewer = RVR(warm_start=True).fit(X, y).fit(X[:-5], y[:-5])
    assert fewer.n_iter_ < RVR().fit(X[:-5], y[:-5]).n_iter_


@pytest.mark.parametrize("model", [RVC(), RVC(width="learn"), RVC(multi_class="ovr")], ids=repr)
def test_a_classifier_starts_from_its_last_fit(model):
    X, y = classes(0)
    model = clone(model).set_params(warm_start=True).fit(X, y)
    steps, first = np.sum(model.n_iter_), np.sum(model.log_marginal_likelihood_)
    model.fit(X, y)
    tol = TOL_NATS if hasattr(model, "choice_") else model.tol  # where held-out rows chose
    assert np.sum(model.n_iter_) < steps and np.all(model.certificate_ <= tol)
    assert np.sum(model.log_marginal_likelihood_) > first - 0.1


def test_several_outputs_start_from_their_last_fit():
    X, y = wave(0)
    model = RVR(warm_start=True).fit(X, np.column_stack([y, y**2]))
    steps = model.n_iter_.sum()
    assert model.fit(X, np.column_stack([y, y**2])).n_iter_.sum() < steps
    one = model.fit(X, y)  # another number of outputs: from nothing, but for the widths
    assert one.weights_.ndim == 1


# Repeated rows and weights --------------------------------------------------------------------------------------------


def repeated(X, y, counts, rng):
    rows = rng.permutation(np.repeat(np.arange(len(X)), counts))
    return X[rows], y[rows]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [15, 60])
@pytest.mark.parametrize("make", [RVR, GPRegressor])
def test_repeated_rows_are_weights_to_a_regressor(make, seed, n):
    rng, (X, y) = np.random.default_rng(seed), wave(seed, n)
    counts = rng.integers(0, 5, n)
    weighted, copied = make().fit(X, y, counts.astype(float)), make().fit(*repeated(X, y, counts, rng))
    assert np.allclose(weighted.predict(X), copied.predict(X), atol=1e-3 * np.ptp(y))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", [RVC(), RVC(width="learn"), RVC(width="learn-per-feature"), GPClassifier()], ids=repr)
def test_repeated_rows_are_weights_to_a_classifier(seed, model):
    rng, (X, y) = np.random.default_rng(seed), classes(seed, 40)
    counts = rng.integers(0, 4, len(X))
    weighted, copied = clone(model).fit(X, y, counts), clone(model).fit(*repeated(X, y, counts, rng))
    assert np.allclose(weighted.predict_proba(X), copied.predict_proba(X), atol=0.01)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("targets", ["equal", "different"])
def test_repeated_rows_where_only_some_are_drawn(targets, monkeypatch):
    """Widths are learned on a draw: of distinct rows, decided by their content."""
    monkeypatch.setattr(widths, "SETTINGS", widths.WidthSettings(compare_rows=40, climb_rows=60))
    rng, (X, y) = np.random.default_rng(0), wave(0, 150)
    counts = rng.integers(1, 4, len(X))
    weighted, (rows, t) = RVR(), repeated(X, y, counts, rng)
    if targets == "different":  # two of each row, apart by as much in both tables
        rows, t = np.vstack([X, X]), np.concatenate([y + 0.1, y - 0.1])
        order = rng.permutation(len(rows))
        both = RVR().fit(rows, t), RVR().fit(rows[order], t[order])
    else:
        both = weighted.fit(X, y, counts.astype(float)), RVR().fit(rows, t)
    assert np.allclose(both[0].predict(X), both[1].predict(X), atol=1e-3)


@pytest.mark.parametrize("make", [RVR, GPRegressor])
def test_scatter_of_repeated_rows_is_noise(make):
    """Targets that differ at equal inputs tell of the noise, whatever the functions."""
    X, y = wave(1, 40)
    scatter = 0.3 * np.random.default_rng(0).standard_normal(40)
    model = make().fit(np.vstack([X, X]), np.concatenate([y + scatter, y - scatter]))
    assert 0.5 < model.noise_variance_ / np.mean(scatter**2) < 2.5


# What "auto" does is said ---------------------------------------------------------------------------------------------


def test_the_width_rule_is_an_attribute():
    X, y = make_friedman1(60, n_features=MAX_LEARNED_WIDTHS + 1, random_state=0)
    rvm = RVR(tol=1.0)
    assert rvm.fit(X[:, :2], y).width_rule_ == "learn-per-feature" and RVR(width=2.0).fit(X, y).width_rule_ == "given"
    inside = np.sum((X[:, :2] - 0.5) ** 2, axis=1) < 0.15
    assert RVC().fit(X[:, :2], inside).width_rule_ == "process" and GPRegressor().fit(X, y).width_rule_ == "merit"
    assert not hasattr(RVR(kernel=None, basis="linear").fit(X, y), "width_rule_")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # wide kernels on as many inputs pass through the targets
        assert rvm.fit(X, y).width_rule_ == "scale"
