"""Compression by reductions on the workers: a kernel on every row, reduced to its rank, and its dictionary there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from relvec.basis import Basis
from relvec.design.base import Combine, Compression, Design, OnPiece, Rows, Value
from relvec.design.cholesky import (
    MAX_RANK_SHARE,
    MAX_WHOLE_ROWS,
    TOLERANCE,
    Factor,
    choose_pivots,
    explain_all,
    extreme_directions,
    rows_per_block,
)
from relvec.design.dask.kernel_basis import DistributedKernelBasis, Lookup
from relvec.design.dask.reductions import DaskSamples
from relvec.design.dense import DenseDesign
from relvec.design.samples import Block
from relvec.design.streamed import Moments, block_moments, max_rank, reduce_moments, rotate
from relvec.kernels import Kernel
from relvec.runtime.progress import report


def compress_rows(dictionary: DistributedKernelBasis, memory: float) -> Rows | None:
    """`relvec.design.low_rank.compress` by reductions on the workers; None where the rank is not low.

    This process and each worker use no more than ``memory`` bytes.

    Pivots come from a sample of the rows, then from the rows that a pass over all finds unexplained, until none is.
    """
    samples, others = dictionary.samples, dictionary.others
    if not dictionary.kernel.positive_definite:
        return None
    found = row_factor(samples, dictionary.kernel, memory, others)
    if found is None:
        return None
    factor, total, stop = found
    samples = samples.blocked(rows_per_block(factor.rank))
    R, y, outside = reduce_moments(samples, factor, others, total)
    columns = KernelColumns(factor, R)
    norms = samples.keep_values(partial(_norms, columns))
    error = samples.reduce(partial(_error, stop, total.left), max, norms)
    how = Compression(samples.n_rows, len(R), TOLERANCE, error)
    return Rows(DaskDesign(dictionary, columns, norms), y, outside, how)


def row_factor(
    samples: DaskSamples, kernel: Any, memory: float, others: Basis | None = None
) -> tuple[Factor, Moments, float] | None:
    """A factor of a kernel on all rows, its moments with the columns of ``others``, and the part of k(x, x) that it may
    leave.

    None where the rank is not low.
    """
    Z = samples.draw(MAX_WHOLE_ROWS).X
    if len(Z) < samples.n_rows:
        directions = extreme_directions(samples.n_features, np.random.default_rng(0))
        Z = np.vstack([Z, samples.reduce(partial(_extremes, directions), _further)[1]])
    Z = np.unique(Z, axis=0)
    most = min(max_rank(samples.n_rows, memory), int(MAX_RANK_SHARE * len(Z)))
    factor = choose_pivots(kernel, Z, most)
    if factor is None or (others is not None and others.n_atoms > factor.rank):
        return None
    stop = TOLERANCE * float(kernel.diag(Z).max())
    samples = samples.blocked(rows_per_block(factor.rank))

    def explain(factor: Factor) -> tuple[Moments, np.ndarray]:
        total = samples.reduce(partial(block_moments, factor, others, stop, None, None), Moments.__add__)
        report(factor.rank)
        return total, total.worst

    explained = explain_all(factor, explain, stop, most)
    return None if explained is None else (*explained, stop)


class DaskDesign(Design):
    """A dictionary (c, M) on the workers: columns are R [0; F(x)] for every row x, over their norms.

    Parameters
    ----------
    dictionary : a kernel on every row, and p functions besides.
    columns : of the kernel, as a function of rows.
    norms : of the kernel's columns, in the chunks of the rows.
    """

    def __init__(self, dictionary: DistributedKernelBasis, columns: KernelColumns, norms: list):
        self._dictionary, self._columns, self._norms = dictionary, columns, norms
        self._others = columns.R[:, : dictionary.n_others]
        self.scale = Lookup(dictionary.n_atoms, lambda atoms: self._unscaled_columns(atoms)[1])  # type: ignore[assignment]

    @property
    def n_rows(self) -> int:
        return len(self._columns.R)

    def _unscaled_columns(self, atoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        samples = self._dictionary.samples
        D, own = np.empty((self.n_rows, len(atoms)), order="F"), atoms < samples.n_rows
        D[:, own] = self._columns(samples.take(atoms[own]))
        D[:, ~own] = self._others[:, atoms[~own] - samples.n_rows]
        return D, np.sqrt(np.einsum("ij,ij->j", D, D))

    def columns(self, atoms) -> np.ndarray:
        D, norm = self._unscaled_columns(np.asarray(atoms, dtype=np.intp))
        return D / np.where(norm > 0.0, norm, 1.0)

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        factor, r = self._columns.factor, self._columns.factor.rank
        M = Y.T @ self._columns.R[:, -r:] @ factor.inverse  # the part of Y' R [0; L^-1 k] shared by all rows
        task = partial(_scan_block, factor.kernel, factor.pivots, M, function)
        total = self._dictionary.samples.reduce(task, combine, self._norms)
        if self._dictionary.n_others:
            own = self._dictionary.samples.n_rows + np.arange(self._dictionary.n_others)
            total = combine(total, function(own, Y.T @ self.columns(own)))
        return total

    def subset(self, atoms) -> DenseDesign:
        D, norm = self._unscaled_columns(np.asarray(atoms, dtype=np.intp))
        return DenseDesign.of(D / np.where(norm > 0.0, norm, 1.0), norm)


@dataclass(frozen=True, eq=False)
class KernelColumns:
    """Columns of the kernels on rows x in the coordinates of a dictionary: R [0; F(x)] (c, b), without their norms."""

    factor: Factor
    R: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return rotate(self.R, self.factor(X)) if len(X) else np.zeros((len(self.R), 0))


def _norms(columns: KernelColumns, block: Block) -> np.ndarray:
    D = columns(block.X)
    return np.sqrt(np.einsum("ij,ij->j", D, D))


def _scan_block(
    kernel: Kernel, pivots: np.ndarray, M: np.ndarray, function: Callable, block: Block, norms: np.ndarray
) -> Any:
    """A scan of the kernels on the rows of a block: M (j, r) takes their values at the pivots to Y'Phi."""
    projected = (M @ kernel(block.X, pivots).T) / np.where(norms > 0.0, norms, 1.0)
    return function(block.start + np.arange(len(block.X)), projected)


def _extremes(directions: np.ndarray, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """How far the rows of a block go along directions (d, k) and against them, and the rows that go furthest."""
    along = block.X @ np.hstack([directions, -directions])
    best = along.argmax(axis=0)
    return along[best, np.arange(len(best))], block.X[best]


def _further(a: tuple, b: tuple) -> tuple:
    further = b[0] > a[0]
    return np.where(further, b[0], a[0]), np.where(further[:, None], b[1], a[1])


def _error(most_left: float, left: float, block: Block, norms: np.ndarray) -> float:
    """A bound on the largest relative error of the columns of some rows: see `relvec.design.low_rank.compress`.

    ``most_left`` is what is left of any k(x, x), ``left`` of all together.
    """
    return float(np.sqrt(most_left * left) / max(norms.min(), np.finfo(float).tiny))
