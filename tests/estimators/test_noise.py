"""Noise as it is: Student-t noise against dense formulas and quadrature, outliers, predictions, files, exports."""

import warnings

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from exports import assert_exports
from relvec import RVR, GPRegressor
from relvec.export.model_file import ModelFileError, dumps, loads
from relvec.inference.heteroscedastic import MAX_COLUMNS, learn_log_noise
from relvec.inference.predictive import StudentPredictor
from relvec.inference.student import Tails, bound_of_scales, learn_tails

LINE = RVR(kernel=None, basis="linear", likelihood="student-t")
CURVE = RVR(width=2.0, likelihood="student-t")


def curve(seed, n, kind="normal"):
    """Return rows with normal noise, gross errors in a tenth of them, or Student-t noise; the function; wrong rows."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2
    bad = np.flatnonzero(rng.uniform(size=n) < 0.1) if kind == "outliers" else np.zeros(0, dtype=int)
    noise = 0.2 * (rng.standard_t(float(kind), n) if kind[0].isdigit() else rng.standard_normal(n))
    noise[bad] += rng.choice([-1.0, 1.0], len(bad)) * rng.uniform(2.0, 10.0, len(bad))
    return X, f + noise, f, bad


def rmse(model, seed=10**6):
    X, y, _, _ = curve(seed, 2000)
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


def test_gross_errors_hardly_matter_and_are_named():
    clean = CURVE.fit(*curve(0, 300)[:2])
    best = rmse(clean)
    X, y, _, bad = curve(0, 300, "outliers")
    model = clone(CURVE).fit(X, y)
    assert rmse(model) < 1.1 * best < 0.5 * rmse(clone(CURVE).set_params(likelihood="gaussian").fit(X, y))
    assert set(bad) <= set(model.outliers_) and len(model.outliers_) < len(bad) + 5
    worst = np.abs(y - model.predict(X))[model.outliers_]
    assert (np.diff(worst) < 0.5).all()  # the worst first, but for the function's own variance
    assert (np.diff(model.fitted_.noise.bounds) > 0.0).all()
    assert not len(clean.outliers_) and clean.degrees_of_freedom_ > 15.0


def test_student_noise_costs_no_density_where_noise_is_normal():
    lost = []
    for seed in range(3):
        models = [
            clone(CURVE).set_params(likelihood=name).fit(*curve(seed, 300)[:2]) for name in ("gaussian", "student-t")
        ]
        plain, student = (model.log_predictive_density(*curve(seed + 90, 1000)[:2]).mean() for model in models)
        lost.append(plain - student)
    assert abs(np.mean(lost)) < 0.02


@pytest.mark.parametrize("seed", [0, 3])  # of 3, a process under normal noise goes through the gross errors
def test_a_process_with_gross_errors(seed):
    X, y, f, bad = curve(seed, 60, "outliers")
    model = GPRegressor(likelihood="student-t").fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.3 < 0.15 * y.std()
    assert set(bad) <= set(model.outliers_) and len(model.outliers_) < len(bad) + 5
    assert model.process_.scale.sign == 0 and model.merit_
    again = loads(dumps(model))
    np.testing.assert_array_equal(again.predict_interval(X, 0.8), model.predict_interval(X, 0.8))


@pytest.mark.slow
@pytest.mark.parametrize("make", [GPRegressor, RVR], ids=["process", "machine"])
def test_errors_and_densities_beside_normal_noise_on_average(make):
    clean, dirty, gains = [], [], []
    for seed in range(4):
        plain, student = (make(likelihood=kind).fit(*curve(seed, 150)[:2]) for kind in ("gaussian", "student-t"))
        new = curve(seed + 100, 1000)[:2]
        gains.append(student.log_predictive_density(*new).mean() - plain.log_predictive_density(*new).mean())
        clean.append(rmse(plain))
        dirty.append(rmse(make(likelihood="student-t").fit(*curve(seed, 150, "outliers")[:2])))
    assert np.mean(dirty) < 1.1 * np.mean(clean) and np.min(gains) > -0.01


@pytest.mark.parametrize("degrees", [3.0, 6.0, 10.0])
def test_degrees_of_freedom(degrees):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2))
    y = 3.0 + X @ [1.0, -2.0] + 0.5 * rng.standard_t(degrees, 2000)
    found = clone(LINE).fit(X, y)
    assert degrees / 1.5 < found.degrees_of_freedom_ < degrees * 1.5
    assert found.noise_variance_ == pytest.approx(0.25 * degrees / (degrees - 2.0), rel=0.3)


def test_the_bound_against_dense_formulas_and_quadrature():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(12, 1))
    y = 1.5 * X[:, 0] + 0.3 * rng.standard_t(3.0, 12)
    model = RVR(kernel=None, basis="linear", fit_intercept=False, likelihood="student-t").fit(X, y)
    nu, s2 = (
        model.degrees_of_freedom_,
        model.noise_variance_ * (model.degrees_of_freedom_ - 2) / (model.degrees_of_freedom_),
    )
    alpha, (mean, variance) = model.alpha_[0], (model.weights_[0], model.covariance_[0, 0])
    squares = (y - X[:, 0] * mean) ** 2 + X[:, 0] ** 2 * variance
    divergence = 0.5 * (alpha * (variance + mean**2) - 1.0 - np.log(alpha * variance))
    dense = stats.t.logpdf(np.sqrt(squares), nu, scale=np.sqrt(s2)).sum() - divergence  # eq. (1)
    assert model.log_marginal_likelihood_ == pytest.approx(dense, abs=0.02)

    def joint(w):
        prior = stats.norm.logpdf(w, scale=alpha**-0.5)
        return np.exp(stats.t.logpdf(y - X[:, 0] * w, nu, scale=np.sqrt(s2)).sum() + prior)

    reach = 12.0 * np.sqrt(variance)
    exact = np.log(integrate.quad(joint, mean - reach, mean + reach, epsabs=0.0, epsrel=1e-10)[0])
    assert exact - 1.0 < model.log_marginal_likelihood_ < exact


def test_the_two_forms_of_the_bound_agree():
    rng = np.random.default_rng(3)
    squares, weights = rng.exponential(size=50) ** 2, rng.uniform(0.5, 2.0, 50)
    tails = learn_tails(squares, weights)
    scales = tails.expected_scales(squares)
    assert weights @ scales / weights.sum() == pytest.approx(1.0, abs=1e-4)  # N stays the number of rows
    normal = -0.5 * (np.log(2.0 * np.pi * tails.scale2) + scales * squares / tails.scale2)
    assert weights @ tails.log_density(squares) == pytest.approx(
        weights @ normal + bound_of_scales(tails, squares, weights), rel=1e-10
    )
    for other in (Tails(tails.degrees * 1.1, tails.scale2), Tails(tails.degrees, tails.scale2 * 1.1)):
        assert weights @ other.log_density(squares) < weights @ tails.log_density(squares)


@pytest.mark.parametrize("degrees", [2.1, 4.0, 200.0])
def test_predictions_are_a_normal_function_with_student_noise(degrees):
    model = clone(LINE).fit(*(part[:20] for part in curve(0, 30)[:2]))
    base = model.fitted_.predictors[0]
    predictor = StudentPredictor(base.function, degrees, 0.7)
    X = np.array([[0.5, 1.0]])
    mean, variance = (float(v[0]) for v in predictor.moments(X, True, False))
    scale = np.sqrt(0.7 * (degrees - 2.0) / degrees)

    def density(y):
        grid = mean + np.sqrt(variance) * np.linspace(-9.0, 9.0, 2001)
        inner = stats.norm.pdf(grid, mean, np.sqrt(variance)) * stats.t.pdf(y - grid, degrees, scale=scale)
        return integrate.trapezoid(inner, grid)

    for y in (mean, mean + 1.0, mean - 8.0):
        assert predictor.log_density(X, np.array([y]))[0] == pytest.approx(np.log(density(y)), abs=1e-7)
    q = np.array([0.001, 0.05, 0.5, 0.9, 0.999])
    found = predictor.quantiles(X, q, True)[0]
    for level, value in zip(q, found):
        grid = mean + np.sqrt(variance) * np.linspace(-9.0, 9.0, 2001)
        below = stats.t.cdf((value - grid) / scale, degrees) * stats.norm.pdf(grid, mean, np.sqrt(variance))
        assert integrate.trapezoid(below, grid) == pytest.approx(level, rel=1e-7)
    assert predictor.moments(X, True, True)[1][0] == pytest.approx(variance + 0.7)
    drawn = predictor.samples(np.repeat(X, 2, axis=0), 4000, np.random.RandomState(0), True)
    assert np.mean(drawn[0] < found[3]) == pytest.approx(0.9, abs=0.03)


def test_weights_and_scales():
    X, y, _, _ = curve(4, 60, "3")
    twice = clone(LINE).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    weighted = clone(LINE).fit(X, y, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(weighted.predict(X), twice.predict(X), rtol=1e-4)
    assert weighted.log_marginal_likelihood_ == pytest.approx(twice.log_marginal_likelihood_, abs=0.1)
    none = clone(LINE).fit(np.vstack([X, X[:1]]), np.append(y, 1e6), sample_weight=np.append(np.ones(60), 0.0))
    scaled = clone(LINE).fit(X, 1000.0 * y)
    np.testing.assert_allclose(scaled.predict(X), 1000.0 * none.predict(X), rtol=1e-5)
    assert scaled.degrees_of_freedom_ == pytest.approx(none.degrees_of_freedom_, rel=1e-2)


def test_files_and_exports(tmp_path):
    from test_conformal import share_inside

    X, y, _, _ = curve(0, 200, "outliers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(CURVE).fit(X[:100], y[:100]).calibrate(X[100:], y[100:])
    again = loads(dumps(model))
    np.testing.assert_array_equal(again.predict_quantiles(X, [0.1, 0.9]), model.predict_quantiles(X, [0.1, 0.9]))
    np.testing.assert_array_equal(again.outliers_, model.outliers_)
    assert share_inside(model.predict_interval(X[100:], 0.8), y[100:]) >= 0.8
    assert_exports(model, X, np.column_stack(model.predict(X, return_std=True)), tmp_path)
    object.__setattr__(model.fitted_.predictors[0], "degrees", 1.0)
    with pytest.raises(ModelFileError):
        loads(dumps(model))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RVR(likelihood="student-t", noise_variance=1.0), "leave noise_variance at None"),
        (RVR(likelihood="student-t", predictive="augmented"), "leave predictive at 'rvm'"),
        (GPRegressor(likelihood="student-t", noise="heteroscedastic"), "is for likelihood='gaussian'"),
        (GPRegressor(likelihood="student-t", noise="loud"), "noise must be"),
        (RVR(likelihood="censored"), "likelihood must be one of 'gaussian', 'student-t', 'poisson'"),
    ],
)
def test_refusals(model, message):
    X, y, _, _ = curve(0, 30)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_several_outputs_are_refused():
    X, y, _, _ = curve(0, 30)
    with pytest.raises(ValueError, match="one output"):
        clone(LINE).fit(X, np.column_stack([y, y]))


# Noise whose variance depends on the inputs ----------------------------------------------------------------------


def wavy(seed, n, kind="along an input"):
    """Return rows whose noise depends on an input, on the mean, or on nothing."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    deviation = {"along an input": np.exp(-1.5 + 0.5 * X[:, 0]), "with the mean": 0.05 + 0.3 * np.abs(f)}
    return X, f + deviation.get(kind, 0.3) * rng.standard_normal(n)


