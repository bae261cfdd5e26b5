"""Compression: N rows reduced to the numerical rank of the dictionary, or to its atoms (regression only).

Regression depends on the data only through Phi'Phi, Phi't, t't and N. Where Phi = F C with F (N, r), the QR
factorisation [B F t] = Q R turns the dictionary into r + p rows and the target into as many coordinates plus the
length it has outside them; nothing else changes. For a positive definite kernel with the training rows as centres
F comes from a partial Cholesky factorisation K ~= F F', which never forms K. For few atoms of any kind on many rows,
R comes from Phi'Phi itself, which one pass over blocks adds up.

Arrays may be NumPy's or a device's; matrices of the size of the rank are factored on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, lapack, qr, solve_triangular

from relvec.basis import Basis, Concat, KernelBasis, numbers_per_entry
from relvec.design.base import Compression, Design, Rows
from relvec.design.cholesky import (
    MAX_RANK_SHARE,
    MAX_WHOLE_ROWS,
    MIN_ROWS_TO_COMPRESS,
    TOLERANCE,
    choose_pivots,
    explain_all,
    kernel_on_training_rows,
    partial_cholesky,
    sample_centres,
    worst_rows,
)
from relvec.design.dense import DenseDesign, not_finite
from relvec.design.samples import Block, Samples
from relvec.runtime.arrays import Array, device_of, like, namespace, row_slices, squares, take, to_host, unique_rows
from relvec.runtime.machine import n_threads

MAX_PASS_MULTIPLICATIONS = 1.7e12  # that a pass takes: about a minute on two cores
_DEPENDENT = 1e-6  # a column that is less new than this, relative to its norm, has lost digits in a Gram matrix
_ILL_CONDITIONED = 1e-7  # a diagonal of Cholesky's factor below this, relative to its column, has lost half its digits
_MAX_DEVICE_NUMBERS = 2**33  # of a factor on a device: 64 GiB
_MAX_BLOCK_NUMBERS = 4_000_000  # of a dictionary computed at once
_BLOCK_MEMORY_SHARE = 0.2  # of the memory limit, for blocks of a dictionary on all threads
_ROUNDING = 1e-15  # of unit squares: smaller parts depend on the other atoms for all a Gram matrix can tell


class MergedRows(NamedTuple):
    """Equal rows of X as one: the kernel centred on them, the rows (m, d), mean targets (m, q) and total weights (m,),
    and the squares within equal rows (q,).
    """

    kernel: KernelBasis
    centres: Array
    targets: np.ndarray
    weights: np.ndarray
    within: np.ndarray


def merge_rows(basis: Basis, X: Array, targets: np.ndarray, weights: np.ndarray) -> MergedRows | None:
    """Equal rows of X (N, d) as one, where they are the centres of the one kernel of a dictionary; else None."""
    part = kernel_on_training_rows(basis)
    if part is None or part.centres is None or part.n_atoms < MIN_ROWS_TO_COMPRESS or part.n_atoms > X.shape[0]:
        return None
    centres, first, row_of = unique_rows(X)
    if centres.shape != part.centres.shape or not bool(namespace(X).all(centres == like(centres, part.centres))):
        return None
    if len(weights) == part.n_atoms:
        order = to_host(first)
        return MergedRows(part, centres, targets[order], weights[order], np.zeros(targets.shape[1]))
    return MergedRows(part, centres, *row_means(to_host(row_of), targets, weights))


def row_means(row_of: np.ndarray, targets: np.ndarray, weights: np.ndarray):
    """Mean target (m, q) and total weight (m,) of equal rows, and the squares within them (q,)."""
    size = np.bincount(row_of, weights)
    mean = np.stack([np.bincount(row_of, weights * t) for t in targets.T], axis=1) / size[:, None]
    return mean, size, weights @ (targets - mean[row_of]) ** 2


def compress(
    basis: Basis, X: Array, targets: np.ndarray, weights: np.ndarray, design_of: Callable[[Array], Design] | None = None
) -> Rows | None:
    """Reduce the rows of a bound dictionary on X (N, d) with targets (N, q), or None where it does not pay.

    Equal rows of X become one row with the sum of their weights (N,) and the mean of their targets. ``design_of`` makes
    a design of the M rows of Phi' (M, c); a `DenseDesign` by default.
    """
    found = merge_rows(basis, X, targets, weights)
    if found is None:
        return None
    assert isinstance(basis, Concat)
    part, centres, mean, size, within = found
    m, p = part.n_atoms, basis.n_atoms - part.n_atoms
    if p > 0.1 * m:
        return None
    factor = factor_columns(part.kernel, centres, int(MAX_RANK_SHARE * m), p, p)
    if factor is None:
        return None
    C, left = factor  # (m + p, p + r): room for the other parts, F, and room for their atoms
    kernel_atoms, others = split_parts(basis, part)
    for own, other in _side_by_side(others):
        C[:m, own] = other(centres)
    root = np.sqrt(size)[:, None]
    columns = _weighted_columns(C[:m, :], like(C, root))
    R, triangular, y, outside = span_coordinates(columns, like(C, mean * root), C.shape[1])
    del columns
    C[:m, :p] = 0.0  # the other parts' atoms are R itself
    C[m:, :] = like(C, np.eye(p, C.shape[1]))
    D = _times_transposed(C, R, triangular)
    order = np.concatenate([kernel_atoms, *(where for _, where in others)])
    if not np.array_equal(order, np.arange(len(order))):
        D = take(D, np.argsort(order))
    design = DenseDesign(D.T, overwrite=True) if design_of is None else design_of(D)
    # |K - F F'|_nm <= sqrt(left_n left_m) (Cauchy-Schwarz), so a column's error is at most sqrt(left_m sum left)
    error = np.sqrt(left * np.sum(size * left)) / np.maximum(design.scale[kernel_atoms], np.finfo(float).tiny)
    how = Compression(len(weights), design.n_rows, TOLERANCE, float(error.max()))
    return Rows(design, y, outside + within, how)


def split_parts(basis: Concat, part: KernelBasis) -> tuple[np.ndarray, list[tuple[Basis, np.ndarray]]]:
    """The atoms of the kernel's part, and the other parts with theirs."""
    parts = list(zip(basis.parts, basis.part_columns(), strict=True))
    return next(where for q, where in parts if q is part), [(q, where) for q, where in parts if q is not part]


