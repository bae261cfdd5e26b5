"""Targets of which only an interval is known: formulas, a dense oracle, quadrature, predictions, files, exports."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import relvec
from exports import assert_exports
from relvec import GPRegressor
from relvec.export.model_file import dumps, loads
from relvec.inference.censored import as_ends, learn_noise, log_likelihood, truncated_moments, working_targets

CENSORED = GPRegressor(likelihood="censored")


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
    found = [float(v[0]) for v in truncated_moments(np.array([[a], [b]]))]
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


def test_every_component_against_a_dense_oracle():
    """The posterior at the mode, its spread, and Laplace's evidence, from the kernel at the rows."""
    X, ends, _, _ = limited(0, 60)
    process = clone(CENSORED).fit(X, ends).process_
    rows, scale = process.units.inputs(X), process.units.y_scale
    evidences = []
    for part in process.components:
        K, s2 = scale**2 * part.structure(part.theta, rows), part.noise * scale**2

        def negative(a, K=K, s2=s2):
            return 0.5 * a @ K @ a - log_likelihood(ends, process.units.y_mean + K @ a, s2).sum()

        def slope(a, K=K, s2=s2):
            f = process.units.y_mean + K @ a
            z, weight = working_targets(ends, f, s2)
            return K @ (a - weight * (z - f) / s2)

        start = np.linalg.solve(K + s2 * np.eye(60), np.minimum(*ends.T) - process.units.y_mean)
        found = minimize(negative, start, jac=slope, method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**5})
        mode = process.units.y_mean + K @ found.x
        mean, variance = part.predict(rows, noise=False)
        np.testing.assert_allclose(process.units.y_mean + scale * mean, mode, atol=0.05)
        weight = working_targets(ends, mode, s2)[1] / s2
        B = np.eye(60) + np.sqrt(weight)[:, None] * K * np.sqrt(weight)
        half = np.linalg.solve(np.linalg.cholesky(B), np.sqrt(weight)[:, None] * K)
        spread = np.diag(K) - np.sum(half**2, axis=0)
        np.testing.assert_allclose(scale**2 * variance / part.spread, spread, rtol=0.15)
        evidences.append(-found.fun - 0.5 * np.linalg.slogdet(B)[1])
    assert clone(CENSORED).fit(X, ends).log_marginal_likelihood_ == pytest.approx(evidences[0], abs=0.1)


def test_noise_is_learned_from_hidden_rows_too():
    rng = np.random.default_rng(0)
    y = 0.7 * rng.standard_normal(20000)
    ends = np.column_stack([np.minimum(y, 0.3), np.where(y > 0.3, np.inf, y)])
    assert learn_noise(ends, np.zeros(20000), np.zeros(20000), np.ones(20000)) == pytest.approx(0.49, rel=0.03)
    spread = np.full(20000, 0.09)  # of a function that is known no better: what it explains is no noise
    assert learn_noise(as_ends(y), np.zeros(20000), spread, np.ones(20000)) == pytest.approx(0.49 + 0.09, rel=0.03)


def test_ahead_of_leaving_rows_out_or_taking_limits_for_targets():
    from test_conformal import share_inside

    X, ends, y, _ = limited(1, 150)
    new = limited(9, 2000)
    seen = np.isfinite(ends[:, 1])
    model = clone(CENSORED).fit(X, ends)
    rivals = [GPRegressor().fit(X, ends[:, 0]), GPRegressor().fit(X[seen], y[seen])]
    density, *others = (m.log_predictive_density(new[0], new[2]).mean() for m in (model, *rivals))
    errors = [np.sqrt(np.mean((m.predict(new[0]) - new[3]) ** 2)) for m in (model, *rivals)]
    assert density > max(others) + 0.1 and errors[0] < 0.8 * min(errors[1:])
    coverage, *others = (share_inside(m.predict_interval(new[0]), new[2]) for m in (model, *rivals))
    assert coverage > max(others) + 0.05 and 0.85 < coverage < 0.95
    assert model.n_censored_ == np.sum(~seen)
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.4)


def test_a_function_beyond_the_limit():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3.0, 3.0, 50))
    y = np.sin(x) + 0.1 * rng.standard_normal(50)
    ends = np.column_stack([np.minimum(y, 0.5), np.where(y > 0.5, np.inf, y)])
    model = clone(CENSORED).fit(x[:, None], ends)
    top = model.predict([[1.5]])[0]
    assert top > 0.7 > GPRegressor().fit(x[:, None], ends[:, 0]).predict([[1.5]])[0]
    assert model.process_.scale.sign == 0 and model.noise_variance_ == pytest.approx(0.01, rel=0.8)
    np.testing.assert_array_equal(loads(dumps(model)).predict_interval(x[:, None]), model.predict_interval(x[:, None]))


