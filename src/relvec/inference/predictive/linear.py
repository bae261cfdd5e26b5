"""Predictions of a function that is linear in its weights: means, variances, covariances and draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis
from relvec.runtime.arrays import Array, is_device_array, like, namespace, row_slices, squares

BLOCK_NUMBERS = 100_000  # rows are predicted in blocks of this size: they stay in the cache, and memory does not grow


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightPredictor(ABC):
    """A Gaussian posterior over the weights of some functions, in the units of the target.

    A part of the prior that the functions cannot represent (`unrepresented`) adds to the uncertainty.
    """

    unit: float  # root mean square of the training target
    # (k,), (k, k) posterior N(mean, root root') of the scaled weights
    mean: np.ndarray
    root: np.ndarray
    noise: float  # noise variance divided by unit^2

    @abstractmethod
    def columns(self, X: np.ndarray) -> np.ndarray:
        """Scaled functions at X: (n, k)."""

    @abstractmethod
    def unrepresented(self, X: np.ndarray, Phi: np.ndarray, joint: bool) -> np.ndarray | None:
        """Prior variance (n,) at X, or covariance (n, n) if ``joint``, that the functions Phi (n, k) lack, or None."""

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) at X (T01 eq. (21)-(22)); the noise is added to the variance if asked."""
        n, k = len(X), len(self.mean)
        mean = np.empty(n)
        spread = np.empty(n) if variance else None
        rows = max(1, BLOCK_NUMBERS // max(k, 1))
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            Phi = self.columns(X[part])
            mean[part] = Phi @ self.mean
            if spread is not None:
                left = self.unrepresented(X[part], Phi, False)
                Phi = Phi @ self.root
                spread[part] = np.einsum("ij,ij->i", Phi, Phi)
                if left is not None:
                    spread[part] += left
        if spread is not None:
            spread += self.noise if noise else 0.0
            spread *= self.unit**2
        mean *= self.unit
        return mean, spread

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets, at X."""
        Phi = self.columns(X)
        left, Phi = self.unrepresented(X, Phi, True), Phi @ self.root
        C = Phi @ Phi.T
        if left is not None:
            C += left
        if noise:
            C.flat[:: len(C) + 1] += self.noise
        C *= self.unit**2
        return C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        weights = self.mean[:, None] + self.root @ rng.standard_normal((self.root.shape[1], n_samples))
        Phi = self.columns(X)
        drawn, left = Phi @ weights, self.unrepresented(X, Phi, True)
        if left is not None:
            size, axes = np.linalg.eigh(left)
            drawn += axes @ (np.sqrt(np.maximum(size, 0.0))[:, None] * rng.standard_normal(drawn.shape))
        if noise:
            drawn += np.sqrt(self.noise) * rng.standard_normal(drawn.shape)
        drawn *= self.unit
        return drawn


@dataclass(frozen=True, eq=False)
class LinearPredictor(WeightPredictor):
    """A posterior over functions w'phi(x), in the units of the target.

    The weights belong to columns divided by ``scale`` and a target divided by ``unit``; both are kept apart, so that
    inputs and targets of any magnitude pass without overflow.
    """

    basis: Basis  # bound basis of the k atoms kept
    scale: np.ndarray  # (k,) norms of the basis functions over the training rows

    def columns(self, X: np.ndarray) -> np.ndarray:
        """Scaled basis functions at X: (n, k), in the array library of X."""
        return self.basis(X) / like(X, self.scale)

    def _moments_on_device(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Array | None]:
        xp, weights, root = namespace(X), like(X, self.unit * self.mean), like(X, self.unit * self.root)
        added = float(self.noise * self.unit**2) if noise else 0.0
        mean, spread = [X[:0, 0]], [X[:0, 0]]
        for rows in row_slices(X.shape[0], len(self.mean)):
            Phi = self.columns(X[rows, :])
            mean.append(Phi @ weights)
            if variance:
                spread.append(squares(Phi @ root, 1) + added)
        return xp.concat(mean), xp.concat(spread) if variance else None

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) at X, where X is; the noise is added to the variance if asked."""
        return (
            self._moments_on_device(X, variance, noise) if is_device_array(X) else super().moments(X, variance, noise)
        )

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets, at X."""
        if not is_device_array(X):
            return super().covariance(X, noise)
        Phi = self.columns(X) @ like(X, self.root)
        C = Phi @ Phi.T
        if noise:
            C += float(self.noise) * like(X, np.eye(C.shape[0]))
        return C * float(self.unit**2)

    def unrepresented(self, X: np.ndarray, Phi: np.ndarray, joint: bool) -> None:
        """None: the basis functions are the whole model."""
