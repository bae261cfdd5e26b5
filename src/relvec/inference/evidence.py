"""Pure formulas of the Gaussian model: evidence, moves and their gains, updates, derivatives.

Letters follow the papers: ``alpha`` weight precisions, ``beta`` noise precision, ``Sigma`` and ``mu`` posterior
covariance and mean, ``S, Q`` of TF03 eq. (22) with every atom in the model, ``s, q`` of eq. (19) with the atom in
question left out.
"""

from __future__ import annotations

import numpy as np

LOG_2PI = float(np.log(2.0 * np.pi))


# ---------------------------------------------------------------- one atom at a time


def optimal_alpha(s, q):
    """The precision that maximises the evidence in one atom: TF03 eq. (20)-(21), infinite where q^2 <= s.

    >>> float(optimal_alpha(1.0, 2.0))
    0.3333333333333333
    """
    s, q = np.asarray(s, float), np.asarray(q, float)
    theta = q * q - s
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(theta > 0.0, s * s / np.where(theta > 0.0, theta, 1.0), np.inf)


def single_atom(alpha, s, q):
    """l(alpha): what one atom with precision alpha contributes to the log evidence (TF03 eq. (18))."""
    total = alpha + s
    return 0.5 * (np.log(alpha) - np.log(total) + q * q / total)


def gain_add(S, Q):
    """Gain (nats) of adding atoms at their optimal precision, 0 where none is finite (TF03 A.2).

    >>> float(gain_add(1.0, 1.0))
    0.0
    """
    S, Q = np.asarray(S, float), np.asarray(Q, float)
    ratio = np.divide(Q * Q, S, out=np.zeros(np.broadcast(S, Q).shape), where=S > 0.0)
    np.maximum(ratio, 1.0, out=ratio)
    return 0.5 * (ratio - 1.0 - np.log(ratio))  # TF03 A.2


def gain_delete(alpha, gamma, mu, Sigma_diag):
    """Gain (usually negative) of deleting atoms of the model: TF03 A.4 through Sigma_ii and mu_i.

    With s = 1/Sigma_ii - alpha and q = mu_i/Sigma_ii it is (log(1 + s/alpha) - q^2/(alpha + s)) / 2, and
    s/alpha = gamma/(1 - gamma), q^2/(alpha + s) = mu_i^2/Sigma_ii.
    """
    with np.errstate(over="ignore"):  # -inf: the atom is not to be spared
        return 0.5 * (-np.log(alpha * Sigma_diag) - mu * mu / Sigma_diag)


def gain_reestimate(alpha, s, q):
    """Gain of moving each alpha of the model to its optimum (TF03 A.3); deletion where that is infinite."""
    known = np.asarray(s) > 0.0  # an s of 0 is rounding: the data say nothing about such an atom
    s = np.where(known, s, 1.0)
    best = optimal_alpha(s, q)
    finite = np.isfinite(best) & (best > 0.0)
    moved = np.where(finite, single_atom(np.where(finite, best, 1.0), s, q), 0.0)
    return np.where(known, moved - single_atom(alpha, s, q), 0.0)


def exchange_statistics(S, Q, cross, Sigma_diag, mu):
    """S and Q of every atom j after atom i has left the model, for all pairs (k, M).

    ``cross`` (k, M) is Sigma Phi_a' B Phi; deleting i adds cross_ij^2 / Sigma_ii to S_j and
    cross_ij mu_i / Sigma_ii to Q_j (TF03 A.4).
    """
    return S + cross * cross / Sigma_diag[:, None], Q + cross * (mu / Sigma_diag)[:, None]


def without_self(alpha, S, Q):
    """s, q from S, Q by TF03 eq. (23): exact on paper, and accurate while S is well below alpha."""
    shrink = alpha / (alpha - S)
    return shrink * S, shrink * Q


# ---------------------------------------------------------------- stationary equations


def mackay_alpha(gamma, mu, a=0.0, b=0.0):
    """T01 eq. (44): (gamma_i + 2a) / (mu_i^2 + 2b)."""
    with np.errstate(divide="ignore"):
        return (gamma + 2.0 * a) / (mu * mu + 2.0 * b)


def em_alpha(mu, Sigma_diag, a=0.0, b=0.0):
    """T01 eq. (48): (1 + 2a) / (mu_i^2 + Sigma_ii + 2b), the expectation-maximisation update."""
    return (1.0 + 2.0 * a) / (mu * mu + Sigma_diag + 2.0 * b)


