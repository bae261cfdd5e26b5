"""Kernels and dictionaries as ONNX graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relvec import basis as bases
from relvec import kernels
from relvec.export.formulas import PROFILED, Number, profile
from relvec.export.onnx.graph import Graph, GraphArithmetic


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
        return profile(kernel, Number(GraphArithmetic(graph), squares).minimum(1e300)).name
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
