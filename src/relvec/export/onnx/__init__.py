"""Fitted models as ONNX graphs in double precision, and converters for pipelines with skl2onnx.

A graph is built from a bound basis and the predictors alone. Operators of opset 13 are all it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.base import BaseEstimator

from relvec._version import __version__
from relvec.export.exported import ExportedModel, is_exportable, read_model
from relvec.export.onnx.classification import add_classification, add_set, onnx_labels
from relvec.export.onnx.graph import OPSET, Graph, require
from relvec.export.onnx.pipelines import convert_pipeline, register
from relvec.export.onnx.regression import add_regression
from relvec.runtime.arrays import RowsLike

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

__all__ = ["register", "to_onnx"]

_IR_VERSION = 8


def to_onnx(model: BaseEstimator, X: RowsLike = None, coverage: float = 0.9) -> ModelProto:
    """Return a fitted model as an ONNX graph in double precision.

    Parameters
    ----------
    model : RelevanceVectorRegressor, RelevanceVectorClassifier, or a scikit-learn Pipeline that ends in one
    X : array-like or DataFrame, optional
        Some rows of input, needed for a pipeline: an array becomes one input "X" (n, d), a table one input (n, 1) for
        each column, of 64-bit integers, doubles (booleans as well) or strings. The graph is compared with the pipeline
        on up to 100 of the rows.
    coverage : float, default 0.9
        Coverage of the intervals, or sets of classes, of a calibrated model (`calibrate`). Others have none.

    Returns
    -------
    onnx : onnx.ModelProto
        Write it with ``open(path, "wb").write(onnx.SerializeToString())``. Its outputs are, for regression, "mean" and
        "std" (of a new target, with noise), in the shape of `predict`; for classification "label" (n,) and
        "probabilities" (n, K). A calibrated model has also "lower" and "upper", in the shape of `predict`, or for
        classes "members" (n, K) of bool.

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
    return _model_to_onnx(read_model(model, coverage)) if is_exportable(model) else convert_pipeline(model, X, coverage)


def _model_to_onnx(model: ExportedModel) -> ModelProto:
    onnx = require("onnx")
    nodes: list[NodeProto] = []
    constants: list[TensorProto] = []
    outputs = _add_outputs(Graph.onto(nodes, constants), model, onnx.TensorProto)
    info, n = onnx.helper.make_tensor_value_info, "n"
    graph = onnx.helper.make_graph(
        nodes,
        "relvec",
        [info("X", onnx.TensorProto.DOUBLE, [n, model.n_features])],
        [info(name, kind, [n, *shape]) for name, (kind, shape) in outputs.items()],
        constants,
    )
    whole = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="relvec",
        producer_version=__version__,
    )
    onnx.checker.check_model(whole)
    return whole


def _add_outputs(
    graph: Graph, model: ExportedModel, types: type[TensorProto]
) -> dict[str, tuple[TensorProto.DataType, list[int]]]:
    """Add the predictions at the input "X"; type and shape, after n, of each output."""
    if model.classes is not None:
        label, proba = add_classification(graph, model, "X")
        kind = {"U": types.STRING, "i": types.INT64}.get(onnx_labels(model.classes).dtype.kind, types.DOUBLE)
        graph.name_output(label, "label")
        graph.name_output(proba, "probabilities")
        outputs = {"label": (kind, []), "probabilities": (types.DOUBLE, [len(model.classes)])}
        if model.thresholds is not None:
            graph.name_output(add_set(graph, proba, model.thresholds[0], len(model.classes)), "members")
            outputs["members"] = (types.BOOL, [len(model.classes)])
        return outputs
    shape = [] if model.single else [len(model.predictors)]
    found = dict(zip(("mean", "std", "lower", "upper"), add_regression(graph, model, "X")))
    for name, inner in found.items():
        graph.name_output(graph.node("Squeeze", inner, graph.constant([1])) if model.single else inner, name)
    return dict.fromkeys(found, (types.DOUBLE, shape))