def mackay_noise(residual, n_samples, gamma_sum, c=0.0, d=0.0):
    """T01 eq. (46): (|t - Phi mu|^2 + 2d) / (N - sum gamma + 2c)."""
    return (residual + 2.0 * d) / (n_samples - gamma_sum + 2.0 * c)


def em_noise(residual, n_samples, gamma_sum, noise, c=0.0, d=0.0):
    """T01 eq. (50): (|t - Phi mu|^2 + noise sum gamma + 2d) / (N + 2c)."""
    return (residual + noise * gamma_sum + 2.0 * d) / (n_samples + 2.0 * c)


# ---------------------------------------------------------------- derivatives


def gradient(alpha, mu, gamma, beta, residual, n_samples):
    """dL/dlog alpha (k,) and dL/dlog beta of the evidence (T01 eq. (42), (45) with its missing beta)."""
    return 0.5 * (gamma - alpha * mu * mu), 0.5 * (n_samples - beta * residual - gamma.sum())


def hessian(alpha, mu, Sigma, beta, residual):
    """Second derivatives of the evidence in (log alpha, log beta): (k, k), (k,), scalar."""
    root = np.sqrt(alpha)
    return prior_unit_hessian(root * mu, root[:, None] * Sigma * root, beta, residual)


def prior_unit_hessian(v, B, beta, residual):
    """The Hessian in units of the prior, v = A^1/2 mu and B = A^1/2 Sigma A^1/2.

    Differentiate the gradient through
    dSigma/dlog alpha_j = -alpha_j Sigma_j Sigma_j' and dmu/dlog alpha_j = -Sigma_j alpha_j mu_j; the last row is beta.
    """
    H = np.multiply.outer(v, v)
    H *= B
    squares = B * B
    squares *= 0.5
    H += squares
    diagonal = B.diagonal()
    H.flat[:: len(v) + 1] -= 0.5 * (v * v + diagonal)
    moved = v * (B @ v)
    columns = squares.sum(axis=0)
    border = 0.5 * diagonal - moved - columns
    corner = columns.sum() - 0.5 * (diagonal.sum() + beta * residual) + moved.sum()
    return H, border, corner


# ---------------------------------------------------------------- TF03's appendix: rank-one updates
# S, Q (M,) belong to every atom of the dictionary; ``cross`` (k, M) is beta Phi_a' Phi. The defaults of relvec
# recompute through orthogonal factors instead: repeated rank-one updates drift (TF03 A refreshes them too).


def update_add(Sigma, mu, S, Q, cross, own, i, alpha_i):
    """TF03 A.2: add atom i with precision alpha_i. ``own`` (M,) is beta phi_i' Phi."""
    Sigma_ii = 1.0 / (alpha_i + S[i])
    mu_i = Sigma_ii * Q[i]
    v = Sigma @ cross[:, i]  # beta Sigma Phi' phi_i
    projected = own - v @ cross  # beta phi_m' e_i
    k = len(mu)
    bigger = np.empty((k + 1, k + 1))
    bigger[:k, :k] = Sigma + Sigma_ii * np.outer(v, v)
    bigger[:k, k] = bigger[k, :k] = -Sigma_ii * v
    bigger[k, k] = Sigma_ii
    return bigger, np.append(mu - mu_i * v, mu_i), S - Sigma_ii * projected**2, Q - mu_i * projected


def update_reestimate(Sigma, mu, S, Q, cross, j, alpha_old, alpha_new):
    """TF03 A.3: move the precision of the j-th atom of the model."""
    change = alpha_new - alpha_old
    kappa = change / (1.0 + Sigma[j, j] * change)  # (Sigma_jj + 1 / change)^-1, and 0 for no change
    column = Sigma[:, j].copy()
    projected = column @ cross
    return (
        Sigma - kappa * np.outer(column, column),
        mu - kappa * mu[j] * column,
        S + kappa * projected**2,
        Q + kappa * mu[j] * projected,
    )


def update_delete(Sigma, mu, S, Q, cross, j):
    """TF03 A.4: delete the j-th atom of the model."""
    column = Sigma[:, j].copy()
    projected = column @ cross
    keep = np.arange(len(mu)) != j
    smaller = Sigma - np.outer(column, column) / column[j]
    return (
        smaller[np.ix_(keep, keep)],
        (mu - (mu[j] / column[j]) * column)[keep],
        S + projected**2 / column[j],
        Q + (mu[j] / column[j]) * projected,
    )
