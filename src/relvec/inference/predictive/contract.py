"""What every predictive distribution can do: of a target (`Predictor`), and of classes (`ClassPredictor`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from relvec.basis import Basis
from relvec.inference.evidence import LOG_2PI
from relvec.inference.predictive.expansion import Expansion
from relvec.runtime.arrays import Array, like, namespace
from relvec.runtime.record import Record


class Predictor(Record, ABC):
    """The distribution of new targets of one output, and of the function beneath their noise.

    ``noise`` says which of the two is meant. Quantiles and densities are those of a normal distribution unless a
    predictor has its own. `fitted_.predictors` of a regressor has one for each output.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> predictor = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0])).fitted_.predictors[0]
    >>> mean, variance = predictor.moments(X, variance=True, noise=True)
    >>> predictor.quantiles(X, np.array([0.05, 0.95]), noise=True).shape
    (20, 2)
    >>> bool(np.allclose(predictor.log_density(X, mean), -0.5 * np.log(2.0 * np.pi * variance)))
    True
    """

    on_device: ClassVar[bool] = False  # whether `moments` and `covariance` take rows on a device
    is_normal: ClassVar[bool] = True  # whether new targets are normal, so that moments say all
    is_count: ClassVar[bool] = False  # whether targets are counts

    @abstractmethod
    def moments(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Array | None]:
        """Return the mean and, if asked, the variance (n,) at X (n, d)."""

    @abstractmethod
    def covariance(self, X: Array, noise: bool) -> Array:
        """Return the covariance (n, n) at X (n, d)."""

    @abstractmethod
    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Draw functions, or targets, at X: (n, n_samples)."""

    def quantiles(self, X: Array, q: np.ndarray, noise: bool) -> Array:
        """Return the quantiles (n, n_q) at X (n, d)."""
        mean, variance = self.moments(X, True, noise)
        assert variance is not None
        return mean[..., None] + namespace(mean).sqrt(variance)[..., None] * like(mean, ndtri(q))

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the log density (n,) of targets y (n,) at X (n, d)."""
        mean, variance = self.moments(X, True, True)
        assert variance is not None
        deviation = np.sqrt(variance)
        return -0.5 * (LOG_2PI + ((y - mean) / deviation) ** 2) - np.log(deviation)

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return centre and deviation (n,) on the scale where the distribution is symmetric."""
        mean, variance = self.moments(X, True, noise)
        assert variance is not None
        return mean, np.sqrt(variance)

    def to_scale(self, y: np.ndarray) -> np.ndarray:
        """Map targets (n,) to the scale of `location`; nan where one lies beyond its end."""
        return y

    def from_scale(self, u: np.ndarray) -> np.ndarray:
        """Map values (...) on the scale of `location` to targets."""
        return u

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """Return log du/dy (n,) of the scale of `location` at targets y (n,)."""
        return np.zeros(len(y))

    @property
    def noise_columns(self) -> np.ndarray:
        """Columns of X that error bars depend on, the number of columns for the mean; empty where they do not."""
        return np.zeros(0, dtype=int)

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        """Return the distribution of new targets at X (n, n_features) as sums of basis functions.

        ``basis`` is that of the model, which all its outputs share; None of a process.
        """
        raise NotImplementedError(f"exports cannot translate the predictive distribution {type(self).__name__}")


class ClassPredictor(Record, ABC):
    """The probabilities of K classes; `fitted_.classifier` of a classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVC
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> predictor = RVC(width=2.0).fit(X, X[:, 0] > 3.0).fitted_.classifier
    >>> p, log_odds = predictor.predict_proba(X), predictor.decision(X)
    >>> p.shape, bool(np.allclose(np.log(p[:, 1] / p[:, 0]), log_odds))
    ((20, 2), True)
    """

    on_device: ClassVar[bool] = False  # whether rows may be on a device

    @abstractmethod
    def decision(self, X: Array) -> Array:
        """Return log-odds (n,) of the second of two classes; of more, a score of each class (n, K)."""

    @abstractmethod
    def predict_proba(self, X: Array) -> Array:
        """Return the probabilities (n, K)."""
