"""A problem in memory from many rows (regression): sums over blocks of rows, wherever these are.

Regression depends on the data only through Phi'Phi, Phi't, t't and N. Where Phi = A C with A (N, c), the factorisation
A = Q R turns the dictionary into c rows, and the target into as many coordinates plus the length it has outside them;
nothing else changes. For a positive definite kernel A has the kernel at a few pivots Z, from a partial Cholesky
factorisation K(Z', Z') ~= F F' on the centres; otherwise it has the functions themselves, as many as there is time for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack, qr, solve_triangular

from relvec.basis import Basis, Concat, KernelBasis, even_draw, numbers_per_entry
from relvec.design.base import Compression, DesignRows
from relvec.design.cholesky import TOLERANCE, Factor, kernel_on_training_rows, partial_cholesky
from relvec.design.dense import DenseDesign
from relvec.design.samples import Block, LocalSamples, Samples
from relvec.runtime.arrays import Array, like, namespace, squares, to_host
from relvec.runtime.machine import all_threads, n_threads, product

DEFAULT_MEMORY = 4e9  # bytes
MAX_WHOLE_ROWS = 20_000  # rows that may be a problem in memory by themselves; of more as many are drawn
MIN_ROWS_TO_COMPRESS = 512  # distinct rows: below, the dense matrix is as fast
MAX_RANK_SHARE = 0.4  # of the centres: above, the matrix is as small
MAX_PASS_MULTIPLICATIONS = 1.7e12  # that a pass takes: about a minute on two cores
# Multiplications of a pass, and of a search for pivots, for each second that is left of a time limit
_PASS_RATE, _PIVOT_RATE = 2e9, 3e8
_DENSE_SECONDS = 4e-7  # that have to be left for each entry of a dense design matrix: an eighth computes it
_DENSE_BYTES = 2.5 * 8  # that an entry of the design matrix takes while it is made and searched
_FACTOR_BYTES = 3 * 8  # the same of a factor of the kernel
_PASS_MEMORY_SHARE = 0.15  # of the memory limit, for blocks on all threads
_CACHE_NUMBERS = 500_000  # of a block: more leave the cache, and take pages that are long to clear
_BLOCK_ROWS = 32, 16_384  # least and most rows of a block
_DEPENDENT = 1e-6  # a column that is less new than this, relative to its norm, has lost digits in a Gram matrix
_ROUNDING = 1e-9  # of a column of a Gram matrix that has its digits, relative to its norm

Columns = Callable[[Array], Array]  # of rows X (b, d): A (b, c), in the library of X


def reduce_rows(
    basis: Basis, samples: Samples, memory: float = DEFAULT_MEMORY, keep: np.ndarray | None = None,
    seconds: float = np.inf, tolerance: float = TOLERANCE,
) -> tuple[np.ndarray | None, DesignRows]:  # fmt: skip
    """Return a bound dictionary on samples with targets (N, q) as a problem in memory of at most ``memory`` bytes.

    Where the dictionary is too long for that, or for a share of the ``seconds`` that are left, the rows are those of an
    even draw of its atoms, which come first; None for all of them. Atoms ``keep`` and those that stand on
    no row are in every draw. ``tolerance`` is that of a compression.
    """
    found = by_pivots(basis, samples, memory, seconds, tolerance)
    if found is not None:
        return None, found
    N, M = samples.n_rows, basis.n_atoms
    if not np.any(basis.rows >= 0) and M + samples.n_targets < N:  # a fixed dictionary is short
        return None, by_columns(basis, samples, memory)
    affordable = _DENSE_BYTES * N * M <= memory and _DENSE_SECONDS * N * M <= seconds
    if N <= MAX_WHOLE_ROWS and affordable:
        return None, dense_rows(basis, samples, memory)
    most = max_columns(N, memory, seconds)
    atoms = None if M <= most else draw_atoms(basis, most, keep)
    return atoms, by_columns(basis if atoms is None else basis.take(atoms), samples, memory)


def max_columns(n_rows: int, memory: float, seconds: float = np.inf) -> int:
    """Return the most columns that so many rows are reduced to in one pass, in memory and time."""
    work = min(MAX_PASS_MULTIPLICATIONS, _PASS_RATE * max(seconds, 0.0))
    held = n_threads() + 4  # matrices of that size at once
    return int(min(np.sqrt(0.6 * memory / (8 * held)), np.sqrt(work / n_rows)))


def draw_atoms(basis: Basis, most: int, keep: np.ndarray | None = None) -> np.ndarray:
    """About ``most`` atoms by content, ascending, with those that stand on no row."""
    fixed = np.flatnonzero(basis.rows < 0) if keep is None else np.union1d(np.flatnonzero(basis.rows < 0), keep)
    drawn = even_draw(basis)(basis.n_atoms)
    drawn = drawn[~np.isin(drawn, fixed)]
    return np.union1d(fixed, drawn[: max(most - len(fixed), 1)]).astype(np.intp)


def dense_rows(basis: Basis, samples: Samples, memory: float = DEFAULT_MEMORY) -> DesignRows:
    """Return the design matrix itself, computed block by block, and the targets, times the roots of the weights."""
    Phi, targets = np.empty((samples.n_rows, basis.n_atoms)), np.empty((samples.n_rows, samples.n_targets))

    def fill(block: Block) -> None:
        rows = slice(block.start, block.start + len(block.X))
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are refused by the design
            np.multiply(basis(block.X), block.root, out=Phi[rows])
        targets[rows] = block.targets * block.root

    samples.blocked(_block_rows(basis.n_atoms * numbers_per_entry(basis), memory)).reduce(fill, lambda a, b: None)
    return DesignRows(DenseDesign(Phi, overwrite=True), targets, np.zeros(samples.n_targets))


def dense_design(basis: Basis, X: np.ndarray) -> DenseDesign:
    """Return the design matrix on rows X (n, d) without weights."""
    design = dense_rows(basis, LocalSamples(X)).design
    assert isinstance(design, DenseDesign)
    return design


def by_pivots(
    basis: Basis, samples: Samples, memory: float = DEFAULT_MEMORY, seconds: float = np.inf,
    tolerance: float = TOLERANCE,
) -> DesignRows | None:  # fmt: skip
    """All rows in the coordinates that a kernel has at a few pivots; None where its rank is not low."""
    part = kernel_on_training_rows(basis)
    if not isinstance(basis, Concat) or part is None or part.centres is None or part.n_atoms < MIN_ROWS_TO_COMPRESS:
        return None
    m, N = part.n_atoms, samples.n_rows
    p = basis.n_atoms - m
    if p > 0.1 * m:
        return None
    most = min(MAX_RANK_SHARE * m, max_columns(N, memory, seconds) - p, memory / (_FACTOR_BYTES * m))
    most = min(most, np.sqrt(_PIVOT_RATE * max(seconds, 0.0) / m))
    factored = partial_cholesky(part.kernel, part.centres, tolerance, int(most), p, p) if most >= 1.0 else None
    if factored is None:
        return None
    C, left, pivots = factored  # (m + p, p + r): room for the other atoms before F and below it
    kernel_atoms = next(where for q, where in zip(basis.parts, basis.part_columns(), strict=True) if q is part)
    others = np.setdiff1d(np.arange(basis.n_atoms), kernel_atoms)
    factor = Factor.of(part.kernel, part.centres[pivots], C[pivots, p:])
    columns = PivotColumns(basis.take(others) if p else None, factor)
    total = _sum_of_centres(part, columns.others, C[:m], left, samples)
    R, y, outside, apart = add_up(columns, samples, p + factor.rank, memory, factor, total=total)
    C[:m, :p] = 0.0  # the other atoms are R itself
    C[m:, :] = np.eye(p, C.shape[1])
    with all_threads(float(C.size) * len(R)):
        D = blas.dtrmm(1.0, R, C, side=1, trans_a=1, overwrite_b=1)
    order = np.concatenate([kernel_atoms, others])
    if not np.array_equal(order, np.arange(len(order))):
        D = D[np.argsort(order)]
    design = DenseDesign(D.T, overwrite=True)
    # |K - F F'|_nm <= sqrt(left_n left_m) (Cauchy-Schwarz), so a column's error is at most sqrt(left_m sum left)
    error = np.sqrt(left * apart) / np.maximum(design.scale[kernel_atoms], np.finfo(float).tiny)
    return DesignRows(design, y, outside, Compression(N, len(R), tolerance, float(error.max())))


def _sum_of_centres(
    part: KernelBasis, others: Basis | None, A: np.ndarray, left: np.ndarray, samples: Samples
) -> TriangleSums | None:
    """Sums over samples that are the centres (m, d), whose rows A (m, p + r) of the factor are known; else None.

    The first p columns of A, which are free, take the other atoms; ``left`` (m,) is what the factor leaves of k(z, z).
    """
    rows = samples.held
    if rows is None or part.centre_rows is None or samples.n_rows != len(A):
        return None
    place = np.argsort(np.argsort(part.centre_rows))  # of each centre among the samples
    if not np.array_equal(rows.X[place], part.bound_centres()):
        return None
    if others is not None:
        A[:, : others.n_atoms] = others(part.bound_centres())
    weights, T = rows.weights[place], rows.targets[place] * rows.root[place]
    if np.any(weights != 1.0):
        A = A * rows.root[place]
    return TriangleSums(product(A.T, A), A.T @ T, np.einsum("ij,ij->j", T, T), float(weights @ left))


def by_columns(basis: Basis, samples: Samples, memory: float = DEFAULT_MEMORY) -> DesignRows:
    """All rows in the coordinates of the M atoms themselves: exact, from a QR factorisation, for a fixed dictionary."""
    M = basis.n_atoms
    if np.any(basis.rows >= 0):
        R, y, outside, _ = add_up(basis, samples, M, memory, None, numbers_per_entry(basis))
        return DesignRows(DenseDesign(R), y, outside, Compression(samples.n_rows, M, 0.0, _ROUNDING))
    R = qr_of_columns(basis, samples, M, memory, numbers_per_entry(basis))
    return DesignRows(DenseDesign(R[:, :M]), R[:, M:], np.zeros(samples.n_targets))


@dataclass(frozen=True, eq=False)
class PivotColumns:
    """A = [B F] (b, c): the atoms without a centre, and the factor of a kernel."""

    others: Basis | None
    factor: Factor

    def __call__(self, X: Array) -> Array:
        F = self.factor(X)
        return F if self.others is None else namespace(X).concat([self.others(X), F], axis=1)


class TriangleSums(NamedTuple):
    """A'A, A't, t't, and the weighted part of k(x, x) that a factor leaves."""

    gram: np.ndarray
    cross: np.ndarray
    squares: np.ndarray
    left: float


