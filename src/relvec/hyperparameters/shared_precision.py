"""Widths by the evidence of the whole dictionary, the precisions of a kernel's functions tied to one.

T01 C climbs on the scales while every precision goes its own way. That surface has many maxima, and the highest are not
the best: a precision a function is enough freedom to fit the noise with. Where all precisions of a kernel are one, as
before the first update of eq. (16), the model is the Gaussian process with covariance Phi Phi' / alpha (RQ05 eq. (8)):
its evidence has few maxima over the widths, and one amplitude and the noise beside them. The search for a sparse
model comes after, at the widths found.

Functions without widths, such as the constant and the powers of the inputs, have one precision a part of the
dictionary, for columns of unit root mean square.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from relvec.basis import Basis, Concat
from relvec.inference.ascent import Summit, ascend
from relvec.runtime.progress import report

if TYPE_CHECKING:
    from relvec.hyperparameters.widths import WidthProblem

MAX_STEPS = 60  # of L-BFGS-B
MIN_STEP_GAIN_NATS = 1e-3  # a step must gain so much to be followed by another
MAX_LOG_PRECISION_CHANGE = np.log(1e6)  # how far, in log units, a precision may go from its start


@dataclass(frozen=True, eq=False)
class Columns:
    """Some atoms of a basis as functions of its theta (p,): parts of it, where their columns stand, and their theta."""

    pieces: list[tuple[Basis, np.ndarray, slice]]
    n_atoms: int

    @classmethod
    def of(cls, basis: Basis, atoms: np.ndarray) -> Columns:
        """Return the given atoms (k,) of a bound basis."""
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
        """Return the columns (n, k) on the rows X."""
        Phi = np.empty((len(X), self.n_atoms))
        for part, where, own in self.pieces:
            Phi[:, where] = part.with_theta(theta[own])(X)
        return Phi

    def theta_vjp(self, X: np.ndarray, theta: np.ndarray, Phi_bar: np.ndarray) -> np.ndarray:
        """Return the derivatives of sum(Phi_bar * columns) with respect to theta (p,)."""
        slope = np.zeros(len(theta))
        for part, where, own in self.pieces:
            if own.start != own.stop:
                slope[own] = part.with_theta(theta[own]).vjp(X, Phi_bar[:, where])[0]
        return slope


@dataclass(frozen=True, eq=False)
class Climb:
    """Where a climb ended: theta (p,), the evidence of all targets, the well-determined weights, log precisions."""

    theta: np.ndarray
    value: float
    gamma: float
    logs: np.ndarray


@dataclass(frozen=True, eq=False)
class SharedPrecisionEvidence:
    """The tied evidence of Gaussian targets on X, over theta (p,), log precisions (K, G) and log noise precisions."""

    columns: Columns  # all M functions
    setting: WidthProblem  # rows, targets and the bounds of theta
    group: np.ndarray  # (M,) which of the G precisions a function has
    unit: np.ndarray  # (M,) what its column is multiplied by
    modes: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Columns, theta: np.ndarray, setting: WidthProblem) -> SharedPrecisionEvidence:
        """With groups by part of the dictionary."""
        group, unit = np.zeros(columns.n_atoms, dtype=np.intp), np.ones(columns.n_atoms)
        Phi = columns(setting.X, theta)
        for g, (_, where, own) in enumerate(columns.pieces):
            group[where] = g
            if own.start == own.stop:
                size = np.sqrt(np.mean(Phi[:, where] ** 2, axis=0))
                unit[where] = 1.0 / np.where(size > 0.0, size, 1.0)
        return cls(columns, setting, group, unit)

    def start(self, theta: np.ndarray) -> np.ndarray:
        """Log precisions (K, G + 1), the noise's last, at which each part varies as much as the target."""
        Phi, n_groups = self.columns(self.setting.X, theta) * self.unit, self.group.max() + 1
        spread = np.bincount(self.group, Phi.var(axis=0), n_groups)
        whole = np.bincount(self.group, np.mean(Phi**2, axis=0), n_groups)
        spread = np.where(spread > 1e-12 * whole, spread, np.where(whole > 0.0, whole, 1.0))  # the constant
        return np.array([[*np.log(spread), np.log(target.noise_precisions[1])] for target in self.setting.targets])

    def bounds(self, start: np.ndarray) -> list[tuple[float, float]]:
        """Of everything, in the order of `evaluate`'s point."""
        found = self.setting.bounds_near(np.zeros(len(self.setting.low)), np.inf)
        for target, own in zip(self.setting.targets, start, strict=True):
            found += [(value - MAX_LOG_PRECISION_CHANGE, value + MAX_LOG_PRECISION_CHANGE) for value in own[:-1]]
            low, _, high = target.noise_precisions
            found.append((np.log(low), np.log(high)))
        return found

    def evaluate(self, theta: np.ndarray, logs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        """Return the evidence, its derivatives by theta (p,) and logs (K, G + 1), and the well-determined."""
        X, value, determined, by_log = self.setting.X, 0.0, 0.0, np.zeros_like(logs)
        scale = self.setting.targets[0].root[:, None] * self.unit  # outputs share the sample weights
        Phi = self.columns(X, theta) * scale
        Phi_bar = np.zeros_like(Phi)
        for i, (target, own) in enumerate(zip(self.setting.targets, logs, strict=True)):
            whole = target.evaluate_all(Phi, np.exp(own[self.group]), float(np.exp(own[-1])), self.modes.get(i))
            self.modes[i] = whole.mean
            value += whole.value
            determined += whole.gamma
            Phi_bar += whole.Phi_bar
            by_log[i, :-1] = np.bincount(self.group, whole.by_alpha, logs.shape[1] - 1)
            by_log[i, -1] = whole.by_beta
        return value, self.columns.theta_vjp(X, theta, Phi_bar * scale), by_log, determined


def climb_evidence(columns: Columns, theta: np.ndarray, setting: WidthProblem, logs: np.ndarray | None = None) -> Climb:
    """L-BFGS-B on the free parameters from theta (p,), the precisions and the noise beside them.

    Those begin at ``logs`` (K, G + 1), or where each part of the dictionary varies as much as the target. The climb
    ends at a maximum, or where the time is up.
    """
    tied = SharedPrecisionEvidence.of(columns, theta, setting)
    usual = tied.start(theta)
    logs = usual if logs is None else logs
    n_free = int(setting.free.sum())

    def evidence(point: np.ndarray) -> tuple[float, np.ndarray, Climb]:
        full, own = theta.copy(), point[n_free:].reshape(usual.shape)
        full[setting.free] = point[:n_free]
        value, by_theta, by_log, determined = tied.evaluate(full, own)
        slope = np.concatenate([by_theta[setting.free], by_log.ravel()])
        return value, slope, Climb(full, value, determined, own.copy())

    def is_over(summit: Summit[Climb]) -> bool:
        if report(round(summit.found.gamma), summit.value):
            setting.stop.set()
        return setting.must_stop

    start = np.concatenate([theta[setting.free], logs.ravel()])
    scale = max(1.0, sum(target.n_samples for target in setting.targets))
    return ascend(evidence, start, tied.bounds(usual), Climb(theta, -np.inf, 0.0, logs), is_over, maxiter=MAX_STEPS,
                  ftol=MIN_STEP_GAIN_NATS / scale).found  # fmt: skip
