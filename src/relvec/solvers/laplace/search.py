"""The sequential search under the Laplace approximation (TF03 with its section 2.2): its models, and their restarts.

S and Q of TF03 eq. (24)-(25) belong to the problem linearised at the mode. They choose the moves; a move is kept only
if the evidence of the refitted model rises, so the history is monotone. The certificate says that of the most promising
additions, deletions and exchanges, each refitted, none gained more than tol, nor do further steps on the precisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.solvers.laplace import moves
from relvec.solvers.laplace.moves import (
    SETTINGS,
    anneal,
    climb_by_moves,
    drop_undetermined,
    drop_units,
    is_trusted,
    run_mackay,
)
from relvec.solvers.laplace.precisions import relax, try_long_steps
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, empty_model
from relvec.solvers.laplace.scan import Scan, scan
from relvec.solvers.loop import Status, not_lower

Move = Callable[[float], tuple[LaplaceModel | None, float]]


@dataclass(frozen=True, eq=False)
class ModelInSearch:
    """A model of classes or counts as the search moves it (`relvec.solvers.protocol.SearchModel`).

    The way to the first maximum keeps the trust in the approximation above `LaplaceSettings.held_trust`, as regression
    holds the noise; at the end models are moved along the edge of the region of trust.
    """

    model: LaplaceModel
    problem: LaplaceProblem  # as it was given
    offers: dict[str, float] = field(default_factory=dict)  # nats that moves which were not made would have gained
    cut: set[str] = field(default_factory=set)  # those of which the edge of trust cut trials short
    found: dict[str, ModelInSearch] = field(default_factory=dict)  # where moves that gain lead

    @property
    def active(self) -> np.ndarray:
        """Units (u,)."""
        return self.model.active

    @property
    def posterior(self) -> PosteriorOnRows:
        """The posterior of the weights."""
        return self.model.posterior

    @property
    def full_posterior(self) -> PosteriorOnRows:
        """The posterior of the weights."""
        return self.model.posterior

    @property
    def objective(self) -> float:
        """The Laplace evidence, less the price of the units and plus the terms of a hyperprior."""
        return self.model.objective

    @property
    def atom(self) -> int:
        """The unit last moved."""
        return self.model.atom

    def grow(self, batch: int | None, tol: float, hold_noise: bool = False) -> ModelInSearch | None:
        """With the most useful units added, up to ``batch`` of them."""
        size = 1 if self.model.problem.thorough else batch or SETTINGS.batch
        return self._try("add", lambda tol: moves.grow(self.model, self._scan, size, tol), tol)

    def shrink(self, tol: float) -> ModelInSearch | None:
        """Without a unit whose deletion gains."""
        return self._try("delete", partial(moves.shrink, self.model), tol)

    def exchange(self, tol: float) -> ModelInSearch | None:
        """With one unit in place of another."""
        return self._try("exchange", lambda tol: moves.exchange(self.model, self._scan, tol), tol)

    @cached_property
    def _scan(self) -> Scan:
        return scan(self.model)

    def _try(self, action: str, move: Move, tol: float) -> ModelInSearch | None:
        if action in self.offers or action in self.found:
            return self.found.get(action)
        before = self.problem.budget.crossings
        moved, gain = move(tol)
        if moved is not None:
            kept = keep(replace(moved, problem=replace(moved.problem, thorough=False)), self.problem)
            if not_lower(kept.objective, self.objective):  # its mode, found once more, may show less
                self.found[action] = kept
                return kept
        self.offers[action] = gain
        if self.problem.budget.crossings > before:
            self.cut.add(action)
        return None

    def settle(self, tol: float) -> ModelInSearch:
        """With precisions at their optimum."""
        problem, crossings = self.model.problem, self.problem.budget.crossings
        model = replace(self.model, problem=replace(problem, patient=True), refused=frozenset())
        for _ in range(SETTINGS.max_settlings):
            before = model.objective
            model, expected = relax(model, SETTINGS.settling_steps)
            if expected <= SETTINGS.slow_share * tol or model.objective <= before + SETTINGS.slow_share * tol:
                break
        settled = keep(replace(model, problem=problem), self.problem)
        if not not_lower(settled.objective, self.objective):  # by rounding
            settled = ModelInSearch(self.model, self.problem)
        same = len(settled.active) == len(self.active)
        still = same and settled.objective <= self.objective + SETTINGS.slow_share * tol
        if still:
            settled.offers.update(self.offers)
            settled.cut.update(self.cut)
        settled.offers["reestimate"] = expected
        if self.problem.budget.crossings > crossings:
            settled.cut.add("reestimate")
        return settled

    def _free(self, patient: bool) -> LaplaceModel:
        thorough = patient and self.problem.few_rows
        return replace(self.model, problem=replace(self.problem, patient=patient, thorough=thorough))

    def release(self) -> ModelInSearch | None:
        """Without the higher limit of trust, where that held the model back."""
        if not self.cut or self.model.problem.trusted <= self.problem.trusted:
            return None
        return ModelInSearch(self._free(False), self.problem)

    def may_restart(self, turn: int, failed: int, restarts: int) -> bool:
        """As many times as are asked for, while their work is allowed.

        Never at the edge of trust, nor where the number of functions is limited: MacKay's updates begin with all.
        """
        free = self.problem.most_functions is None and not self.model.problem.patient
        return turn < restarts and free

    def repeats(self, turn: int) -> bool:
        """No restart is tried again."""
        return False

    def restart(self, turn: int, batch: int | None, exchanging: bool, deadline: float) -> ModelInSearch | None:
        """Another local maximum: by MacKay's updates, single additions, a heated likelihood, or removals."""
        model, budget = self._free(False), self.problem.budget
        if not budget.first:
            budget.first = budget.spent
        share = max(SETTINGS.min_restart_ns, SETTINGS.restart_share * budget.first)
        work = budget.first + max(SETTINGS.min_shares, turn + 1) * share
        if not self.problem.open_to(work):
            return None
        other = self._begin_anew(model, turn, work)
        if other is None:
            return None
        before = budget.crossings
        other, offers = climb_by_moves(other, exchanging, work, model)
        cut = set(offers) if budget.crossings > before else set()
        return None if other is None else keep(drop_undetermined(other), self.problem, offers, cut)

    def _begin_anew(self, model: LaplaceModel, turn: int, work: float) -> LaplaceModel | None:
        if turn == 0:
            return run_mackay(model, work)
        if turn == 1:
            from_nothing_is_dear = work - self.problem.budget.spent < self.problem.budget.first
            return None if from_nothing_is_dear else empty_model(model.problem)
        return anneal(model, 1, work) if turn == 2 else drop_units(model)

    def exchange_pairs(self, batch: int | None, deadline: float) -> None:
        """None: restarts of classes and counts exchange atoms themselves."""

    def admits(self, other: ModelInSearch) -> bool:
        """Whether the other is where the approximation is self-consistent."""
        return is_trusted(other.model, self._free(False))

    def sharpen(self) -> ModelInSearch:
        """With precisions at their maximum, along the edge of trust where it lies there, and no undetermined unit."""
        before = self._free(True)
        accuracy = SETTINGS.sharp_share * max(1.0, abs(before.objective))
        model, far = before, before
        for _ in range(1 + SETTINGS.max_settlings):
            settled, expected = relax(far, SETTINGS.settling_steps, accuracy)
            model, rise = drop_undetermined(settled), settled.objective - far.objective
            far = try_long_steps(model)
            if far is model is settled and rise <= SETTINGS.slow_share * self.problem.tol:
                break
        offers = {"reestimate": max(expected, far.objective - model.objective)}
        of_one_size = len(model.active) == len(self.active)
        if model.objective < self.objective and of_one_size:
            model, offers = before, {}
        same = of_one_size and model.objective - before.objective < 1e-3 * self.problem.tol
        if same and not self.cut:  # additions are looked at once more, with the motion of B
            offers = {action: gain for action, gain in self.offers.items() if action != "add"} | offers
        kept = keep(model, self.problem, offers)
        by_rounding = model.objective >= self.objective or self.objective - kept.objective <= self.problem.tol
        fell = kept.objective < self.objective and by_rounding and of_one_size
        return ModelInSearch(before, self.problem, offers) if fell else kept

    def largest_gain(self, exchanging: bool) -> float:
        """Return the largest gain (nats) that a move, refitted, still offers."""
        tol = self.problem.tol
        if "reestimate" not in self.offers:
            expected, far = relax(self.model, 1)[1], try_long_steps(self.model)
            self.offers["reestimate"] = max(expected, far.objective - self.objective)
        moved = []
        for action, move in (("add", partial(self.grow, 1)), ("delete", self.shrink), ("exchange", self.exchange)):
            if action not in self.offers and (exchanging or action != "exchange"):
                moved.append(move(tol))
        gains = [other.objective - self.objective for other in moved if other is not None]
        return max(*self.offers.values(), *gains, 0.0)

    def ended(self) -> Status | None:
        """Let the certificate decide."""
        return None


