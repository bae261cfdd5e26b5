"""Means and standard deviations of regression as ONNX graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from relvec.export.exported import ExportedModel
from relvec.export.onnx.graph import Graph
from relvec.export.onnx.kernels import add_columns
from relvec.gaussian_process import FittedProcess
from relvec.gaussian_process.expansion import expand
from relvec.gaussian_process.target import MAX_LOG_VARIANCE
from relvec.inference.predictive import CountPredictor, LinearPredictor
from relvec.inference.process import LinearExpansion, ProcessPredictor, expand_process


def add_regression(graph: Graph, model: ExportedModel, x: str) -> tuple[str, str]:
    """Mean and standard deviation of new targets at x, (n, q)."""
    own = [p for p in model.predictors if type(p) not in (ProcessPredictor, FittedProcess)]
    columns = add_columns(graph, model.basis, x) if own else ""
    found = [_add_predictor(graph, predictor, columns, x, model.n_features) for predictor in model.predictors]
    if len(found) == 1:
        return found[0]
    mean, std = (graph.node("Concat", *[pair[i] for pair in found], axis=1) for i in (0, 1))
    return mean, std


def _add_predictor(graph: Graph, predictor: Any, columns: str, x: str, n_features: int) -> tuple[str, str]:
    """Mean and standard deviation (n, 1) of new targets."""
    if type(predictor) is ProcessPredictor:
        mean, variance = _add_process(graph, expand_process(predictor), x)
        return mean, graph.node("Sqrt", variance)
    if type(predictor) is FittedProcess:
        return _add_mixture(graph, predictor, x, n_features)
    return _add_moments(graph, predictor, columns)


def _add_process(graph: Graph, process: LinearExpansion, x: str) -> tuple[str, str]:
    """Mean and variance (n, 1) of new targets under a process."""
    g, c = graph.node, graph.constant
    columns = add_columns(graph, process.basis, x)
    roots = [g("MatMul", columns, add_matrix(graph, root)) for root in (process.root, process.represented)]
    known, represented = (graph.total(g("Mul", part, part), 1, keep=True) for part in roots)
    rest = g("Max", g("Sub", g("Add", known, c(process.prior)), represented), c(0.0))
    return g("MatMul", columns, add_matrix(graph, process.weights[:, None])), g("Add", rest, c(process.noise))


def _add_mixture(graph: Graph, process: FittedProcess, x: str, n_features: int) -> tuple[str, str]:
    """Mean and standard deviation (n, 1) of new targets under a mixture of processes, on the scale of the target."""
    g, c = graph.node, graph.constant
    parts = [_add_scale(graph, process, *_add_process(graph, part, x)) for part in expand(process, n_features)]
    if len(parts) == 1:
        return parts[0][0], g("Sqrt", parts[0][1])
    shares = [c(float(share)) for share in process.shares]
    mean = g("Sum", *(g("Mul", m, share) for (m, _), share in zip(parts, shares, strict=True)))
    apart = [g("Sub", m, mean) for m, _ in parts]
    spread = [g("Add", v, g("Mul", d, d)) for (_, v), d in zip(parts, apart, strict=True)]
    return mean, g("Sqrt", g("Sum", *(g("Mul", v, share) for v, share in zip(spread, shares, strict=True))))


def _add_scale(graph: Graph, process: FittedProcess, mean: str, variance: str) -> tuple[str, str]:
    """Mean and variance of y from those on its scale, as `relvec.gaussian_process.target.Scale.moments`."""
    g, c, scale = graph.node, graph.constant, process.scale
    if scale.sign == 0:
        return mean, variance
    v = g("Min", variance, c(MAX_LOG_VARIANCE))
    level = g("Exp", g("Add", g("Mul", mean, c(float(scale.sign))), g("Mul", v, c(0.5))))
    moved = g("Mul", g("Sub", level, c(scale.offset)), c(scale.sign * scale.scale))
    growth = g("Mul", g("Sub", g("Exp", v), c(1.0)), c(scale.scale**2))
    return g("Add", moved, c(scale.end)), g("Mul", g("Mul", level, level), growth)


def _add_moments(graph: Graph, predictor: Any, columns: str) -> tuple[str, str]:
    g, c = graph.node, graph.constant
    if type(predictor) is LinearPredictor:
        mean, variance = _add_linear(graph, predictor, columns)
        return mean, g("Sqrt", variance)
    if type(predictor) is CountPredictor:
        f, spread = _add_linear(graph, predictor.latent, columns, noise=False)
        mean = g("Exp", g("Add", f, g("Mul", spread, c(0.5))))
        growth = g("Sub", g("Exp", spread), c(1.0))
        return mean, g("Sqrt", g("Add", g("Mul", g("Mul", mean, mean), growth), mean))
    raise NotImplementedError(f"to_onnx cannot translate the predictive distribution {type(predictor).__name__}")


def _add_linear(graph: Graph, predictor: LinearPredictor, columns: str, noise: bool = True) -> tuple[str, str]:
    """Mean and variance (n, 1) of w'phi(x), as `LinearPredictor.moments`."""
    g, c = graph.node, graph.constant
    # No factor stands beside a product of matrices: ONNX Runtime would join the two, the factor in single precision.
    unit = float(predictor.unit) / predictor.scale[:, None]
    spread = g("MatMul", columns, add_matrix(graph, predictor.root * unit))
    variance = graph.total(g("Mul", spread, spread), 1, keep=True)
    if noise:
        variance = g("Add", variance, c(float(predictor.noise) * float(predictor.unit) ** 2))
    return g("MatMul", columns, add_matrix(graph, predictor.mean[:, None] * unit)), variance


def add_matrix(graph: Graph, weights: np.ndarray) -> str:
    """Weights (k, j) as a constant; without functions or directions there is one, with the weight 0."""
    if not np.isfinite(weights).all():
        raise ValueError("the weights overflow in the units of X and y: rescale them, for example by StandardScaler")
    return graph.constant(weights if weights.size else np.zeros([max(size, 1) for size in weights.shape]))
