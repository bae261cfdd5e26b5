"""Long dictionaries: search a part, look at the whole, take in what helps, until nothing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.evidence import gain_add
from relvec.solvers._frame import Frame
from relvec.solvers._iterate import Problem, Result, Solver, Start, Status, Step, iterate
from relvec.solvers._moves import Model, best_exchanges
from relvec.solvers._sequential import Sequential

_LONG = 3000  # dictionaries up to this length are searched whole
_PART = 1500  # atoms of a longer one to begin with
_ENTER = 64  # additions taken in a round, besides the best exchange of every atom
_NEARLY = -1.0  # nats: exchanges losing more than this are not taken in


def solve(solver: Solver, problem: Problem, max_iter: int, verbose: int = 0) -> Result:
    """Run a solver. The sequential one searches a long dictionary in growing parts (TF03 6.2).

    Most atoms of a long dictionary are nearly copies of others. The search runs on an evenly drawn part; then one
    scan of the whole dictionary finds every addition and exchange that would still gain; those atoms join the part
    and the search goes on from where it was. It ends with the same certificate over all atoms.
    """
    if not (isinstance(solver, Sequential) and solver.select == "batch" and problem.design.n_atoms > _LONG):
        return iterate(solver, problem, max_iter, verbose)
    part = _first_part(problem)
    start, n_iter = problem.start, 0
    history: list[Step] = []
    while True:
        result = iterate(solver, _restricted(problem, part, start), max_iter - n_iter, verbose)
        state = result.state
        n_iter += result.n_iter
        history += [
            replace(s, atom=int(part[s.atom]) if s.atom >= 0 else -1) for s in result.history[1 if history else 0 :]
        ]
        active = part[state.active]
        model = _on_whole(problem, active, state.posterior.alpha, state.posterior.beta)
        entering, largest = _promising(model, solver.exchange)
        largest = max(largest, state.largest_gain)
        entering = np.setdiff1d(entering, part)
        start = Start(active, state.posterior.alpha, state.posterior.beta)
        if result.status in (Status.MAX_ITER, Status.TIME_LIMIT) or largest <= problem.tol or not entering.size:
            break
        part = np.sort(np.concatenate([part, entering]))
        solver = replace(solver, restarts=0)
    whole = state.stepped(active=active, posterior=model.posterior, objective=model.objective, largest_gain=largest)
    status = result.status
    if status in (Status.CONVERGED, Status.STALLED):
        status = Status.CONVERGED if largest <= problem.tol else Status.STALLED
    return Result(whole, status, _monotone(history), n_iter)


def _first_part(problem: Problem) -> np.ndarray:
    """An even draw of atoms by content, with the essential ones and those of the start."""
    ranked = np.argsort(problem.order)
    drawn = np.random.default_rng(0).choice(problem.design.n_atoms, _PART, replace=False)
    given = problem.start.active if problem.start is not None else np.zeros(0, dtype=np.intp)
    part = np.unique(np.concatenate([ranked[drawn], problem.essential, given]))
    return part[problem.design.scale[part] > 0.0]


def _restricted(problem: Problem, part: np.ndarray, start: Start | None) -> Problem:
    """The problem with only some of its atoms."""
    place = np.full(problem.design.n_atoms, -1)
    place[part] = np.arange(len(part))
    return replace(
        problem,
        design=problem.design.subset(part),
        order=problem.order[part],
        bias=int(place[problem.bias]) if problem.bias >= 0 else -1,
        essential=np.zeros(0, dtype=np.intp),
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
        pairs = best_exchanges(model)
        largest = max(largest, float(pairs.gain.max()))
        entering = np.concatenate([entering, pairs.entering[pairs.gain > _NEARLY]])
    return np.unique(entering), largest


def _monotone(history: list[Step]) -> list[Step]:
    """Gains made anew: the joints between parts have none of their own."""
    return [
        replace(step, gain=step.objective - before.objective if before else 0.0)
        for before, step in zip([None, *history[:-1]], history, strict=True)
    ]
