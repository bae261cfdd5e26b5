"""Fitted models as ONNX graphs in double precision, and converters for pipelines with skl2onnx.

A graph is built from a bound basis and the predictors alone. Operators of opset 13 are all it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx
from sklearn.utils.validation import check_is_fitted

from relvec import basis as bases
from relvec import kernels
from relvec._version import __version__
from relvec.estimators.classifier import RelevanceVectorClassifier
from relvec.estimators.regressor import RelevanceVectorRegressor
from relvec.inference.likelihoods import MIN_RELATIVE_PIVOT, logistic_nodes, softmax_points
from relvec.inference.predictive import CountPredictor, LatentPredictor, LinearPredictor
from relvec.inference.process import LinearExpansion, ProcessPredictor, expand_process

__all__ = ["register", "to_onnx"]

OPSET, _IR = 15, 8
_ERFCX_DEGREE = 16  # error 2e-11, relative


def to_onnx(model: Any, X: Any = None) -> Any:
    """A fitted model as an ONNX graph in double precision.

    Parameters
    ----------
    model : RelevanceVectorRegressor, RelevanceVectorClassifier, or a scikit-learn Pipeline that ends in one
    X : array-like or DataFrame, optional
        Some rows of input, needed for a pipeline: an array becomes one input "X" (n, d), a table one input (n, 1) for
        each column, of 64-bit integers, doubles (booleans as well) or strings. The graph is compared with the pipeline
        on up to 100 of the rows.

    Returns
    -------
    onnx : onnx.ModelProto
        Write it with ``open(path, "wb").write(onnx.SerializeToString())``. Its outputs are, for regression, "mean" and
        "std" (of a new target, with noise), in the shape of `predict`; for classification "label" (n,) and
        "probabilities" (n, K).

    Raises
    ------
    NotImplementedError
        For kernels and basis functions that are functions of your own, predictive distributions that need the training
        rows, and pipelines with a step that skl2onnx does not convert, or converts wrongly.

    Examples
    --------
    >>> import relvec
    >>> model = relvec.RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
    >>> [output.name for output in relvec.to_onnx(model).graph.output]
    ['mean', 'std']
    """
    if not isinstance(model, RelevanceVectorRegressor | RelevanceVectorClassifier):
        from relvec.export.skl2onnx import pipeline_to_onnx

        return pipeline_to_onnx(model, X)
    check_is_fitted(model)
    onnx = required("onnx")
    double = onnx.TensorProto.DOUBLE
    nodes: list[Any] = []
    constants: list[Any] = []

    def add_node(op: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any]) -> None:
        nodes.append(onnx.helper.make_node(op, inputs, outputs, **attributes))

    def add_constant(name: str, array: np.ndarray) -> None:
        constants.append(onnx.numpy_helper.from_array(array, name))

    graph = Graph(add_node, add_constant)
    n: Any = "n"
    if isinstance(model, RelevanceVectorClassifier):
        label, proba = classification(graph, model, "X")
        kind = {"U": onnx.TensorProto.STRING, "i": onnx.TensorProto.INT64}.get(class_labels(model).dtype.kind, double)
        found = {"label": (label, kind, [n]), "probabilities": (proba, double, [n, len(model.classes_)])}
    else:
        mean, std = regression(graph, model, "X")
        shape = [n] if model._single else [n, len(model._models)]
        if model._single:
            mean, std = (graph.node("Squeeze", name, graph.constant([1])) for name in (mean, std))
        found = {"mean": (mean, double, shape), "std": (std, double, shape)}
    for name, (inner, _, _) in found.items():
        graph.give(inner, name)
    info = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        nodes,
        "relvec",
        [info("X", double, [n, model.n_features_in_])],
        [info(name, kind, shape) for name, (_, kind, shape) in found.items()],
        constants,
    )
    whole = onnx.helper.make_model(
        made,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=_IR,
        producer_name="relvec",
        producer_version=__version__,
    )
    onnx.checker.check_model(whole)
    return whole


def register() -> None:
    """Tell skl2onnx how to convert relvec's estimators, so that pipelines with them convert.

    For regressors the option "return_std" (``options={id(model): {"return_std": True}}``) adds a second output.

    Examples
    --------
    >>> from relvec.export.onnx import register
    >>> register()
    """
    from relvec.export.skl2onnx import register_converters

    register_converters()


def required(name: str) -> Any:
    """A package of the extra onnx, or an error that names the extra."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} is not installed: pip install 'relvec[onnx]'", name=name) from error


