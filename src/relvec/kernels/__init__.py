"""Kernels: frozen, stateless functions k(x, z) that serve as basis functions phi_m(x) = k(x, z_m).

A kernel knows its values, its diagonal, its free positive parameters (as logarithms, `theta`) and the
vector-Jacobian product that pushes a derivative with respect to the kernel matrix back to those parameters
and to the centres. The shapes throughout: X (n, d), Z (m, d), K = kernel(X, Z) (n, m). Values and diagonal are
computed in the array library of X, on its device.

`width` is T01's r. It is a positive number, one positive number per feature, or a word that `resolve(X)` replaces by
numbers: "scale", and "learn" or "learn-per-feature", whose numbers are where the estimators start to learn them.
"""

from relvec.kernels.base import Kernel, Product, Sum, as_rows, check_values, check_width, scale_width, split_theta
from relvec.kernels.dot_product import Linear, LinearSpline, Polynomial
from relvec.kernels.names import FromCallable, as_kernel, has_numeric_widths, has_width
from relvec.kernels.stationary import Cauchy, Gaussian, Laplace, LogDistance, Matern, StationaryKernel

__all__ = [
    "Cauchy", "FromCallable", "Gaussian", "Kernel", "Laplace", "Linear", "LinearSpline", "LogDistance", "Matern",
    "Polynomial", "Product", "StationaryKernel", "Sum", "as_kernel", "as_rows", "check_values", "check_width",
    "has_numeric_widths", "has_width", "scale_width", "split_theta",
]  # fmt: skip
