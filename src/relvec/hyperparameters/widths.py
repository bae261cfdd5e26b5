"""Widths learned by evidence (T01 4.3, C).

T01 C climbs on the kernels' parameters theta while every precision goes its own way (`interleave`). That surface has
many maxima, and the highest are not the best: with one precision a sample, narrow kernels can explain each target by
itself. `learn` climbs on theta while the precisions of a kernel are tied to one
(`relvec.hyperparameters.shared_precision`), and leaves the sparse model to the search, at the theta found.

It begins from several widths around the data's own scale, and gives features whose width has run away, where its
gradient vanishes, a second chance. Many rows are thinned while starts are compared; the best then climbs on more.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from relvec.basis import Basis, Concat
from relvec.design import DenseDesign
from relvec.hyperparameters import shared_precision as tied
from relvec.hyperparameters.targets import Evaluated, GaussianTarget
from relvec.runtime import checkpoint
from relvec.runtime.checkpoint import refuse_bad_record
from relvec.runtime.progress import advance, report, stage
from relvec.runtime.threads import map_in_threads, n_threads, one_thread

logger = logging.getLogger("relvec")

STARTS = (0.35, 0.6, 1.0, 1.7)  # widths to start from, in units of sqrt(d) standard deviations
NARROW = {1: (0.05, 0.15), 2: (0.1,), 3: (0.2,)}  # and more of them where few features leave room for detail
_APART = 2.0  # factor between the widths that one kernel and the next start from, where there are several
_SECOND_CHANCE = 1.0  # the same unit: wider features come back to this once more
_CHANCES = 3  # how often, at most
_LOWEST, _HIGHEST = np.log(1e-3), np.log(1e3)  # bounds of log width around that unit
_FEW, _MORE = 400, 1000  # rows and atoms that starts are compared on, and that the best one climbs on
_SPARE = 4  # atoms for each well-determined weight that suffice
_BETTER = 0.05  # nats a second chance must gain to be followed by another
_ALONE = 2.0  # nats that one feature must gain: among many, one gains a little by chance
_BOX = 0.5  # log units a width may move within one update of the interleaving
_ETA_STEPS = 5  # of L-BFGS-B within the same (T01 C: 1 to 5)
_UPDATES = 150  # such updates, at most
_SETTLED = 0.5  # nats in ten updates: the interleaving ends


@dataclass(frozen=True, eq=False)
class Setting:
    """The rows X (n, d) and targets widths are learned from, which parameters are free (p,), and their bounds (p,).

    ``rows`` (n,) are the numbers of the rows, as the dictionary has them.
    """

    X: np.ndarray
    targets: list
    free: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray
    deadline: float = np.inf
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        """Whether the time is up, or the fit was interrupted."""
        return self.stop.is_set() or time.monotonic() > self.deadline

    @classmethod
    def of(
        cls, basis: Basis, X: np.ndarray, targets: list, free: np.ndarray, deadline: float = np.inf,
        rows: np.ndarray | None = None,
    ) -> Setting:  # fmt: skip
        """With the bounds that the parameters of a bound basis, in the unit of `STARTS`, are kept in."""
        rows = np.arange(len(X)) if rows is None else rows
        return cls(X, targets, free, basis.theta + _LOWEST, basis.theta + _HIGHEST, rows, deadline)

    def within(self, theta: np.ndarray, box: float) -> list[tuple[float, float]]:
        """Bounds of the free parameters no further than ``box`` from theta (p,)."""
        low, high = np.maximum(self.low, theta - box)[self.free], np.minimum(self.high, theta + box)[self.free]
        return list(zip(low, np.maximum(low, high), strict=True))

    def part(self, basis: Basis, n_rows: int, n_atoms: int, rng: np.random.Generator):
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
        targets = [target.on(rows, len(atoms)) for target in self.targets]
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
    """

    start: np.ndarray
    theta: np.ndarray
    log_evidence: float
    size: int
    log_precisions: np.ndarray


