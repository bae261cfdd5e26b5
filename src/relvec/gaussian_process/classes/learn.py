"""Hyperparameters of most posterior density for classes, and the process there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec.gaussian_process.classes import binary, softmax
from relvec.gaussian_process.classes.model import WHOLE_ROWS, ClassProcess, Features, LatentKernel, feature_pivots
from relvec.gaussian_process.classes.rows import DistinctRows
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.learn import Mode, Prior, climb, default_prior, log_posterior
from relvec.gaussian_process.rows import Rows
from relvec.inference.linalg import SingularError
from relvec.runtime.clock import Clock

_REGRESSION_SHIFTS = (0.0, -1.0, -2.0, -3.0)  # of the logarithms of widths, where a regression on classes begins
_REGRESSION_STEPS = 30  # at most
_REGRESSION_NOISE = 0.5  # variance in the start, of one that is half the signal's
_REGRESSION_GAIN = 5.0  # nats that must be gained over noise alone


def regress_on_classes(structure: Structure, rows: DistinctRows, start: np.ndarray, clock: Clock) -> np.ndarray | None:
    """Theta (p,) with the widths of most evidence where indicators of the classes are targets.

    The search begins at shifted widths of `start` (p,), whose amplitudes are left. None where all seems to be noise.
    """
    prior, targets = default_prior(structure), _indicators(rows)
    if not targets:
        return None
    objective, begin = log_posterior(structure, prior, *targets), []
    amplitudes = list(structure.amplitudes)
    for shift in _REGRESSION_SHIFTS:
        theta = np.append(start, np.log(_REGRESSION_NOISE))
        theta[amplitudes] = np.log((1.0 - _REGRESSION_NOISE) / len(amplitudes))
        for at in structure.widths:
            theta[at] += shift
        begin.append((objective(theta)[0], theta))
    found = climb(objective, max(begin, key=lambda one: one[0])[1], prior, _REGRESSION_STEPS, clock)
    theta, noise = np.append(start, 0.0), np.append(found.theta[:-1], 0.0)
    noise[amplitudes] = prior.low[amplitudes]
    gain = found.value - objective(noise)[0] - prior.log_density(found.theta)[0] + prior.log_density(noise)[0]
    for at in structure.widths:
        theta[at] = found.theta[at]
    return None if gain < _REGRESSION_GAIN else theta[:-1]


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


_MOST_COST = 0.02  # nats a row: where what the inducing rows leave out costs more, there should be twice as many
_SMALL_MOVE = 0.7  # of a logarithm: inducing rows chosen for a twice too long width will do
_POSTERIOR_DEVIATION = 0.5  # of a logarithm in theta: the usual one of small tables
_START_SHIFTS = (0.0, -1.0, -2.0)  # of the logarithms of widths: where a boundary turns often, long ones are a trap
_ROUNDS = 4  # climbs, each with inducing rows chosen where the last one ended
_LITTLE = 0.08  # of the nats that base rates cost: a process that gains less may have missed what turns often


@dataclass(frozen=True)
class Effort:
    """How much a fit may cost.

    inducing : inducing rows while hyperparameters are learned, at first.
    most : so many where fewer leave out what costs the evidence more than _MOST_COST.
    utmost : so many where fewer see hardly more than base rates, and these do.
    final : inducing rows of the model; grown : so many where held-out rows ask for them, see `refine`.
    rows : at most so many rows, the first of the hash's order, take part in learning; all of them in the model.
    regression : so many of them in a regression, see `regress_on_classes`.
    steps : evaluations of the evidence.
    tolerance : a climb ends where no derivative by a logarithm exceeds this many nats, if not before.
    whole : rows whose matrix may be computed at once.
    """

    inducing: int = 100
    most: int = 200
    utmost: int = 1000
    final: int = 400
    grown: int = 800
    rows: int = 1000
    regression: int = 1000
    steps: int = 40
    tolerance: float = 0.05
    whole: int = WHOLE_ROWS


USUAL = Effort()


def class_prior(structure: Structure) -> Prior:
    """Return the priors of `gaussian_process.learn` without the noise's; amplitudes are variances of log-odds."""
    full = default_prior(structure)
    high = full.high[:-1].copy()
    high[list(structure.amplitudes)] = np.log(1e5)  # classes that never meet have log-odds of any size
    return Prior(full.mean[:-1], full.deviation[:-1], full.low[:-1], high, np.ones(len(high)))


