"""Error bars that follow the inputs, where rows that took no part gain clearly by them.

The logarithm of squared errors, in predicted variances, is learned as a sparse sum of functions of single inputs and of
the mean (`relvec.inference.heteroscedastic`). What the rows leave open of it, the variance of that logarithm, makes the
predictive distribution a Student t (`relvec.inference.tails`). Machine and process share it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.inference.heteroscedastic import LogNoise, learn_log_noise
from relvec.inference.tails import best_tail

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
