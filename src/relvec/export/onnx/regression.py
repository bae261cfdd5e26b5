"""Means and standard deviations of regression as ONNX graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.export.exported import ExportedModel, ExportedOutput, expand_output
from relvec.export.onnx.graph import Graph
from relvec.export.onnx.kernels import add_columns
from relvec.gaussian_process.target import AS_IT_IS, MAX_LOG_VARIANCE
from relvec.inference.heteroscedastic import BUMP_WIDTH, CUT_OFF, LogNoise
from relvec.inference.process import LinearExpansion


def add_regression(graph: Graph, model: ExportedModel, x: str) -> tuple[str, str]:
    """Mean and standard deviation of new targets at x, (n, q)."""
    outputs = [expand_output(model, predictor, "to_onnx") for predictor in model.predictors]
    bases = {id(part.basis): part.basis for output in outputs for part in output.parts}
    columns = {key: add_columns(graph, basis, x) for key, basis in bases.items()}
    found = [_add_output(graph, output, [columns[id(part.basis)] for part in output.parts], x) for output in outputs]
    if len(found) == 1:
        return found[0]
    mean, std = (graph.node("Concat", *[pair[i] for pair in found], axis=1) for i in (0, 1))
    return mean, std


def add_interval(graph: Graph, model: ExportedModel, x: str) -> tuple[str, str]:
    """Lower and upper ends of the intervals of a calibrated model at x, (n, q)."""
    g, c = graph.node, graph.constant
    assert model.thresholds is not None
    ends: list[list[str]] = [[], []]
    for predictor, threshold in zip(model.predictors, model.thresholds, strict=True):
        output = expand_output(model, predictor, "to_onnx")
        columns = [add_columns(graph, part.basis, x) for part in output.parts]
        centre, deviation = _add_output(graph, replace(output, scale=AS_IT_IS), columns, x)
        reach, scale = g("Mul", deviation, c(float(threshold))), output.scale
        for found, op in zip(ends, ("Sub", "Add"), strict=True):
            end = g(op, centre, reach)
            if scale.sign:  # `relvec.gaussian_process.target.Scale.inverse`
                level = g("Sub", g("Exp", g("Mul", end, c(float(scale.sign)))), c(scale.offset))
                end = g("Add", g("Mul", level, c(scale.sign * scale.scale)), c(scale.end))
            elif output.counts:
                end = g("Max", g("Ceil", end), c(0.0)) if op == "Sub" else g("Floor", end)
            found.append(end)
    lower, upper = (found[0] if len(found) == 1 else g("Concat", *found, axis=1) for found in ends)
    return lower, upper


def _add_output(graph: Graph, output: ExportedOutput, columns: list[str], x: str) -> tuple[str, str]:
    """Mean and standard deviation (n, 1) of new targets of one output, a mixture of its parts."""
    g, c = graph.node, graph.constant
    parts = [_add_part(graph, output, *pair, x) for pair in zip(output.parts, columns, strict=True)]
    if len(parts) == 1:
        return parts[0][0], g("Sqrt", parts[0][1])
    shares = [c(float(share)) for share in output.shares]
    mean = g("Sum", *(g("Mul", m, share) for (m, _), share in zip(parts, shares, strict=True)))
    apart = [g("Sub", m, mean) for m, _ in parts]
    spread = [g("Add", v, g("Mul", d, d)) for (_, v), d in zip(parts, apart, strict=True)]
    return mean, g("Sqrt", g("Sum", *(g("Mul", v, share) for v, share in zip(spread, shares, strict=True))))


def _add_part(graph: Graph, output: ExportedOutput, part: LinearExpansion, columns: str, x: str) -> tuple[str, str]:
    """Mean and variance (n, 1) of new targets under one part of a mixture."""
    g, c, scale = graph.node, graph.constant, output.scale
    # The units are in the matrices: ONNX Runtime would join a factor beside a product to it, in single precision.
    mean = g("MatMul", columns, add_matrix(graph, part.weights[:, None]))
    spread = g("MatMul", columns, add_matrix(graph, part.root))
    variance = graph.total(g("Mul", spread, spread), 1, keep=True)
    if part.prior:
        known = g("MatMul", columns, add_matrix(graph, part.represented))
        left = g("Sub", g("Add", variance, c(part.prior)), graph.total(g("Mul", known, known), 1, keep=True))
        variance = g("Max", left, c(0.0))
    if output.counts:  # moments of a log-normal rate, and of the counts
        rate = g("Exp", g("Add", mean, g("Mul", variance, c(0.5))))
        growth = g("Sub", g("Exp", variance), c(1.0))
        return rate, g("Add", g("Mul", g("Mul", rate, rate), growth), rate)
    variance = g("Add", variance, c(part.noise))
    if part.varying is not None:
        variance = g("Mul", variance, g("Exp", _add_log_factor(graph, part.varying, x, mean)))
    if scale.sign == 0:
        return mean, variance
    v = g("Min", variance, c(MAX_LOG_VARIANCE))  # `relvec.gaussian_process.target.Scale.moments`
    level = g("Exp", g("Add", g("Mul", mean, c(float(scale.sign))), g("Mul", v, c(0.5))))
    moved = g("Mul", g("Sub", level, c(scale.offset)), c(scale.sign * scale.scale))
    growth = g("Mul", g("Sub", g("Exp", v), c(1.0)), c(scale.scale**2))
    return g("Add", moved, c(scale.end)), g("Mul", g("Mul", level, level), growth)


def _add_log_factor(graph: Graph, varying: LogNoise, x: str, mean: str) -> str:
    """The logarithm (n, 1) of the factor of variances that depend on the inputs: `LogNoise.features`, weighted."""
    g, c, at = graph.node, graph.constant, varying.columns
    z = g("Gather", g("Concat", x, mean, axis=1), c(at.astype(np.int64)), axis=1)
    t = g("Mul", g("Sub", z, c(varying.centre[at])), c(1.0 / varying.scale[at]))
    t = g("Max", g("Min", t, c(CUT_OFF)), c(-CUT_OFF))
    straight = np.isinf(varying.places)
    away = g("Sub", t, c(np.where(straight, 0.0, varying.places)))
    bump = g("Exp", g("Mul", g("Mul", away, away), c(-0.5 / BUMP_WIDTH**2)))
    weights = [add_matrix(graph, np.where(some, varying.mean, 0.0)[:, None]) for some in (straight, ~straight)]
    log = g("Add", g("MatMul", t, weights[0]), g("MatMul", bump, weights[1]))
    return g("Add", log, c(varying.level))


def add_matrix(graph: Graph, weights: np.ndarray) -> str:
    """Weights (k, j) as a constant; without functions or directions there is one, with the weight 0."""
    if not np.isfinite(weights).all():
        raise ValueError("the weights overflow in the units of X and y: rescale them, for example by StandardScaler")
    return graph.constant(weights if weights.size else np.zeros([max(size, 1) for size in weights.shape]))
