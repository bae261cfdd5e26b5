"""The few matrix factorisations everything else rests on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack, solve_triangular

from relvec.runtime.arrays import Array, Scratch, add_diagonal, namespace, take, to_host
from relvec.runtime.machine import all_threads, product

# Longer columns of X make the normal equations I + X'X lose more digits than the evidence may lose.
NORMAL_EQUATIONS_LIMIT = 1e8

_STRIP_COLUMNS = 96  # of a triangular product at once
_JITTERS = (1e-10, 1e-8, 1e-6)  # of the largest diagonal element, added where a matrix cannot be factored as it is


class SingularError(ValueError):
    """A matrix that must be positive definite is not, or holds NaN or infinities."""


@dataclass(frozen=True, eq=False)
class Reflections:
    """Q (n + k, k) of a QR factorisation [X; I] = Q U for X (n, k), as Householder's reflections.

    X U^-1, the first n rows of Q, has lost as many digits as X is large; these have all of theirs.
    """

    packed: np.ndarray  # (n + k, k)
    tau: np.ndarray

    @property
    def top(self) -> np.ndarray:
        """The first n rows of Q (n, k)."""
        Q, _, _ = lapack.dorgqr(self.packed, self.tau, lwork=64 * len(self.tau))
        return Q[: len(Q) - len(self.tau)]

    def split(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Q'[z; 0] (k,), and what Q Q' leaves of z (n,)."""
        k = len(self.tau)
        whole = np.concatenate([z, np.zeros(k)])[:, None]
        whole, _, _ = lapack.dormqr("L", "T", self.packed, self.tau, whole, 64)
        inside = whole[:k, 0].copy()
        whole[:k] = 0.0
        whole, _, _ = lapack.dormqr("L", "N", self.packed, self.tau, whole, 64, overwrite_c=1)
        return inside, whole[: len(z), 0]


def factor_ridge(X: np.ndarray, gram: np.ndarray | None = None) -> np.ndarray:
    """Upper triangular U (k, k) with U'U = I + X'X for X (n, k).

    The eigenvalues of I + X'X are at least one, so the factor exists for every finite X. Large X is factored
    through a QR of [X; I], which never squares the condition number; small X by the cheaper Cholesky. ``gram`` is X'X
    where the caller has it, and is overwritten.

    >>> import numpy as np
    >>> X = np.array([[3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    >>> U = factor_ridge(X)
    >>> bool(np.allclose(U.T @ U, np.eye(2) + X.T @ X))
    True
    """
    U, _ = factor_ridge_and_basis(X, gram)
    return U * np.copysign(1.0, U.diagonal())[:, None]


def factor_ridge_and_basis(X: np.ndarray, gram: np.ndarray | None = None) -> tuple[np.ndarray, Reflections | None]:
    """Return U as `factor_ridge` does, and Q with [X; I] = Q U where X is large: its diagonal may be negative then."""
    n, k = X.shape
    if k == 0:
        return np.zeros((0, 0)), None
    if gram is None:
        with np.errstate(over="ignore", invalid="ignore"):  # squares beyond the range of a double: the QR needs none
            gram = X.T @ X
    size = gram.diagonal().max()
    if not (np.isfinite(size) or np.all(np.isfinite(X))):
        raise SingularError("a matrix of the model holds NaN or infinite values; rescale the basis functions")
    if size <= NORMAL_EQUATIONS_LIMIT:
        gram.flat[:: k + 1] += 1.0
        U, info = lapack.dpotrf(gram, lower=0, clean=1, overwrite_a=1)
        if info == 0:
            return U, None
    stacked = np.zeros((n + k, k), order="F")
    stacked[:n] = X
    stacked[n:].flat[:: k + 1] = 1.0
    packed, tau, _, info = lapack.dgeqrf(stacked, lwork=64 * k, overwrite_a=1)
    return np.triu(packed[:k]), Reflections(packed, tau)


def inverse_triangular(U: np.ndarray) -> np.ndarray:
    """Inverse of an upper triangular U (k, k) with non-zero diagonal."""
    if not U.shape[0]:
        return U
    V, info = lapack.dtrtri(U, lower=0)
    if info:
        raise SingularError("a triangular factor has a zero on its diagonal; this should not happen for I + X'X")
    return V


