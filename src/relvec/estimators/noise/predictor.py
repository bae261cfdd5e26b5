"""The record of noise that was learned, and predictions with noise whose variance depends on the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from relvec.gaussian_process import FittedProcess, Scale
from relvec.gaussian_process.target import AS_IT_IS
from relvec.inference.evidence import LOG_2PI
from relvec.inference.heteroscedastic import LogNoise


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """The noise that was learned.

    Attributes
    ----------
    kind : "student-t", "heteroscedastic" or "censored".
    bounds : (k,) the variational bound after each fit, the last of the model that is kept; of censored targets the
        Laplace evidence.
    degrees : degrees of freedom of Student-t noise, else None.
    outliers : training rows that count less than a quarter of a usual row under Student-t noise, the worst first.
    columns : (c,) columns of the inputs that the variance of heteroscedastic noise depends on; d is the predicted mean.
    n_censored : training rows whose target is censored, else None.
    """

    kind: str
    bounds: np.ndarray
    degrees: float | None = None
    outliers: np.ndarray | None = None
    columns: np.ndarray | None = None
    n_censored: int | None = None


def scale_of(predictor: Any) -> Scale:
    """The scale of the target on which a predictor's distribution is normal."""
    return predictor.scale if isinstance(predictor, FittedProcess) else AS_IT_IS


def locate_function(predictor: Any, X: np.ndarray, noise: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of the function, or of a new target if ``noise``, at X on the scale of the target."""
    if isinstance(predictor, FittedProcess):
        mean, deviation = predictor.location(X, noise)
        return mean, deviation**2
    return predictor.moments(X, True, noise)


@dataclass(frozen=True, eq=False)
class HeteroscedasticPredictor:
    """The posterior over a function, with normal noise of the expected variance at each row, on the target's scale."""

    function: Any  # predictor of the function: `LinearPredictor`, or a process
    noise: LogNoise

    @property
    def scale(self) -> Scale:
        """The scale of the target on which function and noise are normal."""
        return scale_of(self.function)

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (n,) of a new target, or of the function, at X on the scale of the target."""
        mean, variance = locate_function(self.function, X)
        return mean, np.sqrt(variance + self.noise_variance(X, mean) if noise else variance)

    def noise_variance(self, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Variance (n,) of the noise at X, where the means on the scale of the target are (n,)."""
        return self.noise.variance(np.column_stack([X, mean]))

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) of the function, or of a new target if ``noise``."""
        mean, spread = locate_function(self.function, X)
        found = self.scale.moments(mean, spread, self.noise_variance(X, mean), noise)
        return found[0], found[1] if variance else None

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets."""
        C = self.function.covariance(X, False)
        if not noise:
            return C
        with_noise, without = self.moments(X, True, True)[1], self.moments(X, True, False)[1]
        assert with_noise is not None and without is not None
        return C + np.diag(with_noise - without)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        drawn = self.function.samples(X, n_samples, rng, False)
        if not noise:
            return drawn
        deviation = np.sqrt(self.noise_variance(X, locate_function(self.function, X)[0]))
        return self.scale.inverse(self.scale.forward(drawn) + deviation[:, None] * rng.standard_normal(drawn.shape))

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Quantiles (n, n_q) of a new target, or of the function, at X: normal on the scale of the target."""
        mean, deviation = self.location(X, noise)
        return self.scale.inverse(mean[:, None] + deviation[:, None] * ndtri(q))

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log density (n,) of targets y (n,) at X."""
        mean, deviation = self.location(X, True)
        z = (self.scale.forward(y) - mean) / deviation
        return -0.5 * (LOG_2PI + z**2) - np.log(deviation) + self.scale.log_slope(y)
