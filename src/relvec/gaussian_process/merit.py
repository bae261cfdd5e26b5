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
from relvec.gaussian_process.learn import LEAST_CURVATURE, Mode, Objective
from relvec.gaussian_process.priors import Prior
from relvec.runtime.clock import Clock

_MOST_DIFFERENCES = 128  # rows of H that are measured: one evaluation each


@dataclass(frozen=True, eq=False)
class Merit:
    """log p(t | M), the eigenvalues (p,) of H as computed, how many had to be raised, and whether modes compete.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GPRegressor().fit(X, np.sin(3.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0]))
    >>> bool(model.selection_[0].merit == model.merit_)
    True
    """

    value: float
    eigenvalues: np.ndarray
    floored: int
    several_modes: bool


@dataclass(frozen=True, eq=False)
class Curvature:
    """Minus the second derivatives H at a mode: the eigenvalues (p,) that the merit needs, and the diagonal (p,)."""

    eigenvalues: np.ndarray
    diagonal: np.ndarray


def measure_curvature(
    objective: Objective, mode: Mode, prior: Prior, clock: Clock | None = None, most: int = _MOST_DIFFERENCES
) -> Curvature:
    """H at a mode by differences of gradients, for at most so many hyperparameters.

    Of more, all but the longest widths are measured. On a long width l the evidence depends through c / l^2, whose
    second derivative by log l is -2 times the first, and on two of them together hardly: H = [A B; B' D] with D
    diagonal, whose determinant is that of D times that of A - B D^-1 B'.

    Raises `TimeUp` where the clock's time is up.
    """
    if len(mode.theta) <= most:
        H = hessian(objective, mode, clock)
        return Curvature(np.linalg.eigvalsh(H), H.diagonal())
    slope, curvature = prior.derivatives(mode.theta)
    slope = mode.gradient - slope  # of the evidence alone
    order = np.argsort(np.where(prior.are_widths, mode.theta, -np.inf), kind="stable")
    measured, rest = np.sort(order[:most]), np.sort(order[most:])
    rows = difference_gradients(objective, mode, measured, clock)
    A, B = rows[:, measured], rows[:, rest]
    D = np.maximum(curvature[rest] + 2.0 * slope[rest], LEAST_CURVATURE)
    diagonal = np.empty(len(mode.theta))
    diagonal[measured], diagonal[rest] = A.diagonal(), D
    return Curvature(np.append(np.linalg.eigvalsh(0.5 * (A + A.T) - (B / D) @ B.T), D), diagonal)


def hessian(objective: Objective, mode: Mode, clock: Clock | None = None) -> np.ndarray:
    """H (p, p), all of it."""
    H = difference_gradients(objective, mode, np.arange(len(mode.theta)), clock)
    return 0.5 * (H + H.T)


def difference_gradients(
    objective: Objective, mode: Mode, which: np.ndarray, clock: Clock | None = None, step: float = 1e-3
) -> np.ndarray:
    """Return some rows (k, p) of H, by one-sided differences of gradients."""
    gradient = objective(mode.theta)[1]
    found = np.empty((len(which), len(mode.theta)))
    for row, i in zip(found, which):
        if clock is not None:
            clock.check()
        theta = mode.theta.copy()
        theta[i] += step
        row[:] = (gradient - objective(theta)[1]) / step
    return found


def laplace_merit(structure: Structure, mode: Mode, eigenvalues: np.ndarray) -> Merit:
    """Return the merit of a model with the log posterior of a mode, and the eigenvalues (p,) of H there."""
    kept = np.maximum(eigenvalues, LEAST_CURVATURE)
    exchange = sum(lgamma(k + 1) for k in Counter(structure.parts).values())
    p = len(eigenvalues)
    value = mode.value + 0.5 * p * np.log(2.0 * np.pi) - 0.5 * np.log(kept).sum() + exchange
    floored = int((eigenvalues < LEAST_CURVATURE).sum())
    return Merit(float(value), eigenvalues, floored, mode.rivals > 0)
