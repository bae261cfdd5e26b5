"""Covariance functions of a process: weighted sums of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky

from relvec.kernels import Kernel, split_theta

_RELATIVE_JITTER = 1e-8  # added to the diagonal of a covariance matrix before it is factored


@dataclass(frozen=True, eq=False)
class Covariance:
    """c(x, z) = sum_j s_j k_j(x, z): kernels and their amplitudes s (q,)."""

    kernels: tuple[Kernel, ...]
    amplitudes: np.ndarray

    @property
    def theta(self) -> np.ndarray:
        """Logarithms of the amplitudes, then the kernels' parameters."""
        return np.concatenate([np.log(self.amplitudes), *(kernel.theta for kernel in self.kernels)])

    def with_theta(self, theta: np.ndarray) -> Covariance:
        """The same with other parameters."""
        q = len(self.kernels)
        pieces = zip(self.kernels, split_theta(self.kernels, theta[q:]), strict=True)
        return Covariance(tuple(kernel.with_theta(piece) for kernel, piece in pieces), np.exp(theta[:q]))

    def __call__(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """The matrix c(x_i, z_j) (n, m)."""
        return sum((s * kernel(X, Z) for s, kernel in self.terms()), np.zeros((len(X), len(Z))))

    def diag(self, X: np.ndarray) -> np.ndarray:
        """The prior variance c(x_i, x_i) (n,)."""
        return sum((s * kernel.diag(X) for s, kernel in self.terms()), np.zeros(len(X)))

    def root(self, Z: np.ndarray) -> np.ndarray:
        """Lower triangular L (m, m) with L L' = c(Z, Z) plus a small diagonal."""
        C = self(Z, Z)
        C.flat[:: len(C) + 1] += _RELATIVE_JITTER * C.diagonal().max(initial=0.0)
        return cholesky(C, lower=True, check_finite=False)

    def vjp(self, X: np.ndarray, Z: np.ndarray, bar: np.ndarray) -> np.ndarray:
        """Derivative of sum(bar * c(X, Z)) with respect to theta."""
        by_amplitude = [s * np.vdot(bar, kernel(X, Z)) for s, kernel in self.terms()]
        return np.concatenate([by_amplitude, *(kernel.vjp(X, Z, s * bar)[0] for s, kernel in self.terms())])

    def diag_vjp(self, X: np.ndarray, bar: np.ndarray, step: float = 1e-5) -> np.ndarray:
        """Derivative of bar @ c.diag(X) with respect to theta, by central differences; c.diag costs O(n) only."""
        theta, slope = self.theta, np.zeros(len(self.theta))
        for i in range(len(theta)):
            move = np.where(np.arange(len(theta)) == i, step, 0.0)
            above, below = self.with_theta(theta + move).diag(X), self.with_theta(theta - move).diag(X)
            slope[i] = bar @ (above - below) / (2.0 * step)
        return slope

    def terms(self) -> Iterator[tuple[float, Kernel]]:
        """The amplitude and the kernel of each term."""
        return zip(self.amplitudes, self.kernels, strict=True)
