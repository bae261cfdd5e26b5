"""Hyperparameters of most posterior density, from several starts and on more and more rows.

Their priors are weak and normalised: normal in their logarithms, with a wider upper half for widths.

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

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.evidence import evidence
from relvec.gaussian_process.kernel import Part, Structure
from relvec.gaussian_process.rows import Rows
from relvec.inference.ascent import ascend
from relvec.inference.linalg import SingularError
from relvec.runtime.arrays import Scratch
from relvec.runtime.clock import NO_LIMIT, Clock


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
    ends = _follow(begun, lambda mode: climb(objective, mode.theta, prior, steps, clock))
    best = max(ends, key=lambda mode: mode.value)
    rivals = sum(best.value - mode.value < 3.0 and _are_different(mode, best) for mode in ends)
    return replace(best, evaluations=sum(mode.evaluations for mode in (*begun, *ends)), rivals=rivals)


def _follow(begun: list[Mode], climb_on: Callable[[Mode], Mode]) -> list[Mode]:
    """Climb on from the best of what was begun that is not hopeless, nor ends where another one did."""
    top = max(mode.value for mode in begun)
    ends: list[Mode] = []
    for mode in sorted(begun, key=lambda mode: -mode.value):
        hopeless = ends and mode.value < top - _HOPELESS
        if not hopeless and len(ends) < _FOLLOWED and all(_are_different(mode, end) for end in ends):
            ends.append(climb_on(mode))
    return ends


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
