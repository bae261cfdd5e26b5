"""Candidates in the choice of a process for classes, their records at rows held out, and their calibration there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from relvec.gaussian_process.classes.learn import USUAL, Effort, learn_latent, settle_latent
from relvec.gaussian_process.classes.model import Calibration, ClassProcess
from relvec.gaussian_process.classes.rows import DistinctRows
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.rows import find_categories
from relvec.runtime.clock import Clock

MODERATIONS = (1.0, 0.3, 0.1)
_SPREAD = 0.35  # prior standard deviation of the logarithm of the slope
_WORTH = 1.0  # nats that a moderation other than 1 must gain


def log_densities(signals: np.ndarray, log_rates: np.ndarray, counts: np.ndarray, slope: float) -> np.ndarray:
    """(n,) log-likelihood of every row's counts (n, K); log_rates (K,) or (n, K)."""
    return (counts * log_softmax(log_rates + slope * signals, axis=1)).sum(1)


def calibrate(signals: Mapping[float, np.ndarray], log_rates: np.ndarray, counts: np.ndarray) -> Calibration:
    """Slope and moderation of most likelihood at rows that took no part, under a weak prior on the slope.

    signals : (n, K) for every moderation there is; log_rates, counts (n, K).
    """
    best, most = Calibration(), -np.inf
    for moderation, signal in signals.items():

        def loss(log_slope: float, signal: np.ndarray = signal) -> float:
            fit = log_densities(signal, log_rates, counts, np.exp(log_slope)).sum()
            return 0.5 * (log_slope / _SPREAD) ** 2 - fit

        found = minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded", options={"xatol": 1e-3})
        value = -float(found.fun) - _WORTH * (moderation != 1.0)
        if value > most:
            best, most = Calibration(float(np.exp(found.x)), moderation), value
    return best


