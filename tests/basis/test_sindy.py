"""The Lorenz equations recovered from noisy trajectories: sparse regression on a library of monomials (SINDy)."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from relvec import SparseBayesianRegressor
from relvec.basis import Polynomial

SUPPORTS = [{"x0", "x1"}, {"x0", "x1", "x0*x2"}, {"x2", "x0*x1"}]
STEP, WIDTH, N_WINDOWS = 0.002, 100, 100


def trajectory(noise=0.05, seed=0):
    """States (n, 3) at steps of 0.002, with noise of a share of their standard deviations, and the times (n,)."""
    times = np.arange(0.0, 10.0, STEP)

    def slopes(_, s):
        x, y, z = s
        return [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z]

    states = solve_ivp(slopes, (0.0, 10.0), [-8.0, 8.0, 27.0], t_eval=times, rtol=1e-8, atol=1e-8).y.T
    rng = np.random.default_rng(seed)
    return states + noise * states.std(axis=0) * rng.standard_normal(states.shape), times


def weak_form(states):
    """Library (w, 10) and slopes (w, 3), both integrated against bumps on windows: no derivative of noise is taken."""
    basis = Polynomial(2).bind(states)
    library, names = np.column_stack([np.ones(len(states)), basis(states)]), ["1", *basis.labels()]
    u = np.linspace(-1.0, 1.0, WIDTH)
    bump, slope = (1.0 - u**2) ** 4, -8.0 * u * (1.0 - u**2) ** 3 / (0.5 * (WIDTH - 1) * STEP)
    starts = np.linspace(0, len(states) - WIDTH, N_WINDOWS).astype(int)
    rows = [slice(start, start + WIDTH) for start in starts]
    return np.stack([bump @ library[r] for r in rows]), -np.stack([slope @ states[r] for r in rows]), names


def threshold(library, slopes, least=0.1, ridge=0.05):
    """Sets of terms by sequentially thresholded ridge regression (STLSQ), pysindy's defaults."""
    found = []
    for target in slopes.T:
        kept = np.arange(library.shape[1])
        for _ in range(20):
            A = library[:, kept]
            w = np.linalg.solve(A.T @ A + ridge * np.eye(len(kept)), A.T @ target)
            kept = kept[np.abs(w) >= least]
        found.append(kept)
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_seven_terms_and_none_else_at_five_percent_noise(seed):
    library, slopes, names = weak_form(trajectory(seed=seed)[0])
    model = SparseBayesianRegressor(fit_intercept=False).fit(library, slopes)
    found = [{names[j] for j in np.flatnonzero(selected)} for selected in model.selected_]
    assert found == SUPPORTS != [{names[j] for j in kept} for kept in threshold(library, slopes)]
    coef = dict(zip(names, model.coef_[1], strict=True))
    assert coef["x0"] == pytest.approx(28.0, rel=0.05) and coef["x0*x2"] == pytest.approx(-1.0, rel=0.05)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_joint_sparsity_finds_the_terms_of_all_equations(seed):
    library, slopes, names = weak_form(trajectory(seed=seed)[0])
    model = SparseBayesianRegressor(fit_intercept=False, share_alpha=True).fit(library, slopes)
    assert {names[j] for j in np.flatnonzero(model.selected_[0])} == set.union(*SUPPORTS)
    assert {names[j] for kept in threshold(library, slopes) for j in kept} != set.union(*SUPPORTS)


@pytest.mark.filterwarnings("ignore")
def test_pysindy_takes_it_as_an_optimizer():
    pysindy = pytest.importorskip("pysindy")
    states, times = trajectory()
    found = {}
    for name, optimizer in (
        ("relvec", pysindy.WrappedOptimizer(SparseBayesianRegressor(fit_intercept=False))),
        ("STLSQ", pysindy.STLSQ()),
    ):
        model = pysindy.SINDy(
            optimizer=optimizer,
            feature_library=pysindy.PolynomialLibrary(degree=2),
            differentiation_method=pysindy.SmoothedFiniteDifference(),
        )
        model.fit(states, t=times)
        found[name] = [
            {model.get_feature_names()[j].replace(" ", "*") for j in np.flatnonzero(row)}
            for row in model.coefficients()
        ]
    assert found["relvec"] == SUPPORTS and found["STLSQ"] != SUPPORTS
