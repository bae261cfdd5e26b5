"""Pipelines of scikit-learn as ONNX graphs: converters for skl2onnx, in double precision.

Where skl2onnx's own converters do not work on doubles there are others here, used by `to_onnx` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from relvec.estimators.gp import GPClassifier, GPRegressor
from relvec.estimators.linear import SparseBayesianClassifier, SparseBayesianRegressor
from relvec.estimators.rvm import RelevanceVectorClassifier, RelevanceVectorRegressor
from relvec.export.exported import read_model, split_pipeline
from relvec.export.onnx.classification import add_classification, add_set, onnx_labels
from relvec.export.onnx.graph import OPSET, Graph, add_monomials, require
from relvec.export.onnx.regression import add_regression
from relvec.runtime.arrays import RowsLike

if TYPE_CHECKING:
    from onnx import ModelProto
    from pandas import DataFrame
    from skl2onnx.common._container import ModelComponentContainer
    from skl2onnx.common._topology import Operator, Scope, Variable
    from skl2onnx.common.data_types import TensorType

_MAX_COMPARED_ROWS = 100  # on which a graph is compared with the pipeline


def register() -> None:
    """Tell skl2onnx how to convert relvec's estimators, so that pipelines with them convert.

    For regressors the option "return_std" (``options={id(model): {"return_std": True}}``) adds a second output.

    Examples
    --------
    >>> from relvec.export.onnx import register
    >>> register()
    """
    skl2onnx = require("skl2onnx")
    for regressor in (GPRegressor, RelevanceVectorRegressor, SparseBayesianRegressor):
        skl2onnx.update_registered_converter(
            regressor, f"Relvec{regressor.__name__}", _regressor_shapes, _convert, parser=_parse_regressor,
            options={"return_std": [False, True], "coverage": None},
        )  # fmt: skip
    for classifier in (GPClassifier, RelevanceVectorClassifier, SparseBayesianClassifier):
        skl2onnx.update_registered_converter(
            classifier, f"Relvec{classifier.__name__}", _classifier_shapes, _convert,
            options={"zipmap": [True, False, "columns"], "nocl": [False, True], "output_class_labels": [False, True]},
        )  # fmt: skip


def convert_pipeline(model: BaseEstimator, X: RowsLike, coverage: float) -> ModelProto:
    """Return a fitted pipeline that ends in an estimator of relvec as an ONNX graph; X holds some rows of input."""
    skl2onnx = require("skl2onnx")
    require("onnxruntime")
    register()
    if X is None:
        raise ValueError("to_onnx needs some rows of input for a pipeline: to_onnx(pipeline, X)")
    hint = "; relvec.export.onnx.register() lets skl2onnx convert relvec's estimators inside others"
    _, last = split_pipeline(model, "to_onnx", hint)
    check_is_fitted(last)
    rows = np.asarray(X) if isinstance(X, list | tuple | np.ndarray) else X
    rows = _safe_indexing(rows, np.arange(min(len(rows), _MAX_COMPARED_ROWS)))
    inputs = _inputs(rows)
    regressing = is_regressor(last)
    thresholds = read_model(last, coverage).thresholds
    options: dict[str, bool | float] = {"return_std": True} if regressing else {"zipmap": False}
    if regressing and thresholds is not None:
        options["coverage"] = coverage
    try:
        made = skl2onnx.convert_sklearn(
            model,
            initial_types=[(name, _input_type(values)) for name, values in inputs.items()],
            options={id(last): options},
            target_opset={"": OPSET, "ai.onnx.ml": 2},
            custom_conversion_functions={SimpleImputer: _convert_imputer, PolynomialFeatures: _convert_polynomial},
            custom_shape_calculators={SimpleImputer: _imputer_shapes, PolynomialFeatures: _polynomial_shapes},
        )
    except NotImplementedError:
        raise
    except Exception as error:
        raise NotImplementedError(f"skl2onnx cannot convert this pipeline: {error}") from error
    _compare(made, model, rows, inputs, regressing)
    if not regressing and thresholds is not None:
        _append_sets(made, float(thresholds[0]), len(last.classes_))
    return made


def _append_sets(made: ModelProto, threshold: float, K: int) -> None:
    """Add the output "members" (n, K) to a graph that has the output "probabilities"."""
    onnx = require("onnx")
    graph = Graph.onto(made.graph.node, made.graph.initializer, "relvec_set")
    graph.name_output(add_set(graph, "probabilities", threshold, K), "members")
    made.graph.output.append(onnx.helper.make_tensor_value_info("members", onnx.TensorProto.BOOL, ["n", K]))


def _inputs(rows: np.ndarray | DataFrame) -> dict[str, np.ndarray]:
    """Return the inputs of a graph: a table's columns (n, 1), or an array (n, d)."""
    if isinstance(rows, np.ndarray):
        return {"X": rows.astype(np.float64 if rows.dtype.kind in "biuf" else object)}
    return {str(name): _column(np.asarray(rows[name]))[:, None] for name in rows.columns}


