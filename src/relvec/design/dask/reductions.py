"""Dask-backed samples and sums over their rows, on this machine's cores or on the workers of a cluster.

A pass over them is a reduction: every chunk of rows is looked at where it lies, a few thousand rows at a time, and the
results are combined in a tree. Dask schedules, moves, retries and recomputes; nothing here keeps anything on a worker,
so that a lost one costs its chunks' work and no more. What comes back to this process are matrices of the size of the
model, and a sample of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from relvec.basis import row_hash64
from relvec.design.base import Value
from relvec.design.cholesky import hash_rows
from relvec.design.dask.collections import align, as_dask_array, chunks_of, is_table, quiet_scheduler
from relvec.design.samples import BLOCK_ROWS, Block, Samples
from relvec.design.summary import merge_moments
from relvec.runtime.arrays import refuse_masked

_FAN = 8  # results combined at once
_DRAWN = 262_144  # rows looked at together for a draw


class SampleStatistics(NamedTuple):
    """Numbers of rows X (n, d) with targets (n, q), and moments of those with a positive weight."""

    n_rows: int
    n_used: int
    weight: float
    mean: np.ndarray  # (d + q,)
    spread: np.ndarray  # (d + q,) roots of the sums of squares about the means
    low: np.ndarray  # (d,)
    high: np.ndarray  # (d,)
    finite: tuple[bool, bool, bool]  # X, targets, weights
    negative: bool  # a weight

    @classmethod
    def of(cls, X: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> SampleStatistics:
        """The facts of some rows."""
        finite = bool(np.isfinite(X).all()), bool(np.isfinite(targets).all()), bool(np.isfinite(weights).all())
        negative = bool(np.any(weights < 0.0))
        values, used = np.column_stack([X, targets]), weights > 0.0
        values, w = values[used], weights[used]
        if negative or not all(finite) or not len(w):
            nothing, d = np.zeros(values.shape[1]), X.shape[1]
            return cls(len(X), 0, 0.0, nothing, nothing, np.full(d, np.inf), np.full(d, -np.inf), finite, negative)
        total = float(w.sum())
        largest = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)  # whose square may overflow
        mean = largest * ((w / total) @ (values / largest))
        spread = largest * np.sqrt(w @ ((values - mean) / largest) ** 2)
        own = values[:, : X.shape[1]]
        return cls(len(X), len(w), total, mean, spread, own.min(axis=0), own.max(axis=0), finite, negative)

    def merged(self, other: SampleStatistics) -> SampleStatistics:
        """The facts of both."""
        return SampleStatistics(
            self.n_rows + other.n_rows,
            self.n_used + other.n_used,
            *merge_moments(self, other),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            tuple(a and b for a, b in zip(self.finite, other.finite, strict=True)),  # type: ignore[arg-type]
            self.negative or other.negative,
        )


class DaskSamples(Samples):
    """Samples in the chunks of Dask collections; rows of weight zero are left out.

    Attributes
    ----------
    names : columns of a table X, or None.
    single : whether y is one target, (n,).
    statistics : of all rows.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None):
        import dask

        self.names = [str(name) for name in X.columns] if is_table(X) else None
        X, y = as_dask_array(X, "X", 2), as_dask_array(y, "y", None)
        self.single = y.ndim == 1
        chunks = [chunks_of(X)]
        chunks += [chunks_of(align(v, X, name)) for v, name in ((y, "y"), (sample_weight, "sample_weight"))]
        self._chunks = [dask.delayed(_chunk)(*three) for three in zip(*chunks, strict=True)]
        with quiet_scheduler():
            statistics = dask.compute(*(dask.delayed(_chunk_statistics)(chunk) for chunk in self._chunks))
        self.statistics = reduce(SampleStatistics.merged, statistics)
        _check(self.statistics)
        self._first = np.cumsum([0, *(f.n_used for f in statistics)])  # of the rows used, in each chunk
        self._first_row = np.cumsum([0, *(f.n_rows for f in statistics)])
        self.n_rows, self.n_features = self.statistics.n_used, X.shape[1]
        self.n_targets = 1 if self.single else y.shape[1]
        self._taken: dict[int, np.ndarray] = {}
        self._scaled = np.ones(self.n_targets)
        self._at_once = BLOCK_ROWS

    def persisted(self) -> DaskSamples:
        """The same rows, kept by Dask in the memory of the workers, or on their disks, and computed again if lost."""
        import dask

        other = copy(self)
        with quiet_scheduler():
            other._chunks = list(dask.persist(*self._chunks))
        return other

    def in_units(self, units: np.ndarray) -> DaskSamples:
        """The same rows with targets divided by units (q,)."""
        other = copy(self)
        other._scaled = units
        return other

    def blocked(self, rows: int) -> DaskSamples:
        other = copy(self)
        other._at_once = rows
        return other

    def keep_values(self, function: Callable[[Block], np.ndarray]) -> list:
        """A function's values (b,) on the rows of every chunk, kept by Dask where they were computed.

        Functions of `reduce` get them back; they are computed again where a worker is lost.
        """
        import dask

        with quiet_scheduler():
            return list(dask.persist(*self._values(function, _concatenate, None)))

    def _values(self, function: Callable, combine: Callable, beside: list | None) -> list:
        import dask

        both = function, combine, self._scaled, self._at_once
        if len(self._chunks) <= _FAN:  # the arguments are sent with every task: sharing them takes another trip
            value = dask.delayed(partial(_evaluate_chunk, both))
        else:
            value = partial(dask.delayed(_evaluate_chunk), dask.delayed(both, traverse=False))
        places = zip(self._chunks, self._first, beside or [None] * len(self._chunks), strict=False)
        return [value(chunk, int(first), more) for chunk, first, more in places]

    def reduce(
        self, function: Callable[..., Value], combine: Callable[[Value, Value], Value], beside: list | None = None
    ) -> Value:
        """As in `Samples`; with values ``beside`` the rows (`keep_values`) the function gets those of the block too."""
        import dask

        values = self._values(function, combine, beside)
        if len(values) > _FAN:
            both = dask.delayed(combine, traverse=False)
            while len(values) > _FAN:
                values = [dask.delayed(_combine)(both, values[i : i + _FAN]) for i in range(0, len(values), _FAN)]
        with quiet_scheduler():
            found = _combine(combine, dask.compute(*values))
        if found is None:
            raise ValueError("no rows of positive weight are left: check sample_weight")
        return found

    def take(self, rows: np.ndarray) -> np.ndarray:
        import dask

        rows = np.asarray(rows, dtype=np.intp)
        new = np.array(sorted(set(rows.tolist()) - self._taken.keys()), dtype=np.intp)
        if new.size:
            chunk = np.searchsorted(self._first, new, side="right") - 1
            wanted = [
                dask.delayed(_take_rows)(self._chunks[c], new[chunk == c] - self._first[c])
                for c in np.unique(chunk).tolist()
            ]
            with quiet_scheduler():
                self._taken.update(zip(new.tolist(), np.concatenate(dask.compute(*wanted)), strict=True))
        return np.array([self._taken[row] for row in rows.tolist()]).reshape(len(rows), self.n_features)

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

    def draw(self, size: int) -> Drawn:
        """An even draw of rows, by content: whatever their order and their chunks it is the same."""
        keep = partial(_lowest, size)
        drawn = self.blocked(_DRAWN).reduce(partial(_draw_block, keep), partial(_join, keep))
        order = np.argsort(drawn.rows)
        drawn = Drawn(*(values[order] for values in drawn))
        self._taken.update(zip(drawn.rows.tolist(), drawn.X, strict=True))
        return drawn

    def distinct(self, most: int) -> np.ndarray | None:
        """The first of each set of equal rows, ascending; None where they are more than ``most``."""
        keep = partial(_first, most)
        found = self.reduce(partial(_number_rows, keep), partial(_join, keep))
        return None if len(found.rows) > most else np.sort(found.rows)


