"""A process imitated by few functions: within the loss allowed, in every format, refused where it cannot be."""

from copy import copy

import numpy as np
import pytest
from scipy.stats import norm

import relvec
from exports import assert_exports, run_onnx
from relvec import GPRegressor
from relvec.sparse.distill import distill


def made(n, rng, kind):
    """Rows of a smooth function of two inputs; `log` takes its exponential, `varying` has louder noise on one side."""
    X = rng.uniform(-2.0, 2.0, (n, 2))
    loudness = np.exp(0.8 * X[:, 0]) if kind == "varying" else 1.0
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.3 * loudness * rng.standard_normal(n)
    return X, np.exp(1.5 * y) if kind == "log" else y


@pytest.fixture(scope="module", params=["log", "varying", "outputs"])
def pair(request):
    """A process, what was distilled from it, and fresh rows with their targets."""
    rng = np.random.default_rng(3)
    (X, y), (X_new, y_new) = made(140, rng, request.param), made(1500, rng, request.param)
    if request.param == "outputs":
        y, y_new = (np.column_stack([t, X[:, 0] - 0.5 * t]) for X, t in ((X, y), (X_new, y_new)))
    model = GPRegressor(max_vectors=100).fit(X, y)
    return request.param, model, model.distill(np.vstack([X, X_new[:750]])), X_new[750:], y_new[750:]


def test_few_functions_predict_as_the_process_does(pair):
    kind, model, small, X, y = pair
    process = model.process_[0] if kind == "outputs" else model.process_
    assert {"log": process.scale.sign == 1, "varying": process.components[0].varying is not None}.get(kind, True)
    assert small.basis_.n_atoms < 0.5 * len(model.vectors_) * (1 + (kind == "outputs"))
    lost = np.mean(model.log_predictive_density(X, y) - small.log_predictive_density(X, y), axis=0)
    assert np.all(lost < 0.03) and np.all(np.asarray(small.loss_nats_) <= 0.02)
    for coverage in (0.5, 0.9):
        ends, own = small.predict_interval(X, coverage), model.predict_interval(X, coverage)
        width = np.mean(own[..., 1] - own[..., 0]) if kind != "outputs" else np.mean(np.ptp(own, axis=-1))
        assert np.mean(np.abs(ends - own)) < 0.1 * width
    for function, its_own in zip(small.predict(X, return_std=True, noise=False), model.predict(X, return_std=True)):
        assert function.shape == its_own.shape and np.isfinite(function).all()
    for predictor in small.fitted_.predictors:
        near, far = (predictor.location(rows, True)[1] for rows in (X, np.full((1, 2), 1e4)))
        assert far[0] > near.max()


def test_quantiles_and_densities_are_of_one_distribution(pair):
    *_, small, X, _ = pair
    predictor, grid = small.fitted_.predictors[0], np.linspace(0.001, 0.999, 1999)
    levels = predictor.quantiles(X[:1], grid, True)[0]
    middle = 0.5 * (levels[1:] + levels[:-1])
    density = np.exp(predictor.log_density(np.repeat(X[:1], len(middle), axis=0), middle))
    assert np.diff(grid) / np.diff(levels) == pytest.approx(density, rel=0.05)


def test_files_onnx_and_c_predict_alike(pair, tmp_path):
    _, model, small, X, _ = pair
    for name, each in {"small": small, "process": model}.items():
        relvec.save(each, tmp_path / f"{name}.relvec")
    again = relvec.load(tmp_path / "small.relvec")
    assert np.array_equal(again.predict(X), small.predict(X)) and np.all(again.loss_nats_ == small.loss_nats_)
    assert (tmp_path / "small.relvec").stat().st_size < 0.5 * (tmp_path / "process.relvec").stat().st_size
    rows = np.vstack([X[:20], 30.0 * X[:5]])
    if small.fitted_.single:
        calibrated = copy(small).calibrate(*pair[3:])
        expected = np.column_stack([*small.predict(rows, return_std=True), calibrated.predict_interval(rows)])
        assert_exports(calibrated, rows, expected, tmp_path, ("predict", "predict_interval"))
    else:
        found = run_onnx(relvec.to_onnx(small), rows)
        assert np.array(small.predict(rows, return_std=True)) == pytest.approx(np.array([found["mean"], found["std"]]))


def test_a_mean_that_no_few_functions_follow_is_kept_whole():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (120, 2))
    model = GPRegressor().fit(X, np.sin(6.0 * X[:, 0]) * np.sin(5.0 * X[:, 1]) + 0.01 * rng.standard_normal(120))
    rows = rng.uniform(-2.0, 2.0, (20, 2))  # a search among so few rows finds a handful of functions
    small = model.distill(rows, max_loss_nats=0.5)
    assert small.predict(X) == pytest.approx(model.predict(X), abs=1e-9)
    with pytest.raises(ValueError, match=r"lose .* nats a row"):
        model.distill(rows, max_loss_nats=1e-9)


def test_what_cannot_be_distilled_says_so():
    rng = np.random.default_rng(1)
    X, y = made(80, rng, "plain")
    with pytest.raises(NotImplementedError, match="Gaussian noise"):
        GPRegressor(likelihood="student-t").fit(X, y).distill(X)
    model = GPRegressor().fit(X, y)
    with pytest.raises(ValueError, match="at least 20"):
        model.distill(X[:5])
    with pytest.raises(ValueError, match="max_loss_nats"):
        model.distill(X, max_loss_nats=0.0)
    small = model.distill(X, max_loss_nats=0.1)
    with pytest.raises(NotImplementedError, match="one at a time"):
        small.predict(X, return_cov=True)


def test_the_loss_told_is_that_of_normal_densities():
    """The process's and the functions' moments give the divergence that `loss` tells, at rows neither has seen."""
    rng = np.random.default_rng(5)
    X, y = made(100, rng, "plain")
    process = GPRegressor(max_vectors=60).fit(X, y).process_
    small = distill(process, made(2000, rng, "plain")[0], 0.05)
    rows = made(4000, rng, "plain")[0]
    (m, s), (m2, s2) = process.location(rows, True), small.location(rows, True)
    draws = m + s * rng.standard_normal(len(rows))
    lost = norm.logpdf(draws, m, s) - norm.logpdf(draws, m2, s2)
    assert small.loss == pytest.approx(lost.mean(), abs=4.0 * lost.std() / np.sqrt(len(rows)) + 0.005)
