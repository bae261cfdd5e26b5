"""The fit of ``kernel="auto"`` for classes: a process chosen by the log density of rows that took no part."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from relvec.basis import Concat, KernelBasis
from relvec.estimators.fitted import FittedModel
from relvec.estimators.options import FitOptions
from relvec.estimators.processes.regression import (
    COPIES,
    SENSITIVITY_ROWS,
    allows_process,
    as_shares,
    find_rows,
    model_of_processes,
    warn_unless_complete,
)
from relvec.estimators.sources import MemorySource
from relvec.gaussian_process.classes import ClassModel, GivenKernel, fit_classes
from relvec.gaussian_process.classes.expansion import ExpandedMember, expand_members, log_prior_odds
from relvec.gaussian_process.classes.fit import vector_row_bytes
from relvec.gaussian_process.kernel import Shape
from relvec.gaussian_process.streamed import LEAST_VECTORS
from relvec.kernels import Gaussian, as_kernel
from relvec.runtime.clock import Clock
from relvec.runtime.machine import one_thread, room_for_vectors
from relvec.runtime.progress import report, stage

_MATERN_SHAPES: dict[Any, str] = {1.5: Shape.MATERN32, 2.5: Shape.MATERN52}
# Rows times classes. A fit of fewer is a chain of small products, in which threads of BLAS wait for each other: on a
# busy machine two of them took forty times the CPU seconds of one.
MAX_ONE_THREAD_ROWS = 10_000
WIDTH_RULE = "density"  # the widths belong to the process of most density at rows that took no part


def fit_class_process(options: FitOptions, source: MemorySource) -> FittedModel | None:
    """A process for classes; None where the rows do not allow for one, or are to be worked on by a device."""
    if source.place is not None or not allows_process(source.X):
        if options.asks_class_process:
            raise ValueError(
                "predictive='process' needs rows in memory and a column that varies, without device=; "
                "leave it at 'auto' to have the relevance vector machine there"
            )
        return None
    kernel = None if options.chooses_kernel else read_kernel(options, source)
    labels = source.targets[:, 0].astype(int) if source.single else source.targets.argmax(axis=1)
    n_classes = 2 if source.single else source.n_targets
    small = source.n_rows * n_classes <= MAX_ONE_THREAD_ROWS
    with one_thread() if small else nullcontext(), stage("process"):
        model = fit_classes(
            source.X, labels, n_classes, source.weights, earlier=_earlier(options, n_classes),
            max_vectors=options.max_vectors, kernel=kernel, room=_room(options, source, n_classes),
            clock=Clock(options.time_limit, lambda name, fraction: report(fraction=fraction)),
        )  # fmt: skip
        if not model.members:
            return None
        report(model.n_vectors, model.members[0].model.log_evidence, 1.0)
    warn_unless_complete(model)
    return _assemble(source, model, "given" if kernel is not None and kernel.lengths is not None else WIDTH_RULE)


def read_kernel(options: FitOptions, source: MemorySource) -> GivenKernel:
    """The covariance of the log-odds that the parameters kernel and width ask for; its widths are held if numbers."""
    learned = {"learn": False, "learn-per-feature": True, "auto": None}
    kernel: Any = as_kernel(options.kernel, "scale" if options.width == "auto" else options.width)
    shape = Shape.GAUSSIAN if isinstance(kernel, Gaussian) else _MATERN_SHAPES.get(getattr(kernel, "nu", None))
    if shape is None:
        raise ValueError(
            f"predictive='process' has the kernels gaussian, matern32 and matern52 for classes, got {options.kernel!r}"
        )
    rule = options.width if isinstance(options.kernel, str) else kernel.width
    if isinstance(rule, str) and rule in learned:
        return GivenKernel(shape, per_input=learned[rule])
    width = kernel.resolve(source.X, source.weights).width
    lengths = np.broadcast_to(np.asarray(width, dtype=float), source.X.shape[1:]).copy()
    return GivenKernel(shape, lengths / np.sqrt(2.0) if shape == Shape.GAUSSIAN else lengths)  # r^2 = 2 l^2


def _room(options: FitOptions, source: MemorySource, n_classes: int) -> float:
    """Bytes of the memory limit for the matrices of a fit."""
    numbers, least = COPIES * (source.n_features + 2) + 3 * n_classes, LEAST_VECTORS * vector_row_bytes(n_classes)
    return room_for_vectors(options.memory_limit, source.n_rows, numbers, least)


def _earlier(options: FitOptions, n_classes: int) -> ClassModel | None:
    """The process of so many classes that a warm start begins with."""
    found = None if options.earlier is None else options.earlier.processes
    if found and isinstance(found[0], ClassModel) and len(found[0].base_rates) == n_classes:
        return found[0]
    return None


@np.errstate(over="ignore", invalid="ignore")  # weights that overflow are refused
def _assemble(source: MemorySource, model: ClassModel, width_rule: str) -> FittedModel:
    """The process as a model, the means of its latent functions as weights of one basis."""
    X, numbers = model.units.inputs(source.X + 0.0), np.arange(source.n_rows)  # + 0.0: no -0.0
    rows = [find_rows(X, numbers, member.model.vectors) for member in model.members]
    found = [(source.numbers[at], source.X[at]) for at in rows]
    parts = expand_members(model, source.n_features, found, variance=False)
    basis = Concat(tuple(part.basis for part in parts), n_features=source.n_features)
    weights, intercept = _sum_weights(model, parts, basis.n_atoms)
    kernels = [p.kernel for part in parts for p in part.basis.parts if isinstance(p, KernelBasis)]  # type: ignore[attr-defined]
    processes = [member.model for member in model.members]
    vectors = np.unique(np.concatenate([source.numbers[at] for at in rows]))
    return model_of_processes(
        source,
        basis,
        vectors,
        predictors=[model],
        weights=weights,
        intercept=intercept,
        noise_variance=np.array([np.nan]),
        log_evidence=np.array([processes[0].log_evidence]),
        certificate=np.array([max(process.gain for process in processes)]),
        n_iter=np.array([model.selection.evaluations]),
        status=[model.status],
        processes=[model],
        kernel=kernels[0] if kernels else None,
        width=np.array(kernels[0].width) if kernels else None,  # type: ignore[attr-defined]
        feature_relevance=_measure_sensitivity(model, source.X),
        width_rule=width_rule if kernels else None,
        selection=[model.selection],
    )


def _sum_weights(model: ClassModel, parts: list[ExpandedMember], n_atoms: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (R, m) of the sum of the members' means, and the constant (R,) in it, base rates included."""
    rates = log_prior_odds(model)
    weights, intercept, at = np.zeros((len(rates), n_atoms)), rates.copy(), 0
    for part in parts:
        end = at + part.basis.n_atoms
        for function, expansion in enumerate(part.functions):
            weights[function, at:end] = part.slope * expansion.weights
            intercept[function] += part.slope * expansion.weights[-1]
        at = end
    weights[:, -1] += rates
    return weights, intercept


def _measure_sensitivity(model: ClassModel, X: np.ndarray) -> np.ndarray:
    """Share of each input (d,) in the mean squared slope of the mean log-odds at distinct rows, in standard deviations.

    For more than two classes those of every class beside the average class.
    """
    distinct = np.unique(X, axis=0)
    some = model.units.inputs(distinct[:: -(-len(distinct) // SENSITIVITY_ROWS)])
    slopes = sum((m.share * m.calibration.slope * m.model.slopes(some) for m in model.members), np.zeros(1))
    found = np.zeros(X.shape[1])
    if len(slopes) > 1:
        slopes = slopes - slopes.mean(axis=0)
    if model.members:
        found[model.units.columns] = np.mean(slopes**2, axis=(0, 1))
    return as_shares(found)
