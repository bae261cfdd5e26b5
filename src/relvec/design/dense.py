"""The design matrix in memory, and the columns of X as one: centred and scaled, without a copy of X."""

from __future__ import annotations

from functools import cached_property, reduce
from typing import Any

import numpy as np
from scipy import sparse

from relvec.design.base import Combine, LaplaceDesign, OnPiece, Value
from relvec.design.samples import in_order
from relvec.runtime.machine import product

_PIECE = 65_536  # atoms looked at together
_CONSTANT = 1e-12  # a column whose centred norm is below this share of its own is constant to double precision
_TAME = 1e-200, 1e200  # squared norms in between have all their digits


class DenseDesign(LaplaceDesign):
    """Phi (n, M) held as one float64 array.

    >>> import numpy as np
    >>> d = DenseDesign(np.array([[3.0, 0.0], [4.0, 0.0]]))
    >>> d.scale.tolist(), d.project(np.array([[1.0], [0.0]])).tolist()
    ([5.0, 0.0], [[0.6, 0.0]])
    """

    scan_error = 1e-13  # of rounding

    def __init__(self, Phi: np.ndarray, overwrite: bool = False):
        Phi = Phi if overwrite else Phi.copy()
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            squared = np.einsum("ij,ij->j", Phi, Phi)
        safe = np.ones(len(squared))
        if not tame(squared).all():
            # the largest entry goes first: squares of entries beyond 1e154 or below 1e-154 have no double
            largest = np.maximum(Phi.max(axis=0, initial=0.0), -Phi.min(axis=0, initial=0.0))
            if not np.all(np.isfinite(largest)):
                raise not_finite(int(np.argmin(np.isfinite(largest))))
            safe = np.where(largest > 0.0, largest, 1.0)
            Phi /= safe
            squared = np.einsum("ij,ij->j", Phi, Phi)
        norm = np.sqrt(squared)
        Phi /= np.where(norm > 0.0, norm, 1.0)
        self._Phi = Phi
        self.scale = safe * norm

    @classmethod
    def of(cls, Phi: np.ndarray, scale: np.ndarray) -> DenseDesign:
        """Columns Phi (n, M) that were divided by scale (M,) already."""
        design = object.__new__(cls)
        design._Phi, design.scale = Phi, scale
        return design

    @property
    def n_rows(self) -> int:
        return self._Phi.shape[0]

    @property
    def n_atoms(self) -> int:
        return self._Phi.shape[1]

    @property
    def matrix(self) -> np.ndarray:
        return self._Phi

    def columns(self, atoms) -> np.ndarray:
        return self._Phi[:, atoms]

    @property
    def scan_size(self) -> float:
        return self._Phi.size

    def project(self, Y: np.ndarray) -> np.ndarray:
        return product(Y.T, self._Phi)

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        if self.n_atoms <= _PIECE:
            return super().scan(Y, function, combine)

        def piece(start: int) -> Value:
            atoms = np.arange(start, min(start + _PIECE, self.n_atoms))
            return function(atoms, Y.T @ self._Phi[:, atoms[0] : atoms[-1] + 1])

        return reduce(combine, in_order(piece, range(0, self.n_atoms, _PIECE)))

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        return weighted_squares(self._Phi, W)

    @cached_property
    def peaks(self) -> np.ndarray:
        return np.maximum(self._Phi.max(axis=0, initial=0.0), -self._Phi.min(axis=0, initial=0.0))

    def subset(self, atoms) -> DenseDesign:
        return DenseDesign.of(np.asfortranarray(self._Phi[:, atoms]), self.scale[atoms])


def tame(squared: np.ndarray) -> np.ndarray:
    """Which squared norms have all their digits."""
    return (squared > _TAME[0]) & (squared < _TAME[1])


def not_finite(atom: int) -> ValueError:
    """Return the error for a basis function that has infinite values."""
    return ValueError(
        f"basis function {atom} is not finite on the training rows; "
        "rescale the inputs (StandardScaler) or lower the degree"
    )


def weighted_squares(Phi: np.ndarray, W: np.ndarray) -> np.ndarray:
    """W' (Phi * Phi) for Phi (n, M): (M,) for W (n,), (K, M) for W (n, K)."""
    total = np.zeros((*W.shape[1:], Phi.shape[1]), dtype=Phi.dtype)
    for start in range(0, len(Phi), 256):  # squares of a few rows at a time stay in the cache
        part = slice(start, start + 256)
        total += W[part].T @ Phi[part] ** 2
    return total


