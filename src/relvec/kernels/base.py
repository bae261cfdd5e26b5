"""The contract of a kernel, kernels with widths, and sums and products of kernels."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from relvec.runtime.arrays import RowsLike, is_device_array, like
from relvec.runtime.record import Record

LEARNED = ("learn", "learn-per-feature")
WIDTH_WORDS = ("scale", *LEARNED)
Width = str | float | tuple[float, ...]


class Kernel(ABC, Record):
    """A function k(x, z) of two points; subclasses are frozen dataclasses.

    `kernel(X, Z)` gives the (n, m) matrix of values, `a + b` and `a * b` give a `Sum` and a `Product`. A kernel of
    one's own is a function of X and Z (`FromCallable`), or of the distance between the points (`StationaryKernel`).

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> from relvec.kernels import Gaussian, as_kernel
    >>> seasonal = as_kernel(lambda X, Z: np.cos(2.0 * np.pi * (X - Z.T)))
    >>> (Gaussian(width=2.0) + seasonal)([[0.0]], [[0.0], [0.5]]).round(4)
    array([[ 2.    , -0.0606]])
    >>> X = np.linspace(0.0, 3.0, 20)[:, None]
    >>> RVR(kernel=seasonal, noise_variance=0.01).fit(X, np.sin(2.0 * np.pi * X[:, 0])).predict([[4.25]]).round(1)
    array([1.])
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
        """Return the kernel with every width a number; words are computed from X (n, d) and the weights (n,)."""

    @abstractmethod
    def learned_mask(self, n_features: int) -> np.ndarray:
        """Which entries (p,) of the resolved kernel's theta are to be learned: those of a width that says so."""

    @abstractmethod
    def inverse_square_widths(self, n_features: int) -> np.ndarray:
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
        """Return the matrix k(x_i, z_j), shape (n, m): float64, or in the array library and on the device of X."""
        return self._values(*check_row_pair(X, Z))

    def diag(self, X: ArrayLike) -> np.ndarray:
        """Return the values k(x_i, x_i), shape (n,), without forming the matrix."""
        return self._diag(as_rows(X))

    def vjp(self, X: ArrayLike, Z: ArrayLike, K_bar: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of sum(K_bar * kernel(X, Z)) by theta (p,) and by the centres Z (m, d)."""
        X, Z = check_row_pair(X, Z)
        bar, shape = np.asarray(K_bar, dtype=np.float64), (len(X), len(Z))
        if bar.shape != shape:
            raise ValueError(f"K_bar must have the shape of the kernel matrix, {shape}; got {bar.shape}")
        return self._vjp(X, Z, bar)

    def with_theta(self, theta: ArrayLike) -> Kernel:
        """Return the same kernel with the parameters exp(theta), theta of shape (p,)."""
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != self.theta.shape:
            raise ValueError(f"{self!r} has theta of shape {self.theta.shape}; got {theta.shape}")
        with np.errstate(over="ignore"):  # the constructor refuses an infinite parameter with a message
            return self._with_parameters(np.exp(theta))

    def __add__(self, other: Kernel) -> Sum:
        return Sum((*_parts(self, Sum), *_parts(other, Sum))) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Product:
        if not isinstance(other, Kernel):
            return NotImplemented
        return Product((*_parts(self, Product), *_parts(other, Product)))


class ParameterFreeKernel(Kernel):
    """Kernels without free parameters: theta is empty and there is no width to resolve."""

    @property
    def theta(self) -> np.ndarray:
        return np.empty(0)

    def resolve(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Kernel:
        return self

    def learned_mask(self, n_features: int) -> np.ndarray:
        return np.zeros(0, dtype=bool)

    def inverse_square_widths(self, n_features: int) -> np.ndarray:
        return np.zeros(n_features)

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        return self


class ScaledKernel(Kernel):
    """Kernels of x/width, with one width for all features or one for each."""

    width: Width

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_width(self.width))

    def resolve(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Kernel:
        X = as_rows(X)
        if self.width == "learn-per-feature":
            return replace(self, width=feature_widths(X, sample_weight))  # type: ignore[type-var]
        if isinstance(self.width, str):
            return replace(self, width=scale_width(X, sample_weight))  # type: ignore[type-var]
        self.scale_rows(X)
        return self

    def learned_mask(self, n_features: int) -> np.ndarray:
        per_feature = self.width == "learn-per-feature" or isinstance(self.width, tuple)
        return np.full(n_features if per_feature else 1, self.width in LEARNED)

    def inverse_square_widths(self, n_features: int) -> np.ndarray:
        return np.full(n_features, self.width_array() ** -2.0)

    def width_array(self) -> np.ndarray:
        """Return the width as an array, () or (d,)."""
        if isinstance(self.width, str):
            raise ValueError(f"{self!r} has no numeric width yet: call resolve(X) first, or give a positive number")
        return np.asarray(self.width)

    def scale_rows(self, X: np.ndarray) -> np.ndarray:
        """X / width, divided before anything is squared so that large and small units neither over- nor underflow."""
        width = self.width_array()
        if width.ndim and len(width) != X.shape[1]:
            raise ValueError(
                f"width has {len(width)} entries but the data have {X.shape[1]} features: "
                "give one positive number, or one per feature"
            )
        return X / (width if isinstance(X, np.ndarray) else like(X, width))

    def _width_bar(self, log_width_bar: np.ndarray) -> np.ndarray:
        """Return the derivatives per feature (d,), added up where all features share one width."""
        return log_width_bar if self.width_array().ndim else log_width_bar.sum(keepdims=True)

    def _width_from(self, parameters: np.ndarray) -> Width:
        return tuple(parameters) if self.width_array().ndim else parameters[0]


class CompositeKernel(Kernel):
    """Kernels made of kernels: parameters and widths are those of the parts, in order."""

    parts: tuple[Kernel, ...]
    _combine: ClassVar[Any]

    @abstractmethod
    def _part_bars(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> Iterator[np.ndarray]:
        """Return the derivative with respect to each part's matrix, in turn."""

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

    def learned_mask(self, n_features: int) -> np.ndarray:
        return np.concatenate([part.learned_mask(n_features) for part in self.parts])

    def inverse_square_widths(self, n_features: int) -> np.ndarray:
        return np.sum([part.inverse_square_widths(n_features) for part in self.parts], axis=0)

    def _with_parameters(self, parameters: np.ndarray) -> Kernel:
        pairs = zip(self.parts, split_theta(self.parts, parameters))
        return type(self)(tuple(part._with_parameters(piece) for part, piece in pairs))  # type: ignore[call-arg]

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return reduce(self._combine, (part._values(X, Z) for part in self.parts))

    def _diag(self, X: np.ndarray) -> np.ndarray:
        return reduce(self._combine, (part._diag(X) for part in self.parts))

    def _vjp(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pulled = [part._vjp(X, Z, bar) for part, bar in zip(self.parts, self._part_bars(X, Z, K_bar))]
        return np.concatenate([theta_bar for theta_bar, _ in pulled]), np.sum([Z_bar for _, Z_bar in pulled], axis=0)


@dataclass(frozen=True)
class Sum(CompositeKernel):
    """k_1(x, z) + k_2(x, z) + ...

    >>> from relvec.kernels import Gaussian, Linear
    >>> (Gaussian(width=1.0) + Linear())([[1.0]], [[1.0]])
    array([[2.]])
    """

    parts: tuple[Kernel, ...]
    _combine = operator.add

    def _part_bars(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> Iterator[np.ndarray]:
        return repeat(K_bar, len(self.parts))


@dataclass(frozen=True)
class Product(CompositeKernel):
    """k_1(x, z) k_2(x, z) ...

    >>> from relvec.kernels import Linear
    >>> (Linear() * Linear())([[1.0, 2.0]], [[3.0, 4.0]])
    array([[121.]])
    """

    parts: tuple[Kernel, ...]
    _combine = operator.mul

    def _part_bars(self, X: np.ndarray, Z: np.ndarray, K_bar: np.ndarray) -> Iterator[np.ndarray]:
        values = [part._values(X, Z) for part in self.parts]
        for i in range(len(values)):
            yield reduce(np.multiply, values[:i] + values[i + 1 :], K_bar)


def split_theta(parts: Sequence[Any], theta: np.ndarray) -> list[np.ndarray]:
    """Return the pieces of `theta` that belong to each of the `parts`."""
    return np.split(theta, np.cumsum([len(part.theta) for part in parts])[:-1])


def as_rows(X: RowsLike) -> np.ndarray:
    """X as a float64 array of shape (n, d); an array of another library is returned unchanged."""
    X = X if is_device_array(X) else np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ValueError(f"expected a 2-D array (n, d), got shape {X.shape}: for one feature, X.reshape(-1, 1)")
    return X


def check_values(values: ArrayLike, shapes: Sequence[tuple[int, ...]], what: str, hint: str) -> np.ndarray:
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


def check_row_pair(X: RowsLike, Z: RowsLike) -> tuple[np.ndarray, np.ndarray]:
    """X (n, d) and Z (m, d) as arrays of one library; a ValueError where their features disagree."""
    X, Z = as_rows(X), as_rows(Z)
    if is_device_array(X) and not is_device_array(Z):
        Z = like(X, Z)
    if X.shape[1] != Z.shape[1]:
        raise ValueError(f"X has {X.shape[1]} features and Z has {Z.shape[1]}: they must agree")
    return X, Z


def _parts(kernel: Kernel, kind: type[CompositeKernel]) -> tuple[Kernel, ...]:
    return kernel.parts if isinstance(kernel, kind) else (kernel,)


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
    # In units of the largest entry nothing overflows; less the first entry, constant data give exactly zero.
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
