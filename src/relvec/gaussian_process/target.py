"""Choose the scale of the target: as it is, or a logarithm (`relvec.inference.scale`).

Scales are compared by evidence, in the same units of the target: log p(y) = log p(u) + sum log du/dy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relvec.gaussian_process.evidence import leave_one_out, posterior, predict
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.learn import Floors, climb, default_prior, learn, log_posterior
from relvec.gaussian_process.rows import (
    LEAST_HELD_ROWS,
    Rows,
    merge_rows,
    neighbour_distance,
    standardise,
    without_copies,
)
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.inference.tails import MOST_TAIL, log_density
from relvec.runtime.clock import Clock

_OFFSETS = (0.1, 0.4, 1.5)  # standard deviations between the end of the targets and the pole of the logarithm
_SKEWED = 0.3  # skewness below which only the scale as it is is tried
_LEARNED, _CHECKED = slice(0, 200), slice(200, 700)  # rows
_MORE_ERROR = 1.1  # its squared error may be so much larger: what few rows cannot tell from none
_DEEP = 2.0  # standard deviation of targets over orders of magnitude, in distances of the median from their end
_LOWEST_SHARE = 0.1  # of the targets: their depth is that of the pole below the least
_NO_DEPTH = 1e-6  # of the lowest: the pole is at zero
_DEEP_GAIN = 0.1  # nats a row that a logarithm of these has to gain
_GAIN = 5.0  # nats of evidence that another scale has to gain
_LEAST_VARIANCE = 1e-200  # of a target in units of all of them: those of logarithms may underflow


def candidate_scales(y: np.ndarray, weights: np.ndarray | None = None) -> list[Scale]:
    """Return the scales to try for targets y (n,): logarithms from the end where they are dense, if they are skewed."""
    order = np.argsort(y, kind="stable")  # the same sums in whatever order the rows come
    y, w = y[order], (np.ones(len(y)) if weights is None else np.asarray(weights, dtype=float)[order])
    centred = y - w @ y / w.sum()
    spread = np.sqrt(w @ centred**2 / w.sum())
    skewness = w @ centred**3 / w.sum() / spread**3 if spread > 0 else 0.0
    if abs(skewness) < _SKEWED:
        return [AS_IT_IS]
    sign, end = (1, y[0]) if skewness > 0 else (-1, y[-1])
    usual = [Scale(sign, float(end), float(spread), offset) for offset in _OFFSETS]
    return [AS_IT_IS, *usual, *_deep_scales(y, w, sign, float(spread))]


def _deep_scales(y: np.ndarray, w: np.ndarray, sign: int, spread: float) -> list[Scale]:
    """Logarithms for ordered targets (n,) over orders of magnitude, whose standard deviation is that of a few of them.

    Their unit is the distance of the median; the pole is at zero, or below the least target by the depth of the lowest.
    """
    level, least = np.cumsum(w) / w.sum(), y[0 if sign > 0 else -1]
    low, middle = (y[np.searchsorted(level, q if sign > 0 else 1.0 - q)] for q in (_LOWEST_SHARE, 0.5))
    found = []
    for end, depth in ((0.0, _NO_DEPTH), (float(least), 1.0)):
        near, typical = sign * (low - end), sign * (middle - end)
        below = sign * (least - end) > 0.0 if depth < 1.0 else True  # zero is an end where all are on one side of it
        if below and near > 0.0 and spread > _DEEP * typical:
            found.append(Scale(sign, end, float(typical), float(depth * near / typical)))
    return found


def choose_scale(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, clock: Clock, groups: np.ndarray | None = None
) -> Scale:
    """Return the scale of most evidence for a rough part of one width with a linear part, on a few rows.

    Another scale than the target's own has to gain 5 nats, and its predictions, as mean and variance of y, have to be
    of more density and of no larger error: at rows that took no part, and at each row from the others. Of targets over
    orders of magnitude a few rows are all of mean, variance and error: there the density itself decides, in the units
    of y.
    """
    others = candidate_scales(y, weights)[1:]
    if not others or clock.up("the scale of the target"):
        return AS_IT_IS
    first = best = _try_scale(AS_IT_IS, X, y, weights, groups, clock)
    for scale in others:
        if clock.up("the scale of the target"):
            break
        trial = _try_scale(scale, X, y, weights, groups, clock, first.theta)
        if trial.is_ahead_of(best, first):
            best = trial
    return best.losses.scale


@dataclass(frozen=True, eq=False)
class Losses:
    """What rows lose that took no part, (c,) each for c sets of them, on a scale of the target.

    Attributes
    ----------
    scale : of the target.
    nll : minus the mean log density of y by its mean and variance.
    squared : the mean squared error of the mean of y.
    own : minus the mean log density of y.
    """

    scale: Scale
    nll: np.ndarray
    squared: np.ndarray
    own: np.ndarray

    def are_less_than(self, best: Losses, plain: Losses) -> bool:
        """Tell whether the scale takes the place of the best one; `plain` are the losses of targets as they are."""
        usual = (self.nll < best.nll).all() and (self.squared <= _MORE_ERROR * plain.squared).all()
        deep = self.scale.offset not in _OFFSETS and (self.own < best.own - _DEEP_GAIN).all()
        return bool(usual or deep)


def measure_losses(
    scale: Scale, raw: Rows, rows: Rows, slopes: np.ndarray, mean: np.ndarray, variance: np.ndarray,
    tails: tuple[float, ...] = (0.0, MOST_TAIL),
) -> Losses:  # fmt: skip
    """Return the losses of targets, as they are (`raw`) and on a scale, under means and variances (n,) on the scale.

    slopes : (n,) log du/dy.
    tails : of which that of most density counts.
    """
    squares = (rows.y - mean) ** 2 + rows.scatter / rows.weight
    logs = [rows.weight @ (log_density(squares, variance, tail) + slopes) for tail in tails]
    mean, variance = scale.moments(mean, variance)
    scatter = raw.weight * (raw.y - mean) ** 2 + raw.scatter
    variance = np.maximum(variance, _LEAST_VARIANCE)
    nll = 0.5 * raw.weight * np.log(variance) + 0.5 * scatter / variance
    found = (nll.sum() / raw.total, scatter.sum() / raw.total, -max(logs) / rows.total)
    return Losses(scale, *(np.array([loss]) for loss in found))


@dataclass(frozen=True, eq=False)
class _Trial:
    """The theta of most evidence on a scale, that evidence in units of y, and the losses of two sets of `_rows`."""

    theta: np.ndarray
    value: float
    losses: Losses

    def is_ahead_of(self, best: _Trial, plain: _Trial) -> bool:
        """Tell whether the scale takes the place of the best one; `plain` is that of targets as they are."""
        return self.value > best.value and self.losses.are_less_than(best.losses, plain.losses)


def _try_scale(
    scale: Scale, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, groups: np.ndarray | None, clock: Clock,
    start: np.ndarray | None = None,
) -> _Trial:  # fmt: skip
    """Learn a process on a scale, from theta (p,) where that is given."""
    rows, rest, jacobian, loss = _rows(scale, X, y, weights, groups)
    structure = Structure((Part(Shape.MATERN32),), True, rows.X.shape[1])
    prior = default_prior(structure, Floors(width=0.5 * neighbour_distance(rows.X)))
    objective = log_posterior(structure, prior, rows)
    mode = learn(structure, prior, rows, 30, clock) if start is None else climb(objective, start, prior, 20, clock)
    at = structure, mode.theta, rows
    both = _left_out(*at, loss), _held_out(*at, rest, loss)
    value = mode.value + jacobian - (_GAIN if scale.sign else 0.0)
    joined = [np.concatenate(each) for each in zip(*((one.nll, one.squared, one.own) for one in both), strict=True)]
    return _Trial(mode.theta, value, Losses(scale, *joined))


def _rows(
    scale: Scale, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, groups: np.ndarray | None
) -> tuple[Rows, Rows, float, Callable]:
    """Return standardised rows on a scale to learn from and to check with, sum log du/dy, and a loss of predictions.

    The loss takes means and variances of u at some of the rows (a slice).
    """
    u = scale.forward(y)
    rows, units = standardise(without_copies(merge_rows(X, u, weights, groups), X, u, weights))
    raw, on_scale = merge_rows(X, y, weights), merge_rows(X, u, weights)
    slopes = merge_rows(X, scale.log_slope(y), weights).y

    def loss(mean: np.ndarray, variance: np.ndarray, some: slice) -> Losses:
        mean, variance = units.y_mean + units.y_scale * mean, units.y_scale**2 * variance
        return measure_losses(scale, raw.take(some), on_scale.take(some), slopes[some], mean, variance)

    slopes_of_rows = slopes - np.log(units.y_scale)
    jacobian = float(rows.take(_LEARNED).weight @ slopes_of_rows[_LEARNED])
    return rows.take(_LEARNED), rows.take(_CHECKED), jacobian, loss


def _left_out(structure: Structure, theta: np.ndarray, rows: Rows, loss: Callable) -> Losses:
    """Return the loss at each row from the others."""
    mean, variance = leave_one_out(structure, theta, rows)
    noise = structure.noise(theta)
    return loss(mean, np.maximum(variance - noise / rows.weight, 0.0) + noise, _LEARNED)


def _held_out(structure: Structure, theta: np.ndarray, rows: Rows, rest: Rows, loss: Callable) -> Losses:
    """Return the loss at rows that took no part; that at the others where there are too few."""
    if len(rest) < LEAST_HELD_ROWS or rows.group is not None:  # whole groups are left out then
        return _left_out(structure, theta, rows, loss)
    return loss(*predict(structure, theta, rows, posterior(structure, theta, rows), rest.X), _CHECKED)
