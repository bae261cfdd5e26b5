"""The design of a dictionary on local rows, whichever way of holding it pays."""

from __future__ import annotations

from typing import Any

import numpy as np

from relvec.design.base import Rows
from relvec.design.cholesky import MAX_WHOLE_ROWS, MIN_ROWS_TO_COMPRESS, kernel_on_training_rows
from relvec.design.dense import DenseDesign
from relvec.design.samples import Block, LocalSamples, Samples
from relvec.runtime.arrays import Array

DEFAULT_MEMORY = 4e9  # bytes
_MIN_DEVICE_NUMBERS = 4_000_000  # of a design: below, a device has nothing to gain
_COMPRESSION_BYTES = 3 * 8 * 0.4  # that compression in one piece may take for a pair of rows
_DENSE_BYTES = 2.5 * 8  # that an entry of the design matrix takes while it is made and searched


def make_rows(
    basis, X: np.ndarray, targets: np.ndarray, weights: np.ndarray, compression: bool = True,
    memory: float = DEFAULT_MEMORY, on_device: Array | None = None,
) -> Rows | None:  # fmt: skip
    """A bound basis on the rows X (N, d) with targets (N, q) and sample weights (N,), compressed where it pays.

    A design that does not fit into ``memory`` bytes in one piece is computed in passes over blocks of rows; None where
    the dictionary is too long for that too. ``on_device`` holds the same rows on a device, where the design is to be
    computed.
    """
    n, rows = len(X), None
    if on_device is not None and n * basis.n_atoms > _MIN_DEVICE_NUMBERS:
        from relvec.design.device import device_rows

        rows = device_rows(basis, on_device, targets, weights)
        if rows is not None:
            return rows
    if compression and basis.n_atoms >= MIN_ROWS_TO_COMPRESS:
        rows = _compress(basis, X, targets, weights, memory)
        if rows is not None:
            return rows
    if _DENSE_BYTES * n * basis.n_atoms > memory:
        from relvec.design.low_rank import gram_rows, max_gram_atoms

        few = basis.n_atoms <= max_gram_atoms(n, memory)
        return gram_rows(basis, LocalSamples(X, targets, weights), memory) if few else None
    root = np.sqrt(weights)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are refused by the design
        Phi = basis(X)
        if np.any(weights != 1.0):
            Phi *= root
    return Rows(DenseDesign(Phi, overwrite=True), targets * root, np.zeros(targets.shape[1]))


def _compress(basis, X: np.ndarray, targets: np.ndarray, weights: np.ndarray, memory: float) -> Rows | None:
    """The rows reduced to the rank of the dictionary, in one piece or in passes; None where it is not low."""
    from relvec.design.low_rank import compress, merge_rows
    from relvec.design.streamed import compress_in_passes

    n = len(X)
    if n <= MAX_WHOLE_ROWS and _COMPRESSION_BYTES * n**2 <= memory:
        return compress(basis, X, targets, weights)
    found = merge_rows(basis, X, targets, weights)
    if found is None:
        return None
    samples = LocalSamples(found.centres, found.targets, found.weights)
    rows = compress_in_passes(basis, samples, samples, memory)
    if rows is not None:
        rows.target_norm2_outside[:] += found.within
    return rows


def rows_on_disk(basis, samples: Samples, memory: float) -> Rows | None:
    """A bound basis on samples that are read in blocks, held as in memory where they are few and their rank is high.

    More are reduced to its rank or its atoms; None where it is too long.
    """
    from relvec.design.low_rank import gram_rows, max_gram_atoms
    from relvec.design.streamed import compress_in_passes

    part = kernel_on_training_rows(basis)
    rows = None
    if part is not None and part.centres is not None and part.n_atoms >= MIN_ROWS_TO_COMPRESS:
        rows = compress_in_passes(basis, samples, LocalSamples(part.centres), memory)
    if rows is None and samples.n_rows <= MAX_WHOLE_ROWS and _DENSE_BYTES * samples.n_rows * basis.n_atoms <= memory:
        return _dense_in_blocks(basis, samples)  # a Gram matrix has half the digits: the search would end elsewhere
    if rows is None and basis.n_atoms <= max_gram_atoms(samples.n_rows, memory):
        return gram_rows(basis, samples, memory)
    return rows


def _dense_in_blocks(basis, samples: Samples) -> Rows:
    """The dense matrix, computed block by block."""
    Phi, targets = np.empty((samples.n_rows, basis.n_atoms)), np.empty((samples.n_rows, samples.n_targets))

    def fill(block: Block) -> None:
        rows = slice(block.start, block.start + len(block.X))
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(basis(block.X), block.root, out=Phi[rows])
        targets[rows] = block.targets * block.root

    samples.reduce(fill, lambda a, b: None)
    return Rows(DenseDesign(Phi, overwrite=True), targets, np.zeros(samples.n_targets))


def is_dask(X: Any) -> bool:
    """Whether X is a collection of Dask, without importing that.

    >>> is_dask([[1.0]])
    False
    """
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def is_sliced(X: Any) -> bool:
    """Whether X is an array on disk, to be read in slices."""
    if isinstance(X, np.memmap):
        return X.ndim == 2
    if isinstance(X, np.ndarray | str | bytes) or any(
        hasattr(X, name) for name in ("toarray", "__dask_graph__", "__array_namespace__", "iloc", "__dlpack__")
    ):
        return False
    return all(hasattr(X, name) for name in ("shape", "dtype", "__getitem__")) and len(X.shape) == 2
