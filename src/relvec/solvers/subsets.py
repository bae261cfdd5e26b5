"""Searches of long dictionaries in subsets of their candidates (TF03 6.2).

For a dictionary that neither fits in memory nor has a low rank: each subset joins the functions in the model, and the
search goes on from there. When a whole round has gained nothing, no single move over all candidates gains more than
the tolerance. Where all candidates can be looked at between two searches, a subset has the most promising of them, and
one that gains nothing is a whole round. Where it would take too long the rounds end earlier, and the status says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from relvec.design import MAX_PASS_MULTIPLICATIONS
from relvec.solvers.loop import Result, Status
from relvec.solvers.sequential import Sequential

MAX_LONG_PASSES = 2  # as long as a pass may be: more shorter ones take as much time
MIN_NEW_SHARE = 0.5  # of a subset, for new candidates

Run = Callable[[np.ndarray, bool], tuple[np.ndarray, bool, bool]]
Choose = Callable[[np.ndarray, int], np.ndarray]


def in_subsets(
    basis: Any, size: int, given: np.ndarray, work: float, run: Run, choose: Choose | None = None, n_seen: int = 0
) -> tuple[int, int, bool]:
    """Search a dictionary of M atoms in subsets of ``size``, beginning with the atoms ``given`` (k,).

    ``run(part, first)`` searches some atoms from the model before, and tells which are in the model now, whether it
    gained and whether it was cut short. A pass takes ``work``, in multiplications. ``choose(atoms, room)`` looks at up
    to ``n_seen`` atoms and names those to be searched. Returns the number of atoms looked at, the number of subsets,
    and whether all are known to offer nothing.
    """
    M, fixed = basis.n_atoms, np.flatnonzero(basis.rows < 0)
    fixed = fixed if len(fixed) <= 0.25 * size else fixed[-1:]  # the last is the constant, if there is one
    keep = np.union1d(fixed, given).astype(np.intp)
    waiting = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(M), keep))  # centres are sorted by content
    seen, calm, begun, passes = len(keep), 0, 0, 0
    while True:
        room = min(max(size - len(keep), int(MIN_NEW_SHARE * size)), len(waiting))
        chosen = choose is not None and passes > 0 and n_seen > room
        width = min(n_seen, len(waiting)) if chosen else room
        chunk = waiting[np.arange(begun, begun + width) % len(waiting)]
        if choose is not None and chosen:
            chunk = choose(np.setdiff1d(chunk, keep), room)
        active, gained, ended = run(np.union1d(keep, chunk), passes == 0)
        keep = np.union1d(fixed, active).astype(np.intp)
        seen, begun, passes = min(seen + width, M), begun + width, passes + 1
        calm = 0 if gained else calm + width
        if ended or calm >= len(waiting) or (passes + 1) * work > 1.01 * MAX_LONG_PASSES * MAX_PASS_MULTIPLICATIONS:
            return seen, passes, calm >= len(waiting)


def mark_candidates_incomplete(result: Result) -> Result:
    """The result with a status that tells of candidates not looked at."""
    return replace(result, status=Status.CANDIDATES) if result.status.success else result


def cut_short(result: Result) -> bool:
    """Whether a search ended before its time."""
    return result.status in (Status.TIME_LIMIT, Status.MAX_ITER, Status.INTERRUPTED)


def without_restarts(solver: Any) -> Any:
    """The solver without restarts: it starts from a model that had them."""
    return replace(solver, restarts=0) if isinstance(solver, Sequential) else solver
