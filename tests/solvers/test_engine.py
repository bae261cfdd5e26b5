"""The native search of a regression: every formula against its dense one, and its promises."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import oracle
from problems import problem_of, random_problem, sinc_problem, single_move_gains
from relvec import RVR
from relvec.design import DenseDesign
from relvec.inference.evidence import near_copy_price
from relvec.runtime.clock import Clock
from relvec.runtime.progress import watch
from relvec.solvers import Sequential, Status
from relvec.solvers._native import engine
from relvec.solvers.gaussian import search as module
from relvec.solvers.gaussian.search import search
from relvec.solvers.loop import Start


class WithoutMatrix(DenseDesign):
    """Columns on demand, no matrix."""

    @property
    def matrix(self):
        return None


def run(problem, restarts=3, exchange=True, prior="flat", price=0.0, most=-1, steps=10_000, start=None, **options):
    if start is None:
        start = (np.zeros(0, np.intp), np.zeros(0), 1.0 / (problem.noise_variance or problem.noise_start))
    seconds = options.pop("seconds", -1.0)
    return engine.search(
        problem, start, restarts, exchange, False, steps, seconds, prior, price, 1.0, most, 300, **options
    )


def sinc(N=40, width=3.0, seed=0, kind=DenseDesign, **options):
    Phi, t = sinc_problem(N, width=width, seed=seed)
    return problem_of(kind(Phi), t / np.sqrt(np.mean(t**2)), bias=N, tol=1e-4, **options)


def dense(problem):
    return problem.design.columns(np.arange(problem.design.n_atoms))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("noise", [None, 0.05])
def test_what_it_ends_with_is_a_maximum_of_the_dense_evidence(seed, noise):
    Phi, t = random_problem(seed)
    problem = problem_of(DenseDesign(Phi), t / np.sqrt(np.mean(t**2)), noise_variance=noise, tol=1e-4)
    ended, atoms, alpha, beta, objective, largest, _, steps = run(problem)
    if ended == "no_digits":
        return
    Phi = dense(problem)
    assert ended == "done" and largest <= 1e-4
    assert objective == pytest.approx(oracle.log_evidence(Phi[:, atoms], problem.target, alpha, beta), abs=1e-6)
    values = [step[3] for step in steps]
    assert np.all(np.diff(values) >= -1e-10 * np.abs(values[1:]))
    gradient = oracle.gradient(Phi[:, atoms], problem.target, alpha, beta)
    if noise is not None or beta >= 0.999 / problem.noise_floor:
        gradient = gradient[:-1]
    np.testing.assert_allclose(gradient, 0.0, atol=0.01)
    near = np.abs(Phi.T @ Phi) > 0.999
    kept = [j for j in range(Phi.shape[1]) if j in atoms or not near[j, atoms].any()]  # the others have a price
    own = {j: i for i, j in enumerate(kept)}
    gains = single_move_gains(Phi[:, kept], problem.target, np.array([own[j] for j in atoms], int), alpha, beta)
    assert max(gains.values()) <= 1e-4 + 1e-6


@pytest.mark.parametrize("kind", [DenseDesign, WithoutMatrix])
@pytest.mark.parametrize("order", ["C", "F"])
def test_however_the_dictionary_is_held_the_search_is_the_same(kind, order):
    Phi, t = sinc_problem(50)
    reference = run(problem_of(DenseDesign(Phi), t))
    found = run(problem_of(kind(np.array(Phi, order=order)), t))
    assert set(found[1]) == set(reference[1]) and found[4] == pytest.approx(reference[4], abs=1e-7)


def test_the_order_of_rows_and_atoms_does_not_matter():
    problem = sinc()
    reference = run(problem)
    rng = np.random.default_rng(0)
    rows, atoms = rng.permutation(40), rng.permutation(41)
    Phi = dense(problem)[np.ix_(rows, atoms)]
    moved = problem_of(DenseDesign(Phi), problem.target[rows], bias=int(np.argsort(atoms)[40]), tol=1e-4,
                       order=problem.order[atoms])  # fmt: skip
    found = run(moved)
    assert set(atoms[found[1]]) == set(reference[1]) and found[4] == pytest.approx(reference[4], abs=1e-7)


def test_near_copies_enter_where_they_gain_more_than_their_price():
    rng = np.random.default_rng(0)
    a, b = np.linalg.qr(rng.normal(size=(60, 2)))[0].T
    Phi = np.column_stack([a, a + 0.02 * b])  # their correlation is .9998
    assert abs(Phi[:, 0] @ Phi[:, 1]) / np.linalg.norm(Phi[:, 1]) > 0.999
    for share, kept in ((0.0, 1), (2.0, 2)):
        t = 5.0 * a + share * b + 0.05 * rng.normal(size=60)
        problem = problem_of(DenseDesign(Phi), t, noise_variance=0.05**2)
        _, atoms, _alpha, _beta, _, largest, *_ = run(problem, restarts=0)
        assert len(atoms) == kept and largest <= problem.tol
    assert near_copy_price(2) == pytest.approx(2.0 * np.log(2.0))


@pytest.mark.parametrize("prior", ["size", "constant"])
def test_a_function_that_is_worth_less_than_it_costs_is_not_kept(prior):
    problem = sinc(N=60)
    flat, priced = run(problem), run(problem, prior=prior, price=3.0)
    assert len(priced[1]) <= len(flat[1]) and priced[5] <= 1e-4
    M, Phi = 60, dense(problem)
    count = len(set(priced[1]) - {60})
    cost = 3.0 if prior == "constant" else max(1.0, np.log((M - count + 1) / count))
    for i in range(len(priced[1])):
        if priced[1][i] != problem.bias:
            keep = np.arange(len(priced[1])) != i
            without = oracle.log_evidence(Phi[:, priced[1][keep]], problem.target, priced[2][keep], priced[3])
            assert priced[4] - without >= cost - 1e-4


def test_no_more_functions_than_are_allowed():
    problem = sinc()
    for most in (0, 1, 3):
        atoms = run(problem, most=most)[1]
        assert len(set(atoms) - {problem.bias}) <= most


def test_a_start_is_not_left_for_a_worse_model():
    problem = sinc()
    first = run(problem, restarts=0)
    again = run(problem, restarts=0, start=first[1:4])
    assert again[4] >= first[4] - 1e-6
    few = run(problem, restarts=0, start=(np.array([3, 7]), np.ones(2), 5.0))
    assert few[7][0][2] == 2 and few[4] > few[7][0][3]


def test_atoms_that_are_not_there_are_refused():
    with pytest.raises(IndexError):
        run(sinc(), start=(np.array([41]), np.ones(1), 1.0))


def test_steps_and_seconds_are_limited_and_the_best_model_comes_back():
    problem = sinc(N=80, width=1.0)
    whole = run(problem)
    cut = run(problem, steps=3)
    assert cut[0] == "max_steps" and len(cut[7]) == 4 and cut[4] <= whole[4]
    Phi = dense(problem)
    assert cut[4] == pytest.approx(oracle.log_evidence(Phi[:, cut[1]], problem.target, cut[2], cut[3]), abs=1e-6)
    assert run(problem, seconds=0.0)[0] == "late"


def test_a_watcher_may_stop_the_search_and_its_errors_reach_the_caller():
    rng = np.random.default_rng(0)
    problem = problem_of(DenseDesign(rng.normal(size=(300, 300))), rng.normal(size=300), noise_variance=1e-3)
    assert run(problem, watch=lambda *_: True)[0] == "stopped"
    with pytest.raises(KeyError, match="asked"):

        def fails(*_):
            raise KeyError("asked")

        run(problem, watch=fails)


def test_an_error_of_a_design_reaches_the_caller():
    class Failing(WithoutMatrix):
        def columns(self, atoms):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        run(sinc(kind=Failing))


def test_searches_in_several_threads_do_not_meet():
    problem, found = sinc(), []
    reference = run(problem)
    threads = [threading.Thread(target=lambda: found.append(run(problem))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(one[1], reference[1]) for one in found) and len(found) == 4


def test_where_digits_are_lost_orthogonal_factors_take_over(monkeypatch):
    Phi, t = sinc_problem(30, noise=0.0)
    problem = problem_of(DenseDesign(Phi), t, noise_variance=1e-12, noise_floor=1e-14)
    assert run(problem)[0] == "no_digits"
    result = search(Sequential(restarts=0), problem, 1000)
    assert result.state.posterior.log_evidence == result.state.objective
    exact = float(oracle.mp_log_evidence(dense(problem)[:, result.state.active], t, result.state.posterior.alpha, 1e12))
    assert result.state.objective == pytest.approx(exact, rel=1e-9)


def test_the_result_has_the_exact_posterior_and_its_history():
    problem = sinc()
    result = search(Sequential(), problem, 1000)
    p = result.state.posterior
    assert result.status is Status.CONVERGED and result.state.largest_gain <= 1e-4
    exact = oracle.log_evidence(dense(problem)[:, result.state.active], problem.target, p.alpha, p.beta)
    assert result.state.objective == pytest.approx(exact, abs=1e-8)
    assert result.history[0].action == "start" and result.n_iter >= len(result.history) - 1
    assert search(Sequential(), problem, 2).status is Status.MAX_ITER
    assert search(Sequential(), replace(problem, clock=Clock(1e-9)), 1000).status is Status.TIME_LIMIT


def test_a_search_that_is_interrupted_says_so(monkeypatch):
    rng = np.random.default_rng(0)
    problem = problem_of(DenseDesign(rng.normal(size=(300, 300))), rng.normal(size=300), noise_variance=1e-3)
    with watch(lambda progress: True):
        assert search(Sequential(), problem, 10_000).status is Status.INTERRUPTED


@pytest.mark.parametrize("seed", range(6))
def test_a_certificate_that_has_all_digits_is_not_made_again(seed, monkeypatch):
    problem = sinc(N=60, seed=seed)
    factors = module.with_orthogonal_factors
    monkeypatch.setattr(module, "with_orthogonal_factors", None)
    result = search(Sequential(), problem, 1000)
    p = result.state.posterior
    again = replace(problem, start=Start(result.state.active, p.alpha, p.beta))
    exact = factors(Sequential(restarts=0), again, 1000)
    assert result.status is exact.status is Status.CONVERGED and exact.n_iter <= 3
    assert result.state.objective == pytest.approx(exact.state.objective, abs=1e-7)
    assert result.state.largest_gain == pytest.approx(exact.state.largest_gain, abs=1e-7)


def test_a_certificate_that_lacks_digits_is_made_again(monkeypatch):
    asked, factors = [], module.with_orthogonal_factors
    monkeypatch.setattr(module, "with_orthogonal_factors", lambda *given: asked.append(given) or factors(*given))
    Phi, t = sinc_problem()
    close = np.column_stack([Phi, Phi[:, 0] + 1e-7 * Phi[:, 5]])
    result = search(Sequential(restarts=0), problem_of(DenseDesign(close), t), 1000)
    assert result.status is Status.CONVERGED
    for solver, problem, *_ in asked:
        assert isinstance(problem.start, Start) and solver.restarts == 0


@pytest.mark.parametrize("seed", [1, 7, 8, 12])
def test_the_updates_of_mackay_and_em_end_no_higher_under_the_flat_prior(seed):
    rng = np.random.default_rng(seed)
    X, Z = rng.uniform(-3.0, 3.0, (40, 2)), rng.uniform(-3.0, 3.0, (16, 2))
    truth = np.exp(-((X[:, None] - Z) ** 2).sum(2) / 9.0) @ rng.normal(size=16)
    y = truth + 0.1 * truth.std() * rng.normal(size=40)
    own, *others = (
        RVR(kernel="matern52", width=3.0, solver=solver).fit(X, y).log_marginal_likelihood_
        for solver in (Sequential(support_prior="flat"), "mackay", "em")
    )
    assert own >= max(others) - 0.1
