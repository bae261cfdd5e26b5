"""Weak, normalised priors on the hyperparameters: normal in their logarithms, with a wider upper half for widths.

| logarithm of | mean | standard deviation |
|---|---|---|
| an amplitude (variance of a part, in variances of the target) | 0 | 2 |
| a width (length, in standard deviations of an input) | log sqrt(d) + 1/2 | 1.7 below it, 3.4 above |
| the noise variance (in variances of the target) | log 0.1 | 2.5 |

Distances between standardised rows grow like sqrt(d), and so does the typical width. An input that tells nothing has a
width without end, and there may be many of them: long widths are twice as free as short ones. A part whose one width
is far below the distance of neighbouring rows is noise by another name (the evidence cannot tell them apart, and no
number of vectors represents it): such widths are at least half that distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.gaussian_process.kernel import Structure


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent priors on theta (p,), normal on either side of `mean`, and the range (low, high) searched.

    `deviation` (p,) is the standard deviation below the mean, `long` times it that above.
    """

    mean: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray
    long: np.ndarray

    def log_density(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log p(theta) and its gradient (p,)."""
        deviation = self._deviation(theta)
        z = (theta - self.mean) / deviation
        between = 0.5 * (1.0 + self.long) * self.deviation  # the two halves meet at the mean, at one height
        value = -0.5 * z @ z - np.log(between).sum() - 0.5 * len(z) * np.log(2.0 * np.pi)
        return float(value), -z / deviation

    @property
    def are_widths(self) -> np.ndarray:
        """Which of the hyperparameters (p,) are widths: those whose long side is wider."""
        return self.long > 1.0

    def derivatives(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient (p,) of log p(theta), and minus its second derivatives (p,)."""
        precision = self._deviation(theta) ** -2.0
        return precision * (self.mean - theta), precision

    def _deviation(self, theta: np.ndarray) -> np.ndarray:
        return np.where(theta > self.mean, self.long, 1.0) * self.deviation


@dataclass(frozen=True)
class Floors:
    """The least noise variance (`noise`), and the least width of parts with one (`width`), in the process's units.

    The noise is not learned where it is held at a variance (`held_noise`).
    """

    noise: float = 1e-6
    width: float = 0.0
    held_noise: float | None = None


NO_FLOORS = Floors()
LONG_WIDTHS = 2.0  # how much wider the prior is for widths above its mean


def default_prior(structure: Structure, floors: Floors = NO_FLOORS) -> Prior:
    """Return the priors of the table above for a structure, and the range searched."""
    p = structure.n_theta
    mean, deviation, long = np.zeros(p), np.full(p, 2.0), np.ones(p)
    low, high = np.full(p, np.log(1e-6)), np.full(p, np.log(1e3))
    for part, at in zip(structure.parts, structure.widths):
        d = max(part.n_terms(structure.n_inputs), 1)
        mean[at], deviation[at], long[at] = 0.5 * np.log(d) + 0.5, 1.7, LONG_WIDTHS
        low[at], high[at] = mean[at] - 6.0, mean[at] + 6.0
        if not part.per_input and floors.width > 0:
            low[at] = np.clip(np.log(floors.width), low[at], mean[at])
    mean[-1], deviation[-1] = np.log(0.1), 2.5
    low[-1], high[-1] = np.log(floors.noise), np.log(4.0)
    if floors.held_noise is not None:
        low[-1] = high[-1] = np.log(floors.held_noise)
    return Prior(mean, deviation, low, high, long)
