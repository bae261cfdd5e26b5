"""Error bars that held-out residuals have shown to be honest, and that return to the prior's away from the data.

A support and its precisions were chosen to suit the targets, which leave-one-out formulas at that support do not see:
the posterior's variances are too small. With z the residuals of rows that the whole search has not seen, in predicted
standard deviations, all variances are multiplied by F(x): a factor, or where the rows show clearly that it depends on
the inputs or the mean, a function of these. The logarithm of z^2 is then learned as a sparse sum of functions of single
inputs and of the mean (`relvec.inference.heteroscedastic`), as for processes; what the rows leave open of it, the
variance of that logarithm, makes the predictive distribution a Student t (`relvec.inference.tails`).

The basis functions kept say nothing where none of them reaches. With the correlations k of a Gaussian kernel and V the
centres kept,

    rho^2(x) = k(x, V) k(V, V)^-1 k(V, x)

is the share of a process's variance that values at V explain. Where it falls below its least value at any training row
the share 1 - rho^2(x) / least of the targets' variance is added: none inside, all of it far away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from relvec.inference.heteroscedastic import LogNoise, learn_log_noise
from relvec.inference.linalg import factor_lower
from relvec.inference.tails import best_tail, fit_tail, join, least_tail, log_density

LEAST_VARYING_ROWS = 60  # rows, or groups of them, that tell whether error bars depend on the inputs
FOLDS = 5
_MOST_INPUTS = 32  # of more inputs, they may depend on the mean alone
_LEAST_EXPLAINED = 0.05  # of the target's variance: the mean of a model with less tells noise alone
_LEAST_GAIN_NATS = 0.05  # a row at rows that took no part
_GAIN_ERRORS = 2.5  # standard errors that the gain is to be above zero
_MOST_GAIN_NATS = 3.0  # of a row that count: a few rows that gain much say little of others
_NARROWEST_SHARE = 0.1  # of the rows learned from: no error bar elsewhere is narrower by its factor than theirs
_FACTORS = np.exp(np.linspace(-0.6, 1.0, 17))  # of learned variances, among which held-out rows choose


@dataclass(frozen=True, eq=False)
class Varying:
    """What variances are multiplied by, the tail beyond what is uncertain of it, and its logs (n,) at held-out rows."""

    noise: LogNoise
    tail: float
    logs: np.ndarray


def columns_of_noise(X: np.ndarray, mean: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return what error bars may depend on (n, d + 1): inputs X (n, d) and means (n,); constants say nothing."""
    inputs = X if X.shape[1] <= _MOST_INPUTS else np.zeros_like(X)
    centre = w @ mean / w.sum()
    explained = w @ (mean - centre) ** 2 / w.sum()
    return np.column_stack([inputs, mean if explained > _LEAST_EXPLAINED else np.zeros(len(mean))])


def learn_varying(
    Z: np.ndarray, squares: np.ndarray, w: np.ndarray, labels: np.ndarray, plain: np.ndarray
) -> Varying | None:
    """Return the variance as a function of columns Z (n, p), or None where it gains nothing clear.

    squares, w : (n,) squared errors in predicted variances, and how many each stands for.
    labels : (n,) numbers of the groups of rows that are left out together.
    plain : (n,) log densities with one variance for all.
    """
    fold = labels % FOLDS
    if not fold.any():  # a single group has no others to learn from
        return None
    logs, spread = _held_out(Z, squares, w, fold)
    factor, varied, tail = best_tail(squares, logs, spread, w, _FACTORS)
    if not gain_clearly(varied - plain, w, labels):
        return None
    found = _learn(Z, squares, w)
    found = replace(found, level=found.level + np.log(factor), least=found.least * factor)
    return Varying(found, tail, logs + np.log(factor))


def _learn(Z: np.ndarray, squares: np.ndarray, w: np.ndarray) -> LogNoise:
    found = learn_log_noise(Z, squares, w)[0]
    return replace(found, least=float(np.quantile(found.variance(Z), _NARROWEST_SHARE)))