def _weighted_columns(C: Array, root: Array) -> Callable[[slice], Array]:
    """Rows of C (m, c), each times its root (m, 1): at once on the host, piece by piece on a device."""
    if isinstance(C, np.ndarray):
        A = C if np.all(root == 1.0) else C * root
        return lambda rows: A[rows]
    return lambda rows: C[rows, :] * root[rows, :]


def _side_by_side(parts: list[tuple[Basis, np.ndarray]]) -> Iterator[tuple[slice, Basis]]:
    first = 0
    for part, where in parts:
        yield slice(first, first + len(where)), part
        first += len(where)


def factor_columns(
    kernel: Any, Z: Array, max_rank: int, room: int = 0, below: int = 0
) -> tuple[Array, np.ndarray] | None:
    """F (m, r) with K(Z, Z) ~= F F' for rows Z (m, d), and the remaining diagonal (m,); None for a high rank.

    ``room`` columns are left free before F, and ``below`` rows below it. Many rows on a device have the pivots that
    passes over them would choose on the host (`relvec.design.streamed`), so that the search sees the same numbers.
    """
    m = Z.shape[0]
    if isinstance(Z, np.ndarray) or m <= MAX_WHOLE_ROWS:
        found = partial_cholesky(kernel, Z, TOLERANCE, max_rank, room, below)
        return None if found is None else found[:2]
    device, max_rank = device_of(Z), int(min(max_rank, _MAX_DEVICE_NUMBERS / m))
    sample, max_pivots = sample_centres(Z, max_rank, np.inf)
    factor = choose_pivots(kernel, sample, max_pivots)
    if factor is None:
        return None
    stop, first_rank = TOLERANCE * float(to_host(kernel.diag(sample)).max()), factor.rank

    def explain(factor) -> tuple[tuple[Array, np.ndarray], np.ndarray]:
        C = device.xp.empty((m + below, room + factor.rank), dtype=Z.dtype, device=device.device)
        pivots, inverse, diagonal = like(Z, factor.pivots), like(Z, factor.inverse.T), kernel.diag(Z)
        for rows in row_slices(m, factor.rank):
            F = kernel(Z[rows, :], pivots) @ inverse
            C[rows, room:] = F
            diagonal[rows] -= squares(F, 1)
        left = np.maximum(to_host(diagonal).astype(float), 0.0)
        open_ = np.flatnonzero(left > stop)
        return (C, left), to_host(take(Z, worst_rows(open_, left[open_], first_rank))).astype(float)

    explained = explain_all(factor, explain, stop, max_rank)
    return None if explained is None else explained[1]


