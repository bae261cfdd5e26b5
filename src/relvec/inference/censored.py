"""Targets of which only an interval is known: y = f + normal noise of variance sigma^2, seen as low <= y <= high.

Either end may be infinite; equal ends are a target that was observed. With a = (low - f) / sigma and
b = (high - f) / sigma and e a standard normal variable, the likelihood of a row and its derivatives are

    p = P(a < e < b),   d log p / df = E[e | a < e < b] / sigma,   -d2 log p / df2 = (1 - Var[e | a < e < b]) / sigma^2.

Laplace's approximation at f replaces the row by a target z = f + sigma E / lambda that was observed with the weight
lambda = 1 - Var (`working_targets`): the mode and the curvature of the posterior are those of a normal model of
weighted rows, fitted again and again (Newton's method). sigma maximises the expected log likelihood under the posterior
over f (`learn_noise`), a step of EM. Sample weights multiply the terms of their row.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import erfcx, log_ndtr

from relvec.inference.evidence import LOG_2PI
from relvec.inference.heteroscedastic import mean_square
from relvec.runtime.arrays import TargetsLike

MIN_WEIGHT = 1e-6  # lambda of a row whose interval carries no information; its pull on f stays
_NARROW = 1e-3  # width of an interval, in deviations and in units of 1 / |e|, up to which series in it have 12 digits
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(20)  # of averages over the posterior of f
_MAX_RATIO = 20.0  # between the noise level found and the deviation of the targets' ends from f, either way


def as_ends(y: TargetsLike) -> np.ndarray:
    """Return the ends (n, 2) of the intervals that targets are known to lie in.

    Parameters
    ----------
    y : (n, 2) lower and upper ends, -inf and inf where there is none; (n,) targets that were all observed; or a
        structured array of (event, time) as scikit-survival has it: a time whose event is false is a lower end.

    Examples
    --------
    >>> as_ends([[1.0, 1.0], [2.0, np.inf]]).tolist()
    [[1.0, 1.0], [2.0, inf]]
    >>> as_ends(np.array([(True, 3.0), (False, 5.0)], dtype=[("event", bool), ("time", float)])).tolist()
    [[3.0, 3.0], [5.0, inf]]
    """
    try:
        y = np.asarray(y)
        names = y.dtype.names
        if names is not None and len(names) == 2 and y.dtype[0].kind == "b":
            time = y[names[1]].astype(float)
            y = np.column_stack([time, np.where(y[names[0]], time, np.inf)])
        y = np.asarray(y, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            "censored targets are numbers (n, 2), the lower and the upper end of each, or a structured array whose "
            f"first field tells whether the event was seen, and whose second is its time. {error}"
        ) from error
    ends = np.column_stack([y, y]) if y.ndim == 1 else y
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise ValueError(f"censored targets are (n, 2), the lower and the upper end of each, got shape {y.shape}")
    wrong = np.flatnonzero(~(ends[:, 0] <= ends[:, 1]) | (ends[:, 0] == np.inf) | (ends[:, 1] == -np.inf))
    if len(wrong):
        raise ValueError(
            f"row {wrong[0]} of y has the ends {ends[wrong[0]].tolist()}: a lower end must not be above the upper "
            "one; write -inf or inf, and no nan, where there is none"
        )
    return ends


def first_targets(ends: np.ndarray) -> np.ndarray:
    """Targets (n,) to begin with: those observed, the one finite end, or the middle; zero where nothing is known."""
    other = np.where(np.isinf(ends), ends[:, ::-1], ends)  # an infinite end is replaced by the other one
    return np.where(np.isinf(other), 0.0, other) @ [0.5, 0.5]


def explained_distance(ends: np.ndarray, f: np.ndarray, weights: np.ndarray) -> float:
    """Share of the squared distances to the intervals (n, 2) that f (n,) leaves: R^2 where all are observed.

    >>> ends = as_ends([0.0, 1.0, 5.0])
    >>> round(explained_distance(ends, np.array([0.0, 2.0, 5.0]), np.ones(3)), 6)
    0.928571
    """

    def total(values: np.ndarray | float) -> float:
        outside = np.maximum(np.maximum(ends[:, 0] - values, values - ends[:, 1]), 0.0)
        return float(weights @ outside**2)

    finite = ends[np.isfinite(ends)]
    tight = {"xatol": 1e-9 * (np.ptp(finite) or 1.0)}
    constant = minimize_scalar(total, bounds=(finite.min(), finite.max()), method="bounded", options=tight).fun
    return float(1.0 - total(f) / constant) if constant > 0.0 else float(total(f) == 0.0)


def log_likelihood(ends: np.ndarray, f: np.ndarray, variance: np.ndarray | float) -> np.ndarray:
    """Log p(row | f) (n,): a density where the target was observed, a probability elsewhere.

    >>> log_likelihood(np.array([[0.0, np.inf]]), np.zeros(1), 4.0).round(6).tolist()
    [-0.693147]
    """
    sigma = np.broadcast_to(np.sqrt(variance), f.shape)
    seen, found = ends[:, 0] == ends[:, 1], np.empty(len(f))
    e = (ends[seen, 0] - f[seen]) / sigma[seen]
    found[seen] = -0.5 * (LOG_2PI + e**2) - np.log(sigma[seen])
    found[~seen] = truncated_moments((ends[~seen].T - f[~seen]) / sigma[~seen])[0]
    return found


def working_targets(ends: np.ndarray, f: np.ndarray, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Targets z and weights lambda (n,) of the normal model with the same gradient and curvature at f (n,)."""
    z, weight, sigma, hidden = ends[:, 0].copy(), np.ones(len(f)), np.sqrt(variance), ends[:, 0] < ends[:, 1]
    _, mean, spread = truncated_moments((ends[hidden].T - f[hidden]) / sigma)
    weight[hidden] = np.clip(1.0 - spread, MIN_WEIGHT, 1.0)
    z[hidden] = f[hidden] + sigma * mean / weight[hidden]
    return z, weight


