"""Dictionaries in memory under a likelihood that is not Gaussian: sums over rows, and scans under its curvature."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

import numpy as np

from relvec.design.base import Combine, Design, ModelOnRows, Observed, OnPiece, Piece, RowDirections, Value
from relvec.inference.laplace import laplace
from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.inference.linalg import factor_ridge


class LaplaceDesign(Design):
    """Phi (n, M) for regression, and for classes and counts, under which B = diag(w) changes in every step."""

    scan_error: float  # relative to phi' B phi: an S below this is rounding error
    max_candidates: int | None = None  # of a scan: more are not brought here; None for all

    @property
    @abstractmethod
    def scan_size(self) -> float:
        """Numbers a scan of the dictionary reads for each direction."""

    @abstractmethod
    def diagonal(self, W: np.ndarray) -> np.ndarray:
        """phi_m' diag(w) phi_m for every atom and column w of W: (M,) for W (n,), (K, M) for W (n, K)."""

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        return function(np.arange(self.n_atoms), self.project(Y))

    def total_weight(self, weights: np.ndarray) -> float:
        """Sum of the sample weights."""
        return float(np.sum(weights))

    def model_columns(self, atoms: np.ndarray, near: ModelOnRows | None = None) -> np.ndarray:
        """Columns (n, k) of a model's atoms, as far as possible those of a model ``near``."""
        if near is None:
            return self.columns(atoms)
        Phi = _on_rows(near).Phi
        if np.array_equal(atoms, near.atoms):
            return Phi
        place = {atom: i for i, atom in enumerate(near.atoms.tolist())}
        new = [atom for atom in dict.fromkeys(atoms.tolist()) if atom not in place]
        if new:
            Phi = np.concatenate([Phi, self.columns(np.array(new))], axis=1)
            place |= {atom: len(near.atoms) + i for i, atom in enumerate(new)}
        places = [place[atom] for atom in atoms.tolist()]
        return Phi if places == list(range(Phi.shape[1])) else Phi[:, np.array(places, dtype=np.intp)]

    def mode(self, observed: Observed, atoms, columns, outputs, alpha, start, guess=None) -> PosteriorOnRows:
        """`relvec.inference.laplace.laplace` of the weights of these atoms (k,), with their `model_columns`."""
        t, weights, likelihood = observed
        return laplace(columns, t, weights, alpha, likelihood, start, outputs, guess)

    def reduce(self, model: ModelOnRows, function: Callable[..., Value], atoms: np.ndarray | None = None) -> Value:
        """function(posterior, weights) of all rows; with further atoms (u,) their columns come third."""
        more = () if atoms is None else (self.columns(atoms),)
        return function(model.posterior, model.observed.weights, *more)

    def ridge_factors(self, model: ModelOnRows, function: Callable[..., Iterable[np.ndarray]]) -> list[np.ndarray]:
        """U (k, k) with U'U = I + X'X for each of the matrices X (n, k) that function(posterior, weights) gives."""
        return [factor_ridge(X) for X in function(model.posterior, model.observed.weights)]

    def gram(self, atoms: np.ndarray) -> np.ndarray:
        """Inner products (k, k) of the columns of the given atoms."""
        columns = self.columns(atoms)
        return columns.T @ columns

    def weighted_products(self, model: ModelOnRows, atom: int, others: np.ndarray) -> np.ndarray:
        """phi_a' B phi_b (u,) of an atom with others (u,), for one output."""
        return self.project(self.columns(np.array([atom])) * _on_rows(model).W[:, None])[0, others]

    def contents(self, atoms: np.ndarray) -> np.ndarray:
        """Numbers (k,) that equal atoms share."""
        return atoms  # equal rows were merged

    def weighted_moments(self, model: ModelOnRows, rows: RowDirections, order: np.ndarray) -> Piece:
        """Return what `scan_weighted` looks at; ``order`` (M,) ranks atoms by content."""
        p, weights = _on_rows(model), model.observed.weights
        curvature = rows.curvature(p, weights)
        squares = self.diagonal(curvature[:, 0] if rows.K == 1 else curvature).reshape(rows.K, -1)
        projected = [self.project(rows.directions(p, weights, c)) for c in range(rows.K)]
        atoms = np.arange(self.n_atoms)
        return Piece(atoms, order, atoms, projected, squares)

    def scan_weighted(self, moments: Piece, function: Callable[[Piece], Value], combine: Combine[Value]) -> Value:
        """Return the function's value on the whole dictionary."""
        return function(moments)


def _on_rows(model: ModelOnRows) -> PosteriorOnRows:
    assert isinstance(model.posterior, PosteriorOnRows)
    return model.posterior
