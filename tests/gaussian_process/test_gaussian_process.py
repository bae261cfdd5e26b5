"""The process with a composite kernel chosen by merit: against dense oracles, differences and its own invariances."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from relvec import GPRegressor, load, save
from relvec.gaussian_process import Part, Shape, Structure, compare_structures, default_candidates, fit_process
from relvec.gaussian_process.bound import Sums, bounds
from relvec.gaussian_process.component import exact_component, sparse_component
from relvec.gaussian_process.evidence import evidence, leave_one_out, posterior, predict
from relvec.gaussian_process.fit import floor_targets, prepare
from relvec.gaussian_process.held_out import choose_better, measure_spread, prediction_error
from relvec.gaussian_process.kernel import Evaluated
from relvec.gaussian_process.learn import default_prior, learn, log_posterior
from relvec.gaussian_process.rows import Rows, find_categories, join_near_rows, merge_rows, rounding_step, standardise
from relvec.gaussian_process.selection import Merit, hessian, laplace_merit, measure_curvature
from relvec.gaussian_process.target import candidate_scales, choose_scale
from relvec.gaussian_process.vectors import pivots
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.runtime.clock import Clock

GAUSS, ROUGH, SMOOTH = Shape.GAUSSIAN, Shape.MATERN32, Shape.MATERN52
STRUCTURES = [
    Structure((Part(GAUSS),), False, 3),
    Structure((Part(ROUGH, True),), True, 3),
    Structure((Part(SMOOTH, True), Part(GAUSS)), True, 3),
    Structure((Part(GAUSS, True), Part(ROUGH, True)), False, 3),
    Structure((Part(GAUSS, True, groups=(0, 1, 1)), Part(ROUGH, True)), True, 3),
]
FEW, FEW_OF_THREE, FEW_OF_FOUR = (default_candidates(d)[:4] for d in (2, 3, 4))


def table(n=80, d=3, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, min(1, d - 1)] + noise * rng.normal(size=n)


def repeated(n=60, seed=0):
    X, y = table(n, seed=seed)
    X = np.r_[X, X[:20], X[:7]]
    return X, np.r_[y, y[:20] + 0.1, y[:7] - 0.2]


def some_theta(structure, seed=0):
    prior = default_prior(structure)
    theta = prior.mean + 0.4 * np.random.default_rng(seed).normal(size=structure.n_theta)
    theta[-1] = np.log(0.05)
    return theta


def differences(f, theta, step=1e-5):
    return np.array([(f(theta + e) - f(theta - e)) / (2 * step) for e in step * np.eye(len(theta))])


def dense_evidence(structure, theta, X, y):
    """log N(y | 0, K + s I) over the rows themselves, repeated or not."""
    C = structure(theta, X) + np.exp(theta[-1]) * np.eye(len(y))
    return -0.5 * y @ np.linalg.solve(C, y) - 0.5 * np.linalg.slogdet(2 * np.pi * C)[1]


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
def test_kernel_derivatives_are_those_of_differences(structure):
    rng = np.random.default_rng(1)
    X, Z, theta = rng.normal(size=(9, 3)), rng.normal(size=(5, 3)), some_theta(structure)
    bar = rng.normal(size=(9, 5))
    expected = differences(lambda t: np.vdot(bar, structure(t, X, Z)), theta)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(Evaluated(structure, theta, X, Z).vjp(bar), expected, atol=1e-7)
    np.testing.assert_allclose(structure(theta, X).diagonal(), structure.prior_variance(theta, X))


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
def test_evidence_of_merged_rows_is_that_of_all_rows(structure):
    X, y = repeated()
    theta = some_theta(structure)
    value, slope = evidence(structure, theta, merge_rows(X, y))
    np.testing.assert_allclose(value, dense_evidence(structure, theta, X, y), atol=1e-4)
    np.testing.assert_allclose(slope, differences(lambda t: dense_evidence(structure, t, X, y), theta), atol=1e-3)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
@pytest.mark.parametrize("m", [5, 30, 60])
def test_bounds_enclose_the_evidence(structure, m):
    rows = merge_rows(*repeated())
    theta = some_theta(structure)
    exact = evidence(structure, theta, rows)[0]
    found = bounds(structure, theta, rows, rows.X[:m])
    assert found.lower <= exact + 1e-4 and exact <= found.upper + 1e-4
    if m == 60:
        assert found.gap < 1e-3
    else:
        assert found.gap > 1e-2


def test_predictions_are_those_of_the_textbook():
    structure, (X, y) = STRUCTURES[2], repeated()
    theta, new = some_theta(STRUCTURES[2]), np.random.default_rng(5).normal(size=(4, 3))
    C = structure(theta, X) + np.exp(theta[-1]) * np.eye(len(y))
    k = structure(theta, X, new)
    mean = k.T @ np.linalg.solve(C, y)
    variance = structure.prior_variance(theta, new) - np.sum(k * np.linalg.solve(C, k), 0) + np.exp(theta[-1])
    rows = merge_rows(X, y)
    for got in (
        predict(structure, theta, rows, posterior(structure, theta, rows), new),
        exact_component(structure, theta, rows).predict(new),
        sparse_component(structure, theta, rows, rows.X).predict(new),
    ):
        np.testing.assert_allclose(got[0], mean, atol=1e-4)
        np.testing.assert_allclose(got[1], variance, rtol=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_expansion_is_the_process(seed):
    X, y = table(seed=seed)
    X = np.c_[X, np.ones(len(X)), 100.0 + 5.0 * X[:, 0]]  # a constant and a copy: left out
    process = fit_process(X, np.exp(y), candidates=(STRUCTURES[2], STRUCTURES[0]), max_vectors=30)
    T = X[:7] + 0.1
    for c, part in zip(process.components, process.expand_components(X.shape[1]), strict=True):
        mean, variance = c.predict(process.units.inputs(T))
        phi, u = part.basis(T), process.units
        np.testing.assert_allclose(phi @ part.weights, u.y_mean + u.y_scale * mean)
        left = part.prior + ((phi @ part.root) ** 2).sum(1) - ((phi @ part.represented) ** 2).sum(1)
        np.testing.assert_allclose(left + part.noise, u.y_scale**2 * variance, rtol=1e-6)


def test_leave_one_out_leaves_one_out():
    structure, rows = STRUCTURES[0], merge_rows(*table(30))
    theta = some_theta(structure)
    mean, variance = leave_one_out(structure, theta, rows)
    others = rows.take(np.arange(1, 30))
    one = predict(structure, theta, others, posterior(structure, theta, others), rows.X[:1])
    np.testing.assert_allclose([mean[0], variance[0]], [one[0][0], one[1][0]], rtol=1e-5)


@pytest.mark.parametrize("linear", [False, True])
def test_merit_is_the_integral_over_the_hyperparameters(linear):
    """A Gaussian part on 120 rows of one input: three hyperparameters on a grid, four with a linear part."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 1))
    y = X[:, 0] + np.cos(3 * X[:, 0]) + 0.3 * rng.normal(size=120)
    rows = standardise(merge_rows(X, y))[0]
    structure = Structure((Part(GAUSS),), linear, 1)
    prior = default_prior(structure)
    objective = log_posterior(structure, prior, rows)
    mode = learn(structure, prior, rows, 200, Clock())
    merit = laplace_merit(structure, mode, measure_curvature(objective, mode, prior).eigenvalues)
    assert merit.floored == 0
    # a grid in the eigenvectors of the curvature: 5 deviations either side
    values, vectors = np.linalg.eigh(hessian(objective, mode))
    side, half = (13, 4.5) if linear else (21, 5.0)
    axis = np.linspace(-half, half, side)
    grid = np.stack(np.meshgrid(*[axis] * structure.n_theta, indexing="ij"), -1).reshape(-1, structure.n_theta)
    grid = grid[(grid**2).sum(1) < half**2]
    logs = np.array([objective(mode.theta + vectors @ (z / np.sqrt(values)))[0] for z in grid])
    cell = structure.n_theta * np.log(axis[1] - axis[0]) - 0.5 * np.log(values).sum()
    assert merit.value == pytest.approx(logsumexp(logs) + cell, abs=0.1)