def default_start(structure: Structure) -> np.ndarray:
    """Where to begin, theta (p,): widths sqrt(d), log-odds of standard deviation 2, shared by the parts."""
    theta = np.zeros(structure.n_theta - 1)
    for j, (i, at) in enumerate(zip(structure.amplitudes, structure.widths)):
        theta[i] = np.log(4.0 / len(structure.parts))
        theta[at] = 0.5 * np.log(structure.parts[j].n_terms(structure.n_inputs)) - 0.7 * j
    return theta


def latent_evidence(features: Features, counts: np.ndarray, rates: np.ndarray, start=None):
    """Laplace's evidence, its gradient (p,) and the mode, for two classes or more; `start` is another mode."""
    kind = binary if counts.shape[1] == 2 else softmax
    return kind.evidence(features, counts, rates, start)


def learn_latent(
    rows: DistinctRows, structure: Structure, effort: Effort = USUAL, start: np.ndarray | None = None,
    clock: Clock | None = None, hold_widths: bool = False,
) -> ClassProcess:  # fmt: skip
    """Return the process of most posterior density with this structure, at standardised rows.

    `hold_widths` leaves those of `start` as they are.
    """
    clock = clock or Clock()
    directions = None
    if not structure.parts and len(rows) < structure.n_inputs:  # rows of inputs span all that they tell of the slopes
        directions = np.linalg.qr(rows.X.T)[0]
        rows = DistinctRows(rows.X @ directions, rows.counts)
    prior = class_prior(structure)
    if hold_widths and start is not None:
        for at in structure.widths:
            prior.low[at] = prior.high[at] = start[at]
    found = _learn_theta(rows, structure, prior, effort, start, clock, hold_widths)
    if found["inducing"] > effort.most:
        effort = replace(effort, final=max(effort.final, effort.grown))
    model = settle_latent(rows, LatentKernel(structure), found["theta"], effort, int(found["evaluations"]))
    return model if directions is None else replace(model, vectors=directions.T[:0], directions=directions)


def _learn_theta(
    rows: DistinctRows, structure: Structure, prior: Prior, effort: Effort, start: np.ndarray | None, clock: Clock,
    hold_widths: bool,
) -> dict[str, Any]:  # fmt: skip
    """Find the theta (p,) of most posterior density, with the evaluations of the evidence and the inducing rows."""
    search = _Search(LatentKernel(structure), prior, rows.take(slice(effort.rows)), effort, clock)
    found, inducing = search.climb(search.find_start() if start is None else start, effort.inducing, start is not None)
    if structure.parts and not hold_widths and search.gains_little(found):
        found, inducing = search.look_closer(found, start) or (found, inducing)
    return {"theta": found.theta, "evaluations": search.evaluations, "inducing": inducing}


class _Objective:
    """The log posterior of theta and its gradient (p,), with inducing rows Z (m, d).

    Every evaluation begins at the mode of the last one. `cost` are the nats that what Z leaves out may cost, at the
    best theta so far.
    """

    def __init__(self, kernel: LatentKernel, prior: Prior, rows: DistinctRows, Z: np.ndarray):
        self.kernel, self.prior, self.rows, self.Z = kernel, prior, rows, Z
        self.last: Any = None
        self.top, self.cost = -np.inf, 0.0

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        density, prior_slope = self.prior.log_density(theta)
        try:
            features = Features(self.kernel, theta, self.rows.X, self.Z)
        except SingularError:
            return -np.inf, prior_slope
        value, slope, self.last = latent_evidence(features, self.rows.counts, self.rows.base_rates, self.last)
        if value + density > self.top:
            self.top, self.cost = value + density, self.last.cost(features.left_out)
        return value + density, slope + prior_slope


