"""A sparse model that predicts: its formulas, its size, its error bars near and far, and what it does not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from relvec.basis import Bias, Concat, KernelBasis
from relvec.gaussian_process.rows import Rows, merge_rows
from relvec.inference.error_bars import ErrorBars, HeldOut, Reach, learn_error_bars, learn_reach
from relvec.inference.predictive.calibrated import CalibratedPredictor
from relvec.inference.tails import fit_tail, log_density
from relvec.kernels import Gaussian
from relvec.runtime.clock import Clock
from relvec.solvers.price import PRICES_NATS, Ladder, score
from relvec.solvers.stepwise import addition_gains, count_functions, weakest
from relvec.sparse.dictionary import build, learn_widths
from relvec.sparse.fit import SparseFit, fit_sparse
from relvec.sparse.held_out import MAX_SHARE, group_rows, make_folds, make_problem


def friedman(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of Friedman's first function of six inputs, with noise of standard deviation one."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 6))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + rng.standard_normal(n)


def sinc(n: int, seed: int, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of the sinc function on [-10, 10]."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10.0, 10.0, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + noise * rng.standard_normal(n)


@pytest.fixture(scope="module")
def model() -> SparseFit:
    return fit_sparse(*friedman(300, 0))


def variances(model: SparseFit, X: np.ndarray) -> np.ndarray:
    found = model.predictor.moments(X, True, True)[1]
    assert found is not None
    return found


# ---------------------------------------------------------------- the posterior


def test_function_is_t01(model):
    """Mean and variance inside are T01 eqs. (21) and (22), times the factor of held-out rows."""
    X, y = friedman(300, 0)
    Phi = model.basis.take(model.active)(X)
    p = model.posterior
    scale = model.problem.design.scale[model.active]
    alpha, beta = p.alpha * (scale / model.unit) ** 2, p.beta / model.unit**2
    Sigma = np.linalg.inv(np.diag(alpha) + beta * Phi.T @ Phi)
    mu = beta * Sigma @ Phi.T @ y
    inside = X[::7]
    mean, variance = model.predictor.moments(inside, True, True)
    rows = Phi[::7]
    np.testing.assert_allclose(mean, rows @ mu, rtol=1e-6)
    expected = 1.0 / beta + np.einsum("ij,jk,ik->i", rows, Sigma, rows)
    np.testing.assert_allclose(variance, model.bars.factors(inside, mean) * expected, rtol=1e-5)


def test_evidence_is_that_of_the_marginal(model):
    X, y = friedman(300, 0)
    Phi = model.basis.take(model.active)(X)
    scale = model.problem.design.scale[model.active]
    alpha, beta = model.posterior.alpha * (scale / model.unit) ** 2, model.posterior.beta / model.unit**2
    C = np.eye(300) / beta + (Phi / alpha) @ Phi.T
    assert np.isclose(model.log_evidence, multivariate_normal(np.zeros(300), C).logpdf(y), rtol=1e-8)


# ---------------------------------------------------------------- size


def test_few_functions_predict(model):
    X, y = friedman(1000, 1)
    mean, _ = model.predictor.moments(X, False, False)
    assert model.n_functions <= 40
    assert np.sqrt(np.mean((y - mean) ** 2)) < 1.35  # the noise alone is one


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_gets_next_to_no_functions(seed):
    """No support fills up to explain noise, however narrow the functions that are offered."""
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(-1.0, 1.0, (150, 2)), rng.standard_normal(150)
    basis = Concat((KernelBasis(Gaussian(width=0.15)), Bias())).bind(X)
    found = fit_sparse(X, y, basis=basis)
    assert found.n_functions <= 15
    assert 0.8 < np.median(variances(found, X)) / y.var() < 1.3


def test_never_more_than_a_third_of_the_rows():
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 1.0, 60)[:, None]
    found = fit_sparse(X, rng.standard_normal(60).cumsum())
    assert found.n_functions <= MAX_SHARE * 60


@pytest.mark.parametrize("most", [1, 3, 8])
def test_max_functions_bounds_the_model(most):
    assert fit_sparse(*friedman(200, 2), max_functions=most).n_functions <= most


def test_more_functions_allowed_predict_no_worse():
    X, y = friedman(300, 3)
    new, target = friedman(500, 4)
    losses = [-fit_sparse(X, y, max_functions=k).predictor.log_density(new, target).mean() for k in (2, 6, 20)]
    assert losses[0] > losses[1] > losses[2] - 0.02


def test_price_that_is_given_is_paid():
    X, y = sinc(150, 0)
    few, many = (fit_sparse(X, y, price=price) for price in (PRICES_NATS[0], PRICES_NATS[-1]))
    assert few.price == PRICES_NATS[0]
    assert few.n_functions <= many.n_functions


def test_rows_are_drawn_where_there_is_no_time_for_all():
    X, y = friedman(600, 3)
    fit = fit_sparse(X, y, clock=Clock(1e-3))
    assert fit.problem.n_samples == 200 and any("rows beyond" in stage for stage in fit.cut)


def test_memory_limits_the_candidates():
    X, y = friedman(300, 3)
    assert fit_sparse(X, y, memory=300 * 60 * 45.0, price=PRICES_NATS[0]).basis.n_atoms <= 60 + X.shape[1] + 1


# ---------------------------------------------------------------- searches at a price


@pytest.fixture(scope="module")
def ladder() -> list:
    rows = merge_rows(*sinc(120, 1))
    basis = build(learn_widths(rows, Clock())[0][0].kernels((0.5, 1.0, 2.0)), rows, rows.X)
    problem, _ = make_problem(basis(rows.X), rows)
    found = Ladder(problem, 40)
    for price in PRICES_NATS:
        found.descend(price)
    return [(price, found.ascend(price)) for price in PRICES_NATS[::-1]][::-1]


def test_no_deletion_pays(ladder):
    for price, model in ladder:
        if count_functions(model):
            assert weakest(model)[1] > price - 0.2


def test_no_addition_pays(ladder):
    for price, model in ladder:
        assert addition_gains(model)[0].max() < price + 0.5


def test_a_higher_price_buys_fewer(ladder):
    sizes = [count_functions(model) for _, model in ladder]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_each_model_is_best_at_its_price(ladder):
    for price, model in ladder:
        assert score(model, price) > max(score(other, price) for _, other in ladder) - 0.5


# ---------------------------------------------------------------- folds


def test_copies_are_in_one_fold():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((80, 3)), 3, axis=0)
    folds = make_folds(group_rows(Rows(X, np.zeros(240), np.ones(240), np.zeros(240))))
    assert sorted(np.concatenate(folds)) == list(range(240))
    for fold in folds:
        assert len(set(fold // 3)) * 3 == len(fold)


def test_copied_rows_do_not_make_it_sure_of_itself():
    """Each row thrice, as an oversampled table has it: held-out rows are still new."""
    X, y = friedman(120, 5)
    new, target = friedman(400, 6)
    found = fit_sparse(np.repeat(X, 3, axis=0), np.repeat(y, 3))
    mean, variance = found.predictor.moments(new, True, True)
    assert np.mean((target - mean) ** 2 / variance) < 2.0


# ---------------------------------------------------------------- error bars


@pytest.mark.parametrize("seed", range(2))
def test_intervals_hold_what_they_promise(seed):
    found = fit_sparse(*friedman(400, 10 + seed))
    X, y = friedman(2000, 20 + seed)
    low, high = found.predictor.quantiles(X, np.array([0.05, 0.95]), True).T
    assert 0.85 < np.mean((low < y) & (y < high)) < 0.95


def test_error_bars_follow_the_inputs():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (500, 2))
    found = fit_sparse(X, X[:, 1] + np.exp(2.0 * X[:, 0]) * rng.standard_normal(500))
    quiet, loud = np.sqrt(variances(found, np.array([[-0.8, 0.0], [0.8, 0.0]])))
    assert 5.0 < loud / quiet < 50.0  # exp(3.2) = 24.5, and the narrowest are held back


def test_heavy_tails_are_seen():
    rng = np.random.default_rng(1)
    squares = rng.standard_t(4.0, 800) ** 2 / 2.0
    bars = learn_error_bars(HeldOut(rng.uniform(size=(800, 2)), squares, np.ones(800)))
    assert 1.0 / 7.0 < bars.tail <= 1.0 / 3.0
    normal = learn_error_bars(HeldOut(rng.uniform(size=(800, 2)), rng.standard_normal(800) ** 2, np.ones(800)))
    assert normal.tail < 0.01
    assert normal.varying is None
    assert 0.85 < normal.factor < 1.15


def test_the_factor_of_a_tail_is_that_of_most_density():
    squares, w = np.random.default_rng(3).standard_t(3.0, 300) ** 2, np.linspace(0.5, 2.0, 300)
    factor, tail = fit_tail(squares, w, 300)
    tried = [w @ log_density(squares, f * factor, tail) for f in (0.98, 1.0, 1.02)]
    assert tried[1] == max(tried)
    assert fit_tail(squares[:6], w[:6], 6)[1] >= 0.2  # six rows tell of no lighter tail


def test_error_bars_follow_no_groups_of_rows():
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(40), 5)
    Z, own = rng.uniform(-1.0, 1.0, (40, 3)), rng.standard_normal(40) ** 2
    rows = HeldOut(Z[group] + 1e-6, own[group], np.ones(200), group)
    assert learn_error_bars(rows).varying is None
    assert learn_error_bars(HeldOut(rows.Z, rows.squares, rows.weights)).varying is not None


@pytest.mark.parametrize("tail", [0.0, 1.0 / 3.0, 1.0 / 12.0])
def test_densities_have_variance_one(tail):
    z = np.linspace(-400.0, 400.0, 4_000_001)
    p = np.exp(log_density(z**2, 1.0, tail))
    assert np.isclose(np.trapezoid(p, z), 1.0, atol=1e-4)
    assert np.isclose(np.trapezoid(p * z**2, z), 1.0, atol=2e-2)


# ---------------------------------------------------------------- away from the data


@pytest.mark.parametrize("target", ["friedman", "line", "constant"])
def test_far_away_the_deviation_is_the_targets(target):
    X, y = friedman(250, 7)
    noise = 0.1 * np.random.default_rng(8).standard_normal(250)
    y = {"friedman": y, "line": 2.0 * X[:, 1] + noise, "constant": noise}[target]
    found = fit_sparse(X, y)
    far = X.mean(axis=0) + 10.0 * X.std(axis=0) * np.vstack([np.ones(6), -np.ones(6), np.eye(6)])
    assert (variances(found, far) >= y.var()).all()


def test_at_training_rows_nothing_is_added(model):
    X, _ = friedman(300, 0)
    assert model.reach.share(X).max() < 1e-9
    assert np.mean(model.reach.share(friedman(500, 30)[0]) > 0.01) < 0.05


def test_no_row_is_kept_but_centres(model):
    kept = {row.tobytes() for row in friedman(300, 0)[0]}
    own = [row.tobytes() in kept for row in model.reach.centres]
    assert 0 < len(own) <= model.n_functions
    assert all(own)


def test_variance_rises_in_a_gap():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(-6.0, -3.0, 80), rng.uniform(3.0, 6.0, 80)])[:, None]
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(160)
    inside, gap = variances(fit_sparse(X, y), np.array([[4.5], [0.0]]))
    assert gap > 10.0 * inside


def test_reach_is_the_share_that_centres_leave():
    """Against the formula with an explicit inverse."""
    rng = np.random.default_rng(2)
    X, widths = rng.standard_normal((50, 3)), np.array([0.8, 1.0, 1.2])
    reach = learn_reach(X[:6], widths, X, np.ones(50), 2.0)
    new = 2.0 * rng.standard_normal((20, 3))
    kernel = Gaussian(width=tuple(widths))
    V = reach.centres
    K = kernel(V, V) + 1e-9 * np.eye(len(V))

    def explained(rows):
        k = kernel(rows, V)
        return np.einsum("ij,ij->i", k, np.linalg.solve(K, k.T).T)

    expected = np.maximum(1.0 - explained(new) / explained(X).min(), 0.0)
    np.testing.assert_allclose(reach.share(new), expected, atol=1e-7)
    assert expected.max() > 0.5


@pytest.mark.parametrize("noise", [False, True])
def test_covariance_fits_moments_and_draws(model, noise):
    X = np.vstack([friedman(12, 40)[0], 5.0 + friedman(4, 41)[0]])
    mean, variance = model.predictor.moments(X, True, noise)
    C = model.predictor.covariance(X, noise)
    np.testing.assert_allclose(C.diagonal(), variance, rtol=1e-6)
    assert np.linalg.eigvalsh(C).min() > -1e-8 * C.max()
    drawn = model.predictor.samples(X, 4000, np.random.RandomState(0), noise)
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=6.0 * np.sqrt(variance.max() / 4000))
    np.testing.assert_allclose(drawn.var(axis=1), variance, rtol=0.2)


def test_quantiles_and_density_belong_together():
    bars, reach = ErrorBars(1.5, None, 0.25), Reach(np.zeros((1, 1)), np.ones(1), 1.0, 0.0)
    function = fit_sparse(*sinc(60, 3)).predictor.function
    predictor = CalibratedPredictor(function=function, bars=bars, reach=reach)
    X = np.array([[0.3]])
    low, high = predictor.quantiles(X, np.array([0.1, 0.9]), True)[0]
    y = np.linspace(low, high, 2001)
    p = np.exp(predictor.log_density(np.repeat(X, 2001, axis=0), y))
    assert np.isclose(np.trapezoid(p, y), 0.8, atol=1e-6)


# ---------------------------------------------------------------- what it does not depend on


def test_order_of_the_rows_changes_nothing():
    X, y = friedman(150, 9)
    order = np.random.default_rng(0).permutation(150)
    one, other = fit_sparse(X, y), fit_sparse(X[order], y[order])
    new = friedman(50, 10)[0]
    for a, b in zip(one.predictor.moments(new, True, True), other.predictor.moments(new, True, True)):
        np.testing.assert_array_equal(a, b)
    basis, moved = one.basis.take(one.active), other.basis.take(other.active)
    np.testing.assert_array_equal(basis.rows[basis.rows >= 0], order[moved.rows[moved.rows >= 0]])


def test_units_change_nothing():
    X, y = friedman(120, 11)
    plain = fit_sparse(X, y)
    scaled = fit_sparse(X * 1024.0, y / 4096.0)
    new = friedman(30, 12)[0]
    one, other = plain.predictor.moments(new, True, True), scaled.predictor.moments(1024.0 * new, True, True)
    np.testing.assert_allclose(4096.0 * other[0], one[0], rtol=1e-5)
    np.testing.assert_allclose(4096.0**2 * other[1], one[1], rtol=1e-4)


@pytest.mark.parametrize("case", ["constant target", "constant column", "two rows", "all rows equal", "one value off"])
def test_odd_tables_are_fitted(case):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
    if case == "constant target":
        y = np.full(40, 3.0)
    elif case == "constant column":
        X[:, 1] = 5.0
    elif case == "two rows":
        X, y = X[:2], y[:2]
    elif case == "all rows equal":
        X = np.ones((40, 2))
    else:
        y = np.r_[np.zeros(39), 1.0]
    mean, variance = fit_sparse(X, y).predictor.moments(X, True, True)
    assert np.isfinite(mean).all()
    assert (variance >= 0.0).all()
    assert np.abs(mean).max() <= 2.0 * np.abs(y).max()


def test_sums_of_two_kernels_are_learned():
    """A slow and a quick wave have a part each, and functions of both are candidates."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (120, 2))
    y = 3.0 * np.sin(0.5 * X.sum(axis=1)) + 0.3 * np.sin(4.0 * X[:, 0]) + 0.02 * rng.standard_normal(120)
    learned, _ = learn_widths(merge_rows(X, y), Clock())
    quick, slow = sorted((own for _, own in learned[0].parts), key=lambda own: own[0])
    assert slow[0] > 3.0 * quick[0]
    assert learned[0].widths[0] == pytest.approx(np.sqrt(2.0) * quick[0])
    widths = {kernel.width for kernel in learned[0].kernels((1.0,))}
    assert widths == {tuple(np.sqrt(2.0) * own) for own in (quick, slow)}
