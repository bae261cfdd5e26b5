"""Searches of long dictionaries and many rows that begin with a part of them.

Candidates in subsets, one after the other, until all have converged at once (TF03 6.2): for a dictionary that neither
fits in memory nor has a low rank. Each subset joins the functions in the model, and the search goes on from there.
When a whole round has gained nothing, no single move over all candidates gains more than the tolerance. Where so many
passes would take too long the rounds end earlier, and the status says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from relvec.basis import Basis, Concat
from relvec.design import MODEL_BYTES_PER_ROW, WORK, kernel_on_training_rows, scan_design
from relvec.design.order import content_ranks, row_hash64
from relvec.solvers import Sequential, Status
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.search import solve_laplace
from relvec.solvers.loop import Result

_PASSES = 2  # as long as a pass may be: more shorter ones take as much time
_ROOM = 0.5  # of a subset, at least, for new candidates
MANY_ROWS, FEW_ROWS = 20_000, 4000  # rows from which classes and counts are first searched on a few, and how many
_MORE_ROWS = 5  # times as many in each search that follows, before that of all

Run = Callable[[np.ndarray, bool], tuple[np.ndarray, bool, bool]]
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # outputs, atoms and precisions in the units of the basis, (u,)


def in_subsets(basis: Basis, size: int, given: np.ndarray, work: float, run: Run) -> tuple[int, int, bool]:
    """Search a dictionary of M atoms in subsets of ``size``, beginning with the atoms ``given`` (k,).

    ``run(part, first)`` searches some atoms from the model before, and tells which are in the model now, whether it
    gained and whether it was cut short. A pass takes ``work``, in the unit of `relvec.design.WORK`. Returns the number
    of atoms looked at, the number of subsets, and whether all are known to offer nothing.
    """
    M, fixed = basis.n_atoms, np.flatnonzero(basis.rows < 0)
    fixed = fixed if len(fixed) <= 0.25 * size else fixed[-1:]  # the last is the constant, if there is one
    keep = np.union1d(fixed, given).astype(np.intp)
    waiting = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(M), keep))  # centres are sorted by content
    seen, calm, begun, passes = len(keep), 0, 0, 0
    while True:
        room = min(max(size - len(keep), int(_ROOM * size)), len(waiting))
        chunk = waiting[np.arange(begun, begun + room) % len(waiting)]
        active, gained, ended = run(np.union1d(keep, chunk), passes == 0)
        keep = np.union1d(fixed, active).astype(np.intp)
        seen, begun, passes = min(seen + room, M), begun + room, passes + 1
        calm = 0 if gained else calm + room
        if ended or calm >= len(waiting) or (passes + 1) * work > 1.01 * _PASSES * WORK:
            return seen, passes, calm >= len(waiting)


def of_some(result: Result) -> Result:
    """The result with a status that tells of candidates not looked at."""
    return replace(result, status=Status.CANDIDATES) if result.status.success else result


def cut_short(result: Result) -> bool:
    """Whether a search ended before its time."""
    return result.status in (Status.TIME_LIMIT, Status.MAX_ITER, Status.INTERRUPTED)


def thinned_start(
    solver, problem: LaplaceProblem, basis: Basis, rows: np.ndarray, max_iter: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """A model of classes or counts to start from on the rows (n, d), found on a few of them; None for few rows.

    The search costs as many passes over the rows as it has steps; what is left after this is a few additions.
    """
    if len(rows) <= MANY_ROWS or not isinstance(solver, Sequential) or problem.start is not None:
        return None
    # an even draw by content, as workers that hold the rows would make it
    order = np.argsort(row_hash64(np.column_stack([np.zeros(len(rows)), rows])), kind="stable")
    part, free = kernel_on_training_rows(basis), np.flatnonzero(basis.rows < 0)
    own = np.zeros(0, dtype=np.intp)
    if part is not None and part.centres is not None and np.array_equal(part.centres, rows):
        assert isinstance(basis, Concat)
        own = next(w for q, w in zip(basis.parts, basis.part_columns(), strict=True) if q is part)
    start: Entries | None = None
    for size in stages(len(rows)):
        some = np.sort(order[:size])
        drawn = own[some] if len(own) else np.random.default_rng(0).permutation(basis.n_atoms)[:size]
        atoms = np.union1d(free, drawn)
        fewer = replace(
            problem, target=problem.target[some], weights=problem.weights[some],
            bias=len(atoms) - 1 if problem.bias >= 0 else -1,
        )  # fmt: skip
        given = None if start is None else (start[0], np.searchsorted(atoms, start[1]), start[2])
        found = start_on_few(solver, fewer, basis.take(atoms), rows[some], max_iter, len(rows), given)
        if found is None:
            break
        start, solver = (found[0], atoms[found[1]], found[2]), unhurried(solver)
    assert start is not None
    return start[0] * basis.n_atoms + start[1], start[2] / problem.design.scale[start[1]] ** 2


def stages(n_rows: int) -> list[int]:
    """How many rows the searches before that of all have.

    >>> stages(30_000), stages(100_000)
    ([4000], [4000, 20000])
    """
    sizes = [FEW_ROWS]
    while sizes[-1] * _MORE_ROWS * _MORE_ROWS <= n_rows:
        sizes.append(sizes[-1] * _MORE_ROWS)
    return sizes


def start_on_few(
    solver, problem: LaplaceProblem, basis: Basis, rows: np.ndarray, max_iter: int, n_rows: int,
    given: Entries | None = None,
) -> Entries | None:  # fmt: skip
    """A model found on a few of n_rows rows (n, d), which may begin with a ``given`` one.

    It is found in the memory of the models of all rows, which come later: None where the dictionary does not fit there.
    """
    least = 0.0 if len(rows) > FEW_ROWS else 7.0 * FEW_ROWS * basis.n_atoms
    design = scan_design(basis, rows, memory=max(MODEL_BYTES_PER_ROW * n_rows, least))
    if design is None:
        return None
    start = None if given is None else (given[0] * basis.n_atoms + given[1], given[2] / design.scale[given[1]] ** 2)
    fewer = replace(problem, design=design, shift=0.0, order=content_ranks(basis, design.scale), start=start)
    state = solve_laplace(solver, fewer, max_iter).state
    outputs, own = state.active // basis.n_atoms, state.active % basis.n_atoms
    return outputs, own, state.posterior.alpha[:: problem.per_unit] * design.scale[own] ** 2


def unhurried(solver):
    """The solver without restarts: it goes on from a model that had them."""
    return replace(solver, restarts=0) if isinstance(solver, Sequential) else solver
