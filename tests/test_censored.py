"""Targets of which only an interval is known: formulas, a dense oracle, quadrature, predictions, files, exports."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import relvec
from exports import assert_exports
from relvec import RVR
from relvec.export.model_file import dumps, loads
from relvec.inference.censored import as_ends, learn_noise, log_likelihood, truncate, working_targets

CURVE = RVR(width=2.0, predictive="rvm", likelihood="censored")
LINE = RVR(kernel=None, basis="linear", likelihood="censored")


def limited(seed, n, limit=0.6):
    """Return rows whose targets above a limit are not seen; the ends, the targets and the function."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    y = f + 0.3 * rng.standard_normal(n)
    return X, np.column_stack([np.minimum(y, limit), np.where(y > limit, np.inf, y)]), y, f


@pytest.mark.parametrize(
    "a, b", [(-1.0, 2.0), (0.0, np.inf), (-np.inf, -3.0), (5.0, 5.5), (-40.0, -39.0), (2.0, 2.0005), (-np.inf, np.inf)]
)
def test_moments_of_truncated_normal_variables(a, b):
    found = [float(v[0]) for v in truncate(np.array([[a], [b]]))]
    low, high = max(a, -45.0), min(b, 45.0)
    top = np.clip(0.0, low, high)

    def moment(k):  # relative to the largest density, of which the others may be nothing
        g = lambda e: e**k * np.exp(0.5 * (top**2 - e**2))  # noqa: E731
        points = [p for p in (top - 5.0, top, top + 5.0) if low < p < high]
        return integrate.quad(g, low, high, points=points or None, epsabs=0.0, epsrel=1e-12, limit=200)[0]

    mean = moment(1) / moment(0) if np.isfinite(a) or np.isfinite(b) else 0.0
    variance = moment(2) / moment(0) - mean**2
    assert found[0] == pytest.approx(np.log(moment(0)) - 0.5 * top**2 - 0.5 * np.log(2.0 * np.pi), abs=1e-6)
    assert found[1:] == pytest.approx([mean, variance], rel=1e-6, abs=1e-7)


def test_working_targets_have_the_derivatives_of_the_likelihood():
    ends = np.array([[1.0, np.inf], [-np.inf, -2.0], [0.5, 0.9], [0.3, 0.3], [-5.0, 40.0]])
    f, variance, h = np.array([0.2, 0.1, 1.4, 0.0, 0.5]), 0.49, 1e-4
    z, weight = working_targets(ends, f, variance)
    up, here, down = (log_likelihood(ends, f + step, variance) for step in (h, 0.0, -h))
    np.testing.assert_allclose(weight * (z - f) / variance, (up - down) / (2.0 * h), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weight / variance, -(up - 2.0 * here + down) / h**2, rtol=1e-4, atol=1e-4)


def test_a_tiny_problem_against_a_dense_oracle_and_quadrature():
    rng = np.random.default_rng(2)
    x = rng.normal(size=40)
    y = 1.5 * x + 0.5 * rng.standard_normal(40)
    ends = np.column_stack([np.maximum(y, -1.0), y])
    ends[y < -1.0, 0] = -np.inf
    ends[y < -1.0, 1] = -1.0
    ends[:5] = np.column_stack([np.floor(y[:5]), np.floor(y[:5]) + 1.0])
    model = RVR(kernel=None, basis="linear", fit_intercept=False, likelihood="censored").fit(x[:, None], ends)
    alpha, s2 = model.alpha_[0], model.noise_variance_

    def joint(w, s2):
        low, high = stats.norm.cdf((ends - w * x[:, None]) / np.sqrt(s2)).T
        seen = ends[:, 0] == ends[:, 1]
        rows = np.where(seen, stats.norm.pdf(y, w * x, np.sqrt(s2)), high - low)
        return np.log(rows).sum() + stats.norm.logpdf(w, scale=alpha**-0.5)

    mode = minimize_scalar(lambda w: -joint(w, s2), bounds=(0.0, 3.0), method="bounded", options={"xatol": 1e-10}).x
    h = 1e-3
    curvature = -(joint(mode + h, s2) - 2.0 * joint(mode, s2) + joint(mode - h, s2)) / h**2
    laplace = joint(mode, s2) + 0.5 * np.log(2.0 * np.pi / curvature)
    assert model.weights_[0] == pytest.approx(mode, abs=2e-3 / np.sqrt(curvature))
    assert model.covariance_[0, 0] == pytest.approx(1.0 / curvature, rel=1e-2)
    assert model.log_marginal_likelihood_ == pytest.approx(laplace, abs=0.02)

    def evidence(s2):
        reach = 10.0 / np.sqrt(curvature)
        value = integrate.quad(lambda w: np.exp(joint(w, s2) - laplace), mode - reach, mode + reach)[0]
        return np.log(value) + laplace

    assert model.log_marginal_likelihood_ == pytest.approx(evidence(s2), abs=0.05)
    grid = mode + np.linspace(-10.0, 10.0, 401) / np.sqrt(curvature)
    density = np.exp([joint(w, s2) - laplace for w in grid])
    exact = density @ grid / density.sum()
    spread = density @ (grid - exact) ** 2 / density.sum()
    assert [model.weights_[0], model.covariance_[0, 0]] == pytest.approx([exact, spread], rel=0.1)
    best = minimize_scalar(lambda v: -evidence(np.exp(v)), bounds=(-3.0, 1.0), method="bounded")
    assert s2 == pytest.approx(np.exp(best.x), rel=0.05)  # the noise of most evidence


