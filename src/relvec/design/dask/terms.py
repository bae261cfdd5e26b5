"""Dictionaries of Dask-backed samples as linear combinations of a few functions of a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any

import numpy as np

from relvec.basis import Basis, content_ranks, numbers_per_entry, row_hash64
from relvec.design.approximate import ExactColumns
from relvec.design.base import Combine, Piece
from relvec.design.cholesky import Factor, rows_per_block
from relvec.design.dask.kernel_basis import DistributedKernelBasis, Lookup
from relvec.design.dask.reductions import DaskSamples
from relvec.design.dense import not_finite
from relvec.design.samples import Block
from relvec.kernels import Kernel

_MAX_BLOCK_NUMBERS = 600_000  # of a dictionary: more leave the cache


class Totals(tuple):
    """Arrays that are added up one by one."""

    def __add__(self, other: Any) -> Totals:
        return Totals(a + b for a, b in zip(self, other, strict=True))


class Terms(ABC):
    """A dictionary as linear combinations of a few functions of a row, and its squares of others."""

    scale: Any  # (M,) norms of the atoms
    scan_error: float
    block_rows: int
    scan_size: float

    @abstractmethod
    def take(self, atoms: np.ndarray) -> Basis:
        """The dictionary of some atoms (k,), sorted and distinct."""

    @abstractmethod
    def keys(self, atoms: np.ndarray) -> np.ndarray:
        """Contents of atoms, and their number in the last column (k, q): the order in which one of equals is chosen."""

    @property
    @abstractmethod
    def of_rows(self) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """The functions on rows X (b, d): (b, c) and, for the squares, (b, e)."""

    @abstractmethod
    def moments(self, A: np.ndarray, B: np.ndarray) -> Any:
        """For `scan`, from the products (J, c) of these functions with Y and (K, e) with W."""

    @abstractmethod
    def scan(self, moments: Any, ends: np.ndarray, samples: DaskSamples, function: Callable, combine: Combine) -> Any:
        """`LaplaceDesign.scan_weighted`, where the directions of the classes are split at ``ends``."""


def _with_squares(basis: Basis, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    Phi = basis(X)
    return Phi, Phi**2


class BasisTerms(Terms):
    """A bound basis of M atoms, which every pass evaluates on all rows."""

    scan_error = 1e-13

    def __init__(self, basis: Basis, samples: DaskSamples):
        self._basis = basis
        self.block_rows = int(np.clip(_MAX_BLOCK_NUMBERS / (basis.n_atoms * numbers_per_entry(basis)), 16, 4096))
        self.scan_size = float(samples.n_rows) * basis.n_atoms
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values are refused below
            squares = samples.blocked(self.block_rows).reduce(partial(_sum_squares, self.of_rows), add)
        if not np.all(np.isfinite(squares)):
            raise not_finite(int(np.argmin(np.isfinite(squares))))
        self.scale = np.sqrt(squares)
        contents = basis.order_keys()
        self._contents = content_ranks(basis, self.scale)[:, None] if contents is None else contents

    def take(self, atoms: np.ndarray) -> Basis:
        return self._basis.take(atoms)

    def keys(self, atoms: np.ndarray) -> np.ndarray:
        return np.column_stack([self._contents[atoms], atoms]).astype(float)

    @property
    def of_rows(self) -> Callable:
        return partial(_with_squares, self._basis)

    def moments(self, A: np.ndarray, B: np.ndarray) -> Any:
        safe = np.where(self.scale > 0.0, self.scale, 1.0)
        return A / safe, B / safe**2

    def scan(self, moments: Any, ends: np.ndarray, samples: DaskSamples, function: Callable, combine: Combine) -> Any:
        atoms = np.arange(len(self.scale))
        return function(_piece(atoms, self.keys(atoms), moments[0], moments[1], ends))


def _sum_squares(terms: Callable, block: Block) -> np.ndarray:
    return terms(block.X)[1].sum(axis=0)


@dataclass(frozen=True, eq=False)
class _AtPivots:
    """The functions besides the kernels, and the kernels at pivots; the same of the squares."""

    others: Basis | None
    kernel: Kernel
    pivots: np.ndarray
    square: Any
    square_pivots: np.ndarray

    def __call__(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        K, E = self.kernels(X)
        if self.others is None:
            return K, E
        B = self.others(X)
        return np.hstack([B, K]), np.hstack([B**2, E])

    def kernels(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the kernels alone."""
        return self.kernel(X, self.pivots), self.square(X, self.square_pivots)


