"""Fitted models as ONNX graphs in double precision, and converters for pipelines with skl2onnx.

A graph is built from a bound basis and the predictors alone. Operators of opset 13 are all it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx
from sklearn.utils.validation import check_is_fitted

from relvec import basis as bases
from relvec import kernels
from relvec._classifier import RelevanceVectorClassifier
from relvec._regressor import RelevanceVectorRegressor
from relvec._version import __version__
from relvec.likelihoods import ROOT_FLOOR, logistic_nodes, softmax_points
from relvec.predictive import CountPredictor, LatentPredictor, LinearPredictor

__all__ = ["register", "to_onnx"]

_OPSET, _IR = 15, 8
_ERFCX_DEGREE = 16  # error 2e-11, relative


def to_onnx(model: Any, X: Any = None) -> Any:
    """A fitted model as an ONNX graph in double precision.

    Parameters
    ----------
    model : RelevanceVectorRegressor, RelevanceVectorClassifier, or a scikit-learn Pipeline that ends in one
    X : array-like or DataFrame, optional
        A few rows of input, needed for a pipeline: an array becomes one input "X" (n, d), a DataFrame one input (n, 1)
        for each column.

    Returns
    -------
    onnx : onnx.ModelProto
        Write it with ``open(path, "wb").write(onnx.SerializeToString())``. Its outputs are, for regression, "mean" and
        "std" (of a new target, with noise), in the shape of `predict`; for classification "label" (n,) and
        "probabilities" (n, K).

    Raises
    ------
    NotImplementedError
        For kernels and basis functions that are functions of your own, and predictive distributions that need the
        training rows.

    Examples
    --------
    >>> import relvec
    >>> model = relvec.RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
    >>> [output.name for output in relvec.to_onnx(model).graph.output]
    ['mean', 'std']
    """
    if not isinstance(model, RelevanceVectorRegressor | RelevanceVectorClassifier):
        return _pipeline_to_onnx(model, X)
    check_is_fitted(model)
    onnx = _required("onnx")
    double = onnx.TensorProto.DOUBLE
    nodes: list[Any] = []
    constants: list[Any] = []

    def add_node(op: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any]) -> None:
        nodes.append(onnx.helper.make_node(op, inputs, outputs, **attributes))

    def add_constant(name: str, array: np.ndarray) -> None:
        constants.append(onnx.numpy_helper.from_array(array, name))

    graph = _Graph(add_node, add_constant)
    n: Any = "n"
    if isinstance(model, RelevanceVectorClassifier):
        label, proba = _classification(graph, model, "X")
        kind = {"U": onnx.TensorProto.STRING, "i": onnx.TensorProto.INT64}.get(_classes(model).dtype.kind, double)
        found = {"label": (label, kind, [n]), "probabilities": (proba, double, [n, len(model.classes_)])}
    else:
        mean, std = _regression(graph, model, "X")
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
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="relvec",
        producer_version=__version__,
    )
    onnx.checker.check_model(whole)
    return whole


def _required(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} is not installed: pip install 'relvec[onnx]'", name=name) from error


class _Graph:
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


def _kernel(graph: _Graph, kernel: kernels.Kernel, x: str, Z: np.ndarray) -> str:
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
        product = g("Add", g("MatMul", x, c((kernel._scale(Z) / kernel._widths()).T)), c(kernel.offset))
        return g("Pow", product, c(float(kernel.degree)))
    if type(kernel) is kernels.LinearSpline:
        return _linear_spline(graph, x, Z)
    if type(kernel) in _PROFILES:
        assert isinstance(kernel, kernels._Stationary)
        U = g("Unsqueeze", g("Div", x, c(kernel._widths())), c([1]))
        difference = g("Sub", U, c(kernel._scale(Z)))  # (n, m, d)
        squares = graph.total(g("Mul", difference, difference), 2)
        return _PROFILES[type(kernel)](graph, kernel, g("Min", squares, c(1e300)))
    raise NotImplementedError(f"ONNX cannot express the kernel {kernel!r}; use one of relvec.kernels")


def _decay(graph: _Graph, distance: str) -> str:
    return graph.node("Exp", graph.node("Neg", distance))


def _cauchy(graph: _Graph, kernel: Any, D2: str) -> str:
    return graph.node("Reciprocal", graph.node("Add", D2, graph.constant(1.0)))


def _log_distance(graph: _Graph, kernel: Any, D2: str) -> str:
    return graph.node("Log", graph.node("Add", D2, graph.constant(1.0)))


def _matern(graph: _Graph, kernel: kernels.Matern, D2: str) -> str:
    g, c = graph.node, graph.constant
    a = g("Mul", g("Sqrt", D2), c(np.sqrt(2.0 * kernel.nu)))
    head = g("Add", a, c(1.0))
    if kernel.nu == 2.5:
        head = g("Add", head, g("Div", g("Mul", a, a), c(3.0)))
    return g("Mul", head, _decay(graph, a))


_PROFILES: dict[type, Callable[[_Graph, Any, str], str]] = {
    kernels.Gaussian: lambda graph, kernel, D2: _decay(graph, D2),
    kernels.Laplace: lambda graph, kernel, D2: _decay(graph, graph.node("Sqrt", D2)),
    kernels.Cauchy: _cauchy,
    kernels.LogDistance: _log_distance,
    kernels.Matern: _matern,
}


def _linear_spline(graph: _Graph, x: str, Z: np.ndarray) -> str:
    g, c = graph.node, graph.constant
    X, Zs = g("Unsqueeze", x, c([1])), c(Z)
    low, high = g("Min", X, Zs), g("Max", X, Zs)
    bend = g("Mul", g("Mul", low, low), g("Sub", g("Mul", high, c(3.0)), low))
    factors = g("Add", g("Add", g("Div", bend, c(6.0)), g("Mul", X, Zs)), c(1.0))  # T01 eq. (29), (n, m, d)
    return _product(graph, factors, Z.shape[1])


def _product(graph: _Graph, factors: str, count: int) -> str:
    """Product over the last axis of a tensor (n, m, count)."""
    parts = [graph.node("Gather", factors, graph.constant(k), axis=2) for k in range(count)]
    whole = parts[0]
    for part in parts[1:]:
        whole = graph.node("Mul", whole, part)
    return whole


# ---------------------------------------------------------------- bases


def _columns(graph: _Graph, basis: bases.Basis, x: str) -> str:
    """The basis functions at x (n, d): (n, M). A dictionary of none gives one column of ones, to be weighted by 0."""
    g, c = graph.node, graph.constant
    if isinstance(basis, bases.Concat) and basis.parts:
        parts = [_columns(graph, part, x) for part in basis.parts]
        stacked = g("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        return stacked if basis.order is None else g("Gather", stacked, c(np.asarray(basis.order, np.int64)), axis=1)
    if isinstance(basis, bases.Concat):
        return _ones(graph, x)
    if type(basis) is bases.KernelBasis:
        return _kernel(graph, basis.kernel, x, basis._centres())
    if type(basis) is bases.Precomputed:
        return g("Gather", x, c(np.asarray(basis.rows, np.int64)), axis=1)
    if isinstance(basis, bases._Monomials):
        degree = max(1, *(len(term) for term in basis.terms))
        assert basis.n_features is not None
        one = basis.n_features  # place of a column of ones, which fills up the shorter terms
        places = np.array([(*term, *[one] * (degree - len(term))) for term in basis.terms], dtype=np.int64)
        return _product(graph, g("Gather", g("Concat", x, _ones(graph, x), axis=1), c(places), axis=1), degree)
    raise NotImplementedError(f"ONNX cannot express the basis {basis!r}; use one of relvec.basis other than Functions")


def _ones(graph: _Graph, x: str) -> str:
    """A column of ones (n, 1)."""
    g, c = graph.node, graph.constant
    rows = g("Gather", g("Shape", x), c(np.array([0])), axis=0)
    return g("Expand", c(1.0), g("Concat", rows, c(np.array([1])), axis=0))


# ---------------------------------------------------------------- predictive distributions


def _regression(graph: _Graph, model: RelevanceVectorRegressor, x: str) -> tuple[str, str]:
    """Mean and standard deviation of new targets at x, (n, q)."""
    columns = _columns(graph, model.basis_, x)
    found = [_moments(graph, predictor, columns) for predictor in model._models]
    if len(found) == 1:
        return found[0]
    mean, std = (graph.node("Concat", *[pair[i] for pair in found], axis=1) for i in (0, 1))
    return mean, std


def _moments(graph: _Graph, predictor: Any, columns: str) -> tuple[str, str]:
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


def _linear(graph: _Graph, predictor: LinearPredictor, columns: str, noise: bool = True) -> tuple[str, str]:
    """Mean and variance (n, 1) of w'phi(x), as `LinearPredictor.moments`."""
    g, c = graph.node, graph.constant
    # No factor stands beside a product of matrices: ONNX Runtime would join the two, the factor in single precision.
    unit = float(predictor.unit) / predictor.scale[:, None]
    spread = g("MatMul", columns, _matrix(graph, predictor.root * unit))
    variance = graph.total(g("Mul", spread, spread), 1, keep=True)
    if noise:
        variance = g("Add", variance, c(float(predictor.noise) * float(predictor.unit) ** 2))
    return g("MatMul", columns, _matrix(graph, predictor.mean[:, None] * unit)), variance