def maxima_on_a_grid(objective, centre, reach=3.0, side=13):
    """Values of the objective, of three arguments, at inner points of a grid that no neighbour exceeds."""
    axes = [np.linspace(c - reach, c + reach, side) for c in centre]
    values = np.array([objective(np.array(t))[0] for t in product(*axes)]).reshape(side, side, side)
    moves = [np.roll(values, shift, (0, 1, 2)) for shift in product((-1, 0, 1), repeat=3)]
    top = (values >= np.max(moves, axis=0))[1:-1, 1:-1, 1:-1]
    return np.sort(values[1:-1, 1:-1, 1:-1][top])[::-1]


@pytest.mark.parametrize("noise, several", [(0.7, True), (0.3, False)])
def test_several_modes_are_told(noise, several):
    """Few noisy rows are either a slow function and much noise, or a fast one: two maxima within three nats."""
    n = 12 if several else 20
    X = np.linspace(0, 10, n)[:, None]
    y = np.sin(0.6 * X[:, 0]) + noise * np.random.default_rng(1).normal(size=n)
    structure = Structure((Part(GAUSS),), False, 1)
    rows = standardise(merge_rows(X, y))[0]
    found = maxima_on_a_grid(log_posterior(structure, default_prior(structure), rows), (0.0, 0.0, -2.0))
    assert (found > found[0] - 3.0).sum() == (2 if several else 1)
    model = fit_process(X, y, candidates=(structure,), target=AS_IT_IS, floored=False)
    assert model.merit.several_modes is model.selection[0].several_modes is several


def test_several_outputs_take_the_structure_of_most_merit_for_all_of_them():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (120, 2))
    straight = X @ [2.0, -1.0] + 0.1 * rng.standard_normal(120)
    rough = np.abs(np.sin(3.0 * X[:, 0])) + 0.02 * rng.standard_normal(120)
    found = [compare_structures(X, np.column_stack([rough, scale * straight]), None) for scale in (1.0, 1e6)]
    assert found[0] == found[1]  # merits do not depend on the units of an output
    assert found[0].linear and any(part.per_input for part in found[0].parts)