def add_up(
    columns: Columns,
    samples: Samples,
    c: int,
    memory: float,
    factor: Factor | None,
    numbers: int = 1,
    total: TriangleSums | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """R (c, c) of A = Q R, Q't (c, q), |t - Q Q't|^2 (q,) and what a factor leaves, in one pass over the samples.

    Where the Gram matrix has lost digits, they come from a QR factorisation in another pass. A column of A takes so
    many ``numbers`` while it is computed.
    """
    samples = samples.blocked(_block_rows(c * numbers, memory))
    total = samples.reduce(partial(_sum_block, columns, factor), _add) if total is None else total
    gram = total.gram
    with np.errstate(all="ignore"):
        R, info = lapack.dpotrf(gram, lower=0, clean=1)
        exact = info == 0 and bool(np.all(np.diag(R) > _DEPENDENT * np.sqrt(np.diag(gram))))
    if not exact:
        whole = qr_of_columns(columns, samples, c, memory, numbers)
        outside = whole[c:, c:]
        R = np.asfortranarray(np.triu(whole[:c, :c]))
        return R, whole[:c, c:], np.einsum("ij,ij->j", outside, outside), total.left
    y = solve_triangular(R, total.cross, trans=1, check_finite=False)
    return R, y, np.maximum(total.squares - np.einsum("ij,ij->j", y, y), 0.0), total.left


def qr_of_columns(columns: Columns, samples: Samples, c: int, memory: float, numbers: int) -> np.ndarray:
    """Return the QR triangle of the rows of [A t], each multiplied by the root of its weight."""
    samples = samples.blocked(_block_rows(c * numbers, memory, 2 * c))
    return tall_qr(samples, partial(_with_targets, columns))


def _sum_block(columns: Columns, factor: Factor | None, block: Block) -> TriangleSums:
    X = block.X
    with np.errstate(over="ignore", invalid="ignore"):  # left to the QR factorisation
        A, left = columns(X), 0.0
        if factor is not None:
            rest = to_host(factor.kernel.diag(X)) - to_host(squares(A[:, A.shape[1] - factor.rank :], 1))
            left = float(block.weights @ np.maximum(rest, 0.0))
        T = block.targets * block.root
        A = A * like(A, block.root)
        return TriangleSums(to_host(A.T @ A), to_host(A.T @ like(A, T)), np.einsum("ij,ij->j", T, T), left)


def _add(a: TriangleSums, b: TriangleSums) -> TriangleSums:
    for total, more in zip(a[:3], b[:3], strict=True):
        total += more
    return a._replace(left=a.left + b.left)


def _with_targets(columns: Columns, block: Block) -> np.ndarray:
    """Return the rows of [A t], each multiplied by the root of its weight."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinite values are refused by the design
        return np.column_stack([to_host(columns(block.X)), block.targets]) * block.root


def exact_triangle(samples: Samples, basis: Basis, scale: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
    """Form the QR triangle of the columns of a basis over their scale (k,), and of a target, in a pass over samples."""
    R = tall_qr(samples, partial(_model_columns, basis, scale, output))
    return R[:, :-1], R[:, -1]


def _model_columns(basis: Basis, scale: np.ndarray, output: int, block: Block) -> np.ndarray:
    return np.column_stack([to_host(basis(block.X)) / scale, block.targets[:, output]]) * block.root


def tall_qr(samples: Samples, columns: Callable[[Block], np.ndarray]) -> np.ndarray:
    """R (c, c) of the QR factorisation of the columns (b, c) of all blocks below each other."""
    return samples.reduce(partial(_triangle_of_block, columns), _stack)


def _triangle_of_block(columns: Callable[[Block], np.ndarray], block: Block) -> np.ndarray:
    return _triangle(columns(block))


def _stack(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _triangle(np.vstack([a, b]))


def _triangle(A: np.ndarray) -> np.ndarray:
    return qr(A, mode="r", overwrite_a=True, check_finite=False)[0][: A.shape[1]]


def _block_rows(numbers: int, memory: float, least: int = 0) -> int:
    """Rows of a block that take so many numbers each, ``least`` if memory allows that.

    Three blocks on every thread take their share of the memory.
    """
    room = _PASS_MEMORY_SHARE * memory / (24 * n_threads()) / max(numbers, 1)
    return int(np.clip(min(room, max(_CACHE_NUMBERS / max(numbers, 1), least)), *_BLOCK_ROWS))