def test_many_weights_against_a_dense_oracle():
    X, ends, _, _ = limited(0, 60)
    model = clone(CURVE).fit(X, ends)
    Phi, alpha, s2 = model.basis_(X), model.alpha_, model.noise_variance_

    def negative(w):
        return 0.5 * alpha @ w**2 - log_likelihood(ends, Phi @ w, s2).sum()

    found = minimize(negative, model.weights_ * 0.9, method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    np.testing.assert_allclose(Phi @ model.weights_, Phi @ found.x, atol=0.05)
    _, weight = working_targets(ends, Phi @ model.weights_, s2)
    precision = (Phi.T * weight / s2) @ Phi + np.diag(alpha)
    spread = np.einsum("ij,jk,ik->i", Phi, np.linalg.inv(precision), Phi)
    np.testing.assert_allclose(model.predict(X, return_std=True, noise=False)[1] ** 2, spread, rtol=0.05)
    log_det = np.linalg.slogdet(precision / np.sqrt(np.outer(alpha, alpha)))[1]
    assert model.log_marginal_likelihood_ == pytest.approx(-negative(model.weights_) - 0.5 * log_det, abs=0.1)


def test_noise_is_learned_from_hidden_rows_too():
    rng = np.random.default_rng(0)
    y = 0.7 * rng.standard_normal(20000)
    ends = np.column_stack([np.minimum(y, 0.3), np.where(y > 0.3, np.inf, y)])
    assert learn_noise(ends, np.zeros(20000), np.zeros(20000), np.ones(20000)) == pytest.approx(0.49, rel=0.03)
    spread = np.full(20000, 0.09)  # of a function that is known no better: what it explains is no noise
    assert learn_noise(as_ends(y), np.zeros(20000), spread, np.ones(20000)) == pytest.approx(0.49 + 0.09, rel=0.03)


@pytest.mark.parametrize(
    "options",
    [{"width": 2.0, "predictive": "rvm"}, {"width": 2.0, "predictive": "process"},
     pytest.param({}, marks=pytest.mark.slow)],
)  # fmt: skip
def test_ahead_of_leaving_rows_out_or_taking_limits_for_targets(options):
    from test_conformal import share_inside

    X, ends, y, _ = limited(1, 150)
    new = limited(9, 2000)
    seen = np.isfinite(ends[:, 1])
    model = RVR(likelihood="censored", **options).fit(X, ends)
    rivals = [RVR(**options).fit(X, ends[:, 0]), RVR(**options).fit(X[seen], y[seen])]
    density, *others = (m.log_predictive_density(new[0], new[2]).mean() for m in (model, *rivals))
    errors = [np.sqrt(np.mean((m.predict(new[0]) - new[3]) ** 2)) for m in (model, *rivals)]
    assert density > max(others) + 0.1 and errors[0] < 0.8 * min(errors[1:])
    coverage, *others = (share_inside(m.predict_interval(new[0]), new[2]) for m in (model, *rivals))
    assert coverage > max(others) + 0.05
    assert options.get("predictive") == "rvm" or 0.85 < coverage < 0.95  # an RVM is too sure where nothing was seen
    assert model.n_censored_ == np.sum(~seen)
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.4)


def test_a_process():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3.0, 3.0, 50))
    y = np.sin(x) + 0.1 * rng.standard_normal(50)
    ends = np.column_stack([np.minimum(y, 0.5), np.where(y > 0.5, np.inf, y)])
    model = RVR(likelihood="censored").fit(x[:, None], ends)
    top = model.predict([[1.5]])[0]
    assert top > 0.7 > RVR(predictive="rvm", width=2.0).fit(x[:, None], ends[:, 0]).predict([[1.5]])[0]
    assert model.process_.scale.sign == 0 and model.noise_variance_ == pytest.approx(0.01, rel=0.8)
    np.testing.assert_array_equal(loads(dumps(model)).predict_interval(x[:, None]), model.predict_interval(x[:, None]))


