"""Gaussian processes as estimators: what both share, and their fits."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from relvec.design import Block, LocalSamples, draw_rows
from relvec.estimators.assemble import warn_unless_success
from relvec.estimators.base import BaseModel
from relvec.estimators.options import ProcessOptions
from relvec.estimators.records import FittedProcess
from relvec.estimators.sources import LargeSource, MemorySource, ProcessRows, Source, process_rows
from relvec.gaussian_process import ProcessPredictor, Structure, compare_structures, fit_process, rows_to_learn
from relvec.gaussian_process.classes import ClassModel, GivenKernel, fit_classes
from relvec.gaussian_process.classes.fit import vector_row_bytes
from relvec.gaussian_process.expansion import part_kernel
from relvec.gaussian_process.fit import MAX_VECTORS
from relvec.gaussian_process.kernel import Shape
from relvec.gaussian_process.streamed import LEAST_VECTORS, DrawnSamples, fit_in_passes, grow_further, mark_limit
from relvec.inference.scale import Scale
from relvec.kernels import Gaussian, as_kernel
from relvec.runtime.machine import most_vectors, one_thread, room_for_vectors
from relvec.runtime.progress import report, stage
from relvec.solvers import Status


class Process(BaseModel):
    """A process whose kernel the data choose."""

    record_type = FittedProcess
    fitted_: FittedProcess

    def _copy_process(self, fitted: FittedProcess) -> None:
        """Set the attributes that regressor and classifier have in common; drop those that this fit has not."""
        self._copy_common(fitted)
        self.vectors_, self.vector_rows_ = fitted.vectors, fitted.rows


MAX_INPUT_OF_PROCESS = 1e280  # and one over the least span: widths and slopes in the units of more overflow
MAX_TARGET_OF_PROCESS = 1e150  # and one over the least span: variances in the units of more overflow
COPIES = 5  # of the rows, while they are merged and standardised
VECTOR_ROW_BYTES, VECTOR_PAIR_BYTES = 36, 72  # the features of a vector at a row; matrices of all parts of a process
STAGES = {"candidates": (0.0, 0.5), "more rows": (0.5, 0.8), "all rows": (0.8, 0.9), "vectors": (0.9, 0.99)}
STAGES_OF_MANY_ROWS = {
    "candidates": (0.0, 0.15),
    "more rows": (0.15, 0.25),
    "all rows": (0.25, 0.3),
    "vectors": (0.3, 0.99),
}
SENSITIVITY_ROWS = 300


def fit_processes(options: ProcessOptions, source: Source) -> FittedProcess:
    """Fit a process to each output, with one choice of kernel for all."""
    with one_thread(), stage("process"):  # long products take all of them
        rows = process_rows(source, options)
        check_sizes(rows.X, rows.targets)
        processes = _fit_outputs(options, rows)
    for output, process in enumerate(processes):
        warn_unless_complete(process, "" if source.single else f"output {output}: ")
    return _assemble(source, rows, processes)


def check_sizes(X: np.ndarray, targets: np.ndarray | None = None) -> None:
    """Refuse inputs (n, d) and targets (n, q) whose squares, in the units of the process, have no double."""
    for name, values, most in (("X", X, MAX_INPUT_OF_PROCESS), ("y", targets, MAX_TARGET_OF_PROCESS)):
        largest = 0.0 if values is None else np.abs(values).max(initial=0.0)
        if largest > most:
            raise ValueError(
                f"{name} has values of size {largest:.3g}, beyond what a process can work with: divide {name} by its "
                "standard deviation (StandardScaler)"
            )


def _fit_outputs(options: ProcessOptions, rows: ProcessRows) -> list[ProcessPredictor]:
    """Return the process of each output; with several outputs one structure serves all."""
    X, targets, weights, q = rows.X, rows.targets, rows.weights, rows.targets.shape[1]
    earlier = options.earlier if options.earlier is not None and len(options.earlier) == q else [None] * q

    candidates: tuple[Structure, ...] | None = None
    if q > 1 and earlier[0] is None:
        candidates = (compare_structures(X, targets, weights, options.clock.part(1.0 / q)),)
    found = []
    for i in range(q):
        stages = STAGES if rows.table is None else STAGES_OF_MANY_ROWS
        progress = partial(_report, stages, i, q, rows.n_rows)
        both: dict[str, Any] = {
            "candidates": candidates, "clock": options.clock.part(1.0 / (q - i), progress), "earlier": earlier[i],
            "vary": options.noise == "auto",
        }  # fmt: skip
        both["target"] = options.target_scale
        if rows.table is None:
            process = _fit_in_memory(options, rows, i, progress, both)
        else:
            process = fit_in_passes(rows.table, i, max_vectors=options.max_vectors, **both)
        found.append(process)
        report(len(process.vectors), log_evidence_in_units(process, rows, i), (i + 1) / q)
    return found


def _fit_in_memory(
    options: ProcessOptions, rows: ProcessRows, output: int, progress: Callable[[str, float], bool],
    given: dict[str, Any],
) -> ProcessPredictor:  # fmt: skip
    """Return the process of an output of rows that are all in memory."""
    most, ended = max_vectors(options, rows.X)
    process = fit_process(
        rows.X, rows.targets[:, output], rows.weights, rows.groups, max_vectors=most,
        max_rows=rows_to_learn(options.memory), noise_variance=options.noise_variance, **given,
    )  # fmt: skip
    if process.status != "max_vectors":
        return process
    if options.noise != "auto" or len(rows.X) <= MAX_VECTORS:
        return mark_limit(process, ended)
    samples = LocalSamples(rows.X, rows.targets, rows.weights)
    drawn = draw_rows(samples, len(rows.X))
    own = None if rows.groups is None else rows.groups[drawn.rows]
    table = DrawnSamples(samples, drawn, options.memory, groups=own)
    left = options.clock.part(1.0 / (rows.targets.shape[1] - output), progress)
    return grow_further(process, table, output, options.max_vectors, left)


def _report(stages: dict, output: int, n_outputs: int, n_rows: int, name: str, fraction: float) -> bool:
    """Tell how much of the fit is done after a share of one of its stages; whether it is to stop."""
    begin, end = stages[name]
    return report(fraction=(output + begin + (end - begin) * fraction) / n_outputs, rows=n_rows)


def max_vectors(options: ProcessOptions, X: np.ndarray) -> tuple[int, str]:
    """Return the most vectors that a process of all rows X (n, d) may keep, and the status where it needs more."""
    (n, d), asked = X.shape, MAX_VECTORS if options.max_vectors is None else options.max_vectors
    room = room_for_vectors(options.memory_limit, n, COPIES * (d + 2), LEAST_VECTORS * VECTOR_ROW_BYTES)
    within = max(most_vectors(room, VECTOR_ROW_BYTES * n, VECTOR_PAIR_BYTES), LEAST_VECTORS)
    return (asked, "max_vectors") if min(asked, n) <= within else (within, "memory_limit")


def warn_unless_complete(process: Any, label: str = "") -> None:
    """Tell how a process ended that has a status and messages, where it did not converge."""
    warn_unless_success(Status[process.status.upper()], label, instead="; ".join(process.messages))


def _assemble(source: Source, rows: ProcessRows, processes: list[ProcessPredictor]) -> FittedProcess:
    """Return the processes of all outputs as one record."""
    X, first = rows.X + 0.0, processes[0]  # + 0.0: no -0.0
    numbers = np.concatenate([find_rows(X, rows.numbers, p.vectors) for p in processes])
    kept, places = np.unique(numbers, return_index=True)
    structure, theta = first.components[0].structure, first.components[0].theta
    kernel: Any = part_kernel(structure, theta, first.units, 0, first.vectors) if structure.parts else None
    evidence = np.array([log_evidence_in_units(process, rows, output) for output, process in enumerate(processes)])
    gaps = np.array([p.bounds.upper - p.bounds.lower for p in processes])
    return FittedProcess(
        predictors=list(processes),
        processes=processes,
        vectors=np.concatenate([p.vectors for p in processes])[places],
        rows=kept,
        noise_variance=np.array([process.noise_variance for process in processes]),
        log_evidence=evidence,
        bounds=np.column_stack([evidence, evidence + gaps]),
        n_evaluations=np.array([process.evaluations for process in processes]),
        status=[process.status for process in processes],
        **_describe_kernel(kernel, "merit"),
        feature_relevance=_sensitivity(processes, source.n_features),
        selection=[process.selection for process in processes],
        merit=np.array([process.merit.value for process in processes]),
        single=source.single,
    )


def _describe_kernel(kernel: Any, rule: str) -> dict[str, Any]:
    """Return the fields of a record that tell of the first kernel, and of the rule for its widths; none without it."""
    return {} if kernel is None else {"kernel": kernel, "width": np.array(kernel.width), "width_rule": rule}


def log_evidence_in_units(process: ProcessPredictor, rows: ProcessRows, output: int) -> float:
    """Return the lower bound on the log evidence of the targets of an output, in their own units."""
    slopes = partial(_sum_log_slopes, process.scale, float(np.log(process.units.y_scale)), output)
    if rows.table is None:
        return process.bounds.lower + slopes(Block(0, rows.X, rows.targets, rows.weights))
    return process.bounds.lower + rows.table.samples.reduce(slopes, operator.add)


def _sum_log_slopes(scale: Scale, log_unit: float, output: int, block: Block) -> float:
    """Return the sum of log du/dy over a block of rows, u the standardised target on its scale."""
    return float(block.weights @ (scale.log_slope(block.targets[:, output]) - log_unit))


def find_rows(X: np.ndarray, numbers: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Find the number (m,) of the first row of X (n, d), whose rows have numbers (n,), that equals each vector."""
    wanted = {row.tobytes(): -1 for row in vectors}
    for row, number in zip(X, numbers, strict=True):
        if wanted.get(key := row.tobytes()) == -1:
            wanted[key] = int(number)
    return np.array([wanted[row.tobytes()] for row in vectors], dtype=np.intp)


