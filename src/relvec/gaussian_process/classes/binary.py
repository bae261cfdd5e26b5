"""Laplace's approximation for two classes in the space of features: mode, evidence, gradient.

    log p(y | theta) ~ log p(y | f) - 1/2 |u|^2 - 1/2 log|B| - rho/2 sum_i W_i t_i,
    f = b + Phi u,    B = I + Phi' W Phi,

at the mode u of the first two terms, W = n p (1 - p) with n the weight of a row, p = sigmoid(f), and b the logit of the
base rate. The last term is a share rho of what the variance t that the features leave out costs to second order, so
that widths are not learned which the inducing rows cannot follow; all of it (the variational bound) makes widths too
long, none of it too short. With every row an inducing row it is zero and the rest Rasmussen and Williams' eq. (3.32).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.special import expit, log_expit

from relvec.gaussian_process.classes.model import LEFT_OUT, NEWTON_STEPS, SETTLED_NATS, Features

_LARGE = 1e6  # n q^2: from here on a few products with Phi cost less than a factor
_INNER = 12  # products of conjugate gradients that cost less than a factor
_ENOUGH = 1e-3  # of the gain of a Newton step may be missed


@dataclass(frozen=True, eq=False)
class BinaryMode:
    """u (q,), f (n,), the lower factor of B (q, q), curvatures W (n,), residuals g (n,) and log p(y|f) - |u|^2/2.

    `gain` are the nats that a further Newton step would bring.
    """

    u: np.ndarray
    f: np.ndarray
    L: np.ndarray
    W: np.ndarray
    g: np.ndarray
    value: float
    gain: float

    def cost(self, left_out: np.ndarray) -> float:
        """Nats that variances (n,) left out cost, to second order."""
        return float(0.5 * self.W @ left_out)

    def log_evidence(self, left_out: np.ndarray) -> float:
        """Laplace's evidence with variances (n,) left out."""
        return float(self.value - np.log(self.L.diagonal()).sum() - LEFT_OUT * self.cost(left_out))


def mode(Phi: np.ndarray, counts: np.ndarray, offset: float, start: BinaryMode | None = None) -> BinaryMode:
    """Newton's method from another mode or from zero; counts (n, 2), the second column that of p = sigmoid(f)."""
    # At a mode u = Phi' g: begin at the weights of the other one, or at those its residuals make.
    begin = [np.zeros(Phi.shape[1])] if start is None else [start.u, Phi.T @ start.g]
    tried = [(*_objective(Phi, counts, offset, u), u) for u in begin]
    value, f, u = max(tried, key=lambda one: one[0])
    weight, positive = counts.sum(1), counts[:, 1]
    L = None
    for _ in range(NEWTON_STEPS):
        p, own = expit(f), None
        g, W = positive - weight * p, weight * p * (1.0 - p)
        slope = Phi.T @ g - u
        step = None if L is None or Phi.size * len(u) < _LARGE else _solve(Phi, W, L, slope)
        if step is None:
            L = own = _factor(Phi, W)
            step = dpotrs(L, slope, lower=1)[0]
        gain = 0.5 * step @ slope  # what a quadratic would gain
        if gain < SETTLED_NATS:
            break
        scale = 1.0
        while scale > 1e-6:
            new, latent = _objective(Phi, counts, offset, u + scale * step)
            if new >= value - 1e-12 * abs(value):
                break
            scale *= 0.5
        u, f, value = u + scale * step, latent, new
    return BinaryMode(u, f, _factor(Phi, W) if own is None else own, W, g, value, float(gain))


def _solve(Phi: np.ndarray, W: np.ndarray, L: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
    """B^-1 slope by conjugate gradients with the factor of another B, which is much cheaper than a factor of its own.

    None where the two are too different.
    """
    x, residual = np.zeros_like(slope), slope
    z = direction = dpotrs(L, residual, lower=1)[0]
    rho = residual @ z
    end = _ENOUGH * rho
    for _ in range(_INNER):
        H = direction + Phi.T @ (W * (Phi @ direction))
        size = rho / (direction @ H)
        x, residual = x + size * direction, residual - size * H
        z = dpotrs(L, residual, lower=1)[0]
        rho, last = residual @ z, rho
        if rho <= end:
            return x
        direction = z + (rho / last) * direction
    return None


def _objective(Phi: np.ndarray, counts: np.ndarray, offset: float, u: np.ndarray) -> tuple[float, np.ndarray]:
    f = Phi @ u + offset
    return float(counts[:, 1] @ log_expit(f) + counts[:, 0] @ log_expit(-f) - 0.5 * u @ u), f


def _factor(Phi: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Lower Cholesky factor of I + Phi' W Phi."""
    B = dsyrk(1.0, (np.sqrt(W)[:, None] * Phi).T, lower=1)
    B[np.diag_indices(len(B))] += 1.0
    return dpotrf(B, lower=1, overwrite_a=1, clean=1)[0]


def evidence(features: Features, counts: np.ndarray, rates: np.ndarray, start: BinaryMode | None = None):
    """Value, gradient (p,) in theta, and the mode."""
    logit = np.log(rates[1] / rates[0])
    Phi, t = features.Phi, LEFT_OUT * features.left_out
    found = mode(Phi, counts, logit, start)
    u, W, g = found.u, found.W, found.g
    A = dpotri(found.L, lower=1)[0]
    A = np.tril(A) + np.tril(A, -1).T
    PhiA = Phi @ A
    s = np.einsum("ij,ij->i", PhiA, Phi)
    r = -0.5 * W * np.tanh(-0.5 * found.f) * (s + t)  # dW/df = W (1 - 2 p)
    z = r - W * (PhiA @ (Phi.T @ r))  # the mode moves with theta: (I + W Phi Phi') z = r
    bar = np.outer(g + z, u) + np.outer(g, Phi.T @ z) - W[:, None] * PhiA
    slope = features.vjp(bar, -0.5 * LEFT_OUT * W)
    return found.log_evidence(features.left_out), slope, found
