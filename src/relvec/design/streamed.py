"""Compression in passes over blocks of rows: what `relvec.design.compress` does, within a memory limit.

Pivots Z (r, d) are chosen on a sample of the centres. With K(Z, Z) = L L' the factor of any row is F(x) = L^-1 k(Z, x),
so a block of rows needs nothing but the pivots: one pass forms the Gram matrix of [B F] and its product with the
targets, and finds the rows that the pivots do not yet explain, which join them. The dictionary in its c = p + r
coordinates is then computed in pieces, and held in double or single precision where the limit allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from relvec.basis import Basis, Concat
from relvec.design.base import Combine, Compression, Design, OnPiece, Rows, Value, project_by_scan
from relvec.design.dense import DenseDesign
from relvec.design.low_rank import (
    TOLERANCE,
    gram_root,
    has_digits,
    kernel_on_training_rows,
    partial_cholesky,
    split_triangle,
)
from relvec.design.samples import Block, LocalSamples, Samples, in_order
from relvec.inference.linalg import triangular_product
from relvec.kernels import Kernel
from relvec.runtime.arrays import Array, like, namespace, row_slices, take, to_host
from relvec.runtime.memory import release_memory
from relvec.runtime.threads import n_threads

WHOLE = 20_000  # rows: more are compressed in passes
_SAMPLE = 20_000  # centres that pivots are chosen from
_MOST_RANK = 0.4  # of the sample: above, it does not tell what the others need
_WORK = 8e11  # multiplications of a pass: above, the dictionary is not reduced to its rank
_LOW_RANK, _LOW_WORK = 1000, 6e12  # unless the rank is as low as this: then a pass may take so many
_PASSES = 2  # as long as a pass may be: what all may take together
_DIRECTIONS = 32  # random directions whose extreme centres join the sample
_WORST = 64  # unexplained rows a block reports
_CACHE = 500_000  # numbers of a block of the factor: more leave the cache, and take pages that are long to clear
_AT_ONCE = 0.1  # share of the memory limit for a part of the dictionary
_BLOCKS = 0.15  # and for blocks of the factor on all threads
_PART_ROWS = 512  # rows of a block of a part that is computed anew
_SEARCHED = 3000  # atoms of a part that is a matrix in any case
_DOUBLE, _SINGLE = 0.6, 0.7  # shares of the memory limit for the dictionary in either precision
_BLUR = 4e-7  # error of the squared length of a column in single precision


@dataclass(frozen=True, eq=False)
class Factor:
    """F(x) = L^-1 k(Z, x) for pivots Z (r, d), with ``inverse`` = L^-1 (r, r) lower triangular."""

    kernel: Kernel
    pivots: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, kernel: Kernel, pivots: np.ndarray, L: np.ndarray) -> Factor:
        """With K(Z, Z) = L L' for the pivots Z, L lower triangular with zeros above."""
        return cls(kernel, pivots, lapack.dtrtri(L, lower=1)[0])

    @property
    def rank(self) -> int:
        """Number r of pivots."""
        return len(self.pivots)

    def __call__(self, X: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """F' (r, b) on rows X (b, d), Fortran order; ``out`` (b, r) may be given for its transpose."""
        out = np.empty((len(X), self.rank)) if out is None else out
        return triangular_product(self.kernel(X, self.pivots), self.inverse, True, out).T

    def left(self, X: np.ndarray, F: np.ndarray) -> np.ndarray:
        """What the factor F (r, b) leaves of k(x, x) on the rows X (b, d)."""
        return np.maximum(self.kernel.diag(X) - np.einsum("ij,ij->j", F, F, dtype=float), 0.0)

    def extended(self, X: np.ndarray, stop: float) -> Factor | None:
        """With more pivots among the rows X (m, d); None where the kernel is not positive definite on them."""
        F = self(X)
        rest = self.kernel(X, X) - F.T @ F
        L, order, found, _ = lapack.dpstrf(rest, lower=1, tol=stop)
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


class Moments(NamedTuple):
    """Sums over rows of A = [B F], its targets, and rows the pivots do not explain with what is left of them."""

    gram: np.ndarray
    cross: np.ndarray
    squares: np.ndarray
    left: float
    worst: np.ndarray
    worst_left: np.ndarray

    def __add__(self, other: tuple) -> Moments:
        gram, cross, squares, left, worst, worst_left = other
        worst, worst_left = np.vstack([self.worst, worst]), np.append(self.worst_left, worst_left)
        top = np.argsort(-worst_left, kind="stable")[: 4 * _WORST]
        return Moments(
            self.gram + gram, self.cross + cross, self.squares + squares, self.left + left, worst[top], worst_left[top]
        )


def compress_in_passes(basis: Concat, samples: Samples, candidates: Samples, memory: float) -> Rows | None:
    """`relvec.design.compress` in passes over the samples, within ``memory`` bytes; None where it does not pay.

    ``candidates`` are the centres of the kernel's atoms in their order; where they are the samples themselves, the
    factor is kept between the passes.
    """
    part = kernel_on_training_rows(basis)
    if part is None or part.centres is None:
        return None
    kernel_atoms = next(where for q, where in zip(basis.parts, basis.part_columns(), strict=True) if q is part)
    other_atoms = np.setdiff1d(np.arange(basis.n_atoms), kernel_atoms)
    most, workers = most_rank(samples.n_rows, memory), n_threads()
    factor = _pivots(part.kernel, part.centres, most, memory)
    release_memory()
    if factor is None or len(other_atoms) > factor.rank:
        return None
    same = candidates is samples
    samples = samples.blocked(_block_rows(factor.rank, memory))
    candidates = samples if same else candidates.blocked(_block_rows(factor.rank, memory))
    others = basis.take(other_atoms) if len(other_atoms) else None
    stop = TOLERANCE * float(part.kernel.diag(part.centres).max())
    spent = 0.0
    while True:
        c = factor.rank + len(other_atoms)
        spent += samples.n_rows * float(c) ** 2
        if spent > _PASSES * _WORK and factor.rank > _LOW_RANK:  # tails, every row with a direction of its own
            return None
        at_most = int(max(_AT_ONCE * memory / (8 * c), _SEARCHED))
        searched = min(at_most, Design.max_active_set, basis.n_atoms)
        work = 8 * c * max((workers + 6) * c, 2 * (c + searched))  # adding up moments, or searching a part
        size, room = c * basis.n_atoms, (1.0 - _BLOCKS) * memory - work
        double, single = 8 * size < min(_DOUBLE * memory, room), 4 * size < min(_SINGLE * memory, room)
        dtype = np.float64 if double else np.float32 if single else None
        held: dict[int, np.ndarray] = {}
        kept = held if same and dtype is not None else None
        total = samples.reduce(_Pass(factor, others, stop, dtype, kept), Moments.__add__)
        if not len(total.worst):
            break
        longer = factor.extended(total.worst, 0.5 * stop)
        if longer is None or longer.rank > most:
            return None
        factor = longer
    R, y, rest = reduced(samples, factor, others, total)
    release_memory()
    triangular = True
    design = LowRankDesign(factor, candidates, R, triangular, kernel_atoms, other_atoms)
    design.max_dense_atoms = at_most
    error = design.measure(dtype, total.left, held)
    return Rows(design, y, rest, Compression(samples.n_rows, len(R), TOLERANCE, error))


@dataclass(frozen=True, eq=False)
class _Pass:
    """What one block of rows adds to the moments; its factor is kept in ``held``, in the given type."""

    factor: Factor
    others: Basis | None
    stop: float
    dtype: type | None = None
    held: dict[int, np.ndarray] | None = None

    def __call__(self, block: Block) -> Moments:
        p = 0 if self.others is None else self.others.n_atoms
        A = np.empty((len(block.X), p + self.factor.rank)).T
        F = self.factor(block.X, A[p:].T)
        left = self.factor.left(block.X, F)
        if self.held is not None:
            self.held[block.start] = F.astype(self.dtype, order="F")
        if self.others is not None:
            A[:p] = self.others(block.X).T
        A *= block.root.T
        T = block.targets * block.root
        worst = np.argsort(-left, kind="stable")[:_WORST]
        worst = worst[left[worst] > self.stop]
        squares = np.einsum("ij,ij->j", T, T)
        return Moments(A @ A.T, A @ T, squares, float(block.weights @ left), block.X[worst], left[worst])


def reduced(
    samples: Samples, factor: Factor, others: Basis | None, total: Moments
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R (c, c) of A = [B F] = Q R, with Q't (c, q) and |t - Q Q't|^2 (q,), from sums over all rows.

    Where the Gram matrix has lost digits, from a QR factorisation in another pass.
    """
    R, triangular = gram_root(total.gram.copy())
    if not has_digits(R, triangular, total.gram):
        return split_triangle(tall_qr(samples, _Stacked(factor, others)), len(R))
    y = solve_triangular(R, total.cross, trans=1, check_finite=False)
    return R, y, np.maximum(total.squares - np.einsum("ij,ij->j", y, y), 0.0)


@dataclass(frozen=True, eq=False)
class _Stacked:
    """The rows of [B F t], each multiplied by the root of its weight."""

    factor: Factor
    others: Basis | None

    def __call__(self, block: Block) -> np.ndarray:
        F = self.factor(block.X).T
        A = F if self.others is None else np.column_stack([self.others(block.X), F])
        return np.column_stack([A, block.targets]) * block.root


def tall_qr(samples: Samples, columns: Callable[[Block], np.ndarray]) -> np.ndarray:
    """R (c, c) of the QR factorisation of the columns (b, c) of all blocks below each other."""
    return samples.reduce(lambda block: _triangle(columns(block)), lambda a, b: _triangle(np.vstack([a, b])))


def _triangle(A: np.ndarray) -> np.ndarray:
    return qr(A, mode="r", overwrite_a=True, check_finite=False)[0][: A.shape[1]]


def most_rank(n_rows: int, memory: float) -> int:
    """The largest rank that passes over so many rows can work with, in memory and time."""
    held = n_threads() + 6  # matrices of that size at once
    quick = max(np.sqrt(_WORK / n_rows), min(_LOW_RANK, np.sqrt(_LOW_WORK / n_rows)))
    return int(min(np.sqrt(0.5 * memory / (8 * held)), quick))


def _block_rows(rank: int, memory: float = 4e9) -> int:
    """Rows of a block whose factor has that many columns; three of its size on every thread take _BLOCKS."""
    numbers = min(_CACHE, _BLOCKS * memory / (24 * n_threads()))
    return int(np.clip(numbers // max(rank, 1), 256, 4096))


def _pivots(kernel: Kernel, centres: np.ndarray, most: int, memory: float) -> Factor | None:
    """Pivots from a sample of the centres (M, d)."""
    Z, most = sampled(centres, most, memory)
    found = partial_cholesky(kernel, Z, 0.5 * TOLERANCE, most)
    if found is None:
        return None
    F, _, pivots = found
    return Factor.of(kernel, Z[pivots], np.asfortranarray(np.tril(F[pivots])))


def sampled(centres: Array, most: int, memory: float) -> tuple[Array, int]:
    """A draw of the centres (M, d) with the extreme ones of many directions, and the most pivots it can tell of."""
    size, M = int(np.clip(memory / (24 * 768), 1000, _SAMPLE)), centres.shape[0]
    if size >= M:
        return centres, min(most, int(_MOST_RANK * M))
    rng, d = np.random.default_rng(0), centres.shape[1]
    directions = np.hstack([np.eye(d), rng.standard_normal((d, _DIRECTIONS))])
    extreme = np.zeros((2, directions.shape[1]), dtype=np.intp)
    highest = np.full((2, directions.shape[1]), -np.inf)
    xp = namespace(centres)
    for rows in row_slices(M, 1, 8192 if xp is np else 2**20):
        along = centres[rows, :] @ like(centres, directions)
        for side, values in enumerate((along, -along)):
            best, top = to_host(xp.argmax(values, axis=0)), to_host(xp.max(values, axis=0))
            extreme[side] = np.where(top > highest[side], best + rows.start, extreme[side])
            highest[side] = np.maximum(highest[side], top)
    chosen = np.union1d(rng.choice(M, size, replace=False), extreme)
    return take(centres, chosen), min(most, int(_MOST_RANK * size))


def unexplained(rows: np.ndarray, left: np.ndarray, rank: int) -> np.ndarray:
    """Which of the rows, with what is left of them, join the pivots: what passes over the blocks would report."""
    order = np.lexsort((rows, -left))
    block = rows[order] // _block_rows(rank)
    sorted_ = np.argsort(block, kind="stable")
    starts = np.searchsorted(block[sorted_], block[sorted_])
    within = np.empty(len(rows), dtype=np.intp)
    within[sorted_] = np.arange(len(rows)) - starts  # place of each row among those of its block, worst first
    return rows[order[within < _WORST]][: 4 * _WORST]


class LowRankDesign(Design):
    """A dictionary (c, M) known through a factor of the kernel: its columns are R [0; F(z_m)] over their norms.

    Parameters
    ----------
    factor : F, as a function of the centres.
    candidates : the centres of the kernel's atoms, in blocks.
    R : (c, c), of which the first p columns are the atoms without centre.
    triangular : whether R is upper triangular.
    kernel_atoms, other_atoms : where both kinds stand among the M atoms.
    """

    def __init__(
        self, factor: Factor, candidates: Samples, R: np.ndarray, triangular: bool, kernel_atoms: np.ndarray,
        other_atoms: np.ndarray,
    ):  # fmt: skip
        self._factor, self._candidates, self._R, self._triangular = factor, candidates, R, triangular
        self._kernel_atoms, self._other_atoms = kernel_atoms, other_atoms
        M = len(kernel_atoms) + len(other_atoms)
        self._place = np.empty(M, dtype=np.intp)  # number among the kernel's atoms, or -1 - number among the others
        self._place[kernel_atoms] = np.arange(len(kernel_atoms))
        self._place[other_atoms] = -1 - np.arange(len(other_atoms))
        self.scale = np.ones(M)
        self._held: dict[int, np.ndarray] = {}
        self._rough = False  # whether norms are known to single precision until a column is asked for

    @property
    def n_rows(self) -> int:
        return len(self._R)

    @property
    def stored(self) -> str | None:
        """The type in which the dictionary is held, None where it is computed anew."""
        return next(iter(self._held.values())).dtype.name if self._held else None

    def measure(self, dtype: type | None, left: float, factors: dict[int, np.ndarray]) -> float:
        """Find the norms, hold the columns in the given type, and bound their relative error.

        ``factors`` may hold the factor of some blocks; it is emptied.
        """
        p = len(self._other_atoms)
        self._rough = dtype is np.float32
        self.norm_error = _BLUR if self._rough else 0.0
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

    def columns(self, atoms) -> np.ndarray:
        place = self._place[np.asarray(atoms, dtype=np.intp)]
        columns = np.empty((self.n_rows, len(place)), order="F")
        own = np.flatnonzero(place >= 0)
        X = self._candidates.take(place[own])

        def put(some: slice) -> None:
            columns[:, own[some]] = self._coordinates(self._factor(X[some]))

        deque(in_order(put, row_slices(own.size, self.n_rows, _CACHE)), maxlen=0)
        columns[:, place < 0] = self._R[:, -1 - place[place < 0]]
        if self._rough:
            self.scale[atoms] = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        scale = self.scale[atoms]
        columns /= np.where(scale > 0.0, scale, 1.0)
        return columns

    def project(self, Y: np.ndarray) -> np.ndarray:
        return project_by_scan(self, Y)

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
        exact._held, exact.norm_error = {}, 0.0  # computed anew in every scan
        return exact

    def subset(self, atoms) -> Design:
        atoms = np.asarray(atoms, dtype=np.intp)
        if len(atoms) <= self.max_dense_atoms:
            return DenseDesign.of(self.columns(atoms), self.scale[atoms])
        if self._rough:
            for some in row_slices(len(atoms), self.n_rows, _CACHE):
                self.columns(atoms[some])
        part, place = copy(self), self._place[atoms]
        part._kernel_atoms, part._other_atoms = np.flatnonzero(place >= 0), np.flatnonzero(place < 0)
        part._place = place.copy()
        part._place[part._kernel_atoms] = np.arange(len(part._kernel_atoms))
        part._candidates = LocalSamples(self._candidates.take(place[part._kernel_atoms]), block_rows=_PART_ROWS)
        part._held, part.norm_error, part._rough, part.scale = {}, 0.0, False, self.scale[atoms]
        return part

    def _coordinates(self, F: np.ndarray) -> np.ndarray:
        return placed(self._R, self._triangular, F)


def placed(R: np.ndarray, triangular: bool, F: np.ndarray) -> np.ndarray:
    """R [0; F] (c, b) for R (c, c) and F (r, b), in the precision of F."""
    p = len(R) - len(F)
    R = R[:, p:].astype(F.dtype, copy=False)
    D = np.empty((F.shape[1], len(R)), dtype=F.dtype)
    if not triangular:
        return np.matmul(F.T, R.T, out=D).T
    np.matmul(F.T, R[:p].T, out=D[:, :p])
    triangular_product(F.T, R[p:], False, D[:, p:])
    return D.T
