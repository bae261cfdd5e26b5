"""Numbers of all rows as ONNX graphs."""

from __future__ import annotations

import numpy as np

from relvec.basis import Basis
from relvec.export.formulas import Number, Writer
from relvec.export.onnx.graph import Graph, GraphArithmetic
from relvec.export.onnx.kernels import add_columns
from relvec.inference.heteroscedastic import BUMP_WIDTH, CUT_OFF, LogNoise


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
