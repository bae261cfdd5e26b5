"""Predictive distributions on the vectors of a relevance vector machine: RVM* and the process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relvec.basis import Basis
from relvec.inference.predictive import Augmented, AugmentedPredictor, LinearPredictor
from relvec.inference.process import Process, ProcessPredictor, TrainingRows, process_predictor
from relvec.kernels import Kernel
from relvec.runtime.progress import stage


def augment(
    spec: Augmented, functions: Sequence[LinearPredictor], alphas: np.ndarray, kernel: Kernel, X: np.ndarray,
    weights: np.ndarray, targets: np.ndarray, variances: np.ndarray,
) -> list[AugmentedPredictor]:  # fmt: skip
    """RVM* (RQ05) of the model of each output, with precisions alphas (q, m), on targets (q, n) in their units."""
    root, found = np.sqrt(weights), []
    for model, t, variance, alpha in zip(functions, targets, variances, alphas, strict=True):
        if spec.alpha is None:
            star = 1.0 / variance if variance > 0.0 else np.inf
        else:
            star = None if isinstance(spec.alpha, str) else float(spec.alpha) * model.unit**2
        with np.errstate(over="ignore", under="ignore"):
            precision = np.where(np.isfinite(alpha), alpha, 0.0) * (model.unit / model.scale) ** 2
        remainder = root * (t - model.columns(X) @ model.mean)
        found.append(AugmentedPredictor(model, kernel, X, root, remainder, precision, star))
    return found


def condition(
    spec: Process, functions: Sequence[LinearPredictor], alphas: np.ndarray, basis: Basis,
    kernels: tuple[Kernel, ...], intercept: bool, X: np.ndarray, weights: np.ndarray, targets: np.ndarray,
    variances: np.ndarray, floors: Sequence[float | None],
) -> tuple[list, list[ProcessPredictor | None]]:  # fmt: skip
    """Processes on the relevance vectors of each output, and what predicts it: its model where it has no vectors."""
    processes: list[ProcessPredictor | None] = []
    for i, model in enumerate(functions):
        own = np.flatnonzero(np.isfinite(alphas[i]))
        rows = TrainingRows(X, targets[i], weights, np.zeros((len(X), 0)))
        weight = model.mean[own] / model.scale[own]
        with stage("process", shift=-weights.sum() * np.log(model.unit)):
            found = own.size and process_predictor(
                spec, kernels, basis.take(own), weight, rows, intercept, model.unit, variances[i], model.noise,
                floors[i])  # fmt: skip
        processes.append(found or None)
    return [process or model for process, model in zip(processes, functions, strict=True)], processes
