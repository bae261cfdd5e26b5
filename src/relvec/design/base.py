"""The contracts of a dictionary on its rows.

`Design` serves regression: columns of some atoms, and scans of all atoms along given directions. What classes and
counts need besides is in `relvec.design.arrays`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from relvec.inference.laplace_posterior import LaplacePosterior, PosteriorOnRows
from relvec.inference.likelihoods import Likelihood
from relvec.runtime.arrays import Array

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


class Observed(NamedTuple):
    """Targets of the rows of a design for classes or counts."""

    target: np.ndarray  # (n,) or (n, K)
    weights: np.ndarray  # (n,) sample weights
    likelihood: Likelihood  # of K outputs


class ModelOnRows(NamedTuple):
    """A model: the targets it is fitted to, the atom (k,) of each weight, and the posterior of the weights."""

    observed: Observed
    atoms: np.ndarray
    posterior: LaplacePosterior


class RowDirections(Protocol):
    """The factors of a scan of K classes, computed from the posterior on some rows and the weights of these."""

    @property
    def K(self) -> int:
        """Number of classes."""

    @property
    def widths(self) -> list[int]:
        """Columns of the directions of each class."""

    def curvature(self, p: PosteriorOnRows, weights: Array) -> Array:
        """Return the diagonal of B (n, K)."""

    def directions(self, p: PosteriorOnRows, weights: Array, c: int) -> Array:
        """Y (n, j) of class c."""


class Piece(NamedTuple):
    """L atoms of a dictionary with the results of a scan."""

    atoms: np.ndarray  # (L,) their numbers
    keys: np.ndarray  # (L,) ranks by content: the order in which one of equals is chosen
    contents: np.ndarray  # (L,) numbers that equal atoms share
    projected: list[np.ndarray]  # for each class Y'Phi (j, L)
    squares: np.ndarray  # (K, L) the weighted squares phi' diag(w) phi

    def take(self, places: np.ndarray) -> Piece:
        """Return some of them."""
        projected = [each[:, places] for each in self.projected]
        return Piece(self.atoms[places], self.keys[places], self.contents[places], projected, self.squares[:, places])

    def append(self, other: Piece) -> Piece:
        """Both, one behind the other."""
        projected = [np.hstack(pair) for pair in zip(self.projected, other.projected, strict=True)]
        atoms, keys, contents = (np.concatenate(pair) for pair in zip(self[:3], other[:3], strict=True))
        return Piece(atoms, keys, contents, projected, np.hstack([self.squares, other.squares]))


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
class Rows:
    """A dictionary and targets in the same n coordinates."""

    design: Design  # (n, M)
    targets: np.ndarray  # (n, q), rows multiplied by the roots of the sample weights
    target_norm2_outside: np.ndarray  # (q,) squared length of each target outside the coordinates
    compression: Compression | None = None  # None where the rows are the samples themselves, or their QR triangle


def _collect(atoms: np.ndarray, projected: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(atoms, projected)]
