"""Designs on a device for likelihoods that are not Gaussian: columns stay there, what scans find comes to the host."""

from __future__ import annotations

import numpy as np

from relvec.basis import Basis, Concat
from relvec.design.arrays import ArrayDesign
from relvec.design.device import DeviceDesign, device_factor, device_matrix
from relvec.design.exact_columns import ExactColumns
from relvec.design.factor import _Square
from relvec.design.low_rank import MIN_ROWS_TO_COMPRESS, kernel_on_training_rows
from relvec.runtime.arrays import Array, like, namespace, row_slices, take, to_host

_MOST_NUMBERS = 2**31  # of a design held whole; a larger one is held through a factor where the kernel has one


class DeviceScanDesign(DeviceDesign, ArrayDesign):
    """Phi (n, M) held whole on a device, for n rows of samples; its columns are arrays there.

    >>> import numpy as np
    >>> d = DeviceScanDesign(np.array([[3.0, 4.0], [0.0, 1.0]]))
    >>> d.diagonal(np.array([1.0, 0.0])).round(2).tolist()
    [0.36, 0.0]
    """

    scan_error = 1e-13  # of rounding

    @property
    def scan_size(self) -> float:
        return self.n_rows * self.n_atoms

    def columns(self, atoms) -> Array:
        return take(self._Phi, np.asarray(atoms, dtype=np.intp)).T

    def approximate(self, atoms) -> Array:
        return self.columns(atoms)

    def project(self, Y: Array) -> np.ndarray:
        return to_host(self._Phi @ Y).T.astype(float)

    def diagonal(self, W: Array) -> np.ndarray:
        Phi = self._Phi
        found = [to_host(Phi[rows, :] ** 2 @ W) for rows in row_slices(self.n_atoms, self.n_rows)]
        return np.concatenate(found).T.astype(float)

    def subset(self, atoms) -> DeviceScanDesign:
        part = object.__new__(DeviceScanDesign)
        part._Phi, part.scale = take(self._Phi, atoms), self.scale[atoms]
        return part


class DeviceFactorDesign(ExactColumns):
    """Phi (n, M) on a device through a low-rank factor, Phi ~= G D', exact column by column.

    Parameters
    ----------
    basis : bound basis of the M atoms.
    X : (n, d) rows on the device.
    G, D : (n, c), (M, c) on the device.
    squares : such a pair for the squares of the entries, where its rank is low too.
    """

    def __init__(self, basis: Basis, X: Array, G: Array, D: Array, squared: tuple[Array, Array] | None):
        self._hold(basis, X)
        self._G, self._D, self._squares, self.scale = G, D, squared, np.ones(basis.n_atoms)
        self.scale = np.sqrt(np.maximum(self.diagonal(0.0 * X[:, 0] + 1.0), 0.0))
        safe = like(X, np.where(self.scale > 0.0, self.scale, 1.0))[:, None]
        self._D = D / safe
        if squared is not None:
            self._squares = squared[0], squared[1] / safe**2

    @property
    def scan_size(self) -> float:
        return (self.n_rows + self.n_atoms) * self._G.shape[1]

    def columns(self, atoms) -> Array:
        wanted = self._atoms[np.asarray(atoms, dtype=np.intp)].tolist()
        held = {a: c for a in wanted if (c := self._held.get(a)) is not None}
        new = [a for a in dict.fromkeys(wanted) if a not in held]
        xp = namespace(self._X)
        if new:
            fresh = self._basis.take(new)(self._X)
            if (len(self._held) + len(new)) * self.n_rows > _MOST_NUMBERS:
                self._held = dict(held)
            for j, a in enumerate(new):
                held[a] = self._held[a] = fresh[:, j]
        scale = self.scale[np.asarray(atoms, dtype=np.intp)]
        columns = xp.stack([held[a] for a in wanted], axis=1) if wanted else self._X[:, :0]
        return columns / like(self._X, np.where(scale > 0.0, scale, 1.0))

    def approximate(self, atoms) -> Array:
        return self._G @ take(self._D, atoms).T

    def project(self, Y: Array) -> np.ndarray:
        return to_host(self._D @ (self._G.T @ Y)).T.astype(float)

    def diagonal(self, W: Array) -> np.ndarray:
        if self._squares is not None:
            E, R = self._squares
            return to_host(R @ (E.T @ W)).T.astype(float)
        if W.ndim == 2:
            return np.stack([self.diagonal(W[:, c]) for c in range(W.shape[1])])
        inner = self._G.T @ (self._G * W[:, None])
        return to_host(namespace(W).sum((self._D @ inner) * self._D, axis=1)).astype(float)

    def subset(self, atoms) -> DeviceFactorDesign:
        part = object.__new__(DeviceFactorDesign)
        part._share(self, atoms)
        part._G, part._D = self._G, take(self._D, atoms)
        part._squares = None if self._squares is None else (self._squares[0], take(self._squares[1], atoms))
        return part


def device_scan_design(basis: Basis, X: Array) -> ArrayDesign:
    """The dictionary on the rows X (n, d) of a device: whole, or through a factor where it is large."""
    if X.shape[0] * basis.n_atoms > _MOST_NUMBERS and (factor := _device_factor(basis, X)) is not None:
        return DeviceFactorDesign(basis, X, *factor)
    return DeviceScanDesign(device_matrix(basis, X, np.ones(X.shape[0])))


def _device_factor(basis: Basis, X: Array):
    """What `DeviceFactorDesign` takes besides the basis and the rows, or None where the rank is not low."""
    kernel_part = kernel_on_training_rows(basis)
    n = X.shape[0]
    if kernel_part is None or n < MIN_ROWS_TO_COMPRESS or kernel_part.centres is None or kernel_part.n_atoms != n:
        return None
    xp = namespace(X)
    if basis.n_atoms - n > 0.1 * n or not bool(xp.all(X == like(X, kernel_part.centres))):
        return None
    assert isinstance(basis, Concat)
    pairs: list[tuple[Array, Array] | None] = []
    for power, kernel in ((1, kernel_part.kernel), (2, _Square(kernel_part.kernel))):
        found = device_factor(kernel, X)
        pairs.append(None if found is None else _placed_on_device(basis, kernel_part, X, found[0], power))
    return None if pairs[0] is None else (*pairs[0], pairs[1])


def _placed_on_device(basis: Concat, kernel_part, X: Array, F: Array, power: int) -> tuple[Array, Array]:
    """[B F] (n, p + r) with the powers of the other p columns, and the rows (M, p + r) of all atoms in its terms."""
    xp, n = namespace(X), X.shape[0]
    others = [(part, where) for part, where in zip(basis.parts, basis.part_columns()) if part is not kernel_part]
    B = xp.concat([X[:, :0], *(part(X) ** power for part, _ in others)], axis=1)
    p, r = B.shape[1], F.shape[1]
    D = xp.concat([xp.concat([0.0 * B, F], axis=1), like(X, np.eye(p, p + r))])
    order = np.concatenate([basis.part_columns()[basis.parts.index(kernel_part)], *(where for _, where in others)])
    if not np.array_equal(order, np.arange(n + p)):
        D = take(D, np.argsort(order))
    return xp.concat([B, F], axis=1), D