@pytest.mark.parametrize("kind, gain", [("along an input", 0.3), ("with the mean", 0.1), ("constant", -0.03)])
def test_varying_noise_is_found_where_there_is_any(kind, gain):
    """Where there is none, some data look as if there were, which costs little."""
    X, y = wavy(0, 300, kind)
    plain, varying = (GPRegressor(noise=noise).fit(X, y) for noise in ("constant", "heteroscedastic"))
    new = wavy(1, 2000, kind)
    assert varying.log_predictive_density(*new).mean() > plain.log_predictive_density(*new).mean() + gain
    assert (varying.log_marginal_likelihood_ > plain.log_marginal_likelihood_ + 5.0) == (kind != "constant")
    if kind == "along an input":
        std = varying.predict([[-2.5, 0.0], [2.5, 0.0]], return_std=True)[1]
        assert std[1] / std[0] > 4.0
        samples = varying.sample_y([[2.5, 0.0]], 4000, noise=True)
        assert samples.std() == pytest.approx(std[1], rel=0.1)
        np.testing.assert_allclose(varying.predict([[2.5, 0.0]], return_cov=True)[1], std[1] ** 2, rtol=1e-9)
        np.testing.assert_array_equal(loads(dumps(varying)).predict_interval(X), varying.predict_interval(X))


