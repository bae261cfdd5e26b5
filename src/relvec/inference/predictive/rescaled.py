"""Predictions of linear models whose error bars were set by rows that took no part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relvec.basis import Basis
from relvec.inference import tails
from relvec.inference.predictive.contract import Predictor
from relvec.inference.predictive.expansion import Expansion
from relvec.inference.predictive.linear import LinearPredictor
from relvec.runtime.arrays import Array, like, namespace


@dataclass(frozen=True, eq=False, kw_only=True)
class RescaledPredictor(Predictor):
    """T01 eq. (21) with the variances of eq. (22) times a factor; new targets are Student t with a tail.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> normal = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0])).fitted_.predictors[0]
    >>> wider = RescaledPredictor(function=normal, factor=4.0, tail=0.0)
    >>> variance, before = (predictor.moments(X, variance=True, noise=True)[1] for predictor in (wider, normal))
    >>> bool(np.allclose(variance, 4.0 * before))
    True
    """

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
