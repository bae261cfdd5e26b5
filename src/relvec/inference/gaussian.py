"""The posterior over the weights of a Gaussian model, and the evidence that comes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relvec.inference.evidence import LOG_2PI
from relvec.inference.linalg import Reflections, factor_ridge_and_basis, inverse_triangular


@dataclass(frozen=True, eq=False)
class Posterior:
    """Gaussian posterior N(mean, Sigma) of k weights, at given precisions.

    Attributes
    ----------
    alpha : (k,) weight precisions.
    beta : noise precision.
    v : (k,) A^1/2 mu, the mean in units of the prior.
    V : (k, k) upper triangular with A^1/2 Sigma A^1/2 = V V'.
    residual : |t - Phi mu|^2.
    log_evidence : log p(t | alpha, beta), complete with -N/2 log 2 pi (T01 eq. (15)).
    n_samples : N, the sum of the sample weights.
    scaled : (n, k) X = beta^1/2 Phi A^-1/2, in the coordinates the model was given in.
    remainder : (n,) z - R mu, the residual in those coordinates.
    basis : Q with [X; I] = Q V^-1, where X is so large that X V would lose digits; else None.
    """

    alpha: np.ndarray
    beta: float
    v: np.ndarray
    V: np.ndarray
    residual: float
    log_evidence: float
    n_samples: float
    scaled: np.ndarray
    remainder: np.ndarray
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

        Where it is small the difference has no digits; there gamma_i = S_i / alpha_i with S_i = phi_i' C^-1 phi_i,
        where nothing of that size cancels.
        """
        gamma = 1.0 - self.shrinkage
        if len(gamma) and gamma.min() < 1e-6:
            small = np.flatnonzero(gamma < 1e-6)
            X = self.scaled[:, small]
            explained = self.leverage.T @ X  # S_i / alpha_i = X_i' (I - leverage leverage') X_i
            gamma[small] = np.einsum("ij,ij->j", X, X) - np.einsum("ij,ij->j", explained, explained)
            gamma = np.clip(gamma, 0.0, 1.0)
        return gamma

    def design_gradient(self) -> np.ndarray:
        """dL/dPhi (n, k) in the coordinates of the posterior: beta [(t - Phi mu) mu' - Phi Sigma], T01 eq. (55)."""
        # Phi Sigma = beta^-1/2 leverage root'
        return self.beta * np.outer(self.remainder, self.mean) - math.sqrt(self.beta) * (self.leverage @ self.root.T)

    def sparsity_quality(self) -> tuple[np.ndarray, np.ndarray]:
        """The s and q (k,) of the model's own atoms, TF03 eq. (19), without the cancelling form of eq. (23).

        s = 1/Sigma_ii - alpha_i = alpha_i gamma_i / (1 - gamma_i) and q = mu_i / Sigma_ii.
        """
        return self.gamma / self.variance, self.mean / self.variance


def gaussian(
    R: np.ndarray,
    z: np.ndarray,
    rest: float,
    n_samples: float,
    alpha: np.ndarray,
    beta: float,
    gram: np.ndarray | None = None,
) -> Posterior:
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
        + 2.0 * float(np.add.reduce(np.log(U.diagonal())))
        + beta * residual
        + float(v @ v)
    )
    return Posterior(alpha, beta, v, V, residual, log_evidence, n_samples, X, remainder, basis)
