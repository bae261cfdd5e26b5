"""Triangular factors on the host or on a device, whichever the arrays are on."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from relvec.gaussian_process.evidence import NotPositiveDefinite, factor
from relvec.runtime.arrays import Array, add_diagonal, namespace, to_host
from relvec.runtime.machine import all_threads

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6)  # of the largest diagonal element: what a device may add to factor a matrix


def factor_lower(K: Array, jitter: float = 0.0) -> Array:
    """Lower Cholesky factor of symmetric K (m, m) plus a jitter, a share of its largest diagonal element."""
    if isinstance(K, np.ndarray):
        with all_threads(float(len(K)) ** 3):
            return factor(K, jitter)
    xp, n = namespace(K), K.shape[0]
    top = float(xp.max(xp.linalg.diagonal(K)))
    for share in (max(jitter, extra) for extra in _JITTERS):
        try:
            L = xp.linalg.cholesky(add_diagonal(K, share * top) if share else K)
        except Exception as error:  # each library has its own
            if "ositive" not in f"{error}" and "ositive" not in type(error).__name__:
                raise
            continue
        if bool(xp.all(xp.isfinite(L))):
            return L
    raise NotPositiveDefinite(f"the covariance of {n} rows is not positive definite")


def solve_lower(L: Array, B: Array, trans: bool = False) -> Array:
    """L^-1 B, or L^-T B, for lower triangular L (m, m) and B (m, n) or (m,); B is lost on the host."""
    if isinstance(L, np.ndarray):
        with all_threads(float(len(L)) ** 2 * B.size / max(len(L), 1)):
            return solve_triangular(L, B, lower=True, trans=int(trans), overwrite_b=True, check_finite=False)
    xp = namespace(L)
    if B.ndim == 1:
        return solve_lower(L, B[:, None], trans)[:, 0]
    if hasattr(L, "triu"):  # PyTorch
        return xp.linalg.solve_triangular(L.T if trans else L, B, upper=trans)
    return xp.linalg.solve(L.T if trans else L, B)


def log_determinant(L: Array) -> float:
    """Log |L L'| of a lower triangular factor."""
    diagonal = L.diagonal() if isinstance(L, np.ndarray) else to_host(namespace(L).linalg.diagonal(L))
    return 2.0 * float(np.log(diagonal).sum())


def invert(L: Array) -> Array:
    """(L L')^-1 of a lower triangular factor (m, m)."""
    half = solve_lower(L, add_diagonal(0.0 * L, 1.0))
    return half.T @ half