def _column(values: np.ndarray) -> np.ndarray:
    """Return a column of a table as whole numbers, as doubles, or as words."""
    return values.astype(
        {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.float64}.get(values.dtype.kind, object)
    )


def _input_type(values: np.ndarray) -> TensorType:
    from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType

    kinds = {"f": DoubleTensorType, "i": Int64TensorType, "O": StringTensorType}
    return kinds[values.dtype.kind]([None, values.shape[1]])


def _compare(
    made: ModelProto,
    model: BaseEstimator,
    rows: np.ndarray | DataFrame,
    inputs: dict[str, np.ndarray],
    regressing: bool,
) -> None:
    """Raise NotImplementedError unless graph and pipeline agree: some converters are wrong for doubles."""
    runtime = require("onnxruntime")
    words = [values for values in inputs.values() if values.dtype == object]
    whole = [all(isinstance(v, str) for values in words for v in values[i]) for i in range(len(rows))]
    known = np.flatnonzero(whole)  # a tensor of words has no missing ones
    if not known.size:
        return
    try:
        session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        found = session.run(None, {entry.name: inputs[entry.name][known] for entry in session.get_inputs()})
    except Exception as error:
        raise NotImplementedError(f"the graph that skl2onnx made of this pipeline does not run: {error}") from error
    rows = _safe_indexing(rows, known)
    expected = np.asarray(model.predict(rows) if regressing else model.predict_proba(rows))
    result = found[0] if regressing else found[1]
    if not np.allclose(
        result, expected.reshape(result.shape), rtol=1e-6, atol=1e-6 * max(np.abs(expected).max(), 1e-6)
    ):
        gap = np.abs(result - expected.reshape(result.shape)).max()
        raise NotImplementedError(
            f"the graph that skl2onnx made of this pipeline differs from the pipeline by up to {gap:.2g}: one of "
            "the steps before the model is converted wrongly; leave out or replace them one by one to find it"
        )


def _parse_regressor(
    scope: Scope, model: BaseEstimator, inputs: list[Variable], custom_parsers: object = None
) -> list[Variable]:
    operator = scope.declare_local_operator(f"Relvec{type(model).__name__}", model)
    operator.inputs = inputs
    options = scope.get_options(model, {"return_std": False, "coverage": None})
    names = ["mean", "std"] if options["return_std"] else ["mean"]
    names += [] if options["coverage"] is None else ["lower", "upper"]
    for name in names:
        operator.outputs.append(scope.declare_local_variable(name, _real(inputs[0].type)()))
    return operator.outputs


def _real(kind: TensorType) -> type[TensorType]:
    """Return the type of the results: single precision where the inputs have it, double otherwise."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    return FloatTensorType if isinstance(kind, FloatTensorType) else DoubleTensorType


def _regressor_shapes(operator: Operator) -> None:
    n = operator.inputs[0].get_first_dimension()
    for output in operator.outputs:
        output.type = _real(operator.inputs[0].type)([n, len(read_model(operator.raw_operator).predictors)])


def _classifier_shapes(operator: Operator) -> None:
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType

    n, classes = operator.inputs[0].get_first_dimension(), onnx_labels(operator.raw_operator.classes_)
    kinds = {"U": StringTensorType, "i": Int64TensorType}
    operator.outputs[0].type = kinds.get(classes.dtype.kind, DoubleTensorType)([n])
    maps = operator.scope_inst.get_options(operator.raw_operator, {"zipmap": True})["zipmap"] is not False
    operator.outputs[1].type = (FloatTensorType if maps else _real(operator.inputs[0].type))([n, len(classes)])


def _convert(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    graph, x = _open_graph(scope, operator, container)
    if is_classifier(operator.raw_operator):
        _close_graph(graph, operator, list(add_classification(graph, read_model(operator.raw_operator), x)), 1)
        return
    options = scope.get_options(operator.raw_operator, {"return_std": False, "coverage": None})
    model = read_model(operator.raw_operator, options["coverage"])
    _close_graph(graph, operator, add_regression(graph, model, x, options["return_std"]))


def _open_graph(scope: Scope, operator: Operator, container: ModelComponentContainer) -> tuple[Graph, str]:
    """Return a graph inside skl2onnx's, and the operator's inputs in one double tensor (n, d)."""
    from onnx import TensorProto

    def add_node(op: str, inputs: list[str], outputs: list[str], attributes: dict[str, object]) -> None:
        container.add_node(op, inputs, outputs, name=scope.get_unique_operator_name(op), **attributes)

    def add_constant(name: str, array: np.ndarray) -> None:
        kind = {"f": TensorProto.DOUBLE, "i": TensorProto.INT64, "U": TensorProto.STRING}[array.dtype.kind]
        content = [word.encode() for word in array.ravel()] if array.dtype.kind == "U" else array.ravel()
        container.add_initializer(name, kind, list(array.shape), content)

    graph = Graph(add_node, add_constant, scope.get_unique_variable_name("relvec"))
    parts = [graph.node("Cast", name, to=TensorProto.DOUBLE) for name in operator.input_full_names]
    return graph, graph.node("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]


def _close_graph(graph: Graph, operator: Operator, found: list[str], first: int = 0) -> None:
    """Give the results to the operator's outputs, in their precision; those before `first` are no numbers."""
    from onnx import TensorProto
    from skl2onnx.common.data_types import FloatTensorType

    for i, (name, output) in enumerate(zip(found, operator.outputs)):
        if i >= first and isinstance(output.type, FloatTensorType):
            name = graph.node("Cast", name, to=TensorProto.FLOAT)
        graph.name_output(name, output.full_name)


