"""Widths and precisions in turn: T01 Appendix C, to compare with `relvec.hyperparameters.widths`."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from relvec.basis import Basis
from relvec.design import DenseDesign
from relvec.hyperparameters.shared_precision import Columns
from relvec.hyperparameters.targets import Evaluated
from relvec.hyperparameters.widths import WidthProblem
from relvec.runtime.progress import report

LOG_BOX = 0.5  # log units a width may move within one update
WIDTH_STEPS = 5  # of L-BFGS-B within the same (T01 C: 1 to 5)
MAX_UPDATES = 150
SETTLED_NATS = 0.5  # in ten updates: the interleaving ends


def interleave(basis: Basis, setting: WidthProblem, width_steps: int = WIDTH_STEPS, updates: int = MAX_UPDATES):
    """T01 Appendix C: from every atom, a few steps on the widths after each update of the precisions.

    Gaussian targets only. Returns the basis and the models; nothing here keeps the evidence from falling.
    """
    design = _design(basis, setting)
    models = [target.all_atoms(design) for target in setting.targets]
    values: list[float] = []
    for _ in range(updates):
        basis, found = _climb_at_fixed_precisions(basis, setting, models, width_steps)
        models = [e.updated for e in found]
        values.append(sum(e.value for e in found))
        if report(sum(len(m.active) for m in models), values[-1]):
            setting.stop.set()
        settled = len(values) > 15 and abs(values[-1] - values[-11]) < SETTLED_NATS
        if settled or setting.must_stop or not all(len(m.active) for m in models):
            break
    return basis, models


def _climb_at_fixed_precisions(
    basis: Basis, setting: WidthProblem, models: list, steps: int
) -> tuple[Basis, list[Evaluated]]:
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

    minimize(minus_evidence, theta[setting.free], jac=True, method="L-BFGS-B",
             bounds=setting.bounds_near(theta, LOG_BOX), options={"maxiter": steps, "maxcor": 20})  # fmt: skip
    return basis.with_theta(visited[-1][1]), visited[-1][2]


def evidence_and_gradient(
    basis: Basis, setting: WidthProblem, models: list, settle: bool
) -> tuple[list[Evaluated], np.ndarray]:
    """The evidence of each target's model, and the derivative of their sum with respect to theta (p,)."""
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    return _evidence_and_gradient(columns, basis.theta, setting, models, settle)


def _evidence_and_gradient(
    columns: list[Columns], theta: np.ndarray, setting: WidthProblem, models: list, settle: bool
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


def _design(basis: Basis, setting: WidthProblem) -> DenseDesign:
    return DenseDesign(basis(setting.X) * setting.targets[0].root[:, None], overwrite=True)
