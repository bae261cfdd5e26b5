"""What a search does next, with stubs in place of models: which moves it tries, how far, and what it makes of them."""

import logging
import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

import oracle
from relvec.design import DenseDesign
from relvec.inference.likelihoods import Bernoulli, Poisson
from relvec.solvers import MacKay, Sequential
from relvec.solvers import sequential as _sequential
from relvec.solvers import textbook as _textbook
from relvec.solvers.gaussian import moves as _moves
from relvec.solvers.gaussian import newton as _newton
from relvec.solvers.gaussian.frame import Frame
from relvec.solvers.gaussian.moves import best_of_each
from relvec.solvers.laplace import problem as _laplace
from relvec.solvers.laplace import search as _laplace_search
from relvec.solvers.laplace.problem import WorkBudget, empty_model, relax, within_reach
from relvec.solvers.laplace.search import LaplaceSequential, Limit, _Notes
from relvec.solvers.loop import Start, State, iterate
from test_laplace import make
from test_pieces import BETA, classes_of, dictionary, model_of, problem_of


def stub_problem(**options):
    given = {"tol": 1e-3, "trusted": 0.5, "budget": WorkBudget(), "K": 1, "rank": lambda units: np.asarray(units)}
    return SimpleNamespace(**given | options)


@dataclass(frozen=True, eq=False)
class Stub:
    """A model that tells what is asked of it; ``rises`` has what so many steps on the precisions gain."""

    objective: float = 0.0
    trust: float = 1.0
    active: np.ndarray = field(default_factory=lambda: np.arange(3))
    told: list = field(default_factory=list)
    rises: dict = field(default_factory=dict)
    problem: SimpleNamespace = field(default_factory=stub_problem)
    posterior: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(beta=np.nan, alpha=np.ones(3)))
    refused: frozenset = frozenset()
    atom: int = -1

    def relaxed(self, steps):
        self.told.append(steps)
        return replace(self, objective=self.objective + self.rises.get(steps, 0.0))


@pytest.fixture(autouse=True)
def _in_python(monkeypatch):
    monkeypatch.setenv("RELVEC_PURE_PYTHON", "1")
    monkeypatch.setattr(_laplace_search, "_in_c", lambda *given: None)


# Additions

RANKED = SimpleNamespace(rank=np.asarray)


def grow(monkeypatch, joined, gains=(5.0, 3.0, 1e-3), rises=None, trust=1.0, alike=None, batch=2):
    """`grow` where adding so many units leads to ``joined[len]``; what was tried, and what was found."""
    tried = []
    model = Stub(rises=rises or {})

    def join(units, alpha, start):
        tried.append((np.asarray(units).tolist(), np.asarray(alpha).tolist(), start))
        return replace(model, objective=joined[len(units)], trust=trust)

    monkeypatch.setattr(Stub, "joined", lambda self, *given: join(*given), raising=False)
    monkeypatch.setattr(_laplace_search, "_batch", lambda model, found, gains, first, batch: np.array(
        [first, *[u for u in np.argsort(-gains) if u != first and gains[u] > 1.0]][:batch]))  # fmt: skip
    monkeypatch.setattr(_laplace_search, "alike", alike or (lambda model, found, first, near: np.zeros(len(near))))
    units = np.arange(len(gains))
    found = SimpleNamespace(
        gains=np.array(gains), alpha=10.0 + units, units=units, rank=np.asarray, start=lambda m, chosen: "start"
    )
    return tried, model, _laplace_search.grow(model, found, batch, 1e-3)


def test_a_batch_that_gains_is_kept(monkeypatch):
    tried, model, (grown, gain) = grow(monkeypatch, {2: -2.4}, rises={2: 3.0})
    assert tried == [([0, 1], [10.0, 11.0], "start")] and model.told == [2]
    assert grown.objective == gain == pytest.approx(0.6)


def test_a_batch_that_loses_is_halved(monkeypatch):
    tried, model, (grown, gain) = grow(monkeypatch, {2: -2.6, 1: 0.1})  # more than half of what was promised
    assert [units for units, *_ in tried] == [[0, 1], [0]] and model.told == [2] and gain == pytest.approx(0.1)
    assert grown.objective == pytest.approx(0.1)


@pytest.mark.parametrize(("gain", "kept"), [(0.9e-4, False), (1.1e-4, True)])
def test_additions_that_gain_a_tenth_of_tol_are_kept(monkeypatch, gain, kept):
    tried, _, (grown, most) = grow(monkeypatch, {2: gain, 1: gain})
    assert (grown is not None) is kept and most == pytest.approx(gain if kept else 1e-3)
    # then the second unit, and then nothing that promises more than tol
    assert [units for units, *_ in tried] == ([[0, 1]] if kept else [[0, 1], [0], [1]])


def test_additions_that_cannot_be_trusted_gain_nothing(monkeypatch):
    monkeypatch.setattr(_laplace_search, "tempered", lambda new, old: new)
    _, _, (grown, most) = grow(monkeypatch, {2: 5.0, 1: 5.0}, trust=0.4, gains=(5.0, 3.0, 0.0))
    assert grown is None and most == 0.0


def test_near_copies_of_a_unit_that_was_refuted_are_not_tried(monkeypatch):
    told = []

    def alike(model, found, first, near):
        told.append((first, near.tolist()))
        return np.where(near == 1, 0.995, 0.985)

    tried, *_ = grow(monkeypatch, {1: 0.0}, gains=(5.0, 3.0, 4.0, 1e-3), alike=alike, batch=1)
    assert [units for units, *_ in tried] == [[0], [2]] and told == [(0, [2, 1])]


def test_so_many_additions_are_refuted(monkeypatch):
    tried, _, (grown, _) = grow(monkeypatch, {1: 0.0}, gains=np.linspace(5.0, 1.0, 20), batch=1)
    assert [units for units, *_ in tried] == [[i] for i in range(6)] and grown is None
    told = []

    def alike(model, found, first, near):
        told.append(len(near))
        return np.zeros(len(near))

    grow(monkeypatch, {1: 0.0}, gains=np.linspace(5.0, 1.0, 400), alike=alike, batch=1)
    assert told == [256] * 6


