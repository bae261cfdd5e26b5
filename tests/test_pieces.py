"""The pieces of the searches, one at a time: proposals, thresholds and formulas against their definitions."""

import time
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

import oracle
from relvec.design import DenseDesign
from relvec.inference.laplace import (
    LaplacePosterior,
    _approach,
    _curved,
    _factor,
    _factor_on_device,
    _Here,
    _two_loops,
    laplace,
)
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.inference.priors import GammaPrior
from relvec.runtime import arrays as _xp
from relvec.solvers import EM, MacKay, Problem, Sequential, Status
from relvec.solvers import active_set as _columns
from relvec.solvers import fixed_point as _fixed_point
from relvec.solvers.fixed_point import _FixedPoint, _scan
from relvec.solvers.gaussian import moves as _moves
from relvec.solvers.gaussian.newton import coarse
from relvec.solvers.laplace import search as _laplace_search
from relvec.solvers.laplace.fixed_point import LaplaceFixedPoint, laplace_solver
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, _with_secants, deletion_gains
from relvec.solvers.laplace.scan import Scan, alike, overlaps, scan, shared_optimum, swaps
from relvec.solvers.loop import Start, State, Step, _fraction

BETA = 20.0


def dictionary(N=30, M=40, seed=0, width=2.0**0.5):
    """Columns of unit norm that overlap, and a target."""
    rng = np.random.default_rng(seed)
    x, z = np.linspace(-4.0, 4.0, N), np.sort(rng.uniform(-4.0, 4.0, M))
    Phi = np.exp(-((x[:, None] - z) ** 2) / width**2) * rng.choice([-1.0, 1.0], M)
    t = np.sin(2.0 * x) + 0.2 * rng.standard_normal(N)
    return DenseDesign(Phi), t


def problem_of(design, t, **options):
    given = {"target_norm2_outside": 0.0, "n_samples": float(len(t)), "noise_variance": None, "noise_start": 0.1,
             "noise_floor": 1e-8, "order": np.arange(design.n_atoms)[::-1].copy()}  # fmt: skip
    return Problem(design=design, target=t, **given | options)


def model_of(active=(3, 12, 25), alpha=(0.3, 1.0, 2.0), **options):
    """A problem and a model of a few of its atoms, alone."""
    design, t = dictionary()
    problem = problem_of(design, t, **options)
    active = np.array(active)
    return problem, active, _columns._alone(problem, active, np.array(alpha, float), BETA)


# Long dictionaries


def dense_gains(problem, active, alpha, closed):
    """What each atom that may be named would gain, and each exchange (k, M): by the dense evidence, twice."""
    Phi, t = problem.design.columns(np.arange(problem.design.n_atoms)), problem.target
    adds, swapped = np.full(Phi.shape[1], -np.inf), np.full((len(active), Phi.shape[1]), -np.inf)
    for j in np.setdiff1d(np.arange(Phi.shape[1]), closed):
        adds[j] = oracle.gain_add(Phi, active, t, alpha, BETA, j)
        for row, i in enumerate(active):
            swapped[row, j] = oracle.gain_exchange(Phi, active, t, alpha, BETA, i, j)
    return adds, swapped


PLACES = [None, "torch:cpu", "array_api_strict"]


@pytest.fixture(params=PLACES)
def put(request):
    if request.param is None:
        return lambda x: x
    pytest.importorskip(request.param.partition(":")[0])
    return _xp.as_device(request.param).to_device


@pytest.mark.parametrize("start", [0, 7])
def test_what_a_piece_of_a_dictionary_offers(put, start):
    problem, active, model = model_of()
    closed = np.array([3, 8, 9, 12, 25, 30])
    look = _columns.ScanTask(model, active, closed, True, 4, 3, 1e-3, 0.0)
    atoms = np.arange(start, 38)
    found = look(atoms, put(problem.design.project(model.frame.directions)[:, atoms]))
    adds, swapped = dense_gains(problem, active, np.array([0.3, 1.0, 2.0]), closed)
    adds[:start], adds[38:], swapped[:, :start], swapped[:, 38:] = -np.inf, -np.inf, -np.inf, -np.inf
    assert set(found.atoms) == {j for j in np.argsort(-adds)[:4] if adds[j] > 1e-3} and len(found.atoms) > 1
    np.testing.assert_allclose(found.gains, adds[found.atoms], rtol=1e-6)
    for row in range(3):
        partners = found.partners[found.leaving == row]
        assert set(partners) == {j for j in np.argsort(-swapped[row])[:3] if swapped[row, j] > -1.0}
        np.testing.assert_allclose(
            found.partner_gains[found.leaving == row], swapped[row, partners], rtol=1e-6, atol=1e-9
        )
    assert len(found.partners) > 3
    assert found.largest == pytest.approx(max(adds.max(), swapped.max()), rel=1e-6)


def test_a_piece_of_nothing_but_the_model_offers_nothing(put):
    problem, active, model = model_of()
    look = _columns.ScanTask(model, active, active, True, 4, 3, 1e-3, 0.0)
    projected = put(problem.design.project(model.frame.directions)[:, [12]])
    found = look(np.arange(12, 13), projected)
    assert found.largest == 0.0 and not len(found.atoms) and not len(found.partners)
    alone = _columns.ScanTask(model, active, active, False, 4, 3, 1e-3, 0.0)
    assert not len(alone(np.arange(2), put(problem.design.project(model.frame.directions)[:, :2])).partners)


def test_a_blurred_sweep_promises_less():
    problem, active, model = model_of()
    projected = problem.design.project(model.frame.directions)
    gains = [
        _columns.ScanTask(model, active, active, True, 3, 2, 0.0, blur)(np.arange(40), projected).gains
        for blur in (0.0, 0.1)
    ]
    S, Q = oracle.S_Q(problem.design.columns(np.arange(40)), problem.design.columns(active), problem.target,
                      np.array([0.3, 1.0, 2.0]), BETA)  # fmt: skip
    ratio = np.maximum(Q**2 / (S + 0.1 * BETA), 1.0)
    ratio[active] = 1.0
    np.testing.assert_allclose(gains[1], np.sort(0.5 * (ratio - 1.0 - np.log(ratio)))[::-1][:3], rtol=1e-9)
    assert np.all(gains[1] < gains[0])


def test_atoms_worth_a_look(monkeypatch):
    problem, active, model = model_of()
    adds, swapped = dense_gains(problem, active, np.array([0.3, 1.0, 2.0]), active)
    for tol, exchanging in ((1e-3, True), (1e-3, False), (5.0, True)):
        few = replace(problem, tol=tol)
        entering, largest = _columns._promising(few, active, model, exchanging, active[:0])
        expected = {j for j in np.argsort(-adds)[:64] if adds[j] > tol}
        if exchanging:
            expected |= {j for row in swapped for j in np.argsort(-row)[:4] if row[j] > -1.0}
        assert set(entering) == expected and list(entering) == sorted(expected)
        assert largest == pytest.approx(max(adds.max(), swapped.max() if exchanging else -np.inf))
    problem.design.max_active_set = 19  # 40 atoms are then more than two searches take
    counts = []
    monkeypatch.setattr(_columns, "ScanTask", lambda *told: counts.append(told[4:6]) or SimpleNamespace(
        combined=None, best=lambda offers: offers))  # fmt: skip
    monkeypatch.setattr(type(problem.design), "scan", lambda self, Y, look, combined: _columns.Candidates(
        1.0, np.zeros(1, int), np.ones(1)))  # fmt: skip
    for at_once in (19, 20):
        problem.design.max_active_set = at_once
        _columns._promising(problem, active, model, True, active[:0])
    assert counts == [(2048, 128), (64, 4)]


