"""A dictionary known through a low-rank factor: what scans under any curvature B ask for, without the N x M matrix.

Phi ~= G D' with G (n, c) and D (M, c). Regression reduces its rows once (`relvec.design.compress`); here B changes
from step to step, so the n rows stay, and a scan costs n k c + c k M instead of n k M. The squares of the entries,
which phi' B phi asks for, are themselves a positive definite kernel and have a factor of their own. Only scans see
the factors: the columns of a model are computed anew, so its mode and evidence are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis
from relvec.design._base import Design
from relvec.design._blocks import DenseDesign
from relvec.design._lowrank import _LEAST_ROWS, _MOST_RANK, TOLERANCE, _kernel_on_training_rows, partial_cholesky
from relvec.kernels import Kernel

_HELD = 32_000_000  # numbers of exact columns kept


class FactorDesign(Design):
    """Phi (n, M) with columns of about unit norm, exact column by column and approximate as a whole.

    Parameters
    ----------
    basis : bound basis of the M atoms.
    X : (n, d) rows.
    G, D : (n, c), (M, c) with basis(X) ~= G D'.
    squares : such a pair for the squares of the entries, where its rank is low too.
    """

    error = 1e-5  # S / diagonal below this is error of the factors

    def __init__(
        self, basis: Basis, X: np.ndarray, G: np.ndarray, D: np.ndarray,
        squares: tuple[np.ndarray, np.ndarray] | None = None,
    ):  # fmt: skip
        self._basis, self._X, self._G, self._D, self._squares = basis, X, G, D, squares
        self._atoms = np.arange(len(D))
        self._held: dict[int, np.ndarray] = {}
        self.scale = np.sqrt(np.maximum(self.diagonal(np.ones(len(X))), 0.0))
        safe = np.where(self.scale > 0.0, self.scale, 1.0)[:, None]
        self._D = D / safe
        if squares is not None:
            self._squares = squares[0], squares[1] / safe**2

    @property
    def n_rows(self) -> int:
        return len(self._X)

    @property
    def rank(self) -> int:
        """Columns c of the factor."""
        return self._G.shape[1]

    def columns(self, atoms) -> np.ndarray:
        wanted = self._atoms[np.asarray(atoms, dtype=np.intp)]
        new = [a for a in dict.fromkeys(wanted.tolist()) if a not in self._held]
        if new:
            fresh = self._basis.take(new)(self._X)
            if (len(self._held) + len(new)) * self.n_rows > _HELD:
                self._held = {a: self._held[a] for a in wanted.tolist() if a in self._held}
            self._held.update(zip(new, fresh.T.copy(), strict=True))
        columns = np.empty((self.n_rows, len(wanted)), order="F")
        for j, a in enumerate(wanted.tolist()):
            columns[:, j] = self._held[a]
        scale = self.scale[np.asarray(atoms, dtype=np.intp)]
        columns /= np.where(scale > 0.0, scale, 1.0)
        return columns

    def approximate(self, atoms) -> np.ndarray:
        """The columns of the given atoms (n, k) as the factor has them."""
        return self._G @ self._D[atoms].T

    def project(self, Y: np.ndarray) -> np.ndarray:
        return (Y.T @ self._G) @ self._D.T

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        """phi_m' diag(w) phi_m for every atom and column w of W: (M,) for W (n,), (K, M) for W (n, K)."""
        if self._squares is not None:
            E, R = self._squares
            return (W.T @ E) @ R.T
        if W.ndim == 2:
            return np.stack([self.diagonal(w) for w in W.T])
        inner = self._G.T @ (self._G * W[:, None])
        return np.einsum("ij,ij->i", self._D @ inner, self._D)

    def subset(self, atoms) -> FactorDesign:
        part = object.__new__(FactorDesign)
        part._basis, part._X, part._G, part._held = self._basis, self._X, self._G, self._held
        part._D, part.scale, part._atoms = self._D[atoms], self.scale[atoms], self._atoms[atoms]
        part._squares = None if self._squares is None else (self._squares[0], self._squares[1][atoms])
        return part


def scan_design(basis: Basis, X: np.ndarray, compression: bool = True) -> DenseDesign | FactorDesign:
    """The dictionary on the rows X (n, d): through a low-rank factor where that is smaller, dense otherwise.

    >>> import numpy as np
    >>> from relvec.basis import Concat, KernelBasis
    >>> X = np.linspace(0.0, 10.0, 600)[:, None]
    >>> design = scan_design(Concat((KernelBasis("gaussian"), "bias")).bind(X), X)
    >>> type(design).__name__, design.n_atoms
    ('FactorDesign', 601)
    """
    factor = _factor(basis, X) if compression else None
    return DenseDesign(basis(X), overwrite=True) if factor is None else FactorDesign(basis, X, *factor)


def _factor(basis: Basis, X: np.ndarray):
    """What `FactorDesign` takes besides the basis and the rows, or None where the rank is not low."""
    kernel_part = _kernel_on_training_rows(basis)
    if kernel_part is None or len(X) < _LEAST_ROWS or kernel_part.centres is None:
        return None
    if not np.array_equal(kernel_part.centres, X):
        return None
    p = basis.n_atoms - kernel_part.n_atoms
    if p > 0.1 * len(X):
        return None
    most = int(_MOST_RANK * len(X))
    found = partial_cholesky(kernel_part.kernel, X, TOLERANCE, most, p)
    if found is None:
        return None
    factor = _placed(basis, kernel_part, X, found[0], p, 1)  # type: ignore[arg-type]
    found = partial_cholesky(_Square(kernel_part.kernel), X, TOLERANCE, most, p)
    return *factor, None if found is None else _placed(basis, kernel_part, X, found[0], p, 2)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Square:
    """The squares of a kernel's values: positive definite with it (Schur's product theorem)."""

    kernel: Kernel

    def __call__(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        K = self.kernel(X, Z)
        return np.multiply(K, K, out=K)

    def diag(self, X: np.ndarray) -> np.ndarray:
        """The values on the diagonal (n,)."""
        return self.kernel.diag(X) ** 2


def _placed(basis: Concat, kernel_part: KernelBasis, X: np.ndarray, G: np.ndarray, p: int, power: int):
    """G (n, p + r) with the powers of the other p columns before the kernel's factor, and D (M, p + r) of all atoms."""
    D, column = np.zeros((basis.n_atoms, G.shape[1])), 0
    for part, where in zip(basis.parts, basis.places(), strict=True):
        if part is kernel_part:
            D[where, p:] = G[:, p:]
            continue
        G[:, column : column + part.n_atoms] = part(X) ** power
        D[where, np.arange(column, column + part.n_atoms)] = 1.0
        column += part.n_atoms
    return G, D