def test_a_batch_of_units_that_hardly_overlap(monkeypatch):
    model = Stub()
    gains = np.array([1.0, 0.9, 0.31, 0.29, 0.8, 0.7])
    close = np.eye(6)
    close[0, 1] = close[1, 0] = close[4, 5] = close[5, 4] = 0.31
    monkeypatch.setattr(_laplace_search, "overlaps", lambda model, found, units: close[np.ix_(units, units)])
    for batch, chosen in ((1, [0]), (2, [0, 4]), (3, [0, 4, 2]), (9, [0, 4, 2])):
        assert _laplace_search._batch(model, RANKED, gains, 0, batch).tolist() == chosen
    assert _laplace_search._batch(model, RANKED, np.array([1.0, 0.29]), 0, 4).tolist() == [0]
    many = np.linspace(1.0, 0.9, 100)
    seen = []
    monkeypatch.setattr(
        _laplace_search, "overlaps", lambda m, f, units: seen.append(len(units)) or np.ones((len(units),) * 2)
    )
    assert _laplace_search._batch(model, RANKED, many, 0, 3).tolist() == [0] and seen == [24]


# Deletions and exchanges


@pytest.mark.parametrize(
    ("gains", "rise", "kept", "told"),
    [((0.5, -0.9, -1.1), 0.0011, True, [3]), ((0.5, -0.9, -1.1), 0.0009, False, [3, 3]),
     ((0.0, -0.1, -0.2, -0.3, -0.4), 0.0, False, [3, 3, 3, 3])],
)  # fmt: skip
def test_deletions_are_tried_by_their_promise(monkeypatch, gains, rise, kept, told):
    model = Stub(active=np.arange(len(gains)), rises={3: rise})
    left = []
    monkeypatch.setattr(_laplace_search, "deletion_gains", lambda m: (np.array(gains), None))
    monkeypatch.setattr(_laplace_search, "within_reach", lambda fewer, objective: True)
    monkeypatch.setattr(
        Stub, "without", lambda self, leave: left.append(np.flatnonzero(leave).tolist()) or self, raising=False
    )
    fewer, most = _laplace_search.shrink(model, 1e-3)
    assert (fewer is not None) is kept and model.told == told and most == pytest.approx(rise)
    assert left == [[i] for i in range(len(told))]
    monkeypatch.setattr(_laplace_search, "within_reach", lambda fewer, objective: False)
    model.told.clear()
    assert _laplace_search.shrink(model, 1e-3) == (None, 0.0) and not model.told


@pytest.mark.parametrize(
    ("rises", "kept", "told"),
    [({2: 0.5, 20: 0.1}, True, [2, 20]), ({2: -0.2, 6: 0.3}, True, [2, 6, 20]), ({2: -0.31, 6: 9.0}, False, [2, 2]),
     ({2: 0.0009, 6: 0.0}, False, [2, 6, 2, 6]), ({2: 0.0009, 6: 0.0002}, True, [2, 6, 20])],
)  # fmt: skip
def test_exchanges_are_tried_by_their_promise(monkeypatch, rises, kept, told):
    model = Stub(rises=rises)
    pairs = SimpleNamespace(leaving=np.array([0, 1, 2]), gain=np.array([-2.9, 1.0, -3.1]), entering=np.array([7, 8, 9]))
    monkeypatch.setattr(_laplace_search, "swaps", lambda m, found: pairs)
    monkeypatch.setattr(_laplace_search, "within_reach", lambda swapped, objective: True)
    tried = []
    monkeypatch.setattr(_laplace_search, "_swap", lambda m, pairs, i: tried.append(int(i)) or model)
    swapped, most = _laplace_search.exchange(model, "found", 1e-3)
    assert (swapped is not None) is kept and model.told == told
    assert tried == ([1] if kept else [1, 0])  # the third loses too much to be tried
    if kept:
        assert swapped.atom == 8 and most == pytest.approx(rises[2] + rises.get(6, 0.0) * (rises[2] <= 1e-3))
    else:
        assert most == pytest.approx(max(rises[2], 0.0))
    model.told.clear()
    monkeypatch.setattr(_laplace_search, "_swap", lambda m, pairs, i: replace(model, trust=0.4))
    assert _laplace_search.exchange(model, "found", 1e-3) == (None, 0.0)
    monkeypatch.setattr(_laplace_search, "within_reach", lambda swapped, objective: False)
    model.told.clear()
    assert _laplace_search.exchange(model, "found", 1e-3) == (None, 0.0) and not model.told


def test_so_many_exchanges_are_tried(monkeypatch):
    pairs = SimpleNamespace(leaving=np.arange(3).repeat(4), gain=np.linspace(1.0, 0.0, 12), entering=np.arange(12))
    monkeypatch.setattr(_laplace_search, "swaps", lambda m, found: pairs)
    monkeypatch.setattr(_laplace_search, "within_reach", lambda swapped, objective: True)
    tried = []
    monkeypatch.setattr(
        _laplace_search, "_swap", lambda m, pairs, i: tried.append(int(i)) or replace(m, objective=-1.0)
    )
    assert _laplace_search.exchange(Stub(), "found", 1e-3) == (None, 0.0) and tried == list(range(8))
    assert _laplace_search.exchange(Stub(active=np.arange(0)), "found", 1e-3) == (None, 0.0)


def test_a_settled_model_is_one_that_nothing_helps(monkeypatch):
    moves = []

    def one(name, *answers):
        left = list(answers)

        def move(model, *given):
            moves.append(name)
            return (replace(model, objective=model.objective + 1.0) if left and left.pop(0) else None), 0.0

        monkeypatch.setattr(_laplace_search, name, move)

    monkeypatch.setattr(_laplace_search, "propose", lambda model: None)
    one("grow", True, False, True)
    one("shrink", False, True)
    one("exchange", True)
    found = _laplace_search.settle(Stub(refused=frozenset([1])), 4, True, Limit())
    assert moves == ["grow", "grow", "shrink", "exchange", "grow", "grow", "shrink", "grow", "shrink", "exchange"]
    assert found.objective == 4.0 and found.told == [60] * 3 and found.refused == frozenset()
    moves.clear()
    for rise, again in ((0.9e-4, 1), (1.1e-4, 2)):  # of the precisions, above a tenth of tol
        one("grow")
        model = Stub()
        monkeypatch.setattr(Stub, "relaxed", lambda self, steps, rise=rise: self.told.append(steps) or replace(
            self, objective=max(self.objective, rise)))  # fmt: skip
        _laplace_search.settle(model, 4, False, Limit())
        assert len(model.told) == again
    assert "exchange" not in moves
    moves.clear()
    assert _laplace_search.settle(model, 4, False, Limit(work=0.0)) is model and not moves