@pytest.mark.parametrize("kind", ["alone", "pipeline", pytest.param("logarithm", marks=pytest.mark.slow)])
def test_varying_noise_in_onnx_and_c(kind, tmp_path):
    X, y = wavy(0, 200)
    y = np.exp(y) if kind == "logarithm" else y
    model = GPRegressor(noise="heteroscedastic")
    if kind == "pipeline":
        model, X = make_pipeline(StandardScaler(), model), X * [10.0, 0.1]
    model.fit(X[:120], y[:120])
    last = model[-1] if kind == "pipeline" else model
    last.calibrate(model[:-1].transform(X[120:]) if kind == "pipeline" else X[120:], y[120:])
    assert len(last.noise_columns_)
    rows = np.vstack([X, 3.0 * X[:20]])  # beyond the data as well, where the noise stays
    mean, std = model.predict(rows, return_std=True)
    inputs = model[:-1].transform(rows) if kind == "pipeline" else rows
    expected = np.column_stack([mean, std, last.predict_interval(inputs)])
    assert std.max() > 2.0 * std.min()
    if kind == "pipeline":
        pytest.importorskip("skl2onnx")
    sample = rows if kind == "pipeline" else None
    assert_exports(model, rows, expected, tmp_path, ["predict", "predict_interval"], sample)


