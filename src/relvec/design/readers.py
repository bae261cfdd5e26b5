"""Rows that are not an array in memory: arrays on disk and Parquet files.

Arrays with a shape and slices (`numpy.memmap`, Zarr, HDF5) are read where they are. The blocks of a Parquet file are
put together in memory, or in a temporary file where the limit does not allow that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from relvec.design.samples import BLOCK_ROWS, read
from relvec.runtime.arrays import PerRow, RowsLike, TargetsLike

_BATCH = 65_536  # rows of a Parquet file read at once
MAX_MEMORY_SHARE = 0.1  # share of the memory limit up to which rows are read into memory
MAX_PASSES_SHARE = 0.01  # the same for a fit that reads its rows in a few passes, the default process


def is_dask(X: RowsLike) -> bool:
    """Whether X is a collection of Dask, without importing that.

    >>> is_dask([[1.0]])
    False
    """
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def is_sliced(X: RowsLike) -> bool:
    """Whether X is an array on disk, to be read in slices."""
    if isinstance(X, np.memmap):
        return X.ndim == 2
    if isinstance(X, np.ndarray | str | bytes) or any(
        hasattr(X, name) for name in ("toarray", "__dask_graph__", "__array_namespace__", "iloc", "__dlpack__")
    ):
        return False
    return all(hasattr(X, name) for name in ("shape", "dtype", "__getitem__")) and len(X.shape) == 2


class Loaded(NamedTuple):
    """X (N, d), an array in memory or something to be read in slices; y (N,) or (N, q); weights (N,) or None; names."""

    X: RowsLike
    y: TargetsLike
    weights: PerRow
    names: list[str] | None = None


def is_parquet(X: RowsLike) -> bool:
    """Whether X names a Parquet file or a folder of them, or is a `pyarrow.dataset.Dataset`."""
    return isinstance(X, str | Path) or type(X).__module__.startswith("pyarrow._dataset")


def load_rows(X: RowsLike, y: TargetsLike, weights: PerRow, memory: float, in_passes: bool = False) -> Loaded | None:
    """Return the rows of a source, in memory where they take a small part of ``memory`` bytes; None for no source.

    A fit ``in_passes`` reads its rows a few times only, so that fewer are held.

    A Parquet file holds the targets too: ``y`` names their column (or columns), ``weights`` that of the weights.
    """
    most_bytes = (MAX_PASSES_SHARE if in_passes else MAX_MEMORY_SHARE) * memory
    if is_parquet(X):
        return _read_parquet(X, y, weights, most_bytes)
    if not is_sliced(X):
        return None
    small = 8 * X.shape[0] * X.shape[1] <= most_bytes
    return Loaded(read(X, 0, X.shape[0]) if small else X, y if y is None else np.asarray(y), weights)


def blocks_to_predict(X: RowsLike, names: Iterable[str] | None) -> Iterator[Any] | None:
    """Return the rows X of a source, block by block; None for no source. ``names`` are columns of a file to take."""
    if is_parquet(X):
        dataset = _dataset(X)
        columns = None if names is None else list(names)
        return (batch.to_pandas() for batch in dataset.to_batches(columns=columns, batch_size=_BATCH) if len(batch))
    if not is_sliced(X):
        return None
    rows = 4 * BLOCK_ROWS
    return (read(X, start, min(start + rows, X.shape[0])) for start in range(0, X.shape[0], rows))


def parquet_features(X: RowsLike, y: TargetsLike, weights: PerRow) -> list[str]:
    """Return the columns of a Parquet file that are neither targets nor weights."""
    known = _dataset(X).schema.names
    others = _names(y) + _names(weights)
    missing = [name for name in others if name not in known]
    if missing or not _names(y):
        raise ValueError(
            f"a Parquet file holds the targets too: y must name a column (or a list of them) among {known}, got {y!r}"
            if not _names(y)
            else f"the Parquet file has no column {missing[0]!r}: it has {known}"
        )
    return [name for name in known if name not in others]


def _names(columns: Any) -> list[str]:
    if isinstance(columns, str):
        return [columns]
    return list(columns) if isinstance(columns, list | tuple) and all(isinstance(c, str) for c in columns) else []


def _dataset(X: RowsLike) -> Any:
    try:
        from pyarrow import dataset
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow and pandas: pip install 'relvec[tables]'") from error
    try:
        return dataset.dataset(str(X), format="parquet") if isinstance(X, str | Path) else X
    except ValueError as error:
        raise ValueError(f"{X} is no Parquet file: read other files yourself and give arrays ({error})") from error


def _read_parquet(X: RowsLike, y: TargetsLike, weights: PerRow, most_bytes: float) -> Loaded:
    """Return a Parquet file in memory, or its X in a temporary file once that takes more than so many bytes."""
    features = parquet_features(X, y, weights)
    held: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    sample_weights: list[np.ndarray] = []
    size = 0
    file: FileRows | None = None
    for batch in _dataset(X).to_batches(batch_size=_BATCH):
        if not len(batch):
            continue
        table = batch.to_pandas()
        block = np.ascontiguousarray(table[features].to_numpy(dtype=np.float64))
        targets.append(table[y].to_numpy())
        if weights is not None:
            sample_weights.append(table[weights].to_numpy(dtype=np.float64))
        held.append(block)
        size += block.nbytes
        if size > most_bytes:
            file = file or FileRows(len(features))
            for part in held:
                file.append(part)
            held = []
    if not targets:
        raise ValueError(f"{X} has no rows")
    rows: Any = np.concatenate(held) if file is None else file
    return Loaded(rows, np.concatenate(targets), np.concatenate(sample_weights) if sample_weights else None, features)


class FileRows:
    """X (N, d) float64 in a temporary file, written block by block and read in slices; gone with the object."""

    dtype = np.dtype(np.float64)

    def __init__(self, n_features: int):
        self._file, self.shape = tempfile.TemporaryFile(), (0, n_features)
        finalize(self, self._file.close)

    def append(self, X: np.ndarray) -> None:
        """Write further rows (n, d)."""
        X.tofile(self._file)
        self._file.flush()
        self.shape = (self.shape[0] + len(X), self.shape[1])

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        mapped = np.memmap(self._file, self.dtype, "r", 8 * start * self.shape[1], (stop - start, self.shape[1]))
        return np.array(mapped)
