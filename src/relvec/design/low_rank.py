"""Compression: N rows reduced to the numerical rank of the dictionary (regression only).

Regression depends on the data only through Phi'Phi, Phi't, t't and N. Where Phi = F C with F (N, r), the QR
factorisation [B F t] = Q R turns the dictionary into r + p rows and the target into as many coordinates plus the
length it has outside them; nothing else changes. For a positive definite kernel with the training rows as centres
F comes from a partial Cholesky factorisation K ~= F F', which never forms K.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack, qr, solve_triangular

from relvec.basis import Basis, Concat, KernelBasis
from relvec.design.base import Compression, Rows
from relvec.design.dense import DenseDesign
from relvec.runtime.arrays import row_slices, unique_rows
from relvec.runtime.progress import report

TOLERANCE = 1e-7  # largest error of a kernel value, relative to the largest k(x, x)
_DEPENDENT = 1e-6  # a column that is less new than this, relative to its norm, has lost digits in a Gram matrix
_BLOCK = 128  # pivots a round: fewer make the factorisation memory-bound
MIN_ROWS_TO_COMPRESS = 512  # distinct rows: below, the dense matrix is as fast
_ROWS = 8192  # rows of the factor computed at once
_MOST_RANK = 0.4  # of the rows: above, the dense matrix is as small


def compress(basis: Basis, X: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Rows | None:
    """Reduce the rows of a bound dictionary on X (N, d) with targets (N, q), or None where it does not pay.

    Equal rows of X become one row with the sum of their weights (N,) and the mean of their targets.
    """
    found = merged_rows(basis, X, targets, weights)
    if found is None:
        return None
    assert isinstance(basis, Concat)
    kernel_part, mean, size, within = found
    centres = kernel_part.centres
    assert centres is not None
    p = basis.n_atoms - kernel_part.n_atoms
    if p > 0.1 * len(centres):
        return None
    factor = partial_cholesky(kernel_part.kernel, centres, TOLERANCE, int(_MOST_RANK * len(centres)), p, p)
    if factor is None:
        return None
    C, left, _ = factor  # (m + p, p + r): room for the other parts, F, and room for their atoms
    m = len(centres)
    column, others = 0, []
    for part, where in zip(basis.parts, basis.part_columns(), strict=True):
        if part is kernel_part:
            kernel_atoms = where
            continue
        C[:m, column : column + part.n_atoms] = part(centres)
        others.append(where)
        column += part.n_atoms
    root = np.sqrt(size)[:, None]
    A = C[:m] if np.all(size == 1.0) else C[:m] * root
    gram = A.T @ A
    R, triangular = gram_root(gram.copy())
    if has_digits(R, triangular, gram):
        y, rest = coordinates(A, R, triangular, mean * root)
    else:
        R, y, rest = split_triangle(qr(np.column_stack([A, mean * root]), mode="r", overwrite_a=True)[0], A.shape[1])
        triangular = True
    del A
    C[:m, :p] = 0.0  # the other parts' atoms are R itself
    C[m:] = np.eye(p, C.shape[1])
    D = blas.dtrmm(1.0, R, C, side=1, trans_a=1, overwrite_b=1) if triangular else C @ R.T  # (m + p, p + r)
    order = np.concatenate([kernel_atoms, *others])
    if not np.array_equal(order, np.arange(len(order))):
        D = D[np.argsort(order)]
    design = DenseDesign(D.T, overwrite=True)
    # |K - F F'|_nm <= sqrt(left_n left_m) (Cauchy-Schwarz), so a column's error is at most sqrt(left_m sum left)
    error = np.sqrt(left * np.sum(size * left)) / np.maximum(design.scale[kernel_atoms], np.finfo(float).tiny)
    report = Compression(len(X), design.n_rows, TOLERANCE, float(error.max()))
    return Rows(design, y, rest + within, report)


def merged_rows(basis: Basis, X: np.ndarray, targets: np.ndarray, weights: np.ndarray):
    """Equal rows of X (N, d) as one, where they are the centres of the one kernel of a dictionary; else None.

    Returns the kernel's part, the mean targets (m, q) and total weights (m,) on its centres, and the squares within
    equal rows (q,).
    """
    part = kernel_on_training_rows(basis)
    if part is None or part.centres is None or part.n_atoms < MIN_ROWS_TO_COMPRESS or part.n_atoms > len(X):
        return None
    centres, first, row_of = unique_rows(X)
    if not np.array_equal(centres, part.centres):
        return None
    if len(centres) == len(X):
        return part, targets[first], weights[first], np.zeros(targets.shape[1])
    return part, *row_means(row_of, targets, weights)


def row_means(row_of: np.ndarray, targets: np.ndarray, weights: np.ndarray):
    """Mean target (m, q) and total weight (m,) of equal rows, and the squares within them (q,)."""
    size = np.bincount(row_of, weights)
    mean = np.stack([np.bincount(row_of, weights * t) for t in targets.T], axis=1) / size[:, None]
    return mean, size, weights @ (targets - mean[row_of]) ** 2


def gram_root(gram: np.ndarray) -> tuple[np.ndarray, bool]:
    """R (c, c) with R'R = A'A (c, c), and whether it is triangular: a symmetric root where Cholesky fails.

    Only inner products of columns are needed, and those keep the digits of the Gram matrix; the tolerance of the
    factor is far above what squaring the condition number loses.
    """
    R, info = lapack.dpotrf(gram, lower=0, clean=1)
    if info == 0:
        return R, True
    values, vectors = np.linalg.eigh(gram)
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, False


def has_digits(R: np.ndarray, triangular: bool, gram: np.ndarray) -> bool:
    """Whether the root R (c, c) of a Gram matrix tells its columns apart: what is new in each is above rounding."""
    return triangular and bool(np.all(np.diag(R) > _DEPENDENT * np.sqrt(np.diag(gram))))


def split_triangle(whole: np.ndarray, c: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The triangle (c + q, c + q) of columns and targets as R (c, c), Q't (c, q) and |t - Q Q't|^2 (q,)."""
    outside = whole[c:, c:]
    return np.asfortranarray(np.triu(whole[:c, :c])), whole[:c, c:], np.einsum("ij,ij->j", outside, outside)


