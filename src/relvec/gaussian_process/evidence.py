"""The exact evidence of a process with a composite kernel, its gradient, and leave-one-out densities.

With merged rows (means y, weights w, N = sum w, n rows) the likelihood of a group of w targets is
prod_k N(y_k | f, s) = N(mean | f, s / w) (2 pi s)^(-(w - 1)/2) w^(-1/2) exp(-scatter / 2 s), so that

    log p(t) = log N(y | 0, K + s W^-1) - (N - n)/2 log(2 pi s) - 1/2 sum log w - scatter / (2 s):

the evidence of all rows, in O(n^3) for the distinct ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dger
from scipy.linalg.lapack import dpotri, dpotrs

from relvec.gaussian_process.kernel import Evaluated, Structure
from relvec.gaussian_process.rows import Rows
from relvec.inference.linalg import diagonal_of, factor, factor_lower, invert, log_determinant
from relvec.runtime.arrays import Array, Scratch, add_diagonal, like
from relvec.runtime.machine import all_threads

_SHORT_CHAINS = (
    30.0  # factorisations wait for each other: they gain from threads where a product 30 times as short does
)


@dataclass(frozen=True, eq=False)
class ExactPosterior:
    """The factored covariance of the targets: lower L (n, n), K^-1 y (n,)."""

    L: np.ndarray
    weights: np.ndarray


def evidence(
    structure: Structure, theta: np.ndarray, rows: Rows, scratch: Scratch | None = None
) -> tuple[float, np.ndarray]:
    """Log p(t | theta) of all rows and its gradient (p,) with respect to theta; O(n^3), on the device of their inputs.

    Those who ask again and again, for one structure and the same rows, give a `scratch` for the matrices.
    """
    scratch = scratch or Scratch()
    scratch.begin()
    with all_threads(len(rows) ** 3 / _SHORT_CHAINS):
        return _evidence(structure, theta, rows, scratch)


def _evidence(structure: Structure, theta: np.ndarray, rows: Rows, scratch: Scratch) -> tuple[float, np.ndarray]:
    s, excess = structure.noise(theta), rows.total - len(rows)  # N - n
    kernel = Evaluated(structure, theta, rows.X, scratch=scratch)
    fit, log_det, bar = _normal_density(kernel.K, s / rows.weight, rows.y, scratch)
    value = (
        -0.5 * fit - 0.5 * log_det - 0.5 * len(rows) * np.log(2.0 * np.pi)
        - 0.5 * excess * np.log(2.0 * np.pi * s) - 0.5 * np.log(rows.weight).sum() - 0.5 * rows.scatter.sum() / s
    )  # fmt: skip
    slope = kernel.vjp(bar)
    slope[-1] = s * (diagonal_of(bar) / rows.weight).sum() - 0.5 * excess + 0.5 * rows.scatter.sum() / s
    return float(value), slope


def _normal_density(K: Array, noise: np.ndarray, y: np.ndarray, scratch: Scratch) -> tuple[float, float, Array]:
    """y'C^-1 y, log |C| and the derivative of log N(y | 0, C) by C (n, n), for C = K + diag(noise)."""
    if isinstance(K, np.ndarray):
        K.flat[:: len(K) + 1] += noise
        L = factor(K, scratch=scratch)
        alpha, log_det = dpotrs(L, y, lower=1)[0], log_determinant(L)
        return float(y @ alpha), log_det, _outer_less_inverse(L, alpha)
    L, t = factor_lower(add_diagonal(K, noise)), like(K, y)
    inverse = invert(L)
    alpha = inverse @ t
    return float(t @ alpha), log_determinant(L), 0.5 * (alpha[:, None] * alpha[None, :] - inverse)  # RW eq. (5.9)


def _outer_less_inverse(L: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """1/2 (alpha alpha' - K^-1), the derivative of log N(y | 0, K) with respect to K (RW eq. (5.9)), in L's memory.

    K^-1 comes as its upper triangle, off-diagonal elements twice: what it multiplies is symmetric.
    """
    bar = dpotri(L, lower=1, overwrite_c=1)[0]  # the lower triangle of K^-1, zeros above
    bar *= -1.0
    bar.T.flat[:: len(bar) + 1] *= 0.5
    return dger(0.5, alpha, alpha, a=bar, overwrite_a=1).T


def posterior(structure: Structure, theta: np.ndarray, rows: Rows) -> ExactPosterior:
    """Return what predictions at theta need."""
    K = structure(theta, rows.X)
    K.flat[:: len(K) + 1] += structure.noise(theta) / rows.weight
    L = factor(K)
    return ExactPosterior(L, dpotrs(L, rows.y, lower=1)[0])


def predict(
    structure: Structure, theta: np.ndarray, rows: Rows, fitted: ExactPosterior, X: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, noise included, of the targets at X (q, d): RW eqs. (2.25), (2.26)."""
    C = structure(theta, rows.X, X)
    mean = C.T @ fitted.weights
    half = solve_triangular(fitted.L, C, lower=True, check_finite=False)
    variance = structure.prior_variance(theta, X) - np.einsum("ij,ij->j", half, half)
    return mean, np.maximum(variance, 0.0) + structure.noise(theta)


def losses(rows: Rows, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Negative log density (n,) of single targets of merged rows that have these means and variances (n,)."""
    scatter = (rows.y - mean) ** 2 + rows.scatter / rows.weight
    return 0.5 * np.log(2.0 * np.pi * variance) + 0.5 * scatter / variance


def leave_one_out(structure: Structure, theta: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance (noise s/w included) of every merged row from those of other groups: RW eq. (5.12)."""
    fitted = posterior(structure, theta, rows)
    if rows.group is None:
        inverse = dpotri(fitted.L, lower=1)[0].diagonal()
        return rows.y - fitted.weights / inverse, 1.0 / inverse
    return leave_out(fitted, rows.y, rows.labels)


def leave_out(fitted: ExactPosterior, y: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of each row with targets y (n,) from the rows of other folds (n,).

    RW eq. (5.12) of several rows at once: with P the block of K^-1 of a fold, P^-1 is its covariance given the others.
    """
    inverse, mean, variance = invert(fitted.L), np.empty(len(y)), np.empty(len(y))
    for i in np.unique(fold):
        own = np.flatnonzero(fold == i)
        covariance = invert(factor(inverse[np.ix_(own, own)]))
        mean[own] = y[own] - covariance @ fitted.weights[own]
        variance[own] = covariance.diagonal()
    return mean, variance
