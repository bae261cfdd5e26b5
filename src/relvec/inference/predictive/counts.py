"""Predictions of counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, ndtri, pdtr

from relvec.inference.likelihoods import LOG_NORMAL_WEIGHTS, NORMAL_NODES
from relvec.inference.predictive.contract import Predictor
from relvec.inference.predictive.linear import LinearPredictor

_MAX_LOG_RATE = 700.0  # exp of more overflows
_MAX_DEVIATION = 1e150  # the square of more overflows


@dataclass(frozen=True, eq=False)
class CountPredictor(Predictor):
    """Counts with the rate exp(f(x)) for a Gaussian posterior over f: averages over f are exact or by quadrature."""

    is_normal: ClassVar[bool] = False
    is_count: ClassVar[bool] = True

    latent: LinearPredictor  # the posterior over f

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and variance (n,) of the rate, or of a new count if ``noise``: those of a log-normal variable."""
        f, spread = self._latent(X)
        mean = _rate(f + 0.5 * spread)
        if not variance:
            return mean, None
        with np.errstate(over="ignore"):
            deviation = np.minimum(mean * np.sqrt(np.expm1(np.minimum(spread, _MAX_LOG_RATE))), _MAX_DEVIATION)
        return mean, deviation**2 + (mean if noise else 0.0)

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the rates, or of new counts."""
        mean, _ = self.moments(X, False, False)
        C = np.outer(mean, mean) * np.expm1(self.latent.covariance(X, False))
        return C + np.diag(mean) if noise else C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Rates (n, n_samples) drawn from the posterior, or counts."""
        rate = _rate(self.latent.samples(X, n_samples, rng, False))
        return rng.poisson(rate).astype(float) if noise else rate

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Quantiles (n, n_q) of the rate, or of a new count: the least one with P(not more) >= q."""
        f, spread = self._latent(X)
        if not noise:
            return _rate(f[:, None] + np.sqrt(spread)[:, None] * ndtri(q))
        low, high = np.full((len(f), len(q)), -1.0), np.ones((len(f), len(q)))
        while np.any(short := self._cumulative(high, f, spread) < q):
            low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
        # Beyond 2^53 no number may lie between two: a search for a gap of 1 would not end.
        while np.any(open := (low < (middle := np.floor(0.5 * low + 0.5 * high))) & (middle < high)):
            reached = self._cumulative(middle, f, spread) >= q
            low, high = np.where(open & ~reached, middle, low), np.where(open & reached, middle, high)
        return high

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log probability (n,) of counts y (n,), averaged over the posterior."""
        f, spread = self._latent(X)
        rates = f[:, None] + np.sqrt(spread)[:, None] * NORMAL_NODES
        return logsumexp(y[:, None] * rates - _rate(rates) - gammaln(y + 1.0)[:, None] + LOG_NORMAL_WEIGHTS, axis=1)

    def _latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, spread = self.latent.moments(X, True, False)
        assert spread is not None
        return mean, spread

    def _cumulative(self, count: np.ndarray, f: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """P(t <= count) for counts (n, n_q)."""
        total = np.zeros(count.shape)
        for node, weight in zip(NORMAL_NODES, np.exp(LOG_NORMAL_WEIGHTS), strict=True):
            total += weight * pdtr(count, _rate(f + np.sqrt(spread) * node)[:, None])
        return total


def _rate(f: np.ndarray) -> np.ndarray:
    """exp(f), limited to a rate whose double does not overflow."""
    return np.exp(np.minimum(f, _MAX_LOG_RATE))