def calibration_curve(P: np.ndarray, counts: np.ndarray, bins: int = 10) -> np.ndarray:
    """Reliability of probabilities P (n, K) for counts (n, K): rows of (mean probability, share, weight).

    Every class of every row is a forecast; bins hold equal weight. For two classes the second class alone.
    """
    p, hit, weight = P.ravel(), counts.ravel(), np.repeat(counts.sum(1), P.shape[1])
    if P.shape[1] == 2:
        p, hit, weight = P[:, 1], counts[:, 1], counts.sum(1)
    order = np.argsort(p, kind="stable")
    p, hit, weight = p[order], hit[order], weight[order]
    place = np.minimum((np.cumsum(weight) - 0.5 * weight) / weight.sum() * bins, bins - 1e-9).astype(int)
    total = np.bincount(place, weight, bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        table = np.c_[np.bincount(place, weight * p, bins) / total, np.bincount(place, hit, bins) / total, total]
    return table[total > 0]


@dataclass(frozen=True)
class ProcessCandidate:
    """A process of one structure; its climb begins at theta `start` where that is known, and may hold the widths."""

    structure: Structure
    effort: Effort = USUAL
    start: tuple[float, ...] | None = None
    hold_widths: bool = False

    @property
    def name(self) -> str:
        """The structure in words."""
        return self.structure.name

    @property
    def few(self) -> bool:
        """Whether no part has a width for each input: then fits of folds may begin at the fit of all rows."""
        return not any(part.per_input for part in self.structure.parts)

    def fit(self, rows: DistinctRows, hint: ClassProcess | None = None, clock: Clock | None = None) -> ClassProcess:
        """Return the process of most posterior density.

        `hint` is a model of other rows, to begin at.
        """
        known = self.start if hint is None else hint.theta
        start = None if known is None else np.array(known)
        return learn_latent(rows, self.structure, self.effort, start, clock, self.hold_widths)


@dataclass(frozen=True, eq=False)
class GivenKernel:
    """A covariance of log-odds that the user asks for.

    shape : one of `Shape`.
    lengths : (d,) in the units of the inputs, which are held; None to learn them.
    per_input : whether one for each input is learned, or one for all; None tries both.
    """

    shape: str
    lengths: np.ndarray | None = None
    per_input: bool | None = None

    def candidates(self, n_inputs: int, effort: Effort) -> list[ProcessCandidate]:
        """Return the processes with this kernel; inputs are in their lengths where these are given."""
        start = None if self.lengths is None else (np.log(4.0), 0.0)
        kinds = (False, True) if self.per_input is None and start is None and n_inputs > 1 else (bool(self.per_input),)
        return [
            ProcessCandidate(Structure((Part(self.shape, each),), False, n_inputs), effort, start, start is not None)
            for each in kinds
        ]


def standard_candidates(X: np.ndarray, effort: Effort = USUAL) -> list[ProcessCandidate]:
    """Linear; one Gaussian width, in ranges of the inputs; a width for each: the smallest first. X (n, d) standardised.

    A width in ranges is one in the units of the inputs where they share unit and range, as the pixels of images do; in
    standard deviations it would blow up pixels that are hardly ever on, and rare levels of categories. Kernels with a
    linear part are sums, which `choose` tries.
    """
    d, span = X.shape[1], np.ptp(X, axis=0)
    log_ratios = np.log(span) + 0.5 * np.log(np.mean(span**-2.0))  # distances are about those in standard deviations
    parts = [(), (Part(Shape.GAUSSIAN, log_ratios=tuple(log_ratios.tolist()) if d > 1 else None),)]
    if d > 1:
        # Not from the one width: where few inputs matter it is so long that the evidence is flat about it.
        parts.append((Part(Shape.GAUSSIAN, True, groups=find_categories(X)),))
    return [ProcessCandidate(Structure(part, not part, d), effort) for part in parts]


_WORTH_OF_MORE = 2.0  # nats, and a standard error, that a refined process must gain
_VECTOR_GAIN = 0.005  # nats a row that twice the vectors must gain


class ClassRecord:
    """Held-out signals of one candidate, fold by fold, of a process whose theta may have been moved on."""

    def __init__(self, candidate: ProcessCandidate, moved: np.ndarray | None = None):
        self.candidate, self.moved = candidate, moved
        self.signals: dict[float, list[np.ndarray]] = {m: [] for m in MODERATIONS}
        self.log_rates: list[np.ndarray] = []
        self.models: list[ClassProcess] = []
        self._best_fold = 0

    @property
    def model(self) -> ClassProcess:
        """The process of the fold whose rows it predicts best."""
        return self.models[self._best_fold]

    def add(self, model: ClassProcess, test: DistinctRows) -> None:
        """Keep what a model that has not seen `test` says there."""
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
        self._best_fold = int(np.argmax(means))

    def halve_widths(self, fold: tuple[DistinctRows, DistinctRows], clock: Clock) -> ClassRecord:
        """Return the record with widths halved as long as the only fold's held-out rows gain.

        Few inducing rows see long widths only: the evidence of many classes over few of them is largest where
        functions are nearly straight. So this is for models with as many vectors as a fit may have.
        """
        return self if self.candidate.hold_widths else self._follow(fold, self._shorter_widths(clock), 0.0)

    def double_vectors(self, fold: tuple[DistinctRows, DistinctRows], clock: Clock) -> ClassRecord:
        """Return the record with vectors doubled as long as the only fold's held-out rows gain."""
        return self._follow(fold, self._more_vectors(clock), _VECTOR_GAIN * fold[1].counts.sum())

    def _shorter_widths(self, clock: Clock) -> Iterator[tuple[np.ndarray, int]]:
        theta = self.model.theta.copy()
        while clock.left() > 0:
            for at in self.model.kernel.structure.widths:
                theta[at] -= np.log(2.0)
            yield theta.copy(), self.model.n_vectors

    def _more_vectors(self, clock: Clock) -> Iterator[tuple[np.ndarray, int]]:
        n_vectors, most = self.model.n_vectors, self.candidate.effort.grown
        while clock.left() > 0 and n_vectors < most:
            n_vectors = min(2 * n_vectors, most)
            yield self.model.theta, n_vectors

    def _follow(
        self, fold: tuple[DistinctRows, DistinctRows], steps: Iterator[tuple[np.ndarray, int]], least_gain: float
    ) -> ClassRecord:
        """Return the record at the last step, theta (p,) and vectors, up to which each gains, where all together do."""
        if self.model.n_vectors < min(self.candidate.effort.final, len(fold[0])):
            return self
        best = self
        for theta, n_vectors in steps:
            trial = self._settle(fold, theta, n_vectors)
            if (trial.density - best.density).sum() <= least_gain:
                break
            best = trial
        gain = best.density - self.density
        return best if gain.sum() > max(_WORTH_OF_MORE, np.sqrt(len(gain)) * gain.std()) else self

    def _settle(
        self, fold: tuple[DistinctRows, DistinctRows], theta: np.ndarray, n_vectors: int
    ) -> ClassRecord:  # fmt: skip
        """Return the closed record of the process with theta (p,) and so many vectors."""
        train, test = fold
        model, before = self.model, 0.0 if self.moved is None else self.moved
        trial = ClassRecord(self.candidate, theta - model.theta + before)
        effort = replace(self.candidate.effort, final=n_vectors)
        trial.add(settle_latent(train, model.kernel, theta, effort, model.evaluations), test)
        trial.close(test.counts)
        return trial

    def finish(self, whole: ClassProcess, rows: DistinctRows) -> ClassProcess:
        """Return the process of all rows, moved as that of the fold was and with as many vectors."""
        if self.moved is None:
            return whole
        effort = self.candidate.effort
        most = replace(effort, final=max(effort.final, self.model.n_vectors))
        return settle_latent(rows, whole.kernel, whole.theta + self.moved, most, whole.evaluations)
