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
from relvec.gaussian_process.kernel import Evaluated, Structure
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


@dataclass(frozen=True, eq=False)
class _Factors(Features):
    """The features with LB (m, m), the root of I + A A'/s, and c = LB^-1 A y / s (m,)."""

    LB: np.ndarray
    c: np.ndarray


def features(structure: Structure, theta: np.ndarray, rows: Rows, Z: np.ndarray) -> Features:
    """The features of the rows on the vectors Z (m, d)."""
    return _features(structure, theta, rows, structure(theta, Z), structure(theta, Z, rows.X))


def _features(structure: Structure, theta: np.ndarray, rows: Rows, Kzz: np.ndarray, Kzx: np.ndarray) -> Features:
    root = np.sqrt(rows.weight)
    L = factor(Kzz, _JITTER)
    A = _solve(L, Kzx * root)
    left = rows.weight * structure.prior_variance(theta, rows.X) - np.einsum("ij,ij->j", A, A)
    return Features(L, A, rows.y * root, np.maximum(left, 0.0))


def _factors(structure: Structure, theta: np.ndarray, rows: Rows, Kzz: np.ndarray, Kzx: np.ndarray) -> _Factors:
    s, f = structure.noise(theta), _features(structure, theta, rows, Kzz, Kzx)
    LB = factor_shifted(f.A, s)
    return _Factors(f.L, f.A, f.y, f.left, LB, _solve(LB, f.A @ f.y) / s)


def factor_shifted(A: np.ndarray, s: float) -> np.ndarray:
    """Lower Cholesky factor of I + A A'/s (m, m)."""
    B = dsyrk(1.0 / s, A.T, trans=1, lower=1)  # A.T is in Fortran order where A is in C order
    B = np.tril(B) + np.tril(B, -1).T
    B.flat[:: len(B) + 1] += 1.0
    return factor(B)


def _solve(L: np.ndarray, B: np.ndarray, trans: int = 0) -> np.ndarray:
    return solve_triangular(L, B, lower=True, trans=trans, check_finite=False)


def _merged_terms(structure: Structure, theta: np.ndarray, rows: Rows) -> float:
    s = structure.noise(theta)
    return -0.5 * (rows.total - len(rows)) * np.log(2.0 * np.pi * s) - 0.5 * rows.scatter.sum() / s


def _lower(structure: Structure, theta: np.ndarray, rows: Rows, f: _Factors) -> float:
    s, n = structure.noise(theta), len(rows)
    fit = f.y @ f.y / s - f.c @ f.c
    log_det = n * np.log(2.0 * np.pi * s) + 2.0 * np.log(f.LB.diagonal()).sum()
    return float(-0.5 * (fit + log_det + f.left.sum() / s) + _merged_terms(structure, theta, rows))


def bounds(structure: Structure, theta: np.ndarray, rows: Rows, Z: np.ndarray) -> Bounds:
    """Lower and upper bound on log p(t | theta) from the vectors Z (m, d)."""
    f = _factors(structure, theta, rows, structure(theta, Z), structure(theta, Z, rows.X))
    s, n = structure.noise(theta), len(rows)
    wide = s + f.left.sum()
    LB = factor_shifted(f.A, wide)
    c = _solve(LB, f.A @ f.y) / wide
    log_det = n * np.log(2.0 * np.pi * s) + 2.0 * np.log(f.LB.diagonal()).sum()
    upper = -0.5 * (f.y @ f.y / wide - c @ c + log_det) + _merged_terms(structure, theta, rows)
    return Bounds(_lower(structure, theta, rows, f), float(upper), rows.total)


def lower_bound(structure: Structure, theta: np.ndarray, rows: Rows, Z: np.ndarray) -> tuple[float, np.ndarray]:
    """Titsias' bound and its gradient (p,) with respect to theta, at fixed vectors Z (m, d).

    With beta = (Q + s I)^-1 y and P = (Q + s I)^-1, the derivative of the bound with respect to Q is
    G = 1/2 (beta beta' - P + I/s); Q = A'A, so that those of k(Z, X) and k(Z, Z) are 2 H and -H U', where
    U = k(Z, Z)^-1 k(Z, X) = L^-T A and H = U G. By Woodbury s P = I - A'B^-1 A / s, so H needs no (n, n) matrix.
    """
    s, root = structure.noise(theta), np.sqrt(rows.weight)
    zz, zx = Evaluated(structure, theta, Z), Evaluated(structure, theta, Z, rows.X)
    f = _factors(structure, theta, rows, zz.K, zx.K)
    half = _solve(f.LB, f.A)  # LB^-1 A, so that A'B^-1 A = half'half
    beta = (f.y - half.T @ f.c) / s
    # A G = 1/2 [(A beta) beta' + A A' (B^-1 A) / s^2] and A A'/s = B - I: A A' B^-1 A / s = A - B^-1 A
    AG = (f.A - _solve(f.LB, half, trans=1)) / (2.0 * s)
    AG += np.outer(0.5 * (f.A @ beta), beta)
    H = _solve(f.L, AG, trans=1)
    slope = zx.vjp(2.0 * H * root) - zz.vjp(H @ _solve(f.L, f.A, trans=1).T)
    slope += structure.prior_variance_vjp(theta, rows.X, -0.5 * rows.weight / s)
    # d/d log s: s/2 (beta'beta - tr P) + tr(K - Q) / (2 s), and the terms of merged rows
    trace = (len(rows) - np.einsum("ij,ij->", half, half) / s) / s
    slope[-1] = 0.5 * s * (beta @ beta - trace) + 0.5 * f.left.sum() / s
    slope[-1] += -0.5 * (rows.total - len(rows)) + 0.5 * rows.scatter.sum() / s
    return _lower(structure, theta, rows, f), slope
