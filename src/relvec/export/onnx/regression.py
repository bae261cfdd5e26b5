"""Means, standard deviations and intervals of regression as ONNX graphs."""

from __future__ import annotations

from relvec.export.exported import ExportedModel, expand_machine
from relvec.export.formulas import Number, interval, machine_moments
from relvec.export.onnx.graph import Graph
from relvec.export.onnx.processes import expand_process, process_interval, process_moments
from relvec.export.onnx.writer import RowsWriter
from relvec.inference.predictive import CountPredictor, Predictor


def add_regression(graph: Graph, model: ExportedModel, x: str, std: bool = True) -> list[str]:
    """Add mean and, if asked, standard deviation (n, q) of new targets at x; and ends of calibrated intervals."""
    writer, add = RowsWriter(graph, x), _add_process if model.basis is None else _add_machine
    thresholds = [None] * len(model.predictors) if model.thresholds is None else model.thresholds.tolist()
    found = [add(writer, model, *each, std) for each in zip(model.predictors, thresholds, strict=True)]
    names = [[number.name for number in each] for each in zip(*found, strict=True)]
    return [each[0] if len(each) == 1 else graph.node("Concat", *each, axis=1) for each in names]


def _add_machine(
    writer: RowsWriter, model: ExportedModel, predictor: Predictor, threshold: float | None, std: bool
) -> list[Number]:
    part, counts = expand_machine(model, predictor), type(predictor) is CountPredictor
    mean, variance = machine_moments(writer, part, counts, std)
    found = [mean, *([] if variance is None else [variance.sqrt()])]
    if threshold is not None:
        centre, variance = machine_moments(writer, part, counts, True)
        assert variance is not None
        found += interval(centre, variance, threshold, counts)
    return found


def _add_process(
    writer: RowsWriter, model: ExportedModel, predictor: Predictor, threshold: float | None, std: bool
) -> list[Number]:
    process = expand_process(predictor, model.n_features)
    mean, variance = process_moments(writer, process, std)
    found = [mean, *([] if variance is None else [variance.sqrt()])]
    return found if threshold is None else [*found, *process_interval(writer, process, threshold)]