@pytest.mark.slow
def test_varying_noise_of_a_process_on_a_logarithmic_scale():
    X, y = wavy(0, 120)
    y = np.exp(y)
    plain, varying = (GPRegressor(noise=noise).fit(X, y) for noise in ("constant", "heteroscedastic"))
    assert varying.process_.scale.sign == 1
    new = wavy(1, 2000)[0], np.exp(wavy(1, 2000)[1])
    assert varying.log_predictive_density(*new).mean() > plain.log_predictive_density(*new).mean() + 0.2
    low, middle, high = varying.predict_quantiles(new[0], [0.05, 0.5, 0.95]).T
    assert 0.8 < np.mean((low <= new[1]) & (new[1] <= high)) < 0.97
    mean, std = varying.predict(new[0][:1], return_std=True)
    drawn = varying.sample_y(new[0][:1], 20000, noise=True)
    assert (drawn.mean(), np.median(drawn)) == pytest.approx((mean[0], middle[0]), rel=0.05)
    assert drawn.std() == pytest.approx(std[0], rel=0.15)


def test_the_bound_of_varying_noise_against_dense_formulas_and_quadrature():
    rng = np.random.default_rng(1)
    Z, weights = rng.normal(size=(40, 1)), rng.uniform(0.5, 2.0, 40)
    squares = np.exp(Z[:, 0] - 1.0) * rng.chisquare(1, 40)
    noise, added = learn_log_noise(Z, squares, weights)
    Psi, mu, S = noise.features(Z), noise.mean, noise.covariance
    alpha = 1.0 / (mu**2 + S.diagonal())

    def bound(b, mu, S):
        spread = np.einsum("ij,jk,ik->i", Psi, S, Psi)
        rows = -0.5 * (b + Psi @ mu) - 0.5 * squares * np.exp(-b - Psi @ mu + 0.5 * spread)
        divergence = 0.5 * (alpha @ (S.diagonal() + mu**2) - len(mu) - np.linalg.slogdet(S * alpha[:, None])[1])
        return weights @ rows - divergence

    best = bound(noise.level, mu, S)
    fit = weights @ (-0.5 * noise.level - 0.5 * squares * np.exp(-noise.level) * noise.weights(Z))
    assert best == pytest.approx(fit + added, abs=0.02)
    for other in ((noise.level + 0.05, mu, S), (noise.level, mu + 0.02, S), (noise.level, mu, 1.2 * S)):
        assert bound(*other) < best + 1e-3
    assert len(mu) == 1  # sparse: one of five functions; below its evidence, by quadrature over its weight

    def joint(u):
        g = noise.level + Psi[:, 0] * u
        return np.exp(weights @ (-0.5 * g - 0.5 * squares * np.exp(-g)) + stats.norm.logpdf(u, 0, alpha[0] ** -0.5))

    reach = 8.0 * S[0, 0] ** 0.5
    exact = np.log(integrate.quad(joint, mu[0] - reach, mu[0] + reach)[0])
    assert exact - 0.5 < best < exact + 1e-6


