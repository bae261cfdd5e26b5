"""Collections of Dask: samples and sums over their rows, labels of classes, and predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from relvec.design.base import Value
from relvec.design.readers import is_dask
from relvec.design.samples import BLOCK_ROWS, Block, Samples, Statistics
from relvec.runtime.arrays import Collection, refuse_masked


def predict_lazily(
    method: Callable, X: Collection, n_features: int, names_in: Sequence[str] | None, names: list[str] | None,
    dtype: DTypeLike = float, parts: int = 0, **options: Any,
) -> Collection:  # fmt: skip
    """Return a method's values for every chunk of a collection of Dask, as such a collection.

    Values are (n,), or (n, q) with these q names. With ``parts`` the method gives as many of them, and so does this.
    ``n_features`` and ``names_in`` (or None) are the columns that the method expects.
    """
    outputs = () if names is None else (len(names),)
    shape = (*outputs, parts) if parts else outputs
    values = evaluate_lazily(method, X, n_features, names_in, shape, dtype, **options)
    if not parts:
        return as_series(values, X, names)
    return tuple(as_series(values[..., i], X, names) for i in range(parts))


def evaluate_lazily(
    method: Callable,
    X: Collection,
    n_features: int,
    names_in: Sequence[str] | None,
    shape: tuple[int, ...],
    dtype: DTypeLike = float,
    **options: Any,
) -> Collection:
    """Return a method's values (n, *shape) for every chunk of a collection of Dask, as an array of Dask."""
    check_columns(X, n_features, names_in)
    return map_chunks(X, partial(_predict_chunk, method, shape, dtype, options), shape, dtype)


def _predict_chunk(
    method: Callable, shape: tuple[int, ...], dtype: DTypeLike, options: dict[str, Any], X: Collection
) -> np.ndarray:
    if len(X) == 0:
        return np.zeros((0, *shape), dtype=dtype)
    found = method(X, **options)
    return np.stack(found, axis=-1) if isinstance(found, tuple) else found


def map_chunks(
    X: Collection, function: Callable[[Collection], np.ndarray], shape: tuple[int, ...] = (), dtype: DTypeLike = float
) -> Collection:
    """Apply a function of rows, with values (n, *shape), to every chunk of X: an array of Dask, computed when asked.

    A table gives its partitions as tables, and an array with chunks of unknown length.
    """
    import dask.array as da
    from dask import delayed

    empty = np.zeros((0, *shape), dtype=dtype)
    if is_table(X):
        X = X.to_delayed()
        parts = [da.from_delayed(delayed(function)(part), (np.nan, *shape), meta=empty) for part in X]
        return da.concatenate(parts, allow_unknown_chunksizes=True)
    X = _unsplit_columns(X)
    if not shape:
        return da.map_blocks(function, X, drop_axis=1, meta=empty)
    chunks = (X.chunks[0], *((size,) for size in shape))
    return da.map_blocks(function, X, chunks=chunks, new_axis=list(range(2, 1 + len(shape))), meta=empty)


def as_series(values: Collection, X: Collection, names: list[str] | None) -> Collection:
    """Values (n,) or (n, q) for the rows of X; for a table a series, or a table with these names, with X's index."""
    if not is_table(X):
        return values
    import dask.dataframe as dd

    return dd.from_dask_array(values, columns="prediction" if names is None else names, index=X.index)


def check_columns(X: Collection, n_features: int, expected: Sequence[str] | None) -> None:
    """Refuse a collection that has not as many columns, or a table that has not the expected names."""
    if len(X.shape) != 2 or X.shape[1] != n_features:
        raise ValueError(f"X has shape {X.shape}, but the model expects {n_features} features as input")
    if expected is not None and is_table(X) and [str(name) for name in X.columns] != list(expected):
        raise ValueError(
            f"The feature names should match those that were passed during fit: {list(expected)}, got {list(X.columns)}"
        )


def compute_chunks(values: Collection, function: Callable[[Collection], Any]) -> tuple:
    """Return a function of every chunk of an array of Dask, computed where the chunks are."""
    import dask

    with quiet_scheduler():
        return dask.compute(*(dask.delayed(function)(chunk) for chunk in chunks_of(values)))


def gather(*collections: Collection) -> tuple:
    """Bring collections of Dask here; return others as they are."""
    import dask

    return dask.compute(*collections)


def is_table(X: Collection) -> bool:
    """Whether X is a table of Dask rather than an array."""
    return is_dask(X) and "array" not in type(X).__module__.split(".")


def as_dask_array(values: Collection, name: str, ndim: int | None) -> Collection:
    """Return a collection of Dask as an array of Dask; other arrays as they are."""
    with quiet_scheduler():
        array = values.to_dask_array() if is_table(values) else values if is_dask(values) else np.asarray(values)
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions (n_samples, n_features), got {array.ndim}")
    return array


