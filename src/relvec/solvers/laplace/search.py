"""The sequential method under the Laplace approximation: moves chosen by linearised gains, kept by refitted ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from relvec.inference.evidence import mackay_alpha
from relvec.solvers.gaussian.moves import _TIE
from relvec.solvers.laplace import compiled
from relvec.solvers.laplace.exchange import Swaps, swaps
from relvec.solvers.laplace.problem import (
    LaplaceModel,
    LaplaceProblem,
    deletion_gains,
    empty_model,
    relax,
    within_reach,
)
from relvec.solvers.laplace.scan import Scan, alike, overlaps, scan
from relvec.solvers.loop import Result, Start, State, Status, iterate

_WORTH, _APART = 0.3, 0.3  # further units of a batch: share of the best gain, correlation with those before them
_REFUTED = 6  # additions refitted in vain before the search for additions ends
_TRIES = 8  # exchanges refitted before the search for exchanges ends
_HOPELESS = -3.0  # nats: an exchange that loses more than this before re-estimation is not tried
_HEAT = (None, 0.0, 4.0, 10.0)  # restarts multiply the likelihood's weight by these, see `LaplaceSequential._restart`
# The way to the first maximum keeps `LaplaceModel.trust` above _HELD, as regression holds the noise, and is then let
# go; a model above _RELEASED was not held back.
_HELD, _RELEASED = 0.7, 0.8
_FREE, _SHARE = 2.5e7, 0.1  # work of a restart: nanoseconds, or this share of the way to the first maximum if more
_BEHIND = 1.5  # nats: a restart that is further behind when additions and deletions are done is given up
_HEAT_TOL = 0.05  # nats: smaller additions are not worth making in a heated model


@dataclass(frozen=True)
class LaplaceSequential:
    """Sequential maximisation of the Laplace evidence (TF03 with its section 2.2).

    S and Q of TF03 eq. (24)-(25) belong to the problem linearised at the mode. They choose the moves; a move is kept
    only if the evidence of the refitted model rises, so the history is monotone. Precisions move by the exact
    gradient of the Laplace evidence. The certificate says that of the most promising additions, deletions and
    exchanges, each refitted, none gained more than tol, nor do further steps on the precisions.
    """

    batch: int = 4
    exchange: bool = True
    restarts: int = 3
    start_at_bias: bool = False
    tf03: bool = False
    time_limit: float | None = None

    def init(self, problem: LaplaceProblem) -> State:
        """The empty model, the bias, or the model given."""
        model = empty_model(replace(problem, trusted=max(problem.trusted, _HELD)))
        if problem.start is not None and len(problem.start[0]):
            units, alpha = problem.start
            model = LaplaceModel(problem, units, problem.posterior(units, alpha))
        elif self.start_at_bias and problem.bias >= 0:
            found = scan(model)
            first = np.flatnonzero(np.isin(found.units, _bias_units(problem)) & np.isfinite(found.alpha))
            if first.size:
                model = model.joined(found.units[first], found.alpha[first], found.start(model, first))
        notes = _Notes(model, Limit(self._deadline), problem.budget.spent)
        return State(model.active, model.posterior, model.objective, notes=notes)

    @property
    def _deadline(self) -> float:
        return np.inf if self.time_limit is None else time.monotonic() + self.time_limit

    def step(self, problem: LaplaceProblem, state: State) -> State:
        """One addition (of a batch), re-estimation, deletion, exchange or restart."""
        notes: _Notes = state.notes
        model = notes.model
        if not notes.certified:
            found = propose(model)
            grown, offered = grow(model, found, self.batch, problem.tol)
            if grown is not None:
                return _advance(state, grown, "add", replace(notes, settled=False))
            notes = replace(notes, offered=offered)
        if not notes.settled:
            settled, expected = relax(replace(model, refused=frozenset()), 60)
            slow = expected > 0.1 * problem.tol and settled.objective > model.objective + 0.1 * problem.tol
            return _advance(state, settled, "reestimate", replace(notes, settled=not slow, expected=expected))
        if not notes.certified:
            fewer, offered = shrink(model, problem.tol)
            if fewer is not None:
                return _advance(state, fewer, "delete", replace(notes, settled=False))
            offered = max(offered, notes.offered, notes.expected)
            if self.exchange:
                swapped, most = exchange(model, found, problem.tol)
                if swapped is not None:
                    return _advance(state, swapped, "exchange", replace(notes, settled=False))
                offered = max(offered, most)
            held_back = model.problem.trusted > problem.trusted and model.trust < _RELEASED
            model = replace(model, problem=problem)
            notes = replace(notes, model=model, offered=offered, certified=not held_back)
            if held_back:
                notes = replace(notes, settled=False)
                return state.stepped(action="", notes=notes)
        if not notes.restarts:
            spent = problem.budget.spent - notes.began
            work = problem.budget.spent + self.restarts * max(_FREE, _SHARE * spent)
            notes = replace(notes, first=spent, limit=replace(notes.limit, work=work))
        if notes.restarts < self.restarts and notes.limit.open(problem):
            other = self._restart(model, notes)
            notes = replace(notes, restarts=notes.restarts + 1)
            if other.objective > state.objective + problem.tol and trusted(other, model):
                return _advance(state, other, "restart", replace(notes, settled=False))
            return state.stepped(action="", notes=notes)
        # the certificate was found at precisions good to a thousandth of tol; what is kept is the maximum itself
        final, _ = relax(model, 60, 1e-11 * max(1.0, abs(state.objective)))
        if len(final.active) < len(model.active):
            return _advance(state, final, "delete", replace(notes, settled=False))
        return _advance(state, final, "reestimate", notes).stepped(done=True, largest_gain=notes.offered)

    def finishing(self, state: State) -> bool:
        """Whether only the certificate is left to do."""
        return state.notes.settled

    def notes_of(self, problem: LaplaceProblem, state: State) -> dict:
        """Where the search stands in its order of moves, and the work done."""
        notes: _Notes = state.notes
        return {name: getattr(notes, name) for name in _REMEMBERED} | {
            "work": notes.limit.work,
            "spent": problem.budget.spent,
            "trusted": notes.model.problem.trusted,
            "refused": sorted(notes.model.refused),
        }

    def resumed(self, problem: LaplaceProblem, model: Start, notes: dict) -> State:
        """The search with that model, at that place."""
        own = replace(problem, trusted=float(notes["trusted"]))
        posterior = own.posterior(model.active, model.alpha)
        found = LaplaceModel(own, model.active, posterior, refused=frozenset(map(int, notes["refused"])))
        remembered = {name: type(getattr(_Notes, name))(notes[name]) for name in _REMEMBERED}
        limit = Limit(self._deadline, float(notes["work"]))
        problem.budget.spent = float(notes["spent"])
        return State(found.active, posterior, found.objective, notes=_Notes(found, limit, **remembered))

    def status(self, problem: LaplaceProblem, state: State) -> Status:
        """How the search ended."""
        if self.tf03:
            return Status.STOPPED
        return Status.CONVERGED if state.largest_gain <= problem.tol else Status.STALLED

    def _restart(self, model: LaplaceModel, notes: _Notes) -> LaplaceModel:
        """Another local maximum: without the constant, by single additions, from heated likelihoods, after removals."""
        problem, turn = model.problem, notes.restarts
        heat = _HEAT[turn] if turn < len(_HEAT) else None
        if turn >= len(_HEAT):
            other = drop_atoms(model)
        elif heat:
            other = anneal(model, heat, 1, notes.limit)
        else:
            closed = () if heat == 0.0 else (problem.bias,)
            from_nothing_is_dear = notes.limit.work - problem.budget.spent < notes.first
            if from_nothing_is_dear or (closed and not np.isin(_bias_units(problem), model.active).any()):
                return model
            other = empty_model(replace(problem, closed=closed))
        if set(other.active.tolist()) == set(model.active.tolist()):
            return model
        other = settle(other, 1, False, notes.limit)
        if other.objective < model.objective - _BEHIND:
            return model
        return settle(replace(other, problem=problem), 1, self.exchange, notes.limit)


@dataclass(frozen=True)
class Limit:
    """How far a search may go: a time of `time.monotonic`, and the work that may be done."""

    deadline: float = np.inf
    work: float = np.inf

    def open(self, problem: LaplaceProblem) -> bool:
        """Whether neither is reached."""
        return problem.budget.spent < self.work and time.monotonic() < self.deadline


@dataclass(frozen=True, eq=False)
class _Notes:
    """What the search remembers between steps."""

    model: LaplaceModel
    limit: Limit
    began: float = 0.0
    settled: bool = False
    certified: bool = False
    restarts: int = 0
    first: float = 0.0
    offered: float = 0.0
    expected: float = 0.0


_REMEMBERED = ("began", "settled", "certified", "restarts", "first", "offered", "expected")


def _advance(state: State, model: LaplaceModel, action: str, notes: _Notes) -> State:
    objective = max(model.objective, state.objective)  # equal but for rounding
    return state.stepped(active=model.active, posterior=model.posterior, objective=objective, action=action,
                         atom=model.atom, notes=replace(notes, model=model, certified=False))  # fmt: skip


def _bias_units(problem: LaplaceProblem) -> np.ndarray:
    return np.array([problem.bias]) if problem.share else problem.bias + problem.design.n_atoms * np.arange(problem.K)


def trusted(new: LaplaceModel, old: LaplaceModel) -> bool:
    """Whether a move stays where the Laplace approximation is self-consistent, or comes nearer to it."""
    return new.trust >= min(new.problem.trusted, old.trust)


def tempered(new: LaplaceModel, old: LaplaceModel) -> LaplaceModel:
    """The model after updates of T01 eq. (16), which lead to a trust of 1, until it may be trusted."""
    for _ in range(4):
        if trusted(new, old):
            break
        p, problem = new.posterior, new.problem
        alpha = mackay_alpha(problem.gather(p.gamma), np.sqrt(problem.gather(p.mean**2)))
        new = new.at(np.clip(alpha, new.alpha, 1e3 * new.alpha), p.mean)
    return new


def first_of(gains: np.ndarray, ranked: Scan | LaplaceProblem) -> int:
    """The unit of largest gain; among equals the lowest in rank."""
    largest = gains.max()
    equal = np.flatnonzero(gains >= largest - _TIE * max(1.0, largest))
    return int(equal[0]) if equal.size == 1 else int(equal[np.argmin(ranked.rank(equal))])


def propose(model: LaplaceModel) -> Scan | None:
    """The scan that `grow` and `exchange` choose from; None where they run in C and make their own."""
    return None if compiled.searches(model.problem) else scan(model)


def _in_c(
    model: LaplaceModel, what: int, tol: float, batch: int = 1, flag: int = 0, work: float = np.inf
) -> tuple[LaplaceModel | None, float] | None:
    """A move made in C, as `grow` returns it; None where it has to be made here."""
    problem = model.problem
    if not compiled.searches(problem):
        return None
    made = compiled.move(problem, what, model.active, model.posterior, model.refused, batch, tol, flag, work)
    if made is None:
        return None
    found, gain, atom = made
    if found is None:
        return None, gain
    refused = frozenset(found.places[found.refused].tolist()) if found.refused.any() else frozenset()
    p = found.posterior  # of the columns as scans see them
    moved = LaplaceModel(problem, found.places, problem.posterior(found.places, p.alpha, p.mean), atom, refused)
    if what in (compiled.GROW, compiled.SHRINK, compiled.EXCHANGE):
        gain = moved.objective - model.objective
        return (moved, gain) if gain > 0.0 else (None, gain)
    return moved, gain


def grow(model: LaplaceModel, found: Scan | None, batch: int, tol: float) -> tuple[LaplaceModel | None, float]:
    """Add the most useful units, then two Newton steps; None and the largest refitted gain where none exceeds tol."""
    made = _in_c(model, compiled.GROW, tol, batch)
    if made is not None:
        return made
    found = scan(model) if found is None else found
    gains, most = found.gains.copy(), 0.0
    for _ in range(_REFUTED):
        first = first_of(gains, found)
        if gains[first] <= tol:
            return None, max(most, float(gains[first]))
        chosen = _batch(model, found, gains, first, batch)
        while len(chosen):
            grown = model.joined(found.units[chosen], found.alpha[chosen], found.start(model, chosen))
            if grown.objective > model.objective - 0.5 * gains[first]:
                grown = tempered(grown.relaxed(2), model)
                gain = grown.objective - model.objective if trusted(grown, model) else 0.0
                if gain > 0.1 * tol:
                    return grown, gain
                most = max(most, gain)
            chosen = chosen[: len(chosen) // 2]
        # the refitted evidence refutes what the scan promised, for this unit and its near-copies
        gains[first] = 0.0
        near = np.flatnonzero(gains > tol)
        if near.size:
            near = near[np.argsort(-gains[near])][:256]
            gains[near[alike(model, found, first, near) > 0.99]] = 0.0
    return None, most


def _batch(model: LaplaceModel, found: Scan, gains: np.ndarray, first: int, batch: int) -> np.ndarray:
    """The best unit and further good ones that hardly overlap with it or each other."""
    near = np.flatnonzero(gains >= _WORTH * gains[first])
    if batch == 1 or near.size == 1:
        return np.array([first])
    near = near[np.lexsort((found.rank(near), -np.round(gains[near] / gains[first], 9)))][: 8 * batch]
    near = np.concatenate([[first], near[near != first]])
    close = overlaps(model, found, near) > _APART
    chosen = [0]
    for j in range(1, len(near)):
        if len(chosen) == batch:
            break
        if not close[j, chosen].any():
            chosen.append(j)
    return near[chosen]


def shrink(model: LaplaceModel, tol: float) -> tuple[LaplaceModel | None, float]:
    """Delete a unit if that, refitted, gains; None and the largest refitted gain otherwise."""
    if not len(model.active):
        return None, 0.0
    made = _in_c(model, compiled.SHRINK, tol)
    if made is not None:
        return made
    gains, _ = deletion_gains(model)
    most = 0.0
    for i in np.argsort(-gains)[:4]:
        if gains[i] < -1.0:
            break
        fewer = model.without(np.arange(len(gains)) == i)
        if not within_reach(fewer, model.objective):
            continue
        fewer = fewer.relaxed(3)
        gain = fewer.objective - model.objective if trusted(fewer, model) else 0.0
        if gain > tol:
            return fewer, gain
        most = max(most, gain)
    return None, most


def exchange(model: LaplaceModel, found: Scan | None, tol: float) -> tuple[LaplaceModel | None, float]:
    """Exchange one unit for another; None and the largest refitted gain where none exceeds tol."""
    if not len(model.active):
        return None, 0.0
    made = _in_c(model, compiled.EXCHANGE, tol)
    if made is not None:
        return made
    pairs, most = swaps(model, scan(model) if found is None else found), 0.0
    order = np.lexsort((model.problem.rank(model.active[pairs.leaving]), -np.round(pairs.gain, 9)))
    for i in order[:_TRIES]:
        if pairs.gain[i] < _HOPELESS:
            break
        swapped = _swap(model, pairs, i)
        if not within_reach(swapped, model.objective):
            continue
        swapped = swapped.relaxed(2)
        gain = swapped.objective - model.objective
        if -0.3 < gain <= tol:
            swapped = swapped.relaxed(6)
            gain = swapped.objective - model.objective
        if not trusted(swapped, model):
            continue
        if gain > tol:
            return replace(swapped.relaxed(20), atom=int(pairs.entering[i])), gain
        most = max(most, gain)
    return None, most


def _swap(model: LaplaceModel, pairs: Swaps, i: int) -> LaplaceModel:
    problem, place = model.problem, int(pairs.leaving[i])
    active, alpha = model.active.copy(), model.alpha.copy()
    active[place], alpha[place] = pairs.entering[i], pairs.alpha[i]
    k = problem.per_unit
    where = slice(place * k, place * k + k)
    start = model.posterior.mean.copy()
    start[where] = pairs.weight[i]
    return LaplaceModel(problem, active, problem.posterior(active, alpha, start, model), int(active[place]))


def settle(model: LaplaceModel, batch: int, exchanging: bool, limit: Limit) -> LaplaceModel:
    """Additions, re-estimation and exchanges until none helps."""
    tol = model.problem.tol
    if limit.open(model.problem):
        made = _in_c(model, compiled.SETTLE, tol, batch, int(exchanging), limit.work - model.problem.budget.spent)
        if made is not None:
            return made[0]  # type: ignore[return-value]
    while limit.open(model.problem):
        better, _ = grow(model, propose(model), batch, tol)
        if better is None:
            before = model.objective
            model = replace(model, refused=frozenset()).relaxed(60)
            if model.objective > before + 0.1 * tol:
                continue
            better, _ = shrink(model, tol)
        if better is None and exchanging:
            better, _ = exchange(model, propose(model), tol)
        if better is None:
            break
        model = better
    return model


def anneal(model: LaplaceModel, factor: float, batch: int, limit: Limit) -> LaplaceModel:
    """Count every sample several times, let units enter, and return to the data as they are.

    What a smaller noise does in regression: the model passes through richer supports, from which deletion reaches
    better maxima than addition alone.
    """
    problem = model.problem
    hot = replace(problem, weights=factor * problem.weights)
    held = LaplaceModel(hot, model.active, hot.posterior(model.active, model.alpha, model.posterior.mean))
    most, tol = 2 * len(model.active) + 10 * problem.K, max(problem.tol, _HEAT_TOL)
    made = _in_c(held, compiled.CLIMB, tol, batch, most, limit.work - problem.budget.spent)
    if made is not None:
        held = made[0]  # type: ignore[assignment]
    else:
        while len(held.active) < most and limit.open(problem):
            grown, _ = grow(held, propose(held), batch, tol)
            if grown is None:
                break
            held = grown
        held = held.relaxed(8)
    cool = problem.posterior(held.active, held.alpha, held.posterior.mean, held)
    return LaplaceModel(problem, held.active, cool).relaxed(20)


def drop_atoms(model: LaplaceModel) -> LaplaceModel:
    """Remove a random unit with a few of its nearest, so that others may take their place."""
    rng, u = model.problem.rng, len(model.active)
    if u < 2:
        return model
    atoms = model.active % model.problem.design.n_atoms
    similar = np.abs(model.problem.design.gram(atoms)[int(rng.integers(u))])
    gone = np.argsort(-similar)[: rng.integers(1, min(4, u))]
    leave = np.zeros(u, bool)
    leave[gone] = True
    return model.without(leave)


def solve_laplace(solver, problem: LaplaceProblem, max_iter: int, verbose: int = 0) -> Result:
    """Run a solver on a problem that is not Gaussian."""
    from relvec.solvers.laplace.fixed_point import laplace_solver

    return iterate(laplace_solver(solver), problem, max_iter, verbose)  # type: ignore[arg-type]