def span_coordinates(
    columns: Callable[[slice], Array], targets: Array, c: int
) -> tuple[np.ndarray, bool, np.ndarray, np.ndarray]:
    """R (c, c) with R'R = A'A and whether it is triangular, Q't (c, q) for A = Q R, and |t - Q Q't|^2 (q,).

    ``columns(rows)`` gives rows of A (n, c) in the library of the targets (n, q). Where the Gram matrix has lost
    digits, R comes from a QR factorisation.
    """
    gram = np.zeros((c, c))
    for rows in _pieces(targets, c):
        A = columns(rows)
        gram += to_host(A.T @ A)
    R, triangular = gram_root(gram.copy())
    if not has_digits(R, triangular, gram):

        def with_targets(rows: slice) -> Array:
            return namespace(targets).concat([columns(rows), targets[rows, :]], axis=1)

        R, y, outside = split_triangle(tall_r(with_targets, targets, c + targets.shape[1]), c)
        return R, True, y, outside
    y, outside = coordinates(columns, R, triangular, targets)
    return R, triangular, y, outside


def _pieces(x: Array, width: int) -> Iterator[slice]:
    """Slices of the rows of an array that is that wide: all at once on the host, where the rows are few."""
    return iter([slice(0, len(x))]) if isinstance(x, np.ndarray) else row_slices(x.shape[0], width)


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
    """Whether the root R (c, c) of a Gram matrix tells its columns apart: the new part of each is above rounding."""
    return triangular and bool(np.all(np.diag(R) > _DEPENDENT * np.sqrt(np.diag(gram))))


