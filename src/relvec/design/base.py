"""What solvers may ask of a design matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from relvec.inference.laplace import LaplacePosterior
from relvec.runtime.arrays import to_host

Value = TypeVar("Value")
OnPiece = Callable[[np.ndarray, np.ndarray], Value]  # of atoms (b,) and Y'Phi (j, b)
Combine = Callable[[Value, Value], Value]


class Design(ABC):
    """A design matrix Phi (n, M) with columns of unit norm, seen through a few reductions.

    ``scale`` (M,) holds the norms that were divided out: a column of the user's basis is ``scale[m] * Phi[:, m]``.
    Columns that vanish have scale 0 and stay zero. A dictionary much longer than ``max_active_set`` is searched in
    parts.
    """

    scale: np.ndarray
    max_active_set = 16_384  # atoms that may be searched as one `subset`
    max_dense_atoms: float = np.inf  # atoms of a `subset` that is held as one matrix
    norm_error = 0.0  # error of a column's squared length in a scan, where that is more than rounding

    @property
    def n_atoms(self) -> int:
        """Number of atoms M."""
        return len(self.scale)

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows n."""

    @property
    def matrix(self) -> np.ndarray | None:
        """Phi (n, M) itself where it lies in memory, else None."""
        return None

    @abstractmethod
    def columns(self, atoms) -> np.ndarray:
        """The columns of the given atoms (n, k), float64."""

    @abstractmethod
    def project(self, Y: np.ndarray) -> np.ndarray:
        """Y'Phi (j, M) for Y (n, j)."""

    @abstractmethod
    def subset(self, atoms) -> Design:
        """The design of some atoms only, scaled as here."""

    def restricted(self, atoms, target: np.ndarray, rest: float) -> tuple[Design, np.ndarray, float]:
        """The design of some atoms with the target (n,) and its squared length outside, in rows of its own choice."""
        return self.subset(atoms), target, rest

    def with_exact_norms(self) -> Design:
        """The same design with a scan to full precision, which may take longer."""
        return self

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        """Combine function(atoms (b,), Y'Phi (j, b)) over pieces of the dictionary, for Y (n, j); both are pure.

        The function is called where the design lives, with Y'Phi in its array library; only what it returns travels.
        """
        return function(np.arange(self.n_atoms), self.project(Y))


class ScanDesign(Design):
    """What scans under a curvature B = diag(w) that changes from step to step ask for besides."""

    error: float  # S / diagonal below this says nothing

    @property
    @abstractmethod
    def scan_size(self) -> float:
        """Numbers a scan of the dictionary reads for each row of Y."""

    @property
    def for_search(self) -> tuple[np.ndarray, ...] | None:
        """What a search in C reads: Phi' (M, n) and three empty arrays, or G' (c, n), D (M, c), E' (e, n), R (M, e)
        in single precision, with Phi ~= G D' and its squares ~= E R'. None where there is no such thing.
        """
        return None

    def held(self, atoms) -> np.ndarray:
        """What a posterior keeps of the columns of its model: themselves (n, k)."""
        return self.columns(atoms)

    def gram(self, atoms) -> np.ndarray:
        """Inner products (k, k) of the columns of the given atoms."""
        columns = self.columns(atoms)
        return to_host(columns.T @ columns)

    @abstractmethod
    def approximate(self, atoms) -> np.ndarray:
        """The columns of the given atoms (n, k) as scans see them."""

    @abstractmethod
    def diagonal(self, W: np.ndarray) -> np.ndarray:
        """phi_m' diag(w) phi_m for every atom and column w of W: (M,) for W (n,), (K, M) for W (n, K)."""


class Piece(NamedTuple):
    """Atoms (L,) of a dictionary with `RemoteDesign.keys`, Y'Phi (J, L), and the weighted squares phi' diag(w) phi
    (K, L).
    """

    atoms: np.ndarray
    keys: np.ndarray
    projected: np.ndarray
    squares: np.ndarray

    def only(self, places: np.ndarray) -> Piece:
        """Some of them."""
        return Piece(
            self.atoms[places], self.keys[places], self.projected[:, places], self.squares[:, places]
        )  # fmt: skip


class RemoteDesign(ScanDesign):
    """A dictionary whose rows, with their targets and weights, are elsewhere: what is asked of them are sums.

    A posterior keeps the numbers of its atoms (1, k) in the place of columns, and nothing of a row. Functions of rows
    are given a posterior on some of these, and their weights; their values are added up. ``weights`` (1,) is the sum
    of all weights, times the factor that the fit multiplies them with.
    """

    def held(self, atoms) -> np.ndarray:
        return np.asarray(atoms, dtype=np.intp)[None, :]

    @abstractmethod
    def keys(self, atoms) -> np.ndarray:
        """What atoms are, and their number in the last column (k, q): the order in which one of equals is chosen."""

    @abstractmethod
    def mode(
        self, atoms: np.ndarray, outputs: np.ndarray, alpha: np.ndarray, weights: np.ndarray, start: np.ndarray | None
    ) -> LaplacePosterior:
        """`relvec.inference.laplace.laplace` of the weights of these atoms (k,) and outputs (k,)."""

    @abstractmethod
    def total(self, p: LaplacePosterior, weights: np.ndarray, function: Callable[..., Value], atoms=None) -> Value:
        """Sum of function(posterior, weights) over all rows; with further atoms (u,) their columns come third."""

    @abstractmethod
    def weigh(self, p: LaplacePosterior, weights: np.ndarray, function: Callable) -> object:
        """What `look` needs for Y (n, J) and W (n, K), both given by function(posterior, weights)."""

    @abstractmethod
    def look(self, weighed: object, function: Callable[[Piece], Value], combine: Combine[Value]) -> Value:
        """Combine the function's values on all pieces of the dictionary; called where the pieces are."""


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
    """A dictionary and targets in the same n coordinates.

    Attributes
    ----------
    design : (n, M).
    targets : (n, q), rows multiplied by the roots of the sample weights.
    target_norm2_outside : (q,) squared length of each target outside the coordinates.
    compression : None where the rows are the samples themselves.
    """

    design: Design
    targets: np.ndarray
    target_norm2_outside: np.ndarray
    compression: Compression | None = None
