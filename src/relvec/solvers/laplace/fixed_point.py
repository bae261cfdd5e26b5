"""MacKay's and EM's fixed points under the Laplace approximation (T01 section 3), from the whole dictionary.

T01 eq. (16) keeps B at its value while alpha moves. Its fixed point is therefore near, but not at, the maximum of
the Laplace evidence, and the evidence may fall on the way there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.solvers.laplace.moves import grow
from relvec.solvers.laplace.precisions import begin_with, every_unit, prune, relax, update_precisions
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem
from relvec.solvers.laplace.scan import scan
from relvec.solvers.loop import State, Status

_CERTIFICATE_STEPS = 60  # towards the maximum on the same support


@dataclass(frozen=True)
class LaplaceFixedPoint:
    """Every unit at first, one update of all precisions a step, pruning.

    A fit ends at the fixed point: log alpha moves by less than 1e-5 wherever gamma > 1e-3, or the evidence by less
    than a thousandth of tol, and no unit has an infinite optimum. The certificate then
    tells how much the maximum of the Laplace evidence on the same support, or one more addition, would gain; it is
    above zero for the reason given above.
    """

    expectation: bool
    prune_gamma: float
    prune_alpha: float

    def init(self, problem: LaplaceProblem) -> State:
        """Every unit, with precisions so small that the data decide."""
        model = begin_with(problem, every_unit(problem))
        return State(model.active, model.posterior, model.objective, notes=model)

    def step(self, problem: LaplaceProblem, state: State) -> State:
        """One update of every precision, T01 eq. (16) or (48)."""
        model: LaplaceModel = state.notes
        before = state.objective
        gamma = problem.gather(model.posterior.gamma) / problem.per_unit
        new = np.minimum(update_precisions(model, self.expectation), 10.0 * self.prune_alpha)
        moved = np.abs(np.log(new / model.alpha))
        alive = (gamma >= self.prune_gamma) & (new <= self.prune_alpha) | (problem.prior_b is not None)
        model = model.keep(alive, new)
        state = state.stepped(active=model.active, posterior=model.posterior, objective=model.objective,
                              action="reestimate", notes=model)  # fmt: skip
        held = alive & (gamma > 1e-3)
        still = moved[held].max(initial=0.0) < 1e-5 or abs(state.objective - before) < 1e-3 * problem.tol
        if not (alive.all() and still):
            return state
        if problem.prior_b is None:  # what runs to infinity slowly leaves at once, as T01 B.1 asks
            fewer = prune(model)
            if len(fewer.active) < len(model.active):
                return state.stepped(active=fewer.active, posterior=fewer.posterior, objective=fewer.objective,
                                     action="delete", notes=fewer)  # fmt: skip
        return state.stepped(done=True, largest_gain=self._certificate(model))

    def finishing(self, state: State) -> bool:
        """Whether only the certificate is left to do."""
        return False

    def status(self, problem: LaplaceProblem, state: State) -> Status:
        """Return the fixed point was reached."""
        return Status.FIXED_POINT

    def _certificate(self, model: LaplaceModel) -> float:
        """Return the gain (nats) of the maximum on the same support, or of one more unit."""
        if model.problem.prior_b is not None:
            return float("nan")
        best, _ = relax(model, _CERTIFICATE_STEPS)
        _, offered = grow(best, scan(best), 1, model.problem.tol)
        return max(best.objective - model.objective, offered)
