"""Student-t densities by their variance and tail, one over the degrees of freedom: a tail of zero is normal.

A variance that is known up to a factor, whose reciprocal has a gamma distribution, makes a normal variable a t: with nu
degrees of freedom the logarithm of that factor has a variance of about 2 / nu.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, ndtri, stdtrit

MOST_TAIL = 0.4  # 2.5 degrees of freedom: the variance is five times the squared scale
_LEAST_TAIL = 1e-5  # less is normal to rounding


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
