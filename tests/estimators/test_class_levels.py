"""How many functions a model of classes keeps, what it averages, and the slope of its log-odds."""

import numpy as np
import pytest
from scipy.special import expit, log_expit

from relvec import RVC, RVR
from relvec.gaussian_process.classes.rows import DistinctRows
from relvec.runtime.clock import Clock
from relvec.sparse.class_levels import (
    MOST_FUNCTIONS,
    ClassLevel,
    Latents,
    calibrate_slope,
    choose_class_level,
    make_class_problem,
    mix_latents,
    search_at,
)
from relvec.sparse.classes import fit_sparse_classes


def level(n_functions, losses, n_rows=None):
    n = len(losses) if n_rows is None else n_rows
    latents = Latents(np.zeros((n, 1)), np.zeros((n, 1, 1)))
    return ClassLevel(1.0, n_functions, latents, np.asarray(losses), float(np.sum(losses) / n))


def draw(n, seed, odds):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (rng.uniform(size=n) < expit(odds(X))).astype(int)


def test_of_levels_that_lose_as_little_the_smaller_is_chosen():
    rng = np.random.default_rng(0)
    best = rng.exponential(size=400)
    noise = 0.5 * rng.normal(size=400)
    noise -= noise.mean()
    same, little, far = best.copy(), best + noise + 0.005, best + noise + 0.1
    assert choose_class_level([level(5, same), level(9, best)]) == 0
    assert choose_class_level([level(9, best), level(5, same)]) == 1
    assert choose_class_level([level(5, little), level(9, best)]) == 0
    assert choose_class_level([level(5, far), level(9, best)]) == 1
    assert choose_class_level([level(5, best), level(9, far)]) == 0


def test_a_smaller_level_may_lose_more_where_rows_come_in_groups():
    rng = np.random.default_rng(1)
    best, noise = rng.exponential(size=40), rng.normal(size=40)
    worse = best + noise - noise.mean() + 1.2 * noise.std() / np.sqrt(40)
    assert choose_class_level([level(5, worse), level(9, best)]) == 1
    assert choose_class_level([level(5, worse, 400), level(9, best, 400)]) == 0


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_the_slope_is_that_of_most_likelihood_under_its_prior(factor):
    rng = np.random.default_rng(2)
    f = 2.0 * rng.normal(size=500)
    second = (rng.uniform(size=500) < expit(f)).astype(float)
    rows = DistinctRows(f[:, None], np.column_stack([1.0 - second, second]))
    slope = calibrate_slope(Latents(factor * f[:, None], np.zeros((500, 1, 1))), rows)
    grid = np.exp(np.linspace(-1.5, 1.5, 3001))
    fits = log_expit(np.outer(grid, factor * f * (2.0 * second - 1.0))).sum(axis=1)
    assert slope == pytest.approx(grid[np.argmax(fits - 0.5 * (np.log(grid) / 0.5) ** 2)], rel=2e-3)


def test_one_row_of_the_base_rates_is_spread_over_all_rows():
    counts = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    rows = DistinctRows(np.arange(3.0)[:, None], counts)
    problem = make_class_problem(np.ones((3, 1)), rows)
    spread = rows.weight / rows.weight.sum()
    second = (counts[:, 1] + spread * rows.base_rates[1]) / (rows.weight + spread)
    np.testing.assert_allclose(problem.target, second)
    np.testing.assert_allclose(problem.weights, rows.weight)


def draw_three(n, seed):
    """Three classes, each on two sides of the others."""
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.digitize(np.abs(X[:, 0]) + 0.3 * np.sin(3.0 * X[:, 1]), [0.5, 1.2])


@pytest.mark.parametrize("given", [{}, {"width": 1.0}, {"width": 1.0, "share_alpha": True}])
@pytest.mark.parametrize("most", [1, 3])
def test_max_functions_bounds_a_model_of_classes(given, most):
    X, y = draw_three(150, 0)
    assert 1 <= RVC(max_functions=most, **given).fit(X, y).fitted_.n_kept <= most
    assert 1 <= RVC(max_functions=most, **given).fit(X, y == 2).fitted_.n_kept <= most


