"""The fit of `GPRegressor`: a process for each output whose kernel is chosen by merit."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.design import Block, LocalSamples, draw_rows
from relvec.estimators.assemble import caller_level
from relvec.estimators.options import ProcessOptions
from relvec.estimators.records import FittedProcess
from relvec.estimators.sources import ProcessRows, Source
from relvec.gaussian_process import ProcessPredictor, Scale, Structure, compare_structures, fit_process, rows_to_learn
from relvec.gaussian_process.expansion import part_kernel
from relvec.gaussian_process.fit import MAX_VECTORS
from relvec.gaussian_process.streamed import LEAST_VECTORS, DrawnSamples, fit_in_passes, grow_further, mark_limit
from relvec.runtime.machine import most_vectors, one_thread, room_for_vectors
from relvec.runtime.progress import report, stage
from relvec.solvers import Status

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
        rows = source.process_rows(options)
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
    """The process of each output; with several outputs one structure serves all."""
    X, targets, weights, q = rows.X, rows.targets, rows.weights, rows.targets.shape[1]
    earlier = options.earlier if options.earlier is not None and len(options.earlier) == q else [None] * q

    candidates: tuple[Structure, ...] | None = None
    if q > 1 and earlier[0] is None:
        candidates = (compare_structures(X, targets, weights, options.clock.part(1.0 / q)),)
    found = []
    for i, y in enumerate(targets.T):
        stages = STAGES if rows.table is None else STAGES_OF_MANY_ROWS
        progress = partial(_report, stages, i, q, rows.n_rows)
        both: dict[str, Any] = {
            "candidates": candidates, "clock": options.clock.part(1.0 / (q - i), progress), "earlier": earlier[i],
            "vary": options.noise == "auto",
        }  # fmt: skip
        both["target"] = options.target_scale
        if rows.table is None:
            most, ended = max_vectors(options, X)
            both |= {"max_vectors": most, "max_rows": rows_to_learn(options.memory)}
            both["noise_variance"] = options.noise_variance
            process = fit_process(X, y, weights, rows.groups, **both)
            more = options.noise == "auto" and len(X) > MAX_VECTORS
            if process.status == "max_vectors" and not more:
                process = mark_limit(process, ended)
            elif process.status == "max_vectors":
                samples = LocalSamples(X, targets, weights)
                drawn = draw_rows(samples, len(X))
                own = None if rows.groups is None else rows.groups[drawn.rows]
                table = DrawnSamples(samples, drawn, options.memory, groups=own)
                process = grow_further(
                    process, table, i, options.max_vectors, options.clock.part(1.0 / (q - i), progress)
                )
        else:
            process = fit_in_passes(rows.table, i, max_vectors=options.max_vectors, **both)
        found.append(process)
        report(len(process.vectors), log_evidence(process, rows, i), (i + 1) / q)
    return found


def _report(stages: dict, output: int, n_outputs: int, n_rows: int, name: str, fraction: float) -> bool:
    """Tell how much of the fit is done after a share of one of its stages; whether it is to stop."""
    begin, end = stages[name]
    return report(fraction=(output + begin + (end - begin) * fraction) / n_outputs, rows=n_rows)


def max_vectors(options: ProcessOptions, X: np.ndarray) -> tuple[int, str]:
    """The most vectors that a process of all rows X (n, d) may keep, and the status of one that would need more."""
    (n, d), asked = X.shape, MAX_VECTORS if options.max_vectors is None else options.max_vectors
    room = room_for_vectors(options.memory_limit, n, COPIES * (d + 2), LEAST_VECTORS * VECTOR_ROW_BYTES)
    within = max(most_vectors(room, VECTOR_ROW_BYTES * n, VECTOR_PAIR_BYTES), LEAST_VECTORS)
    return (asked, "max_vectors") if min(asked, n) <= within else (within, "memory_limit")


def warn_unless_complete(process: Any, label: str = "") -> None:
    """Tell how a process ended that has a status and messages, where it did not converge."""
    status = Status[process.status.upper()]
    if not status.success:
        detail = "; ".join(process.messages)
        warnings.warn(f"{label}{status.name}: {detail or status.value}.", ConvergenceWarning, stacklevel=caller_level())


def _assemble(source: Source, rows: ProcessRows, processes: list[ProcessPredictor]) -> FittedProcess:
    """The processes of all outputs as one record."""
    X, first = rows.X + 0.0, processes[0]  # + 0.0: no -0.0
    numbers = np.concatenate([find_rows(X, rows.numbers, p.vectors) for p in processes])
    kept, places = np.unique(numbers, return_index=True)
    structure, theta = first.components[0].structure, first.components[0].theta
    kernel: Any = part_kernel(structure, theta, first.units, 0, first.vectors) if structure.parts else None
    evidence = np.array([log_evidence(process, rows, output) for output, process in enumerate(processes)])
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
        kernel=kernel,
        width=None if kernel is None else np.array(kernel.width),
        width_rule=None if kernel is None else "merit",
        feature_relevance=_sensitivity(processes, source.n_features),
        selection=[process.selection for process in processes],
        merit=np.array([process.merit.value for process in processes]),
        single=source.single,
    )


def log_evidence(process: ProcessPredictor, rows: ProcessRows, output: int) -> float:
    """The lower bound on the log evidence of the targets of an output, in their own units."""
    slopes = partial(_sum_log_slopes, process.scale, float(np.log(process.units.y_scale)), output)
    if rows.table is None:
        return process.bounds.lower + slopes(Block(0, rows.X, rows.targets, rows.weights))
    return process.bounds.lower + rows.table.samples.reduce(slopes, operator.add)


def _sum_log_slopes(scale: Scale, log_unit: float, output: int, block: Block) -> float:
    """The sum of log du/dy over a block of rows, u the standardised target on its scale."""
    return float(block.weights @ (scale.log_slope(block.targets[:, output]) - log_unit))


def find_rows(X: np.ndarray, numbers: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The number (m,) of the first row of X (n, d), whose rows have numbers (n,), that equals each vector (m, d)."""
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
