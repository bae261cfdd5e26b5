"""Run a solver on a problem that is not Gaussian."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import log_expit

from relvec.design import ModelOnRows
from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.inference.likelihoods import Bernoulli, logistic_log_odds
from relvec.runtime.arrays import like, squares, to_host
from relvec.solvers.fixed_point import EM, MacKay
from relvec.solvers.laplace.fixed_point import LaplaceFixedPoint
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.search import begin
from relvec.solvers.loop import Result, State, iterate
from relvec.solvers.sequential import Search, Sequential

_NARROWER = tuple(np.linspace(1.0, 0.0, 41))  # deviations tried where those of a posterior are too wide, relative


def solve_laplace(solver, problem: LaplaceProblem, max_iter: int, verbose: int = 0) -> Result:
    """Run the counterpart of a solver of regression on a problem that is not Gaussian.

    Where units have a price one search begins with nothing and one with the model found without a price, and deletes:
    additions that each cost more than they gain may pay together. Restarts, which raise the evidence by further units,
    are not made.
    """
    if problem.price and isinstance(solver, Sequential):
        solver = replace(solver, restarts=0)
        if problem.start is None:
            free = iterate(laplace_solver(solver), replace(problem, price=0.0), max_iter, verbose).state  # type: ignore[arg-type]
            begun = replace(problem, start=(free.active, free.posterior.alpha[:: problem.per_unit]))
            found = [iterate(laplace_solver(solver), own, max_iter, verbose) for own in (problem, begun)]  # type: ignore[arg-type]
            return max(found, key=lambda result: result.state.objective)
    return iterate(laplace_solver(solver), problem, max_iter, verbose)  # type: ignore[arg-type]


def laplace_solver(solver) -> Search | LaplaceFixedPoint:
    """The solver for a likelihood that is not Gaussian that a solver of regression stands for."""
    if isinstance(solver, MacKay | EM):
        return LaplaceFixedPoint(isinstance(solver, EM), solver.prune_gamma, solver.prune_alpha, solver.time_limit)
    if not isinstance(solver, Sequential) or solver.select not in ("batch", "gain"):
        raise ValueError(
            f"{solver!r} is for regression: choose Sequential with select='batch' or 'gain', MacKay or EM for "
            "classes and counts"
        )
    if solver.select == "gain":
        solver = replace(solver, batch=1)
    if solver.stop == "tf03":
        solver = replace(solver, exchange=False, restarts=0)
    return Search(solver, begin)


def consistent_width(problem: LaplaceProblem, state: State) -> float:
    """Factor of at most one for the deviations of a posterior of two classes, so that it may be the posterior.

    For every posterior q, log p(t) = E_q log p(t | w) - KL(q, prior) <= sum_n log E_q p(t_n | w): averages over it make
    the training rows at least as probable as the evidence says. Laplace's approximation of separable classes, where the
    posterior is skew, may be too wide for that.
    """
    if type(problem.likelihood) is not Bernoulli or not len(state.active):
        return 1.0
    on_rows = ModelOnRows(problem.observed, problem.pairs(state.active)[1], state.posterior)
    evidence = state.posterior.log_evidence
    if problem.design.reduce(on_rows, partial(averaged_log_likelihood, (1.0,)))[0] >= evidence:
        return 1.0
    found = problem.design.reduce(on_rows, partial(averaged_log_likelihood, _NARROWER))
    return float(np.interp(evidence, np.maximum.accumulate(found), _NARROWER))


def averaged_log_likelihood(factors: tuple[float, ...], p: PosteriorOnRows, weights: np.ndarray) -> np.ndarray:
    """sum_n log E p(t_n | f_n) of two classes for some rows, with deviations times each of the factors (j,)."""
    f, w = to_host(p.f), to_host(weights)
    variance = to_host(squares(p.Phi @ like(p.Phi, p.root), 1))
    ones = w * Bernoulli().mean(f) + to_host(p.r)  # w t: the residual is w (t - p)
    odds = [logistic_log_odds(f, factor**2 * variance) for factor in factors]
    return np.array([ones @ x + w @ log_expit(-x) for x in odds])
