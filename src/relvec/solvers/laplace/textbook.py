"""TF03 section 4 to the letter under the Laplace approximation: one action at a time, the mode found after each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.inference.evidence import gain_add, gain_reestimate, optimal_alpha
from relvec.solvers.gaussian.textbook import SMALL, choose_move
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem
from relvec.solvers.laplace.scan import Scan, scan
from relvec.solvers.laplace.search import ModelInSearch
from relvec.solvers.loop import State
from relvec.solvers.sequential import Sequential


@dataclass(frozen=True, eq=False)
class Memory:
    """What a step leaves to the next.

    The linearised problem may promise in vain: TF03 would add such a unit, delete it again, and never end. A unit that
    left enters again only from a higher evidence than it last entered from.
    """

    entered: dict[int, float]  # evidence from which each unit last entered
    position: int = 0  # where select="order" continues


def textbook_step(problem: LaplaceProblem, state: State, settings: Sequential) -> State:
    """TF03 steps 4-11: choose a unit, act on it, find the mode and its statistics (TF03 eq. (11)-(14))."""
    notes = state.notes.but(steps=state.notes.steps + 1)
    model: LaplaceModel = notes.model.model
    memory = notes.statistics or Memory({})
    found = scan(model)
    s, q = model.posterior.sparsity_quality()
    i = _choose(problem, model, memory, found, (s, q), settings.select)
    if i is None:
        return state.stepped(action="", notes=notes.but(statistics=None, polishing=True))
    inside, place = i < len(s), max(i - len(s), 0)
    unit, alpha, entered = int(model.active[i]) if inside else place, model.alpha, memory.entered
    if not inside:
        action, entered = "add", memory.entered | {unit: model.objective}
        at = np.array([place])
        moved = model.add(at, found.alpha[at], found.start(model, at))
    elif np.isinf(optimal_alpha(s[i], q[i])):
        action, moved = "delete", model.drop(np.arange(len(s)) == i)
    else:
        action = "reestimate"
        moved = model.at(np.where(np.arange(len(s)) == i, optimal_alpha(s[i], q[i]), alpha), model.fit.mean)
    position = int(problem.rank(np.array([unit]))[0]) + 1
    notes = notes.but(model=ModelInSearch(moved, problem), statistics=Memory(entered, position))
    return State(moved.active, moved.posterior, moved.objective, action, unit, notes=notes)


def _choose(
    problem: LaplaceProblem, model: LaplaceModel, memory: Memory, found: Scan, own: tuple[np.ndarray, np.ndarray],
    select: str,
) -> int | None:  # fmt: skip
    """Find the unit to change, its place among those of the model and then the scan; None where nothing is left."""
    s, q = own
    S, Q = (np.concatenate([getattr(one, name) for one in found.classes]) for name in "SQ")
    again = [memory.entered.get(unit, -np.inf) < model.objective for unit in range(len(found.gains))]
    outside = found.outside.ravel() & (Q * Q > S) & (S > 0.0) & np.array(again, dtype=bool)
    target = optimal_alpha(s, q)
    with np.errstate(divide="ignore"):
        changes = ~(np.abs(np.log(target / model.alpha)) < SMALL)
    gains = np.concatenate([gain_reestimate(model.alpha, s, q), gain_add(S, Q)])
    ranks = np.concatenate([problem.rank(model.active), problem.rank(np.arange(len(found.gains)))])
    return choose_move(np.concatenate([changes, outside]), gains, ranks, memory.position, problem.rng, select)
