"""Run a solver on a problem that is not Gaussian."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from relvec.solvers.fixed_point import EM, MacKay
from relvec.solvers.gaussian.textbook import TextbookModel, take_step
from relvec.solvers.laplace.fixed_point import LaplaceFixedPoint
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.scan import Scan, scan
from relvec.solvers.laplace.search import ModelInSearch, begin_laplace
from relvec.solvers.loop import Result, iterate
from relvec.solvers.sequential import Search, Sequential


def solve_laplace(solver, problem: LaplaceProblem, max_iter: int, verbose: int = 0) -> Result:
    """Run the counterpart of a solver of regression on a problem that is not Gaussian.

    Where units have a price one search begins with nothing and one with the model found without a price, and deletes:
    additions that each cost more than they gain may pay together. Restarts, which raise the evidence by further units,
    are not made.
    """
    if problem.price and isinstance(solver, Sequential):
        solver = replace(solver, restarts=0)
        if problem.start is None:
            free = iterate(laplace_solver(solver, problem), replace(problem, price=0.0), max_iter, verbose).state  # type: ignore[arg-type]
            begun = replace(problem, start=(free.active, free.posterior.alpha[:: problem.per_unit]))
            found = [iterate(laplace_solver(solver, problem), own, max_iter, verbose) for own in (problem, begun)]  # type: ignore[arg-type]
            return max(found, key=lambda result: result.state.objective)
    return iterate(laplace_solver(solver, problem), problem, max_iter, verbose)  # type: ignore[arg-type]


def laplace_solver(solver, problem: LaplaceProblem) -> Search | LaplaceFixedPoint:
    """Return the solver for a likelihood that is not Gaussian that a solver of regression stands for."""
    if isinstance(solver, MacKay | EM):
        return LaplaceFixedPoint(isinstance(solver, EM), solver.prune_gamma, solver.prune_alpha)
    if not isinstance(solver, Sequential):
        raise ValueError(f"{solver!r} is for regression: choose Sequential, MacKay or EM for classes and counts")
    if solver.stop == "tf03":
        solver = replace(solver, exchange=False, restarts=0)
    if solver.select == "batch":
        return Search(solver, begin_laplace)
    if problem.share:
        raise ValueError(
            f"select={solver.select!r} is TF03's search, in which every weight has its own precision: leave "
            "share_alpha at False, or select at 'batch'"
        )
    return Search(replace(solver, batch=1), begin_laplace, partial(take_step, LaplaceView))


class LaplaceView(TextbookModel):
    """A model of classes or counts for the steps of TF03, with the s and q of the problem linearised at the mode."""

    exact = False

    def statistics(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found, active = self._scan, self.search.active
        s, q = (np.concatenate([getattr(one, name) for one in found.classes]) for name in "SQ")
        may = found.outside.ravel() & (s > 0.0)
        s[active], q[active] = self.search.posterior.sparsity_quality()
        may[active] = True
        return s, q, may

    @cached_property
    def _scan(self) -> Scan:
        return scan(self.search.model)

    def rank(self) -> np.ndarray:
        return self.problem.rank(np.arange(self.problem.n_units))

    def put(self, unit: int, alpha: float) -> LaplaceView:
        model, units = self.search.model, np.array([unit])
        here = model.active == unit
        if np.isinf(alpha):
            moved = model.drop(here)
        elif here.any():
            moved = model.at(np.where(here, alpha, model.alpha), model.fit.mean)
        else:
            moved = model.add(units, np.array([alpha]), self._scan.start(model, units))
        return LaplaceView(self.problem, ModelInSearch(replace(moved, atom=unit), self.problem))