def test_targets_that_were_all_observed_are_a_normal_model():
    X, _, y, _ = limited(0, 80)
    plain, same = RVR(width=2.0, predictive="rvm").fit(X, y), clone(CURVE).fit(X, y)
    np.testing.assert_array_equal(same.predict(X, return_std=True), plain.predict(X, return_std=True))
    assert same.n_censored_ == 0 and same.score(X, as_ends(y)) == pytest.approx(plain.score(X, y), abs=1e-6)


def test_weights_units_and_rows_that_say_nothing():
    X, ends, _, _ = limited(4, 60)
    model = clone(LINE).fit(X, ends)
    twice = clone(LINE).fit(np.repeat(X, 2, axis=0), np.repeat(ends, 2, axis=0))
    weighted = clone(LINE).fit(X, ends, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(weighted.predict(X), twice.predict(X), rtol=1e-4)
    assert weighted.log_marginal_likelihood_ == pytest.approx(twice.log_marginal_likelihood_, abs=0.05)
    more = clone(LINE).fit(np.vstack([X, X[:1]]), np.vstack([ends, [-np.inf, np.inf]]))
    np.testing.assert_array_equal(more.predict(X), model.predict(X))
    np.testing.assert_allclose(clone(LINE).fit(X, 1e3 * ends).predict(X), 1e3 * model.predict(X), rtol=1e-4)
    mirrored = clone(LINE).fit(X, -ends[:, ::-1])
    np.testing.assert_allclose(mirrored.predict(X), -model.predict(X), rtol=1e-6, atol=1e-9)


def test_in_the_company_of_scikit_learn_and_scikit_survival():
    X, ends, _, _ = limited(0, 90)
    assert (cross_val_score(LINE, X, ends, cv=3) > 0.1).all()
    event = np.array([(low == high, low) for low, high in ends], dtype=[("event", bool), ("time", float)])
    np.testing.assert_array_equal(clone(LINE).fit(X, event).predict(X), clone(LINE).fit(X, ends).predict(X))
    model = clone(LINE).fit(X, event)
    assert model.score(X, event) == model.score(X, ends)
    hidden = np.isinf(ends[:, 1])
    mean, std = model.predict(X[hidden], return_std=True)
    log_p = model.log_predictive_density(X, ends)[hidden]
    np.testing.assert_allclose(log_p, stats.norm.logsf(ends[hidden, 0], mean, std), rtol=1e-9)


@pytest.mark.parametrize("predictive", ["rvm", "process"])
def test_files_and_exports(predictive, tmp_path):
    X, ends, y, _ = limited(0, 120)
    model = clone(CURVE).set_params(predictive=predictive).fit(X[:60], ends[:60]).calibrate(X[60:], y[60:])
    again = loads(dumps(model))
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    np.testing.assert_array_equal(again.log_predictive_density(X, ends), model.log_predictive_density(X, ends))
    assert again.n_censored_ == model.n_censored_ > 0
    assert_exports(model, X, np.column_stack(model.predict(X, return_std=True)), tmp_path)


@pytest.mark.parametrize(
    "y, message",
    [
        ([[1.0, 0.0]] * 5, "must not be above"),
        ([[np.nan, 0.0]] * 5, "no nan"),
        (np.zeros((5, 3)), "lower and the upper end"),
        (np.zeros((4, 2)), "inconsistent"),
    ],
)
def test_refusals(y, message):
    with pytest.raises(ValueError, match=message):
        clone(LINE).fit(np.arange(10.0).reshape(5, 2), y)


def test_intervals_are_calibrated_on_observed_targets():
    X, ends, _, _ = limited(0, 40)
    with pytest.raises(ValueError, match="were observed"):
        clone(LINE).fit(X, ends).calibrate(X, ends)


def test_a_table_with_lower_and_upper_ends(tmp_path, capsys):
    from relvec.app.cli import main

    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, 60)
    y = 2.0 * x + 0.3 * rng.standard_normal(60)
    cells = [(f"{v:.3f}", f"{v:.3f}") if -3 < v < 3 else ("3", "") if v > 0 else ("", "-3") for v in y]
    path, model = tmp_path / "table.csv", tmp_path / "model.relvec"
    path.write_text("\n".join(["x,from,to", *(f"{a:.4f},{low},{high}" for a, (low, high) in zip(x, cells))]))
    options = ["--target", "from", "--upper", "to", "--kernel", "linear", "-o", str(model)]
    assert main(["fit", str(path), *options]) == 0
    hidden = int(np.sum(np.abs(y) >= 3))
    assert f"{hidden} targets known by an interval only" in capsys.readouterr().out
    assert relvec.load(model).predict({"x": [3.0]})[0] == pytest.approx(6.0, abs=0.5)
    assert main(["evaluate", str(model), str(path)]) == 0
    assert f"{hidden} rows left out" in capsys.readouterr().out
    assert main(["evaluate", str(model), str(path), "--cv", "3"]) != 0
    assert main(["fit", str(path), *options, "--noise", "student-t"]) != 0
