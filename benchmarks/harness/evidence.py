"""The log evidence of a sparse model, the same way for every peer: Gaussian, or Laplace's for two classes."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize, minimize_scalar
from scipy.spatial.distance import cdist
from scipy.special import expit


def kernel(X, centres, width):
    """exp(-|x - z|^2 / width^2), from differences and not from the expanded square."""
    return np.exp(-cdist(X, centres, "sqeuclidean") / width**2)


def log_evidence(model, X, y, width):
    """Log evidence of a `Model`, and the names of what had to be maximised because the peer does not expose it.

    C = noise I + Phi A^-1 Phi' is never formed: its eigenvalues are noise + s^2, with s the singular values of
    Phi A^-1/2, which a QR decomposition reduces to as many rows as there are columns.
    """
    Phi = kernel(X, X[np.asarray(model.rows, dtype=int)], width)
    alpha = np.asarray(model.alpha, dtype=float)
    if model.bias is not None:
        Phi, alpha = np.column_stack([Phi, np.ones(len(X))]), np.append(alpha, model.bias)
    Q, R = np.linalg.qr(Phi)
    z = Q.T @ y
    left = y - Q @ z
    rest = float(left @ left)
    log_theta = np.log(np.append(alpha, model.noise))
    free = np.isnan(log_theta)
    if not free.any():
        return float(_value(log_theta, R, z, rest, len(y))[0]), []
    found = _maximise(log_theta, free, Phi, R, z, rest, y)
    names = ["precisions"] * len(model.rows) + ["precision of the constant"] * (model.bias is not None) + ["noise"]
    return found, list(dict.fromkeys(name for name, f in zip(names, free, strict=True) if f))


def _value(log_theta, R, z, rest, n):
    """The log evidence and its gradient in (log alpha, log noise)."""
    alpha, noise = np.exp(log_theta[:-1]), np.exp(log_theta[-1])
    U, s, Vt = np.linalg.svd(R / np.sqrt(alpha), full_matrices=False)
    p, total = U.T @ z, s * s + noise
    outside = rest + float(((z - U @ p) ** 2).sum())
    # N log noise + sum log(1 + s^2 / noise) is log |C|
    fit = outside / noise + float((p * p / total).sum())
    value = -0.5 * (n * np.log(2.0 * np.pi * noise) + float(np.log1p(s * s / noise).sum()) + fit)
    gamma = 1.0 - (Vt * Vt).T @ (noise / total)  # 1 - alpha_i Sigma_ii
    scaled = Vt.T @ (s * p / total)  # sqrt(alpha) mu
    residual = outside + float(((noise * p / total) ** 2).sum())
    by_alpha = 0.5 * (gamma - scaled**2)
    by_noise = 0.5 * (residual / noise + gamma.sum() - n)
    return value, np.append(by_alpha, by_noise)


def _maximise(log_theta, free, Phi, R, z, rest, y):
    """The largest log evidence over the entries of log_theta that are free, the others held."""
    spread = y @ y / len(y)
    column = np.maximum((Phi * Phi).mean(axis=0), 1e-300)
    start = np.where(free, np.log(np.append(column / spread, 0.1 * spread)), log_theta)

    def negative(x):
        at = start.copy()
        at[free] = x
        value, slope = _value(at, R, z, rest, len(y))
        return -value, -slope[free]

    best = minimize(
        negative,
        start[free],
        jac=True,
        method="L-BFGS-B",
        bounds=[(x - 35.0, x + 35.0) for x in start[free]],
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-13, "gtol": 1e-6},
    )
    return -float(best.fun)


def laplace_evidence(model, X, y, width):
    """Laplace evidence of a `Model` of classes 0 and 1 at the mode of T01 eq. (24), and what had to be maximised."""
    Phi = kernel(X, X[np.asarray(model.rows, dtype=int)], width)
    alpha = np.asarray(model.alpha, dtype=float)
    if model.bias is None:
        return _laplace_value(Phi, y, alpha), []
    Phi = np.column_stack([Phi, np.ones(len(X))])
    if not np.isnan(model.bias):
        return _laplace_value(Phi, y, np.append(alpha, model.bias)), []
    best = minimize_scalar(
        lambda x: -_laplace_value(Phi, y, np.append(alpha, np.exp(x))), bounds=(-20.0, 20.0), method="bounded"
    )
    return -float(best.fun), ["precision of the constant"]


def _laplace_value(Phi, t, alpha):
    """log P(t | w) - w'Aw/2 - log |I + A^-1/2 Phi'B Phi A^-1/2|/2 at the mode, by Newton's method in A^1/2 w."""
    G = Phi / np.sqrt(alpha)

    def value(v):
        f = G @ v
        return float(t @ f - np.logaddexp(0.0, f).sum() - 0.5 * v @ v)

    v = np.zeros(len(alpha))
    for _ in range(200):
        p = expit(G @ v)
        factor = cho_factor(np.eye(len(v)) + G.T @ (G * (p * (1.0 - p))[:, None]))
        slope = G.T @ (t - p) - v
        step = cho_solve(factor, slope)
        decrement, length = float(slope @ step), 1.0
        if decrement < 1e-16:
            break
        while value(v + length * step) < value(v) + 1e-4 * length * decrement and length > 1e-10 and decrement > 1e-9:
            length *= 0.5
        v = v + length * step
    return value(v) - float(np.log(np.diagonal(factor[0])).sum())
