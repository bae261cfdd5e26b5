"""Laplace's approximation to the posterior over the weights: the mode, the curvature there, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy.linalg import lapack

from relvec.inference.likelihoods import Likelihood, others
from relvec.inference.linalg import NORMAL_EQUATIONS_LIMIT, factor_identity_plus, factor_ridge, inverse_triangular
from relvec.runtime.arrays import Array, dots, is_device_array, like, namespace, squares, take, to_host

_MANY = 200  # weights: with fewer, forming the Hessian costs less than the steps that avoid it
_MOST_APPROACH, _MEMORY = 60, 20


@dataclass(frozen=True)
class NewtonSettings:
    """When Newton's method has found a mode. Decrements are relative to the objective."""

    max_steps: int = 200
    max_idle_steps: int = 5  # in vain: rounding, of weights of 1e12 say, hides where the mode is
    rough_decrement: float = 1e-9  # near the mode: values no longer tell steps apart, and Newton converges by itself
    exact_decrement: float = 1e-18


NEWTON = NewtonSettings()


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
        """Derivative of log trust over log alpha (k,), given `slopes` (k,) under `tempered_root`.

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
        """The part of dL/dlog alpha (k,) from the motion of B with the mode, given `slopes` (k,).

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
        moved = _curved(self.W, weights, latent(self.Phi, u, own))
        by_output = s - moved
        if self.W.ndim == 1:
            spread = _curved(self.W, weights, self.Phi @ self.root) @ self.root.T
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
            return -0.5 * likelihood.curvature_slope(self.W, self.f, weights, squares(Phi @ like(Phi, root), 1))
        covariance = root @ root.T
        # H_n p_n from one product with Sigma: (H p)_a = sum over the weights i of a of Phi_i (sum_j Sigma_ij Phi_j p)
        mixed = (Phi * take(self.W, self.outputs, 1)) @ like(Phi, covariance)
        own = [(i, take(Phi, i, 1)) for i in self._own(likelihood)]
        stack = namespace(Phi).stack
        h = stack([dots(part @ like(Phi, covariance[np.ix_(i, i)]), part) for i, part in own], axis=1)
        hp = stack([dots(take(mixed, i, 1), part) for i, part in own], axis=1)
        return -0.5 * likelihood.curvature_slope(self.W, self.f, weights, h, hp)

    def _back(self, r: np.ndarray, likelihood: Likelihood) -> np.ndarray:
        """Phi'r (k,), each weight with the part of its own output."""
        g = np.empty(len(self.alpha))
        for a, i in enumerate(self._own(likelihood)):
            g[i] = to_host(self.Phi.T @ r if r.ndim == 1 else take(self.Phi, i, 1).T @ r[:, a])
        return g


def laplace(
    Phi: np.ndarray, t: np.ndarray, weights: np.ndarray, alpha: np.ndarray, likelihood: Likelihood,
    start: np.ndarray | None = None, outputs: np.ndarray | None = None, guess: np.ndarray | None = None,
) -> PosteriorOnRows:  # fmt: skip
    """Mode, covariance and Laplace evidence by Newton's method with halved steps (T01 eq. (24)-(26)).

    The variables are v = A^1/2 w, in which the Hessian I + A^-1/2 Phi'B Phi A^-1/2 has no eigenvalue below one.

    Parameters
    ----------
    Phi : (n, k) column of each weight.
    t : (n,) targets, or (n, K) for K outputs.
    weights : (n,) sample weights.
    alpha : (k,) weight precisions, positive and finite.
    likelihood : see `relvec.inference.likelihoods`.
    start : (k,) weights to start from; zeros by default.
    outputs : (k,) output of each weight, for K > 1.
    guess : (k, j) with a covariance guess guess' like the one at the mode. Where there are many weights of several
        outputs, the way to the mode is then made by gradients alone, and the Hessian formed and factored there only;
        not on a device, where the Hessian is soon formed.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec.inference.likelihoods import Bernoulli
    >>> Phi, t = np.array([[1.0], [1.0], [1.0]]), np.array([1.0, 1.0, 0.0])
    >>> p = laplace(Phi, t, np.ones(3), np.array([0.5]), Bernoulli())
    >>> bool(np.isclose(Phi[:, 0] @ (t - 1 / (1 + np.exp(-p.f))), 0.5 * p.mean[0]))
    True
    """
    outputs = np.zeros(len(alpha), dtype=np.intp) if outputs is None else outputs
    weighting = Weighting.of(outputs, alpha, likelihood.n_outputs)
    rows = _Here(weighting.scaled(Phi), t, weights, likelihood, weighting.own)
    point = weighting.begin(rows, start)
    if guess is not None and likelihood.n_outputs > 1 and len(alpha) >= _MANY and not is_device_array(Phi):
        point = _approach(rows, point, guess[weighting.order] / weighting.spread[:, None])
    point, U = newton(rows, point)
    mean, root = weighting.given(point.v, U)
    return PosteriorOnRows(outputs, alpha, mean, root, log_evidence(point.value, U), Phi, point.f, point.r, point.W)


