"""A posterior over weights by Laplace's approximation: its moments and the derivatives of its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from relvec.inference.likelihoods import Likelihood
from relvec.runtime.arrays import dots, squares


@dataclass(frozen=True, eq=False)
class LaplacePosterior:
    """Gaussian approximation N(mean, root root') at the mode of the posterior of k weights (T01 section 3)."""

    outputs: np.ndarray  # (k,) the output (class) each weight belongs to; zeros where there is one output
    alpha: np.ndarray  # (k,) weight precisions
    mean: np.ndarray  # (k,) w_MP, the mode of T01 eq. (24)
    root: np.ndarray  # (k, k) with Sigma = root root' = (Phi' B Phi + A)^-1, T01 eq. (26)
    log_evidence: float  # the Laplace evidence log P(t | w_MP) - w'Aw/2 - log|I + A^-1/2 Phi'B Phi A^-1/2|/2, complete

    @property
    def beta(self) -> float:
        """Noise precision, which these likelihoods have not: the history of a fit has a column for it."""
        return np.nan

    @cached_property
    def covariance(self) -> np.ndarray:
        """Sigma (k, k), T01 eq. (26)."""
        return self.root @ self.root.T

    @cached_property
    def variance(self) -> np.ndarray:
        """Diagonal of Sigma (k,)."""
        return np.einsum("ij,ij->i", self.root, self.root)

    @cached_property
    def gamma(self) -> np.ndarray:
        """Well-determinedness gamma_i = 1 - alpha_i Sigma_ii (k,), T01 eq. (17)."""
        return np.clip(1.0 - self.alpha * self.variance, 0.0, 1.0)

    @cached_property
    def trust(self) -> float:
        """Ratio of w'Aw to the number sum gamma of well-determined weights: 1 at the fixed point of T01 eq. (16).

        Near 1 the Laplace approximation is self-consistent. On separable classes the Laplace evidence has a second,
        spurious maximum at alpha -> 0, where the latent function runs to +-infinity, B vanishes and this ratio too.
        """
        total = float(self.gamma.sum())
        return float(np.sum(self.alpha * self.mean**2)) / total if total > 0.0 else 1.0

    @cached_property
    def any_infinite(self) -> bool:
        """Whether the optimal precision of some weight alone is infinite: q^2 <= s, TF03 eq. (21)."""
        return bool(np.any(self.mean**2 <= self.gamma * self.variance))

    def trust_gradient(self, slopes: np.ndarray) -> np.ndarray:
        """Return the derivative of log trust over log alpha (k,), given `slopes` (k,) under `tempered_root`.

        With M = Sigma A Sigma, d sum gamma = -d tr(A Sigma) has a part from A, one from Sigma at fixed B and one from
        the motion of B with the mode; dw_MP/dlog alpha_j = -Sigma_j alpha_j w_j.
        """
        pull = self.alpha * self.mean
        energy, total = float(pull @ self.mean), float(self.gamma.sum())
        of_energy = pull * (self.mean - 2.0 * (self.covariance @ pull))
        twice = np.einsum("ij,ij->i", self.tempered_root, self.tempered_root)  # the diagonal of M
        of_total = self.alpha * (twice - self.variance) + 2.0 * pull * (self.covariance @ slopes)
        return of_energy / energy - of_total / total

    @cached_property
    def tempered_root(self) -> np.ndarray:
        """Sigma A^1/2 (k, k)."""
        return self.covariance * np.sqrt(self.alpha)

    def sparsity_quality(self) -> tuple[np.ndarray, np.ndarray]:
        """Statistics s and q (k,) of the model's own atoms in the linearised problem, TF03 eq. (19)."""
        return self.gamma / self.variance, self.mean / self.variance

    def implicit_gradient(self, slopes: np.ndarray) -> np.ndarray:
        """Return the part of dL/dlog alpha (k,) from the motion of B with the mode, given `slopes` (k,).

        dw_MP/dlog alpha_i = -alpha_i w_i Sigma_i and dL/dw_j = -1/2 d log|Phi'B Phi + A|/dw_j, since the mode
        makes the rest of the evidence stationary. T01 eq. (16) leaves this out.
        """
        return -self.alpha * self.mean * (self.root @ (self.root.T @ slopes))


@dataclass(frozen=True, eq=False)
class PosteriorOnRows(LaplacePosterior):
    """A posterior with its values on n rows."""

    Phi: np.ndarray  # (n, k) column of each weight
    f: np.ndarray  # (n,) or (n, K) latent function at the mode
    r: np.ndarray  # residual dlog p/df, in the shape of f
    W: np.ndarray  # the curvature at the mode, as `Likelihood.working` gives it

    def slopes(self, likelihood: Likelihood, weights: np.ndarray, root: np.ndarray | None = None) -> np.ndarray:
        """dL/dw (k,) through B alone, -1/2 d log|Phi'B Phi + A|/dw: a sum over the rows.

        With a ``root`` (k, j), -1/2 d tr(root' Phi'B Phi root)/dw at fixed root.
        """
        if not len(self.alpha):
            return np.zeros(0)
        return self._back(self.evidence_slope(likelihood, weights, root), likelihood)

    def design_gradient(self, likelihood: Likelihood, weights: np.ndarray) -> np.ndarray:
        """dL/dPhi (n, k) of the Laplace evidence, the motion of the mode included.

        With r = dlog p/df, s = -1/2 d log|Phi'B Phi + A|/df at fixed Phi, g = Phi's and u = Sigma g,

            dL/dPhi = r w' - B Phi Sigma + s w' + r u' - (B Phi u) w':

        the first two terms hold the mode, the third moves B through f, the last two through the mode, for which
        dw = Sigma (dPhi' r - Phi'B dPhi w). Each column takes the part of its own output.
        """
        own = self._own(likelihood)
        s = self.evidence_slope(likelihood, weights)
        u = self.root @ (self.root.T @ self._back(s, likelihood))
        moved = apply_curvature(self.W, weights, latent(self.Phi, u, own))
        by_output = s - moved
        if self.W.ndim == 1:
            spread = apply_curvature(self.W, weights, self.Phi @ self.root) @ self.root.T
            return np.outer(self.r, self.mean + u) + np.outer(by_output, self.mean) - spread
        gradient = np.empty_like(self.Phi)
        parts = [self.Phi[:, i] @ self.root[i] for i in own]
        pooled = sum(self.W[:, [a]] * part for a, part in enumerate(parts))
        for a, i in enumerate(own):
            # (B F)_a = weight p_a (F_a - sum_c p_c F_c), T01 eq. (28)
            spread = (weights * self.W[:, a])[:, None] * (parts[a] - pooled)
            gradient[:, i] = (
                np.outer(self.r[:, a], self.mean[i] + u[i]) + np.outer(by_output[:, a], self.mean[i])
                - spread @ self.root[i].T
            )  # fmt: skip
        return gradient

    def _own(self, likelihood: Likelihood) -> list[np.ndarray]:
        return [np.flatnonzero(self.outputs == a) for a in range(likelihood.n_outputs)]

    def evidence_slope(self, likelihood: Likelihood, weights: np.ndarray, root: np.ndarray | None = None) -> np.ndarray:
        """dL/df through B alone, in the shape of f: -1/2 d log|Phi'B Phi + A|/df; ``root`` as in `slopes`."""
        Phi, root = self.Phi, self.root if root is None else root
        if likelihood.n_outputs == 1:
            return -0.5 * likelihood.curvature_slope(self.W, self.f, weights, squares(Phi @ root, 1))
        covariance = root @ root.T
        # H_n p_n from one product with Sigma: (H p)_a = sum over the weights i of a of Phi_i (sum_j Sigma_ij Phi_j p)
        mixed = (Phi * self.W[:, self.outputs]) @ covariance
        own = [(i, Phi[:, i]) for i in self._own(likelihood)]
        h = np.stack([dots(part @ covariance[np.ix_(i, i)], part) for i, part in own], axis=1)
        hp = np.stack([dots(mixed[:, i], part) for i, part in own], axis=1)
        return -0.5 * likelihood.curvature_slope(self.W, self.f, weights, h, hp)

    def _back(self, r: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        """Phi'r (k,), each weight with the part of its own output."""
        g = np.empty(len(self.alpha))
        for a, i in enumerate(self._own(likelihood)):
            g[i] = self.Phi.T @ r if r.ndim == 1 else self.Phi[:, i].T @ r[:, a]
        return g


def latent(X: np.ndarray, v: np.ndarray, own: list) -> np.ndarray:
    """Latent function f = X v, output by output."""
    return X @ v if len(own) == 1 else np.stack([X[:, i] @ v[i] for i in own], axis=1)


def apply_curvature(W: np.ndarray, weights: np.ndarray, F: np.ndarray) -> np.ndarray:
    """B F for latent functions F: (n,) or (n, j) with one output, (n, K) with K."""
    if W.ndim == 1:
        return W * F if F.ndim == 1 else W[:, None] * F
    return weights[:, None] * W * (F - np.einsum("nk,nk->n", W, F)[:, None])
