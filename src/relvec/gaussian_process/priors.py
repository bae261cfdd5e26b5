"""Weak, normalised priors on the hyperparameters: normal in their logarithms.

| logarithm of | mean | standard deviation |
|---|---|---|
| an amplitude (variance of a part, in variances of the target) | 0 | 2 |
| a width (length, in standard deviations of an input) | log sqrt(d) + 1/2 | 1.7 |
| the noise variance (in variances of the target) | log 0.1 | 2.5 |

Distances between standardised rows grow like sqrt(d), and so does the typical width. A part whose one width is far
below the distance of neighbouring rows is noise by another name (the evidence cannot tell them apart, and no number of
vectors represents it): such widths are at least half that distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.gaussian_process.kernel import Structure


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent normal priors on theta: means and standard deviations (p,), and the range (low, high) searched."""

    mean: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def log_density(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Log p(theta) and its gradient (p,)."""
        z = (theta - self.mean) / self.deviation
        value = -0.5 * z @ z - np.log(self.deviation).sum() - 0.5 * len(z) * np.log(2.0 * np.pi)
        return float(value), -z / self.deviation


@dataclass(frozen=True)
class Floors:
    """The least noise variance (`noise`), and the least width of parts with one (`width`), in the process's units."""

    noise: float = 1e-6
    width: float = 0.0


NO_FLOORS = Floors()


def default_prior(structure: Structure, floors: Floors = NO_FLOORS) -> Prior:
    """The priors of the table above for a structure, and the range searched."""
    p, d = structure.n_theta, structure.n_inputs
    mean, deviation = np.zeros(p), np.full(p, 2.0)
    low, high = np.full(p, np.log(1e-6)), np.full(p, np.log(1e3))
    for part, at in zip(structure.parts, structure.widths):
        mean[at], deviation[at] = 0.5 * np.log(max(d, 1)) + 0.5, 1.7
        low[at], high[at] = mean[at] - 6.0, mean[at] + 6.0
        if not part.per_input and floors.width > 0:
            low[at] = np.clip(np.log(floors.width), low[at], mean[at])
    mean[-1], deviation[-1] = np.log(0.1), 2.5
    low[-1], high[-1] = np.log(floors.noise), np.log(4.0)
    return Prior(mean, deviation, low, high)