class _Search:
    """The search for the hyperparameters of some rows."""

    def __init__(self, kernel: LatentKernel, prior: Prior, rows: DistinctRows, effort: Effort, clock: Clock):
        self.kernel, self.prior, self.rows, self.effort, self.clock = kernel, prior, rows, effort, clock
        self.most_cost, self.evaluations = _MOST_COST * rows.weight.sum(), 0

    def climb(self, theta: np.ndarray, inducing: int, nearly_there: bool = False) -> tuple[Mode, int]:
        """Return the end of climbs from theta (p,) with inducing rows chosen where the last one ended, and how many."""
        effort, steps, objective = self.effort, self.effort.steps, self.begin(theta, inducing)
        if nearly_there:
            objective(theta)
            if objective.cost > self.most_cost:
                inducing = effort.most
                objective = self.begin(theta, inducing)
        for number in range(_ROUNDS if self.kernel.structure.parts else 1):
            objective, begin = self.begin(theta, inducing) if number else objective, theta
            found = climb(objective, theta, self.prior, steps, self.clock, ftol=1e-4, gtol=effort.tolerance)
            theta, steps = found.theta, effort.steps // 2
            self.evaluations += found.evaluations
            if objective.cost > self.most_cost and inducing < effort.most:
                inducing = min(2 * inducing, effort.most)
            elif self._has_settled(theta, begin, inducing):
                break
            if self.clock.left() <= 0:
                break
        return found, inducing

    def _has_settled(self, theta: np.ndarray, begin: np.ndarray, inducing: int) -> bool:
        """Tell whether other inducing rows would do no better than those chosen where the climb began."""
        return bool(np.abs(theta - begin).max() < _SMALL_MOVE) or inducing >= len(self.rows)

    def begin(self, theta: np.ndarray, inducing: int) -> _Objective:
        """Return the objective with so many inducing rows, chosen at theta (p,)."""
        Z = self.rows.X[feature_pivots(self.kernel, theta, self.rows.X, inducing, self.effort.whole)]
        return _Objective(self.kernel, self.prior, self.rows, Z)

    def find_start(self) -> np.ndarray:
        """Return the theta (p,) of most posterior density among a few that differ in their widths."""
        begin, found = default_start(self.kernel.structure), list[tuple[float, np.ndarray]]()
        if not self.kernel.structure.parts:
            return begin
        for shift in _START_SHIFTS:
            if found and self.clock.left() <= 0:
                break
            theta = begin.copy()
            for at in self.kernel.structure.widths:
                theta[at] += shift
            found.append((self.begin(theta, self.effort.inducing)(theta)[0], theta))
        return max(found, key=lambda one: one[0])[1]

    def gains_little(self, found: Mode) -> bool:
        """Whether a process hardly gains over the base rates, and there is time to look elsewhere."""
        gain = found.value - self.prior.log_density(found.theta)[0] - self.rows.base_value
        return gain < -_LITTLE * self.rows.base_value and self.clock.left() > 0

    def look_closer(self, found: Mode, start: np.ndarray | None) -> tuple[Mode, int] | None:
        """Climb from `start`, or from widths of a regression, to what is above `found` with more inducing rows."""
        closer = None if start is None else self.climb_above(found.value, start)
        if closer is None:
            structure, few = self.kernel.structure, self.rows.take(slice(self.effort.regression))
            theta = regress_on_classes(structure, few, default_start(structure), self.clock)
            closer = None if theta is None else self.climb_above(found.value, theta)
        return closer

    def climb_above(self, value: float, theta: np.ndarray) -> tuple[Mode, int] | None:
        """Climb from theta (p,) with the inducing rows it takes to see it above a value; None where it is not."""
        inducing, most = self.effort.inducing, min(self.effort.utmost, len(self.rows))
        objective = self.begin(theta, inducing)
        while objective(theta)[0] <= value:
            if objective.cost <= self.most_cost or inducing >= most or self.clock.left() <= 0:
                return None
            inducing = min(2 * inducing, most)
            objective = self.begin(theta, inducing)
        return self.climb(theta, inducing)


def settle_latent(
    rows: DistinctRows, kernel: LatentKernel, theta: np.ndarray, effort: Effort, evaluations: int = 0
) -> ClassProcess:
    """Return the process at theta with all rows."""
    Z = rows.X[feature_pivots(kernel, theta, rows.X, effort.final, effort.whole)]
    features = Features(kernel, theta, rows.X, Z)
    found = find_mode(features, rows)
    U, L = (found.u[:, None], found.L[None]) if rows.n_classes == 2 else (found.u, found.L)
    value = found.log_evidence(features.left_out)
    return ClassProcess(kernel, theta, Z, U, L, rows.base_rates, value, found.gain, evaluations)


def find_mode(features: Features, rows: DistinctRows) -> binary.BinaryMode | softmax.SoftmaxMode:
    """Return the mode of the latent functions."""
    logs = np.log(rows.base_rates)
    if rows.n_classes == 2:
        return binary.mode(features.Phi, rows.counts, logs[1] - logs[0])
    return softmax.mode(features.Phi, rows.counts, logs - logs.mean())


def log_merit(process: ClassProcess) -> float:
    """Return the logarithm of the evidence times the prior of theta, integrated about theta to _POSTERIOR_DEVIATION."""
    density, _ = class_prior(process.kernel.structure).log_density(process.theta)
    volume = len(process.theta) * np.log(np.sqrt(2.0 * np.pi) * _POSTERIOR_DEVIATION)
    return process.log_evidence + density + float(volume)
