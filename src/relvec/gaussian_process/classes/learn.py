"""Hyperparameters of most posterior density for classes, and the process there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from relvec.gaussian_process.classes import binary, softmax
from relvec.gaussian_process.classes.features import WHOLE_ROWS, Features, LatentKernel, pivots
from relvec.gaussian_process.classes.model import ClassProcess
from relvec.gaussian_process.classes.rows import ClassRows
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.priors import Prior, default_prior
from relvec.inference.linalg import SingularError
from relvec.runtime.clock import Clock, TimeUp

_MOST_COST = 0.02  # nats a row: where what the inducing rows leave out costs more, there should be twice as many
_SMALL_MOVE = 0.7  # of a logarithm: inducing rows chosen for a twice too long width will do
_POSTERIOR_DEVIATION = 0.5  # of a logarithm in theta: the usual one of small tables
_START_SHIFTS = (0.0, -1.0, -2.0)  # of the logarithms of widths: where a boundary turns often, long ones are a trap
_ROUNDS = 4  # climbs, each with inducing rows chosen where the last one ended


@dataclass(frozen=True)
class Effort:
    """How much a fit may cost.

    inducing : inducing rows while hyperparameters are learned, at first.
    most : so many where fewer leave out what costs the evidence more than _MOST_COST.
    final : inducing rows of the model; grown : so many where held-out rows ask for them, see `refine`.
    rows : at most so many rows, the first of the hash's order, take part in learning; all of them in the model.
    steps : evaluations of the evidence.
    tolerance : a climb ends where no derivative by a logarithm exceeds this many nats, if not before.
    whole : rows whose matrix may be computed at once.
    """

    inducing: int = 100
    most: int = 200
    final: int = 400
    grown: int = 800
    rows: int = 1000
    steps: int = 40
    tolerance: float = 0.05
    whole: int = WHOLE_ROWS


USUAL = Effort()


def class_prior(structure: Structure) -> Prior:
    """The priors of `gaussian_process.priors` without the noise's; amplitudes are variances of log-odds."""
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


def evidence(features: Features, counts: np.ndarray, rates: np.ndarray, start=None):
    """Laplace's evidence, its gradient (p,) and the mode, for two classes or more; `start` is another mode."""
    kind = binary if counts.shape[1] == 2 else softmax
    return kind.evidence(features, counts, rates, start)


def learn(
    rows: ClassRows, structure: Structure, effort: Effort = USUAL, start: np.ndarray | None = None,
    clock: Clock | None = None, label: str = "", hold_widths: bool = False,
) -> ClassProcess:  # fmt: skip
    """The process of most posterior density with this structure, at standardised rows.

    What the clock remembers under the label of the fit is not learned again. `hold_widths` leaves those of `start` as
    they are.
    """
    clock, name = clock or Clock(), f"{structure.name}{label}"
    prior = class_prior(structure)
    if hold_widths and start is not None:
        for at in structure.widths:
            prior.low[at] = prior.high[at] = start[at]
    found = clock.recall(name, lambda: _learn_theta(rows, structure, prior, effort, start, clock))
    return settle(rows, LatentKernel(structure), found["theta"], effort, int(found["evaluations"]))


def _learn_theta(
    rows: ClassRows, structure: Structure, prior: Prior, effort: Effort, start: np.ndarray | None, clock: Clock
) -> dict[str, Any]:
    """The theta (p,) of most posterior density, and the evaluations of the evidence that it took."""
    kernel = LatentKernel(structure)
    some = rows.take(slice(effort.rows))
    inducing, steps, evaluations = effort.inducing, effort.steps, 0
    theta = _find_start(kernel, prior, some, effort, clock) if start is None else start
    most_cost = _MOST_COST * some.weight.sum()
    for number in range(_ROUNDS if structure.parts else 1):
        objective = _objective(kernel, prior, some, some.X[pivots(kernel, theta, some.X, inducing, effort.whole)])
        if number == 0 and start is not None and objective(theta)[2] > most_cost:  # a start that is nearly the end
            inducing = effort.most
            objective = _objective(kernel, prior, some, some.X[pivots(kernel, theta, some.X, inducing, effort.whole)])
        found, spent, cost = _climb(objective, theta, prior, steps, effort.tolerance, clock)
        moved, theta = np.abs(found - theta).max(), found
        evaluations += spent
        steps = effort.steps // 2
        if cost > most_cost and inducing < effort.most:
            inducing = min(2 * inducing, effort.most)
        elif moved < _SMALL_MOVE or inducing >= len(some):
            break
        if clock.left() <= 0:
            break
    return {"theta": theta, "evaluations": evaluations}