def _sensitivity(processes: Sequence[ProcessPredictor], n_features: int) -> np.ndarray:
    """Share of each input (d,) in the mean squared slope of the means at the vectors, in standard deviations."""
    found = np.zeros(n_features)
    for process in processes:
        slopes = process.slopes(process.vectors[:SENSITIVITY_ROWS])
        found[process.units.columns] += np.mean(slopes**2, axis=0)
    return as_shares(found)


def as_shares(squares: np.ndarray) -> np.ndarray:
    """Mean squared slopes (d,) over their sum; equal shares where all are zero."""
    total = squares.sum()
    return squares / total if total > 0.0 else np.full(len(squares), 1.0 / len(squares))


_MATERN_SHAPES: dict[Any, str] = {1.5: Shape.MATERN32, 2.5: Shape.MATERN52}
# Rows times classes. A fit of fewer is a chain of small products, in which threads of BLAS wait for each other: on a
# busy machine two of them took forty times the CPU seconds of one.
MAX_ONE_THREAD_ROWS = 10_000
WIDTH_RULE = "density"  # the widths belong to the process of most density at rows that took no part


def fit_class_process(options: ProcessOptions, rows: Source) -> FittedProcess:
    """Fit a process to classes, to a draw of the rows where they are elsewhere."""
    source = rows.drawn if isinstance(rows, LargeSource) else rows
    assert isinstance(source, MemorySource)
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
    return _assemble_classes(
        source, model, "given" if kernel is not None and kernel.lengths is not None else WIDTH_RULE
    )


