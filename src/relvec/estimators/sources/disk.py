"""Rows that are read from disk in slices."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from relvec import design
from relvec.basis import Basis, Concat, KernelBasis, row_hash64
from relvec.estimators.options import FitOptions, MachineOptions, ProcessOptions
from relvec.estimators.sources.base import (
    GaussianSource,
    ProcessRows,
    Sample,
    draw_process_rows,
    exact_triangle,
    take_rows,
    target_units,
)
from relvec.estimators.sources.memory import MemorySource
from relvec.runtime.machine import memory_left

DISK_CANDIDATES_SHARE = 0.05  # of the memory limit, for the centres of rows on disk
MIN_DISK_CANDIDATES = 1000


class DiskSource(GaussianSource):
    """Rows X (N, d) that are read in slices; as many of them as fit in memory are candidates, evenly drawn."""

    def __init__(self, X: Any, targets: np.ndarray, weights: np.ndarray, memory_limit: Any, single: bool) -> None:
        self.X, self.targets, self.weights, self.single = X, targets, weights, single
        self._samples = design.LocalSamples(X, targets, weights)
        self.n_rows, self.n_features, self.n_targets = len(targets), int(X.shape[1]), targets.shape[1]
        self.weight, self._used = float(weights.sum()), np.flatnonzero(weights > 0.0)
        self._memory = memory_left(memory_limit, self.n_rows, self.n_targets + 3)
        self._spread, hashed = variances_and_hashes(self._samples)
        few = max(int(DISK_CANDIDATES_SHARE * self._memory / (8 * self.n_features)), MIN_DISK_CANDIDATES)
        lowest = np.argsort(hashed[self._used], kind="stable")[:few]  # a draw that no order of the rows can change
        self._drawn = self._used if len(self._used) <= few else np.sort(self._used[lowest])

    @cached_property
    def _rows_drawn(self) -> np.ndarray:
        return self._samples.take(self._drawn)

    def process_rows(self, options: ProcessOptions) -> ProcessRows:
        return draw_process_rows(self._samples, self._memory)

    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        unbound = options.dictionary(self.n_features)
        basis = unbound.bind(self._rows_drawn, self.weights[self._drawn], options.generator())
        return basis, unbound.learned_mask(self.n_features)

    def sample(self, basis: Basis) -> Sample:
        drawn = MemorySource(self._rows_drawn, self.targets[self._drawn], self.weights[self._drawn])
        return replace(drawn.sample(basis), complete=len(self._drawn) == len(self._used))

    def dictionary(self, basis: Basis) -> Basis:
        return renumber_rows(basis, self._drawn)

    def has_all_candidates(self, basis: Basis) -> bool:
        return len(self._drawn) == len(self._used) or not np.any(basis.rows >= 0)

    def feature_variances(self) -> np.ndarray:
        return self._spread

    def take(self, basis: Basis, rows: np.ndarray) -> np.ndarray:
        return self._samples.take(rows)

    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        return self._memory

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        return target_units(take_rows(self.targets, self._used), take_rows(self.weights, self._used))

    def in_units(self, units: np.ndarray) -> DiskSource:
        other = object.__new__(DiskSource)
        other.__dict__.update(self.__dict__)
        other.targets = self.targets / units
        other._samples = design.LocalSamples(self.X, other.targets, self.weights)
        return other

    def rows(self, dictionary: Any, memory: float) -> design.Rows | None:
        return design.rows_on_disk(dictionary, self._samples, memory)

    def gram(self, basis: Basis, memory: float) -> design.Rows:
        return design.gram_rows(basis, self._samples, memory)

    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        return exact_triangle(self._samples, dictionary.take(active), scale[active], output)


def variances_and_hashes(samples: design.Samples) -> tuple[np.ndarray, np.ndarray]:
    """Weighted variances of the features (d,) of samples in blocks, and hashes of the rows (n,), in one pass.

    An error where an entry is not finite.
    """
    origin, hashed = samples.take(np.array([0]))[0], np.empty(samples.n_rows, dtype=np.uint64)

    def sums(block: design.Block) -> np.ndarray:
        if not np.all(np.isfinite(block.X)):
            raise ValueError(
                f"X has entries that are not finite between rows {block.start} and {block.start + len(block.X)}"
            )
        hashed[block.start : block.start + len(block.X)] = row_hash64(block.X)
        Z = block.X - origin
        return np.column_stack([block.weights @ Z, block.weights @ Z**2, np.full(len(origin), block.weights.sum())])

    first, second, total = samples.reduce(sums, np.add).T
    return np.maximum(second / total - (first / total) ** 2, 0.0), hashed


def renumber_rows(basis: Basis, rows: np.ndarray) -> Basis:
    """A dictionary bound to some training rows (m,), with the numbers these have among all."""
    if isinstance(basis, Concat):
        return replace(basis, parts=tuple(renumber_rows(part, rows) for part in basis.parts))
    if isinstance(basis, KernelBasis) and basis.centre_rows is not None:
        return replace(basis, centre_rows=rows[basis.centre_rows])
    return basis