def test_the_largest_ratios(put):
    S = np.array([[1.0, 4.0], [2.0, 1.0], [0.0, 1.0], [3.0, -1.0], [5.0, 2.0]])
    Q = np.array([[1.0, 4.0], [4.0, 1.0], [9.0, 3.0], [1.0, 9.0], [5.0, 1.0]])
    known = np.array([[1.0], [1.0], [1.0], [1.0], [0.0]])
    at, s, q = _columns._best_ratios(put(S), put(Q), put(known), 2)
    assert [set(at[:, 0]), set(at[:, 1])] == [{0, 1}, {0, 2}]  # ratios 1, 8, -, 1/3, - and 4, 1, 9, -, -
    np.testing.assert_array_equal(s, np.take_along_axis(S, at, 0))
    np.testing.assert_array_equal(q, np.take_along_axis(Q, at, 0))
    at, s, _ = _columns._best_ratios(put(S), put(Q), put(known), 5)
    assert np.all(s[at == 4] == 0.0) and np.all(s[(at == 2)[:, 0], 0] == 0.0)


def test_the_best_of_two_pieces():
    _, active, model = model_of()
    look = _columns.ScanTask(model, active, active, True, 2, 1, 0.0, 0.0)

    def offers(largest, *columns):
        return _columns.Candidates(largest, *(np.array(column) for column in columns))

    a = offers(5.0, [1, 2], [5.0, 1.0], [0, 2], [3, 4], [2.0, -0.5])
    b = offers(6.0, [7, 8], [3.0, 0.5], [0, 0], [9, 10], [1.0, 4.0])
    both = look.combined(a, b)
    assert both.largest == 6.0 and both.atoms.tolist() == [1, 2, 7, 8] and both.partners.tolist() == [3, 4, 9, 10]
    best = look.best(both)
    assert best.atoms.tolist() == [1, 7] and best.gains.tolist() == [5.0, 3.0]
    assert best.leaving.tolist() == [0, 2] and best.partners.tolist() == [10, 4]
    many = look.combined(both, both)  # more than twice as many as are named
    assert many.atoms.tolist() == [1, 1] and many.partners.tolist() == [10, 4]


def test_the_first_part_of_a_dictionary():
    design, t = dictionary(M=200)
    design.scale[17] = 0.0
    problem = problem_of(design, t)
    part = _columns._first_part(problem, 50)
    assert len(np.unique(part)) == len(part) in (49, 50) and part.dtype == np.intp and 17 not in part
    assert _columns._first_part(problem, 500).tolist() == [j for j in range(200) if j != 17]
    # drawn by content, not by place
    shuffled = np.random.default_rng(1).permutation(200)
    other = _columns._first_part(replace(problem, order=shuffled), 50)
    ranks = [set(p.order[_columns._first_part(p, 50)]) for p in (problem, replace(problem, order=shuffled))]
    assert len(ranks[0] ^ ranks[1]) <= 2 and set(other) != set(part)
    # with what is essential and what a start has
    given = replace(problem, essential=np.array([180, 17]), start=Start(np.array([5]), np.ones(1), 1.0),
                    draw=lambda size: np.arange(size) + 20)  # fmt: skip
    assert _columns._first_part(given, 3).tolist() == [5, 20, 21, 22, 180]


@pytest.mark.parametrize("bias", [-1, 0, 5, 9])
def test_a_problem_with_some_of_its_atoms(bias):
    design, t = dictionary()
    start = Start(np.array([9, 20]), np.ones(2), 3.0)
    problem = problem_of(design, t, bias=bias, essential=np.array([1]), draw=lambda size: None)
    few = _columns._restricted(problem, np.array([0, 9, 20, 31]), start, 0.25)
    assert (
        few.bias == {-1: -1, 0: 0, 5: -1, 9: 1}[bias]
        and few.tol == 0.25
        and few.draw is None
        and not len(few.essential)
    )
    assert few.start.active.tolist() == [1, 2] and few.order.tolist() == [39, 30, 19, 8]
    np.testing.assert_array_equal(few.design.columns([2]), design.columns([20]))
    assert _columns._restricted(problem, np.array([0, 9]), None, 0.25).start is None


class Imprecise(DenseDesign):
    """Whose sweeps name atoms that gain nothing."""

    def scan(self, Y, function, combine):
        projected = self.project(Y)
        projected[-1, ::5] += 3.0
        return function(np.arange(self.n_atoms), projected)


@pytest.mark.parametrize("most", [3, 4])
def test_so_many_rounds_in_a_row_are_refuted(most, monkeypatch):
    x = np.linspace(-3.0, 3.0, 40)
    Phi = np.exp(-((x[:, None] - np.linspace(-3.5, 3.5, 120)) ** 2))
    t = np.sin(2.0 * x) + 0.1 * np.random.default_rng(1).standard_normal(40)
    for name, value in {"_LONG": 60, "_PART": 24, "_ENTER": 2, "_PARTNERS": 1, "_REFUTED": most}.items():
        monkeypatch.setattr(_columns, name, value)
    supports, promising = [], _columns._promising

    def told(problem, active, *given):
        supports.append(tuple(sorted(active)))
        return promising(problem, active, *given)

    monkeypatch.setattr(_columns, "_promising", told)
    found = _columns.solve(Sequential(restarts=0), problem_of(Imprecise(Phi), t / np.sqrt(np.mean(t**2))), 1000)
    assert found.status is Status.STALLED and found.state.largest_gain > 1e-3
    # the model is found once, then again in every round that is refuted, one more of them than are let pass
    assert supports[-most - 2 :] == [supports[-1]] * (most + 2) and supports[-most - 3] != supports[-1]


def test_gains_are_made_anew_at_the_joints():
    steps = [Step("add", 1, 9.0, value, 1, 0.1) for value in (1.0, 3.0, 3.5)]
    assert [step.gain for step in _columns._monotone(steps)] == [0.0, 2.0, 0.5]


# Fixed points


@pytest.mark.parametrize("noise", [None, 0.05])
def test_fixed_points_begin_with_every_atom(noise):
    design, t = dictionary()
    design.scale[5] = 0.0
    problem = problem_of(design, t, noise_variance=noise)
    state = MacKay().init(problem)
    assert state.active.tolist() == [j for j in range(40) if j != 5] and state.notes.steps == 0
    assert state.posterior.beta == pytest.approx(1.0 / (noise or 0.1))
    np.testing.assert_allclose(
        state.posterior.alpha, (1.0 + 1e-3 * problem.order[state.active] / 40) / 30.0, rtol=1e-15
    )
    rates = np.linspace(0.0, 200.0, 40)
    bounded = MacKay().init(replace(problem, prior=GammaPrior(a=0.3, b=1.0), prior_b=rates)).posterior.alpha
    with np.errstate(divide="ignore"):
        expected = np.minimum(state.posterior.alpha, 1.6 / (2.0 * rates[state.active]))
    np.testing.assert_allclose(bounded, expected, rtol=1e-15)
    assert 5 < np.sum(bounded < state.posterior.alpha) < 35


@pytest.mark.parametrize("noise", [None, 0.05])
@pytest.mark.parametrize(("solver", "update"), [(MacKay(), oracle.mackay_step), (EM(), oracle.em_step)])
def test_a_step_of_a_fixed_point_is_that_of_the_paper(solver, update, noise):
    design, t = dictionary(M=8)
    prior = GammaPrior(a=0.1, b=0.2, c=0.3, d=0.4)
    problem = problem_of(design, t, noise_variance=noise, prior=prior, prior_b=np.linspace(0.1, 0.5, 8), prior_d=0.4)
    state, Phi = solver.init(problem), design.columns(np.arange(8))
    for _ in range(3):
        p = state.posterior
        alpha, beta = update(Phi, t, p.alpha, p.beta, a=0.1, b=problem.prior_b, c=0.3, d=0.4)
        state = solver.step(problem, state)
        np.testing.assert_allclose(state.posterior.alpha, alpha, rtol=1e-7)
        assert state.posterior.beta == pytest.approx(p.beta if noise else beta, rel=1e-7)