def test_a_search_in_c_is_told_the_work_that_is_left(monkeypatch):
    given = []
    monkeypatch.setattr(_laplace_search, "_in_c", lambda model, *what: given.append(what) or ("made", 0.0))
    model = Stub(problem=stub_problem(budget=WorkBudget(30.0)))
    assert _laplace_search.settle(model, 4, True, Limit(work=100.0)) == "made"
    assert given == [(_laplace_search.compiled.SETTLE, 1e-3, 4, 1, 70.0)]
    assert _laplace_search.settle(model, 4, True, Limit(work=20.0)) is model and len(given) == 1


def test_heat_lets_so_many_units_enter(monkeypatch):
    weights = np.arange(1.0, 4.0)
    told, limit = [], Limit()

    @dataclass(frozen=True, eq=False)
    class Problem:
        weights: np.ndarray
        tol: float = 1e-3
        K: int = 2
        budget: WorkBudget = field(default_factory=WorkBudget)

        def posterior(self, *given):
            return SimpleNamespace(alpha=np.ones(1), mean=np.ones(1), Phi=None, problem=self)

    class Model(Stub):
        def __init__(self, problem, active, posterior):
            super().__init__(problem=problem, active=active, posterior=posterior)

        def relaxed(self, steps):
            told.append((steps, self.problem.weights.tolist()))
            return self

        alpha = np.ones(1)

    def grow(model, found, batch, tol):
        told.append(("grow", batch, tol, model.problem.weights.tolist()))
        return Model(model.problem, np.append(model.active, 99), model.posterior), 0.0

    problem = Problem(weights)
    monkeypatch.setattr(_laplace_search, "LaplaceModel", Model)
    monkeypatch.setattr(_laplace_search, "grow", grow)
    monkeypatch.setattr(_laplace_search, "propose", lambda model: None)
    found = _laplace_search.anneal(Model(problem, np.arange(3), problem.posterior()), 4.0, 1, limit)
    entered = [what for what in told if what[0] == "grow"]
    assert len(entered) == 2 * 3 + 10 * 2 - 3 and entered[0] == ("grow", 1, 0.05, (4.0 * weights).tolist())
    assert told[-2:] == [(8, (4.0 * weights).tolist()), (20, weights.tolist())] and len(found.active) == 26
    told.clear()
    _laplace_search.anneal(Model(replace(problem, tol=0.2), np.arange(3), problem.posterior()), 4.0, 1, Limit(work=0.0))
    assert [what[0] for what in told] == [8, 20]
    told.clear()
    _laplace_search.anneal(Model(replace(problem, tol=0.2), np.arange(25), problem.posterior()), 4.0, 1, limit)
    assert told[0][2] == 0.2


# The order of moves


def steps_of(monkeypatch, solver=None, notes=None, objective=0.0, problem=None, **moves):
    """One step of a search whose moves give what ``moves`` says; the rest gives nothing."""
    told = []
    problem = problem or stub_problem()
    model = Stub(objective=objective, problem=problem)

    def move(name):
        def made(m, *given):
            told.append((name, *given))
            return moves.get(name, (None, 0.0))

        return made

    monkeypatch.setattr(_laplace_search, "propose", lambda m: "scan")
    for name in ("grow", "shrink", "exchange"):
        monkeypatch.setattr(_laplace_search, name, move(name))

    def relaxed(m, steps, accuracy=None):
        told.append(("relax", steps, accuracy))
        return moves.get("relax", (m, 0.0))

    monkeypatch.setattr(_laplace_search, "relax", relaxed)
    monkeypatch.setattr(LaplaceSequential, "_restart", lambda self, m, n: told.append(("restart",)) or moves["restart"])
    notes = replace(notes or _Notes(model, Limit()), model=model)
    state = State(model.active, model.posterior, objective, notes=notes)
    return (solver or LaplaceSequential()).step(problem, state), told, model


def test_additions_come_first(monkeypatch):
    state, told, _ = steps_of(monkeypatch, LaplaceSequential(batch=7), grow=(Stub(objective=2.0, atom=5), 2.0))
    assert told == [("grow", "scan", 7, 1e-3)] and (state.action, state.atom, state.objective) == ("add", 5, 2.0)
    assert not state.notes.settled and not state.notes.certified


@pytest.mark.parametrize(
    ("expected", "rise", "settled"),
    [(0.9e-4, 1.0, True), (1.1e-4, 1.0, False), (1.1e-4, 0.9e-4, True), (1.1e-4, 1.1e-4, False)],
)
def test_precisions_settle_where_little_is_expected_or_gained(monkeypatch, expected, rise, settled):
    state, told, _ = steps_of(monkeypatch, grow=(None, 0.3), relax=(Stub(objective=rise), expected))
    assert told[1:] == [("relax", 60, None)] and state.action == "reestimate"
    assert state.notes.settled is settled and state.notes.expected == expected and state.notes.offered == 0.3


def settled(**options):
    return _Notes(None, Limit(), settled=True, **options)


def test_then_deletions_and_exchanges(monkeypatch):
    state, told, _ = steps_of(monkeypatch, notes=settled(), shrink=(Stub(objective=1.0), 1.0))
    assert [what[0] for what in told] == ["grow", "shrink"] and state.action == "delete" and not state.notes.settled
    state, told, _ = steps_of(monkeypatch, notes=settled(), exchange=(Stub(objective=1.0), 1.0))
    assert told == [("grow", "scan", 4, 1e-3), ("shrink", 1e-3), ("exchange", "scan", 1e-3)]
    assert state.action == "exchange" and not state.notes.settled


@pytest.mark.parametrize("largest", ["grow", "shrink", "exchange", "relax"])
def test_the_certificate_is_the_largest_that_was_offered(monkeypatch, largest):
    moves = {name: (None, 2e-4) for name in ("grow", "shrink", "exchange")} | {largest: (None, 7e-4)}
    if largest == "relax":
        moves.pop("relax")
    notes = settled(expected=7e-4 if largest == "relax" else 1e-4)
    state, told, _ = steps_of(monkeypatch, LaplaceSequential(restarts=0), notes, objective=-50.0, **moves)
    assert state.done and state.largest_gain == 7e-4 and state.action == "reestimate"
    assert told[-1] == ("relax", 60, 1e-11 * 50.0)
    moves.pop("exchange")
    state, told, _ = steps_of(monkeypatch, LaplaceSequential(restarts=0, exchange=False), notes, **moves)
    assert all(what[0] != "exchange" for what in told) and told[-1] == ("relax", 60, 1e-11)


