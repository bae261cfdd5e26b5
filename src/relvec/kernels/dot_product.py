"""Kernels of products of the inputs: linear, polynomial, and T01's linear spline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.kernels.base import LEARNED, Kernel, ParameterFreeKernel, ScaledKernel, Width
from relvec.runtime.arrays import namespace, squares


@dataclass(frozen=True)
class Polynomial(ScaledKernel):
    """(sum_k x_k z_k / width_k^2 + offset)^degree; positive definite where offset >= 0.

    theta holds the logarithms of the width(s) and, where it is positive, of the offset; both are learned together.

    >>> Polynomial(degree=2)([[1.0, 2.0]], [[3.0, 4.0]])
    array([[144.]])
    """

    degree: int = 3
    offset: float = 1.0
    width: Width = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree != int(self.degree) or self.degree < 1:
            raise ValueError(f"degree must be a positive whole number; got {self.degree!r}")
        if not np.isfinite(self.offset):
            raise ValueError(f"offset must be a finite number; got {self.offset!r}")
        object.__setattr__(self, "degree", int(self.degree))
        object.__setattr__(self, "offset", float(self.offset))

    @property
    def positive_definite(self) -> bool:
        return self.offset >= 0

    def learned_mask(self, n_features: int) -> np.ndarray:
        return np.append(super().learned_mask(n_features), [self.width in LEARNED] if self.offset > 0 else [])

    @property
    def theta(self) -> np.ndarray:
        offset = [self.offset] if self.offset > 0 else []
        return np.log(np.append(self.width_array(), offset))

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        if self.offset > 0:
            return replace(self, width=self._width_from(parameters[:-1]), offset=parameters[-1])
        return replace(self, width=self._width_from(parameters))

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        K = self._base(self.scale_rows(X), self.scale_rows(Z))
        return np.power(K, self.degree, out=K) if isinstance(K, np.ndarray) else K**self.degree

    def _base(self, U: np.ndarray, V: np.ndarray) -> np.ndarray:
        B = U @ V.T
        B += self.offset
        return B

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return (squares(self.scale_rows(X), 1) + self.offset) ** self.degree

    @np.errstate(over="ignore")  # inputs below 1e-308 have derivatives that no double holds
    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U, V = self.scale_rows(X), self.scale_rows(Z)
        G = self._base(U, V)
        np.power(G, self.degree - 1, out=G)
        G *= K_bar
        G *= self.degree  # dF/d(u'v + offset)
        V_bar = G.T @ U
        theta_bar = self._width_bar(-2.0 * (V_bar * V).sum(axis=0))
        if self.offset > 0:
            theta_bar = np.append(theta_bar, self.offset * G.sum())
        return theta_bar, V_bar / self.width_array()


@dataclass(frozen=True)
class Linear(ParameterFreeKernel):
    """x'z.

    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    positive_definite = True

    @np.errstate(over="ignore", invalid="ignore")  # infinite columns are refused later, with advice
    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return X @ Z.T

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return squares(X, 1)

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.theta, K_bar.T @ X


@dataclass(frozen=True)
class LinearSpline(ParameterFreeKernel):
    """1 + xz + xz min(x, z) - (x + z)/2 min(x, z)^2 + min(x, z)^3 / 3, T01 eq. (29); a product over the features.

    Positive definite on x >= 0 alone, hence not in general.

    >>> LinearSpline()([[2.0]], [[1.0], [3.0]]).round(4)
    array([[ 3.8333, 11.6667]])
    """

    positive_definite = False

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        K = _spline(X[:, 0][:, None], Z[:, 0][None, :])
        for k in range(1, X.shape[1]):
            K *= _spline(X[:, k][:, None], Z[:, k][None, :])
        return K

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return namespace(X).prod(_spline(X, X), axis=1)

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Z_bar = np.empty_like(Z)
        for j, z in enumerate(Z):  # one centre at a time: the products over the other features need (n, d) only
            low = np.minimum(X, z)
            slope = X + X * low - low**2 / 2.0  # d/dz of T01 eq. (29), on both sides of z = x
            Z_bar[j] = K_bar[:, j] @ (slope * products_of_others(_spline(X, z)))
        return self.theta, Z_bar


def _spline(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    # T01 eq. (29): with low = min(x, z) and high = max(x, z), xz = low high and x + z = low + high, so that its
    # last three terms are low^2 high - (low + high) low^2 / 2 + low^3 / 3 = low^2 (3 high - low) / 6.
    xp = namespace(x)
    low = xp.minimum(x, z)
    K = 3.0 * xp.maximum(x, z)
    K -= low
    K *= low**2
    K /= 6.0
    K += x * z
    K += 1.0
    return K


def products_of_others(F: np.ndarray) -> np.ndarray:
    """prod_{k != j} F[..., k] for every j, in the shape of F; factors may be zero."""
    before, after = np.ones(F.shape), np.ones(F.shape)
    np.cumprod(F[..., :-1], axis=-1, out=before[..., 1:])
    after[..., :-1] = np.cumprod(F[..., :0:-1], axis=-1)[..., ::-1]
    return before * after
