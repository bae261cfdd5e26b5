"""Predictions of a function that is linear in its weights: means, variances, covariances and draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relvec.basis import Basis
from relvec.inference.predictive.contract import Predictor
from relvec.runtime.arrays import Array, add_diagonal, array_slices, like, namespace, squares

BLOCK_NUMBERS = 100_000  # rows are predicted in blocks of this size: they stay in the cache, and memory does not grow


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearPredictor(Predictor):
    """A Gaussian posterior over functions w'phi(x), in the units of the target.

    The weights belong to columns divided by ``scale`` and a target divided by ``unit``; both are kept apart, so that
    inputs and targets of any magnitude pass without overflow.
    """

    SHAPES: ClassVar[dict[str, str]] = {"scale": "m", "mean": "m", "root": "m."}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("unit", "noise")
    MAY_BE_INFINITE: ClassVar[tuple[str, ...]] = ("noise",)

    on_device: ClassVar[bool] = True

    basis: Basis  # bound basis of the k atoms kept
    scale: np.ndarray  # (k,) norms of the basis functions over the training rows
    unit: float  # root mean square of the training target
    # (k,), (k, k) posterior N(mean, root root') of the scaled weights
    mean: np.ndarray
    root: np.ndarray
    noise: float  # noise variance divided by unit^2

    @property
    def weight_root(self) -> np.ndarray:
        """A root (k, j) of the posterior covariance of the weights, in the units of X and y."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self.root * (self.unit / self.scale)[:, None]

    @property
    def weight_covariance(self) -> np.ndarray:
        """Posterior covariance (k, k) of the weights, in the units of X and y."""
        return self.weight_root @ self.weight_root.T

    def columns(self, X: Array) -> Array:
        """Scaled basis functions at X: (n, k), in the array library of X."""
        return self.basis(X) / like(X, self.scale)

    def moments(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Array | None]:
        """Mean and, if asked, variance (n,) at X (T01 eq. (21)-(22)), where X is; with the noise in it if asked."""
        xp, weights, root = namespace(X), like(X, self.mean), like(X, self.root)
        mean, spread = [], []
        for rows in array_slices(X, len(self.mean), BLOCK_NUMBERS):
            Phi = self.columns(X[rows, :])
            mean.append(Phi @ weights)
            if variance:
                spread.append(squares(Phi @ root, 1))
        found = xp.concat(mean) * float(self.unit)
        if not variance:
            return found, None
        return found, (xp.concat(spread) + (float(self.noise) if noise else 0.0)) * float(self.unit**2)

    def covariance(self, X: Array, noise: bool) -> Array:
        """Covariance (n, n) of the function, or of new targets, at X."""
        Phi = self.columns(X) @ like(X, self.root)
        C = Phi @ Phi.T
        return (add_diagonal(C, float(self.noise)) if noise else C) * float(self.unit**2)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        weights = self.mean[:, None] + self.root @ rng.standard_normal((self.root.shape[1], n_samples))
        drawn = self.columns(X) @ weights
        if noise:
            drawn += np.sqrt(self.noise) * rng.standard_normal(drawn.shape)
        drawn *= self.unit
        return drawn

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return self.basis.is_bound and self.basis.n_atoms == sizes["m"] and bool((self.scale != 0.0).all())
