"""What solvers may ask of a design matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Design(ABC):
    """A design matrix Phi (n, M) with columns of unit norm, seen through a few reductions.

    ``scale`` (M,) holds the norms that were divided out: a column of the user's basis is ``scale[m] * Phi[:, m]``.
    Columns that vanish have scale 0 and stay zero.
    """

    scale: np.ndarray

    @property
    def n_atoms(self) -> int:
        """Number of atoms M."""
        return len(self.scale)

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows n."""

    @abstractmethod
    def columns(self, atoms) -> np.ndarray:
        """The columns of the given atoms (n, k), float64."""

    @abstractmethod
    def project(self, Y: np.ndarray) -> np.ndarray:
        """Y'Phi (j, M) for Y (n, j)."""