def test_targets_that_were_all_observed_are_a_normal_model():
    X, _, y, _ = limited(0, 80)
    plain, same = GPRegressor(noise="constant").fit(X, y), clone(CENSORED).fit(X, y)
    np.testing.assert_array_equal(same.predict(X, return_std=True), plain.predict(X, return_std=True))
    assert same.n_censored_ == 0 and same.score(X, as_ends(y)) == pytest.approx(plain.score(X, y), abs=1e-6)


def test_weights_units_and_rows_that_say_nothing():
    X, ends, _, _ = limited(4, 60)
    model = clone(CENSORED).fit(X, ends)
    twice = clone(CENSORED).fit(np.repeat(X, 2, axis=0), np.repeat(ends, 2, axis=0))
    weighted = clone(CENSORED).fit(X, ends, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(weighted.predict(X), twice.predict(X), rtol=1e-4)
    assert weighted.log_marginal_likelihood_ == pytest.approx(twice.log_marginal_likelihood_, abs=0.05)
    more = clone(CENSORED).fit(np.vstack([X, X[:1]]), np.vstack([ends, [-np.inf, np.inf]]))
    np.testing.assert_array_equal(more.predict(X), model.predict(X))
    np.testing.assert_allclose(clone(CENSORED).fit(X, 1e3 * ends).predict(X), 1e3 * model.predict(X), rtol=1e-4)
    mirrored = clone(CENSORED).fit(X, -ends[:, ::-1])
    np.testing.assert_allclose(mirrored.predict(X), -model.predict(X), rtol=1e-6, atol=1e-9)


def test_in_the_company_of_scikit_learn_and_scikit_survival():
    X, ends, _, _ = limited(0, 90)
    assert (cross_val_score(CENSORED, X, ends, cv=3) > 0.1).all()
    event = np.array([(low == high, low) for low, high in ends], dtype=[("event", bool), ("time", float)])
    np.testing.assert_array_equal(clone(CENSORED).fit(X, event).predict(X), clone(CENSORED).fit(X, ends).predict(X))
    model = clone(CENSORED).fit(X, event)
    assert model.score(X, event) == model.score(X, ends)
    hidden = np.isinf(ends[:, 1])
    mean, std = model.predict(X[hidden], return_std=True)
    log_p = model.log_predictive_density(X, ends)[hidden]
    np.testing.assert_allclose(log_p, stats.norm.logsf(ends[hidden, 0], mean, std), rtol=1e-9)


def test_files_and_exports(tmp_path):
    X, ends, y, _ = limited(0, 120)
    model = clone(CENSORED).fit(X[:60], ends[:60]).calibrate(X[60:], y[60:])
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
        clone(CENSORED).fit(np.arange(10.0).reshape(5, 2), y)


def test_intervals_are_calibrated_on_observed_targets():
    X, ends, _, _ = limited(0, 40)
    with pytest.raises(ValueError, match="were observed"):
        clone(CENSORED).fit(X, ends).calibrate(X, ends)


def test_a_table_with_lower_and_upper_ends(tmp_path, capsys):
    from relvec.app.cli import main

    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, 60)
    y = 2.0 * x + 0.3 * rng.standard_normal(60)
    cells = [(f"{v:.3f}", f"{v:.3f}") if -3 < v < 3 else ("3", "") if v > 0 else ("", "-3") for v in y]
    path, model = tmp_path / "table.csv", tmp_path / "model.relvec"
    path.write_text("\n".join(["x,from,to", *(f"{a:.4f},{low},{high}" for a, (low, high) in zip(x, cells))]))
    options = ["--target", "from", "--upper", "to", "-o", str(model)]
    assert main(["fit", str(path), *options]) == 0
    hidden = int(np.sum(np.abs(y) >= 3))
    assert f"{hidden} targets known by an interval only" in capsys.readouterr().out
    assert relvec.load(model).predict({"x": [3.0]})[0] == pytest.approx(6.0, abs=0.5)
    assert main(["evaluate", str(model), str(path)]) == 0
    assert f"{hidden} rows left out" in capsys.readouterr().out
    assert main(["evaluate", str(model), str(path), "--cv", "3"]) != 0
    assert main(["fit", str(path), *options, "--noise", "student-t"]) != 0