def _matrix(graph: _Graph, weights: np.ndarray) -> str:
    """Weights (k, j) as a constant; without functions or directions there is one, with the weight 0."""
    if not np.isfinite(weights).all():
        raise ValueError("the weights overflow in the units of X and y: rescale them, for example by StandardScaler")
    return graph.constant(weights if weights.size else np.zeros([max(size, 1) for size in weights.shape]))


def _classification(graph: _Graph, model: RelevanceVectorClassifier, x: str) -> tuple[str, str]:
    """Label (n,) and probabilities (n, K) at x."""
    g, c = graph.node, graph.constant
    columns, averaged = _columns(graph, model.basis_, x), model.averaging == "posterior"
    K = len(model.classes_)
    if any(type(predictor) is not LatentPredictor for predictor in model._models):
        raise NotImplementedError(f"ONNX cannot express the predictive distribution {type(model._models[0]).__name__}")
    latent = [_latent(graph, predictor, columns) for predictor in model._models]
    if K > 2 and len(latent) == 1:
        proba = _softmax(graph, *latent[0], K) if averaged else g("Softmax", latent[0][0], axis=1)
        choice = g("ArgMax", proba, axis=1, keepdims=0)
        return g("Gather", c(_classes(model)), choice, axis=0), proba
    pairs = [_logistic(graph, mean, graph.total(g("Mul", T[0], T[0]), 1, keep=True), averaged) for mean, T in latent]
    if K == 2:
        ((p, rest, _),) = pairs
        proba = g("Concat", rest, p, axis=1)
        choice = g("Squeeze", g("Cast", g("Greater", latent[0][0], c(0.0)), to=_INT64), c([1]))
        return g("Gather", c(_classes(model)), choice, axis=0), proba
    p, odds = (g("Concat", *[pair[i] for pair in pairs], axis=1) for i in (0, 2))
    total = graph.total(p, 1, keep=True)
    proba = g("Where", g("Greater", total, c(0.0)), g("Div", p, total), c(1.0 / K))
    return g("Gather", c(_classes(model)), g("ArgMax", odds, axis=1, keepdims=0), axis=0), proba


