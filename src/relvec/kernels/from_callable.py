"""Any function of two sets of points as a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relvec.kernels.base import ParameterFreeKernel, check_values
from relvec.runtime.arrays import is_device_array, like, to_host


@dataclass(frozen=True)
class FromCallable(ParameterFreeKernel):
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
