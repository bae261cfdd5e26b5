"""Means and standard deviations of regression as ONNX graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.export.exported import ExportedModel, ExportedOutput, expand_output
from relvec.export.onnx.graph import Graph
from relvec.export.onnx.kernels import add_columns, add_decay
from relvec.gaussian_process.target import AS_IT_IS, MAX_LOG_VARIANCE, Scale
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
    if output.noise is not None:
        mean, std = _add_output(graph, output.function, columns, x)
        variance = g("Add", g("Mul", std, std), _add_noise(graph, output.noise, g("Concat", x, mean, axis=1)))
        mean, variance = _add_scale(graph, output.scale, mean, variance)
        return mean, g("Sqrt", variance)
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
    g, c = graph.node, graph.constant
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
        variance = g("Mul", variance, _add_noise(graph, part.varying, g("Concat", x, mean, axis=1)))
    return _add_scale(graph, output.scale, mean, variance)


def _add_noise(graph: Graph, noise: LogNoise, Z: str) -> str:
    """Noise variance (n, 1) at the inputs and the predicted mean Z (n, p): `LogNoise.variance`."""
    g, c, straight = graph.node, graph.constant, np.isinf(noise.places)
    centred = g("Sub", g("Gather", Z, c(noise.columns.astype(np.int64)), axis=1), c(noise.centre[noise.columns][None]))
    t = g("Div", centred, c(noise.scale[noise.columns][None]))
    t = g("Min", g("Max", t, c(-CUT_OFF)), c(CUT_OFF))
    u = g("Div", g("Sub", t, c(np.where(straight, 0.0, noise.places)[None])), c(BUMP_WIDTH))
    bump = g("Mul", add_decay(graph, g("Mul", g("Mul", u, u), c(0.5))), c(np.where(straight, 0.0, 1.0)[None]))
    Psi = g("Add", g("Mul", t, c(np.where(straight, 1.0, 0.0)[None])), bump)
    log = g("Add", g("MatMul", Psi, add_matrix(graph, noise.mean[:, None])), c(noise.level))
    if noise.covariance.any():
        spread = g("MatMul", Psi, add_matrix(graph, np.linalg.cholesky(noise.covariance)))
        log = g("Add", log, g("Mul", graph.total(g("Mul", spread, spread), 1, keep=True), c(0.5)))
    return g("Exp", log)


def _add_scale(graph: Graph, scale: Scale, mean: str, variance: str) -> tuple[str, str]:
    """Mean and variance (n, 1) of targets that are normal with these on a scale: `Scale.moments`."""
    g, c = graph.node, graph.constant
    if scale.sign == 0:
        return mean, variance
    v = g("Min", variance, c(MAX_LOG_VARIANCE))
    level = g("Exp", g("Add", g("Mul", mean, c(float(scale.sign))), g("Mul", v, c(0.5))))
    moved = g("Mul", g("Sub", level, c(scale.offset)), c(scale.sign * scale.scale))
    growth = g("Mul", g("Sub", g("Exp", v), c(1.0)), c(scale.scale**2))
    return g("Add", moved, c(scale.end)), g("Mul", g("Mul", level, level), growth)


def add_matrix(graph: Graph, weights: np.ndarray) -> str:
    """Weights (k, j) as a constant; without functions or directions there is one, with the weight 0."""
    if not np.isfinite(weights).all():
        raise ValueError("the weights overflow in the units of X and y: rescale them, for example by StandardScaler")
    return graph.constant(weights if weights.size else np.zeros([max(size, 1) for size in weights.shape]))