_INT64 = 7  # onnx.TensorProto.INT64


def _classes(model: RelevanceVectorClassifier) -> np.ndarray:
    """Class labels as ONNX has them: whole numbers, words, or doubles."""
    classes = model.classes_
    if classes.dtype.kind in "biu" or (classes.dtype.kind == "f" and np.all(classes == np.floor(classes))):
        return classes.astype(np.int64)
    return classes.astype(np.float64) if classes.dtype.kind == "f" else classes.astype(str)


def _latent(graph: _Graph, predictor: LatentPredictor, columns: str) -> tuple[str, list[str]]:
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


def _logistic(graph: _Graph, mean: str, variance: str, averaged: bool) -> tuple[str, str, str]:
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


def _tail(graph: _Graph, f: str) -> str:
    """1 / (1 + exp(f)), with all its digits where it is small."""
    return graph.node("Reciprocal", graph.node("Add", graph.node("Exp", f), graph.constant(1.0)))


def _normal(graph: _Graph, u: str) -> str:
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


def _softmax(graph: _Graph, mean: str, spread: list[str], K: int) -> str:
    """E[softmax(f)] (n, K), as `softmax_normal`."""
    g, c = graph.node, graph.constant
    rows = [g("Unsqueeze", T, c([1])) for T in spread]
    T = g("Concat", *rows, axis=1)  # (n, K, k)
    T = g("Sub", T, g("Div", graph.total(T, 1, keep=True), c(float(K))))
    A = g("MatMul", T, g("Transpose", T, perm=[0, 2, 1]))
    trace = graph.total(graph.total(g("Mul", T, T), 2, keep=True), 1, keep=True)
    least = g("Mul", trace, c(ROOT_FLOOR))  # (n, 1, 1)
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


