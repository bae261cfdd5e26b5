"""Predictions with Student-t noise: a normal function plus noise of heavy tails."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr

from relvec.inference.predictive.contract import Predictor

_STEP = 0.25  # of the trapezoidal rule in log lambda, and in its standard deviations: errors are below 1e-12
_STANDARD_STEP = 0.6
_DEPTH = 34.0  # nats below its maximum at which the density of log lambda is cut off
_BISECTIONS = 80


@dataclass(frozen=True, eq=False)
class StudentPredictor(Predictor):
    """The posterior over a function, with Student-t noise of so many degrees of freedom and variance.

    A new target is normal given the scale lambda of its noise; averages over lambda are by the trapezoidal rule in
    log lambda, a mixture of about a hundred normal distributions with one mean. Quantiles are found by bisection.
    """

    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("noise",)

    is_normal: ClassVar[bool] = False

    function: Predictor  # of a linear model, or a process
    degrees: float  # of freedom
    noise: float  # its variance, in the units of the target

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) of the function, or of a new target if ``noise``."""
        mean, spread = self.function.moments(X, variance, False)
        return mean, spread if spread is None or not noise else spread + self.noise

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets."""
        C = self.function.covariance(X, False)
        return C + self.noise * np.eye(len(C)) if noise else C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        drawn = self.function.samples(X, n_samples, rng, False)
        return drawn + np.sqrt(self._scale2) * rng.standard_t(self.degrees, drawn.shape) if noise else drawn

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Quantiles (n, n_q) of a new target, or of the function, at X."""
        mean, variances, log_share = self._mixture(X, noise)
        shares, reach = np.exp(log_share), np.sqrt(variances)
        tail = np.maximum(q, 1.0 - q)  # by symmetry the upper half
        low, high = np.zeros((len(mean), len(q))), np.full((len(mean), len(q)), 1.0) * reach.max(axis=1)[:, None] * 40.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = np.einsum("k,nqk->nq", shares, ndtr(middle[:, :, None] / reach[:, None, :])) < tail
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return mean[:, None] + np.where(q >= 0.5, high, -high)

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log density (n,) of targets y (n,) at X."""
        mean, variances, log_share = self._mixture(X, True)
        squares = (y - mean)[:, None] ** 2
        return logsumexp(log_share - 0.5 * (np.log(2.0 * np.pi * variances) + squares / variances), axis=1)

    @property
    def _scale2(self) -> float:
        """sigma^2: the noise has the variance sigma^2 nu / (nu - 2)."""
        return self.noise * (self.degrees - 2.0) / self.degrees

    def _mixture(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean (n,), variances (n, K) and logarithms of the shares (K,) of a new target, or of the function."""
        mean, spread = self.function.moments(X, True, False)
        assert spread is not None
        log_scale, log_share = scale_nodes(self.degrees) if noise else (np.full(1, np.inf), np.zeros(1))
        return mean, spread[:, None] + self._scale2 * np.exp(-log_scale), log_share

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return not self.function.is_count and 2.0 < self.degrees < np.inf


@lru_cache(maxsize=32)
def scale_nodes(degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (K,) in log lambda and logarithms of their weights (K,) for lambda ~ Gamma(degrees/2, degrees/2).

    >>> log_scale, log_weight = scale_nodes(3.0)
    >>> bool(np.isclose(np.exp(log_weight).sum(), 1.0)), bool(np.isclose(np.exp(log_weight + log_scale).sum(), 1.0))
    (True, True)
    """
    a = 0.5 * degrees
    step = min(_STEP, _STANDARD_STEP / np.sqrt(a))
    s = np.arange(-2.0 - _DEPTH / a, 5.0, step)
    log_density = a * np.log(a) - gammaln(a) + a * s - a * np.exp(s)
    kept = log_density > log_density.max() - _DEPTH
    return s[kept], log_density[kept] + np.log(step)
