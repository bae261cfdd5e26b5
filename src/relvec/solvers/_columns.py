"""Long dictionaries: search a part, look at the whole, go on among the atoms that would gain, until none does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.evidence import gain_add
from relvec.solvers._compiled import Precisions
from relvec.solvers._frame import Frame
from relvec.solvers._iterate import Problem, Result, Solver, Start, Status, Step, iterate
from relvec.solvers._moves import Model, near_exchanges
from relvec.solvers._sequential import Sequential

_LONG = 3000  # dictionaries up to this length are searched whole
_PART = 1024  # atoms of a longer one to begin with
_MOST_OF_PART = 0.25  # a model of more than this share of the part asks for a larger one
_ENTER = 64  # additions taken in a round, besides exchanges
_PARTNERS = 4  # exchanges taken in a round for every atom of the model
_NEARLY = -1.0  # nats: exchanges losing more than this are not taken in
_ROUGH = 0.01  # nats: the first rounds leave smaller gains


def solve(solver: Solver, problem: Problem, max_iter: int, verbose: int = 0) -> Result:
    """Run a solver. The sequential one searches a long dictionary in parts (TF03 6.2).

    Most atoms of a long dictionary are nearly copies of others. The search runs on an evenly drawn part; then one
    scan of the whole dictionary finds the additions and exchanges that would still gain, and the search goes on
    among those. It ends with the same certificate over all atoms.
    """
    if not (isinstance(solver, Sequential) and solver.select == "batch" and problem.design.n_atoms > _LONG):
        result = iterate(solver, problem, max_iter, verbose)
        state = result.state
        if isinstance(state.posterior, Precisions):  # a search in C that was cut short
            alpha, beta = state.posterior.alpha, state.posterior.beta
            state = state.stepped(posterior=_on_whole(problem, state.active, alpha, beta).posterior)
        return replace(result, state=state)
    part = _first_part(problem, _PART)
    start, n_iter, tol = problem.start, 0, max(_ROUGH, problem.tol)
    history: list[Step] = []
    while True:
        result = iterate(solver, _restricted(problem, part, start, tol), max_iter - n_iter, verbose)
        state = result.state
        n_iter += result.n_iter
        history += [
            replace(s, atom=int(part[s.atom]) if s.atom >= 0 else -1) for s in result.history[1 if history else 0 :]
        ]
        active = part[state.active]
        start = Start(active, state.posterior.alpha, state.posterior.beta)
        ended = result.status in (Status.MAX_ITER, Status.TIME_LIMIT, Status.INTERRUPTED)
        if (
            not ended
            and solver.restarts
            and len(active) > _MOST_OF_PART * len(part)
            and len(part) < 0.5 * len(problem.order)
        ):
            part = np.union1d(_first_part(problem, 4 * len(part)), active)
            continue
        solver = replace(solver, restarts=0)
        model = _on_whole(problem, active, state.posterior.alpha, state.posterior.beta)
        entering, largest = _promising(model, solver.exchange)
        largest = max(largest, state.largest_gain)
        if ended or largest <= problem.tol or (np.isin(entering, part).all() and tol == problem.tol):
            break
        if largest <= 10.0 * tol:
            tol = problem.tol
        part = np.union1d(active, entering)
    whole = state.stepped(active=active, posterior=model.posterior, objective=model.objective, largest_gain=largest)
    status = result.status
    if status in (Status.CONVERGED, Status.STALLED):
        status = Status.CONVERGED if largest <= problem.tol else Status.STALLED
    return Result(whole, status, _monotone(history), n_iter)


def _first_part(problem: Problem, size: int) -> np.ndarray:
    """An even draw of atoms by content, with the essential ones and those of the start."""
    ranked = np.argsort(problem.order)
    drawn = np.random.default_rng(0).choice(problem.design.n_atoms, min(size, len(ranked)), replace=False)
    given = problem.start.active if problem.start is not None else np.zeros(0, dtype=np.intp)
    part = np.unique(np.concatenate([ranked[drawn], problem.essential, given]))
    return part[problem.design.scale[part] > 0.0]


def _restricted(problem: Problem, part: np.ndarray, start: Start | None, tol: float) -> Problem:
    """The problem with only some of its atoms."""
    place = np.full(problem.design.n_atoms, -1)
    place[part] = np.arange(len(part))
    return replace(
        problem,
        design=problem.design.subset(part),
        order=problem.order[part],
        bias=int(place[problem.bias]) if problem.bias >= 0 else -1,
        essential=np.zeros(0, dtype=np.intp),
        tol=tol,
        start=None if start is None else Start(place[start.active], start.alpha, start.beta),
    )


def _on_whole(problem: Problem, active: np.ndarray, alpha: np.ndarray, beta: float) -> Model:
    frame = Frame(problem.design, problem.target, problem.rest)
    empty = np.zeros(0, dtype=np.intp)
    posterior = frame.posterior(empty, np.zeros(0), beta, problem.n_samples)
    return Model(problem, frame, empty, posterior).at(active, alpha, beta)


def _promising(model: Model, exchanging: bool) -> tuple[np.ndarray, float]:
    """Atoms of the whole dictionary worth a look, and the largest gain among additions and exchanges."""
    S, Q, _ = model.frame.scan(model.posterior)
    gains = gain_add(S, Q)
    gains[model.active] = 0.0
    top = np.argsort(-gains)[:_ENTER]
    entering, largest = top[gains[top] > model.problem.tol], float(gains.max())
    if exchanging and len(model.active):
        atoms, exchange_gains = near_exchanges(model, _PARTNERS)
        largest = max(largest, float(exchange_gains.max(initial=-np.inf)))
        entering = np.concatenate([entering, atoms[exchange_gains > _NEARLY]])
    return np.unique(entering), largest


def _monotone(history: list[Step]) -> list[Step]:
    """Gains made anew: the joints between parts have none of their own."""
    return [
        replace(step, gain=step.objective - before.objective if before else 0.0)
        for before, step in zip([None, *history[:-1]], history, strict=True)
    ]
