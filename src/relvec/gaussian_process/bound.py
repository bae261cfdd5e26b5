"""Bounds on the evidence of a process from m of its rows, in O(N m^2), and the sparse posterior that goes with them.

The vectors Z (m, d) are rows. With k(Z, Z) = L L' and the features A = L^-1 k(Z, X), Q = A'A is the part of K = k(X, X)
that the vectors represent. In whitened rows (targets and covariances times sqrt(w); the noise is s for all of them)

    lower = log N(y | 0, Q + s I) - tr(K - Q) / (2 s)                            Titsias 2009, eq. (9)
    upper = -1/2 [n log 2 pi + log|Q + s I| + y'(Q + (t + s) I)^-1 y],  t = tr(K - Q)      Titsias 2014, sec. 2

enclose log N(y | 0, K + s I). Both get the terms of merged rows, -(N - n)/2 log(2 pi s) - scatter / (2 s) (`evidence`;
the sums of log w cancel).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyrk

from relvec.gaussian_process.evidence import factor
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows

_JITTER = 1e-9  # Q only shrinks by it: the bounds stay bounds


@dataclass(frozen=True, eq=False)
class Bounds:
    """lower <= log p(t | theta) <= upper for rows of total weight N; `gap` = (upper - lower) / N."""

    lower: float
    upper: float
    total: float

    @property
    def gap(self) -> float:
        """What is left open, in nats a row."""
        return (self.upper - self.lower) / self.total


@dataclass(frozen=True, eq=False)
class Features:
    """L (m, m) of k(Z, Z), A (m, n) and targets y (n,) of the whitened rows, and what is left: diag(K - Q) (n,)."""

    L: np.ndarray
    A: np.ndarray
    y: np.ndarray
    left: np.ndarray


def features(structure: Structure, theta: np.ndarray, rows: Rows, Z: np.ndarray) -> Features:
    """The features of the rows on the vectors Z (m, d)."""
    root = np.sqrt(rows.weight)
    L = factor(structure(theta, Z), _JITTER)
    A = _solve(L, structure(theta, Z, rows.X) * root)
    left = rows.weight * structure.prior_variance(theta, rows.X) - np.einsum("ij,ij->j", A, A)
    return Features(L, A, rows.y * root, np.maximum(left, 0.0))


def factor_shifted(A: np.ndarray, s: float) -> np.ndarray:
    """Lower Cholesky factor of I + A A'/s (m, m)."""
    B = dsyrk(1.0 / s, A.T, trans=1, lower=1)  # A.T is in Fortran order where A is in C order
    B = np.tril(B) + np.tril(B, -1).T
    B.flat[:: len(B) + 1] += 1.0
    return factor(B)


def _solve(L: np.ndarray, B: np.ndarray) -> np.ndarray:
    return solve_triangular(L, B, lower=True, check_finite=False)


def bounds(structure: Structure, theta: np.ndarray, rows: Rows, Z: np.ndarray) -> Bounds:
    """Lower and upper bound on log p(t | theta) from the vectors Z (m, d)."""
    f, s = features(structure, theta, rows, Z), structure.noise(theta)
    left = f.left.sum()

    def fit(noise: float) -> tuple[float, float]:
        """y'(Q + noise I)^-1 y and log|I + Q/noise|."""
        LB = factor_shifted(f.A, noise)
        c = _solve(LB, f.A @ f.y) / noise
        return f.y @ f.y / noise - c @ c, 2.0 * np.log(LB.diagonal()).sum()

    (narrow, log_det), (wide, _) = fit(s), fit(s + left)
    level = -0.5 * (log_det + rows.total * np.log(2.0 * np.pi * s) + rows.scatter.sum() / s)  # with merged rows
    return Bounds(float(level - 0.5 * (narrow + left / s)), float(level - 0.5 * wide), rows.total)