# ---------------------------------------------------------------- pipelines, by skl2onnx


def register() -> None:
    """Tell skl2onnx how to convert relvec's estimators, so that pipelines with them convert.

    For regressors the option "return_std" (``options={id(model): {"return_std": True}}``) adds a second output.

    Examples
    --------
    >>> from relvec.onnx import register
    >>> register()
    """
    skl2onnx = _required("skl2onnx")
    skl2onnx.update_registered_converter(
        RelevanceVectorRegressor, "RelvecRegressor", _regressor_shapes, _convert, parser=_parse_regressor,
        options={"return_std": [False, True]},
    )  # fmt: skip
    skl2onnx.update_registered_converter(
        RelevanceVectorClassifier, "RelvecClassifier", _classifier_shapes, _convert,
        options={"zipmap": [True, False, "columns"], "nocl": [False, True], "output_class_labels": [False, True]},
    )  # fmt: skip


def _pipeline_to_onnx(model: Any, X: Any) -> Any:
    from sklearn.impute import SimpleImputer

    skl2onnx = _required("skl2onnx")
    register()
    if X is None:
        raise ValueError("to_onnx needs a few rows of input for a pipeline: to_onnx(pipeline, X)")
    last = model
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    if not isinstance(last, RelevanceVectorRegressor | RelevanceVectorClassifier):
        raise NotImplementedError(
            f"to_onnx takes a relvec estimator or a pipeline that ends in one, got {type(last).__name__}; "
            "relvec.onnx.register() lets skl2onnx convert relvec's estimators inside others"
        )
    check_is_fitted(last)
    options = {"return_std": True} if isinstance(last, RelevanceVectorRegressor) else {"zipmap": False}
    rows = X[:1] if hasattr(X, "columns") else np.asarray(X)[:1]
    if not hasattr(rows, "columns") and rows.dtype.kind in "biuf":
        rows = rows.astype(np.float64)
    types = import_module("skl2onnx.algebra.type_helper").guess_initial_types(rows, None)
    return skl2onnx.convert_sklearn(
        model,
        initial_types=types,
        options={id(last): options},
        target_opset={"": _OPSET, "ai.onnx.ml": 2},
        custom_conversion_functions={SimpleImputer: _convert_imputer},
        custom_shape_calculators={SimpleImputer: _imputer_shapes},
    )


