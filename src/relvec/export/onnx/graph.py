"""ONNX graphs that are being built: nodes and constants, kernels and dictionaries, and numbers of all rows."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from relvec import basis as bases
from relvec import kernels
from relvec.basis import Basis
from relvec.export.formulas import PROFILED, Arithmetic, Number, Writer, kernel_profile
from relvec.inference.heteroscedastic import BUMP_WIDTH, CUT_OFF, LogNoise

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


def _add_kernel(graph: Graph, kernel: kernels.Kernel, x: str, Z: np.ndarray) -> str:
    """Add k(x, z) (n, m) for inputs x (n, d) and centres Z (m, d)."""
    g, c = graph.node, graph.constant
    if isinstance(kernel, kernels.Sum | kernels.Product):
        op = "Add" if isinstance(kernel, kernels.Sum) else "Mul"
        values = [_add_kernel(graph, part, x, Z) for part in kernel.parts]
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
        return _add_linear_spline(graph, x, Z)
    if type(kernel) in PROFILED:
        assert isinstance(kernel, kernels.StationaryKernel)
        U = g("Unsqueeze", g("Div", x, c(kernel.width_array())), c([1]))
        difference = g("Sub", U, c(kernel.scale_rows(Z)))  # (n, m, d)
        squares = graph.total(g("Mul", difference, difference), 2)
        return kernel_profile(kernel, Number(GraphArithmetic(graph), squares).minimum(1e300)).name
    raise NotImplementedError(f"to_onnx cannot translate the kernel {kernel!r}: use one of relvec.kernels")


def _add_linear_spline(graph: Graph, x: str, Z: np.ndarray) -> str:
    g, c = graph.node, graph.constant
    X, Zs = g("Unsqueeze", x, c([1])), c(Z)
    low, high = g("Min", X, Zs), g("Max", X, Zs)
    bend = g("Mul", g("Mul", low, low), g("Sub", g("Mul", high, c(3.0)), low))
    factors = g("Add", g("Add", g("Div", bend, c(6.0)), g("Mul", X, Zs)), c(1.0))  # T01 eq. (29), (n, m, d)
    return _add_product(graph, factors, Z.shape[1])


def _add_product(graph: Graph, factors: str, count: int) -> str:
    """Add the product over the last axis of a tensor (n, m, count)."""
    parts = [graph.node("Gather", factors, graph.constant(k), axis=2) for k in range(count)]
    whole = parts[0]
    for part in parts[1:]:
        whole = graph.node("Mul", whole, part)
    return whole


def add_columns(graph: Graph, basis: bases.Basis, x: str) -> str:
    """Add the basis functions at x (n, d): (n, M); for a dictionary of none a column of ones, weighted by 0."""
    g, c = graph.node, graph.constant
    if isinstance(basis, bases.Concat) and basis.parts:
        parts = [add_columns(graph, part, x) for part in basis.parts]
        stacked = g("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        return stacked if basis.order is None else g("Gather", stacked, c(np.asarray(basis.order, np.int64)), axis=1)
    if isinstance(basis, bases.Concat | bases.EmptyBasis):
        return _add_ones(graph, x)
    if type(basis) is bases.KernelBasis:
        return _add_kernel(graph, basis.kernel, x, basis.bound_centres())
    if type(basis) is bases.Precomputed:
        return g("Gather", x, c(np.asarray(basis.rows, np.int64)), axis=1)
    if isinstance(basis, bases.Monomials):
        assert basis.n_features is not None
        found = add_monomials(graph, x, basis.terms, basis.n_features)
        if isinstance(basis, bases.Linear) and basis.centre is not None:
            return g("Sub", found, c(basis.term_centres))
        return found
    raise NotImplementedError(f"to_onnx cannot translate the basis {basis!r}: use another of relvec.basis")


def add_monomials(graph: Graph, x: str, terms: Sequence[tuple[int, ...]], d: int) -> str:
    """Add products (n, M) of the columns of x (n, d): the term (0, 0, 2) is x0^2*x2 and the term () is 1."""
    degree = max(1, *(len(term) for term in terms))
    # A column of ones, the last, fills up the shorter terms.
    places = np.array([(*term, *[d] * (degree - len(term))) for term in terms], dtype=np.int64)
    whole = graph.node("Concat", x, _add_ones(graph, x), axis=1)
    return _add_product(graph, graph.node("Gather", whole, graph.constant(places), axis=1), degree)


def _add_ones(graph: Graph, x: str) -> str:
    """Add a column of ones (n, 1)."""
    g, c = graph.node, graph.constant
    rows = g("Gather", g("Shape", x), c(np.array([0])), axis=0)
    return g("Expand", c(1.0), g("Concat", rows, c(np.array([1])), axis=0))


class RowsWriter(GraphArithmetic, Writer):
    """Nodes (n, 1) of numbers of the rows x (n, d)."""

    def __init__(self, graph: Graph, x: str) -> None:
        super().__init__(graph)
        self._x = x
        self._columns: dict[int, tuple[str, Basis]] = {}

    def columns(self, basis: Basis) -> str:
        """Return the basis functions (n, k), the same node whenever they are asked for."""
        if id(basis) not in self._columns:
            self._columns[id(basis)] = add_columns(self.graph, basis, self._x), basis
        return self._columns[id(basis)][0]

    def dot(self, basis: Basis, weights: np.ndarray) -> Number:
        # The units are in the matrices: ONNX Runtime would fuse a factor into a product, in single precision.
        return Number(self, self.graph.node("MatMul", self.columns(basis), add_matrix(self.graph, weights[:, None])))

    def zero(self, n_features: int) -> Number:
        """Return a zero for each row."""
        return Number(self, self.graph.node("MatMul", self._x, self.graph.constant(np.zeros((n_features, 1)))))

    def squares(self, basis: Basis, root: np.ndarray) -> Number:
        return Number(self, self._squares(self.columns(basis), root))

    def _squares(self, columns: str, root: np.ndarray) -> str:
        product = self.graph.node("MatMul", columns, add_matrix(self.graph, root))
        return self.graph.total(self.graph.node("Mul", product, product), 1, keep=True)

    def noise_variance(self, noise: LogNoise, mean: Number) -> Number:
        """Return `LogNoise.variance` at the inputs and a predicted mean."""
        g, c, straight = self.graph.node, self.graph.constant, np.isinf(noise.places)
        Z = g("Concat", self._x, mean.name, axis=1)
        chosen = Number(self, g("Gather", Z, c(noise.columns.astype(np.int64)), axis=1))
        t = (chosen - noise.centre[noise.columns][None]) / noise.scale[noise.columns][None]
        t = t.maximum(-CUT_OFF).minimum(CUT_OFF)
        u = (t - np.where(straight, 0.0, noise.places)[None]) / BUMP_WIDTH
        bump = (u * u * 0.5).negative().exp()
        Psi = t * np.where(straight, 1.0, 0.0)[None] + bump * np.where(straight, 0.0, 1.0)[None]
        log = Number(self, g("MatMul", Psi.name, add_matrix(self.graph, noise.mean[:, None]))) + noise.level
        if noise.covariance.any():
            log = log + Number(self, self._squares(Psi.name, np.linalg.cholesky(noise.covariance))) * 0.5
        return log.exp()


def add_matrix(graph: Graph, weights: np.ndarray) -> str:
    """Add weights (k, j) as a constant; without functions or directions there is one, with the weight 0."""
    if not np.isfinite(weights).all():
        raise ValueError("the weights overflow in the units of X and y: rescale them, for example by StandardScaler")
    return graph.constant(weights if weights.size else np.zeros([max(size, 1) for size in weights.shape]))
