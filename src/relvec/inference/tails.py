"""Student-t densities by their variance and tail, one over the degrees of freedom: a tail of zero is normal.

A variance that is known up to a factor, whose reciprocal has a gamma distribution, makes a normal variable a t: with nu
degrees of freedom the logarithm of that factor has a variance of about 2 / nu.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, ndtri, stdtrit

MAX_LOG_VARIANCE = 4.0  # of the logarithm of a variable: beyond, its moments mean nothing
MOST_TAIL = 0.4  # 2.5 degrees of freedom: the variance is five times the squared scale
TAILS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, MOST_TAIL)
TAIL_GAIN = 3.0  # nats that heavier tails have to gain
_LEAST_TAIL = 1e-5  # less is normal to rounding
_SCALE_ROUNDS = 30
_MIDDLE, _LEAST_HELD = 0.9, 0.85  # of the errors; the share that intervals of these have to hold
_LEAST_FACTOR = 1e-12  # of variances: the rows would have no error


def log_density(squares: np.ndarray, variance: np.ndarray, tail: np.ndarray | float) -> np.ndarray:
    """Log density (n,) at squared distances (n,) from the mean, for variances (n,) and tails (n,).

    >>> from scipy.stats import t
    >>> bool(np.isclose(log_density(4.0, 5.0 / 3.0, 0.2), t.logpdf(2.0, 5.0)))
    True
    """
    tail = np.asarray(tail, dtype=float)
    nu = 1.0 / np.maximum(tail, _LEAST_TAIL)
    scale2 = variance * (1.0 - 2.0 / nu)
    heavy = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu * scale2)
    heavy = heavy - 0.5 * (nu + 1.0) * np.log1p(squares / (nu * scale2))
    return np.where(tail > _LEAST_TAIL, heavy, -0.5 * (np.log(2.0 * np.pi * variance) + squares / variance))


def join(tail: float, spread: np.ndarray | float) -> np.ndarray:
    """Tails (n,) where the logarithm of the variance is uncertain as well, with these variances (n,).

    >>> join(0.1, np.array([0.0, 0.2])).tolist()
    [0.1, 0.2]
    """
    return np.minimum(tail + 0.5 * np.asarray(spread), MOST_TAIL)


def least_tail(n_rows: int) -> float:
    """Return the tail of a variance that n rows tell: one over n - 1 degrees of freedom."""
    return min(1.0 / max(n_rows - 1, 1), MOST_TAIL)


def fit_tail(squares: np.ndarray, weights: np.ndarray, n_told: int) -> tuple[float, float]:
    """Return the factor of variances, and the tail, of most density for squared errors (n,) in these variances.

    The factor of a tail is found by the rounds of EM (Lange, Little and Taylor 1989); a heavier tail has to gain three
    nats. The variance is told by so many rows, or groups of rows, alone: no tail is lighter than theirs. With
    errors of heavier tails than any t's intervals would hold few of them: those of 90 % are widened to hold as many.

    >>> rng = np.random.default_rng(0)
    >>> factor, tail = fit_tail(4.0 * rng.standard_normal(1000) ** 2, np.ones(1000), 1000)
    >>> bool(3.5 < factor < 4.5), tail < 0.01, fit_tail(rng.standard_t(3.0, 1000) ** 2, np.ones(1000), 1000)[1] > 0.2
    (True, True, True)
    """
    share, found = weights / weights.sum(), []
    for own in TAILS:
        tail = float(join(own, 2.0 * least_tail(n_told)))
        factor = max(float(share @ squares), _LEAST_FACTOR)
        if tail > _LEAST_TAIL:
            nu = 1.0 / tail
            for _ in range(_SCALE_ROUNDS):
                factor = max(float(share @ ((nu + 1.0) * squares / (nu - 2.0 + squares / factor))), _LEAST_FACTOR)
        density = share @ log_density(squares, np.full(len(squares), factor), tail)
        gain = density * len(squares) - (TAIL_GAIN if own > 0.0 else 0.0)
        found.append((gain, factor, tail))
    _, factor, tail = max(found)
    reach = quantiles(np.array([0.5 + 0.5 * _MIDDLE]), tail)[0, 0] ** 2
    if share @ (squares <= factor * reach) < _LEAST_HELD:
        order = np.argsort(squares, kind="stable")
        most = int(np.searchsorted(np.cumsum(share[order]), _MIDDLE - 1e-9))
        factor = float(squares[order[most]]) / reach * (1.0 + 1e-9)
    return factor, tail


def best_tail(
    squares: np.ndarray, logs: np.ndarray, spread: np.ndarray | float, w: np.ndarray, factors: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """Return the factor of variances and the tail of most density; a heavier tail has to gain three nats.

    squares, logs, spread : (n,) squared errors, logarithms of their variances, and what is uncertain about these.
    factors : those that are tried.
    Returns the factor, log densities (n,) and the tail.
    """
    found = []
    for tail in TAILS:
        for factor in factors:
            density = log_density(squares, factor * np.exp(logs), join(tail, spread))
            gain = w @ density / w.sum() * len(squares) - (TAIL_GAIN if tail > 0.0 else 0.0)
            found.append((gain, factor, density, tail))
    _, factor, density, tail = max(found, key=lambda each: each[0])
    return float(factor), density, float(tail)


def quantiles(q: np.ndarray, tail: np.ndarray | float) -> np.ndarray:
    """Quantiles (n, n_q), in standard deviations, for probabilities (n_q,) and tails (n,)."""
    tail = np.reshape(np.asarray(tail, dtype=float), (-1, 1))
    nu = 1.0 / np.maximum(tail, _LEAST_TAIL)
    return np.where(tail > _LEAST_TAIL, stdtrit(nu, q) * np.sqrt(1.0 - 2.0 / nu), ndtri(q))


def draw_factors(tail: np.ndarray, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
    """Factors (n, n_samples) of variances, of mean one, that make normal draws ones of these tails (n,)."""
    half = 0.5 / np.maximum(np.asarray(tail, dtype=float), _LEAST_TAIL)[:, None]
    drawn = (half - 1.0) / np.maximum(rng.standard_gamma(half, (len(half), n_samples)), np.finfo(float).tiny)
    return np.where(np.reshape(tail, (-1, 1)) > _LEAST_TAIL, drawn, 1.0)