def coordinates(A: np.ndarray, R: np.ndarray, triangular: bool, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q't (c, q) for A = Q R, and |t - Q Q't|^2 (q,): semi-normal equations, corrected twice."""
    inverse = None if triangular else np.linalg.pinv(R)

    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        if inverse is not None:
            return inverse.T @ b if transposed else inverse @ b
        return solve_triangular(R, b, trans=int(transposed), check_finite=False)

    y, outside = np.zeros((A.shape[1], targets.shape[1])), targets.copy()
    for _ in range(3):
        more = solve(A.T @ outside, True)
        outside -= A @ solve(more, False)
        y += more
    return y, np.einsum("ij,ij->j", outside, outside)


def partial_cholesky(
    kernel, Z: np.ndarray, tolerance: float, most: int, room: int = 0, below: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """F (m, r) with K(Z, Z) ~= F F', what is left of the diagonal (m,), and the pivots (r,), in whose order the rows
    of F are triangular; None if r would exceed ``most``.

    ``room`` columns are left free before F, and ``below`` rows below it.

    Pivots come in blocks: a small pivoted Cholesky drops the `candidates` that depend on the others.
    """
    left = kernel.diag(Z).astype(float)
    largest = float(left.max(initial=0.0))
    if largest <= 0.0 or not np.isfinite(largest):
        return None
    stop = tolerance * largest
    rng = np.random.default_rng(0)
    m = len(Z)
    C = np.empty((m + below, room + most), order="F")  # a column takes memory when it is written
    F = C[:m, room:]
    rank, history = 0, [float(left.sum())]
    chosen: list[np.ndarray] = [np.zeros(0, dtype=np.intp)]
    while left.max() > stop:
        first = candidates(left, stop, rng)
        known = F[first, :rank]
        L, pivots, found, _ = lapack.dpstrf(kernel(Z[first], Z[first]) - known @ known.T, lower=1, tol=0.1 * stop)
        if found == 0:
            return None  # not positive definite after all
        pivots = pivots[:found] - 1
        if rank + found > most:
            return None
        L, first, known = L[:found, :found], first[pivots], known[pivots]
        for rows in row_slices(m, 1, _ROWS):
            K = kernel(Z[rows], Z[first])
            K -= F[rows, :rank] @ known.T
            new = solve_triangular(L, K.T, lower=True, overwrite_b=True, check_finite=False)
            F[rows, rank : rank + found] = new.T
            left[rows] -= np.einsum("ij,ij->j", new, new)
        rank += found
        np.maximum(left, 0.0, out=left)
        left[first] = 0.0
        chosen.append(first)
        history.append(float(left.sum()))
        more = _blocks_to_go(history, stop * len(Z)) * _BLOCK
        report(rank, fraction=rank / (rank + more))
        if rank + more > 2 * most:
            return None
    return C[:, : room + rank], left, np.concatenate(chosen)


def candidates(left: np.ndarray, stop: float, rng: np.random.Generator) -> np.ndarray:
    """Rows for the next block of pivots: the largest of what is left of the diagonal, and a draw in proportion to it.

    The largest alone cluster; a draw alone stalls when the rest sits on a few points.
    """
    open_ = np.flatnonzero(left > stop)
    size = min(_BLOCK, open_.size)
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


def kernel_on_training_rows(basis: Basis) -> KernelBasis | None:
    """The one kernel part that is centred on the training rows and positive definite, or None."""
    if not isinstance(basis, Concat) or basis.order is not None:
        return None
    parts = [p for p in basis.parts if isinstance(p, KernelBasis)]
    if len(parts) != 1 or not parts[0].kernel.positive_definite or np.any(parts[0].rows < 0):
        return None
    return parts[0]
