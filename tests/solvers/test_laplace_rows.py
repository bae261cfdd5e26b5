"""The mode of a likelihood with one output on rows in memory, and the slopes of its evidence, by compiled loops."""

from dataclasses import replace

import numpy as np
import pytest

from relvec.design import DenseDesign
from relvec.inference.laplace import laplace
from relvec.inference.likelihoods import Bernoulli, Poisson
from relvec.solvers import Sequential
from relvec.solvers._native import memory
from relvec.solvers._native.laplace import Mode, NewtonSystem, evidence_system, moved_mode, scan_gains
from relvec.solvers.laplace import problem as problem_module
from relvec.solvers.laplace.problem import (
    LaplaceModel,
    LaplaceProblem,
    WorkBudget,
    posterior_of,
    rows_for_loops,
)
from relvec.solvers.laplace.solve import solve_laplace

LIKELIHOODS = [Bernoulli(), Poisson()]


def problem_of(likelihood, n=80, seed=0, weights=None):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-3, 3, (n, 1)), axis=0)
    Phi = np.column_stack([np.exp(-((X - X.T) ** 2)), np.ones(n)])
    f = 2.0 * np.sin(1.5 * X[:, 0])
    t = (rng.uniform(size=n) < 1 / (1 + np.exp(-f))) if isinstance(likelihood, Bernoulli) else rng.poisson(np.exp(f))
    weights = np.ones(n) if weights is None else weights
    return LaplaceProblem(DenseDesign(Phi), t.astype(float), weights, likelihood, np.arange(n + 1), bias=n)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("atoms", [[], [40], [5, 40, 80], [3, 9, 20, 31, 50, 77, 80]])