def begin_laplace(problem: LaplaceProblem, bias_first: bool) -> ModelInSearch:
    """Return the empty model, the bias, or the model given."""
    model = empty_model(replace(problem, trusted=max(problem.trusted, SETTINGS.held_trust)))
    if problem.start is not None and len(problem.start[0]):
        units, alpha = problem.start
        model = LaplaceModel(problem, units, problem.fit(units, alpha))
    elif bias_first and problem.bias >= 0:
        found = scan(model)
        first = _bias_units(problem)
        first = first[np.isfinite(found.alpha[first])]
        if first.size:
            model = model.add(first, found.alpha[first], found.start(model, first))
    return keep(model, problem)


def keep(
    model: LaplaceModel, problem: LaplaceProblem, offers: dict[str, float] | None = None, cut: set[str] | None = None
) -> ModelInSearch:
    """Return the model with its mode found once more, from its weights.

    So the way to it leaves no rounding errors, which would move the end of a search along the edge of trust.
    """
    spent = problem.budget.spent
    model = replace(model, fit=model.problem.fit(model.active, model.alpha, model.fit.mean, model.fit.Phi))
    problem.budget.spent = spent
    return ModelInSearch(model, problem, offers or {}, cut or set())


def _bias_units(problem: LaplaceProblem) -> np.ndarray:
    return np.array([problem.bias]) if problem.share else problem.bias + problem.design.n_atoms * np.arange(problem.K)
