"""Predictive distributions of classes, of counts, and of targets with Student-t noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr, ndtri, pdtr

from relvec.basis import Basis
from relvec.inference.likelihoods import (
    LOG_NORMAL_WEIGHTS,
    NORMAL_NODES,
    Bernoulli,
    Categorical,
    logistic_log_odds,
    softmax_normal,
)
from relvec.inference.predictive.augmented import AugmentedLatentPredictor
from relvec.inference.predictive.contract import ClassPredictor, Predictor
from relvec.inference.predictive.expansion import Expansion
from relvec.inference.predictive.linear import LatentPredictor, LinearPredictor
from relvec.inference.tails import MAX_LOG_VARIANCE
from relvec.runtime.arrays import Array, namespace

Latent = LatentPredictor | AugmentedLatentPredictor


@dataclass(frozen=True, eq=False)
class LatentClasses(ClassPredictor):
    """Two classes by one latent function, K by a softmax of K functions, or by K dichotomies, one function each.

    averaged : whether probabilities are averaged over the posterior of the weights, or taken at its mode.
    slope : multiplies the log-odds, or the log probabilities of a softmax, that come of that.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVC
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> averaged = RVC(width=2.0).fit(X, X[:, 0] > 3.0).fitted_.classifier
    >>> at_mode = LatentClasses(averaged.latents, averaged=False)  # surer than the average over the weights
    >>> bool(np.all(np.abs(at_mode.decision(X)) > np.abs(averaged.decision(X))))
    True
    """

    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("slope",)
    on_device: ClassVar[bool] = True

    latents: tuple[Latent, ...]
    averaged: bool
    slope: float = 1.0

    @property
    def is_softmax(self) -> bool:
        """Whether one model has the functions of all classes."""
        return self.latents[0].n_outputs > 1

    def decision(self, X: Array) -> Array:
        """Return log-odds: of the second of two classes (n,), or of each against the rest; logs of a softmax (n, K)."""
        xp = namespace(X)
        if self.is_softmax:
            logs = self._logs(X)
            return self.slope * (logs - xp.mean(logs, axis=1, keepdims=True))
        odds = self._odds(X)
        return odds[:, 0] if len(self.latents) == 1 else odds

    def predict_proba(self, X: Array) -> Array:
        """Return the probabilities (n, K); those of dichotomies are normalised."""
        if self.is_softmax:
            slope, K = self.slope, self.latents[0].n_outputs
            return self._softmax(X) if slope == 1.0 else Categorical(K).mean(slope * self._logs(X))
        xp, odds = namespace(X), self._odds(X)
        if len(self.latents) == 1:
            return xp.concat([Bernoulli().mean(-odds), Bernoulli().mean(odds)], axis=1)
        p = Bernoulli().mean(odds)
        total = xp.sum(p, axis=1, keepdims=True)
        some = total > 0.0
        shares = p / xp.where(some, total, xp.ones_like(total))
        return xp.where(some, shares, xp.full_like(p, 1.0 / p.shape[1]))

    def _odds(self, X: Array) -> Array:
        return namespace(X).stack([self._averaged_odds(latent, X) for latent in self.latents], axis=1)

    def _averaged_odds(self, latent: Latent, X: Array) -> Array:
        mean, covariance = latent.moments(X, self.averaged)
        odds = mean[:, 0] if covariance is None else logistic_log_odds(mean[:, 0], covariance[:, 0, 0])
        xp, odds = namespace(X), self.slope * odds
        return xp.where(xp.isfinite(odds), odds, xp.full_like(odds, xp.nan))  # infinite ones overflowed: no certainty

    def _logs(self, X: Array) -> Array:
        """Logarithms of the probabilities (n, K) of a softmax, before the slope."""
        xp = namespace(X)
        return xp.log(xp.clip(self._softmax(X), float(np.finfo(float).tiny), None))

    def _softmax(self, X: Array) -> Array:
        mean, covariance = self.latents[0].moments(X, self.averaged)
        return Categorical(mean.shape[1]).mean(mean) if covariance is None else softmax_normal(mean, covariance)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        found = [latent.n_outputs for latent in self.latents]
        return bool(found) and (len(found) == 1 or set(found) == {1})


_MAX_LOG_RATE = 700.0  # exp of more overflows
_MAX_DEVIATION = 1e150  # the square of more overflows


@dataclass(frozen=True, eq=False)
class CountPredictor(Predictor):
    """Counts with the rate exp(f(x)) for a Gaussian posterior over f: averages over f are exact or by quadrature.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> model = RVR(width=2.0, likelihood="poisson").fit(X, np.round(5.0 + 4.0 * np.sin(X[:, 0])))
    >>> counts = model.fitted_.predictors[0]
    >>> rate, _ = counts.moments(X, variance=False, noise=False)
    >>> bool(rate.min() > 0.0), counts.quantiles(X[:1], np.array([0.1, 0.9]), noise=True)
    (True, array([[2., 7.]]))
    """

    is_normal: ClassVar[bool] = False
    is_count: ClassVar[bool] = True

    latent: LinearPredictor  # the posterior over f

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and variance (n,) of the rate, or of a new count if ``noise``: those of a log-normal variable.

        A log rate that is more uncertain than by two standard deviations counts as uncertain by these.
        """
        f, spread = self._latent(X)
        spread = np.minimum(spread, MAX_LOG_VARIANCE)
        mean = _rate(f + 0.5 * spread)
        if not variance:
            return mean, None
        with np.errstate(over="ignore"):
            deviation = np.minimum(mean * np.sqrt(np.expm1(spread)), _MAX_DEVIATION)
        return mean, deviation**2 + (mean if noise else 0.0)

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the rates, or of new counts."""
        mean, _ = self.moments(X, False, False)
        C = np.outer(mean, mean) * np.expm1(np.minimum(self.latent.covariance(X, False), MAX_LOG_VARIANCE))
        return C + np.diag(mean) if noise else C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Rates (n, n_samples) drawn from the posterior, or counts."""
        rate = _rate(self.latent.samples(X, n_samples, rng, False))
        return rng.poisson(rate).astype(float) if noise else rate

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Quantiles (n, n_q) of the rate, or of a new count: the least one with P(not more) >= q."""
        f, spread = self._latent(X)
        if not noise:
            return _rate(f[:, None] + np.sqrt(spread)[:, None] * ndtri(q))
        low, high = np.full((len(f), len(q)), -1.0), np.ones((len(f), len(q)))
        while np.any(short := self._cumulative(high, f, spread) < q):
            low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
        # Beyond 2^53 no number may lie between two: a search for a gap of 1 would not end.
        while np.any(open := (low < (middle := np.floor(0.5 * low + 0.5 * high))) & (middle < high)):
            reached = self._cumulative(middle, f, spread) >= q
            low, high = np.where(open & ~reached, middle, low), np.where(open & reached, middle, high)
        return high

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log probability (n,) of counts y (n,), averaged over the posterior."""
        f, spread = self._latent(X)
        rates = f[:, None] + np.sqrt(spread)[:, None] * NORMAL_NODES
        return logsumexp(y[:, None] * rates - _rate(rates) - gammaln(y + 1.0)[:, None] + LOG_NORMAL_WEIGHTS, axis=1)

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        return replace(self.latent.expand(n_features, basis).with_noise(0.0), counts=True)

    def _latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, spread = self.latent.moments(X, True, False)
        assert spread is not None
        return mean, spread

    def _cumulative(self, count: np.ndarray, f: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """P(t <= count) for counts (n, n_q)."""
        total = np.zeros(count.shape)
        for node, weight in zip(NORMAL_NODES, np.exp(LOG_NORMAL_WEIGHTS), strict=True):
            total += weight * pdtr(count, _rate(f + np.sqrt(spread) * node)[:, None])
        return total


def _rate(f: np.ndarray) -> np.ndarray:
    """exp(f), limited to a rate whose double does not overflow."""
    return np.exp(np.minimum(f, _MAX_LOG_RATE))


_STEP = 0.25  # of the trapezoidal rule in log lambda, and in its standard deviations: errors are below 1e-12
_STANDARD_STEP = 0.6
_DEPTH = 34.0  # nats below its maximum at which the density of log lambda is cut off
_BISECTIONS = 80


@dataclass(frozen=True, eq=False)
class StudentPredictor(Predictor):
    """The posterior over a function, with Student-t noise of so many degrees of freedom and variance.

    A new target is normal given the scale lambda of its noise; averages over lambda are by the trapezoidal rule in
    log lambda, a mixture of about a hundred normal distributions with one mean. Quantiles are found by bisection.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> normal = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0])).fitted_.predictors[0]
    >>> student = StudentPredictor(normal, degrees=4.0, noise=0.01)
    >>> far = normal.moments(X, variance=False, noise=False)[0] + 1.0  # ten standard deviations of the noise
    >>> bool(np.all(student.log_density(X, far) > normal.log_density(X, far) + 10.0))
    True
    """

    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("noise",)

    is_normal: ClassVar[bool] = False

    function: Predictor  # of a linear model, or a process
    degrees: float  # of freedom
    noise: float  # its variance, in the units of the target

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) of the function, or of a new target if ``noise``."""
        mean, spread = self.function.moments(X, variance, False)
        return mean, spread if spread is None or not noise else spread + self.noise

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets."""
        C = self.function.covariance(X, False)
        return C + self.noise * np.eye(len(C)) if noise else C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        drawn = self.function.samples(X, n_samples, rng, False)
        return drawn + np.sqrt(self._scale2) * rng.standard_t(self.degrees, drawn.shape) if noise else drawn

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Quantiles (n, n_q) of a new target, or of the function, at X."""
        mean, variances, log_share = self._mixture(X, noise)
        shares, reach = np.exp(log_share), np.sqrt(variances)
        tail = np.maximum(q, 1.0 - q)  # by symmetry the upper half
        low, high = np.zeros((len(mean), len(q))), np.full((len(mean), len(q)), 1.0) * reach.max(axis=1)[:, None] * 40.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            below = np.einsum("k,nqk->nq", shares, ndtr(middle[:, :, None] / reach[:, None, :])) < tail
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return mean[:, None] + np.where(q >= 0.5, high, -high)

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log density (n,) of targets y (n,) at X."""
        mean, variances, log_share = self._mixture(X, True)
        squares = (y - mean)[:, None] ** 2
        return logsumexp(log_share - 0.5 * (np.log(2.0 * np.pi * variances) + squares / variances), axis=1)

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        return self.function.expand(n_features, basis).with_noise(self.noise)

    @property
    def _scale2(self) -> float:
        """sigma^2: the noise has the variance sigma^2 nu / (nu - 2)."""
        return self.noise * (self.degrees - 2.0) / self.degrees

    def _mixture(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean (n,), variances (n, K) and logarithms of the shares (K,) of a new target, or of the function."""
        mean, spread = self.function.moments(X, True, False)
        assert spread is not None
        log_scale, log_share = scale_nodes(self.degrees) if noise else (np.full(1, np.inf), np.zeros(1))
        return mean, spread[:, None] + self._scale2 * np.exp(-log_scale), log_share

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return not self.function.is_count and 2.0 < self.degrees < np.inf


@lru_cache(maxsize=32)
def scale_nodes(degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (K,) in log lambda and logarithms of their weights (K,) for lambda ~ Gamma(degrees/2, degrees/2).

    >>> log_scale, log_weight = scale_nodes(3.0)
    >>> bool(np.isclose(np.exp(log_weight).sum(), 1.0)), bool(np.isclose(np.exp(log_weight + log_scale).sum(), 1.0))
    (True, True)
    """
    a = 0.5 * degrees
    step = min(_STEP, _STANDARD_STEP / np.sqrt(a))
    s = np.arange(-2.0 - _DEPTH / a, 5.0, step)
    log_density = a * np.log(a) - gammaln(a) + a * s - a * np.exp(s)
    kept = log_density > log_density.max() - _DEPTH
    return s[kept], log_density[kept] + np.log(step)