def test_the_mode_is_that_of_numpy(likelihood, weighted, atoms):
    weights = np.random.default_rng(1).uniform(0.5, 3.0, 80) if weighted else np.ones(80)
    problem = problem_of(likelihood, weights=weights)
    Phi, alpha = problem.design.columns(atoms), np.geomspace(0.01, 1.0, len(atoms))
    exact = laplace(Phi, problem.target, weights, alpha, likelihood)
    for start in (None, np.linspace(-3.0, 20.0, len(atoms))):
        mode = problem.rows.fit(np.asfortranarray(Phi), alpha, start)
        found = posterior_of(mode)
        for name in ("mean", "root", "f", "r", "W", "log_evidence", "gamma", "variance"):
            np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-7, atol=1e-8, err_msg=name)
        assert mode.trust == pytest.approx(exact.trust) and mode.any_infinite is exact.any_infinite
        np.testing.assert_allclose(mode.slopes(), exact.slopes(likelihood, weights), rtol=1e-8, atol=1e-12)
        root = np.random.default_rng(2).normal(size=(len(atoms), 3))
        expected = exact.slopes(likelihood, weights, root)
        np.testing.assert_allclose(mode.slopes(root), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_newton_system_is_that_of_the_evidence(likelihood):
    """The gradient by differences of refitted evidences; the curvature by those of a problem whose B is held."""
    problem, atoms = problem_of(likelihood), np.array([5, 40, 80])
    alpha = np.array([0.1, 1.0, 0.01])
    model = LaplaceModel(problem, atoms, problem.fit(atoms, alpha))
    system, h = model.system(), 1e-4
    ends = [[problem.fit(atoms, alpha * np.exp(x)).log_evidence for x in (h * e, -h * e)] for e in np.eye(3)]
    numeric = [(up - down) / (2 * h) for up, down in ends]
    np.testing.assert_allclose(system.gradient, numeric, atol=1e-6)
    p = model.posterior
    G = p.Phi.T @ (p.W[:, None] * p.Phi)
    pull = p.Phi.T @ (p.W * p.f + p.r)

    def held(x):
        A = np.diag(alpha * np.exp(x))
        return 0.5 * (x.sum() - np.linalg.slogdet(G + A)[1] + pull @ np.linalg.solve(G + A, pull))

    steps = 1e-3 * np.eye(3)
    hessian = [[(held(a + b) - held(a - b) - held(b - a) + held(-a - b)) / 4e-6 for a in steps] for b in steps]
    np.testing.assert_allclose(system.minus_hessian, -np.array(hessian), atol=1e-5)
    step = system.step(0.3)
    damped = system.minus_hessian + 0.3 * np.diag(0.5 * alpha * (p.mean**2 + p.variance))
    np.testing.assert_allclose(damped @ step, system.gradient, atol=1e-10)
    assert NewtonSystem(np.ones(2), -np.eye(2), np.ones(2)).step(0.0) is None
    assert NewtonSystem(np.array([np.nan, 1.0]), np.eye(2), np.ones(2)).step(0.0) is None


def test_models_with_more_fewer_or_other_columns_are_those_fitted_anew():
    problem, atoms, alpha = problem_of(Bernoulli()), np.array([5, 20, 40, 80]), np.array([0.1, 2.0, 1.0, 0.01])
    model = LaplaceModel(problem, atoms, problem.fit(atoms, alpha))
    leave = np.array([True, False, True, False])
    others = [
        (model.drop(leave), atoms[~leave], alpha[~leave]),
        (model.drop(~leave), atoms[leave], alpha[leave]),
        (model.drop(np.ones(4, bool)), atoms[:0], alpha[:0]),
        (model.add(np.array([7, 60]), np.array([3.0, 4.0]), np.zeros(2)), [*atoms, 7, 60], [*alpha, 3.0, 4.0]),
        (model.swap(1, 33, 5.0, np.array([0.2])), np.array([5, 33, 40, 80]), np.array([0.1, 5.0, 1.0, 0.01])),
        (model.step_to(np.array([0.1, -0.2, 0.0, 0.3]), True), atoms, alpha * np.exp([0.1, -0.2, 0.0, 0.3])),
    ]  # fmt: skip
    for found, units, precisions in others:
        units, precisions = np.array(units, int), np.array(precisions, float)
        assert isinstance(found.fit, Mode)
        np.testing.assert_array_equal(found.active, units)
        exact = laplace(problem.design.columns(units), problem.target, problem.weights, precisions, Bernoulli())
        np.testing.assert_allclose(found.alpha, precisions)
        np.testing.assert_allclose(found.posterior.mean, exact.mean, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(found.posterior.Phi, exact.Phi)
        assert found.objective == pytest.approx(exact.log_evidence, abs=1e-10)


def test_badly_conditioned_columns_are_left_to_factors_that_keep_their_digits():
    problem = problem_of(Bernoulli())
    Phi = problem.design.columns([5, 40])
    twins = np.asfortranarray(np.column_stack([Phi[:, 0], Phi[:, 0] + 1e-6 * Phi[:, 1]]))
    assert problem.rows.fit(twins, np.full(2, 1e-12)) is None  # the normal equations would lose digits
    apart = problem.rows.fit(np.asfortranarray(Phi), np.full(2, 1e-12))
    exact = laplace(Phi, problem.target, problem.weights, np.full(2, 1e-12), Bernoulli())
    assert apart.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)  # large, but far from each other
    both = replace(problem, design=DenseDesign(twins), order=np.arange(2), bias=-1)
    model = LaplaceModel(both, np.arange(2), both.fit(np.arange(2), np.full(2, 1e-12)))
    assert not isinstance(model.fit, Mode)
    columns = both.design.columns([0, 1])
    exact = laplace(columns, problem.target, problem.weights, np.full(2, 1e-12), Bernoulli())
    assert model.objective == pytest.approx(exact.log_evidence, abs=1e-9)
    assert isinstance(model.drop(np.array([True, False])).fit, Mode)
    system = model.system()  # the same algebra, with sums over rows by NumPy
    p = model.posterior
    expected = evidence_system(p.alpha, p.mean, p.root, p.variance, p.slopes(Bernoulli(), problem.weights))[0]
    np.testing.assert_allclose(system.gradient, expected)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=["classes", "counts"])
def test_sums_do_not_depend_on_the_number_of_threads(likelihood, monkeypatch):
    n, rng = 20_011, np.random.default_rng(0)
    Phi = np.asfortranarray(np.exp(-((rng.uniform(-3, 3, n)[:, None] - np.array([-2.0, 0.0, 1.0])) ** 2)))
    t = (rng.random(n) < 0.5 + 0.4 * np.sin(Phi[:, 0])).astype(float) if isinstance(likelihood, Bernoulli) else (
        rng.poisson(1.0 + Phi[:, 1]).astype(float))  # fmt: skip
    weights, alpha = rng.uniform(0.5, 2.0, n), np.array([0.1, 1.0, 3.0])
    exact = laplace(Phi, t, weights, alpha, likelihood)
    found = []
    for threads in (1, 2, 3, 50):
        monkeypatch.setattr(problem_module, "n_threads", lambda threads=threads: threads)
        mode = rows_for_loops(t, weights, likelihood).fit(Phi, alpha)
        found.append((mode.log_evidence, *mode.mean, *mode.slopes()))
    assert all(each == found[0] for each in found)
    assert found[0][0] == pytest.approx(exact.log_evidence, rel=1e-12)
    np.testing.assert_allclose(found[0][1:4], exact.mean, rtol=1e-7)
    np.testing.assert_allclose(found[0][4:], exact.slopes(likelihood, weights), rtol=1e-7)