def test_a_last_deletion_goes_on(monkeypatch):
    fewer = Stub(active=np.arange(2))
    state, *_ = steps_of(monkeypatch, LaplaceSequential(restarts=0), settled(), relax=(fewer, 0.0))
    assert state.action == "delete" and not state.done and not state.notes.settled


@pytest.mark.parametrize(("trust", "held"), [(0.79, True), (0.81, False)])
def test_what_was_held_back_is_let_go(monkeypatch, trust, held):
    notes = settled()
    problem = stub_problem(trusted=0.5)
    model = Stub(trust=trust, problem=stub_problem(trusted=0.7))
    monkeypatch.setattr(_laplace_search, "propose", lambda m: "scan")
    for name in ("grow", "shrink", "exchange"):
        monkeypatch.setattr(_laplace_search, name, lambda *given: (None, 0.0))
    monkeypatch.setattr(_laplace_search, "relax", lambda m, *given: (m, 0.0))
    state = State(model.active, model.posterior, 0.0, notes=replace(notes, model=model))
    found = LaplaceSequential(restarts=0).step(problem, state)
    assert found.done is not held and found.notes.model.problem is problem
    assert found.notes.settled is not held and found.notes.certified is False
    # one that was not held is not let go
    free = replace(model, problem=problem)
    assert LaplaceSequential(restarts=0).step(problem, replace(state, notes=replace(notes, model=free))).done


@pytest.mark.parametrize(("spent", "work"), [(1e6, 1e6 + 3 * 2.5e7), (1e9, 1e9 + 3 * 0.1 * (1e9 - 100.0))])
def test_the_work_of_restarts_is_bounded(monkeypatch, spent, work):
    problem = stub_problem(budget=WorkBudget(spent))
    state, told, _ = steps_of(monkeypatch, notes=settled(began=100.0), problem=problem, restart=Stub())
    assert ("restart",) in told and state.notes.restarts == 1
    assert state.notes.first == spent - 100.0 and state.notes.limit.work == pytest.approx(work)
    later = replace(state.notes, restarts=1, limit=Limit(work=spent + 1.0), first=5.0, certified=True)
    state, told, _ = steps_of(monkeypatch, notes=later, problem=problem, restart=Stub())
    assert told == [("restart",)] and state.notes.first == 5.0 and state.notes.limit.work == spent + 1.0
    closed = replace(later, limit=Limit(work=spent))
    assert steps_of(monkeypatch, notes=closed, problem=problem, restart=Stub())[0].done


@pytest.mark.parametrize(
    ("gain", "trust", "taken"), [(0.0011, 1.0, True), (0.0009, 1.0, False), (5.0, 0.4, False), (5.0, 0.6, True)]
)
def test_restarts_are_taken_where_they_gain_and_may_be_trusted(monkeypatch, gain, trust, taken):
    notes = settled(certified=True, restarts=1)
    state, *_ = steps_of(monkeypatch, notes=notes, restart=Stub(objective=gain, trust=trust))
    assert (state.action == "restart") is taken and state.notes.restarts == 2
    assert state.notes.settled is not taken and state.notes.certified is not taken
    done, told, _ = steps_of(monkeypatch, notes=replace(notes, restarts=3), restart=Stub(objective=gain))
    assert done.done and ("restart",) not in told


def test_objectives_that_differ_by_rounding_do_not_fall():
    state = State(np.arange(3), None, 1.0, notes=None)
    assert _laplace_search._advance(state, Stub(objective=1.0 - 1e-12), "reestimate", settled()).objective == 1.0
    assert _laplace_search._advance(state, Stub(objective=1.5), "reestimate", settled()).objective == 1.5


@pytest.mark.parametrize("gain", [0.9e-3, 1.1e-3])
@pytest.mark.parametrize("tf03", [False, True])
def test_how_a_search_for_classes_says_it_ended(gain, tf03):
    state = State(np.arange(3), None, 0.0, largest_gain=gain)
    found = LaplaceSequential(tf03=tf03).status(stub_problem(), state)
    assert found.name == ("STOPPED" if tf03 else "CONVERGED" if gain < 1e-3 else "STALLED")


def test_the_search_for_classes_has_a_deadline():
    assert LaplaceSequential()._deadline == np.inf
    left = LaplaceSequential(time_limit=50.0)._deadline - time.monotonic()
    assert 49.0 < left <= 50.0
    assert Limit().deadline == np.inf and Limit().work == np.inf


def test_models_are_tempered_a_few_times(monkeypatch):
    monkeypatch.setattr(_laplace_search, "trusted", lambda new, old: False)
    model, _ = classes_of(likelihood=Bernoulli())
    told = []
    at = type(model).at

    def recorded(self, alpha, start):
        told.append(alpha / self.alpha)
        return at(self, alpha, start)

    monkeypatch.setattr(type(model), "at", recorded)
    _laplace_search.tempered(model, model)
    assert len(told) == 4 and all(np.all((ratio >= 1.0) & (ratio <= 1e3)) for ratio in told)
    p = model.posterior
    np.testing.assert_allclose(told[0], np.clip(p.gamma / p.mean**2 / p.alpha, 1.0, 1e3))
    tiny = model.at(np.full(2, 1e-12), p.mean)
    told.clear()
    _laplace_search.tempered(tiny, model)
    assert told[0].max() == pytest.approx(1e3)


# Steps on the precisions


def ladder(monkeypatch, module, refuse):
    """The damping of each attempt, where the first ``refuse`` solutions of a step are not to be had."""
    solve, tried = module.solve_symmetric, []

    def told(H, g):
        tried.append(H.copy())
        return None if len(tried) <= refuse else solve(H, g)

    monkeypatch.setattr(module, "solve_symmetric", told)
    return tried


def dampings(tried, em):
    return [float(np.mean(np.diag(H - tried[0]) / em)) for H in tried]