@pytest.mark.parametrize(("c", "moves"), [(0.2, False), (0.9, True)])
def test_noise_that_the_samples_do_not_tell_stays(c, moves):
    """T01 eq. (18) has the sign of n + 2c less the sum of gamma, here of two atoms that the data decide."""
    design, t = dictionary()
    problem = problem_of(design, t, n_samples=0.5, prior=GammaPrior(c=c))
    alpha = np.full(2, 1e-9)
    p = _fixed_point._posterior(problem, design.columns([4, 30]), alpha, BETA)
    assert 1.9 < p.gamma.sum() < 2.1
    state = State(np.array([4, 30]), p, -np.inf, notes=_fixed_point._Notes(design.columns([4, 30]), 0))
    found = MacKay()._update(problem, state.notes.columns, state, 0.0)
    assert bool(found.beta != BETA) is moves


@pytest.mark.parametrize(("tol", "settled", "stuck", "done"), [
    (1.0, True, False, False), (3.0, True, False, True), (2.0, True, False, True), (3.0, False, False, False),
    (1.0, False, True, True),
])  # fmt: skip
def test_under_a_prior_a_fixed_point_ends_where_its_slope_does(tol, settled, stuck, done, monkeypatch):
    monkeypatch.setattr(_fixed_point, "_largest_gradient", lambda problem, state: 2.0)
    state = State(np.arange(1), SimpleNamespace(), 0.0, notes=_fixed_point._Notes(np.ones((2, 1)), 0))
    problem = SimpleNamespace(prior_b=np.ones(1), tol=tol)
    found = MacKay()._reconsider(problem, state, settled, stuck)
    assert found.done is done and found.largest_gain == 2.0


def test_statistics_of_every_atom_at_a_fixed_point():
    design, t = dictionary()
    problem, alpha = problem_of(design, t), np.array([0.5, 2.0])
    S, Q = _scan(problem, _fixed_point._posterior(problem, design.columns([4, 9]), alpha, BETA))
    columns = design.columns(np.arange(40))
    expected = oracle.S_Q(columns, columns[:, [4, 9]], t, alpha, BETA)
    np.testing.assert_allclose(S, expected[0], atol=1e-10)
    np.testing.assert_allclose(Q, expected[1], atol=1e-10)


@dataclass(frozen=True)
class Told(_FixedPoint):
    """A fixed point whose next posterior is given, and which tells how it is reconsidered."""

    next: object = None

    def _update(self, problem, columns, state, b):
        return self.next

    def _reconsider(self, problem, state, settled, stuck):
        return state.stepped(largest_gain=10.0 * settled + stuck)


@pytest.mark.parametrize(
    ("rise", "steps", "expected"),
    [(1.1e-5, 0, np.inf), (0.9e-5, 0, 10.0), (1.1e-5, 24, 0.0), (0.9e-5, 24, 10.0), (1.1e-5, 25, np.inf),
     (0.9e-11, 0, 11.0), (1.1e-11, 0, 10.0), (0.0, 3, 11.0)],
)  # fmt: skip
def test_when_a_fixed_point_is_reconsidered(rise, steps, expected):
    gamma, alpha = np.full(2, 0.5), np.ones(2)
    problem = SimpleNamespace(prior_b=None, tol=1e-3, objective=lambda active, p: p.objective)
    before = SimpleNamespace(alpha=alpha, gamma=gamma, objective=-100.0)
    after = SimpleNamespace(alpha=alpha, gamma=gamma, objective=-100.0 + rise)
    notes = _fixed_point._Notes(np.ones((3, 2)), steps)
    found = Told(next=after).step(problem, State(np.arange(2), before, -100.0, notes=notes))
    assert found.largest_gain == expected and found.notes.steps == steps + 1 and found.action == "reestimate"


def test_what_a_fixed_point_prunes(monkeypatch):
    """Below gamma, above alpha, where the objective does not fall, and nothing under a prior."""
    after = SimpleNamespace(alpha=np.array([1.0, 9.0, 11.0, 1.0]), gamma=np.array([0.5, 0.5, 0.5, 0.09]), beta=BETA,
                            objective=0.0)  # fmt: skip
    values = {2: 0.0}
    monkeypatch.setattr(_fixed_point, "_posterior", lambda problem, columns, alpha, beta: SimpleNamespace(
        alpha=alpha, gamma=np.full(len(alpha), 0.5), beta=beta, objective=values[len(alpha)]))  # fmt: skip
    problem = SimpleNamespace(prior_b=None, tol=1e-3, objective=lambda active, p: p.objective)
    state = State(np.arange(4), after, 0.0, notes=_fixed_point._Notes(np.arange(8.0).reshape(2, 4), 3))
    solver = Told(next=after, prune_gamma=0.1, prune_alpha=10.0)
    found = solver.step(problem, state)
    assert found.active.tolist() == [0, 1] and found.notes.columns.shape == (2, 2)
    assert found.largest_gain == np.inf  # a support that changed is not settled
    values[2] = -1.0
    assert solver.step(problem, state).active.tolist() == [0, 1, 2, 3]
    problem.prior_b = np.zeros(4)
    values[2] = 0.0
    assert solver.step(problem, state).active.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("fixed", [False, True])
def test_an_expectation_step_that_rounding_spoils_is_shortened(fixed, monkeypatch):
    design, t = dictionary(M=6)
    problem = problem_of(design, t, noise_variance=0.1 if fixed else None)
    state = EM().init(problem)
    Phi, p = design.columns(np.arange(6)), state.posterior
    alpha, beta = oracle.em_step(Phi, t, p.alpha, p.beta)
    answers = []
    monkeypatch.setattr(_fixed_point, "not_lower", lambda new, old: answers.pop(0))
    for refused, fraction in ((0, 1.0), (1, 0.5), (2, 0.1), (3, 0.0)):
        answers[:] = [False] * refused + [True]
        found = EM()._em(problem, state.notes.columns, state, 0.0)
        np.testing.assert_allclose(found.alpha, p.alpha ** (1 - fraction) * alpha**fraction, rtol=1e-9)
        assert found.beta == pytest.approx(p.beta if fixed else p.beta ** (1 - fraction) * beta**fraction)
    answers[:] = [False] * 4
    assert EM()._em(problem, state.notes.columns, state, 0.0) is p


def test_mackays_update_keeps_within_its_bounds(monkeypatch):
    """Precisions that would be negative stay, those that run away stop at ten times where they are pruned."""
    design, t = dictionary(M=6)
    problem = problem_of(design, t, noise_floor=0.3)
    state = MacKay().init(problem)
    told = []
    monkeypatch.setattr(_fixed_point, "mackay_alpha", lambda *given: np.array([-1.0, 0.0, 1.0, 999.0, 1001.0, np.inf]))
    monkeypatch.setattr(
        _fixed_point, "_posterior", lambda problem, columns, alpha, beta: told.append((alpha, beta)) or state.posterior
    )
    solver = MacKay(prune_alpha=100.0)
    assert solver._update(problem, state.notes.columns, state, 0.0) is state.posterior
    np.testing.assert_allclose(told[0][0], [*state.posterior.alpha[:2], 1.0, 999.0, 1000.0, 1000.0])
    assert told[0][1] == pytest.approx(1.0 / 0.3)
    solver._update(replace(problem, prior_b=np.zeros(6)), state.notes.columns, state, 0.0)
    assert told[1][0][-1] == np.inf
    # where every sample is spoken for, the noise stays
    for n_samples, moves in ((state.posterior.gamma.sum() - 0.1, False), (state.posterior.gamma.sum() + 0.1, True)):
        told.clear()
        solver._update(replace(problem, n_samples=n_samples), state.notes.columns, state, 0.0)
        assert bool(told[0][1] != state.posterior.beta) is moves
    told.clear()
    prior = GammaPrior(c=0.1, d=0.1)
    few = replace(problem, n_samples=state.posterior.gamma.sum() - 0.1, prior=prior, prior_d=0.1)
    solver._update(few, state.notes.columns, state, 0.0)
    assert told[0][1] != state.posterior.beta


