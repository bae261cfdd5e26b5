"""Labels and probabilities of classes as ONNX graphs."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from relvec.export.exported import ExportedModel
from relvec.export.formulas import Number
from relvec.export.onnx.graph import Graph, RowsWriter, add_columns, add_matrix
from relvec.gaussian_process.classes import ClassModel
from relvec.gaussian_process.classes.expansion import ExpandedMember, expand_members, log_prior_odds
from relvec.inference.conformal import OWN_SHARE
from relvec.inference.likelihoods import MIN_RELATIVE_PIVOT, logistic_nodes, softmax_points

_ERFCX_DEGREE = 16  # error 2e-11, relative
_INT64, _DOUBLE = 7, 11  # onnx.TensorProto.INT64, DOUBLE


def add_classification(graph: Graph, model: ExportedModel, x: str) -> tuple[str, str]:
    """Add the label (n,) and probabilities (n, K) at x."""
    g, c = graph.node, graph.constant
    assert model.classes is not None
    K, labels = len(model.classes), c(onnx_labels(model.classes))
    if model.process is not None:
        choice, proba = add_class_process(graph, model.process, model.n_features, x)
        return g("Gather", labels, choice, axis=0), proba
    machine = model.machine
    assert model.basis is not None and machine is not None
    columns, averaged, slope = add_columns(graph, model.basis, x), machine.averaged, machine.slope
    latent = [_add_latent(graph, function.dense_weights(), columns) for function in machine.latents]
    if K > 2 and len(latent) == 1:
        proba = _add_softmax(graph, *latent[0], K) if averaged else g("Softmax", latent[0][0], axis=1)
        if slope != 1.0:
            logs = g("Log", g("Max", proba, c(float(np.finfo(float).tiny))))
            proba = g("Softmax", g("Mul", logs, c(slope)), axis=1)
        choice = g("ArgMax", proba, axis=1, keepdims=0)
        return g("Gather", labels, choice, axis=0), proba
    variances = [graph.total(g("Mul", T[0], T[0]), 1, keep=True) for _, T in latent]
    pairs = [_add_logistic(graph, mean, v, averaged) for (mean, _), v in zip(latent, variances, strict=True)]
    if K == 2:
        ((p, rest, odds),) = pairs
        if slope != 1.0:
            p, rest, _ = _add_logistic(graph, g("Mul", odds, c(slope)), "", averaged=False)
        proba = g("Concat", rest, p, axis=1)
        choice = g("Squeeze", g("Cast", g("Greater", latent[0][0], c(0.0)), to=_INT64), c([1]))
        return g("Gather", labels, choice, axis=0), proba
    p, odds = (g("Concat", *[pair[i] for pair in pairs], axis=1) for i in (0, 2))
    total = graph.total(p, 1, keep=True)
    proba = g("Where", g("Greater", total, c(0.0)), g("Div", p, total), c(1.0 / K))
    return g("Gather", labels, g("ArgMax", odds, axis=1, keepdims=0), axis=0), proba


def add_set(graph: Graph, proba: str, threshold: float, K: int) -> str:
    """Say which classes (n, K) are in the set of a calibrated model with these probabilities: `class_scores`."""
    g, c = graph.node, graph.constant
    own, other = g("Unsqueeze", proba, c([2])), g("Unsqueeze", proba, c([1]))  # (n, K, 1), (n, 1, K)
    earlier = c(np.tril(np.ones((K, K)), -1))
    ties = g("Mul", g("Cast", g("Equal", other, own), to=_DOUBLE), earlier)
    before = g("Add", g("Cast", g("Greater", other, own), to=_DOUBLE), ties)
    total = graph.total(g("Mul", before, other), 2)
    score = g("Add", total, g("Mul", proba, c(OWN_SHARE)))
    first = g("Equal", total, c(0.0))  # of the most probable class
    return g("Or", first, g("Not", g("Greater", score, c(float(threshold)))))


def add_class_process(graph: Graph, model: ClassModel, n_features: int, x: str) -> tuple[str, str]:
    """Add the number of the class (n,) and probabilities (n, K) of a process (`gaussian_process.classes.expansion`)."""
    g, c = graph.node, graph.constant
    members = expand_members(model, n_features)
    writer = RowsWriter(graph, x)
    zero = writer.zero(n_features)
    names = [score.name for score in _process_scores(writer, members, log_prior_odds(model), zero)]
    if len(names) > 1:
        scores = g("Concat", *names, axis=1)
        return g("ArgMax", scores, axis=1, keepdims=0), g("Softmax", scores, axis=1)
    p, rest, _ = _add_logistic(graph, names[0], "", averaged=False)
    choice = g("Squeeze", g("Cast", g("Greater", names[0], c(0.0)), to=_INT64), c([1]))
    return choice, g("Concat", rest, p, axis=1)


def _process_scores(
    writer: RowsWriter, members: list[ExpandedMember], log_odds: np.ndarray, zero: Number
) -> list[Number]:
    """Return the log-odds of the second of two classes, or a score of every class, of a process for classes.

    Its members, of which there may be none, add to the log-odds, or scores, that the base rates have away from the
    data.
    """
    signals: list[list[Number]] = [[] if members else [zero] for _ in log_odds]
    for member in members:
        first = member.functions[0]
        left = None
        if first.prior:
            left = (writer.squares(first.basis, first.represented).negative() + first.prior).maximum(0.0)
        for own, function in zip(signals, member.functions, strict=True):
            variance = writer.squares(function.basis, function.root)
            variance = variance if left is None else variance + left
            mean = writer.dot(function.basis, function.weights)
            own.append(mean / (variance * member.moderation + 1.0).sqrt() * member.slope)
    return [sum(own[1:], own[0]) + float(odds) for own, odds in zip(signals, log_odds, strict=True)]


def onnx_labels(classes: np.ndarray) -> np.ndarray:
    """Return class labels (K,) in a type of ONNX: 64-bit integers, strings or doubles."""
    if classes.dtype.kind in "biu" or (classes.dtype.kind == "f" and np.all(classes == np.floor(classes))):
        return classes.astype(np.int64)
    return classes.astype(np.float64) if classes.dtype.kind == "f" else classes.astype(str)


def _add_latent(graph: Graph, functions: list[tuple[np.ndarray, np.ndarray]], columns: str) -> tuple[str, list[str]]:
    """Add the means (n, K) of the latent functions, and for each T_c (n, k) with covariance T_a . T_b."""
    means, roots = zip(*functions, strict=True)
    mean = graph.node("MatMul", columns, add_matrix(graph, np.column_stack(means)))
    return mean, [graph.node("MatMul", columns, add_matrix(graph, root)) for root in roots]


def _add_logistic(graph: Graph, mean: str, variance: str, averaged: bool) -> tuple[str, str, str]:
    """Add E[1 / (1 + exp(-f))], its complement and a monotone score of it, as `logistic_log_odds`; all (n, 1)."""
    g, c = graph.node, graph.constant
    size = g("Abs", mean)
    if averaged:
        (z, z_weight), (e, e_weight), wide = logistic_nodes()
        deviation = g("Sqrt", variance)
        near = _add_tail(graph, g("Add", size, g("Mul", deviation, c(z[None]))))
        narrow_mean = g("MatMul", near, c(z_weight[:, None]))
        u = g("Div", g("Sub", c(e[None]), size), g("Max", deviation, c(wide)))
        wide_mean = g("MatMul", _add_normal_cdf(graph, u), c(e_weight[:, None]))
        small = g("Where", g("Greater", deviation, c(wide)), wide_mean, narrow_mean)
        small = g("Max", g("Min", small, c(0.5)), c(1e-300))
        score = g("Mul", g("Sign", mean), g("Sub", g("Log", g("Sub", c(1.0), small)), g("Log", small)))
    else:
        small, score = _add_tail(graph, size), mean
    large, positive = g("Sub", c(1.0), small), g("Greater", mean, c(0.0))
    return g("Where", positive, large, small), g("Where", positive, small, large), score


def _add_tail(graph: Graph, f: str) -> str:
    """Add 1 / (1 + exp(f)), with all its digits where it is small."""
    return graph.node("Reciprocal", graph.node("Add", graph.node("Exp", f), graph.constant(1.0)))


def _add_normal_cdf(graph: Graph, u: str) -> str:
    """Add the distribution function of a standard normal variable: ONNX Runtime has no erf in double precision.

    erfc(a) = exp(-a^2) erfcx(a), and erfcx(a) / t is a polynomial in 2 t - 1 to 2e-11, with t = 2 / (2 + a).
    """
    g, c = graph.node, graph.constant
    a = g("Mul", g("Abs", u), c(np.sqrt(0.5)))
    t = g("Div", c(2.0), g("Add", a, c(2.0)))
    s = g("Sub", g("Mul", t, c(2.0)), c(1.0))
    coefficients = chebyshev.cheb2poly(chebyshev.chebinterpolate(_erfcx_over_t, _ERFCX_DEGREE))  # type: ignore[type-var, arg-type]
    whole = c(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        whole = g("Add", g("Mul", whole, s), c(coefficient))
    tail = g("Mul", g("Mul", whole, g("Mul", t, c(0.5))), g("Exp", g("Neg", g("Mul", a, a))))
    return g("Where", g("Less", u, c(0.0)), tail, g("Sub", c(1.0), tail))


def _erfcx_over_t(s: np.ndarray) -> np.ndarray:
    t = 0.5 * (1.0 + s)
    return erfcx(2.0 / t - 2.0) / t


def _add_softmax(graph: Graph, mean: str, spread: list[str], K: int) -> str:
    """Add E[softmax(f)] (n, K), as `softmax_normal`."""
    g, c = graph.node, graph.constant
    rows = [g("Unsqueeze", T, c([1])) for T in spread]
    T = g("Concat", *rows, axis=1)  # (n, K, k)
    T = g("Sub", T, g("Div", graph.total(T, 1, keep=True), c(float(K))))
    A = g("MatMul", T, g("Transpose", T, perm=[0, 2, 1]))
    trace = graph.total(graph.total(g("Mul", T, T), 2, keep=True), 1, keep=True)
    least = g("Mul", trace, c(MIN_RELATIVE_PIVOT))  # (n, 1, 1)
    found = []
    for j in range(K - 1):
        column = g("Gather", A, c(np.array([j])), axis=2)  # (n, K, 1)
        pivot = g("Gather", column, c(np.array([j])), axis=1)
        above = g("Greater", pivot, least)
        root = g("Div", column, g("Sqrt", g("Where", above, pivot, c(1.0))))
        found.append(g("Where", above, root, c(0.0)))
        A = g("Sub", A, g("MatMul", found[-1], g("Transpose", found[-1], perm=[0, 2, 1])))
    L = g("Concat", *found, axis=2) if len(found) > 1 else found[0]
    half = c(softmax_points(K)[:, :512])
    points = g("Concat", half, g("Neg", half), axis=1)
    f = g("Add", g("Unsqueeze", mean, c([2])), g("MatMul", L, points))
    total = graph.total(g("Softmax", f, axis=1), 2)
    return g("Div", total, graph.total(total, 1, keep=True))
