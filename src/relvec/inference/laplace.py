"""Laplace's approximation to the posterior over weights: its mode by Newton's method, for any number of outputs.

The mode of one output on rows in memory is found by compiled loops (`relvec.solvers._native.laplace`), which leave
badly conditioned columns to this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy.linalg import lapack

from relvec.inference.curvature import curvature_gram, curvature_root, factor_curvature
from relvec.inference.laplace_posterior import PosteriorOnRows, latent
from relvec.inference.laplace_shared import SharedColumns, may_hold_products
from relvec.inference.likelihoods import Likelihood
from relvec.inference.linalg import factor_ridge, inverse_triangular

_MANY = 200  # weights: with fewer, forming the Hessian costs less than the steps that avoid it
_MOST_APPROACH, _MEMORY = 60, 20


@dataclass(frozen=True)
class NewtonSettings:
    """When Newton's method has found a mode. Decrements are relative to the objective."""

    max_steps: int = 200
    max_idle_steps: int = 5  # of the compiled loops, without progress: rounding, of weights of 1e12 say, hides the mode
    shortest: float = 1e-12  # of a whole step
    longer: float = 8.0  # times the length of the step before, at most
    rough_decrement: float = 1e-9  # near the mode: values no longer distinguish steps, and full Newton steps converge
    exact_decrement: float = 1e-18
    # nats of log|U|: decrements that no longer halve end the way only where the curvature stands still too. At rows
    # far from the boundary latent values go on by about one a step, and decrements may rise in between
    still_nats: float = 1e-6


NEWTON = NewtonSettings()


def laplace(
    Phi: np.ndarray, t: np.ndarray, weights: np.ndarray, alpha: np.ndarray, likelihood: Likelihood,
    start: np.ndarray | None = None, outputs: np.ndarray | None = None, guess: np.ndarray | None = None,
    shared: bool = False,
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
        outputs, the way to the mode is then made by gradients alone, and the Hessian formed and factored there only.
    shared : whether the K weights of a column follow each other and have one precision, for K > 1.

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
    rows: Any = _Here(weighting.scale_columns(Phi), t, weights, likelihood, weighting.own)
    if shared and may_hold_products(len(Phi), Phi.shape[1] // likelihood.n_outputs):
        rows = SharedColumns(rows.X[:, weighting.own[0]], t, weights, likelihood)
    point = weighting.begin(rows, start)
    if guess is not None and likelihood.n_outputs > 1 and len(alpha) >= _MANY:
        point = _approach(rows, point, guess[weighting.order] / weighting.spread[:, None])
    point, U = newton(rows, point)
    mean, root = weighting.in_given_order(point.v, U)
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

    def scale_columns(self, Phi: np.ndarray) -> np.ndarray:
        """X = Phi A^-1/2 (n, k)."""
        X = Phi if len(self.own) == 1 else Phi[:, self.order]
        return np.multiply(X, self.spread, order="F")

    def begin(self, rows: ModeRows, start: np.ndarray | None) -> Any:
        """Return the point of weights ``start`` (k,), or of zeros where those are better: rounding may hide the way."""
        if start is not None:
            point = rows.at(start[self.order] / self.spread)
            if point.value > rows.value_at_zero():
                return point
        return rows.at(np.zeros(len(self.spread)))

    def in_given_order(self, v: np.ndarray, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (k,) and root (k, k) of the weights as they were given."""
        mean, root = np.empty(len(v)), np.empty((len(v), len(v)))
        mean[self.order], root[self.order] = self.spread * v, self.spread[:, None] * inverse_triangular(U)
        return mean, root


class ModeRows(Protocol):
    """The rows of a search for a mode."""

    def value_at_zero(self) -> float:
        """Return the objective where all weights are zero."""

    def at(self, v: np.ndarray) -> Any:
        """Return the point v (k,): ``v``, the objective ``value`` with the prior's -v'v/2, and what the others need."""

    def gradient(self, point: Any) -> np.ndarray:
        """Of the objective, X'r - v (k,)."""

    def factor(self, point: Any) -> np.ndarray:
        """Upper triangular U (k, k) with U'U = I + X'B X."""


@dataclass(frozen=True, eq=False)
class _Point:
    v: np.ndarray
    value: float
    f: np.ndarray
    r: np.ndarray
    W: np.ndarray


@dataclass(frozen=True, eq=False)
class _Here:
    """Rows X (n, k) in memory."""

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
        return pull_back(self.X, point.r, self.own) - point.v

    def factor(self, point: _Point) -> np.ndarray:
        return _factor(self.X, point.W, self.weights, self.own)


@np.errstate(over="ignore", invalid="ignore")  # far from the mode: such steps are shortened
def newton(rows: ModeRows, point: Any) -> tuple[Any, np.ndarray]:
    """Return the mode, from a point near or far, and the factor U of minus the Hessian there."""
    last, bend, length = np.inf, np.inf, 1.0
    for _ in range(NEWTON.max_steps):
        U = rows.factor(point)
        if not len(point.v):
            break
        half = lapack.dtrtrs(U, rows.gradient(point), trans=1)[0]  # scipy's wrapper takes longer than the solution
        decrement = float(half @ half)
        small = decrement < NEWTON.rough_decrement * max(1.0, abs(point.value))
        before, bend = bend, half_log_det(U)
        still = decrement >= 0.5 * last and abs(bend - before) < NEWTON.still_nats
        if small and (decrement < NEWTON.exact_decrement * max(1.0, abs(point.value)) or still):
            break
        last, step = decrement, lapack.dtrtrs(U, half)[0]
        # steps that had to be short stay so for some time
        length = 1.0 if small else min(1.0, NEWTON.longer * length)
        trial = rows.at(point.v + length * step)
        while not (small or trial.value >= point.value + 1e-4 * length * decrement or length < NEWTON.shortest):
            length *= 0.5
            trial = rows.at(point.v + length * step)
        if not (small or trial.value > point.value):  # rounding, of weights of 1e12 say, hides the way on
            break
        point = trial
    return point, U


def log_evidence(value: float, U: np.ndarray) -> float:
    """Return the Laplace evidence from the objective at the mode and the factor U there."""
    return float(value - half_log_det(U))


def half_log_det(U: np.ndarray) -> float:
    """Log |U'U| / 2 of a triangular U (k, k)."""
    return float(np.log(np.diagonal(U)).sum())


def _approach(rows: ModeRows, point: Any, root: np.ndarray) -> Any:
    """Return a point nearer to the mode: steps of limited-memory BFGS from the curvature (root root')^-1.

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
    """Return the step that BFGS proposes at gradient g, from steps s and falls y of the gradient on the way here."""
    q, along = g.copy(), []
    for s, y, rho in reversed(path):
        along.append(rho * float(s @ q))
        q -= along[-1] * y
    q = root @ (root.T @ q)
    for (s, y, rho), a in zip(path, reversed(along), strict=True):
        q += (a - rho * float(y @ q)) * s
    return q


def pull_back(X: np.ndarray, r: np.ndarray, own: list[slice]) -> np.ndarray:
    """X'r (k,), each weight with the residual of its own output."""
    if r.ndim == 1:
        return X.T @ r
    return np.concatenate([X[:, i].T @ r[:, a] for a, i in enumerate(own)])


def _factor(X: np.ndarray, W: np.ndarray, weights: np.ndarray, own: list[slice]) -> np.ndarray:
    """Upper triangular U with U'U = I + X'B X."""
    if W.ndim == 1:
        return factor_ridge(curvature_root(X, W, weights, own))
    return factor_curvature(curvature_gram(X, W, weights, own), lambda: curvature_root(X, W, weights, own))