def test_priors_are_normalised():
    prior = default_prior(STRUCTURES[0])
    at, grid = STRUCTURES[0].widths[0].start, np.linspace(-12, 18, 3001)
    points = np.tile(prior.mean, (len(grid), 1))
    points[:, at] += grid
    logs = np.array([prior.log_density(point)[0] for point in points])
    others = np.delete(prior.deviation, at)
    height = -np.log(others).sum() - 0.5 * len(others) * np.log(2 * np.pi)
    assert np.exp(logs - height).sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-3)
    theta = prior.mean + np.linspace(-2, 3, len(prior.mean))
    np.testing.assert_allclose(
        prior.log_density(theta)[1], differences(lambda t: prior.log_density(t)[0], theta), atol=1e-6
    )


def test_errors_at_new_rows_are_larger_than_at_those_fitted():
    def merit(*curvatures):
        return Merit(0.0, np.array(curvatures), 0, False)

    assert prediction_error(merit(0.3, 0.1), 50.0) == 1.0  # what the priors alone hold costs nothing
    assert prediction_error(merit(1e9, 1e9), 50.0) == pytest.approx(52 / 48)
    assert prediction_error(merit(*[1e9] * 40), 50.0) == pytest.approx(2.0)
    assert prediction_error(merit(np.nan, np.nan), 50.0) == 1.0  # time was up before there were curvatures