class RowTerms(Terms):
    """A kernel on every row, and p functions besides, through low-rank factors of the kernel and of its square."""

    scan_error = ExactColumns.scan_error

    def __init__(self, dictionary: DistributedKernelBasis, factor: Factor, square: Factor):
        self._dictionary, self._factors = dictionary, (factor, square)
        p, samples = dictionary.n_others, dictionary.samples
        self.block_rows = rows_per_block(factor.rank + square.rank)
        self.scan_size = float(samples.n_rows + dictionary.n_atoms) * (factor.rank + p)
        squares = samples.blocked(self.block_rows).reduce(partial(_sum_squares, self.of_rows), add)
        self._norms, self._other_scale = squares[p:] @ square.inverse.T @ square.inverse, np.sqrt(squares[:p])
        self._known: dict[int, float] = {}
        self.scale = Lookup(dictionary.n_atoms, self._scale)

    def _scale(self, atoms: np.ndarray) -> np.ndarray:
        n, square = self._dictionary.samples.n_rows, self._factors[1]
        new = np.array(sorted(set(atoms[atoms < n].tolist()) - self._known.keys()), dtype=np.intp)
        if new.size:
            X = self._dictionary.samples.take(new)
            norms = np.sqrt(np.maximum(square.kernel(X, square.pivots) @ self._norms, 0.0))
            self._known.update(zip(new.tolist(), norms.tolist(), strict=True))
        found = [self._known[a] if a < n else float(self._other_scale[a - n]) for a in atoms.ravel().tolist()]
        return np.array(found).reshape(atoms.shape)

    def take(self, atoms: np.ndarray) -> Basis:
        return self._dictionary.take_without_rows(atoms)

    def keys(self, atoms: np.ndarray) -> np.ndarray:
        samples, own = self._dictionary.samples, atoms < self._dictionary.samples.n_rows
        X = np.zeros((len(atoms), samples.n_features))
        X[own] = samples.take(atoms[own])
        return _row_keys(np.where(own, 0, atoms - samples.n_rows + 1), X, atoms)

    @property
    def of_rows(self) -> _AtPivots:
        factor, square = self._factors
        others = self._dictionary.others
        return _AtPivots(others, factor.kernel, factor.pivots, square.kernel, square.pivots)

    def moments(self, A: np.ndarray, B: np.ndarray) -> Any:
        # k(x, z) ~= k(x, Z) L^-T L^-1 k(Z, z) for the pivots Z, and so the squares
        p, (factor, square) = self._dictionary.n_others, self._factors
        M, N = A[:, p:] @ factor.inverse.T @ factor.inverse, B[:, p:] @ square.inverse.T @ square.inverse
        return A[:, :p], B[:, :p], M, N

    def scan(self, moments: Any, ends: np.ndarray, samples: DaskSamples, function: Callable, combine: Combine) -> Any:
        A, B, M, N = moments
        task = partial(_scan_block, self.of_rows, M, np.vstack([N, self._norms]), ends, function)
        total = samples.blocked(self.block_rows).reduce(task, combine)
        p = self._dictionary.n_others
        if p:
            atoms, safe = samples.n_rows + np.arange(p), np.where(self._other_scale > 0.0, self._other_scale, 1.0)
            total = combine(total, function(_piece(atoms, self.keys(atoms), A / safe, B / safe**2, ends)))
        return total


def _piece(atoms: np.ndarray, keys: np.ndarray, projected: np.ndarray, squares: np.ndarray, ends: np.ndarray) -> Piece:
    return Piece(atoms, keys, row_hash64(keys[:, :-1]), np.split(projected, ends), squares)


def _row_keys(kind: np.ndarray, X: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Kernels by their rows X (k, d), then the others, of kinds (k,) from 1 on."""
    return np.column_stack([kind, X, atoms])


def _scan_block(
    terms: _AtPivots, M: np.ndarray, N: np.ndarray, ends: np.ndarray, function: Callable, block: Block
) -> Any:
    """The rows of a block as candidates: M and N take their kernels at the pivots to Y'Phi and to weighted squares.

    The last row of N is for the squares of their norms.
    """
    K, E = terms.kernels(block.X)
    *squares, norms = N @ E.T
    safe = np.where(norms > 0.0, norms, 1.0)
    atoms = block.start + np.arange(len(block.X))
    keys = _row_keys(np.zeros(len(atoms)), block.X, atoms)
    return function(_piece(atoms, keys, (M @ K.T) / np.sqrt(safe), np.array(squares) / safe, ends))