def split_triangle(whole: np.ndarray, c: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The triangle (c + q, c + q) of columns and targets as R (c, c), Q't (c, q) and |t - Q Q't|^2 (q,)."""
    outside = whole[c:, c:]
    return np.asfortranarray(np.triu(whole[:c, :c])), whole[:c, c:], np.einsum("ij,ij->j", outside, outside)


def coordinates(
    columns: Callable[[slice], Array], R: np.ndarray, triangular: bool, targets: Array
) -> tuple[np.ndarray, np.ndarray]:
    """Q't (c, q) for A = Q R, and |t - Q Q't|^2 (q,): semi-normal equations, corrected twice."""
    inverse = None if triangular else np.linalg.pinv(R)

    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        if inverse is not None:
            return inverse.T @ b if transposed else inverse @ b
        return solve_triangular(R, b, trans=int(transposed), check_finite=False)

    c = len(R)
    y, outside = np.zeros((c, targets.shape[1])), namespace(targets).asarray(targets, copy=True)
    for _ in range(3):
        inside = np.zeros(y.shape)
        for rows in _pieces(targets, c):
            inside += to_host(columns(rows).T @ outside[rows, :])
        more = solve(inside, True)
        step = like(targets, solve(more, False))
        for rows in _pieces(targets, c):
            outside[rows, :] -= columns(rows) @ step
        y += more
    return y, to_host(squares(outside, 0))


def tall_r(columns: Callable[[slice], Array], like_rows: Array, c: int) -> np.ndarray:
    """R (c, c) of the QR factorisation of A (n, c), whose rows ``columns(rows)`` gives in the library of (n, q) rows.

    On a device, Cholesky's factor of A'A, then of Q'Q for Q = A R^-1 (CholeskyQR2), is as accurate as Householder's for
    A of condition up to 1e7; beyond, Householder's is taken, piece by piece.
    """
    n = like_rows.shape[0]
    if isinstance(like_rows, np.ndarray):
        return qr(columns(slice(0, n)), mode="r", overwrite_a=True)[0]
    R, eye = np.eye(c), np.eye(c)
    for _ in range(2):
        inverse, gram = like(like_rows, solve_triangular(R, eye, check_finite=False)), np.zeros((c, c))
        for rows in row_slices(n, c):
            Q = columns(rows) @ inverse
            gram += to_host(Q.T @ Q)
        size = np.sqrt(gram.diagonal())
        more, info = lapack.dpotrf(gram, lower=0, clean=1)
        if info or np.any(more.diagonal() < _ILL_CONDITIONED * size):
            break
        R = more @ R
    else:
        return R
    R = np.zeros((0, c))
    for rows in row_slices(n, c):
        R = np.vstack([R, to_host(namespace(like_rows).linalg.qr(columns(rows), mode="reduced").R)])
        R = qr(R, mode="r", check_finite=False)[0][:c]
    return np.vstack([R, np.zeros((c - len(R), c))])


def _times_transposed(C: Array, R: np.ndarray, triangular: bool) -> Array:
    """C R' (n, c) for C (n, c), which is overwritten where that is possible."""
    if isinstance(C, np.ndarray):
        return blas.dtrmm(1.0, R, C, side=1, trans_a=1, overwrite_b=1) if triangular else C @ R.T
    transposed = like(C, R.T)
    for rows in row_slices(C.shape[0], len(R)):
        C[rows, :] = C[rows, :] @ transposed
    return C


def max_gram_atoms(n_rows: int, memory: float) -> int:
    """The longest dictionary that so many rows are reduced to in one pass, in memory and time."""
    held = n_threads() + 4  # matrices of that size at once
    return int(min(np.sqrt(0.6 * memory / (8 * held)), np.sqrt(MAX_PASS_MULTIPLICATIONS / n_rows)))


def gram_rows(basis: Basis, samples: Samples, memory: float = 4e9) -> Rows:
    """A bound basis of M atoms on the samples, in at most M coordinates; blocks take a fifth of ``memory`` bytes."""
    M = basis.n_atoms

    def moments(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with np.errstate(over="ignore", invalid="ignore"):
            Phi, T = basis(block.X), block.targets * block.root
            Phi *= block.root
            return Phi.T @ Phi, Phi.T @ T, np.einsum("ij,ij->j", T, T)

    numbers = min(_MAX_BLOCK_NUMBERS, _BLOCK_MEMORY_SHARE * memory / (8 * n_threads() * numbers_per_entry(basis)))
    rows = int(np.clip(numbers // M, 16, 16_384))
    gram, cross, norm2 = samples.blocked(rows).reduce(moments, _add_in_place)
    norm = np.sqrt(np.diag(gram))
    if not np.all(np.isfinite(norm)):
        raise not_finite(int(np.argmin(np.isfinite(norm))))
    safe = np.where(norm > 0.0, norm, 1.0)
    gram /= safe
    gram /= safe[:, None]
    columns, y = pivoted_root(gram, cross / safe[:, None], _ROUNDING * M)
    design = DenseDesign(columns, overwrite=True)
    design.scale = design.scale * norm
    outside = np.maximum(norm2 - np.einsum("ij,ij->j", y, y), 0.0)
    error = np.sqrt(_ROUNDING * M)  # of a column, relative to its norm
    return Rows(design, y, outside, Compression(samples.n_rows, len(y), 0.0, float(error)))


def pivoted_root(gram: np.ndarray, cross: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """R (r, c) with R'R = A'A and y (r, q) with R'y = A't, from A'A (c, c), which is overwritten, and A't (c, q).

    Columns that inner products cannot tell, to a tolerance, from the span of others count as inside it.
    """
    U, order, rank, _ = lapack.dpstrf(gram.T, lower=0, tol=tolerance, overwrite_a=1)
    order = order - 1
    U = np.triu(U[:rank])
    y = solve_triangular(U[:, :rank], cross[order[:rank]], trans=1, check_finite=False)
    R = np.empty((rank, len(order)), order="F")
    R[:, order] = U
    return R, y


def _add_in_place(a: tuple, b: tuple) -> tuple:
    for total, more in zip(a, b, strict=True):
        total += more
    return a
