"""Predictions of a process told again by few functions: its mean, and the logarithm of its variance.

    mean(x) = w'phi(x),    variance(x) = exp(h(x) + min(max(u'phi(x), a), b)) + share(x) v

on the scale of the target, of new targets. h is that of the process (`relvec.gaussian_process.predictor`), a and b are
the least and the largest value at the rows that were imitated, and away from these a share of the process's variance v
is added (`relvec.inference.error_bars`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relvec.basis import Basis
from relvec.gaussian_process import Scale
from relvec.gaussian_process.scaled import ScaledPredictor
from relvec.inference import tails
from relvec.inference.error_bars import Reach
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive.linear import BLOCK_NUMBERS
from relvec.runtime.arrays import row_slices

_ONE_AT_A_TIME = (
    "a distilled model predicts rows one at a time: covariances and draws of functions are those of the process that "
    "it was made from"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class DistilledPredictor(ScaledPredictor):
    """A process told again by few functions.

    Attributes
    ----------
    basis : bound basis of the m functions phi.
    weights, log_variance : (m,) w and u.
    log_limits : (2,) a and b.
    noise : the share of the variance that is noise, at most: its variance where h is zero.
    tail : one over the degrees of freedom of new targets.
    varying : h, as a function of the columns of X and the mean; None where it is zero.
    reach, scale : see above.
    loss : nats a row that the process is ahead by, at rows that neither learned from.
    """

    SHAPES: ClassVar[dict[str, str]] = {"weights": "m", "log_variance": "m", "log_limits": "."}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("noise", "tail")

    basis: Basis
    weights: np.ndarray
    log_variance: np.ndarray
    log_limits: np.ndarray
    noise: float
    tail: float
    varying: LogNoise | None
    reach: Reach
    scale: Scale
    loss: float

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        mean, spread, added = self._on_scale(X, variance or self.scale.sign != 0)
        if spread is None or added is None:
            return mean, None
        mean, spread = self.scale.moments(mean, spread - added, added, noise)
        return mean, spread if variance else None

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        mean, spread, added = self._on_scale(X, True)
        assert spread is not None and added is not None
        return mean, np.sqrt(spread if noise else spread - added)

    def tail_and_noise(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, _, added = self._on_scale(X, True)
        assert added is not None
        spread = 0.0 if self.varying is None else self.varying.moments(np.column_stack([X, mean]))[1]
        return np.broadcast_to(tails.join(self.tail, spread), len(X)), added

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        (mean, deviation), (tail, _) = self.location(X, True), self.tail_and_noise(X)
        squares = (self.scale.forward(y) - mean) ** 2
        return tails.log_density(squares, deviation**2, tail) + self.scale.log_slope(y)

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        raise NotImplementedError(_ONE_AT_A_TIME)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        raise NotImplementedError(_ONE_AT_A_TIME)

    @property
    def noise_columns(self) -> np.ndarray:
        """Columns of X that error bars depend on, the number of columns for the mean; empty where they do not."""
        return np.zeros(0, dtype=int) if self.varying is None else np.unique(self.varying.columns)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        ordered = self.log_limits.shape == (2,) and self.log_limits[0] <= self.log_limits[1]
        return self.basis.is_bound and self.basis.n_atoms == sizes["m"] and bool(ordered) and self.tail < 0.5

    def _on_scale(self, X: np.ndarray, variance: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Mean and, if asked, variance of new targets at X and the noise in it, (n,) each, on the scale."""
        found = [self._block(X[rows], variance) for rows in row_slices(len(X), self.basis.n_atoms, BLOCK_NUMBERS)]
        mean, spread, added = (None if part[0] is None else np.concatenate(part) for part in zip(*found, strict=True))
        assert mean is not None
        return mean, spread, added

    def _block(self, X: np.ndarray, variance: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        Phi = self.basis(X)
        mean = Phi @ self.weights
        if not variance:
            return mean, None, None
        h = 1.0 if self.varying is None else self.varying.variance(np.column_stack([X, mean]))
        spread = h * np.exp(np.clip(Phi @ self.log_variance, *self.log_limits))
        added = np.minimum(h * self.noise, spread)
        return mean, spread + self.reach.variance * self.reach.share(X), added