def _held_out(Z: np.ndarray, squares: np.ndarray, w: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log variances (n,), and what is uncertain about them (n,), learned without the rows of the same fold."""
    logs, spread = np.zeros(len(Z)), np.zeros(len(Z))
    for i in np.unique(fold):
        own = fold == i
        noise = _learn(Z[~own], squares[~own], w[~own])
        logs[own], spread[own] = np.log(noise.variance(Z[own])), noise.moments(Z[own])[1]
    return logs, spread


def gain_clearly(gains: np.ndarray, weight: np.ndarray, labels: np.ndarray) -> bool:
    """Tell whether gains (n,) in nats, losses in full and three at most of a row, are clearly above zero."""
    some = np.minimum(gains, _MOST_GAIN_NATS)
    mean = weight @ some / weight.sum()
    error = np.linalg.norm(np.bincount(labels, weight * (some - mean))) / weight.sum()
    return bool(mean > max(_LEAST_GAIN_NATS, _GAIN_ERRORS * error))


def known_error_bars(n_rows: int) -> ErrorBars:
    """Return the error bars of a constant of n rows: Student t with n - 1 degrees of freedom, whose scale is the noise.

    >>> known_error_bars(11)
    ErrorBars(factor=1.25, varying=None, tail=0.1)
    """
    tail = least_tail(n_rows)
    return ErrorBars(1.0 / (1.0 - 2.0 * tail), None, tail)


_WIDEST = 3.0  # standard deviations of an input: no kernel of the reach is wider, so that ten of them are far
_JITTER = 1e-9  # on the diagonal of correlations before they are factored
_LEAST_SHARE = 1e-100  # of the variance explained at training rows: kernels are widened until it has digits


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What the search predicted of rows that it had not seen, each by the models of other rows.

    Attributes
    ----------
    Z : (n, d + 1) their inputs, and their predicted means.
    squares : (n,) mean squared residuals of single targets, in predicted variances of these.
    weights : (n,) how many targets each row stands for.
    groups : (n,) numbers from 0 on of groups of rows that were left out together; each is on its own where not given.
    """

    Z: np.ndarray
    squares: np.ndarray
    weights: np.ndarray
    groups: np.ndarray | None = None

    @property
    def labels(self) -> np.ndarray:
        """Numbers (n,) of the groups of rows."""
        return np.arange(len(self.squares)) if self.groups is None else self.groups

    @property
    def n_groups(self) -> int:
        """How many groups there are: rows that tell something of others."""
        return int(self.labels.max(initial=-1)) + 1

    @cached_property
    def scale(self) -> tuple[float, float]:
        """The factor of variances and the tail of most density, see `relvec.inference.tails.fit_tail`."""
        return fit_tail(self.squares, self.weights, self.n_groups)


@dataclass(frozen=True, eq=False)
class ErrorBars:
    """What variances are multiplied by, and the tails of residuals.

    Attributes
    ----------
    factor : of predicted variances.
    varying : the factor as a function of the inputs and the mean, where it depends on them; else None.
    tail : of Student-t residuals, one over their degrees of freedom; 0.0 where they are normal.
    """

    factor: float = 1.0
    varying: LogNoise | None = None
    tail: float = 0.0

    def factors(self, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return the factors (n,) of variances at X (n, d), where the means are (n,)."""
        if self.varying is None:
            return np.full(len(X), self.factor)
        return self.varying.variance(np.column_stack([X, mean]))

    def tails(self, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return the tails (n,) at X (n, d): heavier where the factor is uncertain."""
        if self.varying is None:
            return np.full(len(X), self.tail)
        return join(self.tail, self.varying.moments(np.column_stack([X, mean]))[1])


def learn_error_bars(held: HeldOut) -> ErrorBars:
    """Return the error bars that fit held-out rows, no more complicated than they show clearly.

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.uniform(-1.0, 1.0, (400, 2))
    >>> noise = np.exp(2.0 * Z[:, 0]) * rng.standard_normal(400)
    >>> bars = learn_error_bars(HeldOut(Z, noise**2, np.ones(400)))
    >>> bars.varying is not None, bars.tail < 0.01
    (True, True)
    """
    factor, tail = held.scale
    if held.n_groups < LEAST_VARYING_ROWS:
        return ErrorBars(factor, None, tail)
    Z = columns_of_noise(held.Z[:, :-1], held.Z[:, -1], held.weights)
    plain = log_density(held.squares, np.full(len(Z), factor), tail)
    varied = learn_varying(Z, held.squares, held.weights, held.labels, plain)
    return ErrorBars(factor, None, tail) if varied is None else ErrorBars(factor, varied.noise, varied.tail)


@dataclass(frozen=True, eq=False)
class Reach:
    """How far the functions kept reach: the variance added where they do not.

    Attributes
    ----------
    centres : (p, d) where the functions kept sit; the mean of the inputs where none of them has a place.
    widths : (d,) of the kernel of the reach, exp(-|x - z|^2 / width^2) summed over the inputs.
    least : the least share of the variance that the centres explain at any training row.
    variance : of the targets, in their units.
    """

    centres: np.ndarray
    widths: np.ndarray
    least: float
    variance: float

    @cached_property
    def root(self) -> np.ndarray:
        """Lower triangular L (p, p) with L L' the correlations of the centres."""
        K = self._correlations(self.centres)
        K.flat[:: len(K) + 1] += _JITTER
        return factor_lower(K)

    def share(self, X: np.ndarray) -> np.ndarray:
        """Return the share (n,) of the variance that is added at X (n, d)."""
        return np.maximum(1.0 - self.explained(X) / self.least, 0.0)

    def explained(self, X: np.ndarray) -> np.ndarray:
        """Return rho^2 (n,) at X (n, d)."""
        return np.einsum("ij,ij->j", *[self._half(X)] * 2)

    def covariance(self, X: np.ndarray) -> np.ndarray:
        """Return the covariance (n, n) of what is added at X: the process's given the centres, scaled to `share`."""
        half = self._half(X)
        C = self._correlations(X, X) - half.T @ half
        left = np.maximum(C.diagonal(), 0.0)
        scale = np.sqrt(np.divide(self.share(X), left, out=np.zeros_like(left), where=left > 0.0))
        C *= self.variance * scale[:, None] * scale
        C.flat[:: len(C) + 1] = self.variance * self.share(X)
        return C

    def _half(self, X: np.ndarray) -> np.ndarray:
        """L^-1 k(V, X) (p, n)."""
        return solve_triangular(self.root, self._correlations(X).T, lower=True, check_finite=False)

    def _correlations(self, X: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
        Z = self.centres if Z is None else Z
        return np.exp(-cdist(X / self.widths, Z / self.widths, "sqeuclidean"))


def learn_reach(centres: np.ndarray, widths: np.ndarray, X: np.ndarray, weights: np.ndarray, variance: float) -> Reach:
    """Return the reach of functions on centres (p, d) for training rows X (n, d) and targets of some variance.

    Widths (d,) are those of the functions, but no wider than three standard deviations of an input.
    """
    mean = weights @ X / weights.sum()
    deviation = np.sqrt(weights @ (X - mean) ** 2 / weights.sum())
    deviation = np.where(deviation > 0.0, deviation, np.maximum(np.abs(mean), 1.0))
    places = np.unique(centres, axis=0) if len(centres) else mean[None, :]
    widths = np.minimum(widths, _WIDEST * deviation)
    while True:
        reach = Reach(places, widths, 1.0, variance)
        least = float(reach.explained(X).min())
        if least > _LEAST_SHARE:
            return replace(reach, least=least)
        widths = 2.0 * widths
