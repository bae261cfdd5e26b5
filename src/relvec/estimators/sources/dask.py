"""Rows that Dask holds as a source of a fit: passes over them are reductions on the workers."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from relvec import design
from relvec.basis import Basis, Concat, KernelBasis, leaves
from relvec.estimators.options import FitOptions, MachineOptions, ProcessOptions
from relvec.estimators.sources.base import (
    GaussianSource,
    LaplaceSource,
    ProcessRows,
    Sample,
    Subsample,
    draw_process_rows,
    exact_triangle,
)
from relvec.estimators.sources.memory import MemorySource
from relvec.solvers import Sequential

MAX_GATHERED_ROWS = 3000  # rows that are brought here and fitted here
# Classes and counts are brought here where the memory limit has so many bytes for each row: four times what the models
# of a search take. Their search looks at the rows some two thousand times, and every look is a trip to the workers.
GATHERED_BYTES_PER_ROW = 4 * design.MODEL_BYTES_PER_ROW
WIDTH_ROWS = 20_000  # rows of the sample that widths are learned from
MAX_SCANNED_ATOMS = 2000  # of a subset, which every scan evaluates on all rows


def are_brought_here(n_rows: int, n_features: int, options: FitOptions, gaussian: bool) -> bool:
    """Whether so many rows of Dask are fitted in this process rather than by its workers."""
    if n_rows <= MAX_GATHERED_ROWS:
        return True
    return not gaussian and n_rows * (GATHERED_BYTES_PER_ROW + 8 * n_features) <= options.memory


class DaskSource(GaussianSource, LaplaceSource):
    """Rows with the workers of Dask.

    Parameters
    ----------
    samples : the rows.
    gaussian : whether their targets have Gaussian noise: a dictionary that needs no row is then summed up once.
    """

    def __init__(self, samples: design.DaskSamples, gaussian: bool) -> None:
        self.samples, self._gaussian = samples if gaussian else samples.persisted(), gaussian
        self.n_rows, self.n_features, self.n_targets = samples.n_rows, samples.n_features, samples.n_targets
        self.weight, self.single = samples.statistics.weight, samples.single
        self._units = np.ones(samples.n_targets)
        self._on_rows: int | None = None
        self._parts: tuple[Basis, ...] = ()
        self._rng: Any = None
        self._drawn: dict[int, Any] = {}  # draws of rows that copies in other units share

    def process_rows(self, options: ProcessOptions) -> ProcessRows:
        rows = draw_process_rows(self.samples, options.memory)
        return replace(rows, numbers=self.samples.original_rows(rows.numbers))

    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        """The dictionary, bound as far as it does not hold rows."""
        statistics, d = self.samples.statistics, self.n_features
        unbound = options.dictionary(d)
        self._parts, self._rng = tuple(leaves(unbound)), options.generator()
        # two rows that have the means and variances of all, and two that have their bounds
        deviation = statistics.spread[:d] / np.sqrt(statistics.weight)
        alike = np.array([statistics.mean[:d] - deviation, statistics.mean[:d] + deviation])
        bounds = np.array([statistics.low, statistics.high])
        kernels = [(i, part) for i, part in enumerate(self._parts) if isinstance(part, KernelBasis)]
        on_rows = [i for i, part in kernels if part.centres is None and part.n_random is None]
        bound: list[Basis] = []
        for part in self._parts:
            if isinstance(part, KernelBasis):
                part = replace(part, kernel=part.kernel.resolve(alike))
            bound.append(part.bind(bounds, None, self._rng))
        if len(on_rows) > 1:
            raise ValueError(
                "with Dask only one kernel can be centred on every row: give the others centres, as in "
                "relvec.basis.KernelBasis(kernel, centres=Z)"
            )
        self._on_rows = on_rows[0] if on_rows else None
        return Concat(tuple(bound), n_features=d), unbound.learned_mask(d)

    def sample(self, basis: Basis) -> Sample:
        drawn = self._draw(WIDTH_ROWS)
        bound = Concat(self._parts).bind(drawn.X, drawn.weights, self._rng)
        rows = MemorySource(drawn.X, drawn.targets / self._units, drawn.weights)
        return replace(rows.sample(bound), complete=False)

    def _draw(self, size: int) -> Any:
        if size not in self._drawn:
            self._drawn[size] = self.samples.draw(size)
        return self._drawn[size]

    def dictionary(self, basis: Basis) -> Any:
        assert isinstance(basis, Concat)
        return basis if self._on_rows is None else design.DistributedKernelBasis(basis, self._on_rows, self.samples)

    def check_solver(self, dictionary: Any, options: MachineOptions) -> None:
        if not isinstance(dictionary, design.DistributedKernelBasis):
            return
        sequential = isinstance(options.solver, Sequential)
        if not sequential or (self._gaussian and options.solver.select != "batch"):  # type: ignore[attr-defined]
            batch = " with select='batch'" if self._gaussian else ""
            raise ValueError(
                f"with Dask and a kernel on every row the solver must be 'sequential'{batch}; over given centres "
                "(relvec.basis.KernelBasis(kernel, centres=Z)) any will do"
            )

    def feature_variances(self) -> np.ndarray:
        statistics = self.samples.statistics
        with np.errstate(over="ignore"):  # inf, as the variance of such data is
            return statistics.spread[: self.n_features] ** 2 / statistics.weight

    def take(self, basis: Basis, rows: np.ndarray) -> np.ndarray:
        kernels = [part for part in leaves(basis) if isinstance(part, KernelBasis) and np.all(part.rows >= 0)]
        centres: dict[int, np.ndarray] = {}
        for kernel in kernels:
            centres.update(zip(kernel.rows.tolist(), kernel.order_keys(), strict=True))  # type: ignore[arg-type]
        return np.array([centres[row] for row in rows.tolist()]).reshape(-1, self.n_features)

    def ordering(self, dictionary: Any, scale: Any) -> tuple[Any, Callable[[int], np.ndarray], np.ndarray]:
        if not isinstance(dictionary, design.DistributedKernelBasis):
            return super().ordering(dictionary, scale)
        essential = self.n_rows + np.arange(dictionary.n_others)
        return design.Lookup(dictionary.n_atoms, dictionary.order), dictionary.draw, essential

    def compact(self, dictionary: Any, fits: list, keep_last: bool) -> tuple[Basis, list]:
        """The dictionary of the atoms that the fits visited, and the fits over it."""
        if not isinstance(dictionary, design.DistributedKernelBasis):
            return dictionary, fits
        M = dictionary.n_atoms
        steps = [np.array([s.atom for s in fit.result.history if s.atom >= 0], dtype=np.intp) for fit in fits]
        met = np.concatenate([*steps, *(fit.result.state.active for fit in fits)]) % M
        visited = np.union1d(met, [M - 1] if keep_last else []).astype(np.intp)

        def renumber(atoms: np.ndarray) -> np.ndarray:
            return atoms // M * len(visited) + np.searchsorted(visited, atoms % M)

        found = []
        for fit in fits:
            result = fit.result
            history = [replace(s, atom=int(renumber(np.array(s.atom))) if s.atom >= 0 else -1) for s in result.history]
            state = replace(result.state, active=renumber(result.state.active))
            found.append(fit.with_atoms(visited, replace(result, state=state, history=history)))
        return dictionary.take(visited), found

    # Gaussian noise --------------------------------------------------------------------------------------------------

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        statistics = self.samples.statistics
        return design.units_of(statistics.mean, statistics.spread, statistics.weight, self.n_targets)

    def in_units(self, units: np.ndarray) -> DaskSource:
        other = copy(self)
        other._units = units
        return other

    @property
    def _scaled(self) -> design.DaskSamples:
        return self.samples.in_units(self._units)

    def rows(self, dictionary: Any, memory: float) -> design.Rows | None:
        if isinstance(dictionary, design.DistributedKernelBasis):
            return design.compress_rows(replace(dictionary, samples=self._scaled), memory)
        return self.samples.reduce(partial(_summarise, dictionary), design.Summary.merged).rows(self._units)

    def gram(self, basis: Basis, memory: float) -> design.Rows:
        return design.gram_rows(basis, self._scaled, memory)

    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        if not isinstance(dictionary, design.DistributedKernelBasis):
            return exact_triangle(self._scaled, dictionary.take(active), scale[active], output)
        order = np.argsort(active)
        columns, target = exact_triangle(self._scaled, dictionary.take(active[order]), scale[active[order]], output)
        return columns[:, np.argsort(order)], target

    # Classes and counts ----------------------------------------------------------------------------------------------

    def columns(self, output: int, K: int) -> tuple[slice, float]:
        return slice(output * K, output * K + K), 1.0

    def scan(self, dictionary: Any, memory: float) -> tuple[Any, design.LaplaceDesign | None]:
        """The design of a dictionary; a kernel on rows of which few are distinct becomes one on those."""
        if not isinstance(dictionary, design.DistributedKernelBasis):
            return dictionary, design.scan_basis(dictionary, self.samples)
        rows = self.samples.distinct(MAX_SCANNED_ATOMS)
        many = rows is None or len(rows) >= design.MIN_ROWS_TO_COMPRESS
        found = design.scan_rows(dictionary, memory) if many else None
        if found is None and rows is not None:
            few = dictionary.take(np.append(rows, self.n_rows + np.arange(dictionary.n_others)))
            return few, design.scan_basis(few, self.samples)
        return dictionary, found

    def scan_part(self, basis: Basis, memory: float) -> design.LaplaceDesign:
        return design.scan_basis(basis, self.samples)

    def subset_atoms(self, memory: float) -> int:
        return int(np.clip(design.max_gram_atoms(self.n_rows, memory), 64, MAX_SCANNED_ATOMS))

    def subsample(self, dictionary: Any, size: int, whole: bool) -> Subsample | None:
        if not whole:
            return None
        drawn = self._draw(size)
        few = MemorySource(drawn.X, drawn.targets, drawn.weights).merged()
        if not isinstance(dictionary, design.DistributedKernelBasis):
            return Subsample(np.arange(dictionary.n_atoms), dictionary, few.X, few.targets, few.weights)
        own = KernelBasis(dictionary.kernel).bind(drawn.X)
        parts = [own if i == dictionary.part else part for i, part in enumerate(dictionary.basis.parts)]
        basis = Concat(tuple(parts), n_features=self.n_features)
        rows, others = basis.rows, np.cumsum(basis.rows < 0) - 1
        atoms = np.where(rows >= 0, drawn.rows[np.maximum(rows, 0)], self.n_rows + others)
        return Subsample(atoms, basis, few.X, few.targets, few.weights)


def _summarise(basis: Basis, block: design.Block) -> design.Summary:
    return design.summarise(basis, block.X, block.targets, block.weights)