def test_log_noise_in_files_is_checked():
    X, y = wavy(0, 200)
    model = GPRegressor(noise="heteroscedastic").fit(X, y)
    noise = model.fitted_.predictors[0].noise
    object.__setattr__(noise, "columns", noise.columns + 5)
    with pytest.raises(ModelFileError):
        loads(dumps(model))


@pytest.mark.parametrize("seed", [50, 61, 81])
def test_squares_of_any_spread_leave_precisions_positive(seed):
    """A Newton step that is cut short leaves a covariance beyond the prior's, of which MacKay's step is negative."""
    rng = np.random.default_rng([2, seed])
    Z, squares = rng.normal(size=(20, 2)), np.exp(10.0 * rng.normal(size=20))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        noise, added = learn_log_noise(Z, squares, np.ones(20))
    assert np.isfinite(added) and np.all(np.isfinite(noise.mean))


@pytest.mark.parametrize(
    "model",
    [GPRegressor(noise="heteroscedastic"), GPRegressor(likelihood="student-t"), RVR(likelihood="student-t")],
    ids=str,
)
def test_noise_that_rows_learn_keeps_a_time_limit_and_says_what_it_cannot_do(model, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (60, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(3, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limited = clone(model).set_params(time_limit=0.05).fit(X, y)
    assert np.all(np.isfinite(limited.predict(X, return_std=True)))
    with pytest.raises(ValueError, match="fit a model for each"):
        clone(model).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"needs (all )?rows in memory"):
        on_disk = np.memmap(tmp_path / "X", "float64", "w+", shape=(20_000, 9))
        clone(model).set_params(memory_limit="10MB").fit(on_disk, np.ones(20_000))


def test_varying_noise_of_copies_is_that_of_weights():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=60)
    copied = GPRegressor(noise="heteroscedastic").fit(np.vstack([X, X[:20]]), np.append(y, y[:20]))
    weighted = GPRegressor(noise="heteroscedastic").fit(X, y, np.where(np.arange(60) < 20, 2.0, 1.0))
    assert copied.noise_columns_.tolist() == weighted.noise_columns_.tolist()
    np.testing.assert_allclose(copied.predict(X, return_std=True), weighted.predict(X, return_std=True), rtol=1e-5)


def test_of_many_columns_those_that_tell_most_of_the_noise_are_looked_at():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(150, 400))
    squares = np.exp(2.0 * Z[:, 123]) * rng.standard_normal(150) ** 2
    noise, _ = learn_log_noise(Z, squares, np.ones(150))
    assert 123 in noise.columns and len(np.unique(noise.columns)) <= MAX_COLUMNS
    assert np.corrcoef(noise.variance(Z), np.exp(2.0 * Z[:, 123]))[0, 1] > 0.5
