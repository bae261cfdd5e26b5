"""Candidates in subsets, one after the other, until all have converged at once (TF03 6.2).

For a dictionary that neither fits in memory nor has a low rank. Each subset joins the functions in the model: the rows
are reduced to their Gram matrix in one pass, and the search goes on from the model before. When a whole round of
subsets has gained nothing, no single move over all candidates gains more than the tolerance. Where so many passes
would take too long the rounds end earlier, and the status says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from relvec._base import GaussianFit
from relvec.basis import Basis
from relvec.design import WORK, Rows, Samples, gram_rows, most_atoms
from relvec.solvers import Status
from relvec.solvers._iterate import Start

_PASSES = 2  # as long as a pass may be: more shorter ones take as much time
_ROOM = 0.5  # of a subset, at most, for functions in the model

Fit = Callable[[Basis, Rows, list | None, bool], list[GaussianFit]]


def fit_in_subsets(
    basis: Basis, samples: Samples, starts: list[Start | None] | None, memory: float, tol: float, fit: Fit
) -> tuple[Basis, Rows, list[GaussianFit], int]:
    """Fit over a long dictionary within ``memory`` bytes.

    ``fit(basis, rows, starts, first)`` searches a part of the dictionary from given models. Returns the last part,
    its rows and fits, and the number of atoms looked at.
    """
    M, size = basis.n_atoms, most_atoms(samples.n_rows, memory)
    fixed = np.flatnonzero(basis.rows < 0)
    fixed = fixed if len(fixed) <= 0.25 * size else fixed[-1:]  # the last is the constant, if there is one
    given = [s.active for s in starts or [] if s is not None]
    keep = np.unique(np.concatenate([fixed, *given]).astype(np.intp))
    waiting = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(M), keep))  # centres are sorted by content
    seen, calm, work, first, best = len(keep), 0, 0.0, 0, [-np.inf]
    while True:
        room = max(size - len(keep), int((1.0 - _ROOM) * size))
        chunk = waiting[np.arange(first, first + min(room, len(waiting))) % len(waiting)]
        part = np.union1d(keep, chunk)
        place = np.full(M, -1)
        place[part] = np.arange(len(part))
        local = None if starts is None else [
            None if s is None else Start(place[s.active], s.alpha, s.beta) for s in starts
        ]  # fmt: skip
        sub = basis.take(part)
        rows = gram_rows(sub, samples)
        fits = fit(sub, rows, local, work == 0.0)
        states = [f.result.state for f in fits]
        gained = np.max(np.array([s.objective for s in states]) - best)
        best = [s.objective for s in states]
        calm = calm + len(chunk) if gained <= tol else 0
        seen, first = min(seen + len(chunk), M), first + len(chunk)
        work += samples.n_rows * float(len(part)) ** 2
        starts = [Start(part[s.active], s.posterior.alpha, s.posterior.beta) for s in states]
        keep = np.union1d(fixed, np.concatenate([part[s.active] for s in states]))
        ended = any(f.result.status in (Status.TIME_LIMIT, Status.MAX_ITER, Status.INTERRUPTED) for f in fits)
        if ended or calm >= len(waiting):
            break
        if work + samples.n_rows * float(size) ** 2 > 1.01 * _PASSES * WORK:
            fits = [_of_some(f) for f in fits]
            break
    return sub, rows, fits, seen


def _of_some(fit: GaussianFit) -> GaussianFit:
    """The fit with a status that tells of the candidates not looked at."""
    status = fit.result.status
    return replace(fit, result=replace(fit.result, status=Status.CANDIDATES)) if status.success else fit
