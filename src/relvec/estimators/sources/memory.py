"""Rows in memory, on the host or on a device."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from relvec import design
from relvec.basis import Basis, KernelBasis, leaves, numbers_per_entry, row_hash64
from relvec.estimators.options import MAX_WHOLE_ROWS, FitOptions, MachineOptions, ProcessOptions
from relvec.estimators.sources.base import (
    GaussianSource,
    LaplaceSource,
    ProcessRows,
    Sample,
    Subsample,
    draw_process_rows,
    exact_triangle,
    feature_variances,
    join_rows,
    merge_targets,
    output_target,
    take_rows,
    target_units,
)
from relvec.runtime.arrays import Array, Device, take, unique_rows
from relvec.runtime.machine import memory_left

LOOK_NUMBERS = 500_000  # of a dictionary that is looked at, computed at once


class MemorySource(GaussianSource, LaplaceSource):
    """Rows in memory, those of positive weight, with the same rows on a device where work is to be done there.

    Parameters
    ----------
    X : (N, d) all rows as given, also those of weight zero.
    targets : (N, q) float64.
    weights : (N,).
    on_device : X on a device, or None.
    place : the device of classes and counts, or None.
    mergeable : whether equal rows are one row: not where X holds kernel values.
    single : see `Source`.
    groups : (N,) labels of the rows that are held out together, or None; kept as numbers, equal for equal rows.
    """

    def __init__(
        self, X: np.ndarray, targets: np.ndarray, weights: np.ndarray, on_device: Array | None = None,
        place: Device | None = None, mergeable: bool = True, single: bool = True, groups: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        used = np.flatnonzero(weights > 0.0)
        self.given, self.given_weights = X, weights
        self.numbers = used
        self.X, self.targets, self.weights = (take_rows(values, used) for values in (X, targets, weights))
        self.within: np.ndarray | None = None
        self.learns = False
        self.on_device, self.place, self.mergeable, self.single = on_device, place, mergeable, single
        self.groups = None if groups is None else join_rows(groups[used], self.X)
        self._count()

    def _count(self) -> None:
        self.n_rows, self.n_features = self.X.shape
        self.n_targets, self.weight = self.targets.shape[1], float(self.weights.sum())

    def _replace(self, **changes: Any) -> MemorySource:
        """The same rows with some attributes changed; what was computed from them is forgotten, but for ``_groups``."""
        computed = ("_samples", "used_on_device", "_by_content")
        other = object.__new__(MemorySource)
        other.__dict__.update({k: v for k, v in vars(self).items() if k not in computed} | changes)
        other._count()
        return other

    def reweight(self, factors: np.ndarray) -> MemorySource:
        """The same rows, their weights multiplied by positive factors (n,)."""
        return self._replace(weights=self.weights * factors)

    def with_targets(self, targets: np.ndarray) -> MemorySource:
        """The same rows with other targets (n, q)."""
        return self._replace(targets=targets)

    @property
    def root(self) -> np.ndarray:
        """Roots of the weights (n,)."""
        return np.sqrt(self.weights)

    def process_rows(self, options: ProcessOptions) -> ProcessRows:
        if self.n_rows <= MAX_WHOLE_ROWS:
            return ProcessRows(self.X, self.targets, self.weights, self.numbers, groups=self.groups)
        rows = draw_process_rows(self._samples, options.memory, self.used_on_device, self.groups)
        if rows.table is not None and self.used_on_device is not None:
            samples = design.DeviceSamples(self.used_on_device, self.targets, self.weights)
            rows = replace(rows, table=replace(rows.table, samples=samples))
        return replace(rows, numbers=self.numbers[rows.numbers])

    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        all_used = len(self.numbers) == len(self.given)
        unbound = options.dictionary(self.n_features, self.on_device if all_used else None)
        return unbound.bind(self.given, self.given_weights, options.generator()), unbound.learned_mask(self.n_features)

    def sample(self, basis: Basis) -> Sample:
        rows = self.distinct()
        within = np.zeros(rows.targets.shape) if rows.within is None else rows.within
        return Sample(basis, rows.X, rows.numbers, rows.targets, within, rows.weights)

    def for_learning(self) -> MemorySource:
        return self._replace(learns=True)

    def distinct(self) -> MemorySource:
        """The same rows; in lexicographic order, equal ones as one, where there are equal rows or weights."""
        merged = self.merged()
        return self if merged.n_rows == self.n_rows and np.all(self.weights == 1.0) else merged

    def feature_variances(self) -> np.ndarray:
        return feature_variances(self.given, self.given_weights)

    def take(self, basis: Basis, rows: np.ndarray) -> np.ndarray:
        return self.given[rows]

    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        return memory_left(options.memory_limit, self.n_rows, _centre_copies(basis) + numbers_a_row, bytes_a_row)

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        rows = self.distinct() if self.learns else self
        return target_units(rows.targets, rows.weights, None if rows.within is None else rows.within.sum(axis=0))

    def in_units(self, units: np.ndarray) -> MemorySource:
        return self._replace(targets=self.targets / units)

    def rows(self, dictionary: Any, memory: float) -> design.Rows | None:
        return design.make_rows(
            dictionary, self.X, self.targets, self.weights, memory=memory, on_device=self.used_on_device
        )

    @cached_property
    def used_on_device(self) -> Array | None:
        """The rows of positive weight on the device, or None."""
        if self.on_device is None or len(self.numbers) == len(self.given):
            return self.on_device
        return take(self.on_device, self.numbers)

    @cached_property
    def _samples(self) -> design.LocalSamples:
        return design.LocalSamples(self.X, self.targets, self.weights)

    def gram(self, basis: Basis, memory: float) -> design.Rows:
        return design.gram_rows(basis, self._samples, memory)

    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        if self.on_device is not None:
            part, target = dictionary.take(active), self.targets[:, output]
            return design.exact_columns(part, self.used_on_device, self.root, scale[active], target)
        return exact_triangle(self._samples, dictionary.take(active), scale[active], output)

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

    def move_to_device(self, values: np.ndarray) -> Array:
        return values if self.place is None else self.place.to_device(values)

    def scan(self, dictionary: Any, memory: float) -> tuple[Any, design.LaplaceDesign | None]:
        if self.place is not None:
            return dictionary, design.device_scan_design(dictionary, self.place.to_device(self.X))
        return dictionary, design.scan_design(dictionary, self.X, memory=memory)

    def scan_part(self, basis: Basis, memory: float) -> design.LaplaceDesign:
        # a model of many functions and some new candidates may need more than the limit; `memory_left` has warned
        needed = design.scan_bytes(self.n_rows, basis.n_atoms)
        found = design.scan_design(basis, self.X, compression=False, memory=max(memory, needed))
        assert found is not None
        return found

    def products(self, dictionary: Basis, atoms: np.ndarray, Y: np.ndarray, W: np.ndarray) -> tuple:
        """Y'Phi (J, c) and W'Phi^2 (K, c) of atoms (c,), for Y (n, J) and W (n, K): in blocks, nothing is held."""
        part, J = dictionary.take(atoms), Y.shape[1]
        block_rows = max(int(LOOK_NUMBERS / (len(atoms) * numbers_per_entry(part))), 16)

        def add_up(block: design.Block) -> np.ndarray:
            Phi = part(block.X)
            return np.vstack([block.targets[:, :J].T @ Phi, block.targets[:, J:].T @ Phi**2])

        found = design.LocalSamples(self.X, np.hstack([Y, W]), None, block_rows).reduce(add_up, np.add)
        return found[:J], found[J:]

    def subset_atoms(self, memory: float) -> int:
        return design.max_scan_atoms(self.n_rows, memory)

    def restarts_in_subsets(self, memory: float) -> bool:
        return memory > 4 * design.MODEL_BYTES_PER_ROW * self.n_rows  # the models of a restart are twice as large

    @cached_property
    def _by_content(self) -> np.ndarray:
        """Numbers of the rows in an order that is as good as random, but decided by their content (n,)."""
        return np.argsort(row_hash64(np.column_stack([np.zeros(self.n_rows), self.X])), kind="stable")

    def subsample(self, dictionary: Any, size: int, whole: bool) -> Subsample | None:
        if self.place is not None:
            return None
        chosen = np.sort(self._by_content[:size])
        part, own = design.kernel_on_training_rows(dictionary), np.zeros(0, dtype=np.intp)
        if part is not None and part.centres is not None and np.array_equal(part.centres, self.X):
            own = next(w for q, w in zip(dictionary.parts, dictionary.part_columns(), strict=True) if q is part)
        drawn = own[chosen] if len(own) else np.random.default_rng(0).permutation(dictionary.n_atoms)[:size]
        atoms = np.union1d(np.flatnonzero(dictionary.rows < 0), drawn)
        return Subsample(atoms, dictionary.take(atoms), self.X[chosen], self.targets[chosen], self.weights[chosen])


def _centre_copies(basis: Basis) -> int:
    """Numbers that a row takes where it is a centre of a bound dictionary: two copies, while they are sorted."""
    centred = any(isinstance(leaf, KernelBasis) and leaf.centre_rows is not None for leaf in leaves(basis))
    return 2 * (basis.n_features or 0) if centred else 0
