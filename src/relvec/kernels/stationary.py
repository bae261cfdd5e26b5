"""Kernels of the scaled distance between two points, and how that distance is computed."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from relvec.kernels.base import Kernel, ScaledKernel, Width, check_row_pair
from relvec.runtime.arrays import is_device_array, namespace, overwrite, squares

_MAX_PAIRS_BY_DIFFERENCES = 2048  # up to which a matrix product is not faster


class StationaryKernel(ScaledKernel):
    """Kernels f(D2), D2 = sum_k (x_k - z_k)^2 / width_k^2. A subclass gives f, f' (both may overwrite D2) and f''.

    Its width can then be learned and its centres moved, like those of the kernels here.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class InverseSquareRoot(StationaryKernel):
    ...     width: float = 1.0
    ...     positive_definite = True
    ...     def _profile(self, D2):
    ...         return (1.0 + D2) ** -0.5
    ...     def _derivative(self, D2):
    ...         return -0.5 * (1.0 + D2) ** -1.5
    ...     def _second_derivative(self, D2):
    ...         return 0.75 * (1.0 + D2) ** -2.5
    >>> InverseSquareRoot(width=2.0)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.7071]])
    """

    _has_root: ClassVar[bool] = False  # whether f has a root of D2: then small distances need all digits

    @abstractmethod
    def _profile(self, D2: np.ndarray) -> np.ndarray:
        """f(D2), elementwise."""

    @abstractmethod
    def _derivative(self, D2: np.ndarray) -> np.ndarray:
        """f'(D2), elementwise."""

    @abstractmethod
    def _second_derivative(self, D2: np.ndarray) -> np.ndarray:
        """f''(D2), elementwise; may not overwrite D2."""

    def profile_derivatives(self, X: ArrayLike, Z: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """f'(D2) and f''(D2), each (n, m), from which derivatives with respect to the centres are computed."""
        X, Z = check_row_pair(X, Z)
        D2 = squared_distances(self.scale_rows(X), self.scale_rows(Z))
        second = self._second_derivative(D2)
        return self._derivative(D2), second

    @property
    def theta(self) -> np.ndarray:
        return np.log(np.atleast_1d(self.width_array()))

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        return replace(self, width=self._width_from(parameters))  # type: ignore[type-var]

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return self._profile(squared_distances(self.scale_rows(X), self.scale_rows(Z), self._has_root))

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return self._profile(0.0 * X[:, 0])

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U, V = self.scale_rows(X), self.scale_rows(Z)
        G = self._derivative(squared_distances(U, V))
        G *= K_bar
        # With G = dF/dD2 and D2 = sum_k (u_k - v_k)^2, u = x/width, v = z/width, the square multiplied out:
        #   dF/dv_jk         = -2 sum_i G_ij (u_ik - v_jk)   = 2 (c_j v_jk - (G'U)_jk),   c = column sums of G
        #   dF/dlog width_k  = -2 sum_ij G_ij (u_ik - v_jk)^2, from the row and column sums and G'U alone.
        centre = _middle(V)  # the expansion loses fewest digits around the data
        U -= centre
        V -= centre
        GU, column, row = G.T @ U, G.sum(axis=0)[:, None], G.sum(axis=1)
        V_bar = 2.0 * (column * V - GU)
        log_width_bar = -2.0 * (row @ U**2 + ((column * V - 2.0 * GU) * V).sum(axis=0))
        with np.errstate(over="ignore"):  # inputs below 1e-308 have derivatives that no double holds
            return self._width_bar(log_width_bar), V_bar / self.width_array()


@dataclass(frozen=True)
class Gaussian(StationaryKernel):
    """exp(-|x - z|^2 / width^2), T01 eq. (30); a width per feature gives T01 eq. (31), eta_k = width_k^-2.

    >>> Gaussian(width=2.0)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    width: Width = "scale"
    positive_definite = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        return overwrite("exp", overwrite("negative", D2))  # T01 eqs. (30) and (31)

    def _derivative(self, D2: np.ndarray) -> np.ndarray:
        return np.negative(self._profile(D2), out=D2)

    def _second_derivative(self, D2: np.ndarray) -> np.ndarray:
        return np.exp(-D2)


@dataclass(frozen=True)
class Laplace(StationaryKernel):
    """exp(-|x - z| / width), with the Euclidean distance.

    Not differentiable where x = z; the derivative there counts as 0.

    >>> Laplace(width=2.0)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    width: Width = "scale"
    positive_definite = True
    _has_root = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        return overwrite("exp", overwrite("negative", overwrite("sqrt", D2)))

    def _derivative(self, D2: np.ndarray) -> np.ndarray:
        distance = np.sqrt(D2, out=D2)
        slope = np.exp(-distance)
        distance *= -2.0
        return np.divide(slope, distance, out=np.zeros_like(slope), where=distance != 0)

    def _second_derivative(self, D2: np.ndarray) -> np.ndarray:
        distance = np.sqrt(D2)
        bend = np.exp(-distance) * (1.0 + distance)
        return np.divide(bend, 4.0 * distance**3, out=np.zeros_like(bend), where=distance > 0)


@dataclass(frozen=True)
class Cauchy(StationaryKernel):
    """1 / (1 + |x - z|^2 / width^2).

    >>> Cauchy(width=2.0)([[0.0]], [[0.0], [2.0]])
    array([[1. , 0.5]])
    """

    width: Width = "scale"
    positive_definite = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        D2 += 1.0
        return overwrite("reciprocal", D2)

    def _derivative(self, D2: np.ndarray) -> np.ndarray:
        f = self._profile(D2)
        return np.negative(np.square(f, out=f), out=f)

    def _second_derivative(self, D2: np.ndarray) -> np.ndarray:
        return 2.0 / (1.0 + D2) ** 3


@dataclass(frozen=True)
class LogDistance(StationaryKernel):
    """log(1 + |x - z|^2 / width^2): zero at the centre and growing without bound (RQ05 section 4, figure 1).

    Not positive definite: its diagonal is zero.

    >>> LogDistance()([[0.0]], [[0.0], [1.0]]).round(4)
    array([[0.    , 0.6931]])
    """

    width: Width = 1.0
    positive_definite = False

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        return overwrite("log1p", D2)

    def _derivative(self, D2: np.ndarray) -> np.ndarray:
        D2 += 1.0
        return np.reciprocal(D2, out=D2)

    def _second_derivative(self, D2: np.ndarray) -> np.ndarray:
        return -1.0 / (1.0 + D2) ** 2


@dataclass(frozen=True)
class Matern(StationaryKernel):
    """(1 + a) exp(-a) for nu = 1.5, (1 + a + a^2/3) exp(-a) for nu = 2.5; a = sqrt(2 nu) |x - z| / width.

    >>> Matern(nu=2.5, width=2.0)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.   , 0.524]])
    """

    nu: float = 1.5
    width: Width = "scale"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (1.5, 2.5):
            raise ValueError(
                f"nu must be 1.5 or 2.5; got {self.nu!r} (Laplace is nu = 0.5, Gaussian the limit of large nu)"
            )

    positive_definite = True
    _has_root = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        a = self._distance(D2)
        decay = namespace(a).exp(-a)
        a *= 1.0 if self.nu == 1.5 else 1.0 + a / 3.0
        a += 1.0
        a *= decay
        return a

    def _derivative(self, D2: np.ndarray) -> np.ndarray:
        # d/dD2 = (nu/a) d/da, and d/da gives -a exp(-a) for nu = 1.5, -(a/3) (1 + a) exp(-a) for nu = 2.5
        a = self._distance(D2)
        slope = np.exp(-a)
        slope *= -1.5 if self.nu == 1.5 else (a + 1.0) * (-2.5 / 3.0)
        return slope

    def _second_derivative(self, D2: np.ndarray) -> np.ndarray:
        # the same once more: 2.25 exp(-a) / a, without limit at a = 0 (counted as 0), and 25/12 exp(-a)
        a = self._distance(D2.copy())
        if self.nu == 2.5:
            return 25.0 / 12.0 * np.exp(-a)
        return np.divide(2.25 * np.exp(-a), a, out=np.zeros_like(a), where=a > 0)

    def _distance(self, D2: np.ndarray) -> np.ndarray:
        distance = overwrite("sqrt", D2)
        distance *= float(np.sqrt(2.0 * self.nu))
        return distance


def squared_distances(U: np.ndarray, V: np.ndarray, exact: bool = True) -> np.ndarray:
    """|u_i - v_j|^2, shape (n, m), finite even where the square overflows, so that no profile meets inf * 0.

    Unless ``exact``, array libraries without `cdist` use a matrix product where there are many features.
    """
    if is_device_array(U):
        return _distances_on_device(U, V, exact)
    few = U.shape[1] <= 8 or len(U) * len(V) <= _MAX_PAIRS_BY_DIFFERENCES
    D2 = cdist(U, V, "sqeuclidean") if few else _distances_by_product(U, V)
    return np.minimum(D2, 1e300, out=D2)


def _middle(V: np.ndarray) -> np.ndarray | float:
    """Return the mean (d,) of rows V (m, d); of a constant column its value, from which no rounding errors differ."""
    if not len(V):
        return 0.0
    with np.errstate(over="ignore"):
        return np.where((V == V[0]).all(axis=0), V[0], V.mean(axis=0))


def _distances_by_product(U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """|u|^2 - 2 u'v + |v|^2, one matrix product; the few entries that lose digits by cancellation are recomputed."""
    centre = V.mean(axis=0)
    A, B = U - centre, V - centre
    largest = max(np.abs(A).max(), np.abs(B).max())
    if largest > 1e140:  # the squares would overflow
        return cdist(U, V, "sqeuclidean")
    a2, b2 = (A**2).sum(axis=1), (B**2).sum(axis=1)
    D2 = A @ B.T
    D2 *= -2.0
    D2 += a2[:, None]
    D2 += b2
    # The error is about eps (|a|^2 + |b|^2); above this threshold it is at most 1e-8 of the entry itself. Entries
    # below are recomputed, so that the distance of a point to itself is 0 and not 1e-15, whose root is 3e-8.
    near = np.flatnonzero(D2 <= 1e-7 * (a2.max() + b2.max()))
    if near.size > 4 * max(D2.shape):
        return cdist(U, V, "sqeuclidean")
    i, j = np.unravel_index(near, D2.shape)
    D2[i, j] = ((A[i] - B[j]) ** 2).sum(axis=1)
    return D2


def _distances_on_device(U: np.ndarray, V: np.ndarray, exact: bool) -> np.ndarray:
    xp = namespace(U)
    if U.shape[1] <= 8 or exact:
        D2 = (U[:, 0][:, None] - V[:, 0][None, :]) ** 2
        for k in range(1, U.shape[1]):
            D2 += (U[:, k][:, None] - V[:, k][None, :]) ** 2
    else:
        centre = xp.mean(V, axis=0)
        A, B = U - centre, V - centre
        D2 = squares(A, 1)[:, None] + squares(B, 1)[None, :]
        D2 -= 2.0 * (A @ B.T)
    return xp.clip(D2, 0.0, 1e300 if D2.dtype == xp.float64 else 1e37)
