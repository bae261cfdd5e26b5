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
from scipy.optimize import minimize

from relvec.runtime.progress import report

if TYPE_CHECKING:
    from relvec.hyperparameters.widths import Columns, Setting

_STEPS = 60  # of L-BFGS-B
_ENOUGH = 1e-3  # nats a step must gain to be followed by another
_REACH = np.log(1e6)  # how far, in log units, a precision may go from its start


@dataclass(frozen=True, eq=False)
class Climb:
    """Where a climb ended: theta (p,), the evidence of all targets, the well-determined weights, log precisions."""

    theta: np.ndarray
    value: float
    gamma: float
    logs: np.ndarray


@dataclass(frozen=True, eq=False)
class Tied:
    """The tied evidence of Gaussian targets on rows X, over theta (p,), log precisions (K, G) and log noise precisions.

    Attributes
    ----------
    columns : all M functions.
    setting : rows, targets and the bounds of theta.
    group : (M,) which of the G precisions a function has.
    unit : (M,) what its column is multiplied by.
    """

    columns: Columns
    setting: Setting
    group: np.ndarray
    unit: np.ndarray
    modes: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, columns: Columns, theta: np.ndarray, setting: Setting) -> Tied:
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
        return np.array([[*np.log(spread), np.log(target.betas[1])] for target in self.setting.targets])

    def bounds(self, start: np.ndarray) -> list[tuple[float, float]]:
        """Of everything, in the order of `evaluate`'s point."""
        found = self.setting.within(np.zeros(len(self.setting.low)), np.inf)
        for target, own in zip(self.setting.targets, start, strict=True):
            found += [(value - _REACH, value + _REACH) for value in own[:-1]]
            low, _, high = target.betas
            found.append((np.log(low), np.log(high)))
        return found

    def evaluate(self, theta: np.ndarray, logs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        """The evidence, its derivatives with respect to theta (p,) and logs (K, G + 1), and the well-determined."""
        X, value, determined, by_log = self.setting.X, 0.0, 0.0, np.zeros_like(logs)
        scale = self.setting.targets[0].root[:, None] * self.unit  # outputs share the sample weights
        Phi = self.columns(X, theta) * scale
        Phi_bar = np.zeros_like(Phi)
        for i, (target, own) in enumerate(zip(self.setting.targets, logs, strict=True)):
            whole = target.whole(Phi, np.exp(own[self.group]), float(np.exp(own[-1])), self.modes.get(i))
            self.modes[i] = whole.mean
            value += whole.value
            determined += whole.gamma
            Phi_bar += whole.Phi_bar
            by_log[i, :-1] = np.bincount(self.group, whole.by_alpha, logs.shape[1] - 1)
            by_log[i, -1] = whole.by_beta
        return value, self.columns.theta_vjp(X, theta, Phi_bar * scale), by_log, determined


def climb(columns: Columns, theta: np.ndarray, setting: Setting, logs: np.ndarray | None = None) -> Climb:
    """L-BFGS-B on the free parameters from theta (p,), the precisions and the noise beside them.

    Those begin at ``logs`` (K, G + 1), or where each part of the dictionary varies as much as the target. The climb
    ends at a maximum, or where the time is up.
    """
    tied = Tied.of(columns, theta, setting)
    usual = tied.start(theta)
    logs = usual if logs is None else logs
    n_free = int(setting.free.sum())
    best = Climb(theta, -np.inf, 0.0, logs)

    def minus_evidence(point: np.ndarray):
        nonlocal best
        full, own = theta.copy(), point[n_free:].reshape(usual.shape)
        full[setting.free] = point[:n_free]
        value, by_theta, by_log, determined = tied.evaluate(full, own)
        if value > best.value:
            best = Climb(full, value, determined, own.copy())
        return -value, -np.concatenate([by_theta[setting.free], by_log.ravel()])

    def watch(intermediate_result) -> None:
        if report(round(best.gamma), best.value):
            setting.stop.set()
        if setting.over:
            raise StopIteration

    start = np.concatenate([theta[setting.free], logs.ravel()])
    scale = max(1.0, sum(target.n_samples for target in setting.targets))
    minimize(minus_evidence, start, jac=True, method="L-BFGS-B", bounds=tied.bounds(usual), callback=watch,
             options={"maxiter": _STEPS, "maxcor": 20, "ftol": _ENOUGH / scale})  # fmt: skip
    return best
