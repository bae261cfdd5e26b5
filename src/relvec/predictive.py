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
