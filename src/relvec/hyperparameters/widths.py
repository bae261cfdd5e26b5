"""Widths of the kernels of a dictionary, learned by evidence (T01 4.3, C).

T01 C climbs on the kernels' parameters theta while every precision goes its own way. That surface has many maxima,
and the highest are not the best: with one precision a sample, narrow kernels can explain each target by itself.
`tune_widths` climbs on theta while the precisions of a kernel are tied to one
(`relvec.hyperparameters.shared_precision`), and leaves the sparse model to the search, at the theta found.

It begins from several widths around the data's own scale, and gives features whose width has run away, where its
gradient vanishes, a second chance. Many rows are thinned while starts are compared; the best then climbs on more.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relvec.basis import Basis
from relvec.hyperparameters.shared_precision import Columns, climb_evidence
from relvec.hyperparameters.targets import GaussianTarget
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.runtime.machine import map_in_threads, n_threads, one_thread
from relvec.runtime.progress import advance, stage

logger = logging.getLogger("relvec")


@dataclass(frozen=True)
class WidthSettings:
    """Constants of `tune_widths`; `benchmarks/widths.py` measures the learned widths by them.

    Widths are in units of sqrt(d) standard deviations of the features.
    """

    starts: tuple[float, ...] = (0.35, 0.6, 1.0, 1.7)  # widths to start from
    # and more of them where few features leave room for detail, by the number of features
    narrow_starts: tuple[tuple[float, ...], ...] = ((), (0.05, 0.15), (0.1,), (0.2,))
    kernel_start_ratio: float = 2.0  # between the widths that one kernel and the next start from
    retry_width: float = 1.0  # wider features come back to this once more
    max_retries: int = 3
    max_log_ratio: float = float(np.log(1e3))  # bounds of log width around the unit
    compare_rows: int = 400  # rows and atoms that starts are compared on
    climb_rows: int = 1000  # rows and atoms that the best start climbs on
    atoms_per_weight: int = 4  # that suffice for each well-determined weight
    min_retry_gain_nats: float = 0.05  # of a retry that is followed by another
    min_feature_gain_nats: float = 2.0  # of one feature: among many, one gains a little by chance


SETTINGS = WidthSettings()


@dataclass(frozen=True, eq=False)
class WidthProblem:
    """The rows X (n, d) and targets widths are learned from, which parameters are free (p,), and their bounds (p,).

    ``rows`` (n,) are the numbers of the rows, as the dictionary has them.
    """

    X: np.ndarray
    targets: list
    free: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray
    clock: Clock = NO_LIMIT
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def must_stop(self) -> bool:
        """Whether the time is up, or the fit was interrupted."""
        return self.stop.is_set() or self.clock.left() <= 0.0

    @classmethod
    def of(
        cls, basis: Basis, X: np.ndarray, targets: list, free: np.ndarray, clock: Clock = NO_LIMIT,
        rows: np.ndarray | None = None,
    ) -> WidthProblem:  # fmt: skip
        """With the bounds that the parameters of a bound basis, in the unit of `WidthSettings.starts`, are kept in."""
        rows = np.arange(len(X)) if rows is None else rows
        return cls(
            X, targets, free, basis.theta - SETTINGS.max_log_ratio, basis.theta + SETTINGS.max_log_ratio, rows, clock
        )

    def bounds_near(self, theta: np.ndarray, box: float) -> list[tuple[float, float]]:
        """Bounds of the free parameters no further than ``box`` from theta (p,)."""
        low, high = np.maximum(self.low, theta - box)[self.free], np.minimum(self.high, theta + box)[self.free]
        return list(zip(low, np.maximum(low, high), strict=True))

    def draw(self, basis: Basis, n_rows: int, n_atoms: int, rng: np.random.Generator):
        """At most so many rows and atoms, drawn by content: the setting on them, the rows and the atoms."""
        rows, atoms = np.arange(len(self.X)), np.arange(basis.n_atoms)
        if len(rows) > n_rows:
            ranked = np.lexsort(self.X.T[::-1])
            rows = np.sort(ranked[rng.choice(len(rows), n_rows, replace=False)])
        if len(atoms) > n_atoms:
            fixed = atoms[basis.rows < 0][: n_atoms // 2]
            others = rng.permutation(np.setdiff1d(atoms, fixed))
            others = others[
                np.argsort(~np.isin(basis.rows[others], self.rows[rows]), kind="stable")
            ]  # those of the rows first
            atoms = np.sort(np.concatenate([fixed, others[: n_atoms - len(fixed)]]))
        targets = [target.on_rows(rows, len(atoms)) for target in self.targets]
        return replace(self, X=self.X[rows], rows=self.rows[rows], targets=targets), rows, atoms


@dataclass(frozen=True, eq=False)
class Trial:
    """Where one start of the widths ended.

    Attributes
    ----------
    start, theta : (p,) logarithms of the kernels' parameters at the start and at the end.
    log_evidence : nats, of all functions with tied precisions and of scaled targets: only differences mean something.
    size : number of well-determined weights.
    log_precisions : (K, G + 1) of the G parts of the dictionary, each with one, and of the noise, for each target.

    Examples
    --------
    >>> trial = Trial(np.log([0.5]), np.log([1.2]), log_evidence=-31.4, size=6, log_precisions=np.zeros((1, 2)))
    >>> np.exp(trial.theta).round(1)  # the width where the climb from 0.5 ended
    array([1.2])
    """

    start: np.ndarray
    theta: np.ndarray
    log_evidence: float
    size: int
    log_precisions: np.ndarray


@dataclass(frozen=True, eq=False)
class Tuning:
    """How the widths of a fitted model were learned: where every start ended (`Trial`), in the order tried.

    Examples
    --------
    >>> ends = [Trial(np.zeros(1), np.zeros(1), value, 6, np.zeros((1, 2))) for value in (-31.4, -31.5, -60.2, -48.0)]
    >>> Tuning(tuple(ends)).agreement
    0.5
    """

    trials: tuple[Trial, ...]

    @property
    def agreement(self) -> float:
        """Share of starts that ended within one nat of the best.

        Below 1 the surface has several maxima; near 1 / (number of starts) others may be better still.
        """
        found = np.array([trial.log_evidence for trial in self.trials])
        return float(np.mean(found >= found.max() - 1.0))


@dataclass(frozen=True, eq=False)
class TunedBasis:
    """The basis with its parameters learned, and the way there."""

    basis: Basis
    # `Tuning`, `relvec.hyperparameters.grvm_widths.WidthSearch` or `relvec.hyperparameters.interleaving.Interleaving`
    tuning: Any
    noises: np.ndarray | None = None  # noise variance of each target, of unit mean square, where all rows were seen
    models: list | None = None  # of each target, to start the search from; None for a search from nothing


def tune_widths(
    basis: Basis, setting: WidthProblem, seed: int = 0, verbose: bool = False, earlier: np.ndarray | None = None
) -> TunedBasis:
    """Learn the free parameters of a bound basis by evidence; see the module.

    Parameters
    ----------
    basis : bound dictionary of M atoms, its theta in the unit of `WidthSettings.starts`.
    setting : rows, targets, bounds.
    seed : for the draws where rows or atoms are too many.
    verbose : whether to log each start.
    earlier : (p,) theta of an earlier fit, to start from there alone.

    Examples
    --------
    A fit with a width to learn calls it; `width_` and `tuning_` are what it found.

    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> model = RVR(width="learn", noise_variance=0.01).fit(X, np.sin(X[:, 0]) + 0.05 * np.cos(40.0 * X[:, 0]))
    >>> best = max(model.tuning_.trials, key=lambda trial: trial.log_evidence)
    >>> bool(np.isclose(model.width_, np.exp(best.theta[0])))
    True
    """
    rng = np.random.default_rng(seed)
    setting = replace(setting, targets=[one for target in setting.targets for one in target.split_outputs()])
    few, _, atoms = setting.draw(basis, SETTINGS.compare_rows, SETTINGS.compare_rows, rng)
    part = basis.take(atoms) if len(atoms) < basis.n_atoms else basis
    starts = _starts(basis, setting) if earlier is None else [np.where(setting.free, earlier, basis.theta)]
    whole_at_once = len(atoms) == basis.n_atoms and len(few.X) == len(setting.X)
    with one_thread(), stage("widths", len(starts) + (not whole_at_once)):
        trials = _climb_from_all(part, few, starts, verbose)
        best = max(trials, key=lambda trial: trial.log_evidence)
        if not whole_at_once:
            # few functions do where few are determined
            enough = min(max(SETTINGS.compare_rows // 2, SETTINGS.atoms_per_weight * best.size), SETTINGS.climb_rows)
            more, _, atoms = setting.draw(basis, SETTINGS.climb_rows, enough, rng)
            best = _climb_from(basis.take(atoms), more, best.theta, settle=True)
            best = _retry_features(basis.take(atoms), more, best, basis.theta)
    all_rows = len(setting.X) <= SETTINGS.climb_rows and isinstance(setting.targets[0], GaussianTarget)
    noises = np.exp(-best.log_precisions[:, -1]) if all_rows else None
    # eight decimals: repeated rows and weights differ in further ones, which searches of classes amplify
    theta = np.where(setting.free, np.round(best.theta, 8), best.theta)
    return TunedBasis(basis.with_theta(theta), Tuning(tuple(trials)), noises)


def _starts(basis: Basis, setting: WidthProblem) -> list[np.ndarray]:
    """Parameters (p,) to start from, from narrow to wide."""
    unit, apart, d, narrow = basis.theta, _separate_kernels(basis), setting.X.shape[1], SETTINGS.narrow_starts
    factors = sorted({*SETTINGS.starts, *(narrow[d] if d < len(narrow) else ())})
    return [np.where(setting.free, unit + np.log(c) + apart, unit) for c in factors]


def _climb_from_all(basis: Basis, setting: WidthProblem, starts: list[np.ndarray], verbose: bool) -> list[Trial]:
    """Where every start ends; the best gets a second chance for features whose width has run away."""
    unit, planned = basis.theta, len(starts)
    starts = [np.clip(start, setting.low, setting.high) for start in starts]
    trials: list[Trial] = []

    def end_of(i: int) -> Trial | None:  # without time there is still the first one
        if i and setting.must_stop:
            return None
        end = _climb_from(basis, setting, starts[i])
        advance(more=int(len(trials) >= planned))
        return end

    for _ in range(1 + SETTINGS.max_retries):
        before = max((trial.log_evidence for trial in trials), default=-np.inf)
        ends = map_in_threads(end_of, range(len(starts)), n_threads(), setting.stop)
        trials += [end for end in ends if end is not None]
        best = max(trials, key=lambda trial: trial.log_evidence)
        again = np.where(setting.free, np.minimum(best.theta, unit + np.log(SETTINGS.retry_width)), unit)
        if (
            setting.must_stop
            or best.log_evidence <= before + SETTINGS.min_retry_gain_nats
            or not np.any(again < best.theta)
        ):
            break
        starts = [again]
    if verbose:
        for i, trial in enumerate(trials):
            logger.info("widths: start %d evidence %.3f size %d", i + 1, trial.log_evidence, trial.size)
    return trials


def _retry_features(basis: Basis, setting: WidthProblem, best: Trial, unit: np.ndarray) -> Trial:
    """Give one feature after the other a second chance, the most promising first.

    Where many features are idle, all of them at once make a worse kernel than none; and the slope of a weak or even
    effect vanishes at a width that has run away.
    """
    columns, held = Columns.of(basis, np.arange(basis.n_atoms)), replace(setting, free=np.zeros(len(unit), dtype=bool))

    def value(theta: np.ndarray) -> float:
        return -np.inf if setting.must_stop else climb_evidence(columns, theta, held, best.log_precisions).value

    for _ in range(int(setting.free.sum())):
        narrow = unit + np.log(SETTINGS.retry_width)
        wide = np.flatnonzero(setting.free & (best.theta > narrow))
        thetas = [np.where(np.arange(len(unit)) == j, narrow, best.theta) for j in wide]
        values = map_in_threads(value, thetas, n_threads(), setting.stop)
        if setting.must_stop or max(values, default=-np.inf) <= best.log_evidence + SETTINGS.min_feature_gain_nats:
            break
        best = _climb_from(basis, setting, thetas[int(np.argmax(values))], settle=True)
    return best


def _separate_kernels(basis: Basis) -> np.ndarray:
    """Offsets (p,) that keep equal kernels from going the same way: each part starts wider than the last."""
    apart, count = np.zeros(len(basis.theta)), 0
    for _, _, own in Columns.of(basis, np.arange(basis.n_atoms)).pieces:
        apart[own] = count * np.log(SETTINGS.kernel_start_ratio)
        count += own.start != own.stop
    return apart


def _climb_from(basis: Basis, setting: WidthProblem, start: np.ndarray, settle: bool = False) -> Trial:
    """Where a climb of the tied evidence from a theta (p,) ends.

    With ``settle`` the precisions come to rest before theta moves: the start is a good one, for other rows.
    """
    columns, logs = Columns.of(basis, np.arange(basis.n_atoms)), None
    if settle:
        logs = climb_evidence(columns, start, replace(setting, free=np.zeros(len(start), dtype=bool))).logs
    end = climb_evidence(columns, start, setting, logs)
    return Trial(start, end.theta, end.value, round(end.gamma), end.logs)
