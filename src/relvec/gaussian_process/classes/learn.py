"""Hyperparameters of most posterior density for classes, and the process there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from relvec.gaussian_process.classes import binary, softmax
from relvec.gaussian_process.classes.features import Features, LatentKernel, pivots
from relvec.gaussian_process.classes.model import ClassProcess
from relvec.gaussian_process.classes.rows import ClassRows
from relvec.gaussian_process.evidence import NotPositiveDefinite
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.priors import Prior, default_prior
from relvec.runtime.clock import Clock, TimeUp


@dataclass(frozen=True)
class Effort:
    """How much a fit may cost.

    inducing : inducing rows while hyperparameters are learned.
    final : inducing rows of the model.
    rows : at most so many rows, the first of the hash's order, take part in learning; all of them in the model.
    steps : evaluations of the evidence.
    tolerance : a climb ends where no derivative by a logarithm exceeds this many nats, if not before.
    """

    inducing: int = 100
    final: int = 100
    rows: int = 1000
    steps: int = 40
    tolerance: float = 0.05


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
        theta[at] = 0.5 * np.log(structure.n_inputs) - 0.7 * j
    return theta


def carry_theta(theta: np.ndarray, source: Structure, target: Structure) -> np.ndarray:
    """The theta of a structure as a start for a richer one: parts in order, widths repeated, a linear part at 1/2."""
    begin = default_start(target)
    for i, at, j, from_ in zip(target.amplitudes, target.widths, source.amplitudes, source.widths):
        begin[i], begin[at] = theta[j], theta[from_]
    if target.linear:
        begin[-1] = theta[-1] if source.linear else np.log(0.5)
    return begin


def evidence(features: Features, counts: np.ndarray, rates: np.ndarray, start=None):
    """Laplace's evidence, its gradient (p,) and the mode, for two classes or more; `start` is another mode."""
    kind = binary if counts.shape[1] == 2 else softmax
    return kind.evidence(features, counts, rates, start)


def learn(
    rows: ClassRows, structure: Structure, effort: Effort = USUAL, start: np.ndarray | None = None,
    clock: Clock | None = None, label: str = "",
) -> ClassProcess:  # fmt: skip
    """The process of most posterior density with this structure, at standardised rows.

    What the clock remembers under the label of the fit is not learned again.
    """
    clock, name = clock or Clock(), f"{structure.name}{label}"
    found = clock.recall(name, lambda: _learn_theta(rows, structure, effort, start, clock))
    return settle(rows, LatentKernel(structure), found["theta"], effort, int(found["evaluations"]))


def _learn_theta(
    rows: ClassRows, structure: Structure, effort: Effort, start: np.ndarray | None, clock: Clock
) -> dict[str, Any]:
    """The theta (p,) of most posterior density, and the evaluations of the evidence that it took."""
    kernel, prior = LatentKernel(structure), class_prior(structure)
    theta = default_start(structure) if start is None else start
    some = rows.take(slice(effort.rows))
    evaluations = 0
    for steps in (effort.steps, effort.steps // 2)[: 1 + bool(structure.parts)]:
        objective = _objective(kernel, prior, some, some.X[pivots(kernel, theta, some.X, effort.inducing)])
        found, spent = _climb(objective, theta, prior, steps, effort.tolerance, clock)
        moved, theta = np.abs(found - theta).max(), found
        evaluations += spent
        # Inducing rows chosen for a twice too long width will do.
        if moved < 0.7 or effort.inducing >= len(some) or clock.left() <= 0:
            break
    return {"theta": theta, "evaluations": evaluations}


def _objective(kernel: LatentKernel, prior: Prior, rows: ClassRows, Z: np.ndarray):
    """The log posterior of theta and its gradient (p,); every evaluation begins at the mode of the last one."""
    last: list = [None]
    rates = rows.base_rates

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        density, prior_slope = prior.log_density(theta)
        try:
            features = Features(kernel, theta, rows.X, Z)
        except NotPositiveDefinite:
            return -np.inf, prior_slope
        value, slope, last[0] = evidence(features, rows.counts, rates, last[0])
        return value + density, slope + prior_slope

    return objective


def _climb(
    objective, start: np.ndarray, prior: Prior, steps: int, tolerance: float, clock: Clock
) -> tuple[np.ndarray, int]:
    """L-BFGS-B upwards until a step gains less than about a hundredth of a nat; theta (p,) and the evaluations."""
    best: list = [-np.inf, np.clip(start, prior.low, prior.high), 0]

    def negative(theta: np.ndarray) -> tuple[float, np.ndarray]:
        if best[2]:
            clock.check()
        value, slope = objective(theta)
        best[2] += 1
        if value > best[0]:
            best[:2] = [value, theta.copy()]
        return (-value, -slope) if np.isfinite(value) else (1e10, np.zeros_like(theta))

    options = {"maxfun": steps, "ftol": 3e-5, "gtol": tolerance, "maxcor": 20}
    bounds = np.c_[prior.low, prior.high]
    try:
        found = minimize(negative, best[1], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    except TimeUp:
        return best[1], best[2]
    return found.x, int(found.nfev)


def settle(
    rows: ClassRows, kernel: LatentKernel, theta: np.ndarray, effort: Effort, evaluations: int = 0
) -> ClassProcess:
    """The process at theta with all rows."""
    Z = rows.X[pivots(kernel, theta, rows.X, effort.final)]
    features = Features(kernel, theta, rows.X, Z)
    logs = np.log(rows.base_rates)
    if rows.n_classes == 2:
        two = binary.mode(features.Phi, rows.counts, logs[1] - logs[0])
        U, L, value, gain = two.u[:, None], two.L[None], two.log_evidence(features.left_out), two.gain
    else:
        many = softmax.mode(features.Phi, rows.counts, logs - logs.mean())
        U, L, value, gain = many.u, many.L, many.log_evidence(rows.counts, features.left_out), many.gain
    return ClassProcess(kernel, theta, Z, U, L, rows.base_rates, value, gain, evaluations)
