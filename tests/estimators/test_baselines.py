"""Models as they come are not far behind a constant or a line: rows that took no part are asked before they return."""

import numpy as np
import pytest
from scipy import sparse, stats

from relvec import RVC, RVR, GPClassifier, SparseBayesianClassifier, SparseBayesianRegressor, load, save, to_onnx
from relvec.solvers import Sequential


def density_of_constant(y, fresh):
    return stats.norm(y.mean(), y.std() * np.sqrt(1.0 + 1.0 / len(y))).logpdf(fresh).mean()


def subjects(rng, n, k=10):
    """Rows of subjects that were measured k times: an error in common, and little more."""
    C, own, place = rng.normal(size=(n // k, 6)), rng.normal(size=n // k), np.repeat(np.arange(n // k), k)
    return C[place] + 0.01 * rng.normal(size=(n, 6)), own[place] + 0.05 * rng.normal(size=n)


def test_subjects_measured_again_prove_no_line():
    rng = np.random.default_rng(0)
    (X, y), (Z, t) = subjects(rng, 120), subjects(rng, 2000)
    model, kept = SparseBayesianRegressor().fit(X, y), SparseBayesianRegressor(solver="tf03").fit(X, y)
    assert model.status_ == "baseline" and kept.status_ != "baseline"
    densities = [m.log_predictive_density(Z, t).mean() for m in (model, kept)]
    assert densities[0] > density_of_constant(y, t) - 0.2 > densities[1]


def test_many_small_slopes_are_a_ridge():
    rng = np.random.default_rng(0)
    X, slopes = rng.normal(size=(60, 150)) * np.geomspace(0.1, 10.0, 150), rng.normal(size=150)
    y = X @ (slopes / np.geomspace(0.1, 10.0, 150)) + rng.normal(size=60)
    model = SparseBayesianRegressor().fit(X, y)
    assert model.status_ == "baseline" and model.selected_.all() and model.certificate_ == 0.0
    in_units = model.alpha_[:-1] / np.sum((X - X.mean(axis=0)) ** 2, axis=0)
    np.testing.assert_allclose(in_units, in_units[0], rtol=1e-9)
    few = SparseBayesianRegressor(max_functions=3).fit(X, y)
    assert few.selected_.sum() <= 3
    found = SparseBayesianRegressor().fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(found.predict(X, True), model.predict(X, True), rtol=1e-6)


def test_gross_errors_make_heavy_tails(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3))
    y = X[:, 0] + rng.standard_t(1.2, 150)
    model = SparseBayesianRegressor().fit(X, y)
    density = model.log_predictive_density(X, y)
    assert density.mean() > density_of_constant(y, y) + 0.2
    assert model.log_predictive_density(X, y + 1e6).min() > -100.0
    low, high = model.predict_interval(X, 0.9).T
    assert 0.85 < np.mean((low < y) & (y < high)) < 1.0
    drawn = model.sample_y(X[:1], 20_000, random_state=0, noise=True)
    assert abs(np.mean((drawn > low[0]) & (drawn < high[0])) - 0.9) < 0.01
    save(model, tmp_path / "model.relvec")
    again = load(tmp_path / "model.relvec")
    np.testing.assert_array_equal(again.log_predictive_density(X, y), density)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_few_rows_are_uncertain(n):
    behind = []
    for seed in range(5):
        rng = np.random.default_rng([n, seed])
        X, Z = rng.normal(size=(n, 5)), rng.normal(size=(500, 5))
        y, t = X[:, 0] + rng.normal(size=n), Z[:, 0] + rng.normal(size=500)
        own = SparseBayesianRegressor().fit(X, y).log_predictive_density(Z, t).mean()
        behind.append(density_of_constant(y, t) - own)
    assert np.mean(behind) < 0.3


def test_what_was_asked_for_is_not_replaced():
    rng = np.random.default_rng(0)
    X, y = subjects(rng, 60)
    for given in ({"noise_variance": 0.01}, {"column_groups": [0, 0, 1, 1, 2, 2]}, {"fit_intercept": False}):
        assert SparseBayesianRegressor(**given).fit(X, y).status_ == "converged"


@pytest.mark.parametrize("make", [GPClassifier, RVC, SparseBayesianClassifier])
def test_labels_of_chance_have_the_shares_of_their_classes(make):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(15, 3)), np.arange(15) % 5 == 0
    model = make().fit(X, y)
    assert model.status_ == "baseline"
    np.testing.assert_allclose(model.predict_proba(rng.normal(size=(50, 3)))[:, 1], 0.2, atol=0.06)


def test_classes_of_subjects_measured_again_prove_no_line():
    rng = np.random.default_rng(2)
    (X, y), (Z, t) = subjects(rng, 120), subjects(rng, 2000)
    model = SparseBayesianClassifier().fit(X, y > 0.0)
    plain = SparseBayesianClassifier(solver=Sequential(restarts=0, price=1.0)).fit(X, y > 0.0)
    losses = [-np.log(m.predict_proba(Z)[np.arange(2000), (t > 0.0).astype(int)]).mean() for m in (model, plain)]
    assert losses[0] < np.log(2.0) + 0.1 < losses[1]


def test_many_small_slopes_of_classes_are_a_ridge():
    rng = np.random.default_rng(0)
    X = 3.0 + rng.normal(size=(60, 20))
    y = rng.random(60) < 1.0 / (1.0 + np.exp(-(X - 3.0) @ rng.normal(size=20) * 0.6))
    model = SparseBayesianClassifier().fit(X, y)
    assert model.status_ == "baseline" and model.selected_.all() and model.score(X, y) > 0.75
    found = SparseBayesianClassifier().fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(found.predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_shares_of_classes_are_exported():
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(15, 3)), np.arange(15) % 5 == 0
    model = GPClassifier().fit(X, y)
    session = runtime.InferenceSession(to_onnx(model).SerializeToString())
    found = session.run(["probabilities"], {session.get_inputs()[0].name: X})[0]
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-9)


@pytest.mark.parametrize("n", [3, 4, 6])
def test_a_constant_of_few_rows_has_the_error_bars_of_its_formula(n):
    """Of three to six rows two that are near make factors of 50: rows left out one by one say nothing of error bars."""
    for seed in range(6):
        rng = np.random.default_rng([n, seed])
        X, y = rng.normal(size=(n, 5)), rng.normal(size=n)
        model = RVR().fit(X, y)
        if not model.fitted_.n_kept:
            assert model.predict(X, return_std=True)[1].max() < 4.0 * y.std()
