"""Widths and precisions in turn: T01 Appendix C.

From every atom, each round updates the precisions and the noise once by T01 eq. (16)-(18) and then takes a few steps of
L-BFGS-B on the widths at these precisions. Nothing keeps the evidence from falling, and the end depends on the number
of steps and on the start, of which T01 says the first (1 to 5) alone. `relvec.hyperparameters.widths` is compared with
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from relvec.basis import Basis
from relvec.design import DenseDesign
from relvec.hyperparameters.shared_precision import Columns
from relvec.hyperparameters.targets import EvaluatedModel, GaussianTarget
from relvec.hyperparameters.widths import TunedBasis, WidthProblem
from relvec.inference.evidence import gaussian, mackay_alpha, mackay_noise
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import report, stage
from relvec.solvers.loop import Start

LOG_BOX = 0.5  # log units a width may move within one round
MAX_ROUNDS = 150
MIN_ROUNDS = 15
MAX_PRECISION = 1e9  # for unit columns, beyond which an atom is dropped
SETTLED_NATS = 0.5  # in ten rounds: the interleaving ends


@dataclass(frozen=True)
class Interleaved:
    """A width for each feature by T01 Appendix C; ``width="interleaved"`` is this as it comes.

    Parameters
    ----------
    steps : int, default 5
        Steps on the widths after each update of the precisions (T01: 1 to 5).
    start : float, default 1.0
        Widths to start from, in units of those of ``width="scale"``.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> from relvec.hyperparameters.interleaving import Interleaved
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (60, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    >>> model = RVR(width=Interleaved(steps=1), solver="mackay").fit(X, y)
    >>> bool(model.width_[1] > 3 * model.width_[0]), model.width_rule_
    (True, 'interleaved')
    """

    steps: int = 5
    start: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int | np.integer) or self.steps < 1:
            raise ValueError(f"steps must be an integer >= 1, got {self.steps!r}")
        if not isinstance(self.start, int | float | np.number) or not 0.0 < self.start < np.inf:
            raise ValueError(f"start must be a positive number, got {self.start!r}")


@dataclass(frozen=True, eq=False)
class Interleaving:
    """The way of an interleaving: the evidence of the scaled targets (rounds,) and the number of atoms (rounds,).

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> model = RVR(width="interleaved", solver="mackay").fit(X, np.sin(X[:, 0]) + 0.05 * np.cos(40.0 * X[:, 0]))
    >>> way = model.tuning_
    >>> len(way.size) == len(way.log_evidence), bool(way.size[-1] < way.size[0])
    (True, True)
    """

    log_evidence: np.ndarray
    size: np.ndarray


def interleave(basis: Basis, setting: WidthProblem, settings: Interleaved) -> TunedBasis:
    """Learn widths by T01 Appendix C, for Gaussian targets.

    Returns the basis, the models of all targets where it ends, and the way.
    """
    basis = basis.with_theta(basis.theta + np.where(setting.free, np.log(settings.start), 0.0))
    models = [_all_atoms(basis, setting, target) for target in setting.targets]
    values: list[float] = []
    sizes: list[int] = []
    with one_thread(), stage("widths"):
        for _ in range(MAX_ROUNDS):
            basis, found = _climb_at_fixed_precisions(basis, setting, models, settings.steps)
            models = [_updated(basis, setting, *pair) for pair in zip(setting.targets, models, strict=True)]
            values.append(sum(e.value for e in found))
            sizes.append(sum(len(m.active) for m in models))
            if report(sizes[-1], values[-1]):
                setting.stop.set()
            settled = len(values) > MIN_ROUNDS and abs(values[-1] - values[-11]) < SETTLED_NATS
            if settled or setting.must_stop or not all(len(m.active) for m in models):
                break
    return TunedBasis(basis, Interleaving(np.array(values), np.array(sizes)), models=models)


def evidence_and_gradient(
    basis: Basis, setting: WidthProblem, models: list, settle: bool = False
) -> tuple[list[EvaluatedModel], np.ndarray]:
    """Return the evidence of each target's model, and the derivative of their sum with respect to theta (p,)."""
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    return _evaluate(columns, basis.theta, setting, models, settle)


def _climb_at_fixed_precisions(
    basis: Basis, setting: WidthProblem, models: list, steps: int
) -> tuple[Basis, list[EvaluatedModel]]:
    """L-BFGS-B on the free parameters within a box, at fixed precisions."""
    theta = basis.theta
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    visited: list[tuple[float, np.ndarray, list[EvaluatedModel]]] = []

    def minus_evidence(values: np.ndarray) -> tuple[float, np.ndarray]:
        full = theta.copy()
        full[setting.free] = values
        evaluated, slope = _evaluate(columns, full, setting, models)
        total = sum(e.value for e in evaluated)
        if not visited or total > visited[-1][0]:
            visited[:] = [(total, full, evaluated)]
        return -total, -slope[setting.free]

    minimize(minus_evidence, theta[setting.free], jac=True, method="L-BFGS-B",
             bounds=setting.bounds_near(theta, LOG_BOX), options={"maxiter": steps, "maxcor": 20})  # fmt: skip
    return basis.with_theta(visited[-1][1]), visited[-1][2]


def _evaluate(
    columns: list[Columns], theta: np.ndarray, setting: WidthProblem, models: list, settle: bool = False
) -> tuple[list[EvaluatedModel], np.ndarray]:
    found, slope = [], np.zeros(len(theta))
    for own, target, model in zip(columns, setting.targets, models, strict=True):
        root, design = target.root, _design(own, theta, setting)
        C, scale = design.columns(slice(None)), design.scale
        one = target.evaluate(C, model, settle)
        found.append(one)
        # columns are divided by their norms: only what changes their direction counts
        Phi_bar = one.C_bar - C * np.einsum("ij,ij->j", C, one.C_bar)
        Phi_bar *= root[:, None] / np.where(scale > 0.0, scale, np.inf)
        slope += own.theta_vjp(setting.X, theta, Phi_bar)  # T01 eq. (55)-(57)
    return found, slope


def _design(columns: Columns, theta: np.ndarray, setting: WidthProblem) -> DenseDesign:
    return DenseDesign(columns(setting.X, theta) * setting.targets[0].root[:, None], overwrite=True)


def _all_atoms(basis: Basis, setting: WidthProblem, target: GaussianTarget) -> Start:
    """Every atom, at precisions so small that the data decide."""
    scale = _design(Columns.of(basis, np.arange(basis.n_atoms)), basis.theta, setting).scale
    active = np.flatnonzero(scale > 0.0)
    return Start(active, np.full(len(active), 1.0 / target.n_samples), target.first_beta)


def _updated(basis: Basis, setting: WidthProblem, target: GaussianTarget, model: Start) -> Start:
    """Return the model after one update of T01 eq. (16)-(18), without the atoms whose precision has become large."""
    C = _design(Columns.of(basis, model.active), basis.theta, setting).columns(slice(None))
    p = gaussian(C, target.root * target.target, target.rest, target.n_samples, model.alpha, model.beta)
    beta = p.beta
    if not target.problem.fixed_noise:
        noise = mackay_noise(p.residual, target.n_samples, p.gamma.sum())  # T01 eq. (18)
        beta = 1.0 / max(noise, target.problem.noise_floor)
    alpha = mackay_alpha(p.gamma, p.mean)  # T01 eq. (16)
    alive = (alpha < MAX_PRECISION) & (alpha > 0.0)
    return Start(model.active[alive], alpha[alive], beta)
