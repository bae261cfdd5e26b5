"""Kernels: frozen, stateless functions k(x, z) that serve as basis functions phi_m(x) = k(x, z_m).

A kernel knows its values, its diagonal, its free positive parameters (as logarithms, `theta`) and the
vector-Jacobian product that pushes a derivative with respect to the kernel matrix back to those parameters
and to the centres. The shapes throughout: X (n, d), Z (m, d), K = kernel(X, Z) (n, m). Values and diagonal are
computed in the array library of X, on its device.

`width` is T01's r. It is a positive number, one positive number per feature, or a word that `resolve(X)` replaces by
numbers: "scale", and "learn" or "learn-per-feature", whose numbers are where the estimators start to learn them.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from relvec.kernels.distances import squared_distances
from relvec.runtime.arrays import is_device_array, like, namespace, overwrite, squares, to_host

__all__ = [
    "Cauchy",
    "FromCallable",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Linear",
    "LinearSpline",
    "LogDistance",
    "Matern",
    "Polynomial",
    "Product",
    "Sum",
    "as_kernel",
    "check_width",
    "scale_width",
]

LEARNED = ("learn", "learn-per-feature")
WIDTH_WORDS = ("scale", *LEARNED)
Width = str | float | tuple[float, ...]


class Kernel(ABC):
    """A function k(x, z) of two points; subclasses are frozen dataclasses.

    `kernel(X, Z)` gives the (n, m) matrix of values, `a + b` and `a * b` give a `Sum` and a `Product`.
    """

    @property
    @abstractmethod
    def positive_definite(self) -> bool:
        """Whether kernel(X, X) is positive semi-definite for every X, so that it has a pivoted Cholesky factor."""

    @property
    @abstractmethod
    def theta(self) -> np.ndarray:
        """Logarithms of the free positive parameters, shape (p,)."""

    @abstractmethod
    def resolve(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Kernel:
        """The kernel with every width a number; X (n, d) and weights (n,) are what words are computed from."""

    @abstractmethod
    def learned(self, n_features: int) -> np.ndarray:
        """Which entries of the resolved kernel's theta are to be learned (p,): those of a width that says so."""

    @abstractmethod
    def scales(self, n_features: int) -> np.ndarray:
        """eta_k = width_k^-2 of every feature (d,), added up over the parts of a sum or product; 0 without width."""

    @abstractmethod
    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _diag(self, X: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    @abstractmethod
    def _with_parameters(self, parameters: np.ndarray) -> Kernel: ...

    def __call__(self, X: ArrayLike, Z: ArrayLike) -> np.ndarray:
        """The matrix k(x_i, z_j), shape (n, m): float64, or in the array library and on the device of X."""
        return self._values(*_row_pair(X, Z))

    def diag(self, X: ArrayLike) -> np.ndarray:
        """The values k(x_i, x_i), shape (n,), without forming the matrix."""
        return self._diag(as_rows(X))

    def vjp(self, X: ArrayLike, Z: ArrayLike, K_bar: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of sum(K_bar * kernel(X, Z)) with respect to theta (p,) and to the centres Z (m, d)."""
        X, Z = _row_pair(X, Z)
        bar, shape = np.asarray(K_bar, dtype=np.float64), (len(X), len(Z))
        if bar.shape != shape:
            raise ValueError(f"K_bar must have the shape of the kernel matrix, {shape}; got {bar.shape}")
        return self._vjp(X, Z, bar)

    def with_theta(self, theta: ArrayLike) -> Kernel:
        """The same kernel with the parameters exp(theta), theta of shape (p,)."""
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != self.theta.shape:
            raise ValueError(f"{self!r} has theta of shape {self.theta.shape}; got {theta.shape}")
        with np.errstate(over="ignore"):  # an infinite parameter is refused by the constructor, in words
            return self._with_parameters(np.exp(theta))

    def __add__(self, other: Kernel) -> Sum:
        return Sum(_parts(self, Sum) + _parts(other, Sum)) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Product:
        return Product(_parts(self, Product) + _parts(other, Product)) if isinstance(other, Kernel) else NotImplemented


class _Unparametrised(Kernel):
    """Kernels without free parameters: theta is empty and there is no width to resolve."""

    @property
    def theta(self) -> np.ndarray:
        return np.empty(0)

    def resolve(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Kernel:
        return self

    def learned(self, n_features: int) -> np.ndarray:
        return np.zeros(0, dtype=bool)

    def scales(self, n_features: int) -> np.ndarray:
        return np.zeros(n_features)

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        return self


class _Scaled(Kernel):
    """Kernels of x/width: what a single width and one width per feature have in common."""

    width: Width

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_width(self.width))

    def resolve(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Kernel:
        X = as_rows(X)
        if self.width == "learn-per-feature":
            return replace(self, width=feature_widths(X, sample_weight))  # type: ignore[type-var]
        if isinstance(self.width, str):
            return replace(self, width=scale_width(X, sample_weight))  # type: ignore[type-var]
        self._scale(X)
        return self

    def learned(self, n_features: int) -> np.ndarray:
        per_feature = self.width == "learn-per-feature" or isinstance(self.width, tuple)
        return np.full(n_features if per_feature else 1, self.width in LEARNED)

    def scales(self, n_features: int) -> np.ndarray:
        return np.full(n_features, self._widths() ** -2.0)

    def _widths(self) -> np.ndarray:
        if isinstance(self.width, str):
            raise ValueError(f"{self!r} has no width in numbers yet: call resolve(X) first, or give a positive number")
        return np.asarray(self.width)

    def _scale(self, X: np.ndarray) -> np.ndarray:
        """X / width, divided before anything is squared so that large and small units neither over- nor underflow."""
        width = self._widths()
        if width.ndim and len(width) != X.shape[1]:
            raise ValueError(
                f"width has {len(width)} entries but the data have {X.shape[1]} features: "
                "give one positive number, or one per feature"
            )
        return X / (width if isinstance(X, np.ndarray) else like(X, width))

    def _width_bar(self, log_width_bar: np.ndarray) -> np.ndarray:
        """Derivatives per feature (d,), added up where all features share one width."""
        return log_width_bar if self._widths().ndim else log_width_bar.sum(keepdims=True)

    def _width_from(self, parameters: np.ndarray) -> Width:
        return tuple(parameters) if self._widths().ndim else parameters[0]


class _Stationary(_Scaled):
    """Kernels f(D2), D2 = sum_k (x_k - z_k)^2 / width_k^2. A subclass gives f, f' (both may overwrite D2) and f''."""

    _rough: ClassVar[bool] = False  # whether f has a root of D2, so that small distances need all their digits

    @abstractmethod
    def _profile(self, D2: np.ndarray) -> np.ndarray:
        """f(D2), elementwise."""

    @abstractmethod
    def _slope(self, D2: np.ndarray) -> np.ndarray:
        """f'(D2), elementwise."""

    @abstractmethod
    def _bend(self, D2: np.ndarray) -> np.ndarray:
        """f''(D2), elementwise; may not overwrite D2."""

    def slope_and_bend(self, X: ArrayLike, Z: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """f'(D2) and f''(D2), each (n, m): what derivatives with respect to the centres are made of."""
        X, Z = _row_pair(X, Z)
        D2 = squared_distances(self._scale(X), self._scale(Z))
        bend = self._bend(D2)
        return self._slope(D2), bend

    @property
    def theta(self) -> np.ndarray:
        return np.log(np.atleast_1d(self._widths()))

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        return replace(self, width=self._width_from(parameters))  # type: ignore[type-var]

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return self._profile(squared_distances(self._scale(X), self._scale(Z), self._rough))

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return self._profile(0.0 * X[:, 0])

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U, V = self._scale(X), self._scale(Z)
        G = self._slope(squared_distances(U, V))
        G *= K_bar
        # With G = dF/dD2 and D2 = sum_k (u_k - v_k)^2, u = x/width, v = z/width, the square multiplied out:
        #   dF/dv_jk         = -2 sum_i G_ij (u_ik - v_jk)   = 2 (c_j v_jk - (G'U)_jk),   c = column sums of G
        #   dF/dlog width_k  = -2 sum_ij G_ij (u_ik - v_jk)^2, from the row and column sums and G'U alone.
        centre = V.mean(axis=0) if len(V) else 0.0  # the expansion loses fewest digits around the data
        U -= centre
        V -= centre
        GU, column, row = G.T @ U, G.sum(axis=0)[:, None], G.sum(axis=1)
        V_bar = 2.0 * (column * V - GU)
        log_width_bar = -2.0 * (row @ U**2 + ((column * V - 2.0 * GU) * V).sum(axis=0))
        return self._width_bar(log_width_bar), V_bar / self._widths()


@dataclass(frozen=True)
class Gaussian(_Stationary):
    """exp(-|x - z|^2 / width^2), T01 eq. (30); a width per feature gives T01 eq. (31), eta_k = width_k^-2.

    >>> Gaussian(width=2.0)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    width: Width = "scale"
    positive_definite = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        return overwrite("exp", overwrite("negative", D2))  # T01 eqs. (30) and (31)

    def _slope(self, D2: np.ndarray) -> np.ndarray:
        return np.negative(self._profile(D2), out=D2)

    def _bend(self, D2: np.ndarray) -> np.ndarray:
        return np.exp(-D2)


@dataclass(frozen=True)
class Laplace(_Stationary):
    """exp(-|x - z| / width), with the Euclidean distance.

    Not differentiable where x = z; the derivative there counts as 0.

    >>> Laplace(width=2.0)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    width: Width = "scale"
    positive_definite = True
    _rough = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        return overwrite("exp", overwrite("negative", overwrite("sqrt", D2)))

    def _slope(self, D2: np.ndarray) -> np.ndarray:
        distance = np.sqrt(D2, out=D2)
        slope = np.exp(-distance)
        distance *= -2.0
        return np.divide(slope, distance, out=np.zeros_like(slope), where=distance != 0)

    def _bend(self, D2: np.ndarray) -> np.ndarray:
        distance = np.sqrt(D2)
        bend = np.exp(-distance) * (1.0 + distance)
        return np.divide(bend, 4.0 * distance**3, out=np.zeros_like(bend), where=distance > 0)


@dataclass(frozen=True)
class Cauchy(_Stationary):
    """1 / (1 + |x - z|^2 / width^2).

    >>> Cauchy(width=2.0)([[0.0]], [[0.0], [2.0]])
    array([[1. , 0.5]])
    """

    width: Width = "scale"
    positive_definite = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        D2 += 1.0
        return overwrite("reciprocal", D2)

    def _slope(self, D2: np.ndarray) -> np.ndarray:
        f = self._profile(D2)
        return np.negative(np.square(f, out=f), out=f)

    def _bend(self, D2: np.ndarray) -> np.ndarray:
        return 2.0 / (1.0 + D2) ** 3


@dataclass(frozen=True)
class LogDistance(_Stationary):
    """log(1 + |x - z|^2 / width^2): zero at the centre and growing without bound (RQ05 section 4, figure 1).

    Not positive definite: its diagonal is zero.

    >>> LogDistance()([[0.0]], [[0.0], [1.0]]).round(4)
    array([[0.    , 0.6931]])
    """

    width: Width = 1.0
    positive_definite = False

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        return overwrite("log1p", D2)

    def _slope(self, D2: np.ndarray) -> np.ndarray:
        D2 += 1.0
        return np.reciprocal(D2, out=D2)

    def _bend(self, D2: np.ndarray) -> np.ndarray:
        return -1.0 / (1.0 + D2) ** 2


@dataclass(frozen=True)
class Matern(_Stationary):
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
    _rough = True

    def _profile(self, D2: np.ndarray) -> np.ndarray:
        a = self._distance(D2)
        decay = namespace(a).exp(-a)
        a *= 1.0 if self.nu == 1.5 else 1.0 + a / 3.0
        a += 1.0
        a *= decay
        return a

    def _slope(self, D2: np.ndarray) -> np.ndarray:
        # d/dD2 = (nu/a) d/da, and d/da gives -a exp(-a) for nu = 1.5, -(a/3) (1 + a) exp(-a) for nu = 2.5
        a = self._distance(D2)
        slope = np.exp(-a)
        slope *= -1.5 if self.nu == 1.5 else (a + 1.0) * (-2.5 / 3.0)
        return slope

    def _bend(self, D2: np.ndarray) -> np.ndarray:
        # the same once more: 2.25 exp(-a) / a, without limit at a = 0 (counted as 0), and 25/12 exp(-a)
        a = self._distance(D2.copy())
        if self.nu == 2.5:
            return 25.0 / 12.0 * np.exp(-a)
        return np.divide(2.25 * np.exp(-a), a, out=np.zeros_like(a), where=a > 0)

    def _distance(self, D2: np.ndarray) -> np.ndarray:
        distance = overwrite("sqrt", D2)
        distance *= float(np.sqrt(2.0 * self.nu))
        return distance


@dataclass(frozen=True)
class Polynomial(_Scaled):
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

    def learned(self, n_features: int) -> np.ndarray:
        return np.append(super().learned(n_features), [self.width in LEARNED] if self.offset > 0 else [])

    @property
    def theta(self) -> np.ndarray:
        offset = [self.offset] if self.offset > 0 else []
        return np.log(np.append(self._widths(), offset))

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        if self.offset > 0:
            return replace(self, width=self._width_from(parameters[:-1]), offset=parameters[-1])
        return replace(self, width=self._width_from(parameters))

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        K = self._base(self._scale(X), self._scale(Z))
        return np.power(K, self.degree, out=K) if isinstance(K, np.ndarray) else K**self.degree

    def _base(self, U: np.ndarray, V: np.ndarray) -> np.ndarray:
        B = U @ V.T
        B += self.offset
        return B

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return (squares(self._scale(X), 1) + self.offset) ** self.degree

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U, V = self._scale(X), self._scale(Z)
        G = self._base(U, V)
        np.power(G, self.degree - 1, out=G)
        G *= K_bar
        G *= self.degree  # dF/d(u'v + offset)
        V_bar = G.T @ U
        theta_bar = self._width_bar(-2.0 * (V_bar * V).sum(axis=0))
        if self.offset > 0:
            theta_bar = np.append(theta_bar, self.offset * G.sum())
        return theta_bar, V_bar / self._widths()


@dataclass(frozen=True)
class Linear(_Unparametrised):
    """x'z.

    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    positive_definite = True

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return X @ Z.T

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return squares(X, 1)

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.theta, K_bar.T @ X


@dataclass(frozen=True)
class LinearSpline(_Unparametrised):
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
            Z_bar[j] = K_bar[:, j] @ (slope * _products_of_others(_spline(X, z)))
        return self.theta, Z_bar


@dataclass(frozen=True)
class FromCallable(_Unparametrised):
    """Any `function(X, Z) -> (n, m)` as a kernel, for instance a Gaussian-process kernel of scikit-learn.

    Nothing is assumed about the function: it counts as not positive definite, has no free parameters, and its
    derivatives with respect to the centres are central differences (2 d evaluations).

    >>> FromCallable(lambda X, Z: X @ Z.T)([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    function: Callable[[np.ndarray, np.ndarray], Any]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(f"FromCallable needs a function(X, Z) -> (n, m) array; got {self.function!r}")

    positive_definite = False

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        if is_device_array(X):  # the function is called with NumPy arrays
            return like(X, self._values(to_host(X), to_host(Z)))
        hint = f"It was called with X {X.shape} and Z {Z.shape}: try it by hand on arrays of these shapes."
        return real_finite(self.function(X, Z), [(len(X), len(Z))], f"the kernel function {self.function!r}", hint)

    def _diag(self, X: np.ndarray, block: int = 64) -> np.ndarray:
        if is_device_array(X):
            return like(X, self._diag(to_host(X)))
        blocks = [X[i : i + block] for i in range(0, len(X), block)]
        return np.concatenate([np.empty(0), *(np.diagonal(self._values(B, B)) for B in blocks)])

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Z_bar = np.zeros_like(Z)
        for k in range(Z.shape[1] if len(Z) else 0):
            step = np.cbrt(np.finfo(float).eps) * (np.ptp(np.append(X[:, k], Z[:, k])) or 1.0)
            above, below = Z.copy(), Z.copy()
            above[:, k] += step
            below[:, k] -= step
            difference = self._values(X, above) - self._values(X, below)
            Z_bar[:, k] = (K_bar * difference).sum(axis=0) / (above - below)[:, k]
        return self.theta, Z_bar


class _Composite(Kernel):
    """Kernels made of kernels: parameters and widths are those of the parts, in order."""

    parts: tuple[Kernel, ...]
    _combine: ClassVar[Any]

    @abstractmethod
    def _bars(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> Iterator[np.ndarray]:
        """The derivative with respect to each part's matrix, in turn."""

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not parts or not all(isinstance(part, Kernel) for part in parts):
            raise ValueError(f"{type(self).__name__} needs one or more kernels; got {self.parts!r}")
        object.__setattr__(self, "parts", parts)

    @property
    def positive_definite(self) -> bool:
        return all(part.positive_definite for part in self.parts)

    @property
    def theta(self) -> np.ndarray:
        return np.concatenate([part.theta for part in self.parts])

    def resolve(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Kernel:
        return type(self)(tuple(part.resolve(X, sample_weight) for part in self.parts))  # type: ignore[call-arg]

    def learned(self, n_features: int) -> np.ndarray:
        return np.concatenate([part.learned(n_features) for part in self.parts])

    def scales(self, n_features: int) -> np.ndarray:
        return np.sum([part.scales(n_features) for part in self.parts], axis=0)

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        pairs = zip(self.parts, split_theta(self.parts, parameters))
        return type(self)(tuple(part._with_parameters(piece) for part, piece in pairs))  # type: ignore[call-arg]

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return reduce(self._combine, (part._values(X, Z) for part in self.parts))

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return reduce(self._combine, (part._diag(X) for part in self.parts))

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pulled = [part._vjp(X, Z, bar) for part, bar in zip(self.parts, self._bars(X, Z, K_bar))]
        return np.concatenate([theta_bar for theta_bar, _ in pulled]), np.sum([Z_bar for _, Z_bar in pulled], axis=0)


@dataclass(frozen=True)
class Sum(_Composite):
    """k_1(x, z) + k_2(x, z) + ...

    >>> (Gaussian(width=1.0) + Linear())([[1.0]], [[1.0]])
    array([[2.]])
    """

    parts: tuple[Kernel, ...]
    _combine = operator.add

    def _bars(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> Iterator[np.ndarray]:
        return repeat(K_bar, len(self.parts))


@dataclass(frozen=True)
class Product(_Composite):
    """k_1(x, z) k_2(x, z) ...

    >>> (Linear() * Linear())([[1.0, 2.0]], [[3.0, 4.0]])
    array([[121.]])
    """

    parts: tuple[Kernel, ...]
    _combine = operator.mul

    def _bars(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> Iterator[np.ndarray]:
        values = [part._values(X, Z) for part in self.parts]
        for i in range(len(values)):
            yield reduce(np.multiply, values[:i] + values[i + 1 :], K_bar)


_SCALED_BY_DEFAULT: dict[str, Callable[..., Kernel]] = {
    "gaussian": Gaussian,
    "rbf": Gaussian,
    "laplace": Laplace,
    "cauchy": Cauchy,
    "matern32": lambda width: Matern(nu=1.5, width=width),
    "matern52": lambda width: Matern(nu=2.5, width=width),
}
_SCALED_ON_REQUEST: dict[str, Callable[..., Kernel]] = {
    "log_distance": LogDistance,
    "polynomial": Polynomial,
    "poly": Polynomial,
}
_WITHOUT_WIDTH: dict[str, Callable[[], Kernel]] = {"linear": Linear, "linear_spline": LinearSpline}
_NAMES = (*_SCALED_BY_DEFAULT, *_SCALED_ON_REQUEST, *_WITHOUT_WIDTH)


def as_kernel(spec: str | Kernel | Callable, width: str | ArrayLike = "scale") -> Kernel:
    """The kernel that `spec` means: a Kernel, a name, or a function(X, Z) -> (n, m).

    `width` goes with a name: "scale", a positive number, one per feature, "learn" or "learn-per-feature".
    "log_distance" and "polynomial" take "scale" to mean their own width of 1; "linear" and "linear_spline" have
    none. A width in numbers next to a Kernel, a function or a kernel without width is an error.

    >>> as_kernel("matern32", width=2.0)
    Matern(nu=1.5, width=2.0)
    >>> as_kernel("linear")
    Linear()
    """
    width = check_width(width)
    if isinstance(spec, type):
        raise ValueError(f"kernel must be an instance, got the class {spec.__name__}: write {spec.__name__}()")
    if isinstance(spec, str):
        return _named(spec, width)
    if not callable(spec):
        raise ValueError(f"kernel must be a Kernel, a function(X, Z), or one of {', '.join(_NAMES)}; got {spec!r}")
    if width != "scale":
        raise ValueError(f"width={width} goes with a kernel given by name; give {spec!r} its width itself")
    return spec if isinstance(spec, Kernel) else FromCallable(spec)


def _named(name: str, width: Width) -> Kernel:
    if name in _SCALED_BY_DEFAULT:
        return _SCALED_BY_DEFAULT[name](width=width)
    if name in _SCALED_ON_REQUEST:
        return _SCALED_ON_REQUEST[name]() if width == "scale" else _SCALED_ON_REQUEST[name](width=width)
    if name not in _WITHOUT_WIDTH:
        raise ValueError(
            f"unknown kernel {name!r}: choose one of {', '.join(_NAMES)}, precomputed, a Kernel or a function(X, Z)"
        )
    if width != "scale":
        raise ValueError(f"the kernel {name!r} has no width; got width={width}: leave it at 'scale', or scale X")
    return _WITHOUT_WIDTH[name]()


def in_numbers(kernel: Kernel) -> bool:
    """Whether every width of a kernel is a number, so that no row is needed to resolve it.

    >>> in_numbers(Gaussian(2.0)), in_numbers(Gaussian(2.0) + Laplace("scale"))
    (True, False)
    """
    if isinstance(kernel, _Composite):
        return all(in_numbers(part) for part in kernel.parts)
    return not (isinstance(kernel, _Scaled) and isinstance(kernel.width, str))


def has_width(name: str) -> bool:
    """Whether the kernel of that name has a width; True for unknown names, which `as_kernel` refuses.

    >>> has_width("gaussian"), has_width("linear")
    (True, False)
    """
    return name not in _WITHOUT_WIDTH


def check_width(width: str | ArrayLike) -> Width:
    """`width` as one of WIDTH_WORDS, a positive float or a tuple of positive floats; a ValueError for all else.

    >>> check_width([1, 2])
    (1.0, 2.0)
    """
    wanted = f"width must be {', '.join(map(repr, WIDTH_WORDS))}, a positive number, or one positive number per feature"
    if isinstance(width, str):
        if width not in WIDTH_WORDS:
            raise ValueError(f"{wanted}; got {width!r}")
        return width
    try:
        values = np.asarray(width, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}; got {width!r}") from None
    if values.ndim > 1 or values.size == 0 or not np.all((values > 0) & (values < np.inf)):
        raise ValueError(f"{wanted}; got {width!r}")
    return tuple(values.tolist()) if values.ndim else float(values)


def scale_width(X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """sqrt(n_features * X.var()), the variance over all entries of X (n, d), weighted by row; 1.0 where that is 0.

    With gamma = width^-2 it is what scikit-learn calls gamma="scale".

    >>> scale_width([[0.0], [2.0], [2.0], [0.0]])
    1.0
    """
    X = as_rows(X)
    weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    X, weight = X[weight > 0], weight[weight > 0]
    if X.size == 0:
        raise ValueError("width='scale' needs at least one row of positive weight and one feature")
    unit = np.abs(X).max()
    if unit == 0:
        return 1.0
    # In units of the largest entry nothing overflows; from the first entry on, constant data give exactly zero.
    U = X / unit
    U -= U[0, 0]
    weight = weight / weight.max()
    total = weight.sum() * X.shape[1]
    U -= (weight @ U).sum() / total
    variance = (weight @ U**2).sum() / total
    return float(unit * np.sqrt(X.shape[1] * variance)) or 1.0


def feature_widths(X: ArrayLike, sample_weight: ArrayLike | None = None) -> tuple[float, ...]:
    """sqrt(n_features) times the standard deviation of each column of X (n, d), 1.0 where that is 0.

    >>> feature_widths([[0.0, 5.0], [2.0, 5.0]])
    (1.4142135623730951, 1.0)
    """
    X = as_rows(X)
    # of one column `scale_width` is the standard deviation
    root = np.sqrt(X.shape[1])
    return tuple(float(root * scale_width(x[:, None], sample_weight)) if np.ptp(x) > 0 else 1.0 for x in X.T)


def split_theta(parts: Sequence[Any], theta: np.ndarray) -> list[np.ndarray]:
    """The pieces of `theta` that belong to each of the `parts`."""
    return np.split(theta, np.cumsum([len(part.theta) for part in parts])[:-1])


def as_rows(X: Any) -> np.ndarray:
    """X as a float64 array of shape (n, d); an array of another library stays what it is."""
    X = X if is_device_array(X) else np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ValueError(f"expected a 2-D array (n, d), got shape {X.shape}: for one feature, X.reshape(-1, 1)")
    return X


def real_finite(values: Any, shapes: Sequence[tuple[int, ...]], what: str, hint: str) -> np.ndarray:
    """`values` as a float64 array, or a ValueError unless it is real, finite and of one of the `shapes`."""
    values = np.asarray(values)
    if values.shape not in shapes:
        problem = f"shape {values.shape}"
    elif values.dtype.kind not in "biuf":
        problem = f"dtype {values.dtype}"
    elif not np.isfinite(values).all():
        problem = "values that are NaN or infinite"
    else:
        return values.astype(np.float64, copy=False)
    expected = " or ".join(map(str, shapes))
    raise ValueError(f"{what} must return a real, finite array of shape {expected}; got {problem}. {hint}")


def _row_pair(X: Any, Z: Any) -> tuple[np.ndarray, np.ndarray]:
    X, Z = as_rows(X), as_rows(Z)
    if is_device_array(X) and not is_device_array(Z):
        Z = like(X, Z)
    if X.shape[1] != Z.shape[1]:
        raise ValueError(f"X has {X.shape[1]} features and Z has {Z.shape[1]}: they must agree")
    return X, Z


def _parts(kernel: Kernel, kind: type[_Composite]) -> tuple[Kernel, ...]:
    return kernel.parts if isinstance(kernel, kind) else (kernel,)


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


def _products_of_others(F: np.ndarray) -> np.ndarray:
    """For each entry the product of the others in its row, shape of F (n, d); factors may be zero."""
    ones = np.ones((len(F), 1))
    before = np.cumprod(np.hstack([ones, F[:, :-1]]), axis=1)
    after = np.cumprod(np.hstack([ones, F[:, :0:-1]]), axis=1)[:, ::-1]
    return before * after
