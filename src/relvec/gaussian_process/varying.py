"""Error bars that depend on the inputs, where rows left out say clearly that they do.

A process has one noise and one smoothness everywhere. Rows left out one at a time tell where that is wrong: the
logarithm of their squared errors, in predicted variances, is learned as a sparse sum of functions of single inputs and
of the mean (`relvec.inference.heteroscedastic`), and its exponential multiplies all variances. Means stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.gaussian_process.evidence import leave_one_out
from relvec.gaussian_process.predictor import Component
from relvec.gaussian_process.rows import Rows
from relvec.inference.heteroscedastic import LogNoise, constant_noise, learn_log_noise

_FOLDS = 5  # in which rows that took no part tell whether variances depend on the inputs
_LEAST_ROWS = 60
_MOST_ROWS = 1000
_MOST_INPUTS = 32  # of more inputs, variances depend on the mean alone
_LEAST_GAIN = 0.02  # nats a row at rows that took no part
_ERRORS = 2.5  # standard errors that the gain has to be above zero


def vary_error_bars(parts: list[Component], shares: np.ndarray, rows: Rows) -> list[Component]:
    """The components of a process with variances that depend on the inputs, or as they are."""
    few = rows.take(slice(0, _MOST_ROWS))
    if len(few) < _LEAST_ROWS:
        return parts
    Z, squares = left_out_squares(parts, shares, few)
    found, _ = learn_log_noise(Z, squares, few.weight)
    plain = constant_noise(Z, squares, few.weight)
    if few.weight @ _gain(found, plain, Z, squares) < _LEAST_GAIN * few.total or not _holds(Z, squares, few.weight):
        return parts
    factor = replace(found, covariance=np.zeros_like(found.covariance))
    # the level at which squared errors are those predicted, in units of that of one variance
    level = np.log(few.weight @ (squares / factor.variance(Z)) / few.total) - plain.level
    average = few.weight @ factor.variance(Z) * np.exp(level) / few.total
    factor = replace(factor, level=float(factor.level + level - np.log(average)))
    return [replace(part, spread=part.spread * float(average), varying=factor) for part in parts]


def left_out_squares(parts: list[Component], shares: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Columns Z (n, d + 1), inputs and mean, and squared errors of rows left out in their predicted variances (n,)."""
    left = [leave_one_out(part.structure, part.theta, rows) for part in parts]
    means = np.array([mean for mean, _ in left])
    variances = [np.maximum(v - part.noise / rows.weight, 0.0) + part.noise for (_, v), part in zip(left, parts)]
    mean = shares @ means
    variance = shares @ (np.array(variances) + (means - mean) ** 2)
    squares = ((rows.y - mean) ** 2 + rows.scatter / rows.weight) / variance
    inputs = rows.X if rows.X.shape[1] <= _MOST_INPUTS else np.zeros_like(rows.X)  # constants say nothing
    return np.column_stack([inputs, mean]), squares


def _holds(Z: np.ndarray, squares: np.ndarray, weight: np.ndarray) -> bool:
    """Whether rows that took no part have clearly more density under variances that depend on the inputs."""
    fold = np.arange(len(Z)) % _FOLDS  # rows come in the order of their hash
    gain = np.empty(len(Z))
    for i in range(_FOLDS):
        own = fold == i
        rest = Z[~own], squares[~own], weight[~own]
        gain[own] = _gain(learn_log_noise(*rest)[0], constant_noise(*rest), Z[own], squares[own])
    mean = weight @ gain / weight.sum()
    error = np.sqrt(weight**2 @ (gain - mean) ** 2) / weight.sum()
    return bool(mean > max(_LEAST_GAIN, _ERRORS * error))


def _gain(varying: LogNoise, plain: LogNoise, Z: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Nats (n,) by which squared errors have more density under the first than under the second."""
    logs = [np.log(noise.variance(Z)) for noise in (varying, plain)]
    losses = [0.5 * (log + squares * np.exp(-log)) for log in logs]
    return losses[1] - losses[0]
