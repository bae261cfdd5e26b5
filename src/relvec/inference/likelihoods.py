"""Likelihoods of the target given the latent function: log probability, residual and curvature.

Every likelihood is log-concave in f, so the posterior of the weights has one mode. Sample weights multiply the
log-likelihood of their sample: a weight of 2 is the sample given twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit, gammaln, log_expit, log_ndtr, ndtri
from scipy.stats import qmc

from relvec.runtime.arrays import Array, array_slices, dots, is_device_array, like, namespace, take, to_host

MAX_LOG_RATE = 300.0  # sums of squares of exp of more overflow


class Likelihood(ABC):
    """p(t | f) with f (n,), or (n, K) where there are several outputs."""

    n_outputs: int

    @abstractmethod
    def evaluate(self, t: np.ndarray, f: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """`log_prob` and `working` together, which share the exponentials."""

    def log_prob(self, t: np.ndarray, f: np.ndarray, weights: np.ndarray) -> float:
        """Weighted sum of log p(t_n | f_n), complete with the terms that do not depend on f."""
        return self.evaluate(t, f, weights)[0]

    def constant(self, t: np.ndarray, weights: np.ndarray) -> float:
        """Return the part of `log_prob` that does not depend on f."""
        return 0.0

    def working(self, t: np.ndarray, f: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residual r = dlog p/df, and W, from which the curvature B = -d2log p/df2 is computed.

        For one output r and W are (n,) and B = diag(W). For K outputs r is (n, K) and W (n, K) holds the class
        probabilities p_n, with B_n = weight_n (diag(p_n) - p_n p_n').
        """
        return self.evaluate(t, f, weights)[1:]

    @abstractmethod
    def curvature_slope(
        self, W: np.ndarray, f: np.ndarray, weights: np.ndarray, h: np.ndarray, hp: np.ndarray | None = None
    ) -> np.ndarray:
        """d/df of sum_n trace(B_n H_n) at fixed H, the covariance of f_n, in the shape of f.

        ``h`` holds the diagonals of H in the shape of f, and for K outputs ``hp`` (n, K) the products H_n p_n.
        """

    @abstractmethod
    def mean(self, f: np.ndarray) -> np.ndarray:
        """Return the expected target at f, in the shape of f."""


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Two classes through the logistic link, T01 eq. (23). Targets lie in [0, 1].

    >>> import numpy as np
    >>> one = np.ones(2)
    >>> r, W = Bernoulli().working(np.array([1.0, 0.0]), np.array([0.0, 1000.0]), one)
    >>> r.tolist(), W.tolist()
    ([0.5, -1.0], [0.25, 0.0])
    """

    n_outputs: int = 1

    def evaluate(self, t, f, weights):
        e = np.exp(-np.abs(f))
        large = 1.0 / (1.0 + e)  # the larger of p and 1 - p; the smaller keeps its digits
        small = e * large
        rest = t - np.where(f < 0.0, 0.0, 1.0)
        value = float(weights @ (rest * f + np.log(large)))
        return value, weights * (rest + np.where(f < 0.0, -small, small)), weights * (small * large)

    def curvature_slope(self, W, f, weights, h, hp=None):
        return -W * np.tanh(0.5 * f) * h  # dW/df = W (1 - 2p)

    def mean(self, f):
        return 1.0 / (1.0 + namespace(f).exp(-f)) if is_device_array(f) else expit(f)


@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts with rate exp(f). The log probability includes -log t!.

    >>> import numpy as np
    >>> round(Poisson().log_prob(np.array([2.0]), np.array([0.0]), np.ones(1)), 6)
    -1.693147
    """

    n_outputs: int = 1

    def evaluate(self, t, f, weights):
        rate = np.exp(np.minimum(f, MAX_LOG_RATE))
        value = float(weights @ (t * f - rate)) + self.constant(t, weights)
        return value, weights * (t - rate), weights * rate

    def constant(self, t, weights):
        return -float(weights @ gammaln(t + 1.0))

    def curvature_slope(self, W, f, weights, h, hp=None):
        return W * h  # dW/df = W

    def mean(self, f):
        xp = namespace(f)
        return xp.exp(xp.clip(f, None, MAX_LOG_RATE))


