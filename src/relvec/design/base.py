"""The contracts of a dictionary on its rows.

`Design` serves regression: columns of some atoms, and scans of all atoms along given directions. What classes and
counts need besides is `LaplaceDesign`'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import add
from typing import TypeVar

import numpy as np

from relvec.inference.evidence import MAX_CORRELATION

Value = TypeVar("Value")
OnPiece = Callable[[np.ndarray, np.ndarray], Value]  # of atoms (b,) and Y'Phi (j, b)
Combine = Callable[[Value, Value], Value]


class Dictionary(ABC):
    """M atoms on n rows, scaled to columns of unit norm.

    ``scale`` (M,) holds the norms that were divided out: a column of the user's basis is ``scale[m] * Phi[:, m]``.
    Columns that vanish have scale 0 and stay zero. Where ``offset`` (M,) is given, that multiple of the constant, the
    last atom, was subtracted before: a column is ``scale[m] * Phi[:, m] + offset[m]``.
    """

    scale: np.ndarray
    offset: np.ndarray | None = None

    @property
    def n_atoms(self) -> int:
        """Number of atoms M."""
        return len(self.scale)

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows n."""


class Design(Dictionary):
    """A design matrix Phi (n, M) seen through columns and scans; a dictionary much longer than ``max_active_set`` is
    searched in parts.
    """

    max_active_set = 16_384  # atoms that may be searched as one `subset`

    @property
    def matrix(self) -> np.ndarray | None:
        """Phi (n, M) itself where it lies in memory, else None."""
        return None

    @abstractmethod
    def columns(self, atoms) -> np.ndarray:
        """Return the columns of the given atoms (n, k), float64."""

    def project(self, Y: np.ndarray) -> np.ndarray:
        """Y'Phi (j, M) for Y (n, j)."""
        found = np.empty((Y.shape[1], self.n_atoms))
        for atoms, projected in self.scan(Y, _collect, add):
            found[:, atoms] = projected
        return found

    @abstractmethod
    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        """Combine function(atoms (b,), Y'Phi (j, b)) over pieces of the dictionary, for Y (n, j); both are pure."""

    @abstractmethod
    def subset(self, atoms) -> Design:
        """Return the design of some atoms only, scaled as here."""


class LaplaceDesign(Design):
    """Phi (n, M) for regression, and for classes and counts, under which B = diag(w) changes in every step."""

    scan_error: float  # relative to phi' B phi: an S below this is rounding error

    @property
    @abstractmethod
    def scan_size(self) -> float:
        """Numbers a scan of the dictionary reads for each direction."""

    @abstractmethod
    def diagonal(self, W: np.ndarray) -> np.ndarray:
        """phi_m' diag(w) phi_m for every atom and column w of W: (M,) for W (n,), (K, M) for W (n, K)."""

    @property
    @abstractmethod
    def peaks(self) -> np.ndarray:
        """The largest absolute value of each column (M,)."""

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        return function(np.arange(self.n_atoms), self.project(Y))

    def near_copies(self, atom: int, weights: np.ndarray) -> np.ndarray:
        """The other atoms whose columns correlate above `MAX_CORRELATION` with that of this one.

        Every call for a design has the same weights of its rows (n,), up to a factor.
        """
        if atom not in self._near:
            share = weights / weights.sum()
            if not self._sizes:  # a pass over the dictionary, as long as a scan
                self._sizes.append(self.diagonal(share))
            size, inner = self._sizes[0], self.project(share[:, None] * self.columns([atom]))[0]
            close = np.flatnonzero(inner * inner > MAX_CORRELATION**2 * size * size[atom])
            self._near[atom] = close[close != atom]
        return self._near[atom]

    @cached_property
    def _near(self) -> dict[int, np.ndarray]:
        return {}

    @cached_property
    def _sizes(self) -> list[np.ndarray]:
        return []


@dataclass(frozen=True)
class Compression:
    """How the rows were reduced.

    Attributes
    ----------
    n_rows : rows before.
    rank : rows after, the numerical rank of the dictionary.
    tolerance : largest error of a kernel value, relative to the largest k(x, x).
    column_error : bound on the error of each column, relative to its norm.
    """

    n_rows: int
    rank: int
    tolerance: float
    column_error: float


@dataclass(frozen=True, eq=False)
class DesignRows:
    """A dictionary and targets in the same n coordinates."""

    design: Design  # (n, M)
    targets: np.ndarray  # (n, q), rows multiplied by the roots of the sample weights
    target_norm2_outside: np.ndarray  # (q,) squared length of each target outside the coordinates
    compression: Compression | None = None  # None where the rows are the samples themselves, or their QR triangle


def _collect(atoms: np.ndarray, projected: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(atoms, projected)]
