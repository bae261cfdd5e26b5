"""Rows of a scipy.sparse matrix, for dictionaries of its columns: they are standardised without becoming dense."""

from __future__ import annotations

import numpy as np

from relvec import design
from relvec.basis import Basis, input_columns
from relvec.estimators.options import MachineOptions
from relvec.estimators.sources.base import Part, Sample, Source, merge_targets, output_target, target_units
from relvec.runtime.arrays import RowsLike


class SparseSource(Source):
    """Rows X (N, d) in compressed sparse columns, those of positive weight, with targets (N, q) and weights (N,)."""

    def __init__(self, X: RowsLike, targets: np.ndarray, weights: np.ndarray, single: bool) -> None:
        used = np.flatnonzero(weights > 0.0)
        self.X = X if len(used) == len(weights) else X.tocsr()[used].tocsc()
        self.targets, self.weights, self.single = targets[used], weights[used], single
        self.n_rows, self.n_features = self.X.shape
        self.n_targets, self.weight = targets.shape[1], float(weights.sum())

    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        basis = options.dictionary(self.n_features).bind(np.zeros((1, self.n_features)))
        return basis, np.zeros(0, dtype=bool)

    def feature_variances(self) -> np.ndarray:
        return design.StandardisedDesign(self.X, self.weights, True).scale[:-1] ** 2 / self.weight

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        return target_units(self.targets, self.weights)

    def in_units(self, units: np.ndarray) -> SparseSource:
        return SparseSource(self.X, self.targets / units, self.weights, self.single)

    def sample(self, basis: Basis) -> Sample:
        nothing = np.zeros((0, self.n_targets))
        return Sample(basis, np.zeros((0, self.n_features)), np.zeros(0, dtype=np.intp), nothing, nothing, np.zeros(0))

    def take(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros((0, self.n_features))

    def rows(self, dictionary: Basis, memory: float, keep: np.ndarray | None = None) -> tuple[Part, design.Rows]:
        targets = self.targets * np.sqrt(self.weights)[:, None]
        return None, design.Rows(self._of(dictionary), targets, np.zeros(self.n_targets))

    def exact(self, dictionary: Basis, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        rows = self.rows(dictionary, 0.0)[1]
        return rows.design.columns(active), rows.targets[:, output]

    def _of(self, dictionary: Basis, weighs_rows: bool = True) -> design.StandardisedDesign:
        columns = input_columns(dictionary)
        constant = bool(len(columns)) and columns[-1] < 0
        inputs = columns[:-1] if constant else columns
        whole = np.array_equal(inputs, np.arange(self.n_features))
        return design.StandardisedDesign(self.X if whole else self.X[:, inputs], self.weights, constant, weighs_rows)

    # classes and counts, whose weights are no part of the design

    def merged(self) -> SparseSource:
        """In an order that the content decides, equal rows as one: mean targets, summed weights."""
        rows = self.X.tocsr(copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        ends = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        keys = [rows.indices[a:b].tobytes() + rows.data[a:b].tobytes() for a, b in ends]
        place = {key: i for i, key in enumerate(sorted(set(keys)))}
        row_of = np.array([place[key] for key in keys])
        first = np.unique(row_of, return_index=True)[1]
        targets, weights = merge_targets(row_of, first, self.targets, self.weights)
        return SparseSource(rows[first].tocsc(), targets, weights, self.single)

    def columns(self, output: int, K: int) -> tuple[np.ndarray, np.ndarray]:
        return output_target(self.targets, output, K), self.weights

    def scan(
        self, dictionary: Basis, memory: float, keep: np.ndarray | None = None
    ) -> tuple[Part, design.LaplaceDesign]:
        return None, self._of(dictionary, weighs_rows=False)