class Drawn(NamedTuple):
    """Rows of a draw: their scattered content (n,), their numbers (n,), X (n, d), targets (n, q) and weights (n,)."""

    hashed: np.ndarray
    rows: np.ndarray
    X: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


def _draw_block(keep: Callable[[Drawn], Drawn], block: Block) -> Drawn:
    rows = block.start + np.arange(len(block.X))
    return keep(Drawn(hash_rows(block.X), rows, block.X, block.targets, block.weights))


def _lowest(size: int, drawn: Drawn) -> Drawn:
    top = np.argsort(drawn.hashed, kind="stable")[:size]
    return Drawn(*(values[top] for values in drawn))


class _Rows(NamedTuple):
    hashed: np.ndarray
    rows: np.ndarray


def _number_rows(keep: Callable[[_Rows], _Rows], block: Block) -> _Rows:
    return keep(_Rows(row_hash64(block.X), block.start + np.arange(len(block.X))))


def _first(most: int, found: _Rows) -> _Rows:
    """The first rows of each content, no more than one too many."""
    order = np.argsort(found.rows)
    first = order[np.unique(found.hashed[order], return_index=True)[1]][: most + 1]
    return _Rows(found.hashed[first], found.rows[first])


def _join(keep: Callable[[Any], Any], a: Any, b: Any) -> Any:
    """The arrays of both concatenated, and the entries to keep."""
    return keep(type(a)(*(np.concatenate(pair) for pair in zip(a, b, strict=True))))


