"""Widths of a process that regresses on the classes, where a search for those of the classifier may begin.

The evidence of a regression has no mode to find: with all rows it costs what Laplace's costs with a fifth of them as
inducing rows. So it sees what few inducing rows cannot follow: classes that change places over short distances, and
which few of the inputs they do so along.
"""

from __future__ import annotations

import numpy as np

from relvec.gaussian_process.classes.rows import DistinctRows
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.learn import climb, log_posterior
from relvec.gaussian_process.priors import default_prior
from relvec.gaussian_process.rows import Rows
from relvec.runtime.clock import Clock

_SHIFTS = (0.0, -1.0, -2.0, -3.0)  # of the logarithms of widths, where to begin
_STEPS = 30
_NOISE = 0.5  # variance in the start, of one that is half the signal's
_WORTH = 5.0  # nats that must be gained over noise alone


def regress_on_classes(structure: Structure, rows: DistinctRows, start: np.ndarray, clock: Clock) -> np.ndarray | None:
    """Theta (p,) with the widths of most evidence where indicators of the classes are targets.

    The search begins at shifted widths of `start` (p,), whose amplitudes are left. None where all seems to be noise.
    """
    prior, targets = default_prior(structure), _indicators(rows)
    if not targets:
        return None
    objective, begin = log_posterior(structure, prior, *targets), []
    amplitudes = list(structure.amplitudes)
    for shift in _SHIFTS:
        theta = np.append(start, np.log(_NOISE))
        theta[amplitudes] = np.log((1.0 - _NOISE) / len(amplitudes))
        for at in structure.widths:
            theta[at] += shift
        begin.append((objective(theta)[0], theta))
    found = climb(objective, max(begin, key=lambda one: one[0])[1], prior, _STEPS, clock)
    theta, noise = np.append(start, 0.0), np.append(found.theta[:-1], 0.0)
    noise[amplitudes] = prior.low[amplitudes]
    gain = found.value - objective(noise)[0] - prior.log_density(found.theta)[0] + prior.log_density(noise)[0]
    for at in structure.widths:
        theta[at] = found.theta[at]
    return None if gain < _WORTH else theta[:-1]


def _indicators(rows: DistinctRows) -> list[Rows]:
    """Standardised indicators of the classes as targets; of two classes one is enough."""
    weight, found = rows.weight, []
    for count in rows.counts.T[rows.n_classes == 2 :]:
        share = count / weight
        mean = count.sum() / weight.sum()
        variance = mean * (1.0 - mean)
        if variance > 0.0:
            scatter = weight * share * (1.0 - share) / variance
            found.append(Rows(rows.X, (share - mean) / np.sqrt(variance), weight, scatter))
    return found
