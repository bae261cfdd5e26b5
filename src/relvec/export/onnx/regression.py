"""Means, standard deviations and intervals of regression as ONNX graphs."""

from __future__ import annotations

from relvec.export.exported import ExportedModel
from relvec.export.formulas import Number, target_interval, target_moments
from relvec.export.onnx.graph import Graph, RowsWriter
from relvec.inference.predictive.expansion import Expansion


def add_regression(graph: Graph, model: ExportedModel, x: str, std: bool = True) -> list[str]:
    """Add mean and, if asked, standard deviation (n, q) of new targets at x; and ends of calibrated intervals."""
    writer = RowsWriter(graph, x)
    thresholds = [None] * len(model.outputs) if model.thresholds is None else model.thresholds.tolist()
    found = [_add_output(writer, *each, std) for each in zip(model.outputs, thresholds, strict=True)]
    names = [[number.name for number in each] for each in zip(*found, strict=True)]
    return [each[0] if len(each) == 1 else graph.node("Concat", *each, axis=1) for each in names]


def _add_output(writer: RowsWriter, output: Expansion, threshold: float | None, std: bool) -> list[Number]:
    mean, variance = target_moments(writer, output, std)
    found = [mean, *([] if variance is None else [variance.sqrt()])]
    return found if threshold is None else [*found, *target_interval(writer, output, threshold)]
