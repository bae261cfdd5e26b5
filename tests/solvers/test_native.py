"""The compiled moves at their edges: what they find is the dense truth, and nothing they are given breaks them."""

import itertools
import signal
import threading
import warnings
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import oracle
from problems import assert_never_falls, problem_of, quiet_fit, random_problem, sinc_problem
from relvec import RVR, GammaPrior
from relvec.design import DenseDesign
from relvec.inference.evidence import gain_add
from relvec.inference.linalg import SingularError
from relvec.solvers import Sequential, active_set
from relvec.solvers._native import memory
from relvec.solvers._native.gaussian import Frame
from relvec.solvers.active_set import solve
from relvec.solvers.gaussian.model import model_of
from relvec.solvers.gaussian.search import with_orthogonal_factors
from relvec.solvers.loop import Start

NOTHING = np.zeros(0, np.intp)


def start_of(Phi, t, active=NOTHING, alpha=(), beta=10.0, kind=DenseDesign, **options):
    return model_of(problem_of(kind(Phi), t, **options), Start(active, np.array(alpha, float), beta))


class WithoutMatrix(DenseDesign):
    """A design whose columns the engine has to ask for."""

    matrix = None


def moves(model):
    """Every move in turn."""
    for hold in (True, False, False):
        grown = model.grow(4, 1e-3, hold)
        model = model if grown is None else grown
        yield model
    model = model.relax(3, min_gain_nats=1e-2)
    yield model
    model = model.at(model.active, model.posterior.alpha, 10.0 * model.posterior.beta)
    while (grown := model.grow(4, 0.05, True, 0.01, 1e-8)) is not None:
        model = grown
        yield model
    model = model.settle(1e-3)
    yield model
    while (swapped := model.exchange(1e-3)) is not None:
        model = swapped
        yield model
    yield model.sharpen()


