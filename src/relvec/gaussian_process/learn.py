"""Hyperparameters of most posterior density, from several starts and on more and more rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.evidence import evidence
from relvec.gaussian_process.kernel import Part, Structure
from relvec.gaussian_process.priors import Prior
from relvec.gaussian_process.rows import Rows
from relvec.inference.ascent import ascend
from relvec.inference.linalg import SingularError
from relvec.runtime.arrays import Scratch
from relvec.runtime.clock import NO_LIMIT, Clock

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]

_HOPELESS = 8.0  # nats behind the best start after the first steps: not followed further
_FOLLOWED = 2  # starts followed to their end, at most
_FIRST_STEPS = 10  # evaluations every start gets
LEAST_CURVATURE = 0.05  # of log posteriors: the priors alone have 1/4, 1/2.89 and 1/11.6 at least
_WEAK = 10.0  # the prior's standard deviations are multiplied by this in the start that lets the data speak first


@dataclass(frozen=True, eq=False)
class Mode:
    """A maximum of log p(t | theta) + log p(theta): theta (p,), its value, gradient (p,) and the evaluations spent.

    `rivals` counts other maxima that were found within 3 nats of this one.
    """

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    evaluations: int
    rivals: int = 0


def log_posterior(structure: Structure, prior: Prior, *tables: Rows) -> Objective:
    """Log p(t | theta) + log p(theta) of the exact process, and its gradient; -inf where a matrix has no factor.

    Several tables of the same rows have several targets, independent given theta.
    """
    scratch = Scratch()

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        density, slope = prior.log_density(theta)
        try:
            found = [evidence(structure, theta, rows, scratch) for rows in tables]
        except SingularError:
            return -np.inf, slope
        return density + sum(fit for fit, _ in found), slope + sum(gradient for _, gradient in found)

    return value


def climb(
    objective: Objective, start: np.ndarray, prior: Prior, steps: int, clock: Clock | None = None,
    curvature: np.ndarray | None = None, ftol: float = 1e-6, gtol: float = 1e-3,
) -> Mode:  # fmt: skip
    """L-BFGS-B upwards from `start` within the prior's range, for at most `steps` evaluations or until time is up.

    Minus the second derivatives (p,), where they are known from fewer rows, give every hyperparameter its unit: half
    the evaluations then reach the same value.
    """
    start, clock = np.clip(start, prior.low, prior.high), clock or NO_LIMIT
    unit = np.ones_like(start) if curvature is None else np.maximum(curvature, LEAST_CURVATURE) ** -0.5

    def scaled_objective(scaled: np.ndarray) -> tuple[float, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        theta = np.clip(scaled * unit, prior.low, prior.high)  # rounding may take it out of the range
        value, slope = objective(theta)
        return value, slope * unit, (theta, slope)

    bounds = np.c_[prior.low, prior.high] / unit[:, None]
    top = ascend(scaled_objective, start / unit, bounds, (start, np.zeros_like(start)),
                 lambda summit: clock.left() <= 0.0, maxfun=steps, maxiter=steps, ftol=ftol, gtol=gtol)  # fmt: skip
    return Mode(top.found[0], top.value, top.found[1], top.evaluations)


def starts(structure: Structure, prior: Prior) -> list[np.ndarray]:
    """Places to begin: widths sqrt(d) with much noise, and half of it with little; parts begin at different widths.

    The first part of a sum begins long and the others short, and the other way round: parts that begin alike end alike.
    """
    q = len(structure.parts)
    turns = ((1.0, 0.1, 0), (0.5, 0.01, 0), (1.0, 0.03, 1)) if q > 1 else ((1.0, 0.1, 0), (0.5, 0.01, 0))
    found = []
    for scale, noise, turn in turns:
        theta = prior.mean.copy()
        for j, (i, at) in enumerate(zip(structure.amplitudes, structure.widths)):
            theta[i] = np.log(1.0 / q)
            spread = 1.0 if q == 1 else (3.0, 0.6)[(j + turn) % 2]
            d = max(structure.parts[j].n_terms(structure.n_inputs), 1)
            theta[at] = np.log(scale * spread * np.sqrt(d))
        if structure.linear:
            theta[structure.linear_at] = np.log(0.3)
        theta[-1] = np.log(noise)
        found.append(theta)
    return found


def learn(
    structure: Structure, prior: Prior, rows: Rows, steps: int, clock: Clock, extra: tuple[np.ndarray, ...] = ()
) -> Mode:
    """Return the best mode from all starts (and those in `extra`); starts far behind after a few steps are given up.

    With one part and a width for each input one start first climbs under a prior ten times as wide. The mode in which
    one input matters at a very short scale is out of reach of the others.
    """
    objective = log_posterior(structure, prior, rows)
    begun = [climb(objective, theta, prior, _FIRST_STEPS, clock) for theta in (*starts(structure, prior), *extra)]
    if len(structure.parts) == 1 and structure.parts[0].per_input and clock.left() > 0:
        weak = replace(prior, deviation=_WEAK * prior.deviation)
        bold = climb(log_posterior(structure, weak, rows), starts(structure, prior)[0], weak, steps, clock)
        begun.append(climb(objective, bold.theta, prior, _FIRST_STEPS, clock))
    top = max(mode.value for mode in begun)
    ends: list[Mode] = []
    for mode in sorted(begun, key=lambda mode: -mode.value):
        hopeless = ends and mode.value < top - _HOPELESS
        if not hopeless and len(ends) < _FOLLOWED and all(_are_different(mode, end) for end in ends):
            ends.append(climb(objective, mode.theta, prior, steps, clock))
    best = max(ends, key=lambda mode: mode.value)
    rivals = sum(best.value - mode.value < 3.0 and _are_different(mode, best) for mode in ends)
    return replace(best, evaluations=sum(mode.evaluations for mode in (*begun, *ends)), rivals=rivals)


def _are_different(mode: Mode, other: Mode) -> bool:
    """Whether two ends of a climb are different maxima, or on their way to different ones."""
    return bool(np.abs(mode.theta - other.theta).max() > 1.0)


def combine_starts(structure: Structure, known: dict[Part, np.ndarray], noise: float) -> tuple[np.ndarray, ...]:
    """Start a sum from what single parts learned: their amplitude (halved) and widths; none where one is new.

    A part that comes twice begins twice as long the second time.
    """
    if len(structure.parts) < 2 or any(part not in known for part in structure.parts):
        return ()
    theta, seen = np.zeros(structure.n_theta), set()
    for part, i, at in zip(structure.parts, structure.amplitudes, structure.widths):
        theta[i], theta[at] = known[part][0] - np.log(2.0), known[part][1:]
        theta[at] += np.log(2.0) if part in seen else 0.0
        seen.add(part)
    if structure.linear:
        theta[structure.linear_at] = np.log(0.3)
    theta[-1] = noise
    return (theta,)