def triangular_product(A: np.ndarray, T: np.ndarray, lower: bool, out: np.ndarray) -> np.ndarray:
    """Return A T' (b, r) for A (b, r) and a triangular T (r, r), written to ``out``.

    In strips, which leave out nearly half of the multiplications as BLAS's trmm does; but other threads run meanwhile.

    >>> import numpy as np
    >>> T = np.array([[1.0, 0.0], [2.0, 3.0]])
    >>> triangular_product(np.array([[1.0, 1.0]]), T, True, np.empty((1, 2))).tolist()
    [[1.0, 5.0]]
    """
    r = len(T)
    for start in range(0, r, _STRIP_COLUMNS):
        stop = min(start + _STRIP_COLUMNS, r)
        some = slice(0, stop) if lower else slice(start, r)
        np.matmul(A[:, some], T[start:stop, some].T, out=out[:, start:stop])
    return out


def factor(K: np.ndarray, jitter: float = 0.0, scratch: Scratch | None = None) -> np.ndarray:
    """Lower Cholesky factor of symmetric K (n, n), in Fortran order; K is changed by at most the largest jitter.

    `jitter`, a share of the largest diagonal element, is added first; more only where K cannot be factored.
    """
    top, diagonal = K.diagonal().max(), K.diagonal().copy()
    for share in (jitter, *(extra for extra in _JITTERS if extra > jitter)):
        K.flat[:: len(K) + 1] = diagonal + share * top
        out = np.empty_like(K) if scratch is None else scratch.empty(*K.shape)
        np.copyto(out, K)
        L, info = lapack.dpotrf(out.T, lower=1, clean=1, overwrite_a=1)  # out.T: the same matrix, in Fortran order
        if info == 0:
            return L
    raise SingularError(f"the covariance of {len(K)} rows is not positive definite at pivot {info}")


def covariance_root(C: np.ndarray) -> np.ndarray:
    """Return a root A (n, n) of a covariance C = A A' that may be singular; NaN where C has values not finite."""
    if not np.isfinite(C).all():
        return np.full_like(C, np.nan)
    size, axes = np.linalg.eigh(C)
    return axes * np.sqrt(np.maximum(size, 0.0))


def factor_lower(K: Array, jitter: float = 0.0) -> Array:
    """Lower Cholesky factor of symmetric K (m, m) plus a jitter, a share of its largest diagonal element."""
    if isinstance(K, np.ndarray):
        with all_threads(float(len(K)) ** 3):
            return factor(K, jitter)
    xp, n = namespace(K), K.shape[0]
    top = float(xp.max(xp.linalg.diagonal(K)))
    for share in (jitter, *(extra for extra in _JITTERS if extra > jitter)):
        try:
            L = xp.linalg.cholesky(add_diagonal(K, share * top) if share else K)
        except Exception as error:  # each library has its own
            if "ositive" not in f"{error}" and "ositive" not in type(error).__name__:
                raise
            continue
        if bool(xp.all(xp.isfinite(L))):
            return L
    raise SingularError(f"the covariance of {n} rows is not positive definite")


def extend_features(K: Array, F: Array, block: np.ndarray, rounding: float = 0.0) -> Array:
    """Return the features (k, n) that k pivots add to F (m, n), of which F'F is the part of a covariance represented.

    K (k, n) has the covariances of the pivots, which are rows ``block`` (k,), with all rows; it is overwritten. What is
    left of them is a difference of numbers of the prior's size, and known to their ``rounding`` only.
    """
    K -= product(take(F, block, axis=1).T, F)
    return solve_lower(factor_lower(add_diagonal(take(K, block, axis=1), rounding)), K)


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


def diagonal_of(A: Array) -> np.ndarray:
    """Return the diagonal (m,) of a matrix (m, m), on the host."""
    return A.diagonal() if isinstance(A, np.ndarray) else to_host(namespace(A).linalg.diagonal(A))


def log_determinant(L: Array) -> float:
    """Log |L L'| of a lower triangular factor."""
    return 2.0 * float(np.log(diagonal_of(L)).sum())


def invert(L: Array) -> Array:
    """(L L')^-1 of a lower triangular factor (m, m)."""
    half = solve_lower(L, add_diagonal(0.0 * L, 1.0))
    return half.T @ half