def _find_start(kernel: LatentKernel, prior: Prior, rows: ClassRows, effort: Effort, clock: Clock) -> np.ndarray:
    """The theta (p,) of most posterior density among a few that differ in their widths."""
    begin, found = default_start(kernel.structure), list[tuple[float, np.ndarray]]()
    if not kernel.structure.parts:
        return begin
    for shift in _START_SHIFTS:
        if found and clock.left() <= 0:
            break
        theta = begin.copy()
        for at in kernel.structure.widths:
            theta[at] += shift
        Z = rows.X[pivots(kernel, theta, rows.X, effort.inducing, effort.whole)]
        with suppress(SingularError):
            features = Features(kernel, theta, rows.X, Z)
            value = find_mode(features, rows).log_evidence(features.left_out)
            found.append((value + prior.log_density(theta)[0], theta))
    return max(found, key=lambda one: one[0])[1] if found else begin


def _objective(kernel: LatentKernel, prior: Prior, rows: ClassRows, Z: np.ndarray):
    """The log posterior of theta, its gradient (p,), and the nats that what the rows Z leave out may cost.

    Every evaluation begins at the mode of the last one.
    """
    last: list = [None]
    rates = rows.base_rates

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray, float]:
        density, prior_slope = prior.log_density(theta)
        try:
            features = Features(kernel, theta, rows.X, Z)
        except SingularError:
            return -np.inf, prior_slope, 0.0
        value, slope, last[0] = evidence(features, rows.counts, rates, last[0])
        return value + density, slope + prior_slope, last[0].cost(features.left_out)

    return objective


def _climb(
    objective, start: np.ndarray, prior: Prior, steps: int, tolerance: float, clock: Clock
) -> tuple[np.ndarray, int, float]:
    """L-BFGS-B upwards until a step gains less than about a hundredth of a nat.

    Theta (p,), the evaluations, and the cost at theta of what is left out.
    """
    best: list = [-np.inf, np.clip(start, prior.low, prior.high), 0.0]
    spent = 0

    def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal spent
        if spent:
            clock.check()
        value, slope, cost = objective(theta)
        spent += 1
        if value > best[0]:
            best[:] = [value, theta.copy(), cost]
        return (-value, -slope) if np.isfinite(value) else (1e10, np.zeros_like(theta))

    options = {"maxfun": steps, "ftol": 1e-4, "gtol": tolerance, "maxcor": 20}
    bounds = np.c_[prior.low, prior.high]
    with suppress(TimeUp):
        minimize(negative, best[1], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return best[1], spent, best[2]


def settle(
    rows: ClassRows, kernel: LatentKernel, theta: np.ndarray, effort: Effort, evaluations: int = 0
) -> ClassProcess:
    """The process at theta with all rows."""
    Z = rows.X[pivots(kernel, theta, rows.X, effort.final, effort.whole)]
    features = Features(kernel, theta, rows.X, Z)
    found = find_mode(features, rows)
    U, L = (found.u[:, None], found.L[None]) if rows.n_classes == 2 else (found.u, found.L)
    value = found.log_evidence(features.left_out)
    return ClassProcess(kernel, theta, Z, U, L, rows.base_rates, value, found.gain, evaluations)


def find_mode(features: Features, rows: ClassRows) -> binary.BinaryMode | softmax.SoftmaxMode:
    """The mode of the latent functions."""
    logs = np.log(rows.base_rates)
    if rows.n_classes == 2:
        return binary.mode(features.Phi, rows.counts, logs[1] - logs[0])
    return softmax.mode(features.Phi, rows.counts, logs - logs.mean())


def log_merit(process: ClassProcess) -> float:
    """The logarithm of the evidence times the prior of theta, integrated about theta to _POSTERIOR_DEVIATION."""
    density, _ = class_prior(process.kernel.structure).log_density(process.theta)
    volume = len(process.theta) * np.log(np.sqrt(2.0 * np.pi) * _POSTERIOR_DEVIATION)
    return process.log_evidence + density + float(volume)