@dataclass(frozen=True, eq=False)
class Tuning:
    """How the widths of a fitted model were learned: where every start ended (`Trial`), in the order tried."""

    trials: tuple[Trial, ...]

    @property
    def agreement(self) -> float:
        """Share of starts that ended within one nat of the best.

        Below 1 the surface has several maxima; near 1 / (number of starts) others may be better still.
        """
        found = np.array([trial.log_evidence for trial in self.trials])
        return float(np.mean(found >= found.max() - 1.0))


@dataclass(frozen=True, eq=False)
class Learned:
    """The basis with its parameters learned, and the way there."""

    basis: Basis
    tuning: Any
    noises: np.ndarray | None = None  # noise variance of each target, of unit mean square, where all rows were seen


def learn(
    basis: Basis, setting: Setting, seed: int = 0, verbose: bool = False, earlier: np.ndarray | None = None
) -> Learned:
    """Learn the free parameters of a bound basis by evidence; see the module.

    Parameters
    ----------
    basis : bound dictionary of M atoms, its theta in the unit of `STARTS`.
    setting : rows, targets, bounds.
    seed : for the draws where rows or atoms are too many.
    verbose : whether to log each start.
    earlier : (p,) theta of an earlier fit, to start from there alone.
    """
    rng = np.random.default_rng(seed)
    setting = replace(setting, targets=[one for target in setting.targets for one in target.apart()])
    few, _, atoms = setting.part(basis, _FEW, _FEW, rng)
    part = basis.take(atoms) if len(atoms) < basis.n_atoms else basis
    starts = _starts(basis, setting) if earlier is None else [np.where(setting.free, earlier, basis.theta)]
    whole_at_once = len(atoms) == basis.n_atoms and len(few.X) == len(setting.X)
    with one_thread(), stage("widths", len(starts) + (not whole_at_once)):
        trials = _all_starts(part, few, starts, verbose)
        best = max(trials, key=lambda trial: trial.log_evidence)
        if not whole_at_once:
            enough = min(max(_FEW // 2, _SPARE * best.size), _MORE)  # few functions do where few are determined
            more, _, atoms = setting.part(basis, _MORE, enough, rng)
            best = _end_of(basis.take(atoms), more, best.theta, "widths on more rows", settle=True)
            best = _one_by_one(basis.take(atoms), more, best, basis.theta)
    all_rows = len(setting.X) <= _MORE and isinstance(setting.targets[0], GaussianTarget)
    noises = np.exp(-best.log_precisions[:, -1]) if all_rows else None
    return Learned(basis.with_theta(best.theta), Tuning(tuple(trials)), noises)


def _starts(basis: Basis, setting: Setting) -> list[np.ndarray]:
    """Parameters (p,) to start from, from narrow to wide."""
    unit, apart = basis.theta, _apart(basis)
    factors = sorted({*STARTS, *NARROW.get(setting.X.shape[1], ())})
    return [np.where(setting.free, unit + np.log(c) + apart, unit) for c in factors]


def _all_starts(basis: Basis, setting: Setting, starts: list[np.ndarray], verbose: bool) -> list[Trial]:
    """Where every start ends; the best gets a second chance for features whose width has run away."""
    unit, planned = basis.theta, len(starts)
    starts = [np.clip(start, setting.low, setting.high) for start in starts]
    trials: list[Trial] = []

    def end_of(chance: int, i: int) -> Trial | None:  # without time there is still the first one
        if i and setting.over:
            return None
        end = _end_of(basis, setting, starts[i], f"widths {chance} {i}")
        advance(more=int(len(trials) >= planned))
        return end

    for chance in range(1 + _CHANCES):
        before = max((trial.log_evidence for trial in trials), default=-np.inf)
        ends = map_in_threads(partial(end_of, chance), range(len(starts)), n_threads(), setting.stop)
        trials += [end for end in ends if end is not None]
        best = max(trials, key=lambda trial: trial.log_evidence)
        again = np.where(setting.free, np.minimum(best.theta, unit + np.log(_SECOND_CHANCE)), unit)
        if setting.over or best.log_evidence <= before + _BETTER or not np.any(again < best.theta):
            break
        starts = [again]
    if verbose:
        for i, trial in enumerate(trials):
            logger.info("widths: start %d evidence %.3f size %d", i + 1, trial.log_evidence, trial.size)
    return trials


def _one_by_one(basis: Basis, setting: Setting, best: Trial, unit: np.ndarray) -> Trial:
    """A second chance for one feature after the other, the most promising first.

    Where many features are idle, all of them at once make a worse kernel than none; and the slope of a weak or even
    effect vanishes at a width that has run away.
    """
    columns, held = Columns.of(basis, np.arange(basis.n_atoms)), replace(setting, free=np.zeros(len(unit), dtype=bool))

    def value(theta: np.ndarray) -> float:
        return -np.inf if setting.over else tied.climb(columns, theta, held, best.log_precisions).value

    for i in range(int(setting.free.sum())):
        narrow = unit + np.log(_SECOND_CHANCE)
        wide = np.flatnonzero(setting.free & (best.theta > narrow))
        thetas = [np.where(np.arange(len(unit)) == j, narrow, best.theta) for j in wide]
        values = map_in_threads(value, thetas, n_threads(), setting.stop)
        if setting.over or max(values, default=-np.inf) <= best.log_evidence + _ALONE:
            break
        best = _end_of(basis, setting, thetas[int(np.argmax(values))], f"widths one by one {i}", settle=True)
    return best


def _apart(basis: Basis) -> np.ndarray:
    """What keeps the parameters (p,) of equal kernels from going the same way: each part starts wider than the last."""
    apart, count = np.zeros(len(basis.theta)), 0
    for _, _, own in Columns.of(basis, np.arange(basis.n_atoms)).pieces:
        apart[own] = count * np.log(_APART)
        count += own.start != own.stop
    return apart


def _end_of(basis: Basis, setting: Setting, start: np.ndarray, name: str, settle: bool = False) -> Trial:
    """Where a climb of the tied evidence from a theta (p,) ends; kept in the checkpoint under a name.

    With ``settle`` the precisions come to rest before theta moves: the start is a good one, for other rows.
    """
    with checkpoint.section(name), checkpoint.open_cell() as cell:
        theta, logs, columns = start, None, Columns.of(basis, np.arange(basis.n_atoms))
        if cell.saved is not None:
            with refuse_bad_record():
                theta, logs = cell.saved["theta"], cell.saved["logs"]
                value, size = float(cell.saved["value"]), int(cell.saved["size"])
                shape = len(setting.targets), len(columns.pieces) + 1
                if theta.shape != start.shape or logs.shape != shape or not np.all(np.isfinite([*theta, *logs.flat])):
                    raise ValueError(f"parameters {theta}, precisions {logs}")
            if cell.saved["done"]:
                return Trial(start, theta, value, size, logs)
        elif settle:
            logs = tied.climb(columns, theta, replace(setting, free=np.zeros(len(theta), dtype=bool))).logs
        end = tied.climb(columns, theta, setting, logs)
        trial = Trial(start, end.theta, end.value, round(end.gamma), end.logs)
        record = {"theta": trial.theta, "logs": end.logs, "value": end.value, "size": trial.size}
        cell.store(dict, record | {"done": not setting.over}, now=True)
        return trial


def interleave(basis: Basis, setting: Setting, eta_steps: int = _ETA_STEPS, updates: int = _UPDATES):
    """T01 Appendix C: from every atom, a few steps on the widths after each update of the precisions.

    Gaussian targets only. Returns the basis and the models; nothing here keeps the evidence from falling.
    """
    design = _design(basis, setting)
    models = [target.everything(design) for target in setting.targets]
    values: list[float] = []
    for _ in range(updates):
        basis, found = _eta_steps(basis, setting, models, eta_steps)
        models = [e.updated for e in found]
        values.append(sum(e.value for e in found))
        if report(sum(len(m.active) for m in models), values[-1]):
            setting.stop.set()
        settled = len(values) > 15 and abs(values[-1] - values[-11]) < _SETTLED
        if settled or setting.over or not all(len(m.active) for m in models):
            break
    return basis, models


def _eta_steps(basis: Basis, setting: Setting, models: list, steps: int) -> tuple[Basis, list[Evaluated]]:
    """L-BFGS-B on the free parameters within a box, at fixed precisions."""
    theta = basis.theta
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    visited: list[tuple[float, np.ndarray, list[Evaluated]]] = []

    def minus_evidence(values: np.ndarray):
        full = theta.copy()
        full[setting.free] = values
        evaluated, slope = _evidence_and_gradient(columns, full, setting, models, settle=False)
        total = sum(e.value for e in evaluated)
        if not visited or total > visited[-1][0]:
            visited[:] = [(total, full, evaluated)]
        return -total, -slope[setting.free]

    minimize(minus_evidence, theta[setting.free], jac=True, method="L-BFGS-B", bounds=setting.within(theta, _BOX),
             options={"maxiter": steps, "maxcor": 20})  # fmt: skip
    return basis.with_theta(visited[-1][1]), visited[-1][2]


def evidence_and_gradient(
    basis: Basis, setting: Setting, models: list, settle: bool
) -> tuple[list[Evaluated], np.ndarray]:
    """The evidence of each target's model, and the derivative of their sum with respect to theta (p,)."""
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    return _evidence_and_gradient(columns, basis.theta, setting, models, settle)


def _evidence_and_gradient(
    columns: list[Columns], theta: np.ndarray, setting: Setting, models: list, settle: bool
) -> tuple[list[Evaluated], np.ndarray]:
    found, slope = [], np.zeros(len(theta))
    for own, target, model in zip(columns, setting.targets, models, strict=True):
        root = target.root
        design = DenseDesign(own(setting.X, theta) * root[:, None], overwrite=True)
        C, scale = design.columns(slice(None)), design.scale
        one = target.evaluate(C, model, settle)
        found.append(one)
        # columns are divided by their norms: only what changes their direction counts
        Phi_bar = one.C_bar - C * np.einsum("ij,ij->j", C, one.C_bar)
        Phi_bar *= root[:, None] / np.where(scale > 0.0, scale, np.inf)
        slope += own.theta_vjp(setting.X, theta, Phi_bar)  # T01 eq. (55)-(57)
    return found, slope


@dataclass(frozen=True, eq=False)
class Columns:
    """Some atoms of a basis as functions of its theta (p,): parts of it, where their columns stand, and their theta."""

    pieces: list[tuple[Basis, np.ndarray, slice]]
    n_atoms: int

    @classmethod
    def of(cls, basis: Basis, atoms: np.ndarray) -> Columns:
        """The given atoms (k,) of a bound basis."""
        if not isinstance(basis, Concat):
            return cls([(basis.take(atoms), np.arange(len(atoms)), slice(0, len(basis.theta)))], len(atoms))
        place = np.full(basis.n_atoms, -1)
        place[atoms] = np.arange(len(atoms))
        pieces, first = [], 0
        for part, where in zip(basis.parts, basis.part_columns(), strict=True):
            chosen = np.flatnonzero(place[where] >= 0)
            if chosen.size:  # a part may have parts of its own, and lose some of them
                for piece, among, own in cls.of(part, chosen).pieces:
                    pieces.append((piece, place[where[chosen[among]]], slice(first + own.start, first + own.stop)))
            first += len(part.theta)
        return cls(pieces, len(atoms))

    def __call__(self, X: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The columns (n, k) on the rows X."""
        Phi = np.empty((len(X), self.n_atoms))
        for part, where, own in self.pieces:
            Phi[:, where] = part.with_theta(theta[own])(X)
        return Phi

    def theta_vjp(self, X: np.ndarray, theta: np.ndarray, Phi_bar: np.ndarray) -> np.ndarray:
        """Derivatives of sum(Phi_bar * columns) with respect to theta (p,)."""
        slope = np.zeros(len(theta))
        for part, where, own in self.pieces:
            if own.start != own.stop:
                slope[own] = part.with_theta(theta[own]).vjp(X, Phi_bar[:, where])[0]
        return slope


def _design(basis: Basis, setting: Setting) -> DenseDesign:
    return DenseDesign(basis(setting.X) * setting.targets[0].root[:, None], overwrite=True)
