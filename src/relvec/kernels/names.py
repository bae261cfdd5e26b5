"""Kernels by name, any function of two sets of points as a kernel, and questions about the widths of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from relvec.kernels.base import (
    CompositeKernel,
    Kernel,
    ParameterFreeKernel,
    ScaledKernel,
    Width,
    check_values,
    check_width,
)
from relvec.kernels.dot_product import Linear, LinearSpline, Polynomial
from relvec.kernels.stationary import Cauchy, Gaussian, Laplace, LogDistance, Matern
from relvec.runtime.arrays import is_device_array, like, to_host

# names whose width is "scale" by default, those whose own default is 1, and those without a width
_WIDTH_FROM_DATA: dict[str, Callable[..., Kernel]] = {
    "gaussian": Gaussian,
    "rbf": Gaussian,
    "laplace": Laplace,
    "cauchy": Cauchy,
    "matern32": lambda width: Matern(nu=1.5, width=width),
    "matern52": lambda width: Matern(nu=2.5, width=width),
}
_WIDTH_ONE: dict[str, Callable[..., Kernel]] = {
    "log_distance": LogDistance,
    "polynomial": Polynomial,
    "poly": Polynomial,
}
_WITHOUT_WIDTH: dict[str, Callable[[], Kernel]] = {"linear": Linear, "linear_spline": LinearSpline}
_NAMES = (*_WIDTH_FROM_DATA, *_WIDTH_ONE, *_WITHOUT_WIDTH)


@dataclass(frozen=True)
class FromCallable(ParameterFreeKernel):
    """Any `function(X, Z) -> (n, m)` as a kernel, for instance a Gaussian-process kernel of scikit-learn.

    Nothing is assumed about the function: it counts as not positive definite, has no free parameters, and its
    derivatives with respect to the centres are central differences (2 d evaluations).

    >>> FromCallable(lambda X, Z: X @ Z.T)([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    function: Callable[[np.ndarray, np.ndarray], ArrayLike]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(f"FromCallable needs a function(X, Z) -> (n, m) array; got {self.function!r}")

    positive_definite = False

    def _values(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        if is_device_array(X):  # the function is called with NumPy arrays
            return like(X, self._values(to_host(X), to_host(Z)))
        hint = f"It was called with X {X.shape} and Z {Z.shape}: try it by hand on arrays of these shapes."
        return check_values(self.function(X, Z), [(len(X), len(Z))], f"the kernel function {self.function!r}", hint)

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


def as_kernel(spec: str | Kernel | Callable, width: str | ArrayLike = "scale") -> Kernel:
    """Make a kernel from a Kernel, a name, or a function(X, Z) -> (n, m).

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
        return _kernel_by_name(spec, width)
    if not callable(spec):
        raise ValueError(f"kernel must be a Kernel, a function(X, Z), or one of {', '.join(_NAMES)}; got {spec!r}")
    if width != "scale":
        raise ValueError(
            f"width={width} goes with a kernel given by name; set the width of {spec!r} when you create it"
        )
    return spec if isinstance(spec, Kernel) else FromCallable(spec)


def _kernel_by_name(name: str, width: Width) -> Kernel:
    if name in _WIDTH_FROM_DATA:
        return _WIDTH_FROM_DATA[name](width=width)
    if name in _WIDTH_ONE:
        return _WIDTH_ONE[name]() if width == "scale" else _WIDTH_ONE[name](width=width)
    if name not in _WITHOUT_WIDTH:
        raise ValueError(
            f"unknown kernel {name!r}: choose one of {', '.join(_NAMES)}, precomputed, a Kernel or a function(X, Z)"
        )
    if width != "scale":
        raise ValueError(f"the kernel {name!r} has no width; got width={width}: leave it at 'scale', or scale X")
    return _WITHOUT_WIDTH[name]()


def has_numeric_widths(kernel: Kernel) -> bool:
    """Whether every width of a kernel is a number, so that `resolve` needs no rows.

    >>> has_numeric_widths(Gaussian(2.0)), has_numeric_widths(Gaussian(2.0) + Laplace("scale"))
    (True, False)
    """
    if isinstance(kernel, CompositeKernel):
        return all(has_numeric_widths(part) for part in kernel.parts)
    return not (isinstance(kernel, ScaledKernel) and isinstance(kernel.width, str))


def has_width(name: str) -> bool:
    """Whether the kernel of that name has a width; True for unknown names, which `as_kernel` refuses.

    >>> has_width("gaussian"), has_width("linear")
    (True, False)
    """
    return name not in _WITHOUT_WIDTH
