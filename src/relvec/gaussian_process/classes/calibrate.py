"""Slope and moderation from out-of-fold signals, and the reliability curve."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from relvec.gaussian_process.classes.model import Calibration

MODERATIONS = (1.0, 0.3, 0.1)
_SPREAD = 0.35  # prior standard deviation of the logarithm of the slope
_WORTH = 1.0  # nats that a moderation other than 1 must gain


def log_densities(signals: np.ndarray, log_rates: np.ndarray, counts: np.ndarray, slope: float) -> np.ndarray:
    """(n,) log-likelihood of every row's counts (n, K); log_rates (K,) or (n, K)."""
    return (counts * log_softmax(log_rates + slope * signals, axis=1)).sum(1)


def calibrate(signals: Mapping[float, np.ndarray], log_rates: np.ndarray, counts: np.ndarray) -> Calibration:
    """Slope and moderation of most likelihood at rows that took no part, under a weak prior on the slope.

    signals : (n, K) for every moderation there is; log_rates, counts (n, K).
    """
    best, most = Calibration(), -np.inf
    for moderation, signal in signals.items():

        def loss(log_slope: float, signal: np.ndarray = signal) -> float:
            fit = log_densities(signal, log_rates, counts, np.exp(log_slope)).sum()
            return 0.5 * (log_slope / _SPREAD) ** 2 - fit

        found = minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded", options={"xatol": 1e-3})
        value = -float(found.fun) - _WORTH * (moderation != 1.0)
        if value > most:
            best, most = Calibration(float(np.exp(found.x)), moderation), value
    return best


def calibration_curve(P: np.ndarray, counts: np.ndarray, bins: int = 10) -> np.ndarray:
    """Reliability of probabilities P (n, K) for counts (n, K): rows of (mean probability, share, weight).

    Every class of every row is a forecast; bins hold equal weight. For two classes the second class alone.
    """
    p, hit, weight = P.ravel(), counts.ravel(), np.repeat(counts.sum(1), P.shape[1])
    if P.shape[1] == 2:
        p, hit, weight = P[:, 1], counts[:, 1], counts.sum(1)
    order = np.argsort(p, kind="stable")
    p, hit, weight = p[order], hit[order], weight[order]
    place = np.minimum((np.cumsum(weight) - 0.5 * weight) / weight.sum() * bins, bins - 1e-9).astype(int)
    total = np.bincount(place, weight, bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        table = np.c_[np.bincount(place, weight * p, bins) / total, np.bincount(place, hit, bins) / total, total]
    return table[total > 0]
