"""Predictions of the latent functions of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relvec.basis import Basis
from relvec.inference.predictive.linear import BLOCK_NUMBERS
from relvec.runtime.arrays import Array, array_slices, like, namespace, take
from relvec.runtime.record import Record, is_index


@dataclass(frozen=True, eq=False)
class LatentPredictor(Record):
    """A posterior over K latent functions f_c(x) = sum_m w_cm phi_m(x), for classes and counts."""

    SHAPES: ClassVar[dict[str, str]] = {"scale": "m", "outputs": "k", "places": "k", "mean": "k", "root": "k."}

    basis: Basis  # bound basis of the m atoms kept
    scale: np.ndarray  # (m,) norms of the basis functions over the training rows
    n_outputs: int  # K
    # (k,) output and atom of each weight
    outputs: np.ndarray
    places: np.ndarray
    # (k,), (k, k) posterior N(mean, root root') of the scaled weights
    mean: np.ndarray
    root: np.ndarray

    @property
    def weight_root(self) -> np.ndarray:
        """A root (k, j) of the posterior covariance of the weights, in the units of the basis functions as given."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self.root / self.scale[self.places, None]

    @property
    def weight_covariance(self) -> np.ndarray:
        """Posterior covariance (K m, K m) of the weights of all functions; 0 where an atom is not in a function."""
        m, root = self.basis.n_atoms, self.weight_root
        place = self.outputs * m + self.places
        found = np.zeros((self.n_outputs * m, self.n_outputs * m))
        found[np.ix_(place, place)] = root @ root.T
        return found

    def functions(self, X: Array) -> list[Array]:
        """For each output its scaled basis functions at X, (n, k_c), where X is."""
        Phi = self.basis(X) / like(X, self.scale)
        return [take(Phi, self.places[i], 1) for i in self._weights_by_output()]

    def multiply(self, X: np.ndarray, A: np.ndarray) -> list[np.ndarray]:
        """For each output its functions at X times its rows of A (n, k, j), one matrix a point: (n, j)."""
        parts = zip(self.functions(X), self._weights_by_output(), strict=True)
        return [np.einsum("nk,nkj->nj", Phi, A[:, i]) for Phi, i in parts]

    def moments(self, X: Array, spread: bool = True) -> tuple[Array, Array | None]:
        """Mean (n, K) and, if asked, covariance (n, K, K) of the latent functions at X, where X is."""
        xp, own = namespace(X), [(like(X, self.mean[i]), like(X, self.root[i])) for i in self._weights_by_output()]
        numbers = len(self.mean) * (self.n_outputs if spread else 1)
        mean, covariance = [], []
        for rows in array_slices(X, numbers, BLOCK_NUMBERS):
            functions = self.functions(X[rows, :])
            mean.append(xp.stack([Phi @ w for Phi, (w, _) in zip(functions, own, strict=True)], axis=1))
            if spread:
                T = xp.stack([Phi @ R for Phi, (_, R) in zip(functions, own, strict=True)], axis=1)  # (rows, K, k)
                covariance.append(T @ xp.permute_dims(T, (0, 2, 1)))
        return xp.concat(mean), xp.concat(covariance) if spread else None

    def _weights_by_output(self) -> list[np.ndarray]:
        """Indices of the weights of each output."""
        return [np.flatnonzero(self.outputs == c) for c in range(self.n_outputs)]

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        indices = is_index(self.places, sizes["m"]) and is_index(self.outputs, self.n_outputs)
        return self.basis.is_bound and self.basis.n_atoms == sizes["m"] and indices
