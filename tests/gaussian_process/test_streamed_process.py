"""The process of many rows: one model from memory, disk, Dask and devices; limits that are kept and told."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from places import find_place
from relvec import GPRegressor
from relvec.design import LocalSamples, draw_rows
from relvec.design import readers as readers_module
from relvec.estimators import process as regression_module
from relvec.estimators.sources import large
from relvec.gaussian_process import Part, Shape, Structure, component, fit_process
from relvec.gaussian_process import fit as fit_module
from relvec.gaussian_process import streamed as streamed_module
from relvec.gaussian_process.bound import SparsePosterior, Vectors, bounds, bounds_of, rows_sums
from relvec.gaussian_process.fit import prepare
from relvec.gaussian_process.rows import merge_rows
from relvec.gaussian_process.streamed import DrawnSamples, Scaling, calibrate_variance, fit_in_passes, sum_all
from relvec.gaussian_process.vectors import grow_vectors
from relvec.inference.scale import AS_IT_IS
from relvec.runtime import arrays
from relvec.runtime.clock import Clock
from relvec.runtime.progress import watch

N = 900
THETA = np.log([1.0, 1.0, 0.02])  # amplitude, width, noise of one Gaussian part


def single(shape):
    """Return the structure of one part over one input."""
    return Structure((Part(shape),), False, 1)


def waves(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5.0, 5.0, (n, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(n)


@pytest.fixture
def small_draws(monkeypatch):
    """Tables of 900 rows are large ones."""
    monkeypatch.setattr(large, "MAX_WHOLE_ROWS", 500)
    monkeypatch.setattr("relvec.design.MAX_WHOLE_ROWS", 120)


def fit_quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


def assert_same(model, other, X):
    assert model.selection_[0].name == other.selection_[0].name
    np.testing.assert_array_equal(model.vector_rows_, other.vector_rows_)
    np.testing.assert_allclose(model.log_marginal_likelihood_, other.log_marginal_likelihood_, rtol=1e-7)
    for a, b in zip(model.predict(X, return_std=True), other.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_one_model_from_memory_disk_and_dask(small_draws, tmp_path, monkeypatch):
    da = pytest.importorskip("dask.array")
    X, y = waves()
    model = fit_quietly(GPRegressor(), X, y)
    assert hasattr(model, "process_") and len(model.process_.vectors) < 120
    stored = np.memmap(tmp_path / "X", "float64", "w+", shape=X.shape)
    stored[:] = X
    monkeypatch.setattr(readers_module, "MAX_PASSES_SHARE", 0.0)
    assert_same(fit_quietly(GPRegressor(), stored, y), model, X)
    chunks = da.from_array(X, chunks=(400, 1)), da.from_array(y, chunks=400)
    assert_same(fit_quietly(GPRegressor(), *chunks), model, X)


PLACES = ["torch:cpu", "torch:cuda", "array_api_strict:device1"]


@pytest.mark.parametrize("place", PLACES)
def test_one_model_on_a_device(place, small_draws):
    place = find_place(place)
    X, y = waves()
    model, there = fit_quietly(GPRegressor(), X, y), fit_quietly(GPRegressor(), place.to_device(X), place.to_device(y))
    assert_same(there, model, X)
    mean, std = there.predict(place.to_device(X[:7]), return_std=True)
    assert arrays.device_of(mean) == arrays.device_of(std) == place
    np.testing.assert_allclose(arrays.to_host(std), model.predict(X[:7], return_std=True)[1], rtol=1e-6)


def test_rows_twice_and_rows_of_weight_two_are_one_draw():
    X, y = waves(300)
    once = draw_rows(LocalSamples(X, y[:, None], np.full(300, 2.0)), 100)
    order = np.random.default_rng(1).permutation(600)
    XX, yy = np.vstack([X, X])[order], np.append(y, y)[order]
    twice = draw_rows(LocalSamples(XX, yy[:, None], block_rows=70), 100)
    for name in ("X", "targets", "weights"):
        np.testing.assert_array_equal(getattr(once, name), getattr(twice, name))
    assert once.seen == 300 and twice.seen == 600


def test_sums_in_blocks_give_the_posterior_and_bounds_of_rows_in_memory():
    X, y = waves(400)
    structure = single(Shape.GAUSSIAN)
    prepared = prepare(X, y, None, AS_IT_IS, Clock(None))
    Z = prepared.rows.X[:20]
    vectors = Vectors.at(structure, THETA, Z)
    target = Scaling(prepared.units, prepared.scale, 0, 1.0)
    told = []
    sums = sum_all(vectors, LocalSamples(X, y[:, None], block_rows=50), target, 1e9, told.append)
    whole, found = bounds(structure, THETA, prepared.rows, Z), bounds_of(vectors, sums)
    np.testing.assert_allclose([found.lower, found.upper], [whole.lower, whole.upper], rtol=1e-8)
    assert found.lower <= found.upper
    few, many = component.component_of(vectors, sums), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component, "_MAX_EIGEN_VECTORS", 0)
        many = component.component_of(vectors, sums)
    for part in (few, many):
        expected = component.sparse_component(structure, THETA, prepared.rows, Z).predict(prepared.rows.X)
        for a, b in zip(part.predict(prepared.rows.X), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_vectors_grow_until_held_out_rows_gain_no_more():
    X, y = waves(1200)
    structure = single(Shape.GAUSSIAN)
    rows = prepare(X, y, None, AS_IT_IS, Clock(None)).rows
    told = []
    enough = grow_vectors(structure, THETA, rows, 200, 600, None, lambda m, density: told.append((m, density)) or False)
    assert not enough.gains and len(enough.index) <= 128 and told == list(enough.densities)
    narrow = np.array([0.0, np.log(0.002), np.log(0.02)])  # every row a vector of its own
    more = grow_vectors(structure, narrow, rows, 200, 256, None, lambda m, density: False)
    assert more.gains and len(more.index) == 256
    assert not set(more.index) & set(range(1000, 1200)), "held-out rows are no vectors"


def test_factors_of_variances_suit_rows_held_out():
    rng = np.random.default_rng(0)
    latent, noise = rng.uniform(0.01, 3.0, 4000), 0.1
    error = 0.5 * (latent + 0.3) * rng.standard_normal(4000) ** 2
    f, s = calibrate_variance(error, latent, noise, 1e-6)
    np.testing.assert_allclose([f, s], [0.5, 0.3], rtol=0.25)


def table(n=N, seed=0):
    X, y = waves(n, seed)
    samples = LocalSamples(X, y[:, None])
    return DrawnSamples(samples, draw_rows(samples, 400), 1e9), X, y


def test_limits_end_a_fit_and_the_status_says_which(monkeypatch):
    rows, X, _ = table()
    one = (single(Shape.MATERN32),)
    capped = fit_in_passes(rows, candidates=one, max_vectors=20)
    assert capped.status == "max_vectors" and len(capped.vectors) == 20
    monkeypatch.setattr(streamed_module, "_MATRICES", 200)
    low = fit_in_passes(DrawnSamples(rows.samples, rows.draw, 1e7), candidates=one)
    assert low.status == "memory_limit" and len(low.vectors) < 64
    late = fit_in_passes(rows, candidates=one, clock=Clock(1e-9))
    assert late.status == "time_limit" and np.isfinite(late.predict(X)[0]).all()
    assert any("time limit" in message for message in late.messages)
    assert not any("max_vectors" in message for message in late.messages)


def test_a_stop_asked_for_while_learning_ends_the_fit():
    rows, X, _ = table()
    one = (single(Shape.MATERN32),)
    stopped = fit_in_passes(rows, candidates=one, clock=Clock(None, lambda stage, fraction: True))
    assert stopped.status == "interrupted" and np.isfinite(stopped.predict(X)[0]).all()


def test_a_fit_in_passes_predicts_as_the_fit_of_all_rows():
    X_test, y_test = waves(500, seed=1)
    one, gains = (single(Shape.GAUSSIAN),), []
    for seed in (0, 2, 3):
        rows, X, y = table(seed=seed)
        models = fit_process(X, y, candidates=one), fit_in_passes(rows, candidates=one)
        whole, passes = (float(np.mean(model.log_density(X_test, y_test))) for model in models)
        gains.append(passes - whole)
    assert np.mean(gains) > -0.02


def test_vectors_grow_beyond_the_first_limit_where_rows_held_out_gain(monkeypatch):
    """A rough function of three inputs: with as many vectors as a process in memory may have it is half unknown."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (600, 3))
    y = np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) * np.sin(X[:, 2]) + 0.001 * rng.standard_normal(600)
    for module in (fit_module, regression_module):
        monkeypatch.setattr(module, "MAX_VECTORS", 80)
    model, capped = GPRegressor().fit(X[:450], y[:450]), fit_quietly(GPRegressor(max_vectors=80), X[:450], y[:450])
    assert capped.status_ == "max_vectors" and len(capped.vector_rows_) == 80
    assert model.status_ != "max_vectors" and len(model.vector_rows_) > 80
    error, worse = (np.std(m.predict(X[450:]) - y[450:]) for m in (model, capped))
    assert error < 0.5 * worse
    z = (y[450:] - capped.predict(X[450:])) / capped.predict(X[450:], return_std=True)[1]
    assert 0.5 < np.mean(z**2) < 2.0


