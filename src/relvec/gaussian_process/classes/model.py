"""A fitted process for classes: frozen arrays, latent functions and probabilities at new rows.

It is a process in the space of features, whose inner products are the prior covariance of the latent functions.

    Phi = [ k(X, Z) L^-T,  sqrt(a_0 / d) X,  sqrt(c) 1 ],    L L' = k(Z, Z),

k the sum of the stationary parts, Z (m, d) the inducing rows; the linear part and the constant that belongs to it are
explicit and exact. Phi Phi' is the covariance of the functions that the features span, and

    t_i = k(x_i, x_i) - |phi_i|^2   (stationary parts only)

the variance that the inducing rows leave out at row i: 0 at an inducing row, the whole amplitude far from all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf
from scipy.special import softmax

from relvec.gaussian_process.kernel import CONSTANT, Evaluated, Structure
from relvec.inference.linalg import factor
from relvec.runtime.record import Record

NEWTON_STEPS = 100
SETTLED_NATS = 1e-7  # that a further Newton step would bring: there the mode is found
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


PROBIT = np.pi / 8.0  # sigmoid(f / sqrt(1 + v pi / 8)) is about the mean of sigmoid over N(f, v): MacKay 1992
_BLOCK = 4096  # rows predicted at once


@dataclass(frozen=True)
class Calibration(Record):
    """How sure the latent functions make a model, learned from rows that took no part (`calibrate`).

        logit = log base rate + slope * (f - log base rate) / sqrt(1 + moderation * v pi / 8)

    with f and v the mean and variance of a latent function. Slope and moderation 1 integrate over the posterior;
    Laplace's approximation is too shy where classes hardly meet, and slopes above 1 make up for it. Where f is back
    at its prior mean, the probabilities are the base rates, whatever the two numbers are.
    """

    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("moderation",)

    slope: float = 1.0
    moderation: float = 1.0


@dataclass(frozen=True, eq=False)
class ClassProcess(Record):
    """The posterior of the latent functions, C = 1 for two classes, else C = K.

    Attributes
    ----------
    kernel, theta : the covariance and its hyperparameters (p,).
    vectors : (m, d) inducing rows, standardised.
    weights : (q, C) of the features.
    factors : (C, q, q) lower Cholesky factors of the precision of the weights.
    base_rates : (K,).
    log_evidence : Laplace's evidence of all rows.
    gain : nats that a further Newton step of the weights would bring.
    evaluations : of the evidence, that learning took.
    directions : (d, r) orthonormal, those of the inputs that the features of a linear kernel are; None for all inputs.
    """

    SHAPES: ClassVar[dict[str, str]] = {
        "theta": "p",
        "vectors": "md",
        "weights": "qC",
        "factors": "Cqq",
        "base_rates": "K",
    }
    MAY_BE_INFINITE: ClassVar[tuple[str, ...]] = ("log_evidence", "gain")

    kernel: LatentKernel
    theta: np.ndarray
    vectors: np.ndarray
    weights: np.ndarray
    factors: np.ndarray
    base_rates: np.ndarray
    log_evidence: float
    gain: float
    evaluations: int = 0
    directions: np.ndarray | None = None

    @property
    def name(self) -> str:
        """The structure of the kernel in words."""
        return self.kernel.structure.name

    @property
    def n_vectors(self) -> int:
        """Inducing rows: the kernel evaluations a prediction costs."""
        return len(self.vectors)

    @property
    def size(self) -> int:
        """Vectors and hyperparameters: what ties are decided by."""
        return len(self.vectors) + len(self.theta)

    @cached_property
    def vector_factor(self) -> np.ndarray | None:
        """The factor (m, m) of the covariance of the vectors; None where there are none."""
        none = self.vectors[:0]
        return Features(self.kernel, self.theta, none, self.vectors).L if len(self.vectors) else None

    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (n, C) of the latent functions at standardised X (n, d), less their prior means."""
        squares = 0.0  # in other directions, where no row has told anything
        if self.directions is not None:
            projected = X @ self.directions
            squares = np.sum(X**2, axis=1) - np.sum(projected**2, axis=1)
            X = projected
        features = Features(self.kernel, self.theta, X, self.vectors, self.vector_factor)
        left_out = features.left_out + self.kernel.slope_variance(self.theta) * np.maximum(squares, 0.0)
        share = 1.0 if len(self.factors) == 1 else 0.5  # see `relvec.gaussian_process.classes.softmax`
        variance = np.empty((len(X), len(self.factors)))
        for c, L in enumerate(self.factors):
            half = solve_triangular(L, features.Phi.T, lower=True, check_finite=False)
            variance[:, c] = np.einsum("ij,ij->j", half, half) + left_out
        return np.sqrt(share) * (features.Phi @ self.weights), share * variance

    def widen(self) -> ClassProcess:
        """Return the same process with a feature for every input: O(d^3)."""
        if self.directions is None:
            return self
        d, r = self.directions.shape
        V = np.zeros((d + 1, r + 1))
        V[:d, :r], V[d, r] = self.directions, 1.0
        factors = np.empty((len(self.factors), d + 1, d + 1))
        for c, L in enumerate(self.factors):  # B = I + V (L L' - I) V'
            B = V @ (L @ L.T - np.eye(r + 1)) @ V.T
            B.flat[:: d + 2] += 1.0
            factors[c] = dpotrf(B, lower=1, clean=1)[0]
        vectors = np.zeros((0, d))
        return replace(self, vectors=vectors, weights=V @ self.weights, factors=factors, directions=None)

    def slopes(self, X: np.ndarray) -> np.ndarray:
        """Derive the means of the latent functions by the inputs at standardised X (n, d): (C, n, d)."""
        m, kernel = len(self.vectors), self.kernel
        found = np.zeros((len(self.factors), *X.shape))
        for c, weights in enumerate(self.weights.T):
            if m:
                a = solve_triangular(self.vector_factor, weights[:m], lower=True, trans="T", check_finite=False)
                found[c] += kernel.stationary.slopes(kernel.stationary_theta(self.theta), X, self.vectors, a)
            if kernel.structure.linear:
                slopes = weights[m:-1] if self.directions is None else self.directions @ weights[:-1]
                found[c] += np.sqrt(kernel.slope_variance(self.theta)) * slopes
        return found

    def signals(self, X: np.ndarray, moderation: float = 1.0) -> np.ndarray:
        """(n, K) what the data add to the logarithms of the base rates, moderated by its uncertainty."""
        found = np.empty((len(X), len(self.base_rates)))
        for i in range(0, len(X), _BLOCK):
            mean, variance = self.latent(X[i : i + _BLOCK])
            if mean.shape[1] == 1:  # log-odds f are those of two classes with +- f/2, of variance v/2 each
                mean, variance = 0.5 * mean * [-1.0, 1.0], 0.5 * variance
            # The difference of two classes has the sum of their variances.
            found[i : i + _BLOCK] = mean / np.sqrt(1.0 + 2.0 * PROBIT * moderation * variance)
        return found

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        structure = self.kernel.structure
        linear = sizes["d"] + 1 if structure.linear else 0
        if self.directions is not None:
            linear = sizes["q"] if structure.linear and self.directions.shape == (sizes["d"], sizes["q"] - 1) else -1
        return (
            self.kernel.n_theta == sizes["p"]
            and structure.n_inputs == sizes["d"] > 0
            and sizes["q"] == sizes["m"] + linear
            and bool(structure.parts) == (sizes["m"] > 0)
            and sizes["C"] == (1 if sizes["K"] == 2 else sizes["K"])
        )


def calibrate_signals(signals: np.ndarray, base_rates: np.ndarray, slope: float = 1.0) -> np.ndarray:
    """Probabilities (n, K) of signals (n, K) about the base rates (K,).

    >>> calibrate_signals(np.array([[0.0, 0.0], [-1.0, 1.0]]), np.array([0.8, 0.2])).round(2).tolist()
    [[0.8, 0.2], [0.35, 0.65]]
    """
    return softmax(np.log(base_rates) + slope * signals, axis=1)
