"""An exact Gaussian process with a width per feature, for comparison: O(N^3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

from relvec.kernels import Gaussian

_BROAD = 10.0  # prior standard deviation of the constant


@dataclass(frozen=True, eq=False)
class ExactGP:
    """A process with a Gaussian covariance function, conditioned on X (n, d)."""

    X: np.ndarray
    kernel: Gaussian
    amplitude: float
    noise: float
    factor: np.ndarray
    weights: np.ndarray
    log_evidence: float

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (n,) of new targets at X."""
        C = self.amplitude * self.kernel(self.X, X) + _BROAD**2
        known = solve_triangular(self.factor, C, lower=True)
        spread = self.amplitude + _BROAD**2 + self.noise - np.einsum("ij,ij->j", known, known)
        return C.T @ self.weights, np.sqrt(spread)


def fit_gp(X: np.ndarray, t: np.ndarray, widths: np.ndarray, steps: int = 60) -> ExactGP:
    """Amplitude, widths and noise of highest evidence, from widths (d,) by L-BFGS-B."""
    n, start = len(X), np.log(np.concatenate([[t.var(), 0.1 * t.var()], widths]))

    def parts(x: np.ndarray):
        kernel = Gaussian(tuple(np.exp(x[2:])))
        K = np.exp(x[0]) * kernel(X, X)
        L = cholesky(K + np.exp(x[1]) * np.eye(n) + _BROAD**2, lower=True)
        weights = cho_solve((L, True), t)
        value = -0.5 * (t @ weights + n * np.log(2.0 * np.pi)) - np.log(L.diagonal()).sum()
        return kernel, K, L, weights, float(value)

    def minus(x: np.ndarray) -> tuple[float, np.ndarray]:
        kernel, K, L, weights, value = parts(x)
        inverse = np.tril(dpotri(L, lower=1)[0])
        inverse += np.tril(inverse, -1).T
        G = 0.5 * (np.outer(weights, weights) - inverse)
        slope = np.concatenate([[np.vdot(G, K), np.exp(x[1]) * G.trace()], kernel.vjp(X, X, np.exp(x[0]) * G)[0]])
        return -value, -slope

    bounds = [(a - 7.0, a + 7.0) for a in start]
    x = minimize(minus, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps}).x
    kernel, _, L, weights, value = parts(x)
    return ExactGP(X, kernel, float(np.exp(x[0])), float(np.exp(x[1])), L, weights, value)
