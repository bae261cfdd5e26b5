"""Predictive distributions of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis

# Rows are predicted in blocks of about this many numbers, so that memory does not grow with their count.
_BLOCK = 4_000_000


@dataclass(frozen=True, eq=False)
class LinearPredictor:
    """A posterior over functions w'phi(x), in the units of the target.

    The weights belong to columns divided by ``scale`` and a target divided by ``unit``; keeping both apart is what
    lets inputs and targets of any magnitude pass without overflow.

    Attributes
    ----------
    basis : bound basis of the k atoms kept.
    scale : (k,) norms of the basis functions over the training rows.
    unit : root mean square of the training target.
    mean, root : (k,), (k, k) posterior N(mean, root root') of the scaled weights.
    noise : noise variance divided by unit^2.
    """

    basis: Basis
    scale: np.ndarray
    unit: float
    mean: np.ndarray
    root: np.ndarray
    noise: float

    def columns(self, X: np.ndarray) -> np.ndarray:
        """Scaled basis functions at X: (n, k)."""
        return self.basis(X) / self.scale

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) at X (T01 eq. (21)-(22)); the noise is added to the variance if asked."""
        n, k = len(X), len(self.mean)
        mean = np.empty(n)
        spread = np.empty(n) if variance else None
        rows = max(1, _BLOCK // max(k, 1))
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            Phi = self.columns(X[part])
            mean[part] = Phi @ self.mean
            if spread is not None:
                Phi = Phi @ self.root
                spread[part] = np.einsum("ij,ij->i", Phi, Phi)
        if spread is not None:
            spread += self.noise if noise else 0.0
            spread *= self.unit**2
        mean *= self.unit
        return mean, spread

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets, at X."""
        Phi = self.columns(X) @ self.root
        C = Phi @ Phi.T
        if noise:
            C.flat[:: len(C) + 1] += self.noise
        C *= self.unit**2
        return C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        weights = self.mean[:, None] + self.root @ rng.standard_normal((len(self.mean), n_samples))
        drawn = self.columns(X) @ weights
        if noise:
            drawn += np.sqrt(self.noise) * rng.standard_normal(drawn.shape)
        drawn *= self.unit
        return drawn


@dataclass(frozen=True, eq=False)
class LatentPredictor:
    """A posterior over K latent functions f_c(x) = sum_m w_cm phi_m(x), for classes and counts.

    Attributes
    ----------
    basis : bound basis of the m atoms kept.
    scale : (m,) norms of the basis functions over the training rows.
    n_outputs : K.
    outputs, places : (k,) output and atom of each weight.
    mean, root : (k,), (k, k) posterior N(mean, root root') of the scaled weights.
    """

    basis: Basis
    scale: np.ndarray
    n_outputs: int
    outputs: np.ndarray
    places: np.ndarray
    mean: np.ndarray
    root: np.ndarray

    def moments(self, X: np.ndarray, spread: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean (n, K) and, if asked, covariance (n, K, K) of the latent functions at X."""
        n, K, k = len(X), self.n_outputs, len(self.mean)
        mean, covariance = np.zeros((n, K)), np.zeros((n, K, K)) if spread else None
        own = [np.flatnonzero(self.outputs == c) for c in range(K)]
        rows = max(1, _BLOCK // max(k * (K if spread else 1), 1))
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            Phi = self.basis(X[part]) / self.scale
            for c, i in enumerate(own):
                mean[part, c] = Phi[:, self.places[i]] @ self.mean[i]
            if covariance is not None and k:
                T = np.stack([Phi[:, self.places[i]] @ self.root[i] for i in own], axis=1)  # (rows, K, k)
                covariance[part] = T @ T.transpose(0, 2, 1)
        return mean, covariance