class StandardisedDesign(LaplaceDesign):
    """Columns of X (n, d), sparse or not, with the constant as the last atom where there is one.

    Phi[:, j] = root (x_j - offset_j) / scale_j with the roots of the sample weights (1 unless ``weighs_rows``), and
    offset_j the weighted mean of the column (0 without a constant). X stays as it is: a product Y'Phi is that with X,
    less a multiple of the means.

    >>> X = sparse.csc_array(np.array([[0.0, 1.0], [2.0, 0.0], [4.0, 0.0]]))
    >>> design = StandardisedDesign(X, np.ones(3), constant=True)
    >>> np.round(design.columns([0, 2]).T @ design.columns([0, 2]), 12).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    scan_error = 1e-10  # of the differences that centring takes

    def __init__(self, X: Any, weights: np.ndarray, constant: bool, weighs_rows: bool = True):
        self._X: Any = X.tocsc() if sparse.issparse(X) else np.asarray(X)
        self._root, self._constant = np.sqrt(weights) if weighs_rows else np.ones(len(weights)), constant
        total = weights.sum()
        mean = np.asarray(weights @ self._X).ravel() / total if constant else np.zeros(X.shape[1])
        squares = _centred_squares(self._X, mean, self._root**2)
        total = self._root @ self._root
        raw = squares + total * mean**2
        norm = np.sqrt(np.where(squares > _CONSTANT**2 * raw, squares, 0.0))
        self._mean, self.scale = mean, norm
        if constant:
            self._mean, self.scale = np.append(mean, 0.0), np.append(norm, np.sqrt(total))
            self.offset = self._mean
        self._safe = np.where(self.scale > 0.0, self.scale, 1.0)
        self._kept = (self.scale > 0.0).astype(float)

    @property
    def n_rows(self) -> int:
        return self._X.shape[0]

    @property
    def scan_size(self) -> float:
        return float(self._X.nnz if sparse.issparse(self._X) else self._X.size)

    def columns(self, atoms) -> np.ndarray:
        atoms = np.asarray(atoms, dtype=np.intp)
        inputs = atoms < self._X.shape[1]
        found = np.ones((self.n_rows, len(atoms)), order="F")  # the constant is 1
        part = self._X[:, atoms[inputs]]
        found[:, inputs] = part.toarray() if sparse.issparse(part) else part
        found -= self._mean[atoms]
        found *= self._root[:, None]
        found *= self._kept[atoms] / self._safe[atoms]
        return found

    def project(self, Y: np.ndarray) -> np.ndarray:
        weighted = Y.T * self._root
        total = weighted.sum(axis=1)
        products = _times(weighted, self._X)
        if self._constant:
            products = np.column_stack([products, total])
        products -= np.outer(total, self._mean)
        products *= self._kept / self._safe
        return products

    @cached_property
    def peaks(self) -> np.ndarray:
        ends = [np.asarray(end.toarray() if sparse.issparse(end) else end).ravel() for end in _ends(self._X)]
        ends = [np.append(end, 1.0) if self._constant else end for end in ends]
        largest = np.maximum(*(np.abs(end - self._mean) for end in ends))
        return float(self._root.max()) * largest * (self._kept / self._safe)

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        weighted = (W.T if W.ndim > 1 else W[None, :]) * self._root**2
        total, X = weighted.sum(axis=1), self._X
        squares = _times(weighted, X.multiply(X) if sparse.issparse(X) else X * X)
        first = _times(weighted, X)
        if self._constant:
            squares, first = np.column_stack([squares, total]), np.column_stack([first, total])
        found = squares - 2.0 * first * self._mean + np.outer(total, self._mean**2)
        found = np.maximum(found, 0.0) * (self._kept / self._safe**2)
        return found if W.ndim > 1 else found[0]

    def subset(self, atoms) -> DenseDesign:
        atoms = np.asarray(atoms, dtype=np.intp)
        return DenseDesign.of(self.columns(atoms), self.scale[atoms])


def _ends(X: Any) -> tuple[Any, Any]:
    """The least and the largest value of each column, zeros counted."""
    return X.min(axis=0), X.max(axis=0)


def _times(Y: np.ndarray, X: Any) -> np.ndarray:
    """Y X (j, d) for Y (j, n), as an array."""
    return np.asarray((X.T @ Y.T).T) if sparse.issparse(X) else Y @ X


def _centred_squares(X: Any, mean: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sums of squares (d,) of the columns about their means, in two passes: nothing cancels."""
    if not sparse.issparse(X):
        return np.array([weights @ (X[:, j] - mean[j]) ** 2 for j in range(X.shape[1])])
    column = np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))
    own = weights[X.indices]
    squares = np.bincount(column, own * (X.data - mean[column]) ** 2, minlength=X.shape[1])
    stored = np.bincount(column, own, minlength=X.shape[1])
    return squares + np.maximum(weights.sum() - stored, 0.0) * mean**2


def centre_columns(design: DenseDesign, constant: int, weights: np.ndarray | None = None) -> DenseDesign:
    """Return the design with every column but the constant's centred on its mean, under the weights of its rows (n,).

    The matrix of the design given is overwritten. Without ``weights`` the rows are those of regression, times the roots
    of their sample weights. The constant's column holds these roots, in any coordinates of the rows: to be centred is
    to be orthogonal to it, also for rows that were compressed or summed up.

    >>> design = centre_columns(DenseDesign(np.array([[1.0, 1.0], [5.0, 1.0]])), 1)
    >>> design.offset.tolist(), np.round(design.scale, 12).tolist()
    ([3.0, 0.0], [2.828427124746, 1.414213562373])
    """
    Phi, one = design.matrix, design.matrix[:, constant].copy()
    probe = one if weights is None else weights / (weights @ one)
    share = np.zeros(Phi.shape[1])
    for _ in range(2):  # the second time takes what rounding left
        more = probe @ Phi
        for row, value in zip(Phi, one, strict=True):  # in place, without an array of that size
            row -= value * more
        share += more
    norm = np.sqrt(np.einsum("ij,ij->j", Phi, Phi))
    norm[norm < _CONSTANT] = 0.0
    Phi *= np.where(norm > 0.0, 1.0 / np.where(norm > 0.0, norm, 1.0), 0.0)
    Phi[:, constant], norm[constant] = one, 1.0
    centred = DenseDesign.of(Phi, design.scale * norm)
    with np.errstate(over="ignore"):
        centred.offset = design.scale * share / design.scale[constant]
    centred.offset[constant] = 0.0
    return centred
