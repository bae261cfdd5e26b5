"""A sparse model of a skewed target: the scale that held-out rows choose, and one distribution on it everywhere."""

from copy import copy

import numpy as np
import pytest

import relvec
from exports import assert_exports
from relvec import RVR
from relvec.app.report.summary import summary
from relvec.app.tables.pipelines import fit_table
from relvec.inference.scale import AS_IT_IS
from relvec.sparse.fit import SparseFit, fit_sparse


def skewed(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two inputs whose target is the exponential of a smooth function and noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.exp(np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.2 * rng.standard_normal(n))


@pytest.fixture(scope="module")
def fit() -> SparseFit:
    return fit_sparse(*skewed(80, 0))


@pytest.fixture(scope="module")
def model() -> RVR:
    return RVR().fit(*skewed(80, 0))


def test_held_out_rows_choose_the_scale(fit):
    X, y = skewed(80, 0)
    new, target = skewed(1000, 1)
    plain = fit_sparse(X, y, target=AS_IT_IS)
    assert fit.scale.sign == 1 and plain.scale == AS_IT_IS
    densities = [each.predictor.log_density(new, target).mean() for each in (fit, plain)]
    assert densities[0] > densities[1] + 0.3


@pytest.mark.parametrize("case", ["symmetric", "dictionary", "noise"])
def test_the_target_stays_as_it_is(case, fit):
    X, y = skewed(80, 0)
    given = {"dictionary": {"basis": fit.basis}, "noise": {"noise_variance": 0.5, "learned": fit.learned}}
    assert fit_sparse(X, np.log(y) if case == "symmetric" else y, **given.get(case, {})).scale == AS_IT_IS


def test_unit_of_the_target_is_counted_once(fit):
    """The density of the targets falls by log 8 a row where they are 8 times as large; nothing else changes."""
    X, y = skewed(80, 0)
    other = fit_sparse(X, 8.0 * y)
    assert other.log_evidence == pytest.approx(fit.log_evidence - 80 * np.log(8.0), abs=1e-3)
    new = X[::9]
    for one, eight in zip(fit.predictor.moments(new, True, True), other.predictor.moments(new, True, True)):
        assert eight / one == pytest.approx(eight[0] / one[0], rel=1e-6)


def test_evidence_is_the_density_of_the_targets_themselves(fit):
    """The normal marginal of the targets on their scale, times the slopes of the scale."""
    from scipy.stats import multivariate_normal

    X, y = skewed(80, 0)
    Phi = fit.basis.take(fit.active)(X)
    scale = fit.problem.design.scale[fit.active]
    alpha, beta = fit.posterior.alpha * (scale / fit.unit) ** 2, fit.posterior.beta / fit.unit**2
    marginal = multivariate_normal(np.zeros(80), np.eye(80) / beta + (Phi / alpha) @ Phi.T)
    expected = marginal.logpdf(fit.scale.forward(y)) + fit.scale.log_slope(y).sum()
    assert fit.log_evidence == pytest.approx(expected, rel=1e-8)


def test_moments_quantiles_draws_and_density_are_of_one_distribution(fit):
    predictor, X = fit.predictor, skewed(4, 2)[0]
    levels = np.linspace(0.0005, 0.9995, 4001)
    ends = predictor.quantiles(X, levels, True)
    for row, own in zip(X, ends, strict=True):
        middle = 0.5 * (own[1:] + own[:-1])
        density = np.exp(predictor.log_density(np.repeat(row[None], len(middle), axis=0), middle))
        assert np.diff(levels) / np.diff(own) == pytest.approx(density, rel=0.03)
    drawn = predictor.samples(X, 40_000, np.random.RandomState(0), True)
    mean, variance = predictor.moments(X, True, True)
    assert drawn.mean(axis=1) == pytest.approx(mean, rel=0.02)
    assert drawn.var(axis=1) == pytest.approx(variance, rel=0.2)
    for noise in (False, True):
        assert predictor.covariance(X, noise).diagonal() == pytest.approx(predictor.moments(X, True, noise)[1])
    functions = predictor.samples(X, 40_000, np.random.RandomState(0), False)
    assert functions.mean(axis=1) == pytest.approx(mean, rel=0.02)  # E[y | function], whose mean is that of y


def test_intervals_hold_what_they_promise(model):
    new, target = skewed(2000, 3)
    low, high = model.predict_interval(new, 0.9).T
    assert 0.85 < np.mean((low < target) & (target < high)) < 0.95
    assert (low > 0.0).mean() > 0.9
    assert model.predict(new) == pytest.approx(model.predict(new, return_std=True)[0])


def test_weights_are_those_of_the_function_on_the_scale(model):
    X = skewed(30, 4)[0]
    location = model.fitted_.predictors[0].location(X, False)[0]
    assert model.basis_(X) @ model.weights_ == pytest.approx(location)
    assert model.choice_.scale.sign == 1 and model.choice_.scale.name.startswith("log(y")


def test_files_onnx_and_c_predict_alike(model, tmp_path):
    new, target = skewed(200, 5)
    rows = np.vstack([new[:20], 20.0 * new[:5]])
    calibrated = copy(model).calibrate(new, target)
    relvec.save(calibrated, tmp_path / "model.relvec")
    again = relvec.load(tmp_path / "model.relvec")
    assert np.array_equal(again.predict(rows), model.predict(rows)) and again.choice_.scale == model.choice_.scale
    expected = np.column_stack([*model.predict(rows, return_std=True), calibrated.predict_interval(rows)])
    assert_exports(calibrated, rows, expected, tmp_path, ("predict", "predict_interval"))


def test_each_output_has_its_own_scale_and_a_warm_start_keeps_it():
    X, y = skewed(60, 0)
    model = RVR(warm_start=True).fit(X, np.column_stack([y, np.log(y)]))
    scales = [choice.scale for choice in model.choice_]
    assert [scale.sign for scale in scales] == [1, 0]
    model.fit(X[:40], np.column_stack([y, np.log(y)])[:40])
    assert [choice.scale for choice in model.choice_] == scales


def test_the_machine_of_the_paper_takes_the_target_as_it_is():
    X, y = skewed(40, 0)
    model = RVR(predictive="rvm").fit(X, y)
    assert model.choice_.scale == AS_IT_IS
    assert model.basis_(X) @ model.weights_ == pytest.approx(model.predict(X))


def test_the_report_tells_the_scale():
    X, y = skewed(60, 0)
    fitted = fit_table({"a": X[:, 0], "b": X[:, 1], "y": y}, "y", model=RVR())
    assert "logarithmic scale" in dict(summary(fitted.pipeline))["noise"]