def test_the_damping_of_steps_for_classes(monkeypatch):
    model, _ = classes_of(likelihood=Bernoulli())
    em = _laplace._slopes(model)[2]
    tried = ladder(monkeypatch, _laplace, 3)
    moved, expected = relax(model, 1)
    assert dampings(tried, em) == pytest.approx([0.0, 0.1, 0.4, 1.6]) and moved.objective > model.objective
    g, step = _laplace._slopes(model)[0], np.linalg.solve(tried[3], _laplace._slopes(model)[0])
    assert expected == pytest.approx(0.5 * g @ step)
    np.testing.assert_allclose(moved.alpha, model.alpha * np.exp(step), rtol=1e-9)
    tried.clear()
    tried = ladder(monkeypatch, _laplace, 1000)
    assert relax(model, 5)[0].objective == model.objective and len(tried) == 30


def test_the_damping_fades_and_long_steps_are_cut(monkeypatch):
    model, _ = classes_of(likelihood=Bernoulli())
    told, solved = [], iter([None, None, None])

    def solve(H, g):
        told.append(H)
        if next(solved, 0) is None:
            return None
        return 0.01 * g

    monkeypatch.setattr(_laplace, "solve_symmetric", solve)
    monkeypatch.setattr(_laplace, "_with_secants", lambda H, path: np.zeros_like(H))
    monkeypatch.setattr(_laplace, "prune", lambda m: m)
    relax(model, 4, accuracy=0.0)
    ems = []
    m = model
    for _ in range(4):
        g, _, em = _laplace._slopes(m)
        ems.append(em)
        m = m.at(m.alpha * np.exp(0.01 * g), m.posterior.mean)
    rest = [float(np.mean(np.diag(H) / em)) for H, em in zip(told[3:], ems, strict=True)]
    assert rest == pytest.approx([1.6, 0.4, 0.1, 0.0], rel=1e-6)
    monkeypatch.setattr(_laplace, "solve_symmetric", lambda H, g: np.array([30.0, -10.0]) * np.sign(g))
    monkeypatch.setattr(_laplace, "not_lower", lambda new, old: True)
    moved, _ = relax(replace(model, problem=replace(model.problem, trusted=0.0)), 1)
    np.testing.assert_allclose(np.abs(np.log(moved.alpha / model.alpha)), [3.0, 1.0])


def test_the_damping_of_steps_in_regression(monkeypatch):
    alone = model_of()[2]
    p = alone.posterior
    em = np.append(0.5 * (p.v**2 + p.shrinkage), 15.0)
    tried = ladder(monkeypatch, _newton, 3)
    monkeypatch.setattr(_newton, "prune", lambda problem, frame, active, posterior: (active, posterior))
    _newton.relax(alone.problem, alone.frame, alone.active, p, 1)
    assert dampings(tried, em) == pytest.approx([0.0, 3e-3, 6e-3, 1.2e-2])
    tried = ladder(monkeypatch, _newton, 1000)
    assert _newton.relax(alone.problem, alone.frame, alone.active, p, 5)[1] is p and len(tried) == 40


def test_what_steps_are_expected_to_reach(monkeypatch):
    """Twice the half of g'step, ten times where the curvature was damped."""
    model = SimpleNamespace(objective=0.0, active=np.arange(2))
    g, em = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    for H, damped, generous in ((np.eye(2), 0.0, 2.0), (-0.05 * np.eye(2), 0.1, 10.0), (-0.5 * np.eye(2), 1.0, 10.0)):
        monkeypatch.setattr(_laplace, "_slopes", lambda m, H=H: (g, H, em))
        reach = generous * 0.5 * g @ np.linalg.solve(H + damped * np.diag(em), g)
        assert within_reach(model, 0.99 * reach) and not within_reach(model, 1.01 * reach)
    monkeypatch.setattr(_laplace, "_slopes", lambda m: (g, -9.0 * np.eye(2), em))
    assert within_reach(model, 1e9)
    assert within_reach(model, 0.0) and within_reach(replace_active(model), 0.0)
    assert not within_reach(replace_active(model), 1e-9)


def replace_active(model):
    return SimpleNamespace(objective=model.objective, active=np.arange(0))


def test_the_meter_counts_what_a_step_and_a_scan_cost(monkeypatch):
    """In nanoseconds at 20 GFlop/s: rows by weights, and pairs of weights."""
    for likelihood, K, k in ((Poisson(), 1, 2), (None, 3, 4)):
        model, _ = classes_of(likelihood=likelihood)
        problem = model.problem
        problem.budget.spent = 0.0
        problem.posterior(model.active, model.alpha)
        assert problem.budget.spent == pytest.approx(4.0 * 40 * (25.0 * K + 0.5 * k + 0.05 * k * k))
        for exact in (True, False) if K > 1 else (True,):
            monkeypatch.setattr("relvec.solvers.laplace.scan._EXACT", K * 40 * 12 * k - (not exact))
            problem.budget.spent = 0.0
            found = _laplace_search.scan(model)
            rows = 1.0 + k / (1 if exact else K)
            assert found.exact is exact
            assert problem.budget.spent == pytest.approx(K * problem.design.scan_size * (0.3 + 0.1 * rows))
    monkeypatch.setattr("relvec.solvers.laplace.scan._EXACT", 3 * 40 * 12)
    assert _laplace_search.scan(empty_model(problem)).exact


# TF03 to the letter


def textbook_state(alpha=(0.3, 1.0, 2.0), beta=BETA, **options):
    design, t = dictionary(width=0.7)
    problem, active = problem_of(design, t, **options), np.array([3, 12, 25])
    frame = Frame(design, t, 0.0)
    frame.span(active)
    posterior = frame.posterior(active, np.array(alpha), beta, 30.0)
    notes = SimpleNamespace(frame=frame, textbook=None, steps=0)
    return problem, State(active, posterior, problem.objective(active, posterior), notes=notes)


@pytest.mark.parametrize("alpha", [(0.3, 1.0, 2.0), (30.0, 1e4, 1e-3)])
def test_sparsity_and_quality_by_the_textbook(alpha):
    problem, state = textbook_state(alpha)
    s, q = _textbook._sparsity_quality(state, _textbook._recompute(problem, state))
    columns = problem.design.columns(np.arange(40))
    expected = oracle.s_q(columns, state.active, problem.target, np.array(alpha), BETA)
    np.testing.assert_allclose(s, expected[0], rtol=1e-6)
    np.testing.assert_allclose(q, expected[1], rtol=1e-6)


