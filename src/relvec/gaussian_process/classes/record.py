"""What a candidate says of rows that took no part, and the widths and vectors that these rows ask for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.gaussian_process.classes.calibrate import MODERATIONS, calibrate, log_densities
from relvec.gaussian_process.classes.candidates import ProcessCandidate
from relvec.gaussian_process.classes.learn import settle_latent
from relvec.gaussian_process.classes.model import ClassProcess
from relvec.gaussian_process.classes.rows import DistinctRows
from relvec.runtime.clock import Clock

_WORTH = 2.0  # nats, and a standard error, that a refined process must gain
_VECTOR_GAIN = 0.005  # nats a row that twice the vectors must gain


class ClassRecord:
    """Held-out signals of one candidate, fold by fold, of a process that `refine` may have moved by some theta."""

    def __init__(self, candidate: ProcessCandidate, moved: np.ndarray | None = None):
        self.candidate, self.moved = candidate, moved
        self.signals: dict[float, list[np.ndarray]] = {m: [] for m in MODERATIONS}
        self.log_rates: list[np.ndarray] = []
        self.models: list[ClassProcess] = []
        self.model: ClassProcess | None = None  # of the fold whose rows it predicts best

    def add(self, model: ClassProcess, test: DistinctRows) -> None:
        """Return what a model that has not seen `test` says there."""
        for moderation, found in self.signals.items():
            found.append(model.signals(test.X, moderation))
        self.log_rates.append(np.tile(np.log(model.base_rates), (len(test), 1)))
        self.models.append(model)

    def close(self, counts: np.ndarray) -> None:
        """Calibration, calibrated signals (n, K) and log densities (n,) of the folds so far; counts (n, K) or more."""
        self.rates = np.concatenate(self.log_rates)
        self.counts = counts[: len(self.rates)]
        joined = {m: np.concatenate(found) for m, found in self.signals.items()}
        self.calibration = calibrate(joined, self.rates, self.counts)
        self.signal = self.calibration.slope * joined[self.calibration.moderation]
        self.density = log_densities(self.signal, self.rates, self.counts, 1.0)
        begins = np.cumsum([0, *map(len, self.log_rates[:-1])])
        means = np.add.reduceat(self.density, begins) / np.add.reduceat(self.counts.sum(axis=1), begins)
        self.model = self.models[int(np.argmax(means))]

    def refine(self, fold: tuple[DistinctRows, DistinctRows], clock: Clock, vectors: bool) -> ClassRecord:
        """Return the record with widths halved, or vectors doubled, as long as the only fold's held-out rows gain.

        Few inducing rows see long widths only: the evidence of many classes over few of them is largest where
        functions are nearly straight. So this is for models with as many vectors as a fit may have.
        """
        model, candidate, (train, test) = self.model, self.candidate, fold
        if model is None or not isinstance(candidate, ProcessCandidate):
            return self
        effort, least, best = candidate.effort, _VECTOR_GAIN * test.counts.sum() if vectors else 0.0, self
        if model.n_vectors < min(effort.final, len(train)) or (candidate.hold_widths and not vectors):
            return self
        theta, final = model.theta.copy(), model.n_vectors
        while clock.left() > 0 and not (vectors and final >= effort.grown):
            if vectors:
                final = min(2 * final, effort.grown)
            else:
                for at in model.kernel.structure.widths:
                    theta[at] -= np.log(2.0)
            trial = ClassRecord(candidate, theta - model.theta + (0.0 if self.moved is None else self.moved))
            trial.add(
                settle_latent(train, model.kernel, theta.copy(), replace(effort, final=final), model.evaluations), test
            )
            trial.close(test.counts)
            if (trial.density - best.density).sum() <= least:
                break
            best = trial
        gain = best.density - self.density
        return best if gain.sum() > max(_WORTH, np.sqrt(len(gain)) * gain.std()) else self

    def finish(self, whole: ClassProcess, rows: DistinctRows) -> ClassProcess:
        """Return the process of all rows, moved as that of the fold was and with as many vectors."""
        if self.moved is None or self.model is None:
            return whole
        effort = self.candidate.effort
        most = replace(effort, final=max(effort.final, self.model.n_vectors))
        return settle_latent(rows, whole.kernel, whole.theta + self.moved, most, whole.evaluations)
