"""A dictionary known through a low-rank factor: what scans under any curvature B ask for, without the N x M matrix.

Phi ~= G D' with G (n, c) and D (M, c). Regression reduces its rows once (`relvec.design.compress`); here B changes
from step to step, so the n rows stay, and a scan costs n k c + c k M instead of n k M. The squares of the entries,
which phi' B phi asks for, are themselves a positive definite kernel and have a factor of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis
from relvec.design.arrays import ArrayDesign
from relvec.design.dense import DenseDesign
from relvec.design.exact_columns import ExactColumns, single_design
from relvec.design.low_rank import (
    _MOST_RANK,
    MIN_ROWS_TO_COMPRESS,
    TOLERANCE,
    kernel_on_training_rows,
    partial_cholesky,
)
from relvec.kernels import Kernel
from relvec.runtime.threads import product

_SINGLE = 5.0  # bytes of an entry of the matrix in single precision, with what computes it
MODEL_BYTES_PER_ROW = 3200  # bytes a row takes in the models of a search: eight arrays of fifty columns
_ROOM = 36  # bytes for a row and a column of the factor: two factors of both sides, while they are made
_HELD = 1 / 128  # numbers of exact columns kept for a byte of the limit
_LEAST = 64  # atoms
_LARGE = 2_000_000  # numbers: above, scans read the matrix from memory and its size decides


class FactorDesign(ExactColumns):
    """Phi (n, M) with columns of about unit norm, exact column by column and approximate as a whole.

    Parameters
    ----------
    basis : bound basis of the M atoms.
    X : (n, d) rows.
    G, D : (n, c), (M, c) with basis(X) ~= G D'.
    squares : such a pair for the squares of the entries, where its rank is low too.
    norms : (M,) squared lengths of the columns, where they are known better than from the pairs.
    """

    def __init__(
        self, basis: Basis, X: np.ndarray, G: np.ndarray, D: np.ndarray,
        squares: tuple[np.ndarray, np.ndarray] | None = None, norms: np.ndarray | None = None,
    ):  # fmt: skip
        self._hold(basis, X)
        self._G, self._D, self._squares = G, D, squares
        norms = self.diagonal(np.ones(len(X))) if norms is None else norms
        self.scale = np.sqrt(np.maximum(norms, 0.0))
        safe = np.where(self.scale > 0.0, self.scale, 1.0)[:, None]
        self._D = D / safe.astype(D.dtype)
        if squares is not None:
            self._squares = squares[0], squares[1] / (safe**2).astype(squares[1].dtype)

    @property
    def rank(self) -> int:
        """Columns c of the factor."""
        return self._G.shape[1]

    @property
    def scan_size(self) -> float:
        return self._G.size + self._D.size

    @cached_property
    def native_arrays(self) -> tuple[np.ndarray, ...] | None:
        if self._squares is None:
            return None
        parts = self._G.T, self._D, self._squares[0].T, self._squares[1]
        return tuple(np.ascontiguousarray(part, dtype=np.float32) for part in parts)

    def approximate(self, atoms) -> np.ndarray:
        return product(self._G, self._D[atoms].T).astype(float, copy=False)

    def project(self, Y: np.ndarray) -> np.ndarray:
        return product(product(Y.T.astype(self._G.dtype, copy=False), self._G), self._D.T).astype(float, copy=False)

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        if self._squares is not None:
            E, R = self._squares
            return ((W.T.astype(E.dtype, copy=False) @ E) @ R.T).astype(float, copy=False)
        if W.ndim == 2:
            return np.stack([self.diagonal(w) for w in W.T])
        inner = self._G.T @ (self._G * W[:, None])
        return np.einsum("ij,ij->i", self._D @ inner, self._D)

    def subset(self, atoms) -> FactorDesign:
        part = object.__new__(FactorDesign)
        part._share(self, atoms)
        part._G, part._D = self._G, self._D[atoms]
        part._squares = None if self._squares is None else (self._squares[0], self._squares[1][atoms])
        return part


def scan_design(basis: Basis, X: np.ndarray, compression: bool = True, memory: float = 4e9) -> ArrayDesign | None:
    """The dictionary on the rows X (n, d) for scans: through a low-rank factor where that is smaller.

    Otherwise the whole matrix, in single precision where it is large; None where that exceeds ``memory`` bytes.

    >>> import numpy as np
    >>> from relvec.basis import Concat, KernelBasis
    >>> X = np.linspace(0.0, 10.0, 600)[:, None]
    >>> design = scan_design(Concat((KernelBasis("gaussian"), "bias")).bind(X), X)
    >>> type(design).__name__, design.n_atoms
    ('FactorDesign', 601)
    """
    room = memory - MODEL_BYTES_PER_ROW * len(X)
    factor = _factor(basis, X, room) if compression else None
    if factor is None and basis.n_atoms > max_scan_atoms(len(X), memory):
        return None
    size = len(X) * basis.n_atoms
    design: ArrayDesign
    if factor is not None:
        design = FactorDesign(basis, X, *factor)
    else:
        design = single_design(basis, X, memory) if size > _LARGE else DenseDesign(basis(X), overwrite=True)
    if isinstance(design, ExactColumns):
        design.most_held = int(min(design.most_held, _HELD * memory))
    return design


def max_scan_atoms(n_rows: int, memory: float) -> int:
    """The longest dictionary that `scan_design` takes as a matrix on so many rows; some atoms are always possible."""
    return max(int(min((memory - MODEL_BYTES_PER_ROW * n_rows) / (_SINGLE * n_rows), 2.0**31)), _LEAST)


def _factor(basis: Basis, X: np.ndarray, memory: float):
    """What `FactorDesign` takes besides the basis and the rows, or None where the rank is not low."""
    kernel_part = kernel_on_training_rows(basis)
    if kernel_part is None or len(X) < MIN_ROWS_TO_COMPRESS or kernel_part.centres is None:
        return None
    if not np.array_equal(kernel_part.centres, X):
        return None
    p = basis.n_atoms - kernel_part.n_atoms
    if p > 0.1 * len(X):
        return None
    most = int(min(_MOST_RANK * len(X), memory / (_ROOM * len(X))))
    if most < 1:
        return None
    found = partial_cholesky(kernel_part.kernel, X, TOLERANCE, most, p)
    if found is None:
        return None
    G = found[0]
    found = partial_cholesky(_Square(kernel_part.kernel), X, TOLERANCE, most, p)
    if found is None:
        return *_placed(basis, kernel_part, X, G, p, 1), None, None  # type: ignore[arg-type]
    E, R = _placed(basis, kernel_part, X, found[0], p, 2)  # type: ignore[arg-type]
    norms, squares = R @ E.sum(axis=0), (_single(E), _single(R))
    del found, E, R
    G, D = _placed(basis, kernel_part, X, G, p, 1)  # type: ignore[arg-type]
    return _single(G), _single(D), squares, norms


def _single(A: np.ndarray) -> np.ndarray:
    """In single precision: a hundred times finer than `ExactColumns.scan_error`, and half as much to read."""
    return A.astype(np.float32)


@dataclass(frozen=True)
class _Square:
    """The squares of a kernel's values: positive definite with it (Schur's product theorem)."""

    kernel: Kernel

    def __call__(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        K = self.kernel(X, Z)
        K *= K
        return K

    def diag(self, X: np.ndarray) -> np.ndarray:
        """The values on the diagonal (n,)."""
        return self.kernel.diag(X) ** 2


def _placed(basis: Concat, kernel_part: KernelBasis, X: np.ndarray, G: np.ndarray, p: int, power: int):
    """G (n, p + r) with the powers of the other p columns before the kernel's factor, and D (M, p + r) of all atoms."""
    D, column = np.zeros((basis.n_atoms, G.shape[1])), 0
    for part, where in zip(basis.parts, basis.part_columns(), strict=True):
        if part is kernel_part:
            D[where, p:] = G[:, p:]
            continue
        G[:, column : column + part.n_atoms] = part(X) ** power
        D[where, np.arange(column, column + part.n_atoms)] = 1.0
        column += part.n_atoms
    return G, D
