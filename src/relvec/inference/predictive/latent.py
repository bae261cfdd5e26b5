"""Predictions of the latent functions of classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis
from relvec.inference.predictive.linear import BLOCK_NUMBERS
from relvec.runtime.arrays import Array, device_of, is_device_array, like, namespace, row_slices


@dataclass(frozen=True, eq=False)
class LatentPredictor:
    """A posterior over K latent functions f_c(x) = sum_m w_cm phi_m(x), for classes and counts."""

    basis: Basis  # bound basis of the m atoms kept
    scale: np.ndarray  # (m,) norms of the basis functions over the training rows
    n_outputs: int  # K
    # (k,) output and atom of each weight
    outputs: np.ndarray
    places: np.ndarray
    # (k,), (k, k) posterior N(mean, root root') of the scaled weights
    mean: np.ndarray
    root: np.ndarray

    def functions(self, X: np.ndarray) -> list[np.ndarray]:
        """For each output its scaled basis functions at X, (n, k_c)."""
        Phi = self.basis(X) / self.scale
        return [Phi[:, self.places[i]] for i in self._weights_by_output()]

    def multiply(self, X: np.ndarray, A: np.ndarray) -> list[np.ndarray]:
        """For each output its functions at X times its rows of A (n, k, j), one matrix a point: (n, j)."""
        parts = zip(self.functions(X), self._weights_by_output(), strict=True)
        return [np.einsum("nk,nkj->nj", Phi, A[:, i]) for Phi, i in parts]

    def moments(self, X: np.ndarray, spread: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean (n, K) and, if asked, covariance (n, K, K) of the latent functions at X."""
        if is_device_array(X):
            return self._moments_on_device(X, spread)
        n, K, k = len(X), self.n_outputs, len(self.mean)
        mean, covariance = np.zeros((n, K)), np.zeros((n, K, K)) if spread else None
        own = self._weights_by_output()
        rows = max(1, BLOCK_NUMBERS // max(k * (K if spread else 1), 1))
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            Phi = self.functions(X[part])
            for c, i in enumerate(own):
                mean[part, c] = Phi[c] @ self.mean[i]
            if covariance is not None and k:
                T = np.stack([Phi[c] @ self.root[i] for c, i in enumerate(own)], axis=1)  # (rows, K, k)
                covariance[part] = T @ T.transpose(0, 2, 1)
        return mean, covariance

    def _weights_by_output(self) -> list[np.ndarray]:
        """Indices of the weights of each output."""
        return [np.flatnonzero(self.outputs == c) for c in range(self.n_outputs)]

    def _moments_on_device(self, X: Array, spread: bool) -> tuple[Array, Array | None]:
        xp, K, k = namespace(X), self.n_outputs, len(self.mean)
        weights = np.zeros((len(self.scale), K))
        weights[self.places, self.outputs] = self.mean
        roots = np.zeros((K, len(self.scale), k))
        for c, i in enumerate(self._weights_by_output()):
            roots[c, self.places[i]] = self.root[i]
        scale, weights, roots = like(X, self.scale), like(X, weights), like(X, roots)
        mean, covariance = [device_of(X).zeros(0, K)], [device_of(X).zeros(0, K, K)]
        for rows in row_slices(X.shape[0], (k + len(self.scale)) * (K if spread else 1)):
            Phi = self.basis(X[rows, :]) / scale
            mean.append(Phi @ weights)
            if spread:
                T = xp.permute_dims(Phi @ roots, (1, 0, 2))  # (rows, K, k)
                covariance.append(T @ xp.permute_dims(T, (0, 2, 1)))
        return xp.concat(mean), xp.concat(covariance) if spread else None
