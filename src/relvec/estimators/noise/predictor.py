"""Predictions with noise whose variance depends on the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from relvec.gaussian_process import ProcessPredictor
from relvec.inference.evidence import LOG_2PI
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive import Predictor


@dataclass(frozen=True, eq=False)
class HeteroscedasticPredictor(Predictor):
    """The posterior over a function, with normal noise of the expected variance at each row, on the target's scale."""

    is_normal: ClassVar[bool] = False

    function: ProcessPredictor
    noise: LogNoise

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation (n,) of a new target, or of the function, at X on the target's scale."""
        mean, deviation = self.function.location(X, False)
        return mean, np.sqrt(deviation**2 + self.noise_variance(X, mean)) if noise else deviation

    def to_scale(self, y: np.ndarray) -> np.ndarray:
        return self.function.to_scale(y)

    def from_scale(self, u: np.ndarray) -> np.ndarray:
        return self.function.from_scale(u)

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        return self.function.log_slope(y)

    def noise_variance(self, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return the variance (n,) of the noise at X, where the means on the scale of the target are (n,)."""
        return self.noise.variance(np.column_stack([X, mean]))

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the mean and, if asked, variance (n,) of the function, or of a new target if ``noise``."""
        mean, deviation = self.function.location(X, False)
        found = self.function.scale.moments(mean, deviation**2, self.noise_variance(X, mean), noise)
        return found[0], found[1] if variance else None

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Return the covariance (n, n) of the function, or of new targets."""
        C = self.function.covariance(X, False)
        if not noise:
            return C
        with_noise, without = self.moments(X, True, True)[1], self.moments(X, True, False)[1]
        assert with_noise is not None and without is not None
        return C + np.diag(with_noise - without)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Return functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        drawn = self.function.samples(X, n_samples, rng, False)
        if not noise:
            return drawn
        deviation = np.sqrt(self.noise_variance(X, self.function.location(X, False)[0]))
        return self.from_scale(
            self.function.scale.forward(drawn) + deviation[:, None] * rng.standard_normal(drawn.shape)
        )

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Return quantiles (n, n_q) of a new target, or of the function, at X: normal on the scale of the target."""
        mean, deviation = self.location(X, noise)
        return self.from_scale(mean[:, None] + deviation[:, None] * ndtri(q))

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log density (n,) of targets y (n,) at X."""
        mean, deviation = self.location(X, True)
        z = (self.function.scale.forward(y) - mean) / deviation
        return -0.5 * (LOG_2PI + z**2) - np.log(deviation) + self.log_slope(y)