def varying_table(n, seed):
    """Noise that grows a hundredfold along the second input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    return X, np.sin(3.0 * X[:, 0]) + 10 ** (X[:, 1] - 1.0) * rng.normal(size=n)


def test_error_bars_follow_noise_that_depends_on_an_input():
    (X, y), (X_new, y_new) = varying_table(200, 0), varying_table(1000, 1)
    both = {"candidates": default_candidates(3)[:2], "target": AS_IT_IS}
    model, plain = (fit_process(X, y, vary=vary, **both) for vary in (True, False))
    assert 1 in model.noise_columns and len(plain.noise_columns) == 0
    np.testing.assert_array_equal(model.predict(X_new)[0], plain.predict(X_new)[0])
    assert (model.log_density(X_new, y_new) - plain.log_density(X_new, y_new)).mean() > 0.3
    low, high = model.quantiles(X_new, np.array([0.05, 0.95]), True).T
    inside = (low < y_new) & (y_new < high)
    for some in (X_new[:, 1] < -0.3, X_new[:, 1] > 0.3):
        assert 0.8 < inside[some].mean() < 0.98


def test_error_bars_of_few_rows_know_that_they_are_uncertain():
    X, y = varying_table(120, 0)
    process = fit_process(X, y, candidates=default_candidates(3)[:2], target=AS_IT_IS)
    component, new = process.components[0], np.array([[0.0, 0.9, 0.0], [0.0, -0.9, 0.0]])
    rows = process.units.inputs(new)
    tails = component.tails(rows, component.mean(rows))
    assert component.varying.covariance.any() and (tails > component.tail).all()
    y_far = process.predict(new)[0] + 8.0 * np.sqrt(process.predict(new)[1])
    assert (process.log_density(new, y_far) > -0.5 * 8.0**2).all()  # what a normal density has there, and less
    grid = np.linspace(-60.0, 60.0, 60_001)
    density = np.exp(process.log_density(np.repeat(new[:1], len(grid), 0), grid))
    low, high = process.quantiles(new[:1], np.array([0.05, 0.95]), True)[0]
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)
    assert np.trapezoid(density * ((grid > low) & (grid < high)), grid) == pytest.approx(0.9, abs=2e-3)


def test_noise_of_heavy_tails_is_told_from_normal_noise():
    (X, y), (X_new, y_new) = table(300, 3, 0, noise=0.0), table(2000, 3, 1, noise=0.0)
    found = {}
    for name, draw in (("normal", np.random.RandomState(0).standard_normal), ("t", heavy_noise)):
        targets, fresh = y + 0.3 * draw(300), y_new + 0.3 * draw(2000)
        both = (fit_process(X, targets, candidates=default_candidates(3)[:2], vary=vary) for vary in (True, False))
        gain = np.subtract(*(process.log_density(X_new, fresh) for process in both)).mean()
        found[name] = gain
    assert found["normal"] > -0.01 and found["t"] > 0.05


def heavy_noise(n):
    return np.random.RandomState(n).standard_t(2.5, n)


def test_error_bars_of_pure_noise_follow_nothing():
    inside = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        (X, y), (X_new, y_new) = ((rng.normal(size=(n, 5)), rng.normal(size=n)) for n in (100, 500))
        process = fit_process(X, y, candidates=default_candidates(5)[:2])
        low, high = process.quantiles(X_new, np.array([0.05, 0.95]), True).T
        inside.append(np.mean((low < y_new) & (y_new < high)))
    assert min(inside) > 0.8 and 0.86 < np.mean(inside) < 0.94


def awkward(kind, n, rng):
    X = rng.normal(size=(n, 4))
    line = X[:, 0] + 0.3 * rng.normal(size=n)
    if kind == "subjects":  # rows that belong together share an error
        X = np.repeat(X[: -(-n // 10)], 10, axis=0)[:n] + 0.01 * rng.normal(size=(n, 4))
        return X, X[:, 0] + np.repeat(rng.normal(size=-(-n // 10)), 10)[:n] + 0.05 * rng.normal(size=n)
    if kind == "heavy":
        return X, line + 0.3 * rng.standard_t(1.5, size=n)
    return X, rng.normal(size=n) if kind == "noise" else line


def line_density(X, y, X_new, y_new, linear):
    """Mean log density of a constant or least squares line, with error bars of the residuals."""
    A, B = (np.column_stack([Z, np.ones(len(Z))])[:, 0 if linear else -1 :] for Z in (X, X_new))
    weights = np.linalg.lstsq(A, y, rcond=None)[0]
    variance = np.sum((y - A @ weights) ** 2) / max(len(y) - A.shape[1], 1)
    return np.mean(-0.5 * np.log(2 * np.pi * variance) - 0.5 * (y_new - B @ weights) ** 2 / variance)


@pytest.mark.parametrize(("kind", "n"), [
    ("noise", 6), ("noise", 15), ("noise", 60), ("noise", 700), ("line", 12), ("line", 60), ("heavy", 200),
    ("subjects", 200),
])  # fmt: skip
def test_no_fit_is_far_behind_a_constant_or_a_line(kind, n):
    losses = []
    for seed in range(4):
        (X, y), (X_new, y_new) = (awkward(kind, m, np.random.default_rng([seed, m])) for m in (n, 2000))
        process = fit_process(X, y, candidates=default_candidates(4)[:5])
        own = process.log_density(X_new, y_new).mean()
        baselines = [line_density(X, y, X_new, y_new, linear) for linear in (False, True) if n > 5 or not linear]
        losses.append(max(baselines) - own)
    few = kind == "subjects" or n < 10  # of which any model may be wrong by chance
    assert max(losses) < (0.6 if few else 0.3) and np.mean(losses) < (0.3 if few else 0.1)


def test_a_baseline_in_the_place_of_a_process_says_so_and_is_a_whole_model(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(700, 3)), rng.normal(size=700)
    for slope, name in ((0.0, "constant"), (1.0, "linear")):
        t = y + slope * X[:, 0]
        process = fit_process(X, t, candidates=FEW_OF_THREE, floored=False)
        own, others = floor_targets(X, t, None, prepare(X, t, None, process.scale, Clock()))
        held = np.arange(600, 700)
        density = process.log_density(own.raw_X[held], np.interp(held, held, t[:100]))
        assert choose_better(process, density + 50.0, [held], [own, *others]) is process
        process = choose_better(process, density - 50.0, [held], [own, *others])
        assert (
            process.selection[0].name in ("linear", name)
            and process.status == "baseline"
            and "ahead of" in process.messages[-1]
        )
        mean, variance = process.predict(X[:5])
        assert process.samples(X[:5], 7, np.random.RandomState(0), True).shape == (5, 7)
        np.testing.assert_allclose(process.covariance(X[:5], True).diagonal(), variance)
        line, _ = (part.basis(X[:5]) @ part.weights for part in process.expand_components(3) * 2)
        np.testing.assert_allclose(line, mean, rtol=1e-8, atol=1e-10)
    model = GPRegressor().fit(X[:12], y[:12])
    assert model.status_ == "baseline"
    save(model, tmp_path / "model.relvec")
    np.testing.assert_array_equal(load(tmp_path / "model.relvec").predict(X), model.predict(X))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("sigma", "shift"), [(1.5, 0.0), (3.0, 0.0), (2.0, 50.0)])
def test_targets_over_orders_of_magnitude_are_learned_by_their_logarithm(sigma, shift, sign):
    """As good as a line through the logarithms, which the targets have been made by."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2200, 3))
    u = X[:, 0] + sigma * rng.normal(size=2200)
    y, fitted = sign * (np.exp(u) + shift), slice(0, 200)
    process = fit_process(X[fitted], y[fitted], candidates=FEW_OF_THREE)
    own, line = (process.log_density(X[200:], y[200:]), -u[200:])
    assert process.scale.sign == sign
    expected = line_density(X[fitted], u[fitted], X[200:], u[200:], True) + line.mean()
    assert own.mean() > expected - (0.05 if shift == 0.0 else 0.3)  # the shift has to be learned


def test_error_bars_are_nowhere_narrower_than_those_of_a_tenth_of_the_rows():
    """Noise learned from few rows may seem to vanish in a corner: one target there would cost hundreds of nats."""
    X, y = varying_table(200, 0)
    process = fit_process(X, y, candidates=default_candidates(3)[:2], target=AS_IT_IS)
    component, corners = process.components[0], 3.0 * np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 3)).reshape(3, -1).T
    factors, far = (
        component.factor(rows, component.mean(rows)) for rows in map(process.units.inputs, (X, np.vstack([X, corners])))
    )
    assert 15 <= np.sum(factors == factors.min()) <= 25  # of 200 rows; learned from means that leave each row out
    assert far.min() == factors.min()