def read_kernel(options: ProcessOptions, source: MemorySource) -> GivenKernel | None:
    """Read the covariance of log-odds that kernel and width ask for, its widths held if numbers; None to compare."""
    chosen = [isinstance(value, str) and value == "auto" for value in (options.kernel, options.width)]
    if all(chosen):
        return None
    given = "gaussian" if chosen[0] else options.kernel
    learned = {"learn": False, "learn-per-feature": True, "auto": None}
    kernel: Any = as_kernel(given, "scale" if chosen[1] else options.width)
    shape = _read_shape(kernel, options.kernel)
    rule = options.width if isinstance(given, str) else kernel.width
    if isinstance(rule, str) and rule in learned:
        return GivenKernel(shape, per_input=learned[rule])
    width = kernel.resolve(source.X, source.weights).width
    lengths = np.broadcast_to(np.asarray(width, dtype=float), source.X.shape[1:]).copy()
    return GivenKernel(shape, lengths / np.sqrt(2.0) if shape == Shape.GAUSSIAN else lengths)  # r^2 = 2 l^2


def _read_shape(kernel: Any, given: Any) -> str:
    """Return the shape of a kernel that a process of classes can have; ``given`` is what was asked for."""
    shape = Shape.GAUSSIAN if isinstance(kernel, Gaussian) else _MATERN_SHAPES.get(getattr(kernel, "nu", None))
    if shape is None:
        raise ValueError(f"kernel must be 'auto', 'gaussian', 'matern32' or 'matern52', got {given!r}")
    return shape


def _room(options: ProcessOptions, source: MemorySource, n_classes: int) -> float:
    """Bytes of the memory limit for the matrices of a fit."""
    numbers, least = COPIES * (source.n_features + 2) + 3 * n_classes, LEAST_VECTORS * vector_row_bytes(n_classes)
    return room_for_vectors(options.memory_limit, source.n_rows, numbers, least)


def _earlier(options: ProcessOptions, n_classes: int) -> ClassModel | None:
    """Return the process of so many classes that a warm start begins with."""
    found = options.earlier
    return found if found is not None and len(found.base_rates) == n_classes else None


def _assemble_classes(source: MemorySource, model: ClassModel, width_rule: str) -> FittedProcess:
    """Return the process as a record."""
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
        **_describe_kernel(kernel, width_rule),
        feature_relevance=_measure_sensitivity(model, source.X),
        selection=[model.selection],
        merit=None,
    )


def _base_rate_evidence(source: MemorySource, model: ClassModel) -> float:
    """Return the log-likelihood of the base rates, which a model without an input that tells anything consists of."""
    y = np.column_stack([1.0 - source.targets, source.targets]) if source.single else source.targets
    return float(source.weights @ y @ np.log(model.base_rates))


def _first_kernel(model: ClassModel, n_features: int, X: np.ndarray) -> Any:
    """Return the stationary part of the first member that has one, widths in the units of X; None where none has."""
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
