"""TF03 section 4 to the letter: one action at a time, chosen from the s and q of every function.

The steps are those of any likelihood; what they do to a Gaussian model is here, what they do to others in
`relvec.solvers.laplace.solve`. Statistics are computed anew in every step: rank-one updates by the formulas of TF03's
appendix would drift.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from relvec.inference.evidence import best, gain_add, gain_reestimate, mackay_noise, optimal_alpha
from relvec.solvers._native.gaussian import COLLINEAR
from relvec.solvers.loop import State, not_lower
from relvec.solvers.sequential import Sequential

SMALL = 1e-6  # TF03 4.4: changes of log alpha (and of log beta) below this end the search


@dataclass(frozen=True, eq=False)
class TextbookModel(ABC):
    """A model, and its problem, as the steps of TF03 see it."""

    problem: Any
    search: Any  # a `relvec.solvers.protocol.SearchModel`
    exact = True  # whether an action gains what s and q promise

    @abstractmethod
    def statistics(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """S and q (U,) of all units, TF03 eq. (19), and whether each may enter or is in the model."""

    @abstractmethod
    def rank(self) -> np.ndarray:
        """Rank of all units (U,) by content."""

    @abstractmethod
    def put(self, unit: int, alpha: float) -> Self:
        """With a unit at a precision, added where it is not in the model; without it where that is infinite."""

    def update_noise(self) -> Self:
        """TF03 step 9, where the noise is learned and the objective does not fall."""
        return self


@dataclass(frozen=True, eq=False)
class Memory:
    """What a step leaves to the next.

    Under the Laplace approximation s and q may promise in vain: TF03 would add such a unit, delete it again, and never
    end. A unit that left enters again only from a higher objective than it last entered from.
    """

    entered: dict[int, float] = field(default_factory=dict)  # objective from which each unit last entered
    position: int = 0  # where select="order" continues


def take_step(view: type[TextbookModel], problem: Any, state: State, settings: Sequential) -> State:
    """TF03 steps 4-11: choose a unit, act on it, now and then the noise."""
    notes = state.notes.but(steps=state.notes.steps + 1)
    model, memory = view(problem, notes.model), notes.statistics or Memory()
    i, alpha = _choose(model, memory, settings.select)
    moved, action = model, ""
    if i is not None:
        inside = i in model.search.active
        action, moved = ("delete" if np.isinf(alpha) else "reestimate") if inside else "add", model.put(i, alpha)
        if model.exact and not not_lower(moved.search.objective, model.search.objective):  # by rounding
            return state.stepped(action="", notes=notes.but(statistics=None, polishing=True))
        entered = memory.entered if inside else memory.entered | {i: model.search.objective}
        memory = Memory(entered, int(model.rank()[i]) + 1)
    if i is None or notes.steps % settings.noise_every == 0:
        moved = moved.update_noise()
    found, before = moved.search, model.search
    done = i is None and not abs(np.log(found.posterior.beta / before.posterior.beta)) >= SMALL
    notes = notes.but(model=found, statistics=None if done else memory, polishing=done)
    return State(found.active, found.posterior, found.objective, action or ("" if done else "noise"), found.atom,
                 notes=notes)  # fmt: skip


def _choose(model: TextbookModel, memory: Memory, select: str) -> tuple[int | None, float]:
    """TF03 4.2: the unit to change and its best precision, among those with something to do; None where none has."""
    s, q, useful = model.statistics()
    active, alpha = model.search.active, model.search.posterior.alpha
    target = optimal_alpha(s, q)
    useful &= np.isfinite(target)
    useful[[unit for unit, before in memory.entered.items() if not before < model.search.objective]] = False
    with np.errstate(divide="ignore"):
        useful[active] = ~(np.abs(np.log(target[active] / alpha)) < SMALL)
    gains = gain_add(s, q)
    gains[active] = gain_reestimate(alpha, s[active], q[active])
    i = choose_move(useful, gains, model.rank(), memory.position, model.problem.rng, select)
    return i, np.inf if i is None else float(target[i])


def choose_move(
    useful: np.ndarray, gains: np.ndarray, ranks: np.ndarray, position: int, rng: np.random.Generator, select: str
) -> int | None:
    """One of the actions that change something (U,): of largest gain, a random one, or the next in order."""
    if not useful.any():
        return None
    if select == "random":
        return int(rng.choice(np.flatnonzero(useful)))
    if select == "order":
        ahead = np.where(ranks >= position, ranks, ranks + ranks.max() + 1)[useful]
        return int(np.flatnonzero(useful)[np.argmin(ahead)])
    return best(np.where(useful, gains, -np.inf), ranks)


class GaussianView(TextbookModel):
    """A Gaussian model."""

    def statistics(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        active, core = self.search.active, self.search.core
        s, q = (values.copy() for values in core.scan()[:2])
        may = s > COLLINEAR * core.beta  # what is left of a combination of the model's functions is rounding
        s[active], q[active] = self.search.full_posterior.sparsity_quality()
        may[active] = True
        return s, q, may

    def rank(self) -> np.ndarray:
        return self.problem.order

    def put(self, unit: int, alpha: float) -> GaussianView:
        active, precisions = self.search.active, self.search.core.precisions
        here = active == unit
        if np.isinf(alpha):
            active, precisions = active[~here], precisions[~here]
        elif here.any():
            precisions = np.where(here, alpha, precisions)
        else:
            active, precisions = np.append(active, unit), np.append(precisions, alpha)
        return GaussianView(self.problem, self.search.at(active, precisions, self.search.core.beta, unit))

    def update_noise(self) -> GaussianView:
        if self.problem.fixed_noise:
            return self
        p, prior, now = self.search.full_posterior, self.problem.prior, self.search
        noise = mackay_noise(p.residual, self.problem.n_samples, p.gamma.sum(), prior.c, self.problem.prior_d)
        trial = now.at(now.active, p.alpha, 1.0 / max(noise, self.problem.noise_floor), now.atom)
        return GaussianView(self.problem, trial) if trial.objective > now.objective else self


textbook_step = partial(take_step, GaussianView)
