"""Partial Cholesky factorisation of a kernel, K(Z, Z) ~= F F', and F as a function of a row through its pivots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack, solve_triangular

from relvec.basis import Basis, Concat, KernelBasis
from relvec.inference.linalg import triangular_product
from relvec.kernels import Kernel
from relvec.runtime.arrays import Array, like, row_slices, squares
from relvec.runtime.machine import all_threads
from relvec.runtime.progress import report

# Largest error of a kernel value, relative to the largest k(x, x): first, and where that moves an evidence. With 1e-3
# scans of the exact columns found gains above tol that the compressed ones had not.
ROUGH_TOLERANCE, TOLERANCE = 1e-4, 1e-7
_BLOCK_PIVOTS = 128  # a round: fewer make the factorisation memory-bound
_BLOCK_ROWS = 8192  # of the factor computed at once, so that they stay in the cache


def kernel_on_training_rows(basis: Basis) -> KernelBasis | None:
    """Return the one kernel part that is centred on the training rows and positive definite, or None."""
    if not isinstance(basis, Concat) or basis.order is not None:
        return None
    parts = [p for p in basis.parts if isinstance(p, KernelBasis)]
    if len(parts) != 1 or not parts[0].kernel.positive_definite or np.any(parts[0].rows < 0):
        return None
    return parts[0]


def partial_cholesky(
    kernel: Kernel, Z: np.ndarray, tolerance: float, max_rank: int, room: int = 0, below: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """F (m, r) with K(Z, Z) ~= F F', the remaining diagonal (m,), and the pivots (r,), in whose order the rows of F are
    triangular; None if r would exceed ``max_rank``.

    ``room`` columns are left free before F, and ``below`` rows below it.

    Pivots come in blocks: a small pivoted Cholesky drops the `candidates` that depend on the others.
    """
    left = kernel.diag(Z).astype(float)
    largest = float(left.max(initial=0.0))
    if largest <= 0.0 or not np.isfinite(largest):
        return None
    stop, rng, m, rank = tolerance * largest, np.random.default_rng(0), len(Z), 0
    C = np.empty((m + below, room + max_rank), order="F")  # a column takes memory when it is written
    history = [float(left.sum())]
    chosen: list[np.ndarray] = [np.zeros(0, dtype=np.intp)]
    while left.max() > stop:
        first = candidates(left, stop, rng)
        Zp, known = Z[first], C[first, room : room + rank]
        L, pivots, found, _ = lapack.dpstrf(kernel(Zp, Zp) - known @ known.T, lower=1, tol=0.1 * stop)
        if found == 0 or rank + found > max_rank:
            return None  # not positive definite after all, or of a high rank
        pivots = pivots[:found] - 1
        L, first, Zp, known = L[:found, :found], first[pivots], Zp[pivots], known[pivots]
        with all_threads(float(min(m, _BLOCK_ROWS)) * (rank + found) * found):
            for rows in row_slices(m, 1, _BLOCK_ROWS):
                K = kernel(Z[rows], Zp)
                K -= C[rows, room : room + rank] @ known.T
                new = solve_triangular(L, K.T, lower=True, overwrite_b=True, check_finite=False)
                C[rows, room + rank : room + rank + found] = new.T
                left[rows] -= squares(new, 0)
        rank += found
        np.maximum(left, 0.0, out=left)
        left[first] = 0.0
        chosen.append(first)
        history.append(float(left.sum()))
        more = _blocks_to_go(history, stop * m) * _BLOCK_PIVOTS
        report(rank, fraction=rank / (rank + more))
        if rank + more > 2 * max_rank:
            return None
    return C[:, : room + rank], left, np.concatenate(chosen)


def candidates(left: np.ndarray, stop: float, rng: np.random.Generator) -> np.ndarray:
    """Rows for the next block of pivots: the largest of the remaining diagonal, and a draw in proportion to it.

    The largest alone cluster; a draw alone stalls when the rest sits on a few points.
    """
    open_ = np.flatnonzero(left > stop)
    size = min(_BLOCK_PIVOTS, open_.size)
    first = open_[np.argsort(-left[open_], kind="stable")[: size // 4 + 1]]
    others = np.setdiff1d(open_, first, assume_unique=True)
    drawn = size - first.size
    if drawn > 0 and others.size:
        share = left[others] / left[others].sum()
        few = min(drawn, int(np.count_nonzero(share)))
        first = np.concatenate([first, rng.choice(others, few, replace=False, p=share)])
    return first


def _blocks_to_go(history: list[float], goal: float) -> float:
    """Estimate the rounds until the trace reaches its goal if it keeps falling by the last factor."""
    if history[-1] <= goal:
        return 0.0
    fall = np.log(history[-2] / history[-1])
    return np.inf if fall <= 0.0 else np.log(history[-1] / goal) / fall


@dataclass(frozen=True, eq=False)
class Factor:
    """F(x) = L^-1 k(Z, x) for pivots Z (r, d) with K(Z, Z) = L L', and ``inverse`` = L^-1 (r, r) lower triangular."""

    kernel: Kernel
    pivots: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, kernel: Kernel, pivots: np.ndarray, L: np.ndarray) -> Factor:
        """Return the factor for pivots (r, d) on which F is L (r, r), up to rounding above its diagonal."""
        return cls(kernel, pivots, lapack.dtrtri(np.asfortranarray(np.tril(L)), lower=1)[0])

    @property
    def rank(self) -> int:
        """Number r of pivots."""
        return len(self.pivots)

    def __call__(self, X: Array) -> Array:
        """F' (b, r) on rows X (b, d)."""
        K = self.kernel(X, like(X, self.pivots))
        if isinstance(X, np.ndarray):
            return triangular_product(K, self.inverse, True, np.empty(K.shape))
        return K @ like(X, self.inverse.T)
