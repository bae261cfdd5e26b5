"""The Laplace search in C does what the one in Python does."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import golden
from relvec.basis import Concat, KernelBasis
from relvec.design import DenseDesign, FactorDesign, scan_design
from relvec.inference.laplace import laplace
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.kernels import Gaussian
from relvec.solvers import Sequential
from relvec.solvers.laplace import compiled as _laplace_compiled
from relvec.solvers.laplace.moves import exchange, grow, shrink
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, relax
from relvec.solvers.laplace.scan import alike, overlaps, scan
from relvec.solvers.laplace.solve import solve_laplace

pytestmark = pytest.mark.skipif(_laplace_compiled._laplace_engine is None, reason="the C extension was not built")


def problem_of(likelihood, n=80, seed=0, weights=None):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-3, 3, (n, 1)), axis=0)
    Phi = np.column_stack([np.exp(-((X - X.T) ** 2)), np.ones(n)])
    f = 2.0 * np.sin(1.5 * X[:, 0])
    t = (rng.uniform(size=n) < 1 / (1 + np.exp(-f))) if isinstance(likelihood, Bernoulli) else rng.poisson(np.exp(f))
    weights = np.ones(n) if weights is None else weights
    return LaplaceProblem(DenseDesign(Phi), t.astype(float), weights, likelihood, np.arange(n + 1), bias=n)


def in_python(monkeypatch):
    monkeypatch.setenv("RELVEC_PURE_PYTHON", "1")


def same(a, b, accuracy=1e-8):
    np.testing.assert_array_equal(a.active, b.active)
    assert a.objective == pytest.approx(b.objective, abs=accuracy)
    np.testing.assert_allclose(a.alpha, b.alpha, rtol=1e-5)
    np.testing.assert_allclose(a.posterior.mean, b.posterior.mean, rtol=1e-5)


LIKELIHOODS = [Bernoulli(), Poisson()]


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("weighted", [False, True])
def test_mode(likelihood, weighted):
    weights = np.random.default_rng(1).uniform(0.5, 3.0, 80) if weighted else np.ones(80)
    problem = problem_of(likelihood, weights=weights)
    Phi, alpha, start = problem.design.columns([5, 40, 80]), np.array([0.1, 1.0, 0.01]), np.array([1.0, -3.0, 20.0])
    found = _laplace_compiled.mode(likelihood, Phi, problem.target, weights, alpha, start, problem.constant).posterior
    exact = laplace(Phi, problem.target, weights, alpha, likelihood, start)
    for name in ("mean", "root", "f", "r", "W", "log_evidence", "gamma"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_precisions_move_alike(likelihood, monkeypatch):
    problem, units = problem_of(likelihood), np.array([3, 20, 21, 45, 80])
    model = LaplaceModel(problem, units, problem.posterior(units, np.full(5, 0.1)))
    found, expected = relax(model, 60)
    in_python(monkeypatch)
    same(found, relax(model, 60)[0])
    assert len(found.active) < 5 and expected < 1e-5


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_moves_are_the_same(likelihood, monkeypatch):
    problem, units = problem_of(likelihood), np.array([3, 20, 45])
    model = LaplaceModel(problem, units, problem.posterior(units, np.full(3, 0.1))).relax(20)
    found = scan(model)
    moves = [
        lambda: grow(model, found, 4, 1e-3), lambda: grow(model, found, 1, 1e-3),
        lambda: shrink(model, 1e-3), lambda: exchange(model, found, 1e-3),
    ]  # fmt: skip
    compiled = [move() for move in moves]
    assert sum(new is not None for new, _ in compiled) >= 2
    in_python(monkeypatch)
    for (new, gain), (other, other_gain) in zip(compiled, [move() for move in moves], strict=True):
        if new is None:
            assert other is None and gain == pytest.approx(other_gain, abs=1e-7)
        else:
            same(new, other)
            assert new.atom == other.atom


@pytest.mark.parametrize("case", ["e", "f"])
def test_whole_searches_agree(case, monkeypatch):
    g = golden.load(case)
    likelihood = Bernoulli() if case == "e" else Poisson()

    def run():
        design = DenseDesign(np.array(g.Phi))
        problem = LaplaceProblem(
            design, g.t.astype(float), np.ones(len(g.t)), likelihood, np.arange(design.n_atoms), bias=g.bias_col
        )
        return solve_laplace(Sequential(), problem, 1000)

    compiled = run()
    in_python(monkeypatch)
    pure = run()
    np.testing.assert_array_equal(compiled.state.active, pure.state.active)
    assert compiled.state.objective == pytest.approx(pure.state.objective, abs=1e-8)
    assert [s.action for s in compiled.history] == [s.action for s in pure.history]


def test_a_factored_dictionary_ends_at_exact_columns(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.unique(rng.uniform(-2, 2, (700, 2)), axis=0)
    t = (rng.uniform(size=len(X)) < 1 / (1 + np.exp(-3 * np.sin(2 * X[:, 0])))).astype(float)
    basis = Concat((KernelBasis(Gaussian(1.5)), "bias")).bind(X)
    design = scan_design(basis, X)
    assert isinstance(design, FactorDesign) and design.native_arrays is not None

    def run():
        problem = LaplaceProblem(
            scan_design(basis, X), t, np.ones(len(X)), Bernoulli(), np.arange(len(X) + 1), bias=len(X)
        )
        return solve_laplace(Sequential(), problem, 1000)

    compiled = run()
    assert np.all(np.diff([step.objective for step in compiled.history]) >= 0.0)
    p = compiled.state.posterior
    columns = DenseDesign(basis(X)).columns(compiled.state.active)
    exact = laplace(columns, t, np.ones(len(X)), p.alpha, Bernoulli())
    assert compiled.state.objective == pytest.approx(exact.log_evidence, abs=1e-6)
    in_python(monkeypatch)
    assert compiled.state.objective == pytest.approx(run().state.objective, abs=0.5)


def test_what_c_cannot_do_is_done_in_python(monkeypatch):
    problem = problem_of(Bernoulli())
    Phi = problem.design.columns([5, 40])
    twins = np.column_stack([Phi[:, 0], Phi[:, 0] + 1e-6 * Phi[:, 1]])
    none = _laplace_compiled.mode(Bernoulli(), twins, problem.target, problem.weights, np.full(2, 1e-12), None, 0.0)
    assert none is None  # the normal equations would lose digits
    apart = _laplace_compiled.mode(Bernoulli(), Phi, problem.target, problem.weights, np.full(2, 1e-12), None, 0.0)
    exact = laplace(Phi, problem.target, problem.weights, np.full(2, 1e-12), Bernoulli())
    found = problem.posterior(np.array([5, 40]), np.full(2, 1e-12))
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)
    assert apart.posterior.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)  # large, but far from each other
    monkeypatch.setattr(_laplace_compiled, "_MOST", 2)
    few = solve_laplace(Sequential(restarts=1), problem, 500)
    in_python(monkeypatch)
    assert few.state.objective == pytest.approx(
        solve_laplace(Sequential(restarts=1), problem, 500).state.objective, abs=1e-6
    )


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson()], ids=["classes", "counts"])
def test_many_samples_are_shared_among_threads(likelihood, monkeypatch):
    """The sums are those of one thread, to the last digit, and those of Python to rounding."""
    n, rng = 20_011, np.random.default_rng(0)
    Phi = np.asfortranarray(np.exp(-((rng.uniform(-3, 3, n)[:, None] - np.array([-2.0, 0.0, 1.0])) ** 2)))
    t = (rng.random(n) < 0.5 + 0.4 * np.sin(Phi[:, 0])).astype(float) if isinstance(likelihood, Bernoulli) else (
        rng.poisson(1.0 + Phi[:, 1]).astype(float))  # fmt: skip
    weights, alpha = rng.uniform(0.5, 2.0, n), np.array([0.1, 1.0, 3.0])
    exact = laplace(Phi, t, weights, alpha, likelihood)
    constant, kept = likelihood.constant(t, weights), np.zeros(3, bool)
    found = []
    for threads in (1, 2, 3, 50):
        monkeypatch.setattr(_laplace_compiled, "n_threads", lambda threads=threads: threads)
        mode = _laplace_compiled.mode(likelihood, Phi, t, weights, alpha, None, constant).posterior
        moved = _laplace_compiled.relax(likelihood, mode, t, weights, kept, 5, 1e-6, 0.0, 0.0, constant).posterior
        found.append((mode.log_evidence, moved.log_evidence, *mode.mean, *moved.alpha))
    assert all(each == found[0] for each in found)
    assert found[0][0] == pytest.approx(exact.log_evidence, rel=1e-12) and found[0][1] > found[0][0]
    np.testing.assert_allclose(found[0][2:5], exact.mean, rtol=1e-7)


def test_closed_atoms_are_not_added_in_c():
    problem = problem_of(Bernoulli())
    p = problem.posterior(np.array([80]), np.ones(1))

    def added(closed):
        shut = replace(problem, closed=frozenset(closed))
        return _laplace_compiled.move(shut, _laplace_compiled.GROW, np.array([80]), p, frozenset(), 1, 1e-3)[2]

    first = added([])
    second = added([first])
    assert len({first, second, added([first, second]), 80}) == 4


def test_arrays_that_do_not_fit_are_refused():
    problem = problem_of(Bernoulli())
    Phi = problem.design.columns([5, 40])
    with pytest.raises(ValueError, match="bytes, expected"):
        _laplace_compiled.mode(Bernoulli(), Phi, problem.target[1:], problem.weights, np.ones(2), None, 0.0)
    p = problem.posterior(np.array([5, 40]), np.ones(2))
    with pytest.raises(ValueError, match="do not fit"):
        _laplace_compiled.move(problem, _laplace_compiled.GROW, np.array([5, 900]), p, frozenset(), 1, 1e-3)


def test_the_correlation_of_one_candidate_is_a_row_of_all():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    Phi = np.exp(-((X[:, None] - X) ** 2).sum(-1))
    problem = LaplaceProblem(DenseDesign(Phi), (X[:, 0] > 0.2).astype(float), np.ones(60), Bernoulli(), np.arange(60))
    units = np.array([3, 17])
    model = LaplaceModel(problem, units, problem.posterior(units, np.ones(2)))
    found, others = scan(model), np.array([1, 8, 40])
    expected = overlaps(model, found, np.array([5, 1, 8, 40]))[0, 1:]
    np.testing.assert_allclose(alike(model, found, 5, others), expected, rtol=1e-9)
    assert np.ptp(expected) > 0.01


def test_what_is_searched_in_c(monkeypatch):
    def asked(rates=None, size=100.0, arrays=(), likelihood=None):
        design = SimpleNamespace(scan_size=size, native_arrays=arrays)
        return _laplace_compiled.searches(SimpleNamespace(
            likelihood=likelihood or Bernoulli(), target=np.zeros(2), prior_b=rates, design=design))  # fmt: skip

    assert asked() and asked(size=4e6) and asked(likelihood=Poisson())
    assert not asked(np.ones(3)) and not asked(size=4e6 + 1.0) and not asked(size=0.0) and not asked(arrays=None)
    assert not asked(likelihood=Categorical(3))
    few, target = Bernoulli(), np.zeros(2)
    assert _laplace_compiled.in_use(few, 60, target) and not _laplace_compiled.in_use(few, 61, target)
    assert not _laplace_compiled.in_use(few, 1, [0.0, 1.0])
    in_python(monkeypatch)
    assert not asked() and not _laplace_compiled.in_use(few, 1, target)