@pytest.mark.parametrize("prior", [{}, {"prior": GammaPrior(c=2.0, d=0.1), "prior_d": 0.1}], ids=["flat", "noise"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_after_every_move_the_objective_is_the_dense_one(order, prior):
    Phi, t = sinc_problem(60, width=2.0)
    Phi = np.array(Phi / np.linalg.norm(Phi, axis=0), order=order)
    for model in moves(start_of(Phi, t, **prior)):
        p = model.posterior
        dense = oracle.log_evidence(Phi[:, model.active], t, p.alpha, p.beta)
        dense += 2.0 * np.log(p.beta) - 0.1 * p.beta if prior else 0.0
        assert model.objective == pytest.approx(dense, rel=1e-9, abs=1e-8)
        assert model.full_posterior.log_evidence == pytest.approx(
            oracle.log_evidence(Phi[:, model.active], t, p.alpha, p.beta), rel=1e-9, abs=1e-8
        )


def test_a_design_without_a_matrix_makes_the_same_moves():
    Phi, t = sinc_problem(50, width=2.0)
    pairs = zip(moves(start_of(Phi, t)), moves(start_of(Phi, t, kind=WithoutMatrix)), strict=True)
    for here, there in pairs:
        assert here.active.tolist() == there.active.tolist()
        assert here.objective == pytest.approx(there.objective, rel=1e-12)


def test_atoms_that_the_model_nearly_spans_are_known_to_all_digits():
    """S as a difference is rounding there; the search adds such an atom where that gains."""
    rng = np.random.default_rng(3)
    a, b, noise = rng.normal(size=(3, 25))
    new = b - (b @ a) / (a @ a) * a
    new /= np.linalg.norm(new)
    a /= np.linalg.norm(a)
    Phi = np.column_stack([a, a + 1e-8 * new])
    t = 1e6 * a + 3.0 * new + 0.01 * noise
    model = start_of(Phi, t, np.array([0]), [1e-12], 1e4)
    S, Q, gains = model.core.scan()
    columns = model.problem.design.columns(np.arange(2))
    exact = oracle.mp_s_q(columns, np.array([0]), t, np.array([1e-12]), 1e4, dps=60)
    assert S[1] / 1e4 < 1e-14
    assert S[1] == pytest.approx(exact[0][1], rel=1e-6) and Q[1] == pytest.approx(exact[1][1], rel=1e-6)
    assert gains[1] > 1e3
    grown = model.grow(4, 1e-3)
    assert 1 in grown.active and grown.objective > model.objective + 100.0


def test_what_many_copies_nearly_span_is_known_to_all_digits():
    """None of the copies is so long that the model keeps its reflections: they are made for the scan."""
    rng = np.random.default_rng(0)
    a, b, noise = rng.normal(size=(3, 25))
    a /= np.linalg.norm(a)
    new = b - (b @ a) * a
    Phi = np.column_stack([np.tile(a[:, None], 16), a + 1e-7 * new / np.linalg.norm(new)])
    t, inside, alpha = 10.0 * a + 0.1 * noise, np.arange(16), np.full(16, 1e4 / 0.9e8)
    model = start_of(Phi, t, inside, alpha, 1e4)
    S, Q, _ = model.core.scan()
    exact = oracle.mp_s_q(model.problem.design.columns(np.arange(17)), inside, t, alpha, 1e4, dps=60)
    assert S[16] / 1e4 < 1e-9
    assert S[16] == pytest.approx(exact[0][16], rel=1e-6) and Q[16] == pytest.approx(exact[1][16], rel=1e-6)


def coherent_problem(seed, n=20, groups=3, each=3):
    """Columns in groups whose correlations go up to 1 - 5e-7, and a target that needs their differences."""
    rng = np.random.default_rng(seed)
    columns = []
    for _ in range(groups):
        common = rng.normal(size=n)
        columns += [common + 10.0 ** rng.uniform(-3.0, -0.3) * rng.normal(size=n) for _ in range(each)]
    Phi = np.column_stack(columns)
    Phi /= np.linalg.norm(Phi, axis=0)
    w = rng.normal(size=len(columns)) * (rng.random(len(columns)) < 0.4) * 10.0 ** rng.uniform(0.0, 1.5, len(columns))
    t = Phi @ w + 0.1 * rng.normal(size=n)
    return Phi, t / np.sqrt(np.mean(t**2))


@pytest.mark.parametrize("seed", range(6))
def test_coherent_dictionaries_are_searched_as_well_as_exhaustively(seed):
    Phi, t = coherent_problem(seed)
    problem = problem_of(DenseDesign(Phi), t, noise_floor=1e-4)
    assert np.abs(np.triu(Phi.T @ Phi, 1)).max() > 1.0 - 1e-2
    beta = 1.0 / problem.noise_start
    supports = itertools.chain.from_iterable(itertools.combinations(range(9), size) for size in range(10))
    empty = model_of(problem, Start(NOTHING, np.zeros(0), beta))
    best = max(empty.at(np.array(s, np.intp), np.ones(len(s)), beta).relax(60).objective for s in supports)
    assert solve(Sequential(), problem, 1000).state.objective >= best - 1e-3


@pytest.mark.parametrize("case", range(4))
def test_no_search_by_evidence_alone_ends_below_a_greedy_path(case):
    X, y = draw_sinc(case)
    greedy, thorough = (
        RVR(width=2.5, solver=solver).fit(X, y).log_marginal_likelihood_
        for solver in (Sequential(batch=1, restarts=0, exchange=False), Sequential(support_prior="flat"))
    )
    assert thorough >= greedy - 1e-3


def draw_sinc(case):
    rng = np.random.default_rng([2, case])
    X = rng.uniform(-10.0, 10.0, (150, 2))
    distance = np.linalg.norm(X, axis=1)
    return X, np.sin(distance) / distance + 0.1 * rng.normal(size=150)


def test_searches_end_above_greedy_paths_in_the_mean():
    gains = []
    for case in range(4):
        X, y = draw_sinc(case)
        greedy, default = (
            RVR(width=2.5, solver=solver).fit(X, y).log_marginal_likelihood_
            for solver in (Sequential(batch=1, restarts=0, exchange=False), Sequential())
        )
        gains.append(default - greedy)
    assert np.mean(gains) > 0.25 and min(gains) > -2.0


@pytest.mark.parametrize("case", [434, 475])
def test_a_certificate_counts_atoms_that_the_model_nearly_spans(case):
    """Wide kernels and weights from .01 to 100: S of an atom is below what a difference of doubles can tell."""
    rng = np.random.default_rng([10, case])
    n, d = int(rng.integers(12, 21)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + 10.0 ** rng.uniform(-4, -2) * rng.normal(size=n)
    kernel = str(rng.choice(["matern32", "laplace", "cauchy", "matern52", "gaussian"]))
    width, weights = float(10.0 ** rng.uniform(0.7, 2.2)), 10.0 ** rng.uniform(-2, 2, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RVR(kernel=kernel, width=width).fit(X, y, weights)
    root = np.sqrt(weights)
    Phi = np.column_stack([model.kernel_(X, X), np.ones(n)]) * root[:, None]
    active = np.append(model.relevance_, [n] if "bias" in model.atoms_ else []).astype(int)
    s, q = oracle.mp_s_q(Phi, active, y * root, model.alpha_, 1.0 / model.noise_variance_, dps=60)
    outside = np.setdiff1d(np.arange(n + 1), active)
    gains = gain_add(s[outside], q[outside])
    assert gains.max(initial=0.0) <= max(1e-3, float(model.certificate_))


def test_models_made_before_a_frame_was_made_anew_go_on():
    Phi, t = sinc_problem(200, width=0.5)
    empty = start_of(Phi, t)
    old = empty.at(np.arange(5), np.ones(5), 20.0)
    expected = start_of(Phi, t, np.arange(5), np.ones(5), 20.0).grow(4, 1e-3)
    empty.at(np.arange(0, 160, 2), np.ones(80), 20.0)
    few = empty.at(np.arange(20, 30), np.ones(10), 20.0)
    assert few.core.frame.size > 70
    assert few.core.trim().objective == pytest.approx(few.objective, rel=1e-12)
    assert few.core.frame.size == 10
    grown = old.grow(4, 1e-3)
    assert grown.active.tolist() == expected.active.tolist()
    assert grown.objective == pytest.approx(expected.objective, rel=1e-9)


@given(st.integers(0, 10_000))
def test_histories_never_fall(seed):
    model, _ = quiet_fit(*random_problem(seed))
    assert_never_falls(model.history_)


def test_a_search_cut_short_has_a_posterior():
    Phi, t = sinc_problem(80)
    with pytest.warns(match="max_iter"):
        model = RVR(kernel="precomputed", fit_intercept=False, solver=Sequential(max_iter=3)).fit(Phi[:, :80], t)
    assert model.n_iter_ == 3 and np.all(model.gamma_ > 0.0) and np.isfinite(model.log_marginal_likelihood_)


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0 / 3.0])
def test_a_given_noise_is_kept_to_the_last_digit(noise):
    x = np.linspace(-5.0, 5.0, 40)[:, None]
    model = RVR(width=1.0, noise_variance=noise).fit(x, np.sinc(x[:, 0]) + 0.1 * np.cos(37.0 * x[:, 0]))
    assert float(model.noise_variance_) == noise


# ---------------------------------------------------------------- memory


def test_every_allocation_may_fail(monkeypatch):
    """Whichever fails, the fit ends in MemoryError and the next one is as if nothing had been: with orthogonal factors,
    whose memory is counted.
    """
    monkeypatch.setattr(active_set, "search", with_orthogonal_factors)
    x = np.linspace(-3.0, 3.0, 8)[:, None]
    y = np.sinc(x[:, 0]) + 0.05 * np.cos(37.0 * x[:, 0])
    model = RVR(width=1.0, solver=Sequential(restarts=1))
    expected, failures = clone(model).fit(x, y), 0
    try:
        for count in range(100_000):
            memory.fail_after(count)
            try:
                again = clone(model).fit(x, y)
            except MemoryError:
                failures += 1
                continue
            break
    finally:
        memory.fail_after(-1)
    assert failures == count > 50
    for fitted in (again, model.fit(x, y)):
        np.testing.assert_array_equal(fitted.weights_, expected.weights_)


def test_a_model_whose_move_found_no_memory_goes_on():
    """The frame is not changed before everything that may fail is done."""
    Phi, t = sinc_problem(40, width=1.0)
    model = start_of(Phi, t).grow(2, 1e-3)
    expected = start_of(Phi, t).grow(2, 1e-3).grow(4, 1e-3)
    try:
        for count in range(10_000):
            memory.fail_after(count)
            try:
                grown = model.grow(4, 1e-3)
            except MemoryError:
                continue
            break
    finally:
        memory.fail_after(-1)
    assert count > 10
    assert grown.active.tolist() == expected.active.tolist() and grown.objective == expected.objective


@pytest.mark.parametrize("batch", [5_000, 600_000_000, 2**40])
def test_a_batch_of_any_size(batch):
    x = np.linspace(-5.0, 5.0, 40)[:, None]
    y = np.sinc(x[:, 0]) + 0.05 * np.cos(37.0 * x[:, 0])
    model = RVR(width=1.0, solver=Sequential(batch=batch)).fit(x, y)
    assert model.status_ == "converged" and np.isfinite(model.log_marginal_likelihood_)


# ---------------------------------------------------------------- what is not a number


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -1.0])
def test_precisions_that_are_none_are_refused(value):
    model = start_of(*sinc_problem(30))
    with pytest.raises(SingularError, match="NaN or infinite"):
        model.at(np.array([0]), np.array([value]), 1.0)
    with pytest.raises(SingularError, match="NaN or infinite"):
        model.at(np.array([0]), np.array([1.0]), value)
    assert np.isfinite(model.at(np.array([0]), np.array([1.0]), 1.0).objective)


