"""Weights that share a precision: groups of columns, and outputs of one model."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import oracle
from relvec import RVR, SparseBayesianRegressor
from relvec.inference.evidence import optimal_alpha
from relvec.solvers.joint import best_alpha, contribution

RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(10), 4)
X = RNG.standard_normal((100, 40)) * np.geomspace(0.1, 10.0, 40)
SLOPES = np.zeros((40, 2))
SLOPES[:4] = [[1.0, 0.5], [-1.0, 0.2], [0.5, -1.0], [0.8, 1.0]]
SLOPES[20:24] = [[0.3, 0.5], [0.6, 0.5], [-0.4, 0.5], [0.2, 0.5]]
Y = (X / np.geomspace(0.1, 10.0, 40)) @ SLOPES + [0.3, 1.0] * RNG.standard_normal((100, 2)) + 5.0


def evidence(model, alpha, noise, y):
    """Log evidence by the dense formula, in centred columns."""
    columns = np.flatnonzero(model.selected_ if model.selected_.ndim == 1 else model.selected_[0])
    centred = np.column_stack([X[:, columns] - X[:, columns].mean(axis=0), np.ones(len(y))])
    kept = np.isfinite(alpha)
    return oracle.log_evidence(centred[:, kept], y, alpha[kept], 1.0 / noise)


def test_the_search_on_a_line_finds_the_maximum():
    s, q2 = RNG.uniform(0.1, 5.0, (20, 3)), RNG.uniform(0.0, 20.0, (20, 3))
    gain = best_alpha(s, q2)[1]
    for i in range(20):

        def minus(log, i=i):
            return -contribution(np.array([[np.exp(log)]]), s[[i]], q2[[i]])[0, 0]

        starts = [minimize_scalar(minus, bounds=(low, low + 4.0), method="bounded").fun for low in range(-12, 12, 2)]
        assert gain[i] == pytest.approx(max(0.0, -min(starts)), abs=1e-6)
    single, _ = best_alpha(s[:, :1], q2[:, :1])
    np.testing.assert_allclose(single, optimal_alpha(s[:, 0], np.sqrt(q2[:, 0])), rtol=1e-8)


def test_groups_enter_together_with_one_precision():
    model = SparseBayesianRegressor(column_groups=GROUPS).fit(X, Y[:, 0])
    assert sorted(set(GROUPS[model.selected_])) == [0, 5] and model.selected_.sum() == 8
    norms = np.linalg.norm(X[:, model.selected_] - X[:, model.selected_].mean(axis=0), axis=0)
    scaled = (model.alpha_[:-1] / norms**2).reshape(2, 4)
    np.testing.assert_allclose(scaled, scaled[:, :1] * np.ones(4), rtol=1e-9)
    best = evidence(model, model.alpha_, model.noise_variance_, Y[:, 0])
    assert model.log_marginal_likelihood_ == pytest.approx(best, rel=1e-9)
    for factor in (0.7, 1.4):
        moved = model.alpha_.copy()
        moved[:4] *= factor
        assert evidence(model, moved, model.noise_variance_, Y[:, 0]) < best
        assert evidence(model, model.alpha_, factor * model.noise_variance_, Y[:, 0]) < best
    assert model.status_ == "converged"


def test_units_of_columns_do_not_matter_in_groups():
    model = SparseBayesianRegressor(column_groups=GROUPS).fit(X, Y[:, 0])
    scale = np.geomspace(1e3, 1e-3, 40)
    other = SparseBayesianRegressor(column_groups=GROUPS).fit(X * scale, Y[:, 0])
    np.testing.assert_allclose(other.coef_ * scale, model.coef_, rtol=1e-5, atol=1e-8)


def test_outputs_share_precisions_and_not_the_noise():
    model = SparseBayesianRegressor(share_alpha=True).fit(X, Y)
    assert np.array_equal(model.selected_[0], model.selected_[1])
    true = SLOPES.any(axis=1)
    assert model.selected_[0][true].all() and model.selected_[0][~true].sum() <= 2
    rms = np.sqrt(np.mean(Y**2, axis=0))
    inside = np.isfinite(model.alpha_).all(axis=0)
    ratio = model.alpha_[0][inside] / model.alpha_[1][inside]
    np.testing.assert_allclose(ratio, (rms[1] / rms[0]) ** 2, rtol=1e-9)
    assert model.noise_variance_[0] < 0.3 < 0.6 < model.noise_variance_[1]
    total = sum(evidence(model, model.alpha_[q], model.noise_variance_[q], Y[:, q]) for q in (0, 1))
    assert model.log_marginal_likelihood_.sum() == pytest.approx(total, rel=1e-9)


def test_functions_that_no_single_output_could_tell_are_found_together():
    rng = np.random.default_rng(1)
    rows, slopes = rng.standard_normal((60, 300)), np.zeros((300, 6))
    slopes[[10, 150, 220]] = 0.45 * rng.choice([-1.0, 1.0], (3, 6))
    y = rows @ slopes + rng.standard_normal((60, 6))
    joint = SparseBayesianRegressor(share_alpha=True).fit(rows, y)
    alone = SparseBayesianRegressor().fit(rows, y)
    assert np.flatnonzero(joint.selected_[0]).tolist() == [10, 150, 220]
    assert alone.selected_[:, [10, 150, 220]].mean() < 0.7


def test_kernels_share_precisions_too():
    x = np.linspace(-5.0, 5.0, 60)[:, None]
    y = np.column_stack([np.sin(x[:, 0]), np.cos(x[:, 0])]) + 0.1 * RNG.standard_normal((60, 2))
    model = RVR(kernel="gaussian", width=2.0, share_alpha=True).fit(x, y)
    finite = np.isfinite(model.alpha_)
    assert np.array_equal(finite[0], finite[1]) and model.score(x, y) > 0.95


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SparseBayesianRegressor(column_groups=GROUPS[:5]), "5 labels"),
        (SparseBayesianRegressor(column_groups=GROUPS, solver="em"), "solver"),
        (SparseBayesianRegressor(column_groups=[GROUPS, GROUPS]), "label for each column"),
        (RVR(share_alpha=True, likelihood="poisson"), "likelihood"),
    ],
)
def test_what_cannot_share_is_refused(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, np.abs(Y).round())
