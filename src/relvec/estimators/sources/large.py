"""Rows in blocks, in memory, on disk, with Dask or on a device, and a draw of them in memory.

All that is learned, kernels and candidates, comes from the draw; all rows are passed over for sums and for the model
that was found. The draw depends on the content of the rows alone, so that the model is the same from every place.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from relvec import design
from relvec.basis import Basis, Concat, KernelBasis
from relvec.design import TOLERANCE, Draw, Samples
from relvec.estimators.options import MAX_WHOLE_ROWS, FitOptions, MachineOptions, ProcessOptions
from relvec.estimators.sources.base import Part, ProcessRows, Sample, Source
from relvec.estimators.sources.memory import MemorySource
from relvec.gaussian_process.streamed import DrawnSamples
from relvec.runtime.arrays import Array, take
from relvec.runtime.machine import memory_left

MIN_DRAWN_ROWS = 1000  # however little memory there is
BYTES_PER_DRAWN_ROW, BYTES_PER_DRAWN_NUMBER = 8192, 40  # while vectors are chosen in blocks of 64; copies of the rows


def draw_size(memory: float, n_features: int) -> int:
    """Rows of a draw that fits into so many bytes: what is learned is learned from them, whatever their number."""
    size = int(memory / (BYTES_PER_DRAWN_ROW + BYTES_PER_DRAWN_NUMBER * n_features))
    return min(design.MAX_WHOLE_ROWS, max(size, MIN_DRAWN_ROWS))


class LargeSource(Source):
    """Many rows.

    Parameters
    ----------
    samples : the rows in blocks.
    memory : bytes that a fit may use besides.
    single : see `Source`.
    numbers : (N,) of the rows of samples among those given; None where the samples know.
    place : X (N, d) on a device where sums are computed, or None.
    groups : (N,) labels of the rows that are held out together, or None.
    """

    def __init__(
        self, samples: Samples, memory: float, single: bool, numbers: np.ndarray | None = None,
        place: Array | None = None, groups: np.ndarray | None = None, statistics: design.Statistics | None = None,
    ) -> None:  # fmt: skip
        self.samples, self.single, self.memory, self.numbers, self.groups = samples, single, memory, numbers, groups
        self.statistics = design.measure(samples) if statistics is None else statistics
        self.place, self.n_rows, self.weight = place, self.statistics.n_used, self.statistics.weight
        self.n_features, self.n_targets = samples.n_features, samples.n_targets
        self.units = np.ones(self.n_targets)

    @cached_property
    def draw(self) -> Draw:
        """Distinct rows in the order of their hash, with their numbers among the samples."""
        return design.draw_rows(self.samples, draw_size(self.memory, self.n_features))

    @cached_property
    def drawn_numbers(self) -> np.ndarray:
        """Numbers (n,) of the rows drawn among those that were given."""
        found = self.samples.original_rows(self.draw.rows)
        return found if self.numbers is None else self.numbers[found]

    @cached_property
    def drawn(self) -> MemorySource:
        """The rows drawn, in the order in which they were given."""
        order = np.argsort(self.drawn_numbers)
        _, _, X, targets, weights, _ = self.draw
        found = MemorySource(X[order], targets[order], weights[order], single=self.single)
        found.numbers = self.drawn_numbers[order]
        return found

    @property
    def sums_over(self) -> Samples:
        """The samples where sums over them are computed."""
        if self.place is None:
            return self.samples
        local = self.samples
        assert isinstance(local, design.LocalSamples)
        return design.DeviceSamples(self.place, local.targets, local.weights)

    def process_rows(self) -> ProcessRows:
        """The draw, with all rows as a table."""
        drawn = self.draw
        if self.groups is not None and len(drawn.rows) == draw_size(self.memory, self.n_features):
            raise ValueError(
                f"groups can be held out of a process of less than {len(drawn.rows):,} distinct rows, from which it is "
                "learned as a whole: leave rows out, raise memory_limit, or fit RelevanceVectorRegressor"
            )
        own = None if self.groups is None else self.groups[drawn.rows]
        table = DrawnSamples(self.sums_over, drawn, self.memory, self.place, own)
        return ProcessRows(drawn.X, drawn.targets, drawn.weights, self.drawn_numbers, table)

    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        basis, mask = self.drawn.bind(options)
        return renumber_rows(basis, self.drawn.numbers), mask

    def sample(self, basis: Basis) -> Sample:
        return replace(self.drawn.in_units(self.units).sample(basis), complete=len(self.draw.rows) == self.n_rows)

    def feature_variances(self) -> np.ndarray:
        return self.statistics.feature_variances(self.n_features)

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.drawn.take(np.searchsorted(self.drawn.numbers, rows))

    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        return self.memory

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        return self.statistics.target_units(self.n_targets)

    def in_units(self, units: np.ndarray) -> LargeSource:
        other = copy(self)
        other.units = units
        return other

    def rows(
        self,
        dictionary: Basis,
        memory: float,
        keep: np.ndarray | None = None,
        seconds: float = np.inf,
        tolerance: float = TOLERANCE,
    ) -> tuple[Part, design.DesignRows]:
        atoms, rows = design.reduce_rows(dictionary, self.sums_over, memory, keep, seconds, tolerance)
        return atoms, replace(rows, targets=rows.targets / self.units,
                              target_norm2_outside=rows.target_norm2_outside / self.units**2)  # fmt: skip

    def exact(self, dictionary: Basis, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        columns, target = design.exact_triangle(self.sums_over, dictionary.take(active), scale[active], output)
        return columns, target / self.units[output]

    def merged(self) -> MemorySource:
        return self.drawn.merged()

    @property
    def all_samples(self) -> Samples:
        return self.sums_over

    def columns(self, output: int, K: int) -> tuple[np.ndarray, np.ndarray]:
        return self.drawn.columns(output, K)

    def mean_targets(self) -> np.ndarray:
        return self.statistics.mean[self.n_features :]

    def scan(
        self, dictionary: Basis, memory: float, keep: np.ndarray | None = None
    ) -> tuple[Part, design.LaplaceDesign]:
        return self.drawn.scan(dictionary, memory, keep)


def machine_rows(source: Source, options: MachineOptions) -> Source:
    """The rows as a machine needs them: in blocks with a draw of them, where they are many."""
    if not isinstance(source, MemorySource) or not source.mergeable or options.predictive is not None:
        return source
    return source if source.n_rows <= draw_size(options.memory, source.n_features) else in_blocks(source, options)


def process_rows(source: Source, options: ProcessOptions) -> ProcessRows:
    """The rows as a process needs them; refused where no process can be fitted to such rows."""
    if isinstance(source, LargeSource):
        return source.process_rows()
    if not isinstance(source, MemorySource):
        raise ValueError("a process needs dense rows: give X as an array, or fit a linear model to the sparse columns")
    if source.n_rows > MAX_WHOLE_ROWS:
        return in_blocks(source, options).process_rows()
    return ProcessRows(source.X, source.targets, source.weights, source.numbers, groups=source.groups)


def in_blocks(source: MemorySource, options: FitOptions) -> LargeSource:
    """Rows in memory as many rows are looked at."""
    place = source.on_device
    if place is not None and len(source.numbers) < len(source.given):
        place = take(place, source.numbers)
    memory = memory_left(options.memory_limit, source.n_rows, 2 * source.n_targets + 3)
    return LargeSource(source.samples, memory, source.single, source.numbers, place, source.groups)


def renumber_rows(basis: Basis, rows: np.ndarray) -> Basis:
    """A dictionary bound to some training rows (m,), with the numbers these have among all."""
    if isinstance(basis, Concat):
        return replace(basis, parts=tuple(renumber_rows(part, rows) for part in basis.parts))
    if isinstance(basis, KernelBasis) and basis.centre_rows is not None:
        return replace(basis, centre_rows=rows[basis.centre_rows])
    return basis
