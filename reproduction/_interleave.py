"""Widths and precisions in turn: T01 Appendix C, to compare with `relvec.hyperparameters.widths`."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from relvec import RVR
from relvec.basis import Basis, Bias, Concat, KernelBasis
from relvec.design import DenseDesign
from relvec.estimators.gaussian import gaussian_problem
from relvec.estimators.options import machine_options
from relvec.estimators.sources.base import target_units
from relvec.hyperparameters.shared_precision import Columns
from relvec.hyperparameters.targets import EvaluatedModel, GaussianTarget
from relvec.hyperparameters.widths import WidthProblem
from relvec.inference.evidence import gaussian, mackay_alpha, mackay_noise
from relvec.inference.predictive import AugmentedPredictor, LinearPredictor
from relvec.kernels import Gaussian
from relvec.runtime.progress import report
from relvec.solvers.loop import Start

LOG_BOX = 0.5  # log units a width may move within one update
WIDTH_STEPS = 5  # of L-BFGS-B within the same (T01 C: 1 to 5)
MAX_UPDATES = 150
MAX_PRECISION = 1e9  # for unit columns, beyond which an atom is dropped
SETTLED_NATS = 0.5  # in ten updates: the interleaving ends


def fit_interleaved(
    X: np.ndarray, y: np.ndarray, width_steps: int = WIDTH_STEPS, start: float = 1.0
) -> AugmentedPredictor:
    """RVM* over the RVM where the interleaving ends, from `start` times the widths of `width="scale"`.

    Its `model` is the RVM itself.
    """
    weights = np.ones(len(y))
    (unit,), (variance,) = target_units(y[:, None], weights)
    options = machine_options(RVR().get_params(deep=False), classes=False, earlier=None)
    problem = gaussian_problem(options, unit, variance, len(y))
    basis = Concat((KernelBasis(Gaussian(width="learn-per-feature")), Bias())).bind(X)
    basis = basis.with_theta(basis.theta + np.log(start))
    target = GaussianTarget(y / unit, weights, problem)
    basis, (end,) = interleave(basis, WidthProblem.of(basis, X, [target], np.ones(len(basis.theta), bool)), width_steps)
    kept = basis.take(end.active)
    Phi = kept(X)
    scale = np.linalg.norm(Phi, axis=0)
    p = gaussian(Phi / scale, y / unit, 0.0, len(y), end.alpha, end.beta)
    rvm = LinearPredictor(basis=kept, scale=scale, unit=unit, mean=p.mean, root=p.root, noise=1.0 / end.beta)
    kernel = Gaussian(width=tuple(np.exp(basis.theta)))
    return AugmentedPredictor(rvm, kernel, X, weights, p.remainder, end.alpha, 1.0 / variance)


def interleave(basis: Basis, setting: WidthProblem, width_steps: int = WIDTH_STEPS, updates: int = MAX_UPDATES):
    """T01 Appendix C: from every atom, a few steps on the widths after each update of the precisions.

    Gaussian targets only. Returns the basis and the models; nothing here keeps the evidence from falling.
    """
    models = [_all_atoms(basis, setting, target) for target in setting.targets]
    values: list[float] = []
    for _ in range(updates):
        basis, found = _climb_at_fixed_precisions(basis, setting, models, width_steps)
        models = [_updated(basis, setting, *pair) for pair in zip(setting.targets, models, strict=True)]
        values.append(sum(e.value for e in found))
        if report(sum(len(m.active) for m in models), values[-1]):
            setting.stop.set()
        settled = len(values) > 15 and abs(values[-1] - values[-11]) < SETTLED_NATS
        if settled or setting.must_stop or not all(len(m.active) for m in models):
            break
    return basis, models


def _climb_at_fixed_precisions(
    basis: Basis, setting: WidthProblem, models: list, steps: int
) -> tuple[Basis, list[EvaluatedModel]]:
    """L-BFGS-B on the free parameters within a box, at fixed precisions."""
    theta = basis.theta
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    visited: list[tuple[float, np.ndarray, list[EvaluatedModel]]] = []

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
) -> tuple[list[EvaluatedModel], np.ndarray]:
    """Return the evidence of each target's model, and the derivative of their sum with respect to theta (p,)."""
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    return _evidence_and_gradient(columns, basis.theta, setting, models, settle)


def _evidence_and_gradient(
    columns: list[Columns], theta: np.ndarray, setting: WidthProblem, models: list, settle: bool
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