@pytest.mark.parametrize("atom", [-1, 31, 2**31 - 1])
def test_atoms_that_there_are_not(atom):
    with pytest.raises(IndexError, match="no atom"):
        start_of(*sinc_problem(30)).at(np.array([atom]), np.array([1.0]), 1.0)


@pytest.mark.parametrize("change", [
    {"target": np.ones(29)}, {"order": np.arange(30)}, {"design": SimpleNamespace(n_rows=0, n_atoms=31)},
    {"design": SimpleNamespace(n_rows=2**31, n_atoms=31)}, {"design": SimpleNamespace(n_rows=30, n_atoms=2**31)},
])  # fmt: skip
def test_a_problem_whose_parts_do_not_fit_is_refused(change):
    Phi, t = sinc_problem(30)
    problem = problem_of(DenseDesign(Phi), t)
    Frame(problem)
    with pytest.raises(ValueError, match=r"do not fit each other|has no place in the engine"):
        Frame(replace(problem, **change))


def test_as_many_precisions_as_atoms_are_needed():
    frame = Frame(problem_of(DenseDesign(sinc_problem(30)[0]), sinc_problem(30)[1]))
    with pytest.raises(ValueError, match="2 atoms with 1 precisions"):
        frame.model([0, 1], [1.0], 1.0)


