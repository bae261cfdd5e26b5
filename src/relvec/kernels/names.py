"""Kernels by name, and questions about the widths of a kernel."""

from __future__ import annotations

from collections.abc import Callable

from numpy.typing import ArrayLike

from relvec.kernels.base import CompositeKernel, Kernel, ScaledKernel, Width, check_width
from relvec.kernels.dot_product import Linear, LinearSpline, Polynomial
from relvec.kernels.from_callable import FromCallable
from relvec.kernels.stationary import Cauchy, Gaussian, Laplace, LogDistance, Matern

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


def as_kernel(spec: str | Kernel | Callable, width: str | ArrayLike = "scale") -> Kernel:
    """A kernel from a Kernel, a name, or a function(X, Z) -> (n, m).

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
