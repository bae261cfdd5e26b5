"""The sequential method under the Laplace approximation: the order of moves, restarts and the certificate."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from relvec.solvers.laplace.moves import (
    SETTINGS,
    Limit,
    anneal,
    drop_atoms,
    exchange,
    grow,
    propose,
    settle,
    shrink,
    trusted,
)
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, empty_model, relax
from relvec.solvers.laplace.scan import scan
from relvec.solvers.loop import Start, State, Status


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
        model = empty_model(replace(problem, trusted=max(problem.trusted, SETTINGS.held_trust)))
        if problem.start is not None and len(problem.start[0]):
            units, alpha = problem.start
            model = LaplaceModel(problem, units, problem.posterior(units, alpha))
        elif self.start_at_bias and problem.bias >= 0:
            found = scan(model)
            first = np.flatnonzero(np.isin(found.units, _bias_units(problem)) & np.isfinite(found.alpha))
            if first.size:
                model = model.add(found.units[first], found.alpha[first], found.start(model, first))
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
            held_back = model.problem.trusted > problem.trusted and model.trust < SETTINGS.released_trust
            model = replace(model, problem=problem)
            notes = replace(notes, model=model, offered=offered, certified=not held_back)
            if held_back:
                notes = replace(notes, settled=False)
                return state.stepped(action="", notes=notes)
        if not notes.restarts:
            spent = problem.budget.spent - notes.began
            work = problem.budget.spent + self.restarts * max(SETTINGS.min_restart_ns, SETTINGS.restart_share * spent)
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
        heats = SETTINGS.heats
        heat = heats[turn] if turn < len(heats) else None
        if turn >= len(heats):
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
        if other.objective < model.objective - SETTINGS.max_restart_shortfall_nats:
            return model
        return settle(replace(other, problem=problem), 1, self.exchange, notes.limit)


@dataclass(frozen=True, eq=False)
class _Notes:
    """Notes of the search between steps."""

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
