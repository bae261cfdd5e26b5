"""Weak, normalised priors on the hyperparameters: normal in their logarithms.

| logarithm of | mean | standard deviation |
|---|---|---|
| an amplitude (variance of a part, in variances of the target) | 0 | 2 |
| a width (length, in standard deviations of an input) | log sqrt(d) + 1/2 | 1.7 |
| the noise variance (in variances of the target) | log 0.03 | 2 |

Distances between standardised rows grow like sqrt(d), and so does the typical width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .kernel import Structure


@dataclass(frozen=True, eq=False)
class Prior:
    """Independent normal priors on theta: means and standard deviations (p,), and the range (low, high) searched."""

    mean: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def log_density(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient (p,)."""
        z = (theta - self.mean) / self.deviation
        value = -0.5 * z @ z - np.log(self.deviation).sum() - 0.5 * len(z) * np.log(2.0 * np.pi)
        return float(value), -z / self.deviation


def default_prior(structure: Structure, noise_floor: float = 1e-6) -> Prior:
    """The priors of the table above for a structure; the noise variance is at least `noise_floor`."""
    p, d = structure.n_theta, structure.n_inputs
    mean, deviation = np.zeros(p), np.full(p, 2.0)
    low, high = np.full(p, np.log(1e-6)), np.full(p, np.log(1e3))
    for at in structure.widths:
        mean[at], deviation[at] = 0.5 * np.log(d) + 0.5, 1.7
        low[at], high[at] = mean[at] - 6.0, mean[at] + 6.0
    mean[-1] = np.log(0.03)
    low[-1], high[-1] = np.log(noise_floor), np.log(4.0)
    return Prior(mean, deviation, low, high)
