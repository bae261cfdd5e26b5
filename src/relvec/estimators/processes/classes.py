"""The fit of `GPClassifier`: a process chosen by the log density of rows that took no part."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from relvec.estimators.options import ProcessOptions
from relvec.estimators.processes.regression import (
    COPIES,
    SENSITIVITY_ROWS,
    as_shares,
    check_sizes,
    find_rows,
    warn_unless_complete,
)
from relvec.estimators.records import FittedProcess
from relvec.estimators.sources import MemorySource
from relvec.gaussian_process.classes import ClassModel, GivenKernel, fit_classes
from relvec.gaussian_process.classes.fit import vector_row_bytes
from relvec.gaussian_process.expansion import part_kernel
from relvec.gaussian_process.kernel import Shape
from relvec.gaussian_process.streamed import LEAST_VECTORS
from relvec.kernels import Gaussian, as_kernel
from relvec.runtime.machine import one_thread, room_for_vectors
from relvec.runtime.progress import report, stage

_MATERN_SHAPES: dict[Any, str] = {1.5: Shape.MATERN32, 2.5: Shape.MATERN52}
# Rows times classes. A fit of fewer is a chain of small products, in which threads of BLAS wait for each other: on a
# busy machine two of them took forty times the CPU seconds of one.
MAX_ONE_THREAD_ROWS = 10_000
WIDTH_RULE = "density"  # the widths belong to the process of most density at rows that took no part


def fit_class_process(options: ProcessOptions, source: MemorySource) -> FittedProcess:
    """Fit a process to classes."""
    check_sizes(source.X)
    kernel = read_kernel(options, source)
    labels = source.targets[:, 0].astype(int) if source.single else source.targets.argmax(axis=1)
    n_classes = 2 if source.single else source.n_targets
    small = source.n_rows * n_classes <= MAX_ONE_THREAD_ROWS
    with one_thread() if small else nullcontext(), stage("process"):
        model = fit_classes(
            source.X, labels, n_classes, source.weights, source.groups, earlier=_earlier(options, n_classes),
            max_vectors=options.max_vectors, kernel=kernel, room=_room(options, source, n_classes),
            clock=options.clock.part(1.0, lambda name, fraction: report(fraction=fraction)),
        )  # fmt: skip
        report(model.n_vectors, fraction=1.0)
    warn_unless_complete(model)
    return _assemble(source, model, "given" if kernel is not None and kernel.lengths is not None else WIDTH_RULE)


def read_kernel(options: ProcessOptions, source: MemorySource) -> GivenKernel | None:
    """The covariance of the log-odds that kernel and width ask for, its widths held if numbers; None to compare."""
    chosen = [isinstance(value, str) and value == "auto" for value in (options.kernel, options.width)]
    if all(chosen):
        return None
    given = "gaussian" if chosen[0] else options.kernel
    learned = {"learn": False, "learn-per-feature": True, "auto": None}
    kernel: Any = as_kernel(given, "scale" if chosen[1] else options.width)
    shape = Shape.GAUSSIAN if isinstance(kernel, Gaussian) else _MATERN_SHAPES.get(getattr(kernel, "nu", None))
    if shape is None:
        raise ValueError(f"kernel must be 'auto', 'gaussian', 'matern32' or 'matern52', got {options.kernel!r}")
    rule = options.width if isinstance(given, str) else kernel.width
    if isinstance(rule, str) and rule in learned:
        return GivenKernel(shape, per_input=learned[rule])
    width = kernel.resolve(source.X, source.weights).width
    lengths = np.broadcast_to(np.asarray(width, dtype=float), source.X.shape[1:]).copy()
    return GivenKernel(shape, lengths / np.sqrt(2.0) if shape == Shape.GAUSSIAN else lengths)  # r^2 = 2 l^2


def _room(options: ProcessOptions, source: MemorySource, n_classes: int) -> float:
    """Bytes of the memory limit for the matrices of a fit."""
    numbers, least = COPIES * (source.n_features + 2) + 3 * n_classes, LEAST_VECTORS * vector_row_bytes(n_classes)
    return room_for_vectors(options.memory_limit, source.n_rows, numbers, least)


def _earlier(options: ProcessOptions, n_classes: int) -> ClassModel | None:
    """The process of so many classes that a warm start begins with."""
    found = options.earlier
    return found if found is not None and len(found.base_rates) == n_classes else None


def _assemble(source: MemorySource, model: ClassModel, width_rule: str) -> FittedProcess:
    """The process as a record."""
    X, numbers = model.units.inputs(source.X + 0.0), np.arange(source.n_rows)  # + 0.0: no -0.0
    at = [find_rows(X, numbers, member.model.vectors) for member in model.members]
    kept = np.unique(np.concatenate([np.zeros(0, dtype=np.intp), *at]))
    kernel = _first_kernel(model, source.n_features, source.X)
    evidence = model.members[0].model.log_evidence if model.members else _base_rate_evidence(source, model)
    return FittedProcess(
        predictors=[],
        processes=[],
        class_process=model,
        classifier=model,
        vectors=source.X[kept],
        rows=source.numbers[kept],
        noise_variance=np.array([np.nan]),
        log_evidence=np.array([evidence]),
        bounds=None,
        n_evaluations=np.array([model.selection.evaluations]),
        status=[model.status],
        kernel=kernel,
        width=None if kernel is None else np.array(kernel.width),
        width_rule=None if kernel is None else width_rule,
        feature_relevance=_measure_sensitivity(model, source.X),
        selection=[model.selection],
        merit=None,
    )


def _base_rate_evidence(source: MemorySource, model: ClassModel) -> float:
    """Return the log-likelihood of the base rates, which a model without an input that tells anything consists of."""
    y = np.column_stack([1.0 - source.targets, source.targets]) if source.single else source.targets
    return float(source.weights @ y @ np.log(model.base_rates))


def _first_kernel(model: ClassModel, n_features: int, X: np.ndarray) -> Any:
    """The stationary part of the first member that has one, with widths in the units of X; None where none has."""
    parts = [member.model for member in model.members if member.model.kernel.structure.parts]
    if not parts:
        return None
    return part_kernel(parts[0].kernel.structure, parts[0].theta, model.units, 0, X)


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
