"""Partial Cholesky factorisation of a kernel, K(Z, Z) ~= F F', on arrays of any library, and its pivots as a function.

Regression depends on the data only through Phi'Phi, Phi't, t't and N, so a dictionary Phi = F C with F (N, r) is as
good as one of r rows. Memory, passes over blocks, devices and Dask all take F from here: pivots are chosen on all rows
or a sample (`partial_cholesky`, `choose_pivots`), and rows that they leave unexplained join them (`explain_all`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import lapack, solve_triangular

from relvec.basis import Basis, Concat, KernelBasis, row_hash64
from relvec.inference.linalg import triangular_product
from relvec.kernels import Kernel
from relvec.runtime.arrays import Array, device_of, is_device_array, like, namespace, row_slices, squares, take, to_host
from relvec.runtime.machine import n_threads
from relvec.runtime.progress import report

Value = TypeVar("Value")

TOLERANCE = 1e-7  # largest error of a kernel value, relative to the largest k(x, x)
MIN_ROWS_TO_COMPRESS = 512  # distinct rows: below, the dense matrix is as fast
MAX_RANK_SHARE = 0.4  # of the rows, or of the sample: above, the matrix is as small, or the sample tells too little
MAX_WHOLE_ROWS = 20_000  # more have pivots from a sample of as many
RANDOM_DIRECTIONS = 32  # random directions whose extreme rows join the sample
WORST_ROWS_PER_BLOCK = 64  # unexplained rows a block reports
_BLOCK_PIVOTS = 128  # a round: fewer make the factorisation memory-bound
_BLOCK_ROWS = 8192  # of the factor computed at once on the host, so that they stay in the cache
_FIRST_COLUMNS = 1024  # of a factor on a device, which takes its memory at once and is doubled as needed
CACHE_NUMBERS = 500_000  # of a block of the factor: more leave the cache, and take pages that are long to clear
_BLOCK_MEMORY_SHARE = 0.15  # of the memory limit, for blocks of the factor on all threads


def kernel_on_training_rows(basis: Basis) -> KernelBasis | None:
    """The one kernel part that is centred on the training rows and positive definite, or None."""
    if not isinstance(basis, Concat) or basis.order is not None:
        return None
    parts = [p for p in basis.parts if isinstance(p, KernelBasis)]
    if len(parts) != 1 or not parts[0].kernel.positive_definite or np.any(parts[0].rows < 0):
        return None
    return parts[0]


@dataclass(frozen=True)
class SquaredKernel:
    """The squares of a kernel's values: positive definite with it (Schur's product theorem)."""

    kernel: Kernel

    def __call__(self, X: Array, Z: Array) -> Array:
        K = self.kernel(X, Z)
        K *= K
        return K

    def diag(self, X: Array) -> Array:
        """The values on the diagonal (n,)."""
        return self.kernel.diag(X) ** 2


def partial_cholesky(
    kernel: Any, Z: Array, tolerance: float, max_rank: int, room: int = 0, below: int = 0
) -> tuple[Array, np.ndarray, np.ndarray] | None:
    """F (m, r) with K(Z, Z) ~= F F', the remaining diagonal (m,), and the pivots (r,), in whose order the rows of F are
    triangular; None if r would exceed ``max_rank``.

    ``room`` columns are left free before F, and ``below`` rows below it.

    Pivots come in blocks: a small pivoted Cholesky drops the `candidates` that depend on the others.
    """
    left = to_host(kernel.diag(Z)).astype(float)
    largest = float(left.max(initial=0.0))
    if largest <= 0.0 or not np.isfinite(largest):
        return None
    stop, rng, m, rank = tolerance * largest, np.random.default_rng(0), Z.shape[0], 0
    C = _empty_columns(Z, m + below, room + max_rank)
    history = [float(left.sum())]
    chosen: list[np.ndarray] = [np.zeros(0, dtype=np.intp)]
    while left.max() > stop:
        first = candidates(left, stop, rng)
        Zp, known = take(Z, first), take(C[:m, room : room + rank], first)
        L, pivots, found, _ = lapack.dpstrf(_on_host(kernel(Zp, Zp) - known @ known.T), lower=1, tol=0.1 * stop)
        if found == 0 or rank + found > max_rank:
            return None  # not positive definite after all, or of a high rank
        pivots = pivots[:found] - 1
        L, first, Zp, known = L[:found, :found], first[pivots], take(Zp, pivots), take(known, pivots)
        C = _with_columns(C, room + rank + found)
        for rows in row_slices(m, 1, _BLOCK_ROWS) if isinstance(Z, np.ndarray) else row_slices(m, rank + found):
            K = kernel(Z[rows, :], Zp)
            K -= C[rows, room : room + rank] @ known.T
            new = _solve_lower(L, K.T)
            C[rows, room + rank : room + rank + found] = new.T
            left[rows] -= to_host(squares(new, 0))
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


def _on_host(A: Array) -> np.ndarray:
    return to_host(A).astype(float) if is_device_array(A) else A


def _solve_lower(L: np.ndarray, B: Array) -> Array:
    """L^-1 B for a triangle L (r, r) of the host; B (r, b) may be overwritten."""
    if isinstance(B, np.ndarray):
        return solve_triangular(L, B, lower=True, overwrite_b=True, check_finite=False)
    return like(B, solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)) @ B


def _empty_columns(Z: Array, rows: int, columns: int) -> Array:
    if isinstance(Z, np.ndarray):
        return np.empty((rows, columns), order="F")  # a column takes memory when it is written
    device = device_of(Z)
    return device.xp.empty((rows, min(columns, _FIRST_COLUMNS)), dtype=Z.dtype, device=device.device)


def _with_columns(C: Array, columns: int) -> Array:
    """C with room for so many columns."""
    if C.shape[1] >= columns:
        return C
    device = device_of(C)
    larger = device.xp.empty((C.shape[0], max(columns, 2 * C.shape[1])), dtype=C.dtype, device=device.device)
    larger[:, : C.shape[1]] = C
    return larger


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
    """Rounds until the trace reaches its goal if it keeps falling by the last factor."""
    if history[-1] <= goal:
        return 0.0
    fall = np.log(history[-2] / history[-1])
    return np.inf if fall <= 0.0 else np.log(history[-1] / goal) / fall


@dataclass(frozen=True, eq=False)
class Factor:
    """F(x) = L^-1 k(Z, x) for pivots Z (r, d) with K(Z, Z) = L L', and ``inverse`` = L^-1 (r, r) lower triangular."""

    kernel: Any
    pivots: np.ndarray
    inverse: np.ndarray

    @property
    def rank(self) -> int:
        """Number r of pivots."""
        return len(self.pivots)

    def __call__(self, X: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """F' (r, b) on rows X (b, d), Fortran order; ``out`` (b, r) may be given for its transpose."""
        out = np.empty((len(X), self.rank)) if out is None else out
        return triangular_product(self.kernel(X, self.pivots), self.inverse, True, out).T

    def left(self, X: np.ndarray, F: np.ndarray) -> np.ndarray:
        """The part of k(x, x) that the factor F (r, b) leaves on the rows X (b, d)."""
        return np.maximum(self.kernel.diag(X) - np.einsum("ij,ij->j", F, F, dtype=float), 0.0)

    def extend(self, X: np.ndarray, stop: float) -> Factor | None:
        """With more pivots among the rows X (m, d); None where the kernel is not positive definite on them."""
        F = self(X)
        remaining = self.kernel(X, X) - F.T @ F
        L, order, found, _ = lapack.dpstrf(remaining, lower=1, tol=stop)
        if found == 0:
            return None
        new = order[:found] - 1
        corner = np.tril(L[:found, :found])
        below = solve_triangular(corner, F[:, new].T @ self.inverse, lower=True, check_finite=False)
        inverse = np.zeros((self.rank + found, self.rank + found))
        inverse[: self.rank, : self.rank] = self.inverse
        inverse[self.rank :, : self.rank] = -below
        inverse[self.rank :, self.rank :] = np.tril(lapack.dtrtri(corner, lower=1)[0])
        return Factor(self.kernel, np.vstack([self.pivots, X[new]]), np.asfortranarray(inverse))


def choose_pivots(kernel: Any, Z: Array, max_rank: int) -> Factor | None:
    """The factor whose pivots explain a sample Z (m, d) to half the tolerance; None where that takes too many."""
    found = partial_cholesky(kernel, Z, 0.5 * TOLERANCE, max_rank)
    if found is None:
        return None
    F, _, pivots = found
    L = np.asfortranarray(np.tril(_on_host(take(F, pivots))))
    return Factor(kernel, _on_host(take(Z, pivots)), lapack.dtrtri(L, lower=1)[0])


def explain_all(
    factor: Factor, explain: Callable[[Factor], tuple[Value, np.ndarray] | None], stop: float, max_rank: int
) -> tuple[Factor, Value] | None:
    """The factor with more pivots until it explains all rows, and the value of the last pass over these.

    ``explain(factor)`` is a pass: its value, and the rows (m, d) that are left with more than ``stop`` of k(x, x). None
    where that takes too many pivots, or where the pass refuses.
    """
    while True:
        found = explain(factor)
        if found is None or not len(found[1]):
            return None if found is None else (factor, found[0])
        longer = factor.extend(found[1], 0.5 * stop)
        if longer is None or longer.rank > max_rank:
            return None
        factor = longer


def sample_centres(centres: Array, max_rank: int, memory: float) -> tuple[Array, int]:
    """A draw of the centres (M, d) with the extreme ones of many directions, and the most pivots it can tell of."""
    size, M = int(np.clip(memory / (24 * 768), 1000, MAX_WHOLE_ROWS)), centres.shape[0]
    if size >= M:
        return centres, min(max_rank, int(MAX_RANK_SHARE * M))
    rng = np.random.default_rng(0)
    directions = extreme_directions(centres.shape[1], rng)
    extreme = np.zeros((2, directions.shape[1]), dtype=np.intp)
    highest = np.full((2, directions.shape[1]), -np.inf)
    xp = namespace(centres)
    for rows in row_slices(M, 1, 8192 if xp is np else 2**20):
        along = centres[rows, :] @ like(centres, directions)
        for side, values in enumerate((along, -along)):
            best, top = to_host(xp.argmax(values, axis=0)), to_host(xp.max(values, axis=0))
            extreme[side] = np.where(top > highest[side], best + rows.start, extreme[side])
            highest[side] = np.maximum(highest[side], top)
    chosen = np.union1d(_draw_centres(centres, size, rng), extreme)
    return take(centres, chosen), min(max_rank, int(MAX_RANK_SHARE * size))


def _draw_centres(centres: Array, size: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers (size,) of centres drawn by content, as Dask draws its rows; on a device by rng."""
    if not isinstance(centres, np.ndarray):
        return rng.choice(centres.shape[0], size, replace=False)
    hashed = np.concatenate([hash_rows(centres[rows]) for rows in row_slices(len(centres), 1, 262_144)])
    return np.argsort(hashed, kind="stable")[:size]


def hash_rows(X: np.ndarray) -> np.ndarray:
    """The hash (n,) that rows X (n, d) are drawn by, as candidates of a kernel (`Concat.order_keys`)."""
    return row_hash64(np.column_stack([np.zeros(len(X)), X]))


def extreme_directions(d: int, rng: np.random.Generator) -> np.ndarray:
    """The axes and some random directions (d, k)."""
    return np.hstack([np.eye(d), rng.standard_normal((d, RANDOM_DIRECTIONS))])


def rows_per_block(rank: int, memory: float = 4e9) -> int:
    """Rows of a block whose factor has that many columns; three of its size on every thread take their share."""
    numbers = min(CACHE_NUMBERS, _BLOCK_MEMORY_SHARE * memory / (24 * n_threads()))
    return int(np.clip(numbers // max(rank, 1), 256, 4096))


def worst_rows(rows: np.ndarray, left: np.ndarray, rank: int) -> np.ndarray:
    """Which of the rows, with their remaining diagonal, join the pivots: those that passes over blocks would report."""
    order = np.lexsort((rows, -left))
    block = rows[order] // rows_per_block(rank)
    sorted_ = np.argsort(block, kind="stable")
    starts = np.searchsorted(block[sorted_], block[sorted_])
    within = np.empty(len(rows), dtype=np.intp)
    within[sorted_] = np.arange(len(rows)) - starts  # place of each row among those of its block, worst first
    return rows[order[within < WORST_ROWS_PER_BLOCK]][: 4 * WORST_ROWS_PER_BLOCK]
