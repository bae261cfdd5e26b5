"""The merit p(t | M) of a model: its evidence integrated over the hyperparameters by Laplace's approximation.

    log p(t | M) = log p(t | theta) + log p(theta) + p/2 log 2 pi - 1/2 log|H| + log k!,

at the maximum theta of the first two terms, with H minus their Hessian (MacKay 1992, eq. (6)). k parts that could
change places have k! equal maxima, and the integral is over all of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import lgamma

import numpy as np

from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.learn import Mode, Objective
from relvec.runtime.clock import Clock

_LEAST_CURVATURE = 0.05  # eigenvalues of H are at least this: the priors alone have 1/4, 1/2.89 and 1/11.6


@dataclass(frozen=True, eq=False)
class Merit:
    """log p(t | M), the eigenvalues (p,) of H as computed, how many had to be raised, and whether modes compete."""

    value: float
    eigenvalues: np.ndarray
    floored: int
    several_modes: bool


def hessian(objective: Objective, mode: Mode, clock: Clock | None = None, step: float = 1e-3) -> np.ndarray:
    """Minus the second derivatives (p, p) of the objective at a mode, by one-sided differences of gradients.

    Raises `TimeUp` where the clock's time is up.
    """
    p = len(mode.theta)
    gradient = objective(mode.theta)[1]
    H = np.empty((p, p))
    for i in range(p):
        if clock is not None:
            clock.check()
        theta = mode.theta.copy()
        theta[i] += step
        H[i] = (gradient - objective(theta)[1]) / step
    return 0.5 * (H + H.T)


def laplace(structure: Structure, mode: Mode, H: np.ndarray) -> Merit:
    """The merit of a model with the log posterior of a mode, and minus its second derivatives H (p, p) there."""
    eigenvalues = np.linalg.eigvalsh(H)
    kept = np.maximum(eigenvalues, _LEAST_CURVATURE)
    exchange = sum(lgamma(k + 1) for k in Counter(structure.parts).values())
    p = len(eigenvalues)
    value = mode.value + 0.5 * p * np.log(2.0 * np.pi) - 0.5 * np.log(kept).sum() + exchange
    floored = int((eigenvalues < _LEAST_CURVATURE).sum())
    return Merit(float(value), eigenvalues, floored, mode.rivals > 0)