def test_all_of_a_process_has_the_error_bars_of_its_moments(tmp_path):
    X, y = varying_table(200, 0)
    for target in (AS_IT_IS, Scale(1, float(y.min()), 1.0, 1.0)):
        process, new = fit_process(X, y, candidates=default_candidates(3)[:2], target=target), X[:4] + 0.05
        assert process.components[0].varying is not None
        for noise in (False, True):
            _, variance = process.moments(new, True, noise)
            np.testing.assert_allclose(process.covariance(new, noise).diagonal(), variance, rtol=1e-6)
            drawn = process.samples(new, 40_000, np.random.RandomState(0), noise)
            np.testing.assert_allclose(np.quantile(drawn, [0.1, 0.9], axis=1).T,
                                       process.quantiles(new, np.array([0.1, 0.9]), noise), atol=0.05)  # fmt: skip
    model = GPRegressor().fit(X, y)
    assert 1 in model.noise_columns_ and not hasattr(
        GPRegressor(noise="constant").fit(X[:40], y[:40]), "noise_columns_"
    )
    save(model, tmp_path / "model.relvec")
    np.testing.assert_array_equal(load(tmp_path / "model.relvec").predict(X, return_std=True)[1],
                                  model.predict(X, return_std=True)[1])  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_error_bars_are_those_of_the_process_where_the_noise_is_one(seed):
    X, y = table(120, seed=seed)
    assert len(fit_process(X, y, candidates=default_candidates(3)[:2]).noise_columns) == 0


def test_exchangeable_parts_add_log_factorial():
    rows = standardise(merge_rows(*table(40)))[0]
    twice = Structure((Part(GAUSS), Part(GAUSS)), False, 3)
    other = Structure((Part(GAUSS), Part(ROUGH)), False, 3)
    mode = learn(twice, default_prior(twice), rows, 30, Clock())
    ones = np.ones(twice.n_theta)
    assert laplace_merit(twice, mode, ones).value - laplace_merit(other, mode, ones).value == pytest.approx(np.log(2.0))


@pytest.mark.parametrize("shape", [GAUSS, ROUGH])
def test_curvatures_of_many_widths_need_not_be_measured_one_by_one(shape):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 40))
    rows = standardise(merge_rows(X, X[:, :3].sum(1) + 0.3 * rng.normal(size=60)))[0]
    structure = Structure((Part(shape, True),), True, 40)
    prior = default_prior(structure)
    objective = log_posterior(structure, prior, rows)
    mode = learn(structure, prior, rows, 40, Clock())
    whole, few = (measure_curvature(objective, mode, prior, most=most) for most in (100, 16))
    assert laplace_merit(structure, mode, few.eigenvalues).value == pytest.approx(
        laplace_merit(structure, mode, whole.eigenvalues).value, abs=2.0
    )
    assert np.median(np.abs(few.diagonal - whole.diagonal)) < 0.1


IN_RANGES = Structure((Part(Shape.GAUSSIAN, log_ratios=(0.3, -0.5, 0.0)),), False, 3)


@pytest.mark.parametrize("structure", [*STRUCTURES, IN_RANGES], ids=lambda s: s.name)
def test_slopes_are_differences_of_means(structure):
    rng = np.random.default_rng(7)
    X, Z, w = rng.normal(size=(9, 3)), rng.normal(size=(6, 3)), rng.normal(size=6)
    theta, h = some_theta(structure), 1e-5
    rises = [structure(theta, X + h * e, Z) @ w - structure(theta, X - h * e, Z) @ w for e in np.eye(3)]
    np.testing.assert_allclose(structure.slopes(theta, X, Z, w), np.array(rises).T / (2 * h), rtol=1e-6, atol=1e-8)


def test_pivots_represent_more_than_the_first_rows():
    structure, rows = STRUCTURES[0], merge_rows(*table(300))
    theta = some_theta(structure)
    chosen = pivots(structure, theta, rows, 40).index
    assert len(set(chosen.tolist())) == len(chosen) == 40

    def variance_left(Z):
        C = structure(theta, Z, Z) + 1e-9 * np.eye(len(Z))
        return np.trace(
            structure(theta, rows.X, rows.X)
            - structure(theta, rows.X, Z) @ np.linalg.solve(C, structure(theta, Z, rows.X))
        )

    assert variance_left(rows.X[chosen]) < 0.95 * variance_left(rows.X[:40])


def test_weights_are_repeated_rows():
    X, y = table(60, 2)
    y, times = np.exp(y), 1 + np.arange(60) % 3
    twice = fit_process(np.repeat(X, times, 0), np.repeat(y, times), candidates=FEW)
    weighted = fit_process(X, y, times, candidates=FEW)
    plain = fit_process(X, y, candidates=FEW)
    new = np.random.default_rng(9).normal(size=(5, 2))
    np.testing.assert_allclose(twice.predict(new), weighted.predict(new), rtol=1e-6)
    assert not np.allclose(plain.predict(new), weighted.predict(new), rtol=1e-3)
    assert twice.merit.value == pytest.approx(weighted.merit.value)
    assert twice.scale.sign == 1 and twice.scale.scale == pytest.approx(weighted.scale.scale)


def test_order_of_rows_does_not_matter():
    X, y = table(320, 2)
    y = np.exp(y)
    order = np.random.default_rng(2).permutation(320)
    new = np.random.default_rng(9).normal(size=(5, 2))
    one, other = (fit_process(a, b, candidates=FEW, max_vectors=60) for a, b in ((X, y), (X[order], y[order])))
    np.testing.assert_array_equal(one.predict(new), other.predict(new))
    assert len(one.vectors) <= 60


