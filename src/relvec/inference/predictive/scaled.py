"""Predictive distributions that are a Student t, or normal, on the scale of the target."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from relvec.inference import tails
from relvec.inference.predictive.contract import Predictor
from relvec.inference.scale import Scale


class ScaledPredictor(Predictor):
    """A predictor whose `location` and tails are those of targets on a scale: as they are, or a logarithm."""

    is_normal: ClassVar[bool] = False

    scale: Scale

    @abstractmethod
    def tail_and_noise(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return tails and noise variances (n,) of new targets at X (n, d), on the scale of the target."""

    def to_scale(self, y: np.ndarray) -> np.ndarray:
        """Map targets (n,) to the scale of the target; nan where one lies beyond its end."""
        u = self.scale.forward(y)
        known = np.isclose(self.scale.inverse(u), y, rtol=1e-9, atol=1e-9 * self.scale.scale)
        return np.where(known, u, np.nan)

    def from_scale(self, u: np.ndarray) -> np.ndarray:
        """Map values (...) on the scale of the target to targets."""
        return self.scale.inverse(u)

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """Return log du/dy (n,) of the scale at targets y (n,)."""
        return self.scale.log_slope(y)

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Quantiles (n, n_q) of a new target, t on the scale of the target, or of the function, normal there, at X."""
        (mean, deviation), (tail, variance) = self.location(X, noise), self.tail_and_noise(X)
        latent = mean[:, None] + deviation[:, None] * tails.quantiles(q, tail if noise else 0.0)  # u rises with y
        return self.scale.inverse(latent, 0.0 if noise else variance[:, None])