@dataclass(frozen=True)
class Categorical(Likelihood):
    """K classes through the softmax, T01 eq. (28). Targets are (n, K), rows summing to one.

    >>> import numpy as np
    >>> r, p = Categorical(3).working(np.eye(3)[[0]], np.zeros((1, 3)), np.ones(1))
    >>> np.round(r, 3).tolist(), np.round(p, 3).tolist()
    ([[0.667, -0.333, -0.333]], [[0.333, 0.333, 0.333]])
    """

    n_outputs: int

    def evaluate(self, t, f, weights):
        n, top = np.arange(len(f)), np.argmax(f, axis=1)
        below = f - f[n, top][:, None]
        p = np.exp(below)
        p[n, top] = 0.0
        rest = p.sum(axis=1)
        p[n, top] = 1.0
        p /= (1.0 + rest)[:, None]
        value = float(weights @ (dots(t, below) - np.log1p(rest)))  # rows of t sum to one
        r = t - p
        r[n, top] = (t[n, top] - 1.0) + rest / (1.0 + rest)  # 1 - p of the largest class keeps its digits
        r *= weights[:, None]
        return value, r, p

    def curvature_slope(self, W, f, weights, h, hp=None):
        # dp_a/df_c = p_a (delta_ac - p_c): sum_ab H_ab dB_ab/df_c = p_c (H_cc - sum_a H_aa p_a - 2 (H p)_c + 2 p'H p)
        p = W
        both = dots(p, 2.0 * hp - h)
        return weights[:, None] * p * (h - 2.0 * hp + both[:, None])

    def mean(self, f):
        return _softmax(f)


def complement(p: np.ndarray) -> np.ndarray:
    """1 - p of class probabilities (n, K), with the digits that a difference from one would lose.

    >>> import numpy as np
    >>> complement(np.array([[1.0, 1e-30, 2e-30]])).tolist()
    [[3e-30, 1.0, 1.0]]
    """
    low = np.where(p > 0.5, 0.0, p)
    return np.where(p > 0.5, low.sum(axis=1)[:, None], 1.0 - p)


# ---------------------------------------------------------------- averages over a Gaussian latent function

NORMAL_NODES = np.linspace(-9.0, 9.0, 73)  # trapezoidal nodes for a standard normal variable
LOG_NORMAL_WEIGHTS = -0.5 * NORMAL_NODES**2 - 0.5 * np.log(2.0 * np.pi) + np.log(0.25)
_E = np.linspace(-45.0, 45.0, 181)  # and for a standard logistic one
_LOG_LOGISTIC = log_expit(_E) + log_expit(-_E) + np.log(0.5)
_MAX_NARROW_DEVIATION = 5.0  # of f: beyond it the logistic function is the narrower of the two
_BLOCK_NUMBERS = 2_000_000  # in memory at once
MIN_RELATIVE_PIVOT = 1e-14  # of the trace: a smaller pivot is rounding error


def logistic_log_odds(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Log-odds (n,) of E[1 / (1 + exp(-f))] for f ~ N(mean, variance), both (n,).

    MacKay's moderation, T01 section 3, by the trapezoidal rule instead of his closed formula: on a function that is
    analytic in a strip its error falls exponentially, to about 1e-8 here, where the formula is off by up to 0.02.

    >>> import numpy as np
    >>> logistic_log_odds(np.array([0.0, 3.0]), np.array([4.0, 0.0])).round(6).tolist()
    [0.0, 3.0]
    """
    if is_device_array(mean):
        return _log_odds_on_device(mean, variance)
    size, deviation = np.abs(mean), np.sqrt(variance)
    tail = np.empty(len(size))  # log of the smaller of the two probabilities
    for start in range(0, len(size), _BLOCK_NUMBERS // len(_E)):
        part = slice(start, start + _BLOCK_NUMBERS // len(_E))
        m, d = size[part, None], deviation[part, None]
        wide = d[:, 0] > _MAX_NARROW_DEVIATION
        out = np.empty(len(m))
        if not wide.all():
            narrow = ~wide
            out[narrow] = _log_sum(log_expit(-(m[narrow] + d[narrow] * NORMAL_NODES)) + LOG_NORMAL_WEIGHTS)
        if wide.any():  # P(f < e) for logistic e: the same number with the two functions exchanged
            out[wide] = _log_sum(log_ndtr((_E - m[wide]) / d[wide]) + _LOG_LOGISTIC)
        tail[part] = np.minimum(out, np.log(0.5))
    odds = np.sign(mean) * (np.log1p(-np.exp(tail)) - tail)
    return np.where(variance > 0.0, odds, mean)


def _log_odds_on_device(mean: Array, variance: Array) -> Array:
    """`logistic_log_odds` on a device; the rows of wide f, which need the normal distribution, on the host."""
    xp, half = namespace(mean), float(np.log(0.5))
    size, deviation = xp.abs(mean), xp.sqrt(xp.clip(variance, 0.0, _MAX_NARROW_DEVIATION**2))
    tails = []
    z, log_normal = like(mean, NORMAL_NODES), like(mean, LOG_NORMAL_WEIGHTS)
    for rows in array_slices(mean, len(NORMAL_NODES), _BLOCK_NUMBERS):
        f = size[rows][:, None] + deviation[rows][:, None] * z
        # log 1 / (1 + exp(f))
        terms = log_normal - xp.clip(f, 0.0, None) - xp.log1p(xp.exp(-xp.abs(f)))
        top = xp.max(terms, axis=1)
        tails.append(top + xp.log(xp.sum(xp.exp(terms - top[:, None]), axis=1)))
    tail = xp.clip(xp.concat(tails), None, half)
    odds = xp.sign(mean) * (xp.log1p(-xp.exp(tail)) - tail)
    wide = np.flatnonzero(to_host(variance) > _MAX_NARROW_DEVIATION**2)
    if wide.size:
        whole = np.full(mean.shape[0], np.nan)
        whole[wide] = logistic_log_odds(to_host(take(mean, wide)), to_host(take(variance, wide)))
        odds = xp.where(variance > _MAX_NARROW_DEVIATION**2, like(mean, whole), odds)
    return xp.where(variance > 0.0, odds, mean)


def _log_sum(a: np.ndarray) -> np.ndarray:
    """Log sum exp over the rows of a finite array (n, j); scipy's checks cost more than the sum of one row."""
    top = a.max(axis=1)
    return top + np.log(np.exp(a - top[:, None]).sum(axis=1))


def logistic_nodes() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], float]:
    """Nodes and weights of `logistic_log_odds` for narrow and for wide f, and the deviation between the two."""
    return (NORMAL_NODES, np.exp(LOG_NORMAL_WEIGHTS)), (_E, np.exp(_LOG_LOGISTIC)), _MAX_NARROW_DEVIATION


