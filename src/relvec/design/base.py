"""The contracts of a dictionary on its rows, the only objects that see all samples.

`Design` serves regression: columns of some atoms, and scans of all atoms along given directions. `LaplaceDesign` serves
likelihoods that are not Gaussian, under which the weights of the rows change in every step: sums over rows (`mode`,
`reduce`, `weighted_moments`), and scans of all atoms under those weights (`scan_weighted`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import add
from typing import Any, NamedTuple, Protocol, TypeVar

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
    max_dense_atoms: float = np.inf  # atoms of a `subset` that is held as one matrix
    norm_error = 0.0  # error of a column's squared length in a scan, where that is more than rounding

    @property
    def matrix(self) -> np.ndarray | None:
        """Phi (n, M) itself where it lies in memory, else None."""
        return None

    @abstractmethod
    def columns(self, atoms) -> np.ndarray:
        """The columns of the given atoms (n, k), float64."""

    def project(self, Y: np.ndarray) -> np.ndarray:
        """Y'Phi (j, M) for Y (n, j)."""
        found = np.empty((Y.shape[1], self.n_atoms))
        for atoms, projected in self.scan(Y, _collect, add):
            found[:, atoms] = projected
        return found

    @abstractmethod
    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        """Combine function(atoms (b,), Y'Phi (j, b)) over pieces of the dictionary, for Y (n, j); both are pure.

        The function is called where the design lives, with Y'Phi in its array library; only its value travels.
        """

    @abstractmethod
    def subset(self, atoms) -> Design:
        """The design of some atoms only, scaled as here."""

    def restrict(self, atoms, target: np.ndarray, outside: float) -> tuple[Design, np.ndarray, float]:
        """The design of some atoms, the target (n,) and its squared length outside, maybe in fewer coordinates."""
        return self.subset(atoms), target, outside

    def with_exact_norms(self) -> Design:
        """The same design with scans to full precision, which may take longer."""
        return self


class Observed(NamedTuple):
    """Targets of the rows of a `LaplaceDesign`."""

    # (n,) or (n, K), in the array library of the rows; for Dask-backed samples the columns of their targets
    target: Any
    weights: Any  # (n,) sample weights, likewise; for Dask-backed samples the factor that multiplies their own weights
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
        """The diagonal of B (n, K)."""

    def directions(self, p: PosteriorOnRows, weights: Array, c: int) -> Array:
        """Y (n, j) of class c."""


class Piece(NamedTuple):
    """L atoms of a dictionary with the results of a scan."""

    atoms: np.ndarray  # (L,) their numbers
    # (L,) ranks by content, or (L, q) the contents themselves with the number of the atom last: the order in which one
    # of equals is chosen
    keys: np.ndarray
    contents: np.ndarray  # (L,) numbers that equal atoms share
    projected: list[np.ndarray]  # for each class Y'Phi (j, L)
    squares: np.ndarray  # (K, L) the weighted squares phi' diag(w) phi

    def take(self, places: np.ndarray) -> Piece:
        """Some of them."""
        projected = [each[:, places] for each in self.projected]
        return Piece(self.atoms[places], self.keys[places], self.contents[places], projected, self.squares[:, places])

    def append(self, other: Piece) -> Piece:
        """Both, one behind the other."""
        projected = [np.hstack(pair) for pair in zip(self.projected, other.projected, strict=True)]
        atoms, keys, contents = (np.concatenate(pair) for pair in zip(self[:3], other[:3], strict=True))
        return Piece(atoms, keys, contents, projected, np.hstack([self.squares, other.squares]))


class LaplaceDesign(Dictionary):
    """A dictionary for likelihoods that are not Gaussian: sums over rows, and scans under a curvature B = diag(w).

    Functions of rows are given the posterior on some of them (`PosteriorOnRows`) and the weights of these; they may run
    on other machines, and their values are added up.
    """

    scan_error: float  # relative to phi' B phi: an S below this is rounding error
    max_candidates: int | None = None  # of a scan: more are not brought here; None for all

    @property
    @abstractmethod
    def scan_size(self) -> float:
        """Numbers a scan of the dictionary reads for each direction."""

    @abstractmethod
    def total_weight(self, weights: Any) -> float:
        """Sum of the sample weights `Observed.weights`."""

    @abstractmethod
    def model_columns(self, atoms: np.ndarray, near: ModelOnRows | None = None) -> Array | None:
        """Columns (n, k) of a model's atoms, as far as possible those of a model ``near``; None for rows elsewhere."""

    @abstractmethod
    def mode(
        self, observed: Observed, atoms: np.ndarray, columns: Array | None, outputs: np.ndarray, alpha: np.ndarray,
        start: np.ndarray | None, guess: np.ndarray | None = None,
    ) -> LaplacePosterior:  # fmt: skip
        """`relvec.inference.laplace.laplace` of the weights of these atoms (k,), with their `model_columns`."""

    @abstractmethod
    def reduce(self, model: ModelOnRows, function: Callable[..., Value], atoms: np.ndarray | None = None) -> Value:
        """Sum of function(posterior, weights) over all rows; with further atoms (u,) their columns come third."""

    @abstractmethod
    def ridge_factors(self, model: ModelOnRows, function: Callable[..., Iterable[Array]]) -> list[np.ndarray]:
        """U (k, k) with U'U = I + X'X for each of the matrices X (n, k) that function(posterior, weights) gives."""

    @abstractmethod
    def gram(self, atoms: np.ndarray) -> np.ndarray:
        """Inner products (k, k) of the columns of the given atoms."""

    @abstractmethod
    def weighted_products(self, model: ModelOnRows, atom: int, others: np.ndarray) -> np.ndarray:
        """phi_a' B phi_b (u,) of an atom with others (u,), for one output."""

    @abstractmethod
    def contents(self, atoms: np.ndarray) -> np.ndarray:
        """Numbers (k,) that equal atoms share."""

    @abstractmethod
    def weighted_moments(self, model: ModelOnRows, rows: RowDirections, order: np.ndarray) -> Any:
        """Sums over rows that `scan_weighted` needs; ``order`` (M,) ranks atoms by content where pieces lack keys."""

    @abstractmethod
    def scan_weighted(self, moments: Any, function: Callable[[Piece], Value], combine: Combine[Value]) -> Value:
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
    """A dictionary and targets in the same n coordinates."""

    design: Design  # (n, M)
    targets: np.ndarray  # (n, q), rows multiplied by the roots of the sample weights
    target_norm2_outside: np.ndarray  # (q,) squared length of each target outside the coordinates
    compression: Compression | None = None  # None where the rows are the samples themselves


def _collect(atoms: np.ndarray, projected: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(atoms, projected)]