def test_which_atom_the_textbook_chooses():
    problem, state = textbook_state()
    stats = _textbook._recompute(problem, state)
    s, q = _textbook._sparsity_quality(state, stats)
    target = oracle.optimal_alpha(s, q)
    gains = np.zeros(40)
    columns = problem.design.columns(np.arange(40))
    for j in range(40):
        inside = j in state.active
        if inside or np.isfinite(target[j]):
            gain = oracle.gain_reestimate if inside else oracle.gain_add
            gains[j] = gain(columns, state.active, problem.target, state.posterior.alpha, BETA, j)
    assert _textbook._choose(problem, state, stats, s, q, "gain") == np.argmax(gains)
    useful = np.flatnonzero(np.isfinite(target) | np.isin(np.arange(40), state.active))
    for position in (0, 17, 39):
        ahead = useful[np.argmin((problem.order[useful] - position) % 40)]
        assert _textbook._choose(problem, state, replace(stats, position=position), s, q, "order") == ahead
    assert _textbook._choose(problem, state, stats, s, q, "random") in useful
    # changes of log alpha below 1e-6 are none
    for change, chosen in ((0.9e-6, None), (1.1e-6, 3)):
        s, q = np.ones(40), np.zeros(40)
        q[state.active] = np.sqrt(1.0 + 1.0 / state.posterior.alpha)  # whose optimum is alpha
        q[3] = np.sqrt(1.0 + np.exp(-change) / state.posterior.alpha[0])
        assert _textbook._choose(problem, state, stats, s, q, "gain") == chosen
    # nor is what is left of a combination of the model's atoms
    s, q = np.full(40, 1.0), np.zeros(40)
    q[state.active] = np.sqrt(1.0 + 1.0 / state.posterior.alpha)
    q[9] = 2.0
    for rest, chosen in ((0.5e-14 * BETA, None), (2e-14 * BETA, 9)):
        left = replace(stats, S=np.where(np.arange(40) == 9, rest, stats.S))
        assert _textbook._choose(problem, state, left, s, q, "gain") == chosen


def test_a_search_is_silent_unless_it_is_asked(caplog):
    design, t = dictionary(M=6)
    with caplog.at_level(logging.INFO, "relvec"):
        iterate(MacKay(), problem_of(design, t), 3)
        assert not caplog.records
        iterate(MacKay(), problem_of(design, t), 3, 1)
    assert len(caplog.records) == 4
    caplog.clear()
    problem = classes_of(likelihood=Bernoulli())[0].problem
    with caplog.at_level(logging.INFO, "relvec"):
        _laplace_search.solve_laplace(MacKay(), problem, 2)
        assert not caplog.records
        _laplace_search.solve_laplace(MacKay(), problem, 2, 1)
    assert len(caplog.records) == 3


def test_the_noise_of_the_textbook():
    problem, state = textbook_state(beta=1.0)
    p = state.posterior
    found = _textbook._update_noise(problem, state)
    assert found.posterior.beta == pytest.approx((30.0 - p.gamma.sum()) / p.residual)
    assert found.objective > state.objective and found.objective == problem.objective(state.active, found.posterior)
    assert _textbook._update_noise(replace(problem, noise_variance=1.0), state) is state
    floor = replace(problem, noise_floor=1.3 / found.posterior.beta)
    assert _textbook._update_noise(floor, state).posterior.beta == pytest.approx(found.posterior.beta / 1.3)
    assert _textbook._update_noise(problem, state.stepped(objective=1e9)).posterior is p


def test_acting_on_an_atom_keeps_the_statistics():
    problem, state = textbook_state()
    stats = replace(_textbook._recompute(problem, state), age=4)
    for atom, alpha, action, active in ((7, 0.5, "add", [3, 12, 25, 7]), (12, np.inf, "delete", [3, 25]),
                                        (12, 4.0, "reestimate", [3, 12, 25])):  # fmt: skip
        did, now, alphas, new = _textbook._act(problem, state, stats, atom, alpha)
        assert did == action and now.tolist() == active and new.age == 5 and new.position == 40 - atom
        frame = Frame(problem.design, problem.target, 0.0)
        frame.span(now)
        posterior = frame.posterior(now, alphas, BETA, 30.0)
        exact = _textbook._recompute(problem, State(now, posterior, 0.0, notes=SimpleNamespace(frame=frame)))
        for name in ("Sigma", "mu", "S", "Q", "cross"):
            np.testing.assert_allclose(getattr(new, name), getattr(exact, name), atol=1e-9, err_msg=name)


# Frames


def test_a_frame_is_made_anew_where_it_holds_many_more():
    rng = np.random.default_rng(0)
    design, t = DenseDesign(rng.normal(size=(90, 80))), rng.normal(size=90)
    frame = Frame(design, t, 0.3)
    frame.span(np.arange(51))
    assert frame.trimmed(np.arange(2)) is frame
    frame.span(np.array([60]))
    fresh = frame.trimmed(np.arange(2))
    assert fresh is not frame and fresh.size == 2 and frame.size == 52
    assert fresh.rest == pytest.approx(0.3 + t @ t - np.sum((fresh._Q[:, :2].T @ t) ** 2))


def test_room_for_more_atoms():
    rng = np.random.default_rng(0)
    frame = Frame(DenseDesign(rng.normal(size=(200, 150))), rng.normal(size=200), 0.0)
    frame.span(np.arange(32))
    assert len(frame._z) == 32
    before = frame._Q[:, :32].copy()
    frame.span(np.array([40]))
    assert len(frame._z) == 64 and np.array_equal(frame._Q[:, :32], before)
    frame.span(np.arange(41, 141))
    assert len(frame._z) == 133 and frame._Q.shape == (200, 133) and frame._P.shape == (133, 150)


@pytest.mark.parametrize(("apart", "size"), [(1e-12, 1), (1e-10, 2), (1e-6, 2), (1e-3, 2)])
def test_atoms_that_a_double_cannot_tell_apart(apart, size):
    rng = np.random.default_rng(0)
    a, b, t = rng.normal(size=(3, 40))
    a, b = a / np.linalg.norm(a), b - (b @ a) / (a @ a) * a
    b /= np.linalg.norm(b)
    design = DenseDesign(np.column_stack([a, a + apart * b]))
    for at_once in (True, False):
        frame = Frame(design, t, 0.0)
        for atoms in ([0, 1],) if at_once else ([0], [1]):
            frame.span(np.array(atoms))
        Q = frame._Q[:, : frame.size]
        assert frame.size == size
        np.testing.assert_allclose(Q.T @ Q, np.eye(size), atol=1e-14)


