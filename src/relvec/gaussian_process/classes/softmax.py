"""Laplace's approximation for K classes that share features: one mode, K small factors, no matrix over all classes.

The latent functions are f_c = b_c + phi' u_c / sqrt(2), so that the difference of two has the covariance of the one
latent function of `binary`, and two classes give that model. At the joint mode of log p(y | F) - 1/2 |U|^2, found by
Newton's method with conjugate gradients, the curvature of a row between classes, diag(p) - p p', is replaced by its
diagonal, scaled so that two classes, and rows of equal probabilities, come out exactly:

    log p(y | theta) ~ log p(y | F) - 1/2 |U|^2 - (K - 1)/(2 K) sum_c log|B_c| - rho/4 sum_ic D_ic t_i,
    B_c = I + K / (2 (K - 1)) Phi' D_c Phi,    D_ic = n_i p_ic (1 - p_ic).

The posterior of f_c at a point is N(mean, 1/2 phi' B_c^-1 phi + t / 2), independent over the classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotri

from relvec.gaussian_process.classes.model import LEFT_OUT, NEWTON_STEPS, SETTLED_NATS, Features

_ROOT2 = np.sqrt(2.0)
_INNER = 50  # conjugate gradients of a step, at most
_MANY_INNER = 10  # conjugate gradients of a step beyond which a new preconditioner is cheaper


@dataclass(frozen=True, eq=False)
class SoftmaxMode:
    """U (q, K), F (n, K), the factors L (K, q, q) of B_c, probabilities P (n, K), curvatures D (n, K), residuals G.

    `value` is the objective, `gain` the nats that a further Newton step would bring.
    """

    u: np.ndarray
    F: np.ndarray
    L: np.ndarray
    P: np.ndarray
    D: np.ndarray
    G: np.ndarray
    value: float
    gain: float

    def cost(self, left_out: np.ndarray) -> float:
        """Nats that variances (n,) left out cost, to second order."""
        return float(0.25 * self.D.sum(1) @ left_out)

    def log_evidence(self, left_out: np.ndarray) -> float:
        """Laplace's evidence with variances (n,) left out."""
        K = self.P.shape[1]
        logs = np.log(np.diagonal(self.L, axis1=1, axis2=2)).sum()
        return float(self.value - (K - 1) / K * logs - LEFT_OUT * self.cost(left_out))


@dataclass(frozen=True, eq=False)
class _Curvature:
    """I + 1/2 Phi' W Phi over all classes as an operator, W = n (diag p - p p') a row; and a preconditioner."""

    Phi: np.ndarray
    weight: np.ndarray
    P: np.ndarray

    def across(self, F: np.ndarray) -> np.ndarray:
        """W F for F (n, K)."""
        PF = self.P * F
        return self.weight[:, None] * (PF - self.P * PF.sum(1, keepdims=True))

    def __call__(self, V: np.ndarray) -> np.ndarray:
        return V + 0.5 * (self.Phi.T @ self.across(self.Phi @ V))

    def solve(self, R: np.ndarray, inverses: np.ndarray, tolerance: float) -> tuple[np.ndarray, int]:
        """Return the solution (q, K) for the right-hand side R (q, K) by conjugate gradients, and how many they were.

        The preconditioner is the inverses (K, q, q) of B_c, here or nearby.
        """
        X, residual = np.zeros_like(R), R.copy()
        Z = _precondition(inverses, residual)
        direction, rho = Z, np.vdot(residual, Z)
        end = tolerance * rho
        for spent in range(_INNER):
            if rho <= end:
                return X, spent
            H = self(direction)
            step = rho / np.vdot(direction, H)
            X += step * direction
            residual -= step * H
            Z = _precondition(inverses, residual)
            rho, last = np.vdot(residual, Z), rho
            direction = Z + (rho / last) * direction
        return X, _INNER


def _precondition(inverses: np.ndarray, R: np.ndarray) -> np.ndarray:
    Z = np.matmul(inverses, R.T[:, :, None])[:, :, 0].T
    return Z - Z.mean(1, keepdims=True)  # the classes' sum is not in the data: R has none, and directions need none


def invert_factors(factors: np.ndarray) -> np.ndarray:
    """B_c^-1 (K, q, q) from the lower factors (K, q, q)."""
    found = np.empty_like(factors)
    for c, L in enumerate(factors):
        half = np.triu(dpotri(L.T, lower=0)[0])
        found[c] = half + np.triu(half, 1).T
    return found