class Graph:
    """Nodes and constants with names of their own, whoever keeps them."""

    def __init__(
        self, add_node: Callable[..., None], add_constant: Callable[..., None], prefix: str = "relvec"
    ) -> None:
        self._add_node, self._add_constant, self._prefix = add_node, add_constant, prefix
        self._count = 0
        self._known: dict[tuple, str] = {}

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}_{self._count}"

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        name = self._name()
        self._add_node(op, list(inputs), [name], attributes)
        return name

    def give(self, name: str, output: str) -> None:
        """Let a result have the name of an output."""
        self._add_node("Identity", [name], [output], {})

    def constant(self, value: Any) -> str:
        """A constant tensor; equal ones are kept once."""
        array = np.asarray(value, order="C")
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self._name()
            self._add_constant(self._known[key], array)
        return self._known[key]

    def total(self, name: str, axis: int, keep: bool = False) -> str:
        """Sum over one axis."""
        return self.node("ReduceSum", name, self.constant([axis]), keepdims=int(keep))


# ---------------------------------------------------------------- kernels


def _kernel(graph: Graph, kernel: kernels.Kernel, x: str, Z: np.ndarray) -> str:
    """k(x, z) (n, m) for inputs x (n, d) and centres Z (m, d)."""
    g, c = graph.node, graph.constant
    if isinstance(kernel, kernels.Sum | kernels.Product):
        op = "Add" if isinstance(kernel, kernels.Sum) else "Mul"
        values = [_kernel(graph, part, x, Z) for part in kernel.parts]
        whole = values[0]
        for value in values[1:]:
            whole = g(op, whole, value)
        return whole
    if type(kernel) is kernels.Linear:
        return g("MatMul", x, c(Z.T))
    if type(kernel) is kernels.Polynomial:
        product = g("Add", g("MatMul", x, c((kernel.scale_rows(Z) / kernel.width_array()).T)), c(kernel.offset))
        return g("Pow", product, c(float(kernel.degree)))
    if type(kernel) is kernels.LinearSpline:
        return _linear_spline(graph, x, Z)
    if type(kernel) in _PROFILES:
        assert isinstance(kernel, kernels.StationaryKernel)
        U = g("Unsqueeze", g("Div", x, c(kernel.width_array())), c([1]))
        difference = g("Sub", U, c(kernel.scale_rows(Z)))  # (n, m, d)
        squares = graph.total(g("Mul", difference, difference), 2)
        return _PROFILES[type(kernel)](graph, kernel, g("Min", squares, c(1e300)))
    raise NotImplementedError(f"ONNX cannot express the kernel {kernel!r}; use one of relvec.kernels")


def _decay(graph: Graph, distance: str) -> str:
    return graph.node("Exp", graph.node("Neg", distance))


def _cauchy(graph: Graph, kernel: Any, D2: str) -> str:
    return graph.node("Reciprocal", graph.node("Add", D2, graph.constant(1.0)))


def _log_distance(graph: Graph, kernel: Any, D2: str) -> str:
    return graph.node("Log", graph.node("Add", D2, graph.constant(1.0)))


def _matern(graph: Graph, kernel: kernels.Matern, D2: str) -> str:
    g, c = graph.node, graph.constant
    a = g("Mul", g("Sqrt", D2), c(np.sqrt(2.0 * kernel.nu)))
    head = g("Add", a, c(1.0))
    if kernel.nu == 2.5:
        head = g("Add", head, g("Div", g("Mul", a, a), c(3.0)))
    return g("Mul", head, _decay(graph, a))


_PROFILES: dict[type, Callable[[Graph, Any, str], str]] = {
    kernels.Gaussian: lambda graph, kernel, D2: _decay(graph, D2),
    kernels.Laplace: lambda graph, kernel, D2: _decay(graph, graph.node("Sqrt", D2)),
    kernels.Cauchy: _cauchy,
    kernels.LogDistance: _log_distance,
    kernels.Matern: _matern,
}


