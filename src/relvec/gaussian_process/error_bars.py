"""Error bars that rows left out ask for: how wide, how they follow the inputs, and how heavy their tails are.

A process has one noise and one smoothness everywhere, and is sure of both. Rows left out tell where that is wrong: the
logarithm of their squared errors, in predicted variances, is learned as a sparse sum of functions of single inputs and
of the mean (`relvec.inference.heteroscedastic`). What these rows leave open of it, the variance of that logarithm, and
errors that are larger than any normal ones, make the predictive distribution a Student t (`tails`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.gaussian_process.evidence import leave_one_out, leave_out, posterior
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.merit import Merit
from relvec.gaussian_process.predictor import Component, mix
from relvec.gaussian_process.rows import Rows, Units
from relvec.gaussian_process.target import Scale
from relvec.inference import tails
from relvec.inference.heteroscedastic import constant_noise, learn_log_noise

_SPREAD_ROWS = 1000
_LEAST_VARYING_ROWS = 60  # that tell whether error bars depend on the inputs
_LEAST_TAIL_ROWS = 30  # that tell how heavy tails are
_MOST_VARYING_INPUTS = 32  # of more inputs, they may depend on the mean alone
_FOLDS = 5
_LEAST_EXPLAINED = 0.05  # of the target's variance: the mean of a process with less tells noise alone
_LEAST_GAIN = 0.05  # nats a row at rows that took no part
_GAIN_ERRORS = 2.5  # standard errors that the gain is to be above zero
_NARROWEST_SHARE = 0.1  # of the rows learned from: no error bar elsewhere is narrower by its factor than theirs
_MOST_GAIN = 3.0  # nats of a row that count: a few rows that gain much say little of others
_FACTORS = np.exp(np.linspace(-0.6, 1.0, 17))  # of learned variances, among which held-out rows choose
_PRIOR_CURVATURE = 0.3  # of the logarithms of hyperparameters under the priors: 1/2^2 to 1/1.7^2


def measure_spread(structure: Structure, theta: np.ndarray, rows: Rows) -> float:
    """How much too narrow the densities are: the mean of z^2 over rows left out one at a time, at least one.

    Multiplying all variances of a process leaves its mean as it is, and this factor is the best for those rows (Bachoc
    2013). It differs from one where no candidate fits well.
    """
    few = rows.take(slice(0, _SPREAD_ROWS))
    mean, variance = leave_one_out(structure, theta, few)
    single = single_variance(variance, structure.noise(theta), few.weight)
    errors = (few.y - mean) ** 2 + few.scatter / few.weight
    return max(1.0, float(np.mean(errors / single))) if len(few) >= 30 else 1.0


def single_variance(variance: np.ndarray, noise: float, weight: np.ndarray) -> np.ndarray:
    """Variances (n,) of one target each from those of the means of w targets, noise s / w included."""
    return np.maximum(variance - noise / weight, 0.0) + noise


def vary_error_bars(
    parts: list[Component], shares: np.ndarray, rows: Rows, units: Units, scale: Scale
) -> list[Component]:
    """The components with variances and tails as rows left out one at a time ask for."""
    few = rows.take(slice(0, _SPREAD_ROWS))
    left = [leave_one_out(part.structure, part.theta, few) for part in parts]
    variances = [single_variance(v, part.noise, few.weight) for (_, v), part in zip(left, parts)]
    mean, variance = mix(shares, [mean for mean, _ in left], variances)
    seen = _means_without_folds(parts, shares, few) if len(few) >= _LEAST_VARYING_ROWS else None
    return follow_inputs(parts, few, mean, variance, units, scale, seen)


def follow_inputs(
    parts: list[Component], rows: Rows, mean: np.ndarray, variance: np.ndarray, units: Units, scale: Scale,
    seen: np.ndarray | None = None,
) -> list[Component]:  # fmt: skip
    """The components with error bars that depend on the inputs where rows that took no part gain clearly by it.

    mean, variance : (n,) of the targets of such rows, in the order of their hash.
    seen : (n,) means that error bars may depend on, where those of the rows left out tell the targets.
    """
    if len(rows) < _LEAST_TAIL_ROWS:
        return parts
    squares, w = ((rows.y - mean) ** 2 + rows.scatter / rows.weight) / variance, rows.weight
    level = constant_noise(mean[:, None], squares, w).level
    plain, tail = best_tail(squares, np.full(len(rows), level), 0.0, w, np.ones(1))[1:]
    constant = [replace(part, tail=tail) for part in parts]
    if len(rows) < _LEAST_VARYING_ROWS:
        return constant
    Z = _columns(rows, mean if seen is None else seen)
    fold = rows.labels % _FOLDS
    if not fold.any():  # a single group has no others to learn from
        return constant
    logs, spread = _held_out(Z, squares, w, fold)
    factor, varied, tail = best_tail(squares, logs, spread, w, _FACTORS)
    if not _gains_clearly(varied - plain, w):
        return constant
    if scale.sign:  # those who take mean and deviation of the target are to gain as well
        u, v = units.y_mean + units.y_scale * np.array([rows.y, mean]), units.y_scale**2 * variance
        moments = [scale.moments(u[1], v * np.exp(log)) for log in (logs + np.log(factor), np.full(len(rows), level))]
        losses = [0.5 * (np.log(s) + (scale.inverse(u[0]) - m) ** 2 / s) for m, s in moments]
        if not _gains_clearly(losses[1] - losses[0], w):
            return constant
    found = learn_log_noise(Z, squares, w)[0]
    found = replace(found, least=float(np.quantile(found.variance(Z), _NARROWEST_SHARE)))
    # the factor is one on average over the rows; the spread has what is the same for all, in units of one noise
    average = float(w @ found.variance(Z) / rows.total)
    varying = replace(found, level=found.level - np.log(average), least=found.least / average)
    spread_factor = average * factor / np.exp(level)
    return [replace(part, spread=part.spread * spread_factor, varying=varying, tail=tail) for part in parts]


def _columns(rows: Rows, mean: np.ndarray) -> np.ndarray:
    """What error bars may depend on (n, d + 1): the inputs and the mean; constants say nothing."""
    inputs = rows.X if rows.X.shape[1] <= _MOST_VARYING_INPUTS else np.zeros_like(rows.X)
    centre = rows.weight @ mean / rows.total
    explained = rows.weight @ (mean - centre) ** 2 / rows.total
    return np.column_stack([inputs, mean if explained > _LEAST_EXPLAINED else np.zeros(len(mean))])


def _means_without_folds(parts: list[Component], shares: np.ndarray, rows: Rows) -> np.ndarray:
    """Return the mean (n,) of the mixture at the rows of each fold from those of the others.

    The mean of a nearly constant process of all rows but one tells what that one is; of all but a fifth it does not.
    """
    fold, total = rows.labels % _FOLDS, np.zeros(len(rows))
    for share, part in zip(shares, parts):
        total += share * leave_out(posterior(part.structure, part.theta, rows), rows.y, fold)[0]
    return total


def _held_out(Z: np.ndarray, squares: np.ndarray, w: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log variances (n,) and what is uncertain about them (n,), learned without the rows of the same fold (n,)."""
    logs, spread = np.zeros(len(Z)), np.zeros(len(Z))
    for i in np.unique(fold):
        own = fold == i
        noise = learn_log_noise(Z[~own], squares[~own], w[~own])[0]
        noise = replace(noise, least=float(np.quantile(noise.variance(Z[~own]), _NARROWEST_SHARE)))
        logs[own], spread[own] = np.log(noise.variance(Z[own])), noise.moments(Z[own])[1]
    return logs, spread


