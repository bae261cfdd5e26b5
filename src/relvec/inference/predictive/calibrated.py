"""Predictions of a sparse model whose error bars were set by held-out rows and return to the prior's far away."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.basis import Basis
from relvec.inference import tails
from relvec.inference.error_bars import ErrorBars, Reach
from relvec.inference.linalg import covariance_root
from relvec.inference.predictive.expansion import Expansion, ReachExpansion
from relvec.inference.predictive.linear import LinearPredictor
from relvec.inference.predictive.scaled import ScaledPredictor
from relvec.inference.scale import AS_IT_IS, Scale

_BLOCK_NUMBERS = 1_000_000  # correlations with the centres that are held at once


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibratedPredictor(ScaledPredictor):
    """T01 eq. (21) with the variances of eq. (22) times F(x), and a share of the prior's away from the data.

    On the scale of the target the variance of a new target is F(x) (phi'Sigma phi + noise) + share(x) variance, see
    `relvec.inference.error_bars`.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> from relvec.inference.error_bars import ErrorBars, Reach
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> normal = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0])).fitted_.predictors[0]
    >>> reach = Reach(centres=np.array([[3.0]]), widths=np.array([2.0]), least=1.0, variance=0.5)
    >>> calibrated = CalibratedPredictor(function=normal, bars=ErrorBars(factor=1.5), reach=reach)
    >>> calibrated.moments(np.array([[20.0]]), variance=True, noise=True)[1].round(3)  # 1.5 of the noise, and 0.5
    array([0.515])
    """

    function: LinearPredictor  # T01's
    bars: ErrorBars
    reach: Reach
    scale: Scale = AS_IT_IS

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if not variance and self.scale.sign == 0:
            return self.function.moments(X, False, False)
        mean, spread = self.scale.moments(*self._on_scale(X), noise)
        return mean, spread if variance else None

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        mean, spread, added = self._on_scale(X)
        return mean, np.sqrt(spread + added if noise else spread)

    def tail_and_noise(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, _, added = self._on_scale(X)
        return self.bars.tails(X, mean), added

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        mean, _, added = self._on_scale(X)
        return self.scale.joint_moments(mean, self._covariance_on_scale(X, mean), added, noise)[1]

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        mean, _, added = self._on_scale(X)
        drawn = covariance_root(self._covariance_on_scale(X, mean)) @ rng.standard_normal((len(X), n_samples))
        drawn += mean[:, None]
        if noise:
            factors = tails.draw_factors(self.bars.tails(X, mean), n_samples, rng)
            drawn += np.sqrt(added[:, None] * factors) * rng.standard_normal(drawn.shape)
        return self.scale.inverse(drawn, 0.0 if noise else added[:, None])

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        mean, spread, added = self._on_scale(X)
        squares = (self.scale.forward(y) - mean) ** 2
        return tails.log_density(squares, spread + added, self.bars.tails(X, mean)) + self.scale.log_slope(y)

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        found = self.function.expand(n_features, basis)
        (part,), factor = found.parts, 1.0 if self.bars.varying is not None else self.bars.factor
        part = replace(part, root=np.sqrt(factor) * part.root, noise=factor * part.noise, varying=self.bars.varying)
        return replace(found, parts=(part,), scale=self.scale, reach=ReachExpansion.of(self.reach))

    @property
    def noise_columns(self) -> np.ndarray:
        varying = self.bars.varying
        return np.zeros(0, dtype=int) if varying is None else np.unique(varying.columns)

    def _on_scale(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance of the function, and variance of the noise, (n,) each, on the scale of the target."""
        mean, spread = self.function.moments(X, True, False)
        assert spread is not None
        factors = self.bars.factors(X, mean)
        step = max(_BLOCK_NUMBERS // len(self.reach.centres), 16)
        shares = [np.zeros(0), *(self.reach.share(X[i : i + step]) for i in range(0, len(X), step))]
        noise = self.function.noise * self.function.unit**2
        return mean, factors * spread + self.reach.variance * np.concatenate(shares), factors * noise

    def _covariance_on_scale(self, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Covariance (n, n) of the function, whose means are (n,)."""
        root = np.sqrt(self.bars.factors(X, mean))
        return root[:, None] * self.function.covariance(X, False) * root + self.reach.covariance(X)
