"""Rows in memory, as arrays or as the columns of a sparse matrix, which are standardised without becoming dense."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from relvec import design
from relvec.basis import Basis, KernelBasis, input_columns, leaves
from relvec.estimators.options import FitOptions, MachineOptions
from relvec.estimators.sources.base import (
    Part,
    Sample,
    Source,
    feature_variances,
    join_rows,
    merge_targets,
    output_target,
    take_rows,
    target_units,
)
from relvec.runtime.arrays import Array, RowsLike, unique_rows
from relvec.runtime.machine import memory_left

MAX_SCAN_NUMBERS = 16_000_000  # of a dictionary that classes and counts search: 800 candidates on 20,000 rows
MIN_SCAN_ATOMS = 64  # candidates of theirs whatever the memory limit
SCAN_BYTES = 10.0  # of a number of that dictionary
MAX_SQUARED = 1e100  # inputs and targets: squares of sums of larger ones overflow


class MemorySource(Source):
    """Rows in memory, those of positive weight.

    Parameters
    ----------
    X : (N, d) all rows as given, also those of weight zero.
    targets : (N, q) float64.
    weights : (N,).
    on_device : X on a device, or None.
    mergeable : whether equal rows are one row: not where X holds kernel values.
    single : see `Source`.
    groups : (N,) labels of the rows that are held out together, or None; kept as numbers, equal for equal rows.
    """

    def __init__(
        self, X: np.ndarray, targets: np.ndarray, weights: np.ndarray, on_device: Array | None = None,
        mergeable: bool = True, single: bool = True, groups: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        used = np.flatnonzero(weights > 0.0)
        self.given, self.given_weights = X, weights
        self.numbers = used
        self.X, self.targets, self.weights = (take_rows(values, used) for values in (X, targets, weights))
        self.within: np.ndarray | None = None
        self.learns = False
        self.on_device, self.mergeable, self.single = on_device, mergeable, single
        self.groups = None if groups is None else join_rows(groups[used], self.X)
        self._count()

    def _count(self) -> None:
        self.n_rows, self.n_features = self.X.shape
        self.n_targets, self.weight = self.targets.shape[1], float(self.weights.sum())

    def _replace(self, **changes: Any) -> MemorySource:
        """Return the same rows with some attributes changed; their samples are made again."""
        other = object.__new__(MemorySource)
        other.__dict__.update({k: v for k, v in vars(self).items() if k != "samples"} | changes)
        other._count()
        return other

    def reweight(self, factors: np.ndarray) -> MemorySource:
        """Return the same rows, their weights multiplied by positive factors (n,)."""
        return self._replace(weights=self.weights * factors)

    def with_targets(self, targets: np.ndarray) -> MemorySource:
        """Return the same rows with other targets (n, q)."""
        return self._replace(targets=targets)

    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        unbound = options.dictionary(self.n_features)
        return unbound.bind(self.given, self.given_weights, options.generator()), unbound.learned_mask(self.n_features)

    def sample(self, basis: Basis) -> Sample:
        rows = self.distinct()
        within = np.zeros(rows.targets.shape) if rows.within is None else rows.within
        return Sample(basis, rows.X, rows.numbers, rows.targets, within, rows.weights)

    def for_learning(self) -> MemorySource:
        return self._replace(learns=True)

    def distinct(self) -> MemorySource:
        """Return the same rows; in lexicographic order, equal ones as one, where there are equal rows or weights."""
        merged = self.merged()
        return self if merged.n_rows == self.n_rows and np.all(self.weights == 1.0) else merged

    def feature_variances(self) -> np.ndarray:
        return feature_variances(self.given, self.given_weights)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.given[rows]

    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        return memory_left(options.memory_limit, self.n_rows, _centre_copies(basis) + numbers_a_row, bytes_a_row)

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        rows = self.distinct() if self.learns else self
        return target_units(rows.targets, rows.weights, None if rows.within is None else rows.within.sum(axis=0))

    def in_units(self, units: np.ndarray) -> MemorySource:
        return self._replace(targets=self.targets / units)

    @cached_property
    def samples(self) -> design.LocalSamples:
        return design.LocalSamples(self.X, self.targets, self.weights)

    def rows(
        self,
        dictionary: Basis,
        memory: float,
        keep: np.ndarray | None = None,
        seconds: float = np.inf,
        tolerance: float = design.TOLERANCE,
    ) -> tuple[Part, design.DesignRows]:
        return design.reduce_rows(dictionary, self.samples, memory, keep, seconds, tolerance)

    @property
    def has_squares(self) -> bool:
        """Whether squares of sums of inputs and targets have a double."""
        return max(np.abs(self.X).max(initial=0.0), np.abs(self.targets).max(initial=0.0)) < MAX_SQUARED

    def dense(self, most_numbers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None] | None:
        return (self.X, self.targets, self.weights, self.groups) if self.has_squares else None

    def exact(self, dictionary: Basis, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        return design.exact_triangle(self.samples, dictionary.take(active), scale[active], output)

    def merged(self) -> MemorySource:
        """In lexicographic order, equal rows as one: mean targets, summed weights, and the squares within."""
        if not self.mergeable:
            return self
        rows, first, row_of = self._groups
        with np.errstate(over="ignore", invalid="ignore"):  # too large to be squared: refused later, in words
            mean, weights = merge_targets(row_of, first, self.targets, self.weights)
            squares = self.weights[:, None] * (self.targets - mean[row_of]) ** 2
        within = np.stack([np.bincount(row_of, column) for column in squares.T], axis=1)
        numbers, labels = self.numbers[first], None if self.groups is None else self.groups[first]
        groups = rows, np.arange(len(rows)), np.arange(len(rows))
        return self._replace(X=rows, targets=mean, weights=weights, within=within, numbers=numbers, on_device=None,
                             groups=labels, _groups=groups)  # fmt: skip

    @cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct rows, where each first occurs, and the place of every row among them."""
        return unique_rows(self.X)

    def columns(self, output: int, K: int) -> tuple[np.ndarray, np.ndarray]:
        return output_target(self.targets, output, K), self.weights

    def mean_targets(self) -> np.ndarray:
        return self.weights @ self.targets / self.weight

    def scan(
        self, dictionary: Basis, memory: float, keep: np.ndarray | None = None
    ) -> tuple[Part, design.LaplaceDesign]:
        most = max(int(min(MAX_SCAN_NUMBERS, memory / SCAN_BYTES) / self.n_rows), MIN_SCAN_ATOMS)
        if dictionary.n_atoms <= most or not np.any(dictionary.rows >= 0):
            return None, design.dense_design(dictionary, self.X)
        atoms = design.draw_atoms(dictionary, most, keep)
        return atoms, design.dense_design(dictionary.take(atoms), self.X)


def _centre_copies(basis: Basis) -> int:
    """Numbers that a row takes where it is a centre of a bound dictionary: two copies, while they are sorted."""
    centred = any(isinstance(leaf, KernelBasis) and leaf.centre_rows is not None for leaf in leaves(basis))
    return 2 * (basis.n_features or 0) if centred else 0


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

    def rows(
        self,
        dictionary: Basis,
        memory: float,
        keep: np.ndarray | None = None,
        seconds: float = np.inf,
        tolerance: float = design.TOLERANCE,
    ) -> tuple[Part, design.DesignRows]:
        targets = self.targets * np.sqrt(self.weights)[:, None]
        return None, design.DesignRows(self._of(dictionary), targets, np.zeros(self.n_targets))

    def dense(self, most_numbers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None] | None:
        if self.n_rows * self.n_features > most_numbers:
            return None
        return MemorySource(self.X.toarray(), self.targets, self.weights).dense(most_numbers)

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

    def mean_targets(self) -> np.ndarray:
        return self.weights @ self.targets / self.weight

    def scan(
        self, dictionary: Basis, memory: float, keep: np.ndarray | None = None
    ) -> tuple[Part, design.LaplaceDesign]:
        return None, self._of(dictionary, weighs_rows=False)