def test_vectors_that_are_far_apart_do_not_end_their_growth():
    """Some hundred cells in which a wave changes sign: 64 and 128 vectors know next to nothing of it."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.7, 1.7, (2500, 3))
    y = 2.8 * np.sin(9.0 * X[:, 0]) * np.cos(6.5 * X[:, 1]) * np.sin(3.5 * X[:, 2]) + 0.2 * rng.standard_normal(2500)
    rows = prepare(X, y, None, AS_IT_IS, Clock()).rows
    theta = np.log([1.0, 0.12, 0.15, 0.3, 0.05])
    found = grow_vectors(
        Structure((Part(Shape.GAUSSIAN, True),), False, 3), theta, rows, 400, 1024, None, lambda m, density: False
    )
    tried = dict(found.densities)
    assert tried[128] < tried[64] + 0.05 and len(found.index) == 1024 and tried[1024] > tried[64] + 0.3


def test_error_bars_of_many_rows_follow_the_inputs(small_draws, monkeypatch):
    monkeypatch.setattr("relvec.design.MAX_WHOLE_ROWS", 600)
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (1800, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * np.exp(X[:, 1]) * rng.standard_normal(1800)
    model, plain = (GPRegressor(noise=noise).fit(X[:900], y[:900]) for noise in ("auto", "constant"))
    assert 1 in model.noise_columns_ and plain.process_.components[0].varying is None
    gain = model.log_predictive_density(X[900:], y[900:]) - plain.log_predictive_density(X[900:], y[900:])
    assert np.mean(gain) > 0.2


def test_progress_tells_rows_vectors_and_density(small_draws):
    X, y = waves()
    seen = []
    with watch(seen.append):
        fit_quietly(GPRegressor(), X, y)
    last = [p for p in seen if np.isfinite(p.density)][-1]
    assert last.rows == N and last.size > 0
    assert f"{N:,} rows" in str(last) and "held-out density" in str(last)
    shares = [p.fraction for p in seen if np.isfinite(p.fraction)]
    assert shares == sorted(shares)


@pytest.mark.parametrize("place", PLACES)
def test_evidence_on_a_device_is_that_of_the_host(place):
    from relvec.gaussian_process.learn import default_prior, log_posterior

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    rows = prepare(np.vstack([X, X[:5]]), rng.normal(size=65), None, AS_IT_IS, Clock(None)).rows
    sum_of_parts = Structure((Part(Shape.GAUSSIAN, True), Part(Shape.MATERN32)), True, 3)
    for structure in (sum_of_parts, Structure((Part(Shape.MATERN52, True),), False, 3)):
        prior, theta = default_prior(structure), rng.normal(size=structure.n_theta) * 0.3
        here = log_posterior(structure, prior, rows)(theta)
        there = log_posterior(structure, prior, replace(rows, X=find_place(place).to_device(rows.X)))(theta)
        np.testing.assert_allclose(there[0], here[0], rtol=1e-10)
        np.testing.assert_allclose(there[1], here[1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_merged_rows_are_dense_sums_over_all_of_them(weighted):
    rng = np.random.default_rng(0)
    structure, X = single(Shape.GAUSSIAN), np.repeat(rng.normal(size=(12, 1)), 3, axis=0)
    y, w = rng.normal(size=36), rng.uniform(0.5, 2.0, 36) if weighted else np.ones(36)
    rows, Z = merge_rows(X, y, w), rng.normal(size=(4, 1))
    assert len(rows) == 12
    vectors = Vectors.at(structure, THETA, Z)
    A = np.linalg.solve(np.linalg.cholesky(structure(THETA, Z)), structure(THETA, X, Z).T)
    left = structure.prior_variance(THETA, X) - np.sum(A**2, axis=0)
    found = rows_sums(vectors, rows)
    np.testing.assert_allclose(found.gram, (w * A) @ A.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.cross, A @ (w * y), rtol=1e-5, atol=1e-5)
    assert found.squares == pytest.approx(w @ y**2) and found.total == pytest.approx(w.sum())
    assert found.left == pytest.approx(w @ left, rel=1e-4)
    s, root = np.exp(THETA[-1]), np.sqrt(w)
    Q, t = (root * A).T @ (root * A), root * y
    C = Q + s * np.eye(36)
    first = np.array([np.flatnonzero(X[:, 0] == x)[0] for x in rows.X[:, 0]])
    few, means = np.sqrt(rows.weight) * A[:, first], np.sqrt(rows.weight) * rows.y
    wide = few.T @ few + (s + w @ left) * np.eye(12)  # the scatter within merged rows is noise for certain
    level = w.sum() * np.log(2.0 * np.pi * s) + np.linalg.slogdet(C / s)[1]
    lower = -0.5 * (level + t @ np.linalg.solve(C, t) + w @ left / s)
    upper = -0.5 * (level + means @ np.linalg.solve(wide, means) + rows.scatter.sum() / s)
    both = bounds(structure, THETA, rows, Z)
    assert both.lower == pytest.approx(lower, rel=1e-4)
    assert both.gap == pytest.approx((upper - lower) / w.sum(), rel=1e-2)
    alone = bounds_of(vectors, replace(found, squares=found.squares - rows.scatter.sum()), float(rows.scatter.sum()))
    assert (alone.lower, alone.upper) == (pytest.approx(both.lower), pytest.approx(both.upper))
    np.testing.assert_allclose(SparsePosterior.of(vectors, found).predict(X)[0], A.T @ np.linalg.solve(
        s * np.eye(4) + (w * A) @ A.T, A @ (w * y)), atol=1e-4)  # fmt: skip
