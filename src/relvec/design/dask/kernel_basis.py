"""A dictionary with a kernel on every row, none of which need be here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis
from relvec.design.dask.reductions import DaskSamples
from relvec.kernels import Kernel


@dataclass(frozen=True, eq=False)
class DistributedKernelBasis:
    """A dictionary with a kernel on every row of some samples, and a few functions besides."""

    basis: Concat  # the dictionary over a part of the rows; ``part`` is the number of the kernel among its parts
    part: int
    samples: DaskSamples  # the rows

    @property
    def _kernel(self) -> KernelBasis:
        kernel = self.basis.parts[self.part]
        assert isinstance(kernel, KernelBasis)
        return kernel

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self._kernel.kernel

    @property
    def others(self) -> Concat | None:
        """The functions besides."""
        parts = tuple(part for i, part in enumerate(self.basis.parts) if i != self.part)
        return Concat(parts, n_features=self.basis.n_features) if parts else None

    @property
    def n_others(self) -> int:
        """How many those are."""
        return 0 if self.others is None else self.others.n_atoms

    @property
    def n_atoms(self) -> int:
        """Number of atoms: those of the rows first, then the others."""
        return self.samples.n_rows + self.n_others

    @property
    def rows(self) -> np.ndarray:
        """Row each atom stands on (M,); -1 where there is none."""
        return np.append(np.arange(self.samples.n_rows), np.full(self.n_others, -1))

    def take(self, atoms: np.ndarray) -> Concat:
        """The dictionary of some atoms (k,), sorted: those of the rows, then the others."""
        return self._take(atoms, self.samples.original_rows(atoms[atoms < self.samples.n_rows]))

    def take_without_rows(self, atoms: np.ndarray) -> Concat:
        """The same without the numbers of the rows, which may have to be asked for."""
        return self._take(atoms, None)

    def _take(self, atoms: np.ndarray, rows: np.ndarray | None) -> Concat:
        own = atoms[atoms < self.samples.n_rows]
        rest = atoms[atoms >= self.samples.n_rows] - self.samples.n_rows
        parts: list[Basis] = []
        if len(own):
            parts.append(KernelBasis(self.kernel, self.samples.take(own), centre_rows=rows))
        if len(rest):
            assert self.others is not None
            parts.append(self.others.take(rest))
        return Concat(tuple(parts), n_features=self.samples.n_features)

    def order(self, atoms: np.ndarray) -> np.ndarray:
        """Ranks (k,) of some atoms among each other, by content."""
        n = self.samples.n_rows
        X = np.zeros((len(atoms), self.samples.n_features))
        X[atoms < n] = self.samples.take(atoms[atoms < n])
        ranks = np.empty(len(atoms), dtype=np.intp)
        ranks[np.lexsort((atoms, *X.T[::-1], atoms >= n))] = np.arange(len(atoms))
        return ranks

    def draw(self, size: int) -> np.ndarray:
        """Atoms of an even draw."""
        return self.samples.draw(size).rows


class Lookup:
    """Numbers of all atoms that are found when some are asked for."""

    def __init__(self, size: int, find: Callable[[np.ndarray], np.ndarray]):
        self._size, self._find = size, find

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, atoms: Any) -> np.ndarray:
        return self._find(np.asarray(atoms, dtype=np.intp))
