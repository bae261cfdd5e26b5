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
from relvec.inference.heteroscedastic import constant_noise
from relvec.inference.tails import best_tail
from relvec.inference.varying import FOLDS, LEAST_VARYING_ROWS, columns_of_noise, gain_clearly, learn_varying

_SPREAD_ROWS = 1000
_LEAST_TAIL_ROWS = 30  # that tell how heavy tails are
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
    """Return the components with variances and tails as rows left out one at a time ask for."""
    few = rows.take(slice(0, _SPREAD_ROWS))
    left = [leave_one_out(part.structure, part.theta, few) for part in parts]
    variances = [single_variance(v, part.noise, few.weight) for (_, v), part in zip(left, parts)]
    mean, variance = mix(shares, [mean for mean, _ in left], variances)
    seen = _means_without_folds(parts, shares, few) if len(few) >= LEAST_VARYING_ROWS else None
    return follow_inputs(parts, few, mean, variance, units, scale, seen)


def follow_inputs(
    parts: list[Component], rows: Rows, mean: np.ndarray, variance: np.ndarray, units: Units, scale: Scale,
    seen: np.ndarray | None = None,
) -> list[Component]:  # fmt: skip
    """Return the components with error bars that depend on the inputs where rows that took no part gain clearly by it.

    mean, variance : (n,) of the targets of such rows, in the order of their hash.
    seen : (n,) means that error bars may depend on, where those of the rows left out tell the targets.
    """
    if len(rows) < _LEAST_TAIL_ROWS:
        return parts
    squares, w = ((rows.y - mean) ** 2 + rows.scatter / rows.weight) / variance, rows.weight
    level = constant_noise(mean[:, None], squares, w).level
    plain, tail = best_tail(squares, np.full(len(rows), level), 0.0, w, np.ones(1))[1:]
    constant = [replace(part, tail=tail) for part in parts]
    if len(rows) < LEAST_VARYING_ROWS:
        return constant
    Z = columns_of_noise(rows.X, mean if seen is None else seen, w)
    varied = learn_varying(Z, squares, w, rows.labels, plain)
    if varied is None:
        return constant
    if scale.sign:  # those who take mean and deviation of the target are to gain as well
        u, v = units.y_mean + units.y_scale * np.array([rows.y, mean]), units.y_scale**2 * variance
        moments = [scale.moments(u[1], v * np.exp(log)) for log in (varied.logs, np.full(len(rows), level))]
        losses = [0.5 * (np.log(s) + (scale.inverse(u[0]) - m) ** 2 / s) for m, s in moments]
        if not gain_clearly(losses[1] - losses[0], w, rows.labels):
            return constant
    # the factor is one on average over the rows; the spread has what is the same for all, in units of one noise
    found = varied.noise
    average = float(w @ found.variance(Z) / rows.total)
    varying = replace(found, level=found.level - np.log(average), least=found.least / average)
    more = average / np.exp(level)
    return [replace(part, spread=part.spread * more, varying=varying, tail=varied.tail) for part in parts]


def _means_without_folds(parts: list[Component], shares: np.ndarray, rows: Rows) -> np.ndarray:
    """Return the mean (n,) of the mixture at the rows of each fold from those of the others.

    The mean of a nearly constant process of all rows but one tells what that one is; of all but a fifth it does not.
    """
    fold, total = rows.labels % FOLDS, np.zeros(len(rows))
    for share, part in zip(shares, parts):
        total += share * leave_out(posterior(part.structure, part.theta, rows), rows.y, fold)[0]
    return total


def prediction_error(merit: Merit, n_rows: float) -> float:
    """How much larger squared errors at new rows are than at the rows that p hyperparameters were fitted to.

    (n + p) / (n - p), Akaike's final prediction error (1969), where p counts the hyperparameters that the rows
    determine: directions whose curvature is mostly the evidence's and not the prior's. At most 2.
    """
    determined = 1.0 - _PRIOR_CURVATURE / np.maximum(merit.eigenvalues, _PRIOR_CURVATURE)
    p = min(float(np.nansum(determined)), n_rows / 3.0)
    return (n_rows + p) / (n_rows - p)