def _unsplit_columns(values: Collection) -> Collection:
    return values.rechunk({1: -1}) if values.ndim == 2 and values.numblocks[1] > 1 else values


def chunks_of(values: Collection) -> list:
    """Return the chunks of rows of an array of Dask, all columns together."""
    return _unsplit_columns(values).to_delayed().ravel().tolist()


def align(values: Collection, X: Collection, name: str) -> Collection:
    """Values (n,) or (n, q) in the chunks of the rows of X; ones for None."""
    import dask.array as da

    if values is None:
        return da.map_blocks(lambda chunk: np.ones(len(chunk)), _unsplit_columns(X), drop_axis=1, dtype=float)
    values = as_dask_array(values, name, None)
    if values.ndim not in (1, 2):
        raise ValueError(f"{name} must have one or two dimensions, got {values.ndim}")
    known = not np.isnan(X.shape[0]), not np.isnan(values.shape[0])
    if all(known):
        if X.shape[0] != values.shape[0]:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X {X.shape[0]}, {name} {values.shape[0]}"
            )
        if isinstance(values, np.ndarray):
            return da.from_array(values, chunks=(X.chunks[0], *values.shape[1:]))
        return values.rechunk({0: X.chunks[0]})
    if isinstance(values, np.ndarray) or values.numblocks[0] != X.numblocks[0]:
        raise ValueError(
            f"X or {name} has chunks of unknown length, so both must have the same partitions: take them from one "
            "table, or call compute_chunk_sizes() on both"
        )
    return values


@contextmanager
def quiet_scheduler() -> Iterator[None]:
    """Without the scheduler's advice to scatter the arguments of a pass: scattered data are lost with their worker.

    Nor word of strings that become objects, as they would in memory.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        warnings.filterwarnings("ignore", message="Dask currently has limited support for converting pandas extension")
        yield


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

    def plus(self, added: np.ndarray) -> DaskSamples:
        """Return the samples with numbers (q,) added to their targets."""
        import dask

        other, s = copy(self), self.statistics
        other._chunks = [dask.delayed(_with_more)(chunk, added) for chunk in self._chunks]
        other.statistics = s._replace(mean=s.mean + np.append(np.zeros(self.n_features), added))
        return other

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


def _with_more(block: Block, added: np.ndarray) -> Block:
    return block._replace(targets=block.targets + added)


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


def align_labels(X: Collection, y: Collection) -> Collection:
    """Labels as an array (n,) of Dask, in the chunks of the rows X."""
    labels = align(y, as_dask_array(X, "X", 2), "y")
    if labels.ndim == 2 and labels.shape[1] == 1:
        return labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"y must hold one label for every row, (n_samples,), got {labels.ndim} dimensions")
    return labels


def count_labels(labels: Collection, check: Callable[[np.ndarray], None]) -> tuple[np.ndarray, np.ndarray]:
    """Count the distinct labels: sorted (K,), and how often each comes (K,); ``check`` refuses values that are none."""
    found = compute_chunks(labels, partial(_count_chunk, check))
    classes, place = np.unique(np.concatenate([names for names, _ in found]), return_inverse=True)
    return classes, np.bincount(place, np.concatenate([counts for _, counts in found])).astype(np.intp)


def class_indicators(labels: Collection, classes: np.ndarray) -> Collection:
    """One for the class of each row, zero for the others: (n, K), or (n, 1) for the second of two."""
    columns = len(classes) if len(classes) > 2 else 1
    chunks = (labels.chunks[0], (columns,))
    return labels.map_blocks(_indicate_classes, classes, chunks=chunks, new_axis=1, meta=np.zeros((0, 0)))


def weigh_classes(
    labels: Collection, X: Collection, sample_weight: Collection, classes: np.ndarray, factors: np.ndarray
) -> Collection:
    """Sample weights (n,), ones for None, times the factor (K,) of each row's class."""
    weights = align(sample_weight, as_dask_array(X, "X", 2), "sample_weight")
    return labels.map_blocks(_weigh_chunk, weights, classes, factors, dtype=float)


def _count_chunk(check: Callable[[np.ndarray], None], labels: Collection) -> tuple[np.ndarray, np.ndarray]:
    labels = np.asarray(labels)
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise ValueError("Input y contains NaN or infinity: remove or impute such rows")
    if len(labels):
        check(labels)
    return np.unique(labels, return_counts=True)


def _indicate_classes(labels: Collection, classes: np.ndarray) -> np.ndarray:
    member = np.zeros((len(labels), len(classes)))
    member[np.arange(len(labels)), np.searchsorted(classes, np.asarray(labels))] = 1.0
    return member if len(classes) > 2 else member[:, 1:]


def _weigh_chunk(labels: Collection, weights: Collection, classes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return np.asarray(weights, dtype=float) * factors[np.searchsorted(classes, np.asarray(labels))]