def test_max_functions_bounds_a_model_of_counts():
    x = np.linspace(0.0, 9.0, 80)[:, None]
    y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(2.0 * x[:, 0])))
    sizes = [RVR(likelihood="poisson", width=0.7, max_functions=k).fit(x, y).fitted_.n_kept for k in (2, 4, None)]
    assert sizes[:2] == [2, 4] and sizes[2] > 4


def test_a_sum_of_independent_functions_adds_variances_times_squared_shares():
    rng = np.random.default_rng(3)
    parts = [Latents(rng.normal(size=(4, 2)), rng.normal(size=(4, 2, 2))) for _ in range(2)]
    whole = mix_latents(parts, np.array([0.3, 0.7]))
    np.testing.assert_allclose(whole.mean, 0.3 * parts[0].mean + 0.7 * parts[1].mean)
    np.testing.assert_allclose(whole.covariance, 0.09 * parts[0].covariance + 0.49 * parts[1].covariance)


def test_a_model_of_classes_has_few_functions_and_shares_of_one():
    X, y = draw(150, 4, lambda X: 3.0 * X[:, 0] ** 2 - 2.0)
    found = fit_sparse_classes(X, y, 2)
    assert sum(setting.share for setting in found.settings) == pytest.approx(1.0)
    assert 0 < sum(member.n_functions for member in found.members) <= MOST_FUNCTIONS
    assert [m.setting.share for m in found.members] == [s.share for s in found.settings if s.share > 0.0]


@pytest.mark.parametrize("n_classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_classes_that_do_not_meet_keep_finite_odds_and_honest_relevance(n_classes):
    X = np.random.default_rng(5).normal(size=(60, 2))
    y = np.arange(60) % n_classes
    X[:, 0] += 12.0 * y
    model = RVC().fit(X, y)
    assert np.abs(model.decision_function(X)).max() < 30.0
    kept = np.isfinite(model.alpha_)
    variance = np.diagonal(model.covariance_.reshape(kept.size, kept.size)).reshape(kept.shape)
    np.testing.assert_allclose(1.0 - model.alpha_[kept] * variance[kept], model.gamma_[kept], atol=1e-8)


def test_no_time_gives_a_model_and_says_what_was_cut():
    fit = fit_sparse_classes(*draw(300, 5, lambda X: X[:, 0]), 2, clock=Clock(1e-6))
    assert fit.cut and fit.slope == 1.0 and len(fit.settings) == 1


def test_memory_limits_the_candidates_of_classes():
    X, labels = draw(200, 5, lambda X: X[:, 0])
    fit = fit_sparse_classes(X, labels, 2, memory=200 * 70.0 * 3 * 30)
    assert max(setting.basis.n_atoms for setting in fit.settings) <= 3 * 30 + 3


@pytest.mark.parametrize("rates", [(0.8, 0.2), (0.5, 0.3, 0.2)])
def test_noise_has_the_shares_of_the_classes(rates):
    """The constant has no price, and is a level of its own: wide functions in its place would vary with the inputs."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.choice(len(rates), 120, p=rates)
    model = RVC().fit(X, y)
    assert model.atoms_ == ["bias"]
    shares = np.bincount(y) / len(y)
    np.testing.assert_allclose(model.predict_proba(rng.normal(size=(5, 3))), np.tile(shares, (5, 1)), atol=0.02)


def test_the_constant_of_a_priced_model_costs_nothing():
    X, y = draw(200, 6, lambda X: X[:, 0] ** 2 + 1.0)
    free = make_class_problem(np.column_stack([X, np.ones(200)]), DistinctRows(X, np.eye(2)[y]))
    model = search_at(free, np.inf)
    assert model.active.tolist() == [2] and np.isfinite(model.objective)


def test_levels_without_functions_do_not_end_the_search_for_prices():
    """Where a wave is too weak for the first prices, the constant is best until the first useful pair of functions."""
    rng = np.random.default_rng(7)
    x = rng.uniform(-3.0, 3.0, (150, 1))
    y = (rng.uniform(size=150) < expit(2.0 * np.sin(2.0 * x[:, 0]))).astype(int)
    setting = fit_sparse_classes(x, y, 2).settings[-1]
    assert setting.level.n_functions >= 2 and setting.level.loss < setting.levels[0].loss - 0.05