def test_the_few_best_of_each_row():
    leaving, gains = np.array([1, 0, 0, 1, 0, 1]), np.array([9.0, 1.0, 5.0, 2.0, 3.0, 4.0])
    best = best_of_each(leaving, np.arange(6), gains, 2)
    assert [column.tolist() for column in best] == [[0, 0, 1, 1], [2, 4, 0, 5], [5.0, 3.0, 9.0, 4.0]]
    assert best_of_each(*best, 2)[2] is best[2]


def test_models_of_classes_grow_from_a_bias_or_a_start():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    Phi = np.column_stack([x, x**2, np.ones(40)])
    t = (rng.uniform(size=40) < 0.8).astype(float)
    problem = make(Phi, t, Bernoulli(), bias=2)
    assert LaplaceSequential().init(problem).active.tolist() == []
    state = LaplaceSequential(start_at_bias=True).init(problem)
    assert state.active.tolist() == [2] and state.posterior.alpha[0] < 1.0
    assert LaplaceSequential(start_at_bias=True).init(replace(problem, bias=-1)).active.tolist() == []
    balanced = make(Phi, np.arange(40) % 2 * 1.0, Bernoulli(), bias=2)  # nothing for a constant to explain
    assert LaplaceSequential(start_at_bias=True).init(balanced).active.tolist() == []
    given = replace(problem, start=(np.array([1]), np.array([0.7])))
    state = LaplaceSequential(start_at_bias=True).init(given)
    assert state.active.tolist() == [1] and state.posterior.alpha.tolist() == [0.7]
    assert state.notes.model.problem.trusted == 0.5  # a model that is given is not held
    assert LaplaceSequential().init(problem).notes.model.problem.trusted == 0.7
    assert LaplaceSequential().init(replace(problem, trusted=0.9)).notes.model.problem.trusted == 0.9
    problem.budget.spent = 12.0
    assert LaplaceSequential().init(replace(problem, budget=WorkBudget(12.0))).notes.began > 12.0


# Gains that differ by rounding


def test_exchanges_that_differ_by_rounding_are_tried_in_order(monkeypatch):
    gain = np.array([1.0, 1.0 + 3e-10, 0.5, 1.0 + 3e-9])
    tried = []
    pairs = SimpleNamespace(
        leaving=np.arange(4), gain=gain, entering=np.arange(4), made=lambda model, i: tried.append(int(i)) or Told()
    )

    class Told:
        objective = 0.0

        def relaxed(self, steps, enough):
            tried.append((steps, enough))
            return self

    monkeypatch.setattr(_moves, "best_exchanges", lambda model: pairs)
    model = SimpleNamespace(active=np.arange(4), problem=SimpleNamespace(order=np.arange(4)), objective=0.0)
    assert _moves.exchange(model, 1e-3) is None
    assert tried == [3, (2, 1e-3), 0, (2, 1e-3), 1, (2, 1e-3), 2, (2, 1e-3)]
    tried.clear()
    Told.objective = 1.1e-3
    assert _moves.exchange(model, 1e-3) is not None and tried == [3, (2, 1e-3), (30, 1e-3)]
    tried.clear()
    pairs.gain = np.array([-0.9, -1.1, -1.1, -1.1])
    Told.objective = 0.9e-3
    assert _moves.exchange(model, 1e-3) is None and tried == [0, (2, 1e-3)]
    # of classes
    tried.clear()
    pairs.gain = gain
    monkeypatch.setattr(_laplace_search, "swaps", lambda m, found: pairs)
    monkeypatch.setattr(_laplace_search, "within_reach", lambda swapped, objective: False)
    monkeypatch.setattr(_laplace_search, "_swap", lambda m, pairs, i: tried.append(int(i)))
    _laplace_search.exchange(Stub(active=np.arange(4)), "found", 1e-3)
    assert tried == [3, 0, 1, 2]


def test_batches_of_gains_that_differ_by_rounding_are_in_order(monkeypatch):
    gains = np.array([2.0, 2.0 - 4e-9, 1.9, 1.9 + 6e-10, 1.8])  # relative to the first
    monkeypatch.setattr(_laplace_search, "overlaps", lambda model, found, near: np.zeros((5, 5)))
    assert _laplace_search._batch(Stub(), RANKED, gains, 0, 5).tolist() == [0, 1, 2, 3, 4]
    design = DenseDesign(np.eye(5))
    model = SimpleNamespace(
        problem=problem_of(design, np.ones(5), order=np.arange(5)), posterior=SimpleNamespace(beta=1.0)
    )
    assert _moves._batch(model, 0, gains, np.ones(5), np.zeros((1, 5)), 5) == [0, 1, 2, 3, 4]


# The order of moves in regression


class Moves:
    """A model of a regression whose moves give what they are told to; what was asked is in ``told``."""

    def __init__(self, objective=0.0, size=3, told=None, **moves):
        self.objective, self.active, self.told, self.moves = (
            objective,
            np.arange(size),
            [] if told is None else told,
            moves,
        )
        self.posterior, self.atom, self.problem = SimpleNamespace(beta=BETA, alpha=np.ones(size)), 7, None

    def _made(self, name, default, *given):
        self.told.append((name, *given))
        return self.moves.get(name, default)

    def grown(self, batch, tol, hold):
        return self._made("grown", None, batch, tol, hold)

    def exchanged(self, tol):
        return self._made("exchanged", None, tol)

    def merged(self):
        return self._made("merged", self)

    def relaxed(self, steps, enough):
        return self._made("relaxed", self, steps, enough)

    def sharpened(self, steps):
        return self._made("sharpened", self, steps)

    def trimmed(self):
        return self

    def exact(self):
        return self


def regression_step(monkeypatch, solver=None, offer=0.0, deadline=np.inf, objective=0.0, size=3, notes=None, **moves):
    """One step, and what was asked of the model; restarts answer "restarted"."""
    model = Moves(objective, size, **moves)
    monkeypatch.setattr(
        _sequential, "largest_gain", lambda m, exchanging: model.told.append(("offer", exchanging)) or offer
    )
    monkeypatch.setattr(Sequential, "_restarted", lambda *given: SimpleNamespace(action="restarted"))
    notes = _sequential._Notes(deadline, model=model, **notes or {})
    state = State(model.active, model.posterior, objective, notes=notes)
    return (solver or Sequential()).step(SimpleNamespace(tol=1e-3, tolerance=lambda size: 1e-3), state), model.told