@pytest.mark.parametrize("times", [2, 5])
def test_copies_of_records_do_not_make_the_noise_vanish(times):
    X, y = table(150, 2, noise=0.5)
    once, often = (
        fit_process(X, y, candidates=FEW),
        fit_process(*(np.concatenate([a] * times) for a in (X, y)), candidates=FEW),
    )
    assert often.noise_variance == pytest.approx(once.noise_variance, rel=1e-3)
    assert once.noise_variance > 0.1
    single = np.r_[X, X[:1]], np.r_[y, y[:1] + 1.0]  # a second measurement that differs
    assert fit_process(*single, candidates=FEW).bounds.total == 151


@pytest.mark.parametrize("kind", ["exact", "rounded", "mixed"])
@pytest.mark.parametrize("share", [0.05, 0.6])
def test_copies_neither_cost_density_nor_put_the_noise_at_its_floor(kind, share):
    (X, y), (X_new, y_new) = table(400, 4, 1, noise=0.5), table(1000, 4, 2, noise=0.5)
    rng = np.random.default_rng(3)
    own = int((1.0 - share) * 400)
    index = np.r_[np.arange(own), rng.integers(0, own, 400 - own)]
    copied, targets = X[index], y[index]
    if kind == "rounded":
        copied[own:] += 1e-9 * rng.normal(size=copied[own:].shape)
    if kind == "mixed":  # a few rows were measured a second time
        copied, targets = np.r_[copied, X[:8]], np.r_[targets, np.zeros(8)]
        targets[-8:] = np.sin(2 * X[:8, 0]) + 0.5 * X[:8, 1] + 0.5 * rng.normal(size=8)
    pairs = (copied, targets), (X[:own], y[:own])
    with_copies, without = (fit_process(*rows, candidates=FEW_OF_FOUR) for rows in pairs)
    assert with_copies.status == "converged"
    assert with_copies.bounds.total == pytest.approx(own + (8 if kind == "mixed" else 0), abs=1e-6)
    gain = with_copies.log_density(X_new, y_new) - without.log_density(X_new, y_new)
    assert gain.mean() > -0.05


def test_second_measurements_count_as_such():
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(50, 2)), 4, axis=0), rng.integers(0, 3, 200).astype(float)  # equal by chance
    assert fit_process(X, y, candidates=FEW).bounds.total == 200
    assert fit_process(X, y + 0.1 * rng.normal(size=200), candidates=FEW).bounds.total == 200


def test_rows_that_are_equal_up_to_rounding_are_one_row_and_neighbours_are_not():
    rng = np.random.default_rng(0)
    for n, d in ((12, 3), (300, 2), (5000, 6)):
        X, y = 1e3 + rng.normal(size=(n, d)), rng.normal(size=(n, 1))
        twice, both = np.r_[X, X + 1e-9 * rng.normal(size=X.shape)], np.r_[y, y]
        assert len(np.unique(join_near_rows(twice, both), axis=0)) == n
        np.testing.assert_array_equal(join_near_rows(X, y), X)
        np.testing.assert_array_equal(join_near_rows(twice, rng.normal(size=both.shape)), twice)
    line = rng.uniform(size=(5000, 1))
    assert len(np.unique(join_near_rows(line, np.round(line)))) > 4500  # of two levels


def test_noiseless_targets_are_told():
    X = np.linspace(0, 3, 60)[:, None]
    model = fit_process(X, np.round(5 * np.sin(X[:, 0])), candidates=default_candidates(1)[:2])
    assert model.noise_variance >= 0.9 * 0.1 / 12
    line = fit_process(X, X[:, 0], candidates=(Structure((Part(GAUSS),), True, 1),))
    assert any("floor" in message for message in line.messages)


def test_constant_and_copied_columns_are_left_out():
    X, y = table(60, 2)
    wide = np.c_[X, np.ones(60), -3 * X[:, 0] + 1]
    model, plain = fit_process(wide, y, candidates=FEW), fit_process(X, y, candidates=FEW)
    assert model.units.columns.tolist() == [0, 1]
    np.testing.assert_allclose(model.predict(wide[:5])[0], plain.predict(X[:5])[0], atol=0.05)
    flat = fit_process(np.ones((20, 2)), np.arange(20.0))
    np.testing.assert_allclose(flat.predict(np.ones((1, 2)))[0], 9.5, atol=0.5)


# Categories -----------------------------------------------------------------------------------------------------------


def with_category(n=300, n_levels=12, seed=0, effect=0.0):
    """A table, and the same with the one-hot columns of a category."""
    X, y = table(n, seed=seed)
    level = np.random.default_rng(seed + 100).integers(0, n_levels, n)
    return X, np.hstack([X, np.eye(n_levels)[level]]), y + effect * np.sin(7.0 * level)