def softmax_normal(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """E[softmax(f)] (n, K) for f ~ N(mean, covariance), (n, K) and (n, K, K).

    An average over a fixed set of scrambled Sobol points, each with its mirror image: deterministic, and smooth in
    mean and covariance.

    >>> import numpy as np
    >>> softmax_normal(np.zeros((1, 3)), np.eye(3)[None]).round(2).tolist()
    [[0.33, 0.33, 0.33]]
    """
    xp, K = namespace(mean), mean.shape[1]
    points, found = like(mean, softmax_points(K)), [mean[:0, :]]
    for rows in array_slices(mean, K * points.shape[1], _BLOCK_NUMBERS):
        f = mean[rows, :][:, :, None] + _contrast_root(covariance[rows, :, :]) @ points
        found.append(xp.mean(_softmax(f), axis=2))
    p = xp.concat(found)
    return p / xp.sum(p, axis=1, keepdims=True)


def _softmax(f: Array) -> Array:
    """Softmax over the classes, axis 1."""
    xp = namespace(f)
    p = xp.exp(f - xp.max(f, axis=1, keepdims=True))
    p /= xp.sum(p, axis=1, keepdims=True)
    return p


@cache
def softmax_points(K: int) -> np.ndarray:
    """Return the points of `softmax_normal`, standard normal, (K - 1, 1024)."""
    half = ndtri(np.clip(qmc.Sobol(K - 1, seed=0).random(512), 1e-12, 1 - 1e-12))
    z = np.vstack([half, -half]).T
    z.flags.writeable = False
    return z


def _contrast_root(covariance: np.ndarray) -> np.ndarray:
    """L (n, K, K - 1) with L L' the covariance of f less its mean over the classes, which is all a softmax sees.

    Cholesky's factor, one column after the other: unlike eigenvectors it has no signs to choose and moves smoothly.
    A pivot that is rounding error counts as zero.
    """
    xp, K = namespace(covariance), covariance.shape[1]
    A = covariance - xp.mean(covariance, axis=1, keepdims=True)
    A = A - xp.mean(A, axis=2, keepdims=True)
    least = MIN_RELATIVE_PIVOT * xp.linalg.trace(covariance)[:, None]  # that of A may round to less than zero
    columns = []
    for j in range(K - 1):
        column, pivot = A[:, :, j], A[:, j, j][:, None]
        above = pivot > least
        root = column / xp.sqrt(xp.where(above, pivot, xp.ones_like(pivot)))
        columns.append(xp.where(above, root, xp.zeros_like(root)))
        A = A - columns[-1][:, :, None] * columns[-1][:, None, :]
    return xp.stack(columns, axis=2)