def test_an_interrupt_ends_a_sum_over_many_rows():
    def interrupt(part, count):
        raise KeyboardInterrupt

    n = 20_000
    rows = rows_for_loops(np.arange(n) % 2.0, np.ones(n), Bernoulli())
    Phi = np.asfortranarray(np.linspace(-1.0, 1.0, n)[:, None])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem_module, "run_parts", interrupt)
        interrupted = rows_for_loops(np.arange(n) % 2.0, np.ones(n), Bernoulli())
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(Phi, np.ones(1))
    assert rows.fit(Phi, np.ones(1)) is not None


def test_targets_that_are_not_numbers_give_no_mode():
    problem = problem_of(Bernoulli())
    t = problem.target.copy()
    t[3] = np.nan
    Phi = np.asfortranarray(problem.design.columns([5, 40]))
    assert rows_for_loops(t, problem.weights, Bernoulli()).fit(Phi, np.ones(2)) is None
    assert problem.rows.fit(Phi * np.nan, np.ones(2)) is None


def test_arrays_that_do_not_fit_are_refused():
    problem = problem_of(Bernoulli())
    Phi = np.asfortranarray(problem.design.columns([5, 40]))
    mode = problem.rows.fit(Phi, np.ones(2))
    for call in (
        lambda: problem.rows.fit(Phi[:-1].copy(order="F"), np.ones(2)),
        lambda: problem.rows.fit(Phi, np.ones(3)),
        lambda: problem.rows.fit(Phi, np.ones(2), np.ones(3)),
        lambda: mode.slopes(np.ones((3, 3))),
        lambda: mode.system().step(0.0, np.ones(3)),
        lambda: rows_for_loops(problem.target, problem.weights[1:], Bernoulli()),
    ):
        with pytest.raises(ValueError, match=r"for|fit|and \d"):
            call()


def sums(k=2, M=4):
    return np.ones((k + 1, M)), np.full(M, 9.0), np.ones(M, np.uint8), k, 1e-9


@pytest.mark.parametrize(("function", "fitting", "others"), [
    (evidence_system, [np.ones(2), np.ones(2), np.eye(2), np.ones(2), np.ones(2)],
     {0: np.ones(3), 1: np.ones(3), 2: np.ones((2, 3)), 3: np.ones(3), 4: np.ones(3)}),
    (moved_mode, [np.ones(2), np.ones(2), np.eye(2), np.ones(2), True],
     {0: np.ones(3), 1: np.ones(3), 2: np.ones((2, 3)), 3: np.ones(3)}),
    (NewtonSystem, [np.ones(2), np.eye(2), np.ones(2)], {0: np.ones(3), 1: np.ones((2, 3)), 2: np.ones(3)}),
    (scan_gains, sums(), {0: np.ones((5, 4)), 1: np.ones(5), 2: np.ones(5, np.uint8), 3: -1}),
])  # fmt: skip
def test_an_array_of_another_length_is_refused(function, fitting, others):
    function(*fitting)
    for i, wrong in others.items():
        with pytest.raises(ValueError, match="fit each other"):
            function(*[wrong if j == i else value for j, value in enumerate(fitting)])


def test_a_system_without_weights_has_a_step_of_none():
    assert NewtonSystem(np.zeros(0), np.zeros((0, 0)), np.zeros(0)).step(1.0).shape == (0,)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=["classes", "counts"])
def test_every_allocation_may_fail(likelihood):
    """Whichever fails, the search ends in MemoryError, and the next one is as if nothing had been."""
    problem, solver = replace(problem_of(likelihood, n=8), tol=0.1), Sequential(restarts=1)

    def search():
        return solve_laplace(solver, replace(problem, budget=WorkBudget(), rng=np.random.default_rng(0)), 1000).state

    expected, count = search(), 0
    try:
        while True:
            memory.fail_after(count)
            try:
                found = search()
                break
            except MemoryError:
                count += 1
    finally:
        memory.fail_after(-1)
    assert count > 100
    for state in (found, search()):
        np.testing.assert_array_equal(state.active, expected.active)
        np.testing.assert_array_equal(state.posterior.mean, expected.posterior.mean)
