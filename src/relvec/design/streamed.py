"""Compression in passes over blocks of rows: `relvec.design.low_rank.compress` within a memory limit.

Pivots Z (r, d) are chosen on a sample of the centres. With K(Z, Z) = L L' the factor of any row is F(x) = L^-1 k(Z, x),
so a block of rows needs nothing but the pivots: one pass forms the Gram matrix of [B F] and its product with the
targets, and finds the rows that the pivots do not yet explain, which join them. The dictionary in its c = p + r
coordinates is then computed in pieces, and held in double or single precision where the limit allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr, solve_triangular

from relvec.basis import Basis, Concat
from relvec.design.base import Combine, Compression, Design, OnPiece, Rows, Value
from relvec.design.cholesky import (
    CACHE_NUMBERS,
    TOLERANCE,
    WORST_ROWS_PER_BLOCK,
    Factor,
    choose_pivots,
    explain_all,
    kernel_on_training_rows,
    rows_per_block,
    sample_centres,
)
from relvec.design.dense import DenseDesign
from relvec.design.low_rank import gram_root, has_digits, split_triangle
from relvec.design.samples import Block, LocalSamples, Samples, in_order
from relvec.inference.linalg import triangular_product
from relvec.runtime.arrays import row_slices
from relvec.runtime.machine import n_threads, release_memory

_MAX_MULTIPLICATIONS = 8e11  # of a pass: above, the dictionary is not reduced to its rank
_LOW_RANK, _MAX_LOW_RANK_MULTIPLICATIONS = 1000, 6e12  # unless the rank is as low as this: then a pass may take so many
_MAX_PASSES = 2  # as long as a pass may be: the limit of all together
_DENSE_MEMORY_SHARE = 0.1  # of the memory limit, for a part of the dictionary that is a matrix
_MIN_DENSE_ATOMS = 3000  # of such a part in any case
_PART_BLOCK_ROWS = 512  # rows of a block of a part that is not stored
_DOUBLE_MEMORY_SHARE, _SINGLE_MEMORY_SHARE = 0.6, 0.7  # of the memory limit, for the dictionary in either precision
_PASS_MEMORY_SHARE = 0.15  # of the memory limit, for blocks of the factor on all threads
_SINGLE_NORM_ERROR = 4e-7  # of the squared length of a column in single precision


class Moments(NamedTuple):
    """Sums over rows of A = [B F], its targets, and rows the pivots do not explain, with their remaining k(x, x)."""

    gram: np.ndarray
    cross: np.ndarray
    squares: np.ndarray
    left: float
    worst: np.ndarray
    worst_left: np.ndarray

    def __add__(self, other: tuple) -> Moments:
        gram, cross, squares, left, worst, worst_left = other
        worst, worst_left = np.vstack([self.worst, worst]), np.append(self.worst_left, worst_left)
        top = np.argsort(-worst_left, kind="stable")[: 4 * WORST_ROWS_PER_BLOCK]
        return Moments(
            self.gram + gram, self.cross + cross, self.squares + squares, self.left + left, worst[top], worst_left[top]
        )


def compress_in_passes(basis: Concat, samples: Samples, candidates: Samples, memory: float) -> Rows | None:
    """`relvec.design.low_rank.compress` in passes over the samples, within ``memory`` bytes; None for a high rank.

    ``candidates`` are the centres of the kernel's atoms in their order; where they are the samples themselves, the
    factor is kept between the passes.
    """
    part = kernel_on_training_rows(basis)
    if part is None or part.centres is None:
        return None
    kernel_atoms = next(where for q, where in zip(basis.parts, basis.part_columns(), strict=True) if q is part)
    other_atoms = np.setdiff1d(np.arange(basis.n_atoms), kernel_atoms)
    most = max_rank(samples.n_rows, memory)
    sample, max_pivots = sample_centres(part.centres, most, memory)
    factor = choose_pivots(part.kernel, sample, max_pivots)
    del sample
    release_memory()
    if factor is None or len(other_atoms) > factor.rank:
        return None
    same, block_rows = candidates is samples, rows_per_block(factor.rank, memory)
    samples = samples.blocked(block_rows)
    candidates = samples if same else candidates.blocked(block_rows)
    others = basis.take(other_atoms) if len(other_atoms) else None
    stop = TOLERANCE * float(part.kernel.diag(part.centres).max())
    multiplications = 0.0

    def explain(factor: Factor) -> tuple[tuple[Moments, _Storage, dict[int, np.ndarray]], np.ndarray] | None:
        nonlocal multiplications
        c = factor.rank + len(other_atoms)
        multiplications += samples.n_rows * float(c) ** 2
        if multiplications > _MAX_PASSES * _MAX_MULTIPLICATIONS and factor.rank > _LOW_RANK:
            return None  # heavy tails: every row adds a direction
        storage, held = _storage(c, basis.n_atoms, memory), dict[int, np.ndarray]()
        kept = held if same and storage.dtype is not None else None
        moments = partial(block_moments, factor, others, stop, kept, storage.dtype)
        total = samples.reduce(moments, Moments.__add__)
        return (total, storage, held), total.worst

    explained = explain_all(factor, explain, stop, most)
    if explained is None:
        return None
    factor, (total, storage, held) = explained
    R, y, outside = reduce_moments(samples, factor, others, total)
    release_memory()
    design = LowRankDesign(factor, candidates, R, kernel_atoms, other_atoms)
    design.max_dense_atoms = storage.max_dense_atoms
    error = design.measure(storage.dtype, total.left, held)
    return Rows(design, y, outside, Compression(samples.n_rows, len(R), TOLERANCE, error))


class _Storage(NamedTuple):
    """The type in which a dictionary is stored, None where it is not, and the atoms of a dense part."""

    dtype: type | None
    max_dense_atoms: int


def _storage(c: int, n_atoms: int, memory: float) -> _Storage:
    """How a dictionary of so many atoms in c coordinates is kept within ``memory`` bytes."""
    max_dense = int(max(_DENSE_MEMORY_SHARE * memory / (8 * c), _MIN_DENSE_ATOMS))
    searched = min(max_dense, Design.max_active_set, n_atoms)
    work = 8 * c * max((n_threads() + 6) * c, 2 * (c + searched))  # adding up moments, or searching a part
    size, room = c * n_atoms, (1.0 - _PASS_MEMORY_SHARE) * memory - work
    double = 8 * size < min(_DOUBLE_MEMORY_SHARE * memory, room)
    single = 4 * size < min(_SINGLE_MEMORY_SHARE * memory, room)
    return _Storage(np.float64 if double else np.float32 if single else None, max_dense)


def block_moments(
    factor: Factor,
    others: Basis | None,
    stop: float,
    held: dict[int, np.ndarray] | None,
    dtype: type | None,
    block: Block,
) -> Moments:
    """The moments of one block of rows; its factor is kept in ``held``, if that is given, in a type of numbers."""
    p = 0 if others is None else others.n_atoms
    A = np.empty((len(block.X), p + factor.rank)).T
    F = factor(block.X, A[p:].T)
    left = factor.left(block.X, F)
    if held is not None:
        held[block.start] = F.astype(dtype, order="F")
    if others is not None:
        A[:p] = others(block.X).T
    A *= block.root.T
    T = block.targets * block.root
    worst = np.argsort(-left, kind="stable")[:WORST_ROWS_PER_BLOCK]
    worst = worst[left[worst] > stop]
    squares = np.einsum("ij,ij->j", T, T)
    return Moments(A @ A.T, A @ T, squares, float(block.weights @ left), block.X[worst], left[worst])


def reduce_moments(
    samples: Samples, factor: Factor, others: Basis | None, total: Moments
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R (c, c) of A = [B F] = Q R, with Q't (c, q) and |t - Q Q't|^2 (q,), from sums over all rows.

    Where the Gram matrix has lost digits, from a QR factorisation in another pass.
    """
    R, triangular = gram_root(total.gram.copy())
    if not has_digits(R, triangular, total.gram):
        return split_triangle(tall_qr(samples, partial(_stack_columns, factor, others)), len(R))
    y = solve_triangular(R, total.cross, trans=1, check_finite=False)
    return R, y, np.maximum(total.squares - np.einsum("ij,ij->j", y, y), 0.0)