def test_one_hot_columns_are_found_and_nothing_else_is():
    rng = np.random.default_rng(0)
    first, second = np.eye(4)[rng.integers(0, 4, 60)], np.eye(3)[rng.integers(0, 3, 60)]
    numbers, flags = rng.normal(size=(60, 2)), (rng.random((60, 2)) < 0.5).astype(float)
    X = np.hstack([numbers, first, second, flags])
    groups = (0, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5)
    assert find_categories(X) == groups
    assert find_categories((X - X.mean(0)) / X.std(0)) == groups  # scaled ones as well
    assert find_categories(np.hstack([flags, numbers])) == ()
    assert find_categories(first[:, 1:]) == ()  # a level without a column: these might be three flags
    broken = X.copy()
    broken[0, 2:6] = 1.0  # a row of several levels
    assert find_categories(broken) == (0, 1, 2, 3, 4, 5, 6, 6, 6, 7, 8)
    assert find_categories(numbers[:, :0]) == ()


def test_an_irrelevant_category_costs_one_width_and_no_accuracy():
    plain, whole, y = with_category(360, 24)
    train, test = slice(0, 240), slice(240, None)
    errors = []
    for X in (plain, whole):
        model = GPRegressor().fit(X[train], y[train])
        mean, std = model.predict(X[test], return_std=True)
        z = (y[test] - mean) / std
        errors.append(np.mean(np.log(std) + 0.5 * z**2))
    assert errors[1] < errors[0] + 0.03
    assert 0.82 < np.mean(np.abs(z) < 1.645) < 0.97
    assert "[4]" in model.selection_[0].name  # three numbers and a category
    assert model.feature_relevance_[3:].sum() < 0.01


@pytest.mark.parametrize("effect", [0.0, 1.0])
def test_the_order_of_levels_does_not_matter(effect):
    _, X, y = with_category(150, 5, effect=effect)
    order = [0, 1, 2, 6, 4, 7, 3, 5]
    ones, others = GPRegressor().fit(X, y), GPRegressor().fit(X[:, order], y)
    assert others.selection_[0].name == ones.selection_[0].name
    np.testing.assert_allclose(others.predict(X[:, order]), ones.predict(X), atol=2e-3)


def test_levels_that_differ_have_widths_of_their_own():
    rng = np.random.default_rng(3)
    level, x = rng.integers(0, 6, 240), rng.uniform(-2.0, 2.0, 240)
    y = np.where(level == 0, np.sin(4.0 * x), 0.0) + 0.05 * rng.normal(size=240)  # one level stands out
    found = GPRegressor().fit(np.c_[np.eye(6)[level], x], y).selection_
    assert {"gaussian[2]", "gaussian[7]"} <= {entry.name for entry in found}
    assert "[7]" in found[0].name


def test_shared_widths_are_kept_in_files(tmp_path):
    _, X, y = with_category(120, 5)
    model = GPRegressor().fit(X, y)
    assert any(part.groups for part in model.process_.components[0].structure.parts)
    save(model, tmp_path / "m.relvec")
    np.testing.assert_array_equal(load(tmp_path / "m.relvec").predict(X), model.predict(X))


def test_time_limit_is_obeyed_and_told(slow_clock):
    X, y = table(400, 3)
    seen = []
    model = fit_process(X, y, clock=Clock(0.05, lambda stage, fraction: seen.append((stage, fraction))))
    assert model.status == "time_limit" and any("cut short" in message for message in model.messages)
    assert seen and all(0 <= fraction <= 1 for _, fraction in seen)
    mean, variance = model.predict(X)
    assert np.isfinite(mean).all() and (variance > 0).all()


def test_the_record_says_what_was_compared():
    X, y = table(120, 2)
    model = fit_process(X, y, candidates=FEW)
    assert {line.name for line in model.selection} == {s.name for s in FEW}
    assert sum(line.share for line in model.selection) == pytest.approx(1.0)
    assert model.selection[0].merit == max(line.merit for line in model.selection) == model.merit.value
    alone = fit_process(X, y, candidates=FEW, average=False)
    assert len(alone.components) == 1


def test_rounding_step():
    assert rounding_step(np.array([1.0, 2.0, 4.0])) == 1.0
    assert rounding_step(np.random.default_rng(0).normal(size=50)) == 0.0
    assert isinstance(merge_rows(np.zeros((2, 1)), np.ones(2)), Rows)


@pytest.mark.parametrize("sign", [1, -1])
def test_scale_moments_are_those_of_draws(sign):
    scale = Scale(sign, 2.0, 1.5, 0.4)
    mean, variance = scale.moments(np.array([0.3]), np.array([0.2]))
    u = 0.3 + np.sqrt(0.2) * np.random.default_rng(0).normal(size=400_000)
    y = 2.0 + sign * 1.5 * (np.exp(sign * u) - 0.4)
    np.testing.assert_allclose([mean[0], variance[0]], [y.mean(), y.var()], rtol=0.02)
    np.testing.assert_allclose(scale.forward(y[:9]), u[:9])
    slope = (scale.forward(y[:9] + 1e-6) - scale.forward(y[:9] - 1e-6)) / 2e-6
    np.testing.assert_allclose(scale.log_slope(y[:9]), np.log(slope), atol=1e-6)