@pytest.mark.parametrize(("floor", "gain", "status"), [
    (1e-8, 1e-3, Status.CONVERGED), (1e-8, 1.1e-3, Status.STALLED), (1.0 / BETA, 0.0, Status.NOISE_FLOOR),
    ((1.0 - 2e-6) / BETA, 0.0, Status.CONVERGED)])  # fmt: skip
@pytest.mark.parametrize("solver", [MacKay(), Sequential()])
def test_how_a_search_says_it_ended(solver, floor, gain, status):
    problem, active, model = model_of(noise_floor=floor)
    state = State(active, model.posterior, 0.0, largest_gain=gain)
    assert solver.status(problem, state) is status
    fixed = replace(problem, noise_variance=0.05)
    assert solver.status(fixed, replace(state, largest_gain=0.0)) is Status.CONVERGED


# Proposals for classes and counts


def classes_of(share=False, exact=True, likelihood=None, monkeypatch=None, **options):
    """A model of several units of three classes (or of one output), its scan, and the same dense."""
    likelihood = likelihood or Categorical(3)
    rng = np.random.default_rng(2)
    n, M = 40, 12
    x = np.linspace(-3.0, 3.0, n)
    Phi = np.exp(-((x[:, None] - np.sort(rng.uniform(-3.0, 3.0, M))) ** 2) / 2.0)
    K = likelihood.n_outputs
    if K > 1:
        t = np.eye(K)[rng.integers(0, K, n)]
    else:
        t = rng.integers(0, 2, n).astype(float)
    weights = rng.uniform(0.5, 2.0, n)
    problem = LaplaceProblem(
        DenseDesign(Phi), t, weights, likelihood, np.arange(M)[::-1].copy(), share=share, **options
    )
    units = np.array([2, 7]) if share or K == 1 else np.array([2, 7, M + 4, 2 * M + 9])
    alpha = np.array([0.3, 1.5, 0.2, 0.7])[: len(units)]
    model = LaplaceModel(problem, units, problem.posterior(units, alpha))
    if monkeypatch is not None and not exact:
        monkeypatch.setattr("relvec.solvers.laplace.scan._EXACT", 0.0)
    return model, scan(model)


def dense_B(model, apart=False):
    """Phi'B Phi over all pairs (class, atom), T01 eq. (28); ``apart``: each class for itself."""
    problem, W = model.problem, np.asarray(model.posterior.W)
    M, K = problem.design.n_atoms, problem.K
    Phi = problem.design.columns(np.arange(M))
    if K == 1:
        return Phi.T @ (W[:, None] * Phi)
    G = np.zeros((K * M, K * M))
    for c in range(K):
        for k in range(K):
            if c == k or not apart:
                b = problem.weights * W[:, c] * ((c == k) - W[:, k])
                G[c * M : (c + 1) * M, k * M : (k + 1) * M] = Phi.T @ (b[:, None] * Phi)
    return G


def dense_places(model):
    """Where the weights of the model stand among all pairs."""
    problem, p = model.problem, model.posterior
    atoms = np.repeat(model.active, problem.K) if problem.share else model.active % problem.design.n_atoms
    return p.outputs * problem.design.n_atoms + atoms


def dense_metric(model, apart=False):
    """Phi' C^-1 Phi of all pairs in the linearised problem, and Phi'r."""
    p, G, places = model.posterior, dense_B(model, apart), dense_places(model)
    inner = G - G[:, places] @ np.linalg.inv(G[np.ix_(places, places)] + np.diag(p.alpha)) @ G[places]
    Phi = model.problem.design.columns(np.arange(model.problem.design.n_atoms))
    return inner, (Phi.T @ p.r).T.ravel()


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), Categorical(3)])
@pytest.mark.parametrize("exact", [True, False])
def test_correlations_of_candidates(likelihood, exact, monkeypatch):
    model, found = classes_of(likelihood=likelihood, exact=exact, monkeypatch=monkeypatch)
    assert found.exact is (exact or likelihood.n_outputs == 1)
    M = model.problem.design.n_atoms
    units = np.array([0, 5, 10]) if likelihood.n_outputs == 1 else np.array([0, 5, M, M + 6, 2 * M + 5, 2 * M + 10])
    G, Q = dense_metric(model, apart=not found.exact)
    np.testing.assert_allclose(np.concatenate([s.S for s in found.classes]), np.diag(G), atol=1e-8)
    np.testing.assert_allclose(np.concatenate([s.Q for s in found.classes]), Q, atol=1e-8)
    expected = G if found.exact else G + dense_B(model) - dense_B(model, apart=True)
    size = np.sqrt(np.diag(G))
    expected = np.abs(expected / np.outer(size, size))[np.ix_(units, units)]
    np.testing.assert_allclose(overlaps(model, found, units), expected, atol=1e-7)
    np.testing.assert_allclose(alike(model, found, units[0], units[1:]), expected[0, 1:], atol=1e-7)


def test_correlations_of_candidates_that_share_a_precision():
    model, found = classes_of(share=True)
    units = np.array([0, 5, 10])
    columns = model.problem.design.columns(units)
    np.testing.assert_allclose(overlaps(model, found, units), np.abs(columns.T @ columns), rtol=1e-12)
    np.testing.assert_allclose(alike(model, found, 0, units[1:]), np.abs(columns.T @ columns)[0, 1:], rtol=1e-12)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_starts_of_additions_and_their_gains(likelihood):
    model, found = classes_of(likelihood=likelihood)
    G, Q = dense_metric(model)
    S = np.diag(G)
    ratio = np.maximum(Q**2 / S, 1.0)
    gains = 0.5 * (ratio - 1.0 - np.log(ratio))
    gains[model.active] = 0.0
    np.testing.assert_allclose(found.gains, gains, atol=1e-7)
    units = np.flatnonzero(gains > 1e-6)
    assert units.size
    alpha = S[units] ** 2 / (Q[units] ** 2 - S[units])
    np.testing.assert_allclose(found.alpha[units], alpha, rtol=1e-5)
    np.testing.assert_allclose(found.start(model, units), Q[units] / (alpha + S[units]), rtol=1e-5)


def test_shared_precisions_are_proposed_near_their_optimum():
    S, Q = (
        np.array([[1.0, 4.0, 0.0, 1.0], [2.0, 1.0, 0.0, 2.0]]),
        np.array([[3.0, 9.0, 0.0, 0.1], [0.5, 2.0, 0.0, 0.1]]),
    )
    gain, alpha = shared_optimum(S, Q)
    grid = S.mean(axis=0)[:2, None] * np.exp(np.linspace(-9.0, 9.0, 37))
    for m in (0, 1):
        a = grid[m]
        values = 0.5 * sum(np.log(a / (a + S[c, m])) + Q[c, m] ** 2 / (a + S[c, m]) for c in (0, 1))
        assert gain[m] == pytest.approx(values.max()) and alpha[m] == pytest.approx(a[values.argmax()])
    assert gain[2:].tolist() == [0.0, 0.0] and np.all(np.isinf(alpha[2:]))


def without(model, place):
    """S and Q of every pair after a unit has left, with B held."""
    p, G, places = model.posterior, dense_B(model), dense_places(model)
    b = G[:, places] @ p.mean + dense_metric(model)[1]  # Phi'B t_hat
    keep = np.delete(np.arange(len(p.alpha)), place)
    rest = places[keep]
    inner = np.linalg.inv(G[np.ix_(rest, rest)] + np.diag(p.alpha[keep]))
    S = np.diag(G) - np.einsum("ij,jk,ki->i", G[:, rest], inner, G[rest])
    M = model.problem.design.n_atoms
    return S.reshape(-1, M), (b - G[:, rest] @ (inner @ b[rest])).reshape(-1, M)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(3)])
