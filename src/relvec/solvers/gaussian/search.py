"""The search of a Gaussian problem in memory: the native engine, and orthogonal factors where its digits are too few.

The engine works with inner products of columns, which have half the digits of the columns. Where the noise is so small,
or columns so nearly dependent, that this shows, the search goes on with orthogonal factors (`GaussianModel`): where the
engine is not sure of its certificate, or its evidence is not that of the columns themselves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.inference.evidence import gaussian
from relvec.runtime.progress import is_watched, report
from relvec.solvers import loop
from relvec.solvers._native import engine
from relvec.solvers.gaussian.model import Precisions, begin_gaussian
from relvec.solvers.loop import (
    Problem,
    Result,
    Start,
    State,
    Status,
    Step,
    at_noise_floor,
    iterate,
    log_steps,
    progress_fraction,
)
from relvec.solvers.sequential import Search, Sequential

_MOST = 2**30  # of numbers that the engine counts to
_MAX_ERROR = 0.01  # of the tolerance, by which the engine's evidence may be off
_STATUS = {"late": Status.TIME_LIMIT, "stopped": Status.INTERRUPTED, "max_steps": Status.MAX_ITER}


def search(solver: Sequential, problem: Problem, max_iter: int, verbose: int = 0) -> Result:
    """Search a problem whose dictionary is in memory."""
    gains: list[float] = []

    def watch(size: int, objective: float, gain: float) -> bool:
        gains.append(gain)
        return report(size, objective, progress_fraction(gains, problem.tol, False))

    left = problem.clock.left()
    limit = -1.0 if left == np.inf else max(left, 0.0)
    start = _start(solver, problem)
    ended, active, alpha, beta, objective, largest, sure, steps = engine.search(
        problem,
        (start.active, start.alpha, start.beta),
        min(solver.restarts, _MOST),
        solver.exchange,
        solver.support_prior == "flat",
        min(max_iter, _MOST),
        limit,
        "flat",
        0.0,
        0.0,
        -1,
        loop.LARGE_MODEL,
        watch if is_watched() else None,
        min(solver.batch or 0, problem.n_units),
        min(solver.noise_every, _MOST),
    )
    if ended == "no_digits":  # from the beginning: with so little noise the way there has no digits either
        return with_orthogonal_factors(solver, problem, max_iter, verbose)
    p = gaussian(
        problem.design.columns(active), problem.target, problem.target_norm2_outside, problem.n_samples, alpha, beta
    )
    exact, tol = problem.objective(active, p), problem.tolerance(len(active))
    shift = exact - objective if ended == "done" else 0.0  # the rounding of the way there
    history = _history(steps, shift)
    if verbose:
        log_steps(history)
    known = sure and largest <= tol and abs(shift) <= _MAX_ERROR * tol
    if ended == "done" and not known:
        again = replace(problem, start=Start(active, alpha, beta))
        rest = with_orthogonal_factors(replace(solver, restarts=0), again, max_iter - len(history) + 1, verbose)
        return replace(rest, history=history + rest.history[1:], n_iter=len(history) - 1 + rest.n_iter)
    report(len(active), p.log_evidence, 1.0)
    if ended != "done":
        return Result(State(active, p, exact, largest_gain=np.inf), _STATUS[ended], history, len(history) - 1)
    status = Status.NOISE_FLOOR if at_noise_floor(problem, beta) else Status.CONVERGED
    return Result(State(active, p, exact, done=True, largest_gain=largest), status, history, len(history) - 1)


def with_orthogonal_factors(solver: Sequential, problem: Problem, max_iter: int, verbose: int = 0) -> Result:
    """Search with all digits: Householder's factors of the columns themselves."""
    result = iterate(Search(solver, begin_gaussian), problem, max_iter, verbose)
    if isinstance(result.state.posterior, Precisions):
        return replace(result, state=result.state.stepped(posterior=result.state.notes.model.full_posterior))
    return result


def _start(solver: Sequential, problem: Problem) -> Start:
    """The model given, the bias alone (TF03 4.1), or none of the atoms."""
    model = begin_gaussian(problem, solver.start == "bias") if solver.start == "bias" or problem.prior.b > 0 else None
    if model is not None:
        return Start(model.active, model.core.precisions, model.core.beta)
    if problem.start is not None:
        return problem.start
    return Start(np.zeros(0, dtype=np.intp), np.zeros(0), 1.0 / (problem.noise_variance or problem.noise_start))


def _history(steps: list[tuple[str, int, int, float, float]], shift: float) -> list[Step]:
    before = steps[0][3] if steps else 0.0
    history = []
    for action, atom, size, objective, noise in steps:
        history.append(Step(action, atom, objective - before, objective + shift, size, noise))
        before = objective
    return history