def _imputed_columns(imputer: SimpleImputer) -> tuple[np.ndarray, np.ndarray]:
    """Return columns that are kept, and those that have an indicator of missing values."""
    statistics = np.asarray(imputer.statistics_, dtype=np.float64)
    indicated = imputer.indicator_.features_ if imputer.add_indicator else np.empty(0)
    return np.flatnonzero(~np.isnan(statistics)), np.asarray(indicated, dtype=np.int64)


def _has_words(operator: Operator) -> bool:
    from skl2onnx.common.data_types import StringTensorType

    return isinstance(operator.inputs[0].type, StringTensorType)


def _imputer_shapes(operator: Operator) -> None:
    n, imputer = operator.inputs[0].get_first_dimension(), operator.raw_operator
    if _has_words(operator):
        operator.outputs[0].type = type(operator.inputs[0].type)([n, len(imputer.statistics_)])
    else:
        operator.outputs[0].type = _real(operator.inputs[0].type)([n, sum(map(len, _imputed_columns(imputer)))])


def _convert_imputer(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Convert a SimpleImputer of nan: ONNX Runtime has one in single precision only, and no word is missing."""
    from onnx import TensorProto

    imputer = operator.raw_operator
    if not (imputer.missing_values is None or imputer.missing_values != imputer.missing_values):
        raise NotImplementedError(f"to_onnx converts a SimpleImputer of nan, not of {imputer.missing_values!r}")
    if _has_words(operator):
        if imputer.add_indicator:
            raise NotImplementedError("to_onnx cannot convert a SimpleImputer of words with add_indicator=True")
        names = operator.input_full_names
        name = scope.get_unique_operator_name("Concat")
        container.add_node("Concat", names, [operator.outputs[0].full_name], name=name, axis=1)
        return
    graph, x = _open_graph(scope, operator, container)
    kept, indicated = _imputed_columns(imputer)
    g, c = graph.node, graph.constant
    missing = g("IsNaN", x)
    statistics = np.nan_to_num(np.asarray(imputer.statistics_, dtype=np.float64))
    parts = [g("Gather", g("Where", missing, c(statistics), x), c(kept), axis=1)]
    if indicated.size:
        parts.append(g("Gather", g("Cast", missing, to=TensorProto.DOUBLE), c(indicated), axis=1))
    _close_graph(graph, operator, [g("Concat", *parts, axis=1)])


def _polynomial_shapes(operator: Operator) -> None:
    n = operator.inputs[0].get_first_dimension()
    operator.outputs[0].type = _real(operator.inputs[0].type)([n, operator.raw_operator.n_output_features_])


def _convert_polynomial(scope: Scope, operator: Operator, container: ModelComponentContainer) -> None:
    """Convert PolynomialFeatures: skl2onnx's own converter mixes single and double precision."""
    graph, x = _open_graph(scope, operator, container)
    powers = operator.raw_operator.powers_
    terms = [tuple(np.repeat(np.arange(len(row)), row).tolist()) for row in powers]
    _close_graph(graph, operator, [add_monomials(graph, x, terms, powers.shape[1])])
