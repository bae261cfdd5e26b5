"""Designs that are approximate as a whole and exact column by column.

Scans of the dictionary propose moves, which the refitted evidence confirms: a few digits are enough for them. The
columns of a model are computed anew from the basis, so its mode and evidence are exact.
"""

from __future__ import annotations

import numpy as np

from relvec.basis import Basis, numbers_per_entry
from relvec.design.arrays import ArrayDesign
from relvec.design.dense import DenseDesign, weighted_squares
from relvec.runtime.arrays import row_slices

_BLOCK = 2_000_000  # numbers of the basis computed at once


class ExactColumns(ArrayDesign):
    """What such designs share: the basis, the rows X (n, d), and the exact columns computed so far."""

    scan_error = 1e-5  # of the approximation
    most_held = 32_000_000  # numbers of exact columns kept

    def _hold(self, basis: Basis, X: np.ndarray) -> None:
        self._basis, self._X = basis, X
        self._atoms = np.arange(basis.n_atoms)
        self._held: dict[int, np.ndarray] = {}

    def _share(self, whole: ExactColumns, atoms) -> None:
        self._basis, self._X, self._held = whole._basis, whole._X, whole._held
        self._atoms, self.scale, self.most_held = whole._atoms[atoms], whole.scale[atoms], whole.most_held

    @property
    def n_rows(self) -> int:
        return self._X.shape[0]

    def columns(self, atoms) -> np.ndarray:
        wanted = self._atoms[np.asarray(atoms, dtype=np.intp)].tolist()
        held = {a: c for a in wanted if (c := self._held.get(a)) is not None}  # other threads may empty the store
        new = [a for a in dict.fromkeys(wanted) if a not in held]
        if new:
            fresh: dict[int, np.ndarray] = {}
            for some in row_slices(len(new), self.n_rows, _BLOCK):
                columns = self._basis.take(new[some])(self._X)
                fresh.update((a, column.copy()) for a, column in zip(new[some], columns.T, strict=True))
            if (len(self._held) + len(new)) * self.n_rows > self.most_held:
                self._held = dict(held)
            self._held.update(fresh)
            held.update(fresh)
        columns = np.empty((self.n_rows, len(wanted)), order="F")
        for j, a in enumerate(wanted):
            columns[:, j] = held[a]
        scale = self.scale[np.asarray(atoms, dtype=np.intp)]
        columns /= np.where(scale > 0.0, scale, 1.0)
        return columns


class SingleDesign(ExactColumns):
    """Phi (n, M) held in single precision: half the memory, and scans twice as fast.

    >>> import numpy as np
    >>> from relvec.basis import Concat, KernelBasis
    >>> X = np.linspace(0.0, 10.0, 20)[:, None]
    >>> design = single_design(Concat((KernelBasis("gaussian"), "bias")).bind(X), X)
    >>> design.n_atoms, design.project(np.ones((20, 1))).dtype.name
    (21, 'float64')
    """

    def __init__(self, basis: Basis, X: np.ndarray, Phi: np.ndarray, scale: np.ndarray):
        self._hold(basis, X)
        self._Phi, self.scale = Phi, scale

    @property
    def scan_size(self) -> float:
        return 0.5 * self._Phi.size

    def approximate(self, atoms) -> np.ndarray:
        return self._Phi[:, atoms].astype(float)

    def project(self, Y: np.ndarray) -> np.ndarray:
        return (Y.T.astype(np.float32) @ self._Phi).astype(float)

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        return weighted_squares(self._Phi, W.astype(np.float32)).astype(float)

    def subset(self, atoms) -> SingleDesign:
        part = object.__new__(SingleDesign)
        part._share(self, atoms)
        part._Phi = np.asfortranarray(self._Phi[:, atoms])
        return part


def single_design(basis: Basis, X: np.ndarray, memory: float = 4e9) -> SingleDesign | DenseDesign:
    """The basis on the rows X (n, d) in single precision, or in double where its numbers are out of range.

    Blocks take a tenth of ``memory`` bytes while they are computed.
    """
    Phi = np.empty((len(X), basis.n_atoms), dtype=np.float32)
    norms, largest = np.zeros(basis.n_atoms), np.zeros(basis.n_atoms)
    rows = max(1, int(min(_BLOCK, 0.1 * memory / (8 * numbers_per_entry(basis))) // basis.n_atoms))
    with np.errstate(over="ignore", invalid="ignore"):  # such numbers are left to the dense design
        for start in range(0, len(X), rows):
            block = basis(X[start : start + rows])
            Phi[start : start + rows] = block
            norms += np.einsum("ij,ij->j", block, block)
            largest = np.maximum(largest, np.maximum(block.max(axis=0), -block.min(axis=0)))
        if not np.all((largest < 1e15) & ((largest > 1e-15) | (largest == 0.0))):
            return DenseDesign(basis(X), overwrite=True)
    scale = np.sqrt(norms)
    Phi /= np.where(scale > 0.0, scale, 1.0).astype(np.float32)
    return SingleDesign(basis, X, Phi, scale)
