"""Compression by reductions on the workers: a kernel on every row, reduced to its rank, and its dictionary there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relvec.basis import Basis
from relvec.design.base import Combine, Compression, Design, OnPiece, Rows, Value, project_by_scan
from relvec.design.dask.kernel_basis import DistributedKernelBasis, Lookup
from relvec.design.dask.samples import DaskSamples
from relvec.design.dense import DenseDesign
from relvec.design.low_rank import TOLERANCE, partial_cholesky
from relvec.design.samples import Block
from relvec.design.streamed import _DIRECTIONS, Factor, Moments, _block_rows, _Pass, most_rank, placed, reduced
from relvec.kernels import Kernel
from relvec.runtime.progress import report

_SAMPLE = 20_000  # rows that pivots are chosen from
_MOST_RANK = 0.4  # of the sample: above, it does not tell what the others need


def compress_rows(dictionary: DistributedKernelBasis, memory: float) -> Rows | None:
    """`relvec.design.compress` by reductions on the workers; None where the rank is not low.

    This process and each worker use no more than ``memory`` bytes.

    Pivots come from a sample of the rows, then from what a pass over all rows finds unexplained, until nothing is.
    """
    samples, others = dictionary.samples, dictionary.others
    if not dictionary.kernel.positive_definite:
        return None
    found = row_factor(samples, dictionary.kernel, memory, others)
    if found is None:
        return None
    factor, total, stop = found
    samples = samples.blocked(_block_rows(factor.rank))
    R, y, rest = reduced(samples, factor, others, total)
    columns = Columns(factor, R)
    held = samples.kept(_Norms(columns))
    error = samples.reduce(_Error(stop, total.left), max, held)
    return Rows(DaskDesign(dictionary, columns, held), y, rest, Compression(samples.n_rows, len(R), TOLERANCE, error))


def row_factor(
    samples: DaskSamples, kernel: Any, memory: float, others: Basis | None = None
) -> tuple[Factor, Moments, float] | None:
    """A factor of a kernel on all rows, its moments with the columns of ``others``, and what it may leave of k(x, x).

    None where the rank is not low.
    """
    Z = samples.draw(_SAMPLE).X
    if len(Z) < samples.n_rows:
        d = samples.n_features
        look = _Extremes(np.hstack([np.eye(d), np.random.default_rng(0).standard_normal((d, _DIRECTIONS))]))
        Z = np.vstack([Z, samples.reduce(look, _Extremes.combined)[1]])
    Z = np.unique(Z, axis=0)
    most = min(most_rank(samples.n_rows, memory), int(_MOST_RANK * len(Z)))
    found = partial_cholesky(kernel, Z, 0.5 * TOLERANCE, most)
    if found is None or (others is not None and others.n_atoms > len(found[2])):
        return None
    F, _, pivots = found
    factor = Factor.of(kernel, Z[pivots], np.asfortranarray(np.tril(F[pivots])))
    stop = TOLERANCE * float(kernel.diag(Z).max())
    samples = samples.blocked(_block_rows(factor.rank))
    while True:
        total = samples.reduce(_Pass(factor, others, stop), Moments.__add__)
        report(factor.rank)
        if not len(total.worst):
            return factor, total, stop
        longer = factor.extended(total.worst, 0.5 * stop)
        if longer is None or longer.rank > most:
            return None
        factor = longer


class DaskDesign(Design):
    """A dictionary (c, M) on the workers: columns are R [0; F(x)] for every row x, over their norms.

    Parameters
    ----------
    dictionary : a kernel on every row, and p functions besides.
    columns : of the kernel, as a function of rows.
    norms : of the kernel's columns, in the chunks of the rows.
    """

    def __init__(self, dictionary: DistributedKernelBasis, columns: Columns, norms: list):
        self._dictionary, self._columns, self._norms = dictionary, columns, norms
        self._others = columns.R[:, : dictionary.n_others]
        self.scale = Lookup(dictionary.n_atoms, lambda atoms: self._unscaled(atoms)[1])  # type: ignore[assignment]

    @property
    def n_rows(self) -> int:
        return len(self._columns.R)

    def _unscaled(self, atoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        samples = self._dictionary.samples
        D, own = np.empty((self.n_rows, len(atoms)), order="F"), atoms < samples.n_rows
        D[:, own] = self._columns(samples.take(atoms[own]))
        D[:, ~own] = self._others[:, atoms[~own] - samples.n_rows]
        return D, np.sqrt(np.einsum("ij,ij->j", D, D))

    def columns(self, atoms) -> np.ndarray:
        D, norm = self._unscaled(np.asarray(atoms, dtype=np.intp))
        return D / np.where(norm > 0.0, norm, 1.0)

    def project(self, Y: np.ndarray) -> np.ndarray:
        return project_by_scan(self, Y)

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        factor, r = self._columns.factor, self._columns.factor.rank
        # Y' R [0; L^-1 k] with what does not depend on the row first
        look = _Sweep(factor.kernel, factor.pivots, Y.T @ self._columns.R[:, -r:] @ factor.inverse, function)
        total = self._dictionary.samples.reduce(look, combine, self._norms)
        if self._dictionary.n_others:
            own = self._dictionary.samples.n_rows + np.arange(self._dictionary.n_others)
            total = combine(total, function(own, Y.T @ self.columns(own)))
        return total

    def subset(self, atoms) -> DenseDesign:
        D, norm = self._unscaled(np.asarray(atoms, dtype=np.intp))
        return DenseDesign.of(D / np.where(norm > 0.0, norm, 1.0), norm)


@dataclass(frozen=True, eq=False)
class Columns:
    """What becomes of rows in the coordinates of a dictionary: R [0; F(x)] (c, b), not divided by its norms."""

    factor: Factor
    R: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return placed(self.R, True, self.factor(X)) if len(X) else np.zeros((len(self.R), 0))


@dataclass(frozen=True, eq=False)
class _Norms:
    columns: Columns

    def __call__(self, block: Block) -> np.ndarray:
        D = self.columns(block.X)
        return np.sqrt(np.einsum("ij,ij->j", D, D))


@dataclass(frozen=True, eq=False)
class _Sweep:
    """A look at kernels on the rows of a block: M (j, r) takes their values at the pivots to Y'Phi."""

    kernel: Kernel
    pivots: np.ndarray
    M: np.ndarray
    function: Callable

    def __call__(self, block: Block, norms: np.ndarray) -> Any:
        projected = (self.M @ self.kernel(block.X, self.pivots).T) / np.where(norms > 0.0, norms, 1.0)
        return self.function(block.start + np.arange(len(block.X)), projected)


@dataclass(frozen=True, eq=False)
class _Extremes:
    """The rows of a block that go furthest along directions (d, k), and how far."""

    directions: np.ndarray

    def __call__(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        along = block.X @ np.hstack([self.directions, -self.directions])
        best = along.argmax(axis=0)
        return along[best, np.arange(len(best))], block.X[best]

    @staticmethod
    def combined(a: tuple, b: tuple) -> tuple:
        """The furthest of both."""
        further = b[0] > a[0]
        return np.where(further, b[0], a[0]), np.where(further[:, None], b[1], a[1])


@dataclass(frozen=True)
class _Error:
    """A bound on the largest relative error of the columns of some rows: see `relvec.design.compress`."""

    most_left: float  # of any k(x, x)
    left: float  # of all together

    def __call__(self, block: Block, norms: np.ndarray) -> float:
        return float(np.sqrt(self.most_left * self.left) / max(norms.min(), np.finfo(float).tiny))