def learn_noise(ends: np.ndarray, mean: np.ndarray, spread: np.ndarray, weights: np.ndarray) -> float:
    """Return the noise variance of most E log p over f ~ N(mean, spread), both (n,): a step of EM."""
    seen = ends[:, 0] == ends[:, 1]
    squares = (ends[seen, 0] - mean[seen]) ** 2 + spread[seen]
    hidden, w = np.repeat(ends[~seen], len(_NODES), axis=0), np.outer(weights[~seen], _SHARES / _SHARES.sum()).ravel()
    f = (mean[~seen, None] + np.sqrt(spread[~seen, None]) * _NODES).ravel()

    def loss(log_variance: float) -> float:
        variance = np.exp(log_variance)
        own = 0.5 * weights[seen] @ (log_variance + squares / variance)
        return float(own - w @ log_likelihood(hidden, f, variance))

    size = (first_targets(ends) - mean) ** 2 + spread
    middle, reach = np.log(mean_square(size, weights)), 2.0 * np.log(_MAX_RATIO)
    return float(np.exp(minimize_scalar(loss, bounds=(middle - reach, middle + reach), method="bounded").x))


def truncated_moments(interval: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log P(a < e < b), and mean and variance (n,) of a standard normal e between the ends a < b, (2, n).

    >>> [v.round(6).tolist() for v in truncated_moments(np.array([[0.0, 40.0], [np.inf, np.inf]]))]
    [[-0.693147, -804.608442], [0.797885, 40.024969], [0.36338, 0.000623]]
    """
    a, b = interval
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        flip = a + b < 0.0  # by symmetry the upper half, where tails have all their digits
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)
        log_a, log_b = log_ndtr(-a), log_ndtr(-b)
        log_p = log_a + np.log1p(-np.exp(log_b - log_a))
        above = np.exp(log_a - log_p) * _hazard(a)  # phi(a) / P
        below = np.where(np.isfinite(b), np.exp(log_b - log_p) * _hazard(b), 0.0)
        mean = above - below
        slope = np.where(np.isfinite(a), a * above, 0.0) - np.where(np.isfinite(b), b * below, 0.0)
        variance = 1.0 + slope - mean**2
        middle, width = 0.5 * (a + b), b - a
        narrow = width * (1.0 + np.abs(middle)) < _NARROW
        log_p = np.where(narrow, np.log(width) - 0.5 * (LOG_2PI + middle**2), log_p)
        mean = np.where(narrow, middle * (1.0 - width**2 / 12.0), mean)
        variance = np.where(narrow, width**2 / 12.0, np.clip(variance, 0.0, 1.0))
    return log_p, np.where(flip, -mean, mean), variance


def _hazard(x: np.ndarray) -> np.ndarray:
    """phi(x) / P(e > x) (n,)."""
    return np.sqrt(2.0 / np.pi) / erfcx(x / np.sqrt(2.0))
