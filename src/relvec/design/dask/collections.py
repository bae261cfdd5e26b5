"""Collections of Dask: arrays and tables in chunks, aligned with each other, and functions of their chunks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from relvec.design.readers import is_dask
from relvec.runtime.arrays import Collection


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
    return map_chunks(X, partial(_evaluate_chunk, method, shape, dtype, options), shape, dtype)


def _evaluate_chunk(
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