def test_a_logarithm_is_found_where_there_is_one_and_only_there():
    X, u = table(150, 2, noise=0.2)
    assert choose_scale(X, np.exp(1.2 * u), None, Clock()).sign == 1
    assert choose_scale(X, -np.exp(1.2 * u), None, Clock()).sign == -1
    assert len(candidate_scales(np.exp(X[:, 0]))) > 1
    assert choose_scale(np.exp(X), np.exp(X[:, 0]) + 0.2 * X[:, 1], None, Clock()) == AS_IT_IS
    assert candidate_scales(np.ones(5)) == [AS_IT_IS]
    model = fit_process(X, np.exp(1.2 * u), candidates=FEW)
    plain = fit_process(X, np.exp(1.2 * u), candidates=FEW, target=AS_IT_IS)
    new, truth = table(200, 2, seed=3)

    def loss(mean, variance):
        return np.mean(0.5 * np.log(variance) + 0.5 * (np.exp(1.2 * truth) - mean) ** 2 / variance)

    assert loss(*model.predict(new)) < loss(*plain.predict(new)) - 0.1


def test_a_short_time_limit_is_kept_on_many_rows(slow_clock):
    X, y = table(6000, 3)
    model = fit_process(X, y, clock=Clock(0.5))
    assert len(model.vectors) < 600 and model.status == "time_limit"
    assert np.corrcoef(model.predict(X[:500])[0], y[:500])[0, 1] > 0.8


def test_rows_dense_on_a_line():
    x = np.linspace(0, 1, 700)
    model = fit_process(x[:, None], np.sin(20 * x), candidates=default_candidates(1)[:1], max_vectors=200)
    assert len(model.vectors) <= 200
    np.testing.assert_allclose(model.predict(x[::50, None])[0], np.sin(20 * x[::50]), atol=0.01)


def test_spread_widens_what_is_too_narrow():
    structure, rows = STRUCTURES[0], merge_rows(*table(80, noise=1.0))
    theta = some_theta(structure)
    theta[:] = [-3.0, 2.0, np.log(1e-3)]  # far too sure of a nearly constant function
    assert measure_spread(structure, theta, rows) > 100
    theta[:] = [1.0, 0.0, np.log(30.0)]
    assert measure_spread(structure, theta, rows) == 1.0


def test_vectors_say_why_they_were_kept(tmp_path):
    X, y = table(120, d=1)
    model = GPRegressor(max_vectors=20).fit(X, y)
    np.testing.assert_array_equal(model.vectors_, X[model.vector_rows_])
    assert {*map(tuple, model.process_.vectors)} == {*map(tuple, model.vectors_)}
    assert set(model.process_.why) == {"coverage", "relevance"}
    save(model, tmp_path / "model.relvec")
    np.testing.assert_array_equal(load(tmp_path / "model.relvec").process_.why, model.process_.why)
    assert set(GPRegressor().fit(X[:40], y[:40]).process_.why) == {"all"}


def test_vectors_chosen_by_relevance_leave_less_of_the_target():
    """A function that is flat but for ripples in one corner; vectors for coverage alone are everywhere."""
    X = np.random.default_rng(0).uniform(-3, 3, size=(1500, 2))
    y = np.exp(-4 * ((X - 1.5) ** 2).sum(1)) * np.sin(9 * X[:, 0])
    rows = standardise(merge_rows(X, y))[0]
    structure = Structure((Part(GAUSS),), False, 2)
    theta = np.log([1.0, 0.25, 1e-4])
    errors = []
    for share in (0.0, 0.5):
        Z = rows.X[pivots(structure, theta, rows, 100, share).index]
        errors.append(np.std(sparse_component(structure, theta, rows, Z).predict(rows.X)[0] - rows.y))
    assert errors[1] < 0.8 * errors[0]


def test_sums_over_rows_are_added_and_taken_away():
    rng = np.random.default_rng(0)
    one, other = (Sums(rng.normal(size=(3, 3)), rng.normal(size=3), *rng.uniform(1.0, 9.0, 3)) for _ in range(2))
    kept = Sums(one.gram.copy(), one.cross.copy(), one.squares, one.left, one.total)
    rest = one.add(other).without(other)
    for name in ("gram", "cross", "squares", "left", "total"):
        np.testing.assert_allclose(getattr(rest, name), getattr(kept, name), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:the sample weights:UserWarning")
@pytest.mark.parametrize("weight", [1e-12, 1e-88])
def test_rows_of_next_to_no_weight_leave_a_process_with_a_vector(weight):
    X = np.random.default_rng(0).normal(size=(13, 3))
    model = GPRegressor(max_vectors=4).fit(X, np.sin(X[:, 0]), np.full(13, weight))
    assert 1 <= len(model.vectors_) <= 4 and np.all(np.isfinite(model.predict(X)))


def test_a_limit_leaves_time_for_vectors(slow_clock):
    """Kernels that are learned to the end with 64 vectors left predict worse than rougher ones with all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.05 * rng.standard_normal(300)
    with pytest.warns(ConvergenceWarning, match="TIME_LIMIT"):
        model = GPRegressor(time_limit=2.0).fit(X[:250], y[:250])
    assert model.status_ == "time_limit" and len(model.vectors_) == 250
    assert np.mean((model.predict(X[250:]) - y[250:]) ** 2) < 0.3 * y.var()