def test_additions_come_first_in_regression(monkeypatch):
    for steps, hold in ((0, True), (1, True), (2, False)):
        notes = {"steps": steps, "settled": True, "exact": True}
        state, told = regression_step(monkeypatch, Sequential(batch=9, noise_every=3), notes=notes, grown=Moves(2.0))
        assert told == [("grown", 9, 1e-3, hold)] and (state.action, state.atom, state.objective) == ("add", 7, 2.0)
        assert not state.notes.settled and not state.notes.exact and state.notes.steps == steps + 1
    state, told = regression_step(monkeypatch, notes={"swapping": False})
    assert told[1:] == [("merged",), ("relaxed", 100, 1e-3)] and state.action == "reestimate"
    assert state.notes.settled and state.notes.swapping and not state.done


def test_exchanges_come_next_in_regression(monkeypatch):
    notes = {"settled": True, "exact": True}
    state, told = regression_step(monkeypatch, notes=notes, exchanged=Moves(1.0))
    assert told[1:] == [("exchanged", 1e-3)] and state.action == "exchange"
    assert not state.notes.settled and not state.notes.exact
    for solver, changed in (
        (Sequential(), {"swapping": False}),
        (Sequential(exchange=False), {}),
        (Sequential(stop="tf03"), {}),
    ):
        _, told = regression_step(monkeypatch, solver, notes=notes | changed, exchanged=Moves(1.0))
        assert ("exchanged", 1e-3) not in told


@pytest.mark.parametrize(
    ("solver", "notes", "size", "restarts"),
    [
        ({}, {"failed": 2}, 3, True), ({}, {"failed": 3}, 3, False), ({"restarts": 0}, {}, 3, False),
        ({"restarts": 1}, {"turn": 3}, 3, True), ({"restarts": 1}, {"turn": 4}, 3, False),
        ({"restarts": 6}, {"turn": 5}, 3, True), ({"restarts": 6}, {"turn": 6}, 3, False),
        ({}, {}, 600, True), ({}, {}, 601, False), ({"restarts": 4}, {}, 601, True), ({"stop": "tf03"}, {}, 3, False),
    ],
)  # fmt: skip
def test_when_a_regression_is_restarted(monkeypatch, solver, notes, size, restarts):
    notes = {"settled": True, "swapping": False} | notes
    state, told = regression_step(monkeypatch, Sequential(**solver), size=size, notes=notes)
    assert (state.action == "restarted") is restarts and (("sharpened", 100) in told) is not restarts
    late, _ = regression_step(monkeypatch, Sequential(**solver), size=size, notes=notes, deadline=0.0)
    assert late.action == "reestimate" and late.notes.exact


@pytest.mark.parametrize(
    ("objective", "fall", "lost"), [(5.0, 0.9e-3, 0.0), (5.0, 1.1e-3, 1.1e-3), (-1e9, 0.9, 0.0), (-1e9, 1.1, 1.1)]
)
def test_what_an_evaluation_anew_has_lost(monkeypatch, objective, fall, lost):
    notes = {"settled": True, "swapping": False, "failed": 3}
    state, _ = regression_step(monkeypatch, objective=objective, notes=notes, sharpened=Moves(objective - fall))
    assert state.notes.lost == pytest.approx(lost, rel=1e-6) and state.notes.exact and state.action == "reestimate"


@pytest.mark.parametrize(
    ("solver", "offer", "lost", "swapped"),
    [({}, 1.1e-3, 0.0, True), ({}, 0.9e-3, 0.0, False), ({"exchange": False}, 1.1e-3, 0.0, False),
     ({}, 0.9e-3, 5.0, False), ({"stop": "tf03"}, 1.1e-3, 0.0, False)],
)  # fmt: skip
def test_the_certificate_of_a_regression(monkeypatch, solver, offer, lost, swapped):
    notes = {"settled": True, "swapping": False, "failed": 3, "exact": True, "lost": lost}
    solver = Sequential(**solver)
    state, told = regression_step(monkeypatch, solver, offer, notes=notes, exchanged=Moves(1.0))
    assert ("offer", solver.exchange) in told and (state.action == "exchange") is swapped
    if swapped:
        assert not state.notes.settled and not state.notes.exact and not state.done
    else:
        assert state.done and state.largest_gain == max(offer, lost) and state.action == ""
    nothing, told = regression_step(monkeypatch, Sequential(), 1.1e-3, notes=notes)
    assert nothing.done and told[-1] == ("exchanged", 1e-3)


def test_how_a_regression_begins():
    design, t = dictionary(M=6)
    t = t + 3.0 * (design.columns([0]) + design.columns([2])).sum(axis=1)
    problem = problem_of(design, t, bias=2)
    for noise in (None, 0.3):
        state = Sequential().init(replace(problem, noise_variance=noise))
        assert state.posterior.beta == pytest.approx(1.0 / (noise or 0.1)) and not len(state.active)
    biased = Sequential(start="bias").init(problem)
    S, Q = oracle.S_Q(design.columns([2]), design.columns([]), t, np.zeros(0), 10.0)
    assert biased.active.tolist() == [2] and biased.posterior.alpha == pytest.approx(oracle.optimal_alpha(S, Q))
    assert not len(Sequential(start="bias").init(replace(problem, bias=-1)).active)
    assert Sequential(start="bias").init(replace(problem, bias=0)).active.tolist() == [0]
    given = Sequential(start="bias").init(replace(problem, start=Start(np.array([4]), np.array([0.5]), 3.0)))
    assert given.active.tolist() == [4] and given.posterior.beta == 3.0
    left = Sequential(time_limit=50.0).init(problem).notes.deadline - time.monotonic()
    assert 49.0 < left <= 50.0 and Sequential().init(problem).notes.deadline == np.inf


def test_a_kick_of_two_units_leaves_one():
    model, _ = classes_of(likelihood=Bernoulli())
    assert len(model.active) == 2
    for _ in range(5):
        assert len(_laplace_search.drop_atoms(model).active) == 1
