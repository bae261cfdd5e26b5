"""Widths and numbers of vectors that held-out rows decide, where the limit on inducing rows is felt.

Few inducing rows see long widths only: the evidence of many classes over few of them is largest where functions are
nearly straight. Rows that took no part know better, where a table is large enough to hold many of them out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.gaussian_process.classes.calibrate import MODERATIONS, calibrate, log_densities
from relvec.gaussian_process.classes.learn import Effort, settle
from relvec.gaussian_process.classes.model import ClassProcess
from relvec.gaussian_process.classes.rows import ClassRows
from relvec.runtime.clock import Clock

_WORTH = 2.0  # nats, and a standard error, that shorter widths must gain altogether
_VECTOR_GAIN = 0.005  # nats a row that twice the vectors must gain


def score(model: ClassProcess, test: ClassRows) -> np.ndarray:
    """Log densities (n,) of rows that took no part, calibrated by them."""
    signals = {moderation: model.signals(test.X, moderation) for moderation in MODERATIONS}
    rates = np.tile(np.log(model.base_rates), (len(test), 1))
    found = calibrate(signals, rates, test.counts)
    return log_densities(signals[found.moderation], rates, test.counts, found.slope)


def shorten(model: ClassProcess, train: ClassRows, test: ClassRows, effort: Effort, clock: Clock) -> ClassProcess:
    """The process with its widths halved as long as held-out rows gain."""
    first = score(model, test)
    best, density, theta = model, first, model.theta.copy()
    while clock.left() > 0:
        for at in model.kernel.structure.widths:
            theta[at] -= np.log(2.0)
        trial = settle(train, model.kernel, theta.copy(), effort, model.evaluations)
        new = score(trial, test)
        if new.sum() <= density.sum():
            break
        best, density = trial, new
    gain = density - first
    return best if gain.sum() > max(_WORTH, np.sqrt(len(gain)) * gain.std()) else model


def grow(model: ClassProcess, train: ClassRows, test: ClassRows, effort: Effort, clock: Clock) -> ClassProcess:
    """The process with twice the vectors as long as held-out rows gain."""
    density = score(model, test)
    while model.n_vectors < effort.grown and clock.left() > 0:
        more = replace(effort, final=min(2 * model.n_vectors, effort.grown))
        trial = settle(train, model.kernel, model.theta, more, model.evaluations)
        new = score(trial, test)
        if (new - density).sum() <= _VECTOR_GAIN * test.counts.sum():
            break
        model, density = trial, new
    return model
