"""Dask-backed samples and sums over their rows, on this machine's cores or on the workers of a cluster.

A pass over them is a reduction: every chunk of rows is looked at where it lies, a few thousand rows at a time, and the
results are combined in a tree. Dask schedules, moves, retries and recomputes; nothing here keeps anything on a worker,
so that a lost one costs its chunks' work and no more. What comes back to this process are matrices of the size of the
model, and a draw of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from functools import partial, reduce
from typing import Any

import numpy as np

from relvec.design.base import Value
from relvec.design.dask.collections import align, as_dask_array, chunks_of, is_table, quiet_scheduler
from relvec.design.samples import BLOCK_ROWS, Block, Samples
from relvec.design.statistics import Statistics
from relvec.runtime.arrays import Collection, refuse_masked

_FAN = 8  # results combined at once


class DaskSamples(Samples):
    """Samples in the chunks of Dask collections; rows of weight zero are left out.

    Attributes
    ----------
    names : columns of a table X, or None.
    single : whether y is one target, (n,).
    statistics : of all rows.
    """

    def __init__(self, X: Collection, y: Collection, sample_weight: Collection = None):
        import dask

        self.names = [str(name) for name in X.columns] if is_table(X) else None
        X, y = as_dask_array(X, "X", 2), as_dask_array(y, "y", None)
        self.single = y.ndim == 1
        chunks = [chunks_of(X)]
        chunks += [chunks_of(align(v, X, name)) for v, name in ((y, "y"), (sample_weight, "sample_weight"))]
        self._chunks = [dask.delayed(_chunk)(*three) for three in zip(*chunks, strict=True)]
        with quiet_scheduler():
            statistics = dask.compute(*(dask.delayed(Statistics.of)(chunk) for chunk in self._chunks))
        self.statistics = reduce(Statistics.merged, statistics)
        self.statistics.check()
        self._first = np.cumsum([0, *(f.n_used for f in statistics)])  # of the rows used, in each chunk
        self._first_row = np.cumsum([0, *(f.n_rows for f in statistics)])
        self.n_rows, self.n_features = self.statistics.n_used, X.shape[1]
        self.n_targets = 1 if self.single else y.shape[1]
        self._at_once = BLOCK_ROWS

    def blocked(self, rows: int) -> DaskSamples:
        other = copy(self)
        other._at_once = rows
        return other

    def reduce(self, function: Callable[[Block], Value], combine: Callable[[Value, Value], Value]) -> Value:
        import dask

        both = function, combine, self._at_once
        if len(self._chunks) <= _FAN:  # the arguments are sent with every task: sharing them takes another trip
            value = dask.delayed(partial(_evaluate_chunk, both))
        else:
            value = partial(dask.delayed(_evaluate_chunk), dask.delayed(both, traverse=False))
        values = [value(chunk, int(first)) for chunk, first in zip(self._chunks, self._first, strict=False)]
        if len(values) > _FAN:
            shared = dask.delayed(combine, traverse=False)
            while len(values) > _FAN:
                values = [dask.delayed(_combine)(shared, values[i : i + _FAN]) for i in range(0, len(values), _FAN)]
        with quiet_scheduler():
            found = _combine(combine, dask.compute(*values))
        if found is None:
            raise ValueError("no rows of positive weight are left: check sample_weight")
        return found

    def original_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbers, among all rows given, of rows (k,) among those used."""
        import dask

        if self.statistics.n_used == self.statistics.n_rows or not len(rows):
            return np.asarray(rows)
        chunk = np.searchsorted(self._first, rows, side="right") - 1
        kept = {c: dask.delayed(_used_rows)(self._chunks[c]) for c in np.unique(chunk).tolist()}
        (found,) = dask.compute(kept)
        local = rows - self._first[chunk]
        return np.array([self._first_row[c] + found[c][i] for c, i in zip(chunk.tolist(), local, strict=True)])


# ---------------------------------------------------------------- what runs on the workers


def _chunk(X: Any, targets: Any, weights: Any) -> Block:
    X = np.asarray(refuse_masked(X, targets, weights), dtype=np.float64)
    T = np.asarray(targets, dtype=np.float64)
    T = T[:, None] if T.ndim == 1 else T  # a chunk may have no rows, whose shape says nothing
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
    if not len(X) == len(T) == len(w):
        raise ValueError(
            f"a chunk of X has {len(X)} rows, the same chunk of y {len(T)} and of sample_weight {len(w)}: "
            "give all three the same chunks or partitions"
        )
    return Block(0, X, T, w)


def _drop_weightless(chunk: Block) -> Block:
    used = chunk.weights > 0.0
    return chunk if used.all() else Block(0, chunk.X[used], chunk.targets[used], chunk.weights[used])


def _evaluate_chunk(both: tuple, chunk: Block, first: int) -> Any:
    function, combine, at_once = both
    _, X, T, w = _drop_weightless(chunk)

    def value(start: int) -> Any:
        part = slice(start, start + at_once)
        return function(Block(first + start, X[part], T[part], w[part]))

    return reduce(combine, map(value, range(0, len(X), at_once))) if len(X) else None


def _combine(combine: Callable, values: Sequence) -> Any:
    there = [value for value in values if value is not None]
    # the inputs of a task are not changed: they may be needed again where a worker is lost
    return reduce(combine, there[1:], deepcopy(there[0])) if there else None


def _used_rows(chunk: Block) -> np.ndarray:
    return np.flatnonzero(chunk.weights > 0.0)
