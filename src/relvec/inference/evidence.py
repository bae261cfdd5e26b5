"""The Gaussian model: its posterior and evidence, the gains of moves, stationary equations and derivatives.

Letters follow the papers: ``alpha`` weight precisions, ``beta`` noise precision, ``Sigma`` and ``mu`` posterior
covariance and mean, ``S, Q`` of TF03 eq. (22) with every atom in the model, ``s, q`` of eq. (19) with the atom in
question left out. `gaussian` gives the posterior and the log evidence of T01 eq. (15), `single_atom` the part of one
atom in it, TF03 eq. (18), and `optimal_alpha` the maximum of that, eq. (20)-(21).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relvec.inference.linalg import Reflections, factor_ridge_and_basis, inverse_triangular

LOG_2PI = float(np.log(2.0 * np.pi))
SMALL_GAMMA = 1e-6  # below, 1 - alpha Sigma has no digits
TIE_NATS = 1e-9  # gains closer than this are equal
MAX_CORRELATION = 0.999  # of two columns: above, they are near-copies; the bound of SparseBayes' alignment test
MIN_COPY_CORRELATION = 1.0 - 1e-12  # of two columns of which one is a copy, or a negation, of the other


@dataclass(frozen=True, eq=False)
class Posterior:
    """Gaussian posterior N(mean, Sigma) of k weights, at given precisions."""

    alpha: np.ndarray  # (k,) weight precisions
    beta: float  # noise precision
    v: np.ndarray  # (k,) A^1/2 mu, the mean in units of the prior
    V: np.ndarray  # (k, k) upper triangular with A^1/2 Sigma A^1/2 = V V'
    residual: float  # |t - Phi mu|^2
    log_evidence: float  # log p(t | alpha, beta), complete with -N/2 log 2 pi (T01 eq. (15))
    n_samples: float  # N, the sum of the sample weights
    scaled: np.ndarray  # (n, k) X = beta^1/2 Phi A^-1/2, in the coordinates the model was given in
    remainder: np.ndarray  # (n,) z - R mu, the residual in those coordinates
    # Q with [X; I] = Q V^-1, where X is so large that X V would lose digits; else None
    basis: Reflections | None = None

    @cached_property
    def leverage(self) -> np.ndarray:
        """X V (n, k); C^-1 = beta (I - leverage leverage')."""
        return self.scaled @ self.V if self.basis is None else self.basis.top

    @cached_property
    def mean(self) -> np.ndarray:
        """The posterior mean mu (k,), T01 eq. (13)."""
        return self.v / np.sqrt(self.alpha)

    @cached_property
    def root(self) -> np.ndarray:
        """Upper triangular (k, k) with Sigma = root root', T01 eq. (12)."""
        return self.V / np.sqrt(self.alpha)[:, None]

    @cached_property
    def covariance(self) -> np.ndarray:
        """Sigma (k, k), T01 eq. (12)."""
        return self.root @ self.root.T

    @cached_property
    def shrinkage(self) -> np.ndarray:
        """1 - gamma_i = alpha_i Sigma_ii (k,): posterior over prior variance of each weight."""
        return np.einsum("ij,ij->i", self.V, self.V)

    @cached_property
    def variance(self) -> np.ndarray:
        """Diagonal of Sigma (k,)."""
        return self.shrinkage / self.alpha

    @cached_property
    def gamma(self) -> np.ndarray:
        """Well-determinedness gamma_i = 1 - alpha_i Sigma_ii (k,), T01 eq. (17).

        Where it is small the difference has no digits. There gamma_i is the squared length of the part of the i-th unit
        vector of the k lower rows that is orthogonal to the columns of [X; I], in which nothing of that size cancels.
        """
        gamma = 1.0 - self.shrinkage
        small = np.flatnonzero(gamma < SMALL_GAMMA)
        if small.size:
            rows = self.V[small].T
            above, below = self.leverage @ rows, self.V @ rows
            below[small, np.arange(small.size)] = 0.0  # in place of gamma_i itself, whose square is added at the end
            part = np.einsum("ij,ij->j", above, above) + np.einsum("ij,ij->j", below, below)
            gamma[small] = part + part**2
        return gamma

    def design_gradient(self) -> np.ndarray:
        """dL/dPhi (n, k) in the coordinates of the posterior: beta [(t - Phi mu) mu' - Phi Sigma], T01 eq. (55)."""
        # Phi Sigma = beta^-1/2 leverage root'
        return self.beta * np.outer(self.remainder, self.mean) - math.sqrt(self.beta) * (self.leverage @ self.root.T)

    def sparsity_quality(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the s and q (k,) of the model's own atoms, TF03 eq. (19), without the cancelling form of eq. (23).

        s = 1/Sigma_ii - alpha_i = alpha_i gamma_i / (1 - gamma_i) and q = mu_i / Sigma_ii.
        """
        return self.gamma / self.variance, self.mean / self.variance


def gaussian(
    R: np.ndarray, z: np.ndarray, rest: float, n_samples: float, alpha: np.ndarray, beta: float,
    gram: np.ndarray | None = None,
) -> Posterior:  # fmt: skip
    """Posterior and evidence of t = Phi w + noise, in any orthonormal coordinates of the rows.

    Parameters
    ----------
    R : (n, k) coordinates Q'Phi_a of the model's columns, with every column inside the span of Q. Phi_a itself
        (Q = I) is allowed.
    z : (n,) coordinates Q't of the target.
    rest : |t|^2 - |z|^2, the squared part of the target outside that span.
    n_samples : N, or the sum of the sample weights.
    alpha : (k,) weight precisions, positive and finite.
    beta : noise precision.
    gram : (k, k) R'R, for callers that evaluate one R many times.

    Examples
    --------
    >>> import numpy as np
    >>> Phi, t = np.array([[1.0], [1.0]]), np.array([1.0, 3.0])
    >>> p = gaussian(Phi, t, 0.0, 2, np.array([0.5]), 2.0)
    >>> C = np.eye(2) / 2.0 + Phi @ Phi.T / 0.5
    >>> dense = -0.5 * (2 * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + t @ np.linalg.solve(C, t))
    >>> bool(np.isclose(p.log_evidence, dense))
    True
    """
    precision = math.sqrt(beta)
    spread = precision / np.sqrt(alpha)
    X = R * spread
    if gram is not None:
        gram = gram * spread
        gram *= spread[:, None]
    U, basis = factor_ridge_and_basis(X, gram)  # U'U = A^-1/2 (A + beta Phi'Phi) A^-1/2, T01 eq. (12)
    V = inverse_triangular(U)
    if basis is None:
        # X'z loses digits, or overflows, where X is large
        v = V @ ((precision * z) @ (X @ V) if U.diagonal().max(initial=0.0) > 1e3 else ((precision * z) @ X) @ V)
        remainder = z - (X @ v) / precision
    else:
        explained, remainder = basis.split(z)
        v = V @ (precision * explained)
    residual = float(remainder @ remainder) + rest
    # T01 eq. (38) and (41): log |C| = 2 log |U| - N log beta, t'C^-1 t = beta |t - Phi mu|^2 + mu'A mu
    log_evidence = -0.5 * (
        n_samples * (LOG_2PI - math.log(beta))
        + 2.0 * float(np.add.reduce(np.log(np.abs(U.diagonal()))))
        + beta * residual
        + float(v @ v)
    )
    return Posterior(alpha, beta, v, V, residual, log_evidence, n_samples, X, remainder, basis)


# ---------------------------------------------------------------- one atom at a time


def optimal_alpha(s, q):
    """Return the precision that maximises the evidence in one atom: TF03 eq. (20)-(21), infinite where q^2 <= s.

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
    known = np.asarray(s) > 0.0  # an s of 0 is rounding: the data carry no information about such an atom
    s = np.where(known, s, alpha)
    best = optimal_alpha(s, q)
    finite = np.isfinite(best) & (best > 0.0)
    moved = np.where(finite, single_atom(np.where(finite, best, alpha), s, q), 0.0)
    return np.where(known, moved - single_atom(alpha, s, q), 0.0)


def near_copy_price(n_atoms: int) -> float:
    """Nats that an atom has to gain to enter beside a near-copy, the constant excepted: 2 log M.

    Such a pair differs by little but the noise of single rows, and of M differences the best gains about log M by
    chance. Functions that are told apart by their differences alone, as splines far from their origin, gain far more.

    >>> round(near_copy_price(500), 1)
    12.4
    """
    return 2.0 * math.log(max(n_atoms, 1))


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


# ---------------------------------------------------------------- moves and atoms that a double cannot tell apart


def best(gains: np.ndarray, order: np.ndarray, tie: float = TIE_NATS) -> int:
    """Index of the largest gain; among equals the lowest in order."""
    largest = gains.max()
    equal = np.flatnonzero(gains >= largest - tie * max(1.0, largest))
    return int(equal[np.argmin(order[equal])])


def first_of_equals(ratio: np.ndarray, order: np.ndarray) -> np.ndarray:
    """For each row (k, m) the column of its largest entry; among equals the lowest in order ((m,) or (k, m))."""
    equal = ratio >= (ratio.max(axis=1) * (1.0 - TIE_NATS))[:, None]
    return np.where(equal, order, np.iinfo(np.intp).max).argmin(axis=1)


def merge_copies(gram: np.ndarray, alpha: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of k columns with inner products (k, k) to keep, and their precisions, where some are copies or negations.

    The evidence depends on copies only through the sum of 1 / alpha (T01 section 2.2), so the first in order takes it
    all and nothing changes.
    """
    norm = np.sqrt(gram.diagonal())  # not quite one where columns are held in single precision
    equal = np.abs(gram) > MIN_COPY_CORRELATION * np.outer(norm, norm)
    np.fill_diagonal(equal, True)
    if np.count_nonzero(equal) == len(alpha):
        return np.arange(len(alpha)), alpha
    first = np.array([np.flatnonzero(row)[np.argmin(order[row])] for row in equal])
    keep = np.flatnonzero(first == np.arange(len(alpha)))
    return keep, np.array([1.0 / np.sum(1.0 / alpha[first == i]) for i in keep])


# ---------------------------------------------------------------- stationary equations


def mackay_alpha(gamma, mu, a=0.0, b=0.0):
    """T01 eq. (44): (gamma_i + 2a) / (mu_i^2 + 2b); NaN, no change, where a weight and its gamma are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
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


def prior_unit_hessian(v, B, beta, residual):
    """Second derivatives of the evidence in (log alpha, log beta): (k, k), (k,), scalar.

    In units of the prior: v = A^1/2 mu and B = A^1/2 Sigma A^1/2.

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
