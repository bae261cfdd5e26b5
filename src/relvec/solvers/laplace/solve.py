"""Run a solver on a problem that is not Gaussian."""

from __future__ import annotations

from dataclasses import replace

from relvec.solvers.fixed_point import EM, MacKay
from relvec.solvers.laplace.fixed_point import LaplaceFixedPoint
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.search import begin
from relvec.solvers.laplace.textbook import textbook_step
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
        return Search(solver, begin)
    if problem.share:
        raise ValueError(
            f"select={solver.select!r} is TF03's search, in which every weight has its own precision: leave "
            "share_alpha at False, or select at 'batch'"
        )
    return Search(replace(solver, batch=1), begin, textbook_step)
