"""The search in C and the search in Python: the same moves, the same models, and either alone suffices."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from problems import assert_never_falls, quiet_fit, random_problem, sinc_problem
from relvec import RVR, GammaPrior
from relvec.design import DenseDesign
from relvec.solvers import MacKay, Problem, Sequential
from relvec.solvers.gaussian import compiled as _compiled
from relvec.solvers.gaussian.frame import Frame
from relvec.solvers.gaussian.moves import Model
from relvec.solvers.loop import iterate

needs_engine = pytest.mark.skipif(_compiled._engine is None, reason="the extension was not built: no C compiler")


@pytest.fixture
def in_python(monkeypatch):
    """Searches of the test run in Python."""
    monkeypatch.setenv("RELVEC_PURE_PYTHON", "1")


def pair(Phi, t, **options):
    """The same problem for both: an empty model in C and one in Python."""
    design = DenseDesign(np.asarray(Phi, dtype=float))
    M = design.n_atoms
    problem = Problem(
        design=design, target=t, target_norm2_outside=0.3, n_samples=len(t) + 1.0, noise_variance=None, noise_start=0.1,
        noise_floor=1e-8, order=np.arange(M)[::-1].copy(), **options)  # fmt: skip
    frame = Frame(design, t, problem.target_norm2_outside)
    empty = np.zeros(0, dtype=np.intp)
    posterior = frame.posterior(empty, np.zeros(0), 10.0, problem.n_samples)
    return _compiled.compiled(problem, 10.0), Model(problem, frame, empty, posterior)


def assert_same(fast, slow, rtol=1e-7):
    np.testing.assert_array_equal(fast.active, slow.active)
    np.testing.assert_allclose(fast.posterior.alpha, slow.posterior.alpha, rtol=rtol)
    assert fast.posterior.beta == pytest.approx(slow.posterior.beta, rel=rtol)
    assert fast.objective == pytest.approx(slow.objective, rel=1e-10, abs=1e-9)
    assert fast.atom == slow.atom


@needs_engine
def test_models_with_large_weights_are_the_ones_of_python():
    """Where X is large both know C^-1 by reflections: `Posterior.basis`."""
    x = np.linspace(-1.0, 1.0, 50)[:, None]
    Phi, t = np.exp(-(((x - x[::2].T) / 2.0) ** 2)), 300.0 * np.sin(3.0 * x[:, 0])
    fast, slow = pair(Phi, t)
    beta = 100.0
    for k in (3, 5, 6):
        active, alpha = np.arange(k) * 4, np.full(k, 1e-9)
        fast, slow = (m.at(active, alpha, beta) for m in (fast, slow))
        assert_same(fast, slow)
    assert slow.posterior.basis is not None
    grown = [m.grow(1, 1e-3, True) for m in (fast, slow)]
    assert grown[1] is not None
    assert_same(*grown, rtol=1e-5)


@needs_engine
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("prior", [{}, {"prior": GammaPrior(c=2.0, d=0.1), "prior_d": 0.1}], ids=["flat", "noise"])
def test_every_move_is_the_one_python_makes(order, prior):
    Phi, t = sinc_problem(60, width=2.0)
    fast, slow = pair(np.array(Phi, order=order), t, **prior)
    assert fast.objective == pytest.approx(slow.objective, rel=1e-12)
    for hold in (True, False, False, False):
        fast, slow = fast.grow(4, 1e-3, hold), slow.grow(4, 1e-3, hold)
        assert_same(fast, slow)
    assert_same(fast.relax(3, min_gain_nats=1e-2), slow.relax(3, min_gain_nats=1e-2))
    # what dips and ceilings ask for
    low = 10.0 * slow.posterior.beta
    fast, slow = (m.at(m.active, m.posterior.alpha, low) for m in (fast, slow))
    options = {"tol": 0.05, "hold_noise": True, "ceiling": 0.01, "apart": 1e-8}
    while (grown := slow.grow(4, **options)) is not None:
        fast, slow = fast.grow(4, **options).trim(), grown.trim()
        assert_same(fast, slow)
    assert fast.grow(4, **options) is None
    fast, slow = fast.relax(100, min_gain_nats=1e-3), slow.relax(100, min_gain_nats=1e-3)
    assert_same(fast, slow)
    while (swapped := slow.exchange(1e-3)) is not None:
        fast, slow = fast.exchange(1e-3), swapped
        assert_same(fast, slow)
    assert fast.exchange(1e-3) is None
    exact = fast.exact()
    assert exact.objective == pytest.approx(fast.objective, rel=1e-12)
    assert_same(exact.relax(20), slow.relax(20), rtol=1e-5)


@needs_engine
def test_copies_become_one():
    Phi, t = sinc_problem(30)
    fast, slow = pair(np.hstack([Phi, -Phi[:, 3:6], Phi[:, 3:6]]), t)
    active, alpha = np.array([3, 8, 31, 34, 5]), np.array([2.0, 1.0, 4.0, 4.0, 1.0])
    fast, slow = (m.at(active, alpha, 50.0) for m in (fast, slow))
    assert len(slow.merge_copies().active) == 3
    assert_same(fast.merge_copies(), slow.merge_copies())
    assert fast.merge_copies().merge_copies().active.tolist() == fast.merge_copies().active.tolist()


@needs_engine
@pytest.mark.parametrize("noise", [None, 0.02])
def test_thinning_is_the_update_of_mackay(noise):
    Phi, t = sinc_problem(40, width=2.0)
    fast, slow = pair(Phi, t)
    problem = replace(slow.problem, noise_variance=noise)
    fast = _compiled.compiled(problem, 10.0)
    assert fast is not None
    state = iterate(MacKay(prune_alpha=1e4), problem, 20).state
    thinned = fast.prune_from_full(20, 1e4)
    assert 0 < len(thinned.active) < 40
    np.testing.assert_array_equal(thinned.active, state.active)
    np.testing.assert_allclose(thinned.posterior.alpha, state.posterior.alpha, rtol=1e-6)
    assert thinned.objective == pytest.approx(state.objective, rel=1e-9)


@needs_engine
def test_a_frame_made_anew_serves_old_models_too():
    Phi, t = sinc_problem(200, width=0.5)
    fast, slow = pair(Phi, t)
    old = fast.at(np.arange(5), np.ones(5), 20.0)
    many = fast.at(np.arange(0, 160, 2), np.ones(80), 20.0)
    few = many.at(np.arange(20, 30), np.ones(10), 20.0)
    assert many.search.frame()[0] > 70
    trimmed = few.trim()
    assert trimmed.search.frame()[0] == 10
    assert trimmed.objective == pytest.approx(few.objective, rel=1e-12)
    assert_same(old.grow(4, 1e-3, False), slow.at(old.active, np.ones(5), 20.0).grow(4, 1e-3, False))
    assert old.exact().objective == pytest.approx(old.objective, rel=1e-12)


@needs_engine
@given(st.integers(0, 10_000))
def test_fits_agree(seed):
    Phi, t = random_problem(seed)
    with pytest.MonkeyPatch.context() as patch:
        fast, kept = quiet_fit(Phi, t)
        patch.setenv("RELVEC_PURE_PYTHON", "1")
        slow, kept_slow = quiet_fit(Phi, t)
    assert fast.log_marginal_likelihood_ == pytest.approx(slow.log_marginal_likelihood_, abs=2e-3)
    if fast.status_ == slow.status_ == "converged" and len(kept) == len(kept_slow):
        assert fast.certificate_ <= 1e-3
    assert_never_falls(fast.history_)
    assert_never_falls(slow.history_)


@needs_engine
def test_a_search_cut_short_has_a_posterior():
    Phi, t = sinc_problem(80)
    with pytest.warns(match="max_iter"):
        model = RVR(kernel="precomputed", fit_intercept=False, max_iter=3).fit(Phi[:, :80], t)
    assert model.n_iter_ == 3 and np.all(model.gamma_ > 0.0) and np.isfinite(model.log_marginal_likelihood_)


@needs_engine
def test_what_is_not_finite_is_refused_in_the_same_words():
    Phi, t = sinc_problem(30)
    fast, _ = pair(Phi, t)
    with pytest.raises(ValueError, match="holds NaN or infinite values"):
        fast.at(np.array([0]), np.array([np.nan]), 1.0)
    with pytest.raises(IndexError, match="no atom 31"):
        fast.at(np.array([31]), np.array([1.0]), 1.0)
    assert np.isfinite(fast.at(np.array([0]), np.array([1.0]), 1.0).objective)


def test_python_alone_suffices(in_python):
    Phi, t = sinc_problem(40)
    assert not _compiled.engine_in_use()
    model, _ = quiet_fit(Phi, t, solver=Sequential())
    assert model.status_ == "converged" and model.certificate_ <= 1e-3


def test_without_the_extension_everything_imports_and_fits():
    code = """
import sys
sys.modules["relvec.solvers._native._engine"] = None
import numpy as np
from relvec import RVR
from relvec.solvers.gaussian.compiled import engine_in_use
assert not engine_in_use()
x = np.linspace(-5, 5, 30)[:, None]
print(RVR(width=1.0).fit(x, np.sinc(x[:, 0]) + 0.1 * np.cos(37 * x[:, 0])).status_)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "converged\n"
