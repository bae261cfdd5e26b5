"""Widths by the evidence over weights and centres: GRVM's E(sigma), one for all features or one for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from relvec.basis import Basis, content_ranks
from relvec.design import DenseDesign
from relvec.hyperparameters.centres import Placed, Space, evaluate_centres, place, start
from relvec.hyperparameters.grvm import CentresEvidence, grvm_evidence, train
from relvec.hyperparameters.widths import TunedBasis, WidthProblem
from relvec.inference.ascent import ascend
from relvec.kernels import split_theta
from relvec.runtime.machine import one_thread

FACTORS = (8.0, 4.0, 2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25)  # widths tried, in units of the data's scale
PAST_MAXIMUM_NATS = 10.0  # no narrower width is tried where the evidence has fallen by this twice in a row
LOG_WIDTH_ACCURACY = 0.1  # of log width
COMPARE_ROWS, COMPARE_ATOMS = 1000, 500  # what widths are compared on
LOG_WIDTH_DIFFERENCE = 1e-4  # of log width, for the derivative of the term of the centres
CLIMB_LOG_BOX, CLIMB_STEPS = 0.7, 8  # log units and steps of a climb of widths per feature
MAX_CLIMBS = 6
MIN_CLIMB_GAIN_NATS = 0.1  # a climb must gain so much to be followed by another


@dataclass(frozen=True, eq=False)
class WidthTrial:
    """The evidence at one width: theta (p,), log E, the evidence of the weights in it, and the number of kernels.

    Examples
    --------
    >>> trial = WidthTrial(theta=np.log([2.0]), log_evidence=4.1, weights=9.7, size=5)
    >>> np.exp(trial.theta), round(trial.log_evidence - trial.weights, 1)  # the width, and what its centres cost
    (array([2.]), -5.6)
    """

    theta: np.ndarray
    log_evidence: float
    weights: float
    size: int


@dataclass(frozen=True, eq=False)
class WidthSearch:
    """How a width was chosen by the evidence over weights and centres: every width tried, widest first.

    Examples
    --------
    >>> trials = [WidthTrial(np.log([width]), value, 0.0, 5) for width, value in ((4.0, -1.9), (2.0, 4.1), (1.0, 2.6))]
    >>> best = max(WidthSearch(tuple(trials)).trials, key=lambda trial: trial.log_evidence)
    >>> np.exp(best.theta)
    array([2.])
    """

    trials: tuple[WidthTrial, ...]


def train_at_width(basis: Basis, setting: WidthProblem) -> Placed:
    """Return the GRVM of a bound dictionary on the rows of a setting: a search from nothing, then training."""
    design = DenseDesign(basis(setting.X) * setting.targets[0].root[:, None], overwrite=True)
    order = content_ranks(basis, design.scale)
    models = [target.search(design, order, None, setting.clock) for target in setting.targets]
    return train(start(basis, Space.of(basis, setting.X, setting.targets, setting.clock), models))[0]


def choose_width(
    basis: Basis, setting: WidthProblem, seed: int = 0,
    evidence: Callable[[Placed], CentresEvidence] = grvm_evidence,
) -> TunedBasis:  # fmt: skip
    """Find the width that maximises the evidence over weights and centres, in one dimension (GRVM section 4).

    All free parameters of the basis are multiplied by one factor: those of `FACTORS` from the widest on, then a
    bounded search between the neighbours of the best. Many rows are thinned first.

    Parameters
    ----------
    basis : bound dictionary, its theta at the data's own scale.
    setting : rows, targets and which parameters are free.
    seed : for the draws where rows or atoms are too many.
    evidence : the evidence over weights and centres; `relvec.hyperparameters.grvm.diagonal_evidence` is section 5's.
    """
    few, _, atoms = setting.draw(basis, COMPARE_ROWS, COMPARE_ATOMS, np.random.default_rng(seed))
    part = basis.take(atoms) if len(atoms) < basis.n_atoms else basis
    trials: dict[float, WidthTrial] = {}

    def log_evidence(log_factor: float) -> float:
        if log_factor not in trials:
            theta = basis.theta + np.where(setting.free, log_factor, 0.0)
            found = evidence(train_at_width(part.with_theta(theta), few))
            trials[log_factor] = WidthTrial(theta, found.total, found.weights, found.size)
        return trials[log_factor].log_evidence

    with one_thread():
        values: list[float] = []
        for factor in FACTORS:
            values.append(log_evidence(np.log(factor)))
            past = len(values) > 2 and max(values[-2:]) < max(values) - PAST_MAXIMUM_NATS
            if past or setting.clock.left() <= 0.0:
                break
        best = int(np.argmax(values))
        if 0 < best < len(values) - 1 and setting.clock.left() > 0.0:
            bounds = np.log(FACTORS[best + 1]), np.log(FACTORS[best - 1])
            minimize_scalar(lambda x: -log_evidence(x), bounds=bounds, method="bounded",
                            options={"xatol": LOG_WIDTH_ACCURACY, "maxiter": 6})  # fmt: skip
    chosen = max(trials.values(), key=lambda trial: trial.log_evidence)
    ordered = tuple(trials[x] for x in sorted(trials, reverse=True))
    return TunedBasis(basis.with_theta(chosen.theta), WidthSearch(ordered))


def evidence_and_gradient(placed: Placed) -> tuple[CentresEvidence, np.ndarray]:
    """Return the evidence over weights and centres, and its derivative with respect to the kernels' theta.

    Centres stay, and the precisions of columns of unit length; the mode of the weights moves. The
    derivative of the weights' evidence is exact, by the vector-Jacobian product that learns widths; that of the term of
    the centres is a difference, one parameter at a time.
    """
    space = placed.space
    Phi_bar = evaluate_centres(space, placed.Z, placed.group, placed.models, settle=False)[1]
    pieces = [
        kernel.vjp(space.X, placed.Z[own], Phi_bar[:, own])[0]
        for kernel, own in ((k, np.flatnonzero(placed.group == g)) for g, k in enumerate(space.kernels))
    ]
    slope, theta = np.concatenate(pieces), kernel_theta(placed)
    for i in range(len(theta)):
        step = LOG_WIDTH_DIFFERENCE * (np.arange(len(theta)) == i)
        above, below = (grvm_evidence(with_theta(placed, theta + s, settle=False)) for s in (step, -step))
        slope[i] += (above.centres - below.centres) / (2.0 * LOG_WIDTH_DIFFERENCE)
    return grvm_evidence(placed), slope


def kernel_theta(placed: Placed) -> np.ndarray:
    """Logarithms of the parameters of all kernels, one after the other."""
    return np.concatenate([kernel.theta for kernel in placed.space.kernels])


def with_theta(placed: Placed, theta: np.ndarray, settle: bool = True) -> Placed:
    """Return the same centres under kernels of other parameters, precisions re-estimated if ``settle``."""
    kernels = placed.space.kernels
    changed = tuple(k.with_theta(piece) for k, piece in zip(kernels, split_theta(kernels, theta), strict=True))
    return place(replace(placed.space, kernels=changed), placed.Z, placed.group, placed.models, settle)


def climb_widths(placed: Placed, free: np.ndarray) -> Placed:
    """Kernels whose free parameters (mask over theta) have climbed the evidence over weights and centres.

    A few steps of L-BFGS-B at fixed centres, then training of the centres, in turn while the evidence rises.
    """
    value = grvm_evidence(placed).total
    for _ in range(MAX_CLIMBS):
        theta = kernel_theta(placed)

        def evidence(values: np.ndarray, theta=theta, placed=placed) -> tuple[float, np.ndarray, Placed]:
            full = theta.copy()
            full[free] = values
            trial = with_theta(placed, full)
            found, slope = evidence_and_gradient(trial)
            return found.total, slope[free], trial

        bounds = list(zip(theta[free] - CLIMB_LOG_BOX, theta[free] + CLIMB_LOG_BOX, strict=True))
        top = ascend(evidence, theta[free], bounds, placed, maxiter=CLIMB_STEPS, maxfun=2 * CLIMB_STEPS)
        trained = train(top.found)[0]
        ends = [(value, placed), (top.value, top.found), (grvm_evidence(trained).total, trained)]
        new, moved = max(ends, key=lambda end: end[0])
        gained = new - value
        if gained > 0.0:
            value, placed = new, moved
        if gained < MIN_CLIMB_GAIN_NATS or placed.space.is_late or not len(placed.Z):
            break
    return placed


def choose_widths(basis: Basis, setting: WidthProblem, seed: int = 0) -> TunedBasis:
    """One width for each feature by the evidence over weights and centres: `choose_width`, then `climb_widths`."""
    chosen = choose_width(basis, setting, seed)
    few, _, atoms = setting.draw(basis, COMPARE_ROWS, COMPARE_ATOMS, np.random.default_rng(seed))
    part = chosen.basis.take(atoms) if len(atoms) < basis.n_atoms else chosen.basis
    with one_thread():
        placed = climb_widths(train_at_width(part, few), setting.free)
        found, theta = grvm_evidence(placed), kernel_theta(placed)
    last = WidthTrial(theta, found.total, found.weights, found.size)
    return TunedBasis(basis.with_theta(theta), WidthSearch((*chosen.tuning.trials, last)))
