"""Long dictionaries: search a part, scan the whole, continue with the atoms that would gain, until none does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from relvec.design import DenseDesign
from relvec.inference.evidence import near_copy_price
from relvec.solvers.fixed_point import EM, MacKay
from relvec.solvers.gaussian.model import GaussianModel, Precisions, begin_gaussian, model_of
from relvec.solvers.gaussian.proposals import ScanTask
from relvec.solvers.gaussian.search import search
from relvec.solvers.gaussian.textbook import textbook_step
from relvec.solvers.loop import Problem, Result, Solver, Start, Status, Step, iterate
from relvec.solvers.sequential import Search, Sequential
from relvec.solvers.stepwise import Stepwise

FIRST_LEVEL_ATOMS = 512  # searched before the whole of a dictionary that is more than twice as long
_LEVEL_GROWTH = 4  # times as many in the next level
MAX_WHOLE_ATOMS = 16_384  # dictionaries up to this length are searched whole in the end
_FIRST_PART_ATOMS = 1024  # of a longer one to begin with
_MAX_PART_SHARE = 0.25  # a model of more than this share of a level or part asks for a larger one
_MAX_ADDITIONS = 64  # taken into a part in a round
_MAX_EXCHANGES_PER_ATOM = 4  # likewise
_LONG_SCAN_FACTOR = 32  # times as many where scans of the whole are long
_ROUGH_TOL_NATS = 0.01  # the first rounds leave smaller gains
_MAX_REFUTED_ROUNDS = 8  # in a row, whose promises the search refutes


_ENDED = (Status.MAX_ITER, Status.TIME_LIMIT, Status.INTERRUPTED)

SolverSpec = Sequential | MacKay | EM | Stepwise

_TF03 = partial(Sequential, exchange=False, restarts=0, stop="tf03", prior_rows=0.0)
_SOLVERS: dict[str, Callable[[], SolverSpec]] = {
    "sequential": Sequential,
    "tf03": partial(_TF03, select="gain"),
    "tf03-random": partial(_TF03, select="random"),
    "tf03-order": partial(_TF03, select="order"),
    "mackay": MacKay,
    "em": EM,
}


def as_solver(spec: str | SolverSpec) -> SolverSpec:
    """A solver from its name ("sequential", "tf03", "tf03-random", "tf03-order", "mackay", "em") or the object itself.

    "tf03" is TF03's section 4 to the letter until its rule ends the fit: the action of largest gain each time, or that
    of a random function or of each in order.

    >>> as_solver("mackay")
    MacKay(prune_gamma=2.220446049250313e-16, ...)
    """
    if isinstance(spec, str) and spec in _SOLVERS:
        return _SOLVERS[spec]()
    if isinstance(spec, (Sequential, MacKay, EM, Stepwise)):
        return spec
    raise ValueError(
        f"solver must be one of {', '.join(map(repr, _SOLVERS))} or a solver object such as "
        f"relvec.solvers.Sequential(restarts=5), got {spec!r}"
    )


def solve(solver: SolverSpec, problem: Problem, max_iter: int, verbose: int = 0) -> Result:
    """Run a solver. The sequential one searches a long dictionary in parts (TF03 6.2).

    Most atoms of a long dictionary are nearly copies of others. The search runs on an evenly drawn part, restarts
    included; then it goes on among all from the model found. Where these are too many, one scan of the whole
    dictionary finds the additions and exchanges that would still gain, and the search goes on among those. It ends
    with the same certificate over all atoms.
    """
    if not (isinstance(solver, Sequential) and solver.select == "batch" and solver.stop == "certificate"):
        return _with_posterior(iterate(prepare(solver), problem, max_iter, verbose))
    if problem.design.n_atoms <= MAX_WHOLE_ATOMS:
        return _in_levels(solver, problem, max_iter, verbose)
    start, n_iter, tol = problem.start, 0, max(_ROUGH_TOL_NATS, problem.tol)
    history: list[Step] = []

    long = problem.design.n_atoms > 2 * problem.design.max_active_set  # a scan of the whole is long: few are left to do
    if long:
        part = _first_part(problem, problem.design.max_active_set)
        few = solve(solver, _restrict(problem, part, start, tol), max_iter, verbose)
        history, n_iter = _renumber(few.history, part), few.n_iter
        posterior = few.state.posterior
        part = part[few.state.active]
        start, solver = Start(part, posterior.alpha, posterior.beta), replace(solver, restarts=0)
    else:
        part = _first_part(problem, _FIRST_PART_ATOMS)
    seen, pool, refuted = part[:0], part[:0], 0
    while True:
        among = _restrict(problem, part, start, tol)
        run = solve if long else search
        result = run(solver, among, max_iter - n_iter, verbose)
        state = result.state
        n_iter += result.n_iter
        history += _renumber(result.history[1 if history else 0 :], part)
        same = start is not None and np.array_equal(np.sort(part[state.active]), np.sort(start.active))
        active = part[state.active]
        start = Start(active, state.posterior.alpha, state.posterior.beta)
        ended = result.status in _ENDED
        if (
            not ended
            and solver.restarts
            and len(active) > _MAX_PART_SHARE * len(part)
            and len(part) < 0.5 * len(problem.order)
        ):
            part = np.union1d(_first_part(problem, 4 * len(part)), active)
            continue
        solver = replace(solver, restarts=0)
        model = _alone(problem, active, state.posterior.alpha, state.posterior.beta)
        # atoms of the last search are certified with more digits than a scan of the whole has
        seen, refuted = (np.union1d(seen, part), refuted + 1) if same else (part, 0)
        entering, promised = _propose(problem, active, model, solver.exchange, seen)
        largest = max(promised, state.largest_gain)
        done = ended or largest <= problem.tolerance(len(active))
        if done or (tol == problem.tol and (not entering.size or refuted > _MAX_REFUTED_ROUNDS)):
            break
        if tol > problem.tol and (largest <= 10.0 * tol or refuted > _MAX_REFUTED_ROUNDS):
            tol, refuted, pool = problem.tol, 0, part
        pool = np.union1d(pool, entering)
        if len(pool) > problem.design.max_active_set:
            pool = entering
        part = np.union1d(active, pool)
        pool = part if long else part[:0]  # a long scan is expensive, and its proposals are kept
    objective = problem.objective(active, model.full_posterior)
    whole = state.stepped(active=active, posterior=model.full_posterior, objective=objective, largest_gain=largest)
    status = result.status
    if status in (Status.CONVERGED, Status.STALLED):
        status = Status.CONVERGED if largest <= problem.tolerance(len(active)) else Status.STALLED
    return Result(whole, status, _recompute_gains(history), n_iter)


def _in_levels(solver: Sequential, problem: Problem, max_iter: int, verbose: int) -> Result:
    """Search an even draw of the atoms, larger ones while the model is large for its draw, and from there the whole."""
    found, size = None, FIRST_LEVEL_ATOMS
    path, last = replace(solver, restarts=0), solver
    while 2 * size < problem.design.n_atoms:
        begun = problem.start if found is None else _start_from(found)
        part = _first_part(replace(problem, start=begun), size)
        found = _go_on(path, problem, part, found, max_iter, verbose)
        if found.status not in _ENDED and len(found.state.active) <= _MAX_PART_SHARE * len(part):
            if solver.restarts:
                found = _go_on(solver, problem, part, found, max_iter, verbose)
            last, size = path, problem.design.n_atoms
        if found.status in _ENDED:
            return replace(found, state=found.state.stepped(largest_gain=np.inf, done=False))
        size *= _LEVEL_GROWTH
    return _go_on(last, problem, None, found, max_iter, verbose)


def _go_on(
    solver: Sequential, problem: Problem, part: np.ndarray | None, before: Result | None, max_iter: int, verbose: int
) -> Result:
    """Search a part of the atoms, None for all, from an earlier result; the result is one of the whole dictionary."""
    start = problem.start if before is None else _start_from(before)
    among = replace(problem, start=start) if part is None else _restrict(problem, part, start, problem.tol)
    result = search(solver, among, max_iter - (0 if before is None else before.n_iter), verbose)
    if part is not None:
        active, history = part[result.state.active], _renumber(result.history, part)
        result = replace(result, state=result.state.stepped(active=active), history=history)
    if before is None:
        return result
    history = _recompute_gains(before.history + result.history[1:])
    return replace(result, history=history, n_iter=before.n_iter + result.n_iter)


def _start_from(result: Result) -> Start:
    posterior = result.state.posterior
    return Start(result.state.active, posterior.alpha, posterior.beta)


def prepare(solver: SolverSpec) -> Solver:
    """What runs in the loop for a solver."""
    if not isinstance(solver, Sequential):
        return solver
    return Search(solver, begin_gaussian, textbook_step if solver.select != "batch" else None)


def _with_posterior(result: Result) -> Result:
    """The result with the whole posterior, where the search was cut short."""
    state = result.state
    if not isinstance(state.posterior, Precisions):
        return result
    return replace(result, state=state.stepped(posterior=state.notes.model.full_posterior))


def _renumber(history: list[Step], part: np.ndarray) -> list[Step]:
    """Steps among a part of the atoms as steps among all."""
    return [replace(step, atom=int(part[step.atom]) if step.atom >= 0 else -1) for step in history]


def _first_part(problem: Problem, size: int) -> np.ndarray:
    """An even draw of atoms by content, with the essential ones and those of the start."""
    size = min(size, problem.design.n_atoms)
    if problem.draw is not None:
        drawn = problem.draw(size)
    else:
        ranks = np.random.default_rng(0).choice(problem.design.n_atoms, size, replace=False)
        drawn = np.argsort(problem.order)[ranks]
    given = problem.start.active if problem.start is not None else np.zeros(0, dtype=np.intp)
    part = np.unique(np.concatenate([drawn, problem.essential, given])).astype(np.intp)
    return part[problem.design.scale[part] > 0.0]


def _restrict(problem: Problem, part: np.ndarray, start: Start | None, tol: float) -> Problem:
    """The problem with only some of its atoms."""
    place = np.full(problem.design.n_atoms, -1)
    place[part] = np.arange(len(part))
    return replace(
        problem,
        design=problem.design.subset(part),
        order=problem.order[part],
        bias=int(place[problem.bias]) if problem.bias >= 0 else -1,
        essential=np.zeros(0, dtype=np.intp),
        draw=None,
        tol=tol,
        start=None if start is None else Start(place[start.active], start.alpha, start.beta),
    )


def _alone(problem: Problem, active: np.ndarray, alpha: np.ndarray, beta: float) -> GaussianModel:
    """A model over a dictionary of nothing but its own atoms."""
    design, local = DenseDesign.of(problem.design.columns(active), problem.design.scale[active]), np.arange(len(active))
    own = replace(problem, design=design, order=problem.order[active], essential=local[:0], draw=None, start=None)
    return model_of(own, Start(local, alpha, beta))


def _propose(
    problem: Problem, active: np.ndarray, model: GaussianModel, exchanging: bool, seen: np.ndarray
) -> tuple[np.ndarray, float]:
    """Atoms of the whole dictionary worth a look, and the largest gain among additions and exchanges.

    ``model`` holds the active atoms alone; the others, but for those ``seen``, are looked at in the pieces that the
    design gives.
    """
    more = _LONG_SCAN_FACTOR if problem.design.n_atoms > 2 * problem.design.max_active_set else 1
    task = ScanTask(model.full_posterior, active, np.union1d(active, seen), exchanging and len(active) > 0,
                    more * _MAX_ADDITIONS, more * _MAX_EXCHANGES_PER_ATOM, problem.tolerance(len(active)),
                    problem.bias, near_copy_price(problem.n_units))  # fmt: skip
    best = task.best(problem.design.scan(model.core.frame.directions, task, task.combine))
    return np.unique(np.concatenate([best.atoms, best.partners])), best.largest


def _recompute_gains(history: list[Step]) -> list[Step]:
    """Gains as differences of objectives: steps between two parts have none yet."""
    return [
        replace(step, gain=step.objective - before.objective if before else 0.0)
        for before, step in zip([None, *history], history, strict=False)
    ]
