"""Laplace designs whose rows are arrays, in memory or on a device: sums over rows are products of arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

import numpy as np

from relvec.design.base import (
    Combine,
    Design,
    LaplaceDesign,
    ModelOnRows,
    Observed,
    OnPiece,
    Piece,
    RowDirections,
    Value,
)
from relvec.inference.laplace import laplace, ridge_on_device
from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.inference.linalg import factor_ridge
from relvec.runtime.arrays import Array, is_device_array, namespace, take, to_host


class ArrayDesign(Design, LaplaceDesign):
    """Phi (n, M) on rows that are arrays of one library, exact or approximate as a whole, exact column by column."""

    def approximate(self, atoms) -> Array:
        """The columns of the given atoms (n, k) as scans see them."""
        return self.columns(atoms)

    @abstractmethod
    def diagonal(self, W: Array) -> np.ndarray:
        """phi_m' diag(w) phi_m for every atom and column w of W: (M,) for W (n,), (K, M) for W (n, K)."""

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        return function(np.arange(self.n_atoms), self.project(Y))

    def total_weight(self, weights: Array) -> float:
        return float(namespace(weights).sum(weights))

    def model_columns(self, atoms: np.ndarray, near: ModelOnRows | None = None) -> Array:
        if near is None:
            return self.columns(atoms)
        Phi = _on_rows(near).Phi
        if np.array_equal(atoms, near.atoms):
            return Phi
        place = {atom: i for i, atom in enumerate(near.atoms.tolist())}
        new = [atom for atom in dict.fromkeys(atoms.tolist()) if atom not in place]
        if new:
            Phi = namespace(Phi).concat([Phi, self.columns(np.array(new))], axis=1)
            place |= {atom: len(near.atoms) + i for i, atom in enumerate(new)}
        places = [place[atom] for atom in atoms.tolist()]
        return Phi if places == list(range(Phi.shape[1])) else take(Phi, np.array(places, dtype=np.intp), 1)

    def mode(self, observed: Observed, atoms, columns, outputs, alpha, start, guess=None) -> PosteriorOnRows:
        t, weights, likelihood = observed
        return laplace(columns, t, weights, alpha, likelihood, start, outputs, guess)

    def reduce(self, model: ModelOnRows, function: Callable[..., Value], atoms: np.ndarray | None = None) -> Value:
        more = () if atoms is None else (self.approximate(atoms),)
        return function(model.posterior, model.observed.weights, *more)

    def ridge_factors(self, model: ModelOnRows, function: Callable[..., Iterable[Array]]) -> list[np.ndarray]:
        matrices = function(model.posterior, model.observed.weights)
        return [ridge_on_device(X) if is_device_array(X) else factor_ridge(X) for X in matrices]

    def gram(self, atoms: np.ndarray) -> np.ndarray:
        columns = self.columns(atoms)
        return to_host(columns.T @ columns)

    def weighted_products(self, model: ModelOnRows, atom: int, others: np.ndarray) -> np.ndarray:
        weighted = self.approximate(np.array([atom])) * _on_rows(model).W[:, None]
        return self.project(weighted)[0, others]

    def contents(self, atoms: np.ndarray) -> np.ndarray:
        return atoms  # equal rows were merged

    def weighted_moments(self, model: ModelOnRows, rows: RowDirections, order: np.ndarray) -> Piece:
        p, weights = _on_rows(model), model.observed.weights
        curvature = rows.curvature(p, weights)
        squares = self.diagonal(curvature[:, 0] if rows.K == 1 else curvature).reshape(rows.K, -1)
        projected = [self.project(rows.directions(p, weights, c)) for c in range(rows.K)]
        atoms = np.arange(self.n_atoms)
        return Piece(atoms, order, atoms, projected, squares)

    def scan_weighted(self, moments: Piece, function: Callable[[Piece], Value], combine: Combine[Value]) -> Value:
        return function(moments)


def _on_rows(model: ModelOnRows) -> PosteriorOnRows:
    assert isinstance(model.posterior, PosteriorOnRows)
    return model.posterior
