"""ONNX graphs that are being built: nodes and constants."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from relvec.export.formulas import Arithmetic, Number

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

OPSET = 15


def require(name: str) -> ModuleType:
    """Return a package of the extra onnx, or an error that names the extra."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} is not installed: pip install 'relvec[onnx]'", name=name) from error


class Graph:
    """Nodes and constants with unique names, handed to the functions that keep them."""

    def __init__(
        self, add_node: Callable[..., None], add_constant: Callable[..., None], prefix: str = "relvec"
    ) -> None:
        self._add_node, self._add_constant, self._prefix = add_node, add_constant, prefix
        self._count = 0
        self._known: dict[tuple, str] = {}

    @classmethod
    def onto(
        cls, nodes: MutableSequence[NodeProto], constants: MutableSequence[TensorProto], prefix: str = "relvec"
    ) -> Graph:
        """Return a graph whose nodes and constants are appended to the lists of one of onnx."""
        onnx = require("onnx")

        def add_node(op: str, inputs: list[str], outputs: list[str], attributes: dict[str, object]) -> None:
            nodes.append(onnx.helper.make_node(op, inputs, outputs, **attributes))

        return cls(add_node, lambda name, array: constants.append(onnx.numpy_helper.from_array(array, name)), prefix)

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}_{self._count}"

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node; return the name of its output."""
        name = self._name()
        self._add_node(op, list(inputs), [name], attributes)
        return name

    def name_output(self, name: str, output: str) -> None:
        """Give a result the name of an output."""
        self._add_node("Identity", [name], [output], {})

    def constant(self, value: ArrayLike) -> str:
        """Add a constant tensor, or find an equal one; return its name."""
        array = np.asarray(value, order="C")
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self._name()
            self._add_constant(self._known[key], array)
        return self._known[key]

    def total(self, name: str, axis: int, keep: bool = False) -> str:
        """Sum over one axis."""
        return self.node("ReduceSum", name, self.constant([axis]), keepdims=int(keep))


_OPERATIONS = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "negative": "Neg",
}  # fmt: skip


class GraphArithmetic(Arithmetic):
    """Results of operations as nodes of a graph; other operations are called as in NumPy, with a capital."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def apply(self, operation: str, *arguments: Number | float) -> Number:
        if operation == "log1p":
            return (Number(self, self._name(arguments[0])) + 1.0).log()
        if operation == "expm1":
            return Number(self, self._name(arguments[0])).exp() - 1.0
        name = _OPERATIONS.get(operation, operation.capitalize())
        return Number(self, self.graph.node(name, *map(self._name, arguments)))

    def _name(self, value: Number | float) -> str:
        return value.name if isinstance(value, Number) else self.graph.constant(np.asarray(value, dtype=float))
