"""Predictions whose error bars were set by held-out rows; of sparse models they return to the prior's far away."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from relvec.basis import Basis
from relvec.inference import tails
from relvec.inference.error_bars import ErrorBars, Reach
from relvec.inference.linalg import covariance_root
from relvec.inference.predictive.contract import Predictor
from relvec.inference.predictive.expansion import Expansion, ReachExpansion
from relvec.inference.predictive.linear import LinearPredictor
from relvec.runtime.arrays import Array, like, namespace

_BLOCK_NUMBERS = 1_000_000  # correlations with the centres that are held at once


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibratedPredictor(Predictor):
    """T01 eq. (21) with the variances of eq. (22) times F(x), and a share of the prior's away from the data.

    The variance of a new target is F(x) (phi'Sigma phi + noise) + share(x) variance, see `relvec.inference.error_bars`.
    """

    is_normal: ClassVar[bool] = False

    function: LinearPredictor  # T01's
    bars: ErrorBars
    reach: Reach

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        mean, spread = self.function.moments(X, variance, noise)
        if spread is None:
            return mean, None
        step = max(_BLOCK_NUMBERS // len(self.reach.centres), 16)
        added = [self.reach.share(X[i : i + step]) for i in range(0, len(X), step)]
        return mean, self.bars.factors(X, mean) * spread + self.reach.variance * np.concatenate([np.zeros(0), *added])

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        root = np.sqrt(self.bars.factors(X, self.function.moments(X, False, False)[0]))
        return root[:, None] * self.function.covariance(X, noise) * root + self.reach.covariance(X)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        mean, _ = self.function.moments(X, False, False)
        drawn = covariance_root(self.covariance(X, False)) @ rng.standard_normal((len(X), n_samples))
        drawn += mean[:, None]
        if noise:
            deviation = np.sqrt(self.bars.factors(X, mean) * self.function.noise) * self.function.unit
            factors = tails.draw_factors(self.bars.tails(X, mean), n_samples, rng)
            drawn += deviation[:, None] * np.sqrt(factors) * rng.standard_normal(drawn.shape)
        return drawn

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        mean, variance = self.moments(X, True, noise)
        assert variance is not None
        standard = tails.quantiles(q, self.bars.tails(X, mean)) if noise else ndtri(q)  # the function's are normal
        return mean[:, None] + np.sqrt(variance)[:, None] * standard

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        mean, variance = self.moments(X, True, True)
        assert variance is not None
        return tails.log_density((y - mean) ** 2, variance, self.bars.tails(X, mean))

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        found = self.function.expand(n_features, basis)
        (part,), factor = found.parts, 1.0 if self.bars.varying is not None else self.bars.factor
        part = replace(part, root=np.sqrt(factor) * part.root, noise=factor * part.noise, varying=self.bars.varying)
        return replace(found, parts=(part,), reach=ReachExpansion.of(self.reach))

    @property
    def noise_columns(self) -> np.ndarray:
        varying = self.bars.varying
        return np.zeros(0, dtype=int) if varying is None else np.unique(varying.columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class RescaledPredictor(Predictor):
    """T01 eq. (21) with the variances of eq. (22) times a factor; new targets are Student t with a tail."""

    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("factor", "tail")
    is_normal: ClassVar[bool] = False
    on_device: ClassVar[bool] = True

    function: LinearPredictor  # T01's
    factor: float
    tail: float  # see `relvec.inference.tails`

    def moments(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Array | None]:
        mean, spread = self.function.moments(X, variance, noise)
        return mean, None if spread is None else self.factor * spread

    def covariance(self, X: Array, noise: bool) -> Array:
        return self.factor * self.function.covariance(X, noise)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        mean, drawn = (
            self.function.moments(X, False, False)[0][:, None],
            self.function.samples(X, n_samples, rng, False),
        )
        drawn = mean + np.sqrt(self.factor) * (drawn - mean)
        if noise:
            factors = tails.draw_factors(np.full(len(drawn), self.tail), n_samples, rng)
            deviation = np.sqrt(self.factor * self.function.noise) * self.function.unit
            drawn += deviation * np.sqrt(factors) * rng.standard_normal(drawn.shape)
        return drawn

    def quantiles(self, X: Array, q: np.ndarray, noise: bool) -> Array:
        mean, variance = self.moments(X, True, noise)
        assert variance is not None
        standard = tails.quantiles(q, self.tail if noise else 0.0)[0]
        return mean[..., None] + namespace(mean).sqrt(variance)[..., None] * like(mean, standard)

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        mean, variance = self.moments(X, True, True)
        assert variance is not None
        return tails.log_density((y - mean) ** 2, variance, self.tail)

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        found = self.function.expand(n_features, basis)
        (part,) = found.parts
        return replace(
            found, parts=(replace(part, root=np.sqrt(self.factor) * part.root, noise=self.factor * part.noise),)
        )

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return self.tail <= tails.MOST_TAIL