def _linear_spline(graph: Graph, x: str, Z: np.ndarray) -> str:
    g, c = graph.node, graph.constant
    X, Zs = g("Unsqueeze", x, c([1])), c(Z)
    low, high = g("Min", X, Zs), g("Max", X, Zs)
    bend = g("Mul", g("Mul", low, low), g("Sub", g("Mul", high, c(3.0)), low))
    factors = g("Add", g("Add", g("Div", bend, c(6.0)), g("Mul", X, Zs)), c(1.0))  # T01 eq. (29), (n, m, d)
    return _product(graph, factors, Z.shape[1])


def _product(graph: Graph, factors: str, count: int) -> str:
    """Product over the last axis of a tensor (n, m, count)."""
    parts = [graph.node("Gather", factors, graph.constant(k), axis=2) for k in range(count)]
    whole = parts[0]
    for part in parts[1:]:
        whole = graph.node("Mul", whole, part)
    return whole


# ---------------------------------------------------------------- bases


def _columns(graph: Graph, basis: bases.Basis, x: str) -> str:
    """The basis functions at x (n, d): (n, M). A dictionary of none gives one column of ones, to be weighted by 0."""
    g, c = graph.node, graph.constant
    if isinstance(basis, bases.Concat) and basis.parts:
        parts = [_columns(graph, part, x) for part in basis.parts]
        stacked = g("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        return stacked if basis.order is None else g("Gather", stacked, c(np.asarray(basis.order, np.int64)), axis=1)
    if isinstance(basis, bases.Concat | bases.EmptyBasis):
        return _ones(graph, x)
    if type(basis) is bases.KernelBasis:
        return _kernel(graph, basis.kernel, x, basis.bound_centres())
    if type(basis) is bases.Precomputed:
        return g("Gather", x, c(np.asarray(basis.rows, np.int64)), axis=1)
    if isinstance(basis, bases.Monomials):
        assert basis.n_features is not None
        return products_of_columns(graph, x, basis.terms, basis.n_features)
    raise NotImplementedError(f"ONNX cannot express the basis {basis!r}; use one of relvec.basis other than Functions")


def products_of_columns(graph: Graph, x: str, terms: Sequence[tuple[int, ...]], d: int) -> str:
    """Products (n, M) of the columns of x (n, d): the term (0, 0, 2) is x0^2*x2 and the term () is 1."""
    degree = max(1, *(len(term) for term in terms))
    # A column of ones, the last, fills up the shorter terms.
    places = np.array([(*term, *[d] * (degree - len(term))) for term in terms], dtype=np.int64)
    whole = graph.node("Concat", x, _ones(graph, x), axis=1)
    return _product(graph, graph.node("Gather", whole, graph.constant(places), axis=1), degree)


def _ones(graph: Graph, x: str) -> str:
    """A column of ones (n, 1)."""
    g, c = graph.node, graph.constant
    rows = g("Gather", g("Shape", x), c(np.array([0])), axis=0)
    return g("Expand", c(1.0), g("Concat", rows, c(np.array([1])), axis=0))


# ---------------------------------------------------------------- predictive distributions


def regression(graph: Graph, model: RelevanceVectorRegressor, x: str) -> tuple[str, str]:
    """Mean and standard deviation of new targets at x, (n, q)."""
    own = [predictor for predictor in model._models if type(predictor) is not ProcessPredictor]
    columns = _columns(graph, model.basis_, x) if own else ""
    found = [
        _process(graph, expand_process(predictor), x)
        if type(predictor) is ProcessPredictor
        else _moments(graph, predictor, columns)
        for predictor in model._models
    ]
    if len(found) == 1:
        return found[0]
    mean, std = (graph.node("Concat", *[pair[i] for pair in found], axis=1) for i in (0, 1))
    return mean, std


def _process(graph: Graph, process: LinearExpansion, x: str) -> tuple[str, str]:
    """Mean and standard deviation (n, 1) of new targets under a process."""
    g, c = graph.node, graph.constant
    columns = _columns(graph, process.basis, x)
    spread, lost = (g("MatMul", columns, _matrix(graph, root)) for root in (process.root, process.represented))
    known, lost = (graph.total(g("Mul", part, part), 1, keep=True) for part in (spread, lost))
    left = g("Max", g("Sub", c(process.prior), lost), c(0.0))
    variance = g("Add", g("Add", known, left), c(process.noise))
    return g("MatMul", columns, _matrix(graph, process.weights[:, None])), g("Sqrt", variance)


def _moments(graph: Graph, predictor: Any, columns: str) -> tuple[str, str]:
    g, c = graph.node, graph.constant
    if type(predictor) is LinearPredictor:
        mean, variance = _linear(graph, predictor, columns)
        return mean, g("Sqrt", variance)
    if type(predictor) is CountPredictor:
        f, spread = _linear(graph, predictor.latent, columns, noise=False)
        mean = g("Exp", g("Add", f, g("Mul", spread, c(0.5))))
        growth = g("Sub", g("Exp", spread), c(1.0))
        return mean, g("Sqrt", g("Add", g("Mul", g("Mul", mean, mean), growth), mean))
    raise NotImplementedError(f"ONNX cannot express the predictive distribution {type(predictor).__name__}")


def _linear(graph: Graph, predictor: LinearPredictor, columns: str, noise: bool = True) -> tuple[str, str]:
    """Mean and variance (n, 1) of w'phi(x), as `LinearPredictor.moments`."""
    g, c = graph.node, graph.constant
    # No factor stands beside a product of matrices: ONNX Runtime would join the two, the factor in single precision.
    unit = float(predictor.unit) / predictor.scale[:, None]
    spread = g("MatMul", columns, _matrix(graph, predictor.root * unit))
    variance = graph.total(g("Mul", spread, spread), 1, keep=True)
    if noise:
        variance = g("Add", variance, c(float(predictor.noise) * float(predictor.unit) ** 2))
    return g("MatMul", columns, _matrix(graph, predictor.mean[:, None] * unit)), variance


def _matrix(graph: Graph, weights: np.ndarray) -> str:
    """Weights (k, j) as a constant; without functions or directions there is one, with the weight 0."""
    if not np.isfinite(weights).all():
        raise ValueError("the weights overflow in the units of X and y: rescale them, for example by StandardScaler")
    return graph.constant(weights if weights.size else np.zeros([max(size, 1) for size in weights.shape]))


def classification(graph: Graph, model: RelevanceVectorClassifier, x: str) -> tuple[str, str]:
    """Label (n,) and probabilities (n, K) at x."""
    g, c = graph.node, graph.constant
    columns, averaged = _columns(graph, model.basis_, x), model.averaging == "posterior"
    K = len(model.classes_)
    if any(type(predictor) is not LatentPredictor for predictor in model._models):
        raise NotImplementedError(f"ONNX cannot express the predictive distribution {type(model._models[0]).__name__}")
    latent = [
        _latent(graph, predictor, columns) for predictor in model._models if isinstance(predictor, LatentPredictor)
    ]
    if K > 2 and len(latent) == 1:
        proba = _softmax(graph, *latent[0], K) if averaged else g("Softmax", latent[0][0], axis=1)
        choice = g("ArgMax", proba, axis=1, keepdims=0)
        return g("Gather", c(class_labels(model)), choice, axis=0), proba
    pairs = [_logistic(graph, mean, graph.total(g("Mul", T[0], T[0]), 1, keep=True), averaged) for mean, T in latent]
    if K == 2:
        ((p, rest, _),) = pairs
        proba = g("Concat", rest, p, axis=1)
        choice = g("Squeeze", g("Cast", g("Greater", latent[0][0], c(0.0)), to=_INT64), c([1]))
        return g("Gather", c(class_labels(model)), choice, axis=0), proba
    p, odds = (g("Concat", *[pair[i] for pair in pairs], axis=1) for i in (0, 2))
    total = graph.total(p, 1, keep=True)
    proba = g("Where", g("Greater", total, c(0.0)), g("Div", p, total), c(1.0 / K))
    return g("Gather", c(class_labels(model)), g("ArgMax", odds, axis=1, keepdims=0), axis=0), proba


_INT64 = 7  # onnx.TensorProto.INT64


def class_labels(model: RelevanceVectorClassifier) -> np.ndarray:
    """Class labels as ONNX has them: whole numbers, words, or doubles."""
    classes = model.classes_
    if classes.dtype.kind in "biu" or (classes.dtype.kind == "f" and np.all(classes == np.floor(classes))):
        return classes.astype(np.int64)
    return classes.astype(np.float64) if classes.dtype.kind == "f" else classes.astype(str)


def _latent(graph: Graph, predictor: LatentPredictor, columns: str) -> tuple[str, list[str]]:
    """Mean (n, K) of the latent functions, and for each T_c (n, k) with covariance T_a . T_b."""
    g, c = graph.node, graph.constant
    weights = np.zeros((len(predictor.scale), predictor.n_outputs))
    weights[predictor.places, predictor.outputs] = predictor.mean / predictor.scale[predictor.places]
    spread = []
    for output in range(predictor.n_outputs):
        own = np.flatnonzero(predictor.outputs == output)
        root = predictor.root[own] / predictor.scale[predictor.places[own], None]
        if own.size:
            chosen = g("Gather", columns, c(np.asarray(predictor.places[own], np.int64)), axis=1)
            spread.append(g("MatMul", chosen, _matrix(graph, root)))
        else:
            nothing = np.zeros((len(weights), predictor.root.shape[1]))
            spread.append(g("MatMul", columns, _matrix(graph, nothing)))
    return g("MatMul", columns, _matrix(graph, weights)), spread


def _logistic(graph: Graph, mean: str, variance: str, averaged: bool) -> tuple[str, str, str]:
    """Probability, its complement and a monotone score of E[1 / (1 + exp(-f))], as `logistic_log_odds`; all (n, 1)."""
    g, c = graph.node, graph.constant
    size = g("Abs", mean)
    if averaged:
        (z, z_weight), (e, e_weight), wide = logistic_nodes()
        deviation = g("Sqrt", variance)
        near = _tail(graph, g("Add", size, g("Mul", deviation, c(z[None]))))
        narrow_mean = g("MatMul", near, c(z_weight[:, None]))
        u = g("Div", g("Sub", c(e[None]), size), g("Max", deviation, c(wide)))
        wide_mean = g("MatMul", _normal(graph, u), c(e_weight[:, None]))
        small = g("Where", g("Greater", deviation, c(wide)), wide_mean, narrow_mean)
        small = g("Max", g("Min", small, c(0.5)), c(1e-300))
        score = g("Mul", g("Sign", mean), g("Sub", g("Log", g("Sub", c(1.0), small)), g("Log", small)))
    else:
        small, score = _tail(graph, size), mean
    large, positive = g("Sub", c(1.0), small), g("Greater", mean, c(0.0))
    return g("Where", positive, large, small), g("Where", positive, small, large), score


def _tail(graph: Graph, f: str) -> str:
    """1 / (1 + exp(f)), with all its digits where it is small."""
    return graph.node("Reciprocal", graph.node("Add", graph.node("Exp", f), graph.constant(1.0)))


def _normal(graph: Graph, u: str) -> str:
    """Distribution function of a standard normal variable: ONNX Runtime has no erf in double precision.

    erfc(a) = exp(-a^2) erfcx(a), and erfcx(a) / t is a polynomial in 2 t - 1 to 2e-11, with t = 2 / (2 + a).
    """
    g, c = graph.node, graph.constant
    a = g("Mul", g("Abs", u), c(np.sqrt(0.5)))
    t = g("Div", c(2.0), g("Add", a, c(2.0)))
    s = g("Sub", g("Mul", t, c(2.0)), c(1.0))
    interpolate: Any = chebyshev.chebinterpolate
    coefficients = chebyshev.cheb2poly(interpolate(_erfcx_over_t, _ERFCX_DEGREE))
    whole = c(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        whole = g("Add", g("Mul", whole, s), c(coefficient))
    tail = g("Mul", g("Mul", whole, g("Mul", t, c(0.5))), _decay(graph, g("Mul", a, a)))
    return g("Where", g("Less", u, c(0.0)), tail, g("Sub", c(1.0), tail))


def _erfcx_over_t(s: np.ndarray) -> np.ndarray:
    t = 0.5 * (1.0 + s)
    return erfcx(2.0 / t - 2.0) / t


def _softmax(graph: Graph, mean: str, spread: list[str], K: int) -> str:
    """E[softmax(f)] (n, K), as `softmax_normal`."""
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
