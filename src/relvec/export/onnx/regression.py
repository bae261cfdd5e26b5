"""Means and standard deviations of regression as ONNX graphs."""

from __future__ import annotations

import numpy as np

from relvec.export.exported import ExportedModel, expand_output
from relvec.export.onnx.graph import Graph
from relvec.export.onnx.kernels import add_columns
from relvec.inference.predictive import CountPredictor
from relvec.inference.process import LinearExpansion


def add_regression(graph: Graph, model: ExportedModel, x: str) -> tuple[str, str]:
    """Mean and standard deviation of new targets at x, (n, q)."""
    outputs = [expand_output(model, predictor, "to_onnx") for predictor in model.predictors]
    columns = {id(output.basis): output.basis for output in outputs}
    names = {key: add_columns(graph, basis, x) for key, basis in columns.items()}
    found = [
        _add_output(graph, output, names[id(output.basis)], type(predictor) is CountPredictor)
        for predictor, output in zip(model.predictors, outputs, strict=True)
    ]
    if len(found) == 1:
        return found[0]
    mean, std = (graph.node("Concat", *[pair[i] for pair in found], axis=1) for i in (0, 1))
    return mean, std


def _add_output(graph: Graph, output: LinearExpansion, columns: str, counts: bool) -> tuple[str, str]:
    """Mean and standard deviation (n, 1) of new targets of one output."""
    g, c = graph.node, graph.constant
    # The units are in the matrices: ONNX Runtime would join a factor beside a product to it, in single precision.
    mean = g("MatMul", columns, add_matrix(graph, output.weights[:, None]))
    spread = g("MatMul", columns, add_matrix(graph, output.root))
    variance = graph.total(g("Mul", spread, spread), 1, keep=True)
    if output.prior:
        known = g("MatMul", columns, add_matrix(graph, output.represented))
        rest = g("Sub", c(output.prior), graph.total(g("Mul", known, known), 1, keep=True))
        variance = g("Add", variance, g("Max", rest, c(0.0)))
    if not counts:
        return mean, g("Sqrt", g("Add", variance, c(output.noise)))
    rate = g("Exp", g("Add", mean, g("Mul", variance, c(0.5))))  # moments of a log-normal rate, and of the counts
    growth = g("Sub", g("Exp", variance), c(1.0))
    return rate, g("Sqrt", g("Add", g("Mul", g("Mul", rate, rate), growth), rate))


def add_matrix(graph: Graph, weights: np.ndarray) -> str:
    """Weights (k, j) as a constant; without functions or directions there is one, with the weight 0."""
    if not np.isfinite(weights).all():
        raise ValueError("the weights overflow in the units of X and y: rescale them, for example by StandardScaler")
    return graph.constant(weights if weights.size else np.zeros([max(size, 1) for size in weights.shape]))
