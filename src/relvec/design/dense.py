"""The design matrix in memory."""

from __future__ import annotations

from functools import cached_property, reduce

import numpy as np

from relvec.design.arrays import ArrayDesign
from relvec.design.base import Combine, OnPiece, Value
from relvec.design.samples import in_order
from relvec.runtime.machine import product

_PIECE = 65_536  # atoms looked at together
_NONE = np.zeros(0)
_TAME = 1e-200, 1e200  # squared norms in between have all their digits


class DenseDesign(ArrayDesign):
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

    def approximate(self, atoms) -> np.ndarray:
        return self.columns(atoms)

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
    def native_arrays(self) -> tuple[np.ndarray, ...]:
        return np.ascontiguousarray(self._Phi.T), _NONE, _NONE, _NONE

    def subset(self, atoms) -> DenseDesign:
        return DenseDesign.of(np.asfortranarray(self._Phi[:, atoms]), self.scale[atoms])


def tame(squared: np.ndarray) -> np.ndarray:
    """Which squared norms have all their digits."""
    return (squared > _TAME[0]) & (squared < _TAME[1])


def not_finite(atom: int) -> ValueError:
    """The error for a basis function that has infinite values."""
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
