"""Priors that the papers look at: over a weight, and over functions."""

from __future__ import annotations

import math

import numpy as np


def weight_log_density(w: np.ndarray, a: float, b: float) -> np.ndarray:
    """Log density of a weight with its precision integrated out over Gamma(alpha | a, b): a Student t, T01 eq. (32).

    As a and b go to 0 it goes to a multiple of 1/|w|, the prior that makes the models sparse.

    Parameters
    ----------
    w : (...) weights.
    a, b : shape and rate of the Gamma distribution, both positive.

    Examples
    --------
    >>> weight_log_density(np.array([0.0, 1.0]), 2.0, 3.0).round(4)
    array([-1.1836, -1.5689])
    """
    if not (a > 0 and b > 0):
        raise ValueError(f"a and b must be positive for a proper density, got {a!r} and {b!r}")
    constant = a * math.log(b) + math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(2.0 * math.pi)
    return constant - (a + 0.5) * np.log(b + 0.5 * np.asarray(w) ** 2)


def prior_covariance(
    Phi: np.ndarray, Phi_z: np.ndarray, alpha: np.ndarray, added: tuple[np.ndarray, np.ndarray, float] | None = None
) -> np.ndarray:
    """Covariance (n, m) of the model's functions a priori, T01 eq. (59) and RQ05 eq. (8): Phi A^-1 Phi_z'.

    Parameters
    ----------
    Phi, Phi_z : (n, k), (m, k) basis functions at two sets of points.
    alpha : (k,) weight precisions.
    added : optional (phi, phi_z, alpha_*) of one more function, (n,), (m,) and its precision: RVM*, RQ05 eq. (9).

    Examples
    --------
    >>> prior_covariance(np.ones((2, 1)), np.ones((1, 1)), np.array([4.0]))
    array([[0.25],
           [0.25]])
    """
    C = (Phi / alpha) @ Phi_z.T
    return C if added is None else C + np.outer(added[0], added[1]) / added[2]


def sample_functions(Phi: np.ndarray, alpha: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Functions (n, n_samples) drawn from the prior w ~ N(0, A^-1), at the points of Phi (n, k).

    Those of the posterior are drawn by `RelevanceVectorRegressor.sample_y`.

    Examples
    --------
    >>> sample_functions(np.ones((3, 2)), np.array([1.0, 2.0]), 5, np.random.default_rng(0)).shape
    (3, 5)
    """
    return Phi @ (rng.standard_normal((Phi.shape[1], n_samples)) / np.sqrt(alpha)[:, None])
