"""Features whose inner products are the prior covariance of the latent functions, and their derivatives.

    Phi = [ k(X, Z) L^-T,  sqrt(a_0 / d) X,  sqrt(c) 1 ],    L L' = k(Z, Z),

k the sum of the stationary parts, Z (m, d) the inducing rows; the linear part and the constant that belongs to it are
explicit and exact. Phi Phi' is the covariance of the functions that the features span, and

    t_i = k(x_i, x_i) - |phi_i|^2   (stationary parts only)

the variance that the inducing rows leave out at row i: 0 at an inducing row, the whole amplitude far from all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from relvec.gaussian_process.kernel import CONSTANT, Evaluated, Structure
from relvec.inference.linalg import factor

LEFT_OUT = 0.3  # share of the cost of what the features leave out that the evidence counts, see `binary`
MEAN_LEFT_OUT = 0.016  # variance of log-odds; as W <= 1/4 it costs the evidence at most 0.002 nats a row
WHOLE_ROWS = 2000  # of a kernel matrix that is computed at once: single columns of fewer rows are all overhead
_JITTER = 1e-6  # of the amplitude, added to k(Z, Z): inducing rows may lie close to each other


@dataclass(frozen=True)
class LatentKernel:
    """The covariance of the latent functions: a structure without noise.

    theta is that of `Structure` without its last number: [log a_j, log widths of part j] for every part, then log a_0
    where there is a linear part.
    """

    structure: Structure

    @cached_property
    def stationary(self) -> Structure:
        """The same without the linear part."""
        return Structure(self.structure.parts, False, self.structure.n_inputs)

    @property
    def n_theta(self) -> int:
        """The number of hyperparameters."""
        return self.structure.n_theta - 1

    def stationary_theta(self, theta: np.ndarray) -> np.ndarray:
        """Return the theta that `stationary` wants, with a number for the noise that it does not use."""
        return np.append(theta[: self.stationary.n_theta - 1], 0.0)

    def amplitude(self, theta: np.ndarray) -> float:
        """Return the variance of the stationary parts together: what is left far away from the data."""
        return float(sum(np.exp(theta[i]) for i in self.structure.amplitudes))

    def slope_variance(self, theta: np.ndarray) -> float:
        """Return the prior variance of each slope of the linear part; 0 where there is none."""
        return float(np.exp(theta[-1])) / self.structure.n_inputs if self.structure.linear else 0.0


class Features:
    """Phi (n, q), t (n,) at the rows of X (n, d), and vector-Jacobian products.

    L (m, m) is the factor of k(Z, Z) where it is known; then there are values only.
    """

    def __init__(
        self, kernel: LatentKernel, theta: np.ndarray, X: np.ndarray, Z: np.ndarray, L: np.ndarray | None = None
    ):  # fmt: skip
        self.kernel, self.theta, self.X = kernel, theta, X
        blocks = []
        self.m = len(Z) if kernel.structure.parts else 0
        self.left_out = np.zeros(len(X))
        if self.m:
            inner = kernel.stationary_theta(theta)
            self.cross = Evaluated(kernel.stationary, inner, X, Z)
            if L is None:
                self.inducing = Evaluated(kernel.stationary, inner, Z)
                K = self.inducing.K - CONSTANT
                K.flat[:: self.m + 1] += _JITTER * kernel.amplitude(theta)
                L = factor(K)
            self.L = L
            blocks.append(self.project(self.cross.K - CONSTANT))
            spanned = np.einsum("ij,ij->i", blocks[0], blocks[0])
            self.left_out = np.maximum(kernel.amplitude(theta) - spanned, 0.0)
        if kernel.structure.linear:
            blocks += [np.sqrt(kernel.slope_variance(theta)) * X, np.full((len(X), 1), np.sqrt(CONSTANT))]
        self.Phi = np.concatenate(blocks, axis=1)

    def project(self, K: np.ndarray) -> np.ndarray:
        """K L^-T for K (n, m)."""
        return solve_triangular(self.L, K.T, lower=True, check_finite=False).T

    def vjp(self, bar: np.ndarray, bar_left_out: np.ndarray) -> np.ndarray:
        """Derive a function of Phi Phi' and t by theta (p,): bar (n, q) is its derivative by Phi, t's part not in it.

        As the function sees Phi Phi' only, bar = 2 Q P for a symmetric Q, and the derivative by k(Z, Z) is
        -1/2 L^-T Phi' bar L^-1; that by the factor L need not be formed.
        """
        kernel, theta = self.kernel, self.theta
        out = np.zeros(kernel.n_theta)
        if self.m:
            Phi = self.Phi[:, : self.m]
            bar_phi = bar[:, : self.m] - 2.0 * bar_left_out[:, None] * Phi
            bar_cross = solve_triangular(self.L, bar_phi.T, lower=True, trans="T", check_finite=False).T
            P_bar = solve_triangular(self.L, Phi.T @ bar_cross, lower=True, trans="T", check_finite=False)
            bar_inducing = -0.5 * P_bar
            slope = self.cross.vjp(bar_cross) + self.inducing.vjp(0.5 * (bar_inducing + bar_inducing.T))
            out[: len(slope) - 1] = slope[:-1]
            diagonal = bar_left_out.sum() + _JITTER * bar_inducing.trace()
            for i in kernel.structure.amplitudes:
                out[i] += np.exp(theta[i]) * diagonal
        if kernel.structure.linear:
            linear = slice(self.m, self.m + self.X.shape[1])
            out[-1] = 0.5 * np.vdot(bar[:, linear], self.Phi[:, linear])
        return out


def feature_pivots(
    kernel: LatentKernel, theta: np.ndarray, X: np.ndarray, most: int, n_whole: int = WHOLE_ROWS
) -> np.ndarray:
    """Rows (m,) of X (n, d) by largest variance left out: the pivots of an incomplete Cholesky factorisation.

    The matrix of at most `n_whole` rows is computed at once. At least one pivot; they end at `most` rows, or where the
    rows have no more than MEAN_LEFT_OUT left in the mean.
    """
    if not kernel.structure.parts:
        return np.zeros(0, dtype=int)
    stationary, inner = kernel.stationary, kernel.stationary_theta(theta)
    n, smallest = len(X), _JITTER * kernel.amplitude(theta)
    left, factors = np.full(n, kernel.amplitude(theta)), np.empty((min(most, n), n))
    whole, found = stationary(inner, X) if n <= n_whole else None, list[int]()
    while not found or (len(found) < len(factors) and left.mean() > MEAN_LEFT_OUT):
        i = int(left.argmax())
        if left[i] <= smallest:
            break
        column = (stationary(inner, X, X[i : i + 1])[:, 0] if whole is None else whole[i]) - CONSTANT
        j = len(found)
        row = (column - factors[:j, i] @ factors[:j]) / np.sqrt(left[i])
        factors[j] = row
        left = np.maximum(left - row * row, 0.0)
        left[i] = 0.0
        found.append(i)
    return np.array(found, dtype=int)