def test_the_best_exchange_of_every_unit(likelihood):
    model, found = classes_of(likelihood=likelihood, closed=(3,))
    pairs = swaps(model, found)
    M = model.problem.design.n_atoms
    assert sorted(pairs.leaving) == list(range(len(model.active)))
    lost, _ = deletion_gains(model)
    for row, place in enumerate(pairs.leaving):
        c = int(model.active[place]) // M
        S, Q = (x[c] for x in without(model, place))
        ratio = Q**2 / S
        ratio[3] = 0.0
        ratio[model.active[model.active // M == c] % M] = 0.0
        m = int(np.argmax(ratio))
        assert pairs.entering[row] == c * M + m
        best = max(ratio[m], 1.0)
        assert pairs.gain[row] == pytest.approx(lost[place] + 0.5 * (best - 1.0 - np.log(best)), rel=1e-6)
        alpha = S[m] ** 2 / max(Q[m] ** 2 - S[m], 1e-3 * S[m])
        assert pairs.alpha[row] == pytest.approx(alpha, rel=1e-5)
        assert pairs.weight[row] == pytest.approx(Q[m] / (alpha + S[m]), rel=1e-5)


def test_the_best_exchange_of_every_unit_that_shares_its_precision():
    model, found = classes_of(share=True, closed=(3,))
    pairs = swaps(model, found)
    assert pairs.leaving.tolist() == [0, 1]
    lost, _ = deletion_gains(model)
    p, M = model.posterior, model.problem.design.n_atoms
    G, r = (np.diag(x).reshape(3, M) if x.ndim == 2 else x.reshape(3, M) for x in dense_metric(model))
    cross = p.covariance @ dense_B(model)[dense_places(model)]
    for place in (0, 1):
        # each class for itself: what leaves it adds to S and Q of its own class only
        own = [cross[place * 3 + c, c * M : (c + 1) * M] for c in range(3)]
        variance, mean = (x[place * 3 : place * 3 + 3, None] for x in (p.variance, p.mean))
        S, Q = G + np.square(own) / variance, r + own * mean / variance
        ratio = (Q**2 / S).sum(axis=0)
        ratio[[2, 3, 7]] = 0.0
        m = int(np.argmax(ratio))
        assert pairs.entering[place] == m
        gain, alpha = shared_optimum(S[:, [m]], Q[:, [m]])
        assert pairs.gain[place] == pytest.approx(lost[place] + gain[0], abs=1e-6)
        a = alpha[0] if np.isfinite(alpha[0]) else 1e3 * S[:, m].mean()
        assert pairs.alpha[place] == pytest.approx(a, rel=1e-6)
        np.testing.assert_allclose(pairs.weight[place], Q[:, m] / (a + S[:, m]), rtol=1e-5)


# Posteriors of classes and counts


def weights_of(K=3, n=40, per=4, seed=0):
    """Columns and outputs of a few weights of each class, targets, sample weights and precisions."""
    rng = np.random.default_rng(seed)
    outputs = np.repeat(np.arange(K), per)[rng.permutation(K * per)] if K > 1 else np.zeros(per, int)
    Phi = rng.normal(size=(n, len(outputs)))
    label = rng.integers(0, max(K, 2), n)
    t = np.eye(K)[label] if K > 1 else label.astype(float)
    return Phi, outputs, t, rng.uniform(0.5, 2.0, n), np.exp(rng.normal(size=len(outputs)))


def dense_hessian(X, W, weights, outputs):
    """I + X'B X, pair by pair (T01 eq. (28))."""
    k = X.shape[1]
    H = np.eye(k)
    for i in range(k):
        for j in range(k):
            b = W if W.ndim == 1 else weights * W[:, outputs[i]] * ((outputs[i] == outputs[j]) - W[:, outputs[j]])
            H[i, j] += X[:, i] @ (b * X[:, j])
    return H


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("size", [1.0, 1e5])
def test_factors_of_the_hessian(K, size, put):
    Phi, outputs, _, weights, _ = weights_of(K)
    order = np.argsort(outputs, kind="stable")
    outputs, X = outputs[order], size * Phi[:, order]
    rng = np.random.default_rng(1)
    W = rng.dirichlet(np.ones(3), 40) if K > 1 else rng.uniform(size=40)
    ends = np.searchsorted(outputs, np.arange(K + 1))
    own = [slice(i, j) for i, j in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    dense = dense_hessian(X, W, weights, outputs)
    for factor in (_factor, _factor_on_device) if isinstance(put(W), np.ndarray) else (_factor,):
        U = factor(put(X), put(W), put(weights), own)
        np.testing.assert_allclose(U.T @ U, dense, rtol=1e-9, atol=1e-9 * size**2)
        assert np.all(np.tril(U, -1) == 0.0) and U.dtype == float


def test_curvature_times_latent_functions():
    rng = np.random.default_rng(0)
    W, F, weights = rng.uniform(size=6), rng.normal(size=(6, 3)), rng.uniform(0.5, 2.0, 6)
    np.testing.assert_allclose(_curved(W, weights, F), np.diag(W) @ F)
    np.testing.assert_allclose(_curved(W, weights, F[:, 0]), np.diag(W) @ F[:, 0])
    P = rng.dirichlet(np.ones(3), 6)
    B = [weights[i] * (np.diag(P[i]) - np.outer(P[i], P[i])) for i in range(6)]  # T01 eq. (28)
    np.testing.assert_allclose(_curved(P, weights, F), [B[i] @ F[i] for i in range(6)])


def test_the_step_of_bfgs_is_the_dense_one():
    rng = np.random.default_rng(0)
    root, g = rng.normal(size=(5, 5)), rng.normal(size=5)
    H, path = root @ root.T, []
    for _ in range(3):
        s = rng.normal(size=5)
        y = s + 0.3 * rng.normal(size=5)
        rho = 1.0 / float(s @ y)
        path.append((s, y, rho))
        turn = np.eye(5) - rho * np.outer(s, y)
        H = turn @ H @ turn.T + rho * np.outer(s, s)
    np.testing.assert_allclose(_two_loops(g, path, root), H @ g)
    np.testing.assert_allclose(_two_loops(g, [], root), root @ root.T @ g)


def test_secants_make_the_curvature_agree_with_the_gradients():
    rng = np.random.default_rng(1)
    H = np.diag(rng.uniform(1.0, 2.0, 4))
    x, g = rng.normal(size=(2, 4)), rng.normal(size=(2, 4))
    g[1] = g[0] - np.array([3.0, 1.0, 2.0, 0.5]) * (x[1] - x[0])
    new = _with_secants(H, list(zip(x, g, strict=True)))
    np.testing.assert_allclose(new @ (x[1] - x[0]), g[0] - g[1])
    # one that is nearly flat or bends upwards is left out
    s = x[1] - x[0]
    for part, taken in ((0.009, False), (0.011, True), (-1.0, False)):
        y = part * float(s @ H @ s) / float(s @ s) * s
        found = _with_secants(H, [(x[0], g[0]), (x[1], g[0] - y)])
        assert np.array_equal(found, H) is not taken
    assert np.array_equal(_with_secants(-H, list(zip(x, g, strict=True))), -H)
    assert np.array_equal(_with_secants(H, [(x[0], g[0])]), H)


@pytest.mark.parametrize("K", [1, 3])
def test_the_mode_does_not_depend_on_where_the_search_for_it_starts(K):
    Phi, outputs, t, weights, alpha = weights_of(K)
    likelihood = Categorical(3) if K > 1 else Bernoulli()
    found = laplace(Phi, t, weights, alpha, likelihood, outputs=outputs)
    gradient = np.array([Phi[:, i] @ (found.r[:, c] if K > 1 else found.r) for i, c in enumerate(outputs)])
    np.testing.assert_allclose(gradient, alpha * found.mean, atol=1e-9)
    rng = np.random.default_rng(3)
    for start in (found.mean, 30.0 * rng.normal(size=len(alpha)), np.full(len(alpha), 1e200)):
        with np.errstate(over="ignore", invalid="ignore"):
            again = laplace(Phi, t, weights, alpha, likelihood, start, outputs)
        np.testing.assert_allclose(again.mean, found.mean, atol=1e-9)
        assert again.log_evidence == pytest.approx(found.log_evidence, abs=1e-9)
        np.testing.assert_allclose(again.covariance, found.covariance, atol=1e-9)


def test_the_way_to_the_mode_by_gradients():
    """Ends at the mode from a fair guess; with a poor one it gives back where it stood."""
    Phi, outputs, t, weights, _ = weights_of(3)
    order = np.argsort(outputs, kind="stable")
    X, likelihood, k = Phi[:, order], Categorical(3), len(outputs)
    own = [slice(0, 4), slice(4, 8), slice(8, 12)]
    mode = laplace(X, t, weights, np.ones(k), likelihood, outputs=outputs[order])
    rows = _Here(X, t, weights, likelihood, own)
    begin = rows.at(np.zeros(k))
    found = _approach(rows, begin, mode.root)
    np.testing.assert_allclose(found.v, mode.mean, atol=1e-7)
    np.testing.assert_allclose(found.f, mode.f, atol=1e-6)
    value, r, W = likelihood.evaluate(t, found.f, weights)
    assert found.value == pytest.approx(value - 0.5 * found.v @ found.v)
    np.testing.assert_allclose(found.r, r)
    np.testing.assert_allclose(found.W, W)
    far = _approach(rows, begin, 1e5 * np.eye(k))
    assert far.value >= begin.value
    np.testing.assert_allclose(far.r, likelihood.evaluate(t, far.f, weights)[1])
    none = _approach(rows, begin, np.zeros((k, k)))
    assert none.v is begin.v and none.value == begin.value == rows.nothing


# Moves


def test_a_batch_is_of_atoms_that_hardly_overlap():
    problem, active = problem_of(*dictionary(width=0.7)), np.array([3, 12, 25])
    frame = _moves.Frame(problem.design, problem.target, 0.0)
    frame.span(active)
    model = _moves.Model(problem, frame, active, frame.posterior(active, np.array([0.3, 1.0, 2.0]), BETA, 30.0))
    S, _, T = frame.scan(model.posterior)
    gains = np.random.default_rng(4).uniform(0.2, 1.0, 40)
    gains[active] = 0.0
    first = int(np.argmax(gains))
    columns = problem.design.columns(np.arange(40))
    inverse = np.linalg.inv(oracle.covariance(columns[:, active], np.array([0.3, 1.0, 2.0]), BETA))
    G = columns.T @ inverse @ columns
    for batch in (1, 2, 3, 5):
        chosen = []
        for j in sorted(np.flatnonzero(gains >= 0.3 * gains[first]), key=lambda j: -gains[j])[: 4 * batch]:
            if len(chosen) < batch and all(abs(G[i, j]) <= 0.3 * np.sqrt(G[i, i] * G[j, j]) for i in chosen):
                chosen.append(int(j))
        assert _moves._batch(model, first, gains, S, T, batch) == chosen
    assert len(chosen) == 5
    lonely = np.where(np.arange(40) == first, 1.0, 0.29)
    assert _moves._batch(model, first, lonely, S, T, 4) == [first]


def test_equal_gains_are_told_apart_by_order():
    order = np.array([4, 3, 2, 1, 0])
    assert _moves.best(np.array([1.0, 1.0 - 2e-9, 0.5, 0.0, 0.0]), order) == 0
    assert _moves.best(np.array([1.0, 1.0 - 5e-10, 0.5, 0.0, 0.0]), order) == 1
    assert _moves.best(np.array([1e3, 1e3 - 5e-7, 0.5, 0.0, 0.0]), order) == 1  # relative above one
    assert _moves.best(np.array([1e-3, 1e-3 - 5e-10, 0.0, 0.0, 0.0]), order) == 1  # absolute below
    ratio = np.array([[2.0, 2.0, 1.0], [3.0, 1.0, 1.0]])
    assert _moves._first_of_equals(ratio, np.array([2, 1, 0])).tolist() == [1, 0]
    assert _moves._first_of_equals(ratio * [1.0, 1.0 - 2e-9, 1.0], np.array([2, 1, 0])).tolist() == [0, 0]
    assert _moves._first_of_equals(ratio, np.array([[0, 1, 2], [2, 1, 0]])).tolist() == [0, 0]


@pytest.mark.parametrize("size", [2, 3])
def test_copies_and_what_is_almost_one(size):
    columns = np.zeros((4, size))
    columns[0] = 1.0
    for angle, kept in ((1e-7, 1), (1e-5, 2)):  # 1 - cos = 5e-15 and 5e-11
        columns[:2, 1] = -np.cos(angle), np.sin(angle)
        columns[:, 2:] = np.eye(4)[:, 2:][:, : size - 2]
        keep, alpha = _moves.merge_copies(columns, np.full(size, 2.0), np.arange(size)[::-1])
        assert len(keep) == kept + size - 2
        assert alpha[0] == (1.0 if kept == 1 else 2.0) and keep[0] == (1 if kept == 1 else 0)
    keep, alpha = _moves.merge_copies(columns[:, :1], np.array([3.0]), np.arange(1))
    assert keep.tolist() == [0] and alpha.tolist() == [3.0]


@pytest.mark.parametrize("part", [1.0, 1.0 - 0.9e-6, 1.0 - 1.1e-6])
def test_the_floor_of_the_noise(part):
    problem = SimpleNamespace(fixed_noise=False, noise_floor=0.01)
    assert _moves.at_noise_floor(problem, SimpleNamespace(beta=part / 0.01)) is (part > 1.0 - 1e-6)
    problem.fixed_noise = True
    assert not _moves.at_noise_floor(problem, SimpleNamespace(beta=part / 0.01))


def test_precisions_that_newton_leaves_are_made_sharp(monkeypatch):
    """One precision at a time, the largest gain first, until no gain exceeds a tenth of tol."""
    problem, active, _ = model_of(alpha=(0.3, 1.0, 2.0), tol=1e-3)
    frame = _moves.Frame(problem.design, problem.target, 0.0)
    frame.span(active)
    model = _moves.Model(problem, frame, active, frame.posterior(active, np.array([1e9, 1e-9, 2.0]), BETA, 30.0))
    monkeypatch.setattr(_moves.Model, "relaxed", lambda self, steps, *options: self)
    sharp = model.sharpened(5)
    columns = problem.design.columns(sharp.active)
    s, q = oracle.s_q(columns, np.arange(len(sharp.active)), problem.target, sharp.posterior.alpha, BETA)
    np.testing.assert_allclose(sharp.posterior.alpha, oracle.optimal_alpha(s, q), rtol=0.1)
    assert sharp.objective > model.objective + 1.0


def test_a_model_is_trimmed_where_its_frame_holds_many_more():
    rng = np.random.default_rng(0)
    problem = problem_of(DenseDesign(rng.normal(size=(90, 80))), rng.normal(size=90))
    frame, active = _moves.Frame(problem.design, problem.target, 0.0), np.array([2, 5])
    frame.span(active)
    model = _moves.Model(problem, frame, active, frame.posterior(active, np.ones(2), BETA, 90.0), 5)
    assert model.trimmed() is model
    frame.span(np.arange(60))
    trimmed = model.trimmed()
    assert trimmed.frame.size == 2 and trimmed.atom == 5 and trimmed.objective == pytest.approx(model.objective)
    np.testing.assert_array_equal(trimmed.active, active)


def test_numbers_in_few_bits():
    assert coarse(1.0 + 2.0**-12) == 1.0 + 2.0**-12 and coarse(1.0 + 2.0**-14) == 1.0
    assert coarse(1.0 + 2.0**-14, 20) == 1.0 + 2.0**-14 and coarse(1.0 + 2.0**-21, 20) == 1.0


def test_how_far_a_search_is():
    def steps(*gains):
        return [Step("add", 0, gain, 0.0, 1, 0.1) for gain in gains]

    assert np.isnan(_fraction(steps(9.0, 8.0, 7.0, 6.0, 0.0, -1.0), 1e-3, False))
    assert _fraction(steps(9.0), 1e-3, True) == 1.0
    assert _fraction(steps(100.0, 9.0, 8.0, 0.1, 0.1, 0.1, 0.1, 0.1), 1e-3, False) == pytest.approx(
        1.0 - np.log(0.1 / 1e-3) / np.log(100.0 / 1e-3)
    )
    assert _fraction(steps(100.0, *[1e-3] * 5), 1e-3, False) == 0.95
    assert _fraction(steps(*[1e-4] * 5), 1e-3, False) == 0.95


# Fixed points and searches of classes


def test_the_solver_that_one_of_regression_stands_for():
    found = laplace_solver(Sequential(batch=7, restarts=5, time_limit=3.0))
    assert (found.batch, found.exchange, found.restarts, found.start_at_bias, found.tf03, found.time_limit) == (
        7, True, 5, False, False, 3.0)  # fmt: skip
    found = laplace_solver(Sequential(select="gain", start="bias", stop="tf03", batch=7, restarts=5))
    assert (found.batch, found.exchange, found.restarts, found.start_at_bias, found.tf03) == (1, False, 0, True, True)
    assert laplace_solver(Sequential(exchange=False)).exchange is False
    assert laplace_solver(EM(prune_alpha=5.0)) == LaplaceFixedPoint(True, np.finfo(float).eps, 5.0)
    assert laplace_solver(MacKay(time_limit=2.0)).time_limit == 2.0


@pytest.mark.parametrize("expectation", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_a_step_of_a_fixed_point_of_classes(expectation, share):
    """T01 eq. (16) or (48) with a prior, sums over the classes in place of single values where they share one."""
    prior = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.linspace(0.1, 0.4, 12)}
    model, _ = classes_of(share=share, **prior)
    problem, p = model.problem, model.posterior
    solver = LaplaceFixedPoint(expectation, 1e-16, 1e12)
    state = solver.resumed(problem, Start(model.active, model.alpha, np.nan), {})
    found = solver.step(problem, state)
    k = 3 if share else 1
    b = problem.prior_b[model.active % 12]
    total = (lambda v: v.reshape(-1, 3).sum(axis=1)) if share else (lambda v: v)
    squares, gamma, variance = total(p.mean**2), total(1.0 - p.alpha * p.variance), total(p.variance)
    new = (k + 0.6) / (squares + variance + 2 * b) if expectation else (gamma + 0.6) / (squares + 2 * b)
    np.testing.assert_allclose(found.notes.alpha, new, rtol=1e-9)
    assert found.action == "reestimate" and found.objective == pytest.approx(found.notes.objective)


@pytest.mark.parametrize("prior", [False, True])
def test_fixed_points_of_classes_begin_with_every_unit(prior):
    options = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.linspace(1.0, 80.0, 12)} if prior else {}
    problem = classes_of(**options)[0].problem
    problem.design.scale[5] = 0.0
    state = LaplaceFixedPoint(False, 1e-16, 1e12).init(problem)
    units = np.array([u for u in range(36) if u % 12 != 5])
    np.testing.assert_array_equal(state.active, units)
    alpha = np.full(33, 1.0 / problem.weights.sum())
    if prior:
        alpha = np.minimum(alpha, 1.6 / (2.0 * problem.prior_b[units % 12]))
        assert 0 < np.sum(alpha < alpha.max()) < 33
    np.testing.assert_allclose(state.notes.alpha, alpha, rtol=1e-14)


@pytest.mark.parametrize("share", [False, True])
def test_a_fixed_point_of_classes_ends_where_no_precision_moves(share, monkeypatch):
    monkeypatch.setattr(LaplaceFixedPoint, "_certificate", lambda self, model: 0.25)
    prior = {"prior": GammaPrior(a=0.3, b=0.2), "prior_b": np.linspace(0.1, 0.4, 12)}
    for tol in (1e-300, 1e-2):  # the other way to end is that the objective rests
        model, _ = classes_of(share=share, tol=tol, **prior)
        solver = LaplaceFixedPoint(False, 1e-16, 1e12)
        state, moved, rises = solver.resumed(model.problem, Start(model.active, model.alpha, np.nan), {}), [], []
        while not state.done:
            before, state = state, solver.step(model.problem, state)
            moved.append(np.abs(np.log(state.notes.alpha / before.notes.alpha)).max())
            rises.append(abs(state.objective - before.objective))
            assert len(moved) < 300
        still = [m < 1e-5 or r < 1e-3 * tol for m, r in zip(moved, rises, strict=True)]
        assert still == [False] * (len(moved) - 1) + [True] and state.largest_gain == 0.25
        assert bool(moved[-1] < 1e-5) is (tol == 1e-300)


def test_what_a_fixed_point_of_classes_prunes():
    """Below gamma (of a unit, the mean over its classes) or above alpha."""
    for share in (False, True):
        model, _ = classes_of(share=share)
        problem = model.problem
        gamma = problem.gather(model.posterior.gamma) / problem.per_unit
        state = LaplaceFixedPoint(False, 0.0, 1e12).resumed(problem, Start(model.active, model.alpha, np.nan), {})
        least = np.sort(gamma)[0]
        fewer = LaplaceFixedPoint(False, 1.01 * least, 1e12).step(problem, state)
        np.testing.assert_array_equal(fewer.active, model.active[gamma > least])
        assert len(LaplaceFixedPoint(False, 0.99 * least, 1e12).step(problem, state).active) == len(gamma)
        new = LaplaceFixedPoint(False, 0.0, 1e12).step(problem, state).notes.alpha
        fewer = LaplaceFixedPoint(False, 0.0, 0.99 * new.max()).step(problem, state)
        np.testing.assert_array_equal(fewer.active, model.active[new < new.max()])
        np.testing.assert_allclose(fewer.notes.alpha, new[new < new.max()])


def test_exchanging_a_unit_puts_the_other_in_its_place():
    for share in (False, True):
        model, found = classes_of(share=share)
        pairs = swaps(model, found)
        for i in range(len(pairs.leaving)):
            swapped = _laplace_search._swap(model, pairs, i)
            place = pairs.leaving[i]
            expected = model.active.copy()
            expected[place] = pairs.entering[i]
            np.testing.assert_array_equal(swapped.active, expected)
            alpha = model.alpha.copy()
            alpha[place] = pairs.alpha[i]
            np.testing.assert_allclose(swapped.alpha, alpha)
            again = model.problem.posterior(expected, alpha)
            assert swapped.objective == pytest.approx(again.log_evidence, abs=1e-7)
            np.testing.assert_allclose(swapped.posterior.Phi, again.Phi)
            assert swapped.atom == pairs.entering[i]


def test_work_and_time_limit_a_search_for_classes():
    limit = _laplace_search.Limit(time.monotonic() + 60.0)
    assert limit.open(SimpleNamespace(budget=SimpleNamespace(spent=1e300)))
    assert isinstance(classes_of()[0].posterior, LaplacePosterior)


# What a fixed point does about atoms that left, or should


ALIVE = (2, 5, 17)  # atoms whose optimal precision in a model of all three is finite


def reconsidered(alpha=(0.3, 1.0, 2.0), settled=True, stuck=False, **options):
    """`_reconsider` on a model of three atoms; the problem, the state before, and after."""
    problem, active, _ = model_of(ALIVE, alpha, **options)
    columns = problem.design.columns(active)
    posterior = _fixed_point._posterior(problem, columns, np.array(alpha, float), BETA)
    objective = problem.objective(active, posterior)
    state = State(active, posterior, objective, notes=_fixed_point._Notes(columns, 5))
    return problem, state, lambda: MacKay()._reconsider(problem, state, settled, stuck)


def scanned(problem, state):
    columns = problem.design.columns(np.arange(40))
    S, Q = oracle.S_Q(columns, columns[:, state.active], problem.target, state.posterior.alpha, BETA)
    ratio = np.maximum(Q**2 / np.maximum(S, 1e-12), 1.0)
    gains = 0.5 * (ratio - 1.0 - np.log(ratio))
    gains[state.active] = 0.0
    return gains, S**2 / np.maximum(Q**2 - S, 1e-12)


def test_a_fixed_point_takes_an_atom_back_that_gains():
    problem, state, after = reconsidered()
    gains, alpha = scanned(problem, state)
    j = int(np.argmax(gains))
    found = after()
    assert (found.action, found.atom, found.done) == ("add", j, False) and found.active.tolist() == [*ALIVE, j]
    np.testing.assert_allclose(found.posterior.alpha, [0.3, 1.0, 2.0, alpha[j]], rtol=1e-6)
    assert found.objective == pytest.approx(state.objective + gains[j], rel=1e-9) and found.notes.columns.shape[1] == 4


@pytest.mark.parametrize(("rise", "taken"), [(0.9e-4, False), (1.1e-4, True)])
def test_what_the_scan_promised_must_come_true(rise, taken, monkeypatch):
    problem, state, after = reconsidered()
    gains, _ = scanned(problem, state)
    posterior = SimpleNamespace(log_evidence=state.objective + rise)
    monkeypatch.setattr(_fixed_point, "_posterior", lambda *given: posterior)
    found = after()
    assert (found.action == "add") is taken
    if not taken:  # the next best is what remains
        s, q = state.posterior.sparsity_quality()
        inside = _moves.gain_reestimate(state.posterior.alpha, s, q).max()
        assert found.largest_gain == pytest.approx(max(np.sort(gains)[-2], inside), rel=1e-6) and not found.done


@pytest.mark.parametrize(
    ("settled", "stuck", "tol", "done"),
    [(False, False, 1e9, False), (True, False, 1e9, True), (False, True, 1e-3, True), (False, False, 1e-3, False)],
)
@pytest.mark.parametrize("prior", [False, True])
def test_when_a_fixed_point_has_ended(settled, stuck, tol, done, prior):
    options = {"prior": GammaPrior(a=0.1, b=0.1), "prior_b": np.full(40, 0.1)} if prior else {}
    problem, state, after = reconsidered(settled=settled, stuck=stuck, tol=tol, **options)
    found = after()
    assert found.done is done
    if not prior:
        s, q = state.posterior.sparsity_quality()
        inside = _moves.gain_reestimate(state.posterior.alpha, s, q).max()
        assert found.largest_gain == pytest.approx(max(scanned(problem, state)[0].max(), inside), rel=1e-6)


def test_a_fixed_point_lets_go_of_what_has_no_finite_optimum(monkeypatch):
    """All such atoms at once, or where that loses the one that loses least; else it looks for additions."""
    problem, active, _ = model_of()
    columns = problem.design.columns(active)
    p = _fixed_point._posterior(problem, columns, np.array([0.3, 1.0, 2.0]), BETA)
    state = State(active, p, p.log_evidence, notes=_fixed_point._Notes(columns, 5))
    s = np.array([1.0, 2.0, 2.0])
    q = np.array([1.0, 2.0, 1.0])  # the first, just so, and the last
    monkeypatch.setattr(type(p), "sparsity_quality", lambda self: (s, q))
    inside = _moves.gain_reestimate(p.alpha, s, q)
    worst = int(np.argmax(np.where([True, False, True], inside, -np.inf)))
    answers = []
    monkeypatch.setattr(_fixed_point, "not_lower", lambda new, old: answers.pop(0))
    answers[:] = [True]
    found = MacKay()._reconsider(problem, state, False, False)
    assert found.active.tolist() == [12] and (found.action, found.atom) == ("delete", 3)
    answers[:] = [False, True]
    found = MacKay()._reconsider(problem, state, False, False)
    assert found.active.tolist() == np.delete(active, worst).tolist() and found.atom == active[worst]
    np.testing.assert_array_equal(found.posterior.alpha, np.delete(p.alpha, worst))
    answers[:] = [False, False]
    assert MacKay()._reconsider(problem, state, False, False).action == "start"
    q[:] = 9.0
    assert MacKay()._reconsider(problem, state, False, False).active.tolist() == active.tolist()


def test_a_fixed_point_keeps_one_of_several_copies():
    problem, _, _ = model_of()
    Phi = problem.design.columns(np.arange(40))
    problem = problem_of(DenseDesign(np.hstack([Phi, -Phi[:, [12]]])), problem.target)
    active, alpha = np.array([3, 12, 40]), np.array([0.3, 1.0, 1.0])
    columns = problem.design.columns(active)
    p = _fixed_point._posterior(problem, columns, alpha, BETA)
    found = MacKay()._reconsider(
        problem, State(active, p, p.log_evidence, notes=_fixed_point._Notes(columns, 5)), False, False
    )
    assert found.active.tolist() == [3, 40] and (found.action, found.atom) == ("delete", 12)  # the first in order stays
    np.testing.assert_allclose(found.posterior.alpha, [0.3, 0.5])
    assert found.objective == pytest.approx(p.log_evidence)


def test_a_start_from_which_rounding_hides_the_way_is_left():
    """With weights of 1e12 a far start has a likelihood whose digits do not tell one step from another."""
    Phi, outputs, t, _, alpha = weights_of(3)
    weights, far = np.full(40, 1e12), 1e9 * np.random.default_rng(3).normal(size=12)
    found = laplace(Phi, t, weights, alpha, Categorical(3), outputs=outputs)
    again = laplace(Phi, t, weights, alpha, Categorical(3), far, outputs)
    assert again.log_evidence == pytest.approx(found.log_evidence, rel=1e-12)
    np.testing.assert_allclose(again.mean, found.mean, rtol=1e-5)


# Ranks and counts


@pytest.mark.parametrize("K", [1, 3])
def test_units_are_ranked_by_content_and_then_by_class(K):
    order = np.array([2, 0, 3, 1])
    units = np.arange(4 * K)
    found = Scan([None] * K, True, np.arange(4), order, units, np.zeros(4 * K), np.zeros(4 * K))
    likelihood = Categorical(3) if K > 1 else Bernoulli()
    problem = LaplaceProblem(DenseDesign(np.eye(4)), np.zeros((4, K)), np.ones(4), likelihood, order)
    expected = np.lexsort((units // 4, order[units % 4]))
    for ranks in (found.rank(units), problem.rank(units)):
        assert np.array_equal(np.argsort(ranks), expected) and ranks.dtype.kind == "i"


def test_steps_of_the_textbook_are_counted():
    Phi, t = np.eye(6)[:, :4], np.array([3.0, -2.0, 1.5, 0.4, 0.1, -0.1])
    problem = problem_of(DenseDesign(Phi), t)
    solver = Sequential(select="gain", noise_every=2)
    state = solver.init(problem)
    for count in (1, 2, 3):
        state = solver.step(problem, state)
        assert state.notes.steps == count