def _stack_columns(factor: Factor, others: Basis | None, block: Block) -> np.ndarray:
    """The rows of [B F t], each multiplied by the root of its weight."""
    F = factor(block.X).T
    A = F if others is None else np.column_stack([others(block.X), F])
    return np.column_stack([A, block.targets]) * block.root


def tall_qr(samples: Samples, columns: Callable[[Block], np.ndarray]) -> np.ndarray:
    """R (c, c) of the QR factorisation of the columns (b, c) of all blocks below each other."""
    return samples.reduce(lambda block: _triangle(columns(block)), lambda a, b: _triangle(np.vstack([a, b])))


def _triangle(A: np.ndarray) -> np.ndarray:
    return qr(A, mode="r", overwrite_a=True, check_finite=False)[0][: A.shape[1]]


def max_rank(n_rows: int, memory: float) -> int:
    """The largest rank that passes over so many rows can work with, in memory and time."""
    held = n_threads() + 6  # matrices of that size at once
    low = min(_LOW_RANK, np.sqrt(_MAX_LOW_RANK_MULTIPLICATIONS / n_rows))
    quick = max(np.sqrt(_MAX_MULTIPLICATIONS / n_rows), low)
    return int(min(np.sqrt(0.5 * memory / (8 * held)), quick))


class LowRankDesign(Design):
    """A dictionary (c, M) known through a factor of the kernel: its columns are R [0; F(z_m)] over their norms.

    Parameters
    ----------
    factor : F, as a function of the centres.
    candidates : the centres of the kernel's atoms, in blocks.
    R : (c, c) upper triangular, of which the first p columns are the atoms without centre.
    kernel_atoms, other_atoms : where both kinds stand among the M atoms.
    """

    def __init__(
        self, factor: Factor, candidates: Samples, R: np.ndarray, kernel_atoms: np.ndarray, other_atoms: np.ndarray
    ):
        self._factor, self._candidates, self._R = factor, candidates, R
        self._kernel_atoms, self._other_atoms = kernel_atoms, other_atoms
        M = len(kernel_atoms) + len(other_atoms)
        self._place = np.empty(M, dtype=np.intp)  # number among the kernel's atoms, or -1 - number among the others
        self._place[kernel_atoms] = np.arange(len(kernel_atoms))
        self._place[other_atoms] = -1 - np.arange(len(other_atoms))
        self.scale = np.ones(M)
        self._held: dict[int, np.ndarray] = {}
        self._rough = False  # whether norms are known to single precision only

    @property
    def n_rows(self) -> int:
        return len(self._R)

    @property
    def stored(self) -> str | None:
        """The type in which the dictionary is stored, None where it is not."""
        return next(iter(self._held.values())).dtype.name if self._held else None

    def measure(self, dtype: type | None, left: float, factors: dict[int, np.ndarray]) -> float:
        """Find the norms, hold the columns in the given type, and bound their relative error.

        ``factors`` may hold the factor of some blocks; it is emptied.
        """
        p = len(self._other_atoms)
        self._rough = dtype is np.float32
        self.norm_error = _SINGLE_NORM_ERROR if self._rough else 0.0
        others = self._R[:, :p]
        self.scale[self._other_atoms] = np.sqrt(np.einsum("ij,ij->j", others, others))

        def norms(block: Block) -> tuple[list, float]:
            F = factors.pop(block.start, None)
            F = self._factor(block.X) if F is None else F
            D = self._coordinates(F)
            norm = np.sqrt(np.einsum("ij,ij->j", D, D)).astype(float)
            if dtype is not None:
                D /= np.where(norm > 0.0, norm, 1.0).astype(D.dtype)
                self._held[block.start] = D.astype(dtype, copy=False)
            # |K - F F'|_nm <= sqrt(left_n left_m) (Cauchy-Schwarz), so a column's error is at most sqrt(left_m left)
            error = np.sqrt(self._factor.left(block.X, F) * left) / np.maximum(norm, np.finfo(float).tiny)
            return [(block.start, norm)], float(error.max())

        found, error = self._candidates.reduce(norms, lambda a, b: (a[0] + b[0], max(a[1], b[1])))
        for start, norm in found:
            self.scale[self._kernel_atoms[start : start + len(norm)]] = norm
        return error

    def _unscaled_columns(self, atoms) -> np.ndarray:
        place = self._place[np.asarray(atoms, dtype=np.intp)]
        columns = np.empty((self.n_rows, len(place)), order="F")
        own = np.flatnonzero(place >= 0)
        X = self._candidates.take(place[own])

        def fill(some: slice) -> None:
            columns[:, own[some]] = self._coordinates(self._factor(X[some]))

        deque(in_order(fill, row_slices(own.size, self.n_rows, CACHE_NUMBERS)), maxlen=0)
        columns[:, place < 0] = self._R[:, -1 - place[place < 0]]
        return columns

    def columns(self, atoms) -> np.ndarray:
        columns = self._unscaled_columns(atoms)
        norms = _norms(columns) if self._rough else self.scale[atoms]
        columns /= np.where(norms > 0.0, norms, 1.0)
        return columns

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        # Y'R [0; L^-1 k(Z, z)]: without a factor for every block
        weights = (Y.T @ self._R[:, len(self._R) - self._factor.rank :]) @ self._factor.inverse

        def piece(block: Block) -> Value:
            atoms = self._kernel_atoms[block.start : block.start + len(block.X)]
            held = self._held.get(block.start)
            if held is not None:
                return function(atoms, (Y.T.astype(held.dtype, copy=False) @ held).astype(float, copy=False))
            scale = self.scale[atoms]
            projected = weights @ self._factor.kernel(block.X, self._factor.pivots).T
            return function(atoms, projected / np.where(scale > 0.0, scale, 1.0))

        total = self._candidates.reduce(piece, combine)
        if len(self._other_atoms):
            total = combine(total, function(self._other_atoms, Y.T @ self.columns(self._other_atoms)))
        return total

    def with_exact_norms(self) -> LowRankDesign:
        if not self.norm_error:
            return self
        exact = copy(self)
        exact._held, exact.norm_error = {}, 0.0  # computed again in every scan
        return exact

    def subset(self, atoms) -> Design:
        atoms = np.asarray(atoms, dtype=np.intp)
        if len(atoms) <= self.max_dense_atoms:
            return DenseDesign.of(self.columns(atoms), self.scale[atoms])
        part, place = copy(self), self._place[atoms]
        part._kernel_atoms, part._other_atoms = np.flatnonzero(place >= 0), np.flatnonzero(place < 0)
        part._place = place.copy()
        part._place[part._kernel_atoms] = np.arange(len(part._kernel_atoms))
        part._candidates = LocalSamples(self._candidates.take(place[part._kernel_atoms]), block_rows=_PART_BLOCK_ROWS)
        part._held, part.norm_error, part._rough, part.scale = {}, 0.0, False, self.scale[atoms]
        if self._rough:
            some = row_slices(len(atoms), self.n_rows, CACHE_NUMBERS)
            part.scale = np.concatenate([_norms(self._unscaled_columns(atoms[piece])) for piece in some])
        return part

    def _coordinates(self, F: np.ndarray) -> np.ndarray:
        return rotate(self._R, F)


def _norms(columns: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->j", columns, columns))


def rotate(R: np.ndarray, F: np.ndarray) -> np.ndarray:
    """R [0; F] (c, b) for upper triangular R (c, c) and F (r, b), in the precision of F."""
    p = len(R) - len(F)
    R = R[:, p:].astype(F.dtype, copy=False)
    D = np.empty((F.shape[1], len(R)), dtype=F.dtype)
    np.matmul(F.T, R[:p].T, out=D[:, :p])
    triangular_product(F.T, R[p:], False, D[:, p:])
    return D.T