@pytest.mark.parametrize("scale", [1e160, 1e200, np.inf, np.nan])
def test_targets_beyond_the_range_are_refused(scale):
    Phi, t = sinc_problem(30)
    with np.errstate(all="ignore"), pytest.raises(SingularError, match="NaN or infinite"):
        start_of(Phi, t * scale, beta=1e10).grow(4, 1e-3)


def test_columns_that_are_not_numbers_are_refused():
    Phi, t = sinc_problem(30)
    design = DenseDesign(Phi)
    design.matrix[0, :3] = np.nan
    with pytest.raises(SingularError, match="NaN or infinite"):
        model_of(problem_of(design, t), Start(np.array([0]), np.ones(1), 1.0))


def test_an_atom_three_times():
    model = start_of(*sinc_problem(30), np.array([3, 3, 3]), np.ones(3), 50.0)
    assert model.merge_copies().active.tolist() == [3]
    assert model.merge_copies().objective == pytest.approx(model.objective, rel=1e-12)
    assert model.exchange(1e-3) is None or np.isfinite(model.exchange(1e-3).objective)


HOSTILE = {
    "ordinary": {}, "quality overflows": {"scale": 1e200}, "all gains overflow": {"scale": 1e160, "beta": 1e10},
    "a hole": {"first": np.nan}, "columns of nan": {"columns": np.nan}, "columns of inf": {"columns": np.inf},
    "targets of nan": {"scale": np.nan}, **{f"noise {beta}": {"beta": beta} for beta in (np.nan, np.inf, 0.0, -1.0)},
    **{f"batch {batch}": {"batch": batch} for batch in (0, -1, -(2**31), 2**31 - 1, 2**40)},
    **{f"precision {alpha}": {"alpha": alpha} for alpha in (np.nan, 0.0, -1.0, np.inf, 1e-320)},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_no_search_would_ask_for_is_refused_or_answered_with_numbers(name):
    given = HOSTILE[name]
    rng = np.random.default_rng(0)
    Phi, t = rng.normal(size=(20, 20)), rng.normal(size=20) * given.get("scale", 1.0)
    Phi /= np.linalg.norm(Phi, axis=0)
    design = DenseDesign(Phi)
    design.matrix[0, 0] = given.get("first", design.matrix[0, 0])
    if "columns" in given:
        design.matrix[:] = given["columns"]
    active = np.arange(3 if "alpha" in given else 0)
    problem = problem_of(design, t, noise_start=1.0)
    try:
        model = model_of(problem, Start(active, np.full(len(active), given.get("alpha", 1.0)), given.get("beta", 1.0)))
        grown = model.grow(given.get("batch", 4), 1e-4, False, np.inf, 0.0)
    except (SingularError, ValueError, OverflowError) as error:
        assert name != "ordinary" and len(str(error)) > 10
        return
    for moved in (grown or model, (grown or model).relax(5), (grown or model).exchange(1e-4) or model):
        assert np.isfinite(moved.objective) and np.all(moved.posterior.alpha > 0.0)


# ---------------------------------------------------------------- signals and threads


def test_an_interrupt_is_answered():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 8))
    y = np.sin(X).sum(axis=1) + 0.01 * rng.normal(size=700)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.3, 5.0)  # again, should a finaliser have swallowed it
            while True:  # a fit that ends before the signal comes is no failure
                RVR(width=1.0, solver=Sequential(restarts=50)).fit(X, y)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_fits_side_by_side_are_the_fits_alone():
    problems = [sinc_problem(80, width, seed=seed) for seed, width in enumerate((0.5, 1.0, 2.0, 4.0))]
    alone = [quiet_fit(*problem)[0].weights_ for problem in problems]
    together = [None] * len(problems)

    def run(i):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            together[i] = quiet_fit(*problems[i])[0].weights_

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(problems))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for here, there in zip(alone, together, strict=True):
        np.testing.assert_array_equal(here, there)


def test_one_model_moved_by_two_threads():
    """They share a frame and may wait for each other."""
    model, ended = start_of(*sinc_problem(120, width=0.7)), []

    def run():
        for _ in range(20):
            with suppress(ValueError, IndexError):
                for moved in moves(model):
                    assert np.isfinite(moved.objective)
        ended.append(True)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [True, True]