def factor_classes(Phi: np.ndarray, weight: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors (K, q, q) of B_c."""
    K = P.shape[1]
    found = np.empty((K, Phi.shape[1], Phi.shape[1]))
    for c in range(K):
        half = np.sqrt(0.5 * K / (K - 1) * weight * P[:, c] * (1.0 - P[:, c]))[:, None] * Phi
        B = dsyrk(1.0, half.T, lower=1)
        B[np.diag_indices(len(B))] += 1.0
        found[c] = dpotrf(B, lower=1, overwrite_a=1, clean=1)[0]
    return found


def mode(Phi: np.ndarray, counts: np.ndarray, offset: np.ndarray, start: SoftmaxMode | None = None) -> SoftmaxMode:
    """Newton's method with conjugate gradients from the better of another mode and zero; counts (n, K), offset (K,)."""
    weight = counts.sum(1)
    begin = [np.zeros((Phi.shape[1], counts.shape[1]))]
    if start is not None:  # at a mode U = Phi' G / sqrt(2): the weights of the other one, or those its residuals make
        begin += [start.u, Phi.T @ start.G / _ROOT2]
    tried = [(*_objective(Phi, counts, offset, U), U) for U in begin]
    value, F, P, U = max(tried, key=lambda one: one[0])
    spent = _INNER
    for _ in range(NEWTON_STEPS):
        if spent > _MANY_INNER:
            inverses = invert_factors(factor_classes(Phi, weight, P))
        G = counts - weight[:, None] * P
        slope = Phi.T @ G / _ROOT2 - U
        step, spent = _Curvature(Phi, weight, P).solve(slope, inverses, 1e-2)
        gain = 0.5 * np.vdot(step, slope)
        if gain < SETTLED_NATS:
            break
        scale = 1.0
        while scale > 1e-6:
            new, latent, chance = _objective(Phi, counts, offset, U + scale * step)
            if new >= value - 1e-12 * abs(value):
                break
            scale *= 0.5
        U, F, P, value = U + scale * step, latent, chance, new
    D = weight[:, None] * P * (1.0 - P)
    return SoftmaxMode(U, F, factor_classes(Phi, weight, P), P, D, G, value, float(gain))


def _objective(Phi, counts, offset, U) -> tuple[float, np.ndarray, np.ndarray]:
    F = Phi @ U / _ROOT2 + offset
    log_p = F - F.max(1, keepdims=True)
    P = np.exp(log_p)
    total = P.sum(1, keepdims=True)
    log_p -= np.log(total)
    return float(np.vdot(counts, log_p) - 0.5 * np.vdot(U, U)), F, P / total


def evidence(features: Features, counts: np.ndarray, rates: np.ndarray, start: SoftmaxMode | None = None):
    """Value, gradient (p,) in theta, and the mode; the derivation is that of `binary.evidence`, class by class."""
    logs = np.log(rates) - np.log(rates).mean()
    Phi, t, K = features.Phi, LEFT_OUT * features.left_out, counts.shape[1]
    eta, kappa = (K - 1) / K, 0.5 * K / (K - 1)
    found = mode(Phi, counts, logs, start)
    P, D, G, weight = found.P, found.D, found.G, counts.sum(1)
    bar, s, inverses = np.zeros_like(Phi), np.empty_like(D), invert_factors(found.L)
    for c in range(K):
        PhiA = Phi @ inverses[c]
        s[:, c] = np.einsum("ij,ij->i", PhiA, Phi)
        bar -= (eta * kappa * D[:, c])[:, None] * PhiA
    b = eta * kappa * (s + t[:, None]) * weight[:, None] * (1.0 - 2.0 * P) * P
    r = -0.5 * (b - P * b.sum(1, keepdims=True))
    W = _Curvature(Phi, weight, P)
    z = r - 0.5 * W.across(Phi @ W.solve(Phi.T @ r, inverses, 1e-6)[0])  # the mode moves with theta
    bar += (G + z) @ found.u.T / _ROOT2 + 0.5 * (G @ (Phi.T @ z).T)
    slope = features.vjp(bar, -0.25 * LEFT_OUT * D.sum(1))
    return found.log_evidence(features.left_out), slope, found