def best_tail(
    squares: np.ndarray, logs: np.ndarray, spread: np.ndarray | float, w: np.ndarray, factors: np.ndarray
) -> tuple[float, np.ndarray, float]:
    """The factor of variances and the tail of most density, which is that of a normal with factor one unless it gains.

    Returns the factor, log densities (n,) and the tail.
    """
    found = []
    for tail in tails.TAILS:
        for factor in factors:
            density = tails.log_density(squares, factor * np.exp(logs), tails.join(tail, spread))
            gain = w @ density / w.sum() * len(squares) - (tails.TAIL_GAIN if tail > 0.0 else 0.0)
            found.append((gain, factor, density, tail))
    _, factor, density, tail = max(found, key=lambda each: each[0])
    return float(factor), density, float(tail)


def _gains_clearly(gains: np.ndarray, weight: np.ndarray) -> bool:
    """Whether gains (n,) in nats, losses in full and a few at most of a row, are clearly above zero in the mean."""
    some = np.minimum(gains, _MOST_GAIN)
    mean = weight @ some / weight.sum()
    error = np.sqrt(weight**2 @ (some - mean) ** 2) / weight.sum()
    return bool(mean > max(_LEAST_GAIN, _GAIN_ERRORS * error))


def prediction_error(merit: Merit, n_rows: float) -> float:
    """How much larger squared errors at new rows are than at the rows that p hyperparameters were fitted to.

    (n + p) / (n - p), Akaike's final prediction error (1969), where p counts the hyperparameters that the rows
    determine: directions whose curvature is mostly the evidence's and not the prior's. At most 2.
    """
    determined = 1.0 - _PRIOR_CURVATURE / np.maximum(merit.eigenvalues, _PRIOR_CURVATURE)
    p = min(float(np.nansum(determined)), n_rows / 3.0)
    return (n_rows + p) / (n_rows - p)