@dataclass(frozen=True, eq=False)
class Weighting:
    """The k weights as v = A^1/2 w, those of an output together."""

    order: np.ndarray  # (k,) the weights in that order
    own: list[slice]  # places of each output's
    spread: np.ndarray  # (k,) alpha^-1/2 in that order

    @classmethod
    def of(cls, outputs: np.ndarray, alpha: np.ndarray, n_outputs: int) -> Weighting:
        """For weights with these outputs (k,) and precisions (k,)."""
        order = np.argsort(outputs, kind="stable")
        ends = np.searchsorted(outputs[order], np.arange(n_outputs + 1))
        return cls(order, [slice(i, j) for i, j in pairwise(ends.tolist())], 1.0 / np.sqrt(alpha[order]))

    def scaled(self, Phi: Array) -> Array:
        """X = Phi A^-1/2 (n, k)."""
        X = Phi if len(self.own) == 1 else take(Phi, self.order, 1)
        return X * like(X, self.spread) if is_device_array(X) else np.multiply(X, self.spread, order="F")

    def begin(self, rows: ModeRows, start: np.ndarray | None) -> Any:
        """The point of the weights ``start`` (k,), or of zeros where those are better: rounding may hide the way."""
        if start is not None:
            point = rows.at(start[self.order] / self.spread)
            if point.value > rows.value_at_zero():
                return point
        return rows.at(np.zeros(len(self.spread)))

    def given(self, v: np.ndarray, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (k,) and root (k, k) of the weights as they were given."""
        mean, root = np.empty(len(v)), np.empty((len(v), len(v)))
        mean[self.order], root[self.order] = self.spread * v, self.spread[:, None] * inverse_triangular(U)
        return mean, root


class ModeRows(Protocol):
    """The rows of a search for a mode."""

    def value_at_zero(self) -> float:
        """The objective where all weights are zero."""
        ...

    def at(self, v: np.ndarray) -> Any:
        """The point v (k,): ``v``, the objective ``value`` with the prior's -v'v/2, and what the others need."""
        ...

    def gradient(self, point: Any) -> np.ndarray:
        """Of the objective, X'r - v (k,)."""
        ...

    def factor(self, point: Any) -> np.ndarray:
        """Upper triangular U (k, k) with U'U = I + X'B X."""
        ...


@dataclass(frozen=True, eq=False)
class _Point:
    v: np.ndarray
    value: float
    f: np.ndarray
    r: np.ndarray
    W: np.ndarray


@dataclass(frozen=True, eq=False)
class _Here:
    """Rows X (n, k) on this machine or its device."""

    X: np.ndarray
    t: np.ndarray
    weights: np.ndarray
    likelihood: Likelihood
    own: list[slice]

    def value_at_zero(self) -> float:
        return self.at(np.zeros(self.X.shape[1])).value

    def at(self, v: np.ndarray) -> _Point:
        f = latent(self.X, v, self.own)
        value, r, W = self.likelihood.evaluate(self.t, f, self.weights)
        return _Point(v, value - 0.5 * float(v @ v), f, r, W)

    def gradient(self, point: _Point) -> np.ndarray:
        return pulled_back(self.X, point.r, self.own) - point.v

    def factor(self, point: _Point) -> np.ndarray:
        return _factor(self.X, point.W, self.weights, self.own)


def newton(rows: ModeRows, point: Any) -> tuple[Any, np.ndarray]:
    """The mode, from a point near or far, and the factor U of minus the Hessian there."""
    best, idle = np.inf, 0
    for _ in range(NEWTON.max_steps):
        U, value = rows.factor(point), point.value
        if not len(point.v):
            break
        half = lapack.dtrtrs(U, rows.gradient(point), trans=1)[0]  # scipy's wrapper takes longer than the solution
        decrement = float(half @ half)
        small = decrement < NEWTON.rough_decrement * max(1.0, abs(value))
        if small and (decrement < NEWTON.exact_decrement * max(1.0, abs(value)) or decrement >= 0.5 * best):
            break
        if idle == NEWTON.max_idle_steps:
            break
        best = decrement
        step, length, v = lapack.dtrtrs(U, half)[0], 1.0, point.v
        while True:
            point = rows.at(v + length * step)
            if small or point.value >= value + 1e-4 * length * decrement or length < 1e-12:
                break
            length *= 0.5
        idle += not (small or point.value > value)
    return point, U


def log_evidence(value: float, U: np.ndarray) -> float:
    """The Laplace evidence from the objective at the mode and the factor U there."""
    return float(value - float(np.log(np.diagonal(U)).sum()))


def _approach(rows: _Here, point: _Point, root: np.ndarray) -> _Point:
    """A point nearer to the mode: steps of limited-memory BFGS from the curvature (root root')^-1.

    A step costs two products with X; the Hessian that Newton's method wants costs as many as there are weights.
    """
    g = rows.gradient(point)
    path: list[tuple[np.ndarray, np.ndarray, float]] = []
    for _ in range(_MOST_APPROACH):
        step, value = _two_loops(g, path, root), point.value
        decrement = float(g @ step)
        if not decrement > 0.1 * NEWTON.exact_decrement * max(1.0, abs(value)):
            break
        length = 1.0
        while True:
            trial = rows.at(point.v + length * step)
            if (
                decrement < NEWTON.rough_decrement * max(1.0, abs(value))
                or trial.value >= value + 1e-4 * length * decrement
            ):
                break
            length *= 0.5
            if length < 1e-6:
                return point
        g_new = rows.gradient(trial)
        s, y = trial.v - point.v, g - g_new
        if s @ y > 0.0:
            path = [*path[-_MEMORY:], (s, y, 1.0 / float(s @ y))]
        point, g = trial, g_new
    return point


def _two_loops(g: np.ndarray, path: list[tuple[np.ndarray, np.ndarray, float]], root: np.ndarray) -> np.ndarray:
    """The step that BFGS proposes at gradient g, from steps s and falls y of the gradient on the way here."""
    q, along = g.copy(), []
    for s, y, rho in reversed(path):
        along.append(rho * float(s @ q))
        q -= along[-1] * y
    q = root @ (root.T @ q)
    for (s, y, rho), a in zip(path, reversed(along), strict=True):
        q += (a - rho * float(y @ q)) * s
    return q


def latent(X: np.ndarray, v: np.ndarray, own: list) -> np.ndarray:
    """Latent function f = X v, output by output."""
    v = like(X, v)
    return X @ v if len(own) == 1 else namespace(X).stack([X[:, i] @ v[i] for i in own], axis=1)


def _curved(W: np.ndarray, weights: np.ndarray, F: np.ndarray) -> np.ndarray:
    """B F for latent functions F: (n,) or (n, j) with one output, (n, K) with K."""
    if W.ndim == 1:
        return W * F if F.ndim == 1 else W[:, None] * F
    return weights[:, None] * W * (F - np.einsum("nk,nk->n", W, F)[:, None])


def pulled_back(X: np.ndarray, r: np.ndarray, own: list[slice]) -> np.ndarray:
    """X'r (k,), each weight with the residual of its own output."""
    if r.ndim == 1:
        return to_host(X.T @ r)
    return to_host(namespace(X).concat([X[:, i].T @ r[:, a] for a, i in enumerate(own)]))


def _factor(X: np.ndarray, W: np.ndarray, weights: np.ndarray, own: list[slice]) -> np.ndarray:
    """Upper triangular U with U'U = I + X'B X."""
    if is_device_array(X):
        return _factor_on_device(X, W, weights, own)
    if W.ndim == 1:
        return factor_ridge(np.sqrt(W)[:, None] * X)
    return factor_identity_plus(curvature_gram(X, W, weights, own))


def curvature_gram(X: np.ndarray, W: np.ndarray, weights: np.ndarray, own: list[slice]) -> np.ndarray:
    """X'B X (k, k)."""
    if W.ndim == 1:
        Z = np.sqrt(W)[:, None] * X
        return Z.T @ Z
    # T01 eq. (28): off the diagonal blocks B is -p_c p_c', one product; the blocks themselves keep p (1 - p) exact
    Z, P, Q = np.empty_like(X), np.asfortranarray(W), others(W)
    root = np.sqrt(weights)
    for a, i in enumerate(own):
        np.multiply(X[:, i], (root * P[:, a])[:, None], out=Z[:, i])
    G = Z.T @ Z
    np.negative(G, out=G)
    for a, i in enumerate(own):
        if i.stop > i.start:
            Y = np.multiply(X[:, i], np.sqrt(weights * P[:, a] * Q[:, a])[:, None], out=Z[:, i])
            G[i, i] = Y.T @ Y
    return G


def ridge_on_device(X: Array) -> np.ndarray:
    """`factor_ridge` of X (n, k) on a device."""
    gram = to_host(X.T @ X).astype(float)
    if gram.size and gram.diagonal().max() > NORMAL_EQUATIONS_LIMIT:
        return factor_ridge(to_host(namespace(X).linalg.qr(X, mode="reduced").R).astype(float))
    return factor_ridge(np.zeros((0, len(gram))), gram)


def _factor_on_device(X: Array, W: Array, weights: Array, own: list[slice]) -> np.ndarray:
    xp = namespace(X)
    if W.ndim == 1:
        return ridge_on_device(xp.sqrt(W)[:, None] * X)
    outputs = np.repeat(np.arange(len(own)), [i.stop - i.start for i in own])
    P, root = take(W, outputs, 1), xp.sqrt(weights)[:, None]
    Z, Y = X * (root * P), X * (root * xp.sqrt(P * take(others(W), outputs, 1)))
    between, within = to_host(xp.stack([Z.T @ Z, Y.T @ Y])).astype(float)
    return factor_identity_plus(np.where(outputs[:, None] == outputs, within, -between))