def _parse_regressor(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> Any:
    operator = scope.declare_local_operator("RelvecRegressor", model)
    operator.inputs = inputs
    names = ["mean", "std"] if scope.get_options(model, {"return_std": False})["return_std"] else ["mean"]
    for name in names:
        operator.outputs.append(scope.declare_local_variable(name, _real(inputs[0].type)()))
    return operator.outputs


def _real(kind: Any) -> Any:
    """Type of the results: single precision where the inputs have it, double otherwise."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    return FloatTensorType if isinstance(kind, FloatTensorType) else DoubleTensorType


def _regressor_shapes(operator: Any) -> None:
    n = operator.inputs[0].get_first_dimension()
    for output in operator.outputs:
        output.type = _real(operator.inputs[0].type)([n, len(operator.raw_operator._models)])


def _classifier_shapes(operator: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType

    n, classes = operator.inputs[0].get_first_dimension(), _classes(operator.raw_operator)
    kinds = {"U": StringTensorType, "i": Int64TensorType}
    operator.outputs[0].type = kinds.get(classes.dtype.kind, DoubleTensorType)([n])
    maps = operator.scope_inst.get_options(operator.raw_operator, {"zipmap": True})["zipmap"] is not False
    operator.outputs[1].type = (FloatTensorType if maps else _real(operator.inputs[0].type))([n, len(classes)])


def _convert(scope: Any, operator: Any, container: Any) -> None:
    graph, x = _opened(scope, operator, container)
    model = operator.raw_operator
    classifying = isinstance(model, RelevanceVectorClassifier)
    found = _classification(graph, model, x) if classifying else _regression(graph, model, x)
    _close(graph, operator, list(found), first=int(classifying))


def _opened(scope: Any, operator: Any, container: Any) -> tuple[_Graph, str]:
    """A graph inside skl2onnx's, and the operator's inputs in one double tensor (n, d)."""
    from onnx import TensorProto

    def add_node(op: str, inputs: list[str], outputs: list[str], attributes: dict[str, Any]) -> None:
        container.add_node(op, inputs, outputs, name=scope.get_unique_operator_name(op), **attributes)

    def add_constant(name: str, array: np.ndarray) -> None:
        kind = {"f": TensorProto.DOUBLE, "i": TensorProto.INT64, "U": TensorProto.STRING}[array.dtype.kind]
        content = [word.encode() for word in array.ravel()] if array.dtype.kind == "U" else array.ravel()
        container.add_initializer(name, kind, list(array.shape), content)

    graph = _Graph(add_node, add_constant, scope.get_unique_variable_name("relvec"))
    parts = [graph.node("Cast", name, to=TensorProto.DOUBLE) for name in operator.input_full_names]
    return graph, graph.node("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]


def _close(graph: _Graph, operator: Any, found: list[str], first: int = 0) -> None:
    """Give the results to the operator's outputs, in their precision; those before `first` are no numbers."""
    from onnx import TensorProto
    from skl2onnx.common.data_types import FloatTensorType

    for i, (name, output) in enumerate(zip(found, operator.outputs)):
        if i >= first and isinstance(output.type, FloatTensorType):
            name = graph.node("Cast", name, to=TensorProto.FLOAT)
        graph.give(name, output.full_name)


def _imputed(imputer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Columns that are kept, and those of which it is said whether they were missing."""
    statistics = np.asarray(imputer.statistics_, dtype=np.float64)
    said = imputer.indicator_.features_ if imputer.add_indicator else np.empty(0)
    return np.flatnonzero(~np.isnan(statistics)), np.asarray(said, dtype=np.int64)


def _imputer_shapes(operator: Any) -> None:
    n, (kept, said) = operator.inputs[0].get_first_dimension(), _imputed(operator.raw_operator)
    operator.outputs[0].type = _real(operator.inputs[0].type)([n, len(kept) + len(said)])


def _convert_imputer(scope: Any, operator: Any, container: Any) -> None:
    """SimpleImputer for numbers: ONNX Runtime's own operator exists in single precision only."""
    from onnx import TensorProto

    imputer = operator.raw_operator
    if not (isinstance(imputer.missing_values, float) and np.isnan(imputer.missing_values)):
        raise NotImplementedError(f"to_onnx converts a SimpleImputer of nan, not of {imputer.missing_values!r}")
    graph, x = _opened(scope, operator, container)
    kept, said = _imputed(imputer)
    g, c = graph.node, graph.constant
    missing = g("IsNaN", x)
    statistics = np.nan_to_num(np.asarray(imputer.statistics_, dtype=np.float64))
    parts = [g("Gather", g("Where", missing, c(statistics), x), c(kept), axis=1)]
    if said.size:
        parts.append(g("Gather", g("Cast", missing, to=TensorProto.DOUBLE), c(said), axis=1))
    _close(graph, operator, [g("Concat", *parts, axis=1)])
