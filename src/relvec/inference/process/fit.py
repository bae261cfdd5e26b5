"""Covariance functions, the evidence of a process with its derivatives, and the ascent on its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from relvec.inference.evidence import Posterior, gaussian
from relvec.kernels import Kernel, split_theta
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import report

_RELATIVE_JITTER = 1e-8  # added to the diagonal of a covariance matrix before it is factored
_MAX_FITTED_ROWS = 5000  # that choose the parameters: more change them little
_MAX_LBFGS_STEPS = 100  # of which each costs O(N m^2)
_MAX_VARIANCE_LOG_STEP = np.log(1e3)  # of amplitudes and noise, from their start
MAX_WIDTH_LOG_STEP = np.log(3.0)  # of widths: the data do not determine them far from the rows


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


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows: X (n, d), targets (n,) of unit mean square, weights (n,) and columns H (n, p) of h."""

    X: np.ndarray
    target: np.ndarray
    weights: np.ndarray
    H: np.ndarray

    def subsample(self, max_rows: int) -> TrainingRows:
        """At most ``max_rows`` rows, evenly spaced in lexicographic order, with weights scaled to the same sum."""
        if len(self.X) <= max_rows:
            return self
        chosen = np.lexsort(self.X.T[::-1])[np.linspace(0, len(self.X) - 1, max_rows).astype(np.intp)]
        weights = self.weights[chosen] * (self.weights.sum() / self.weights[chosen].sum())
        return TrainingRows(self.X[chosen], self.target[chosen], weights, self.H[chosen])


@dataclass(frozen=True, eq=False)
class FittedCovariance:
    """A process conditioned on data, in units where the target has unit mean square."""

    covariance: Covariance  # c with its amplitudes and kernels
    Z: np.ndarray  # (m, d) inducing inputs
    noise: float  # noise variance
    value: float  # log evidence, or the other criterion that was maximised
    posterior: Posterior  # of the weights of [psi, h]

    def scale_variances(self, factor: float, rows: TrainingRows) -> FittedCovariance:
        """The same process with all variances multiplied by a factor; the columns of ``rows`` have been multiplied."""
        covariance = Covariance(self.covariance.kernels, factor * self.covariance.amplitudes)
        with one_thread():
            value, p, _ = evidence(covariance, factor * self.noise, self.Z, rows)
        return FittedCovariance(covariance, self.Z, factor * self.noise, value, p)


Criterion = Callable[[Covariance, float, np.ndarray, TrainingRows], tuple[float, Posterior, np.ndarray]]


def evidence(
    covariance: Covariance, noise: float, Z: np.ndarray, rows: TrainingRows
) -> tuple[float, Posterior, np.ndarray]:
    """Log evidence under c', the posterior of the weights of [psi, h], and the derivative in (theta, log noise)."""
    L, P = features(covariance, Z, rows.X)
    left = np.maximum(covariance.diag(rows.X) - np.einsum("ij,ij->i", P, P), 0.0)
    variance = noise + left
    root = np.sqrt(rows.weights / variance)
    C, t = np.hstack([P, rows.H]) * root[:, None], root * rows.target
    p = gaussian(C, t, 0.0, float(rows.weights.sum()), np.ones(C.shape[1]), 1.0)
    C_bar = p.design_gradient()
    # rows and targets are divided by sqrt(variance), whose logarithm the evidence of targets in their own unit has too
    by_variance = -0.5 * (np.einsum("ij,ij->i", C, C_bar) - t * p.remainder + rows.weights) / variance
    P_bar = (C_bar * root[:, None])[:, : P.shape[1]] - 2.0 * P * by_variance[:, None]
    slope = pull_back_features(covariance, Z, rows.X, L, P, P_bar) + covariance.diag_vjp(rows.X, by_variance)
    value = p.log_evidence - 0.5 * float(rows.weights @ np.log(variance))
    return value, p, np.append(slope, noise * by_variance.sum())


def features(covariance: Covariance, Z: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factor L (m, m), and the rows psi(x_i) = L^-1 c(Z, x_i) (n, m)."""
    L = covariance.root(Z)
    return L, solve_triangular(L, covariance(Z, X), lower=True, check_finite=False).T


def pull_back_features(
    covariance: Covariance, Z: np.ndarray, X: np.ndarray, L: np.ndarray, P: np.ndarray, P_bar: np.ndarray
) -> np.ndarray:
    """Derivative with respect to theta of a function of P P', given its derivative P_bar (n, m) by the features P."""
    # P_bar = 2 Q P with a symmetric Q, and P = C L^-T: the derivative in L L' is -1/2 L^-T P'P_bar L^-1
    cross_bar = solve_triangular(L, P_bar.T, lower=True, trans=1, check_finite=False).T
    inner_bar = -0.5 * solve_triangular(L, P.T @ cross_bar, lower=True, trans=1, check_finite=False)
    return covariance.vjp(X, Z, cross_bar) + covariance.vjp(Z, Z, inner_bar)


def maximise_evidence(
    start: Covariance, noise: float, Z: np.ndarray, rows: TrainingRows, noise_floor: float | None = None,
    least: float = 0.0, reach: float = MAX_WIDTH_LOG_STEP, criterion: Criterion = evidence,
) -> FittedCovariance:  # fmt: skip
    """Maximise the evidence, or another criterion, from a covariance function and a noise variance by L-BFGS-B.

    Widths move by ``reach`` log units at most; amplitudes stay above ``least`` and the noise above ``noise_floor``, or
    where it is if that is None. At most `_MAX_FITTED_ROWS` rows choose the parameters.
    """
    few, q = rows.subsample(_MAX_FITTED_ROWS), len(start.kernels)
    x0 = np.append(start.theta, np.log(noise))
    room = np.concatenate(
        [
            np.full(q, _MAX_VARIANCE_LOG_STEP),
            np.full(len(x0) - q - 1, reach),
            [0.0 if noise_floor is None else _MAX_VARIANCE_LOG_STEP],
        ]
    )
    low, high = x0 - room, x0 + room
    if least > 0.0:
        low[:q] = np.minimum(np.log(least), x0[:q])
    if noise_floor is not None:
        low[-1] = min(np.log(noise_floor), x0[-1])
    best: list[tuple[float, np.ndarray]] = []

    def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, _, slope = criterion(start.with_theta(x[:-1]), float(np.exp(x[-1])), Z, few)
        except np.linalg.LinAlgError:  # c(Z, Z) has represented its rank: too far
            return 1e300, np.zeros(len(x))
        if not best or value > best[0][0]:
            best[:] = [(value, x.copy())]
        report(len(Z), best[0][0])
        return -value, -slope

    with one_thread():
        minimize(negative, x0, jac=True, method="L-BFGS-B", bounds=list(zip(low, high, strict=True)),
                 options={"maxiter": _MAX_LBFGS_STEPS, "maxcor": 20})  # fmt: skip
        x = best[0][1] if best else x0
        covariance, noise = start.with_theta(x[:-1]), float(np.exp(x[-1]))
        value, p, _ = criterion(covariance, noise, Z, rows)
    return FittedCovariance(covariance, Z, noise, value, p)