# ---------------------------------------------------------------- what runs on the workers

Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]


def _chunk(X: Any, targets: Any, weights: Any) -> Chunk:
    X = np.asarray(refuse_masked(X, targets, weights), dtype=np.float64)
    T = np.asarray(targets, dtype=np.float64)
    T = T[:, None] if T.ndim == 1 else T  # a chunk may have no rows, whose shape says nothing
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
    if not len(X) == len(T) == len(w):
        raise ValueError(
            f"a chunk of X has {len(X)} rows, the same chunk of y {len(T)} and of sample_weight {len(w)}: "
            "give all three the same chunks or partitions"
        )
    return X, T, w


def _chunk_statistics(chunk: Chunk) -> SampleStatistics:
    return SampleStatistics.of(*chunk)


def _drop_weightless(chunk: Chunk) -> Chunk:
    X, T, w = chunk
    used = w > 0.0
    return chunk if used.all() else (X[used], T[used], w[used])


def _evaluate_chunk(both: tuple, chunk: Chunk, first: int, beside: np.ndarray | None) -> Any:
    function, combine, units, at_once = both
    X, T, w = _drop_weightless(chunk)

    def value(start: int) -> Any:
        part = slice(start, start + at_once)
        block = Block(first + start, X[part], T[part] / units, w[part])
        return function(block) if beside is None else function(block, beside[part])

    return reduce(combine, map(value, range(0, len(X), at_once))) if len(X) else None


def _combine(combine: Callable, values: Sequence) -> Any:
    there = [value for value in values if value is not None]
    # the inputs of a task are not changed: they may be needed again where a worker is lost
    return reduce(combine, there[1:], deepcopy(there[0])) if there else None


def _concatenate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([a, b])


def _take_rows(chunk: Chunk, local: np.ndarray) -> np.ndarray:
    return _drop_weightless(chunk)[0][local]


def _used_rows(chunk: Chunk) -> np.ndarray:
    return np.flatnonzero(chunk[2] > 0.0)


def _check(statistics: SampleStatistics) -> None:
    for name, finite in zip(("X", "y", "sample_weight"), statistics.finite, strict=True):
        if not finite:
            raise ValueError(f"Input {name} contains NaN or infinity: remove or impute such rows")
    if statistics.negative:
        raise ValueError("Negative values in data passed to `sample_weight`")
    if statistics.n_used < 2:
        raise ValueError(f"at least 2 samples need a positive weight, got {statistics.n_used}: check sample_weight")
