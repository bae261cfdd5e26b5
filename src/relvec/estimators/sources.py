"""Where the rows of a fit are, and the few questions that a fit asks of them.

`MemorySource` holds them as arrays, on the host or on a device; `DiskSource` reads them in slices; `SummarySource` has
nothing left of them but a triangle; `relvec.estimators.dask_source.DaskSource` leaves them with the workers of Dask.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis, leaves
from relvec.design import (
    MODEL_BYTES_PER_ROW,
    Block,
    LaplaceDesign,
    LocalSamples,
    Rows,
    Samples,
    Summary,
    device_scan_design,
    exact_columns,
    gram_rows,
    kernel_on_training_rows,
    make_rows,
    max_scan_atoms,
    rows_on_disk,
    scan_design,
    tall_qr,
)
from relvec.design.order import content_ranks, even_draw, row_hash64
from relvec.estimators.options import FitOptions
from relvec.inference.units import feature_variances, target_units
from relvec.runtime.arrays import Array, Device, unique_rows
from relvec.runtime.memory import memory_left

DISK_CANDIDATES_SHARE = 0.05  # of the memory limit, for the centres of rows on disk
MIN_DISK_CANDIDATES = 1000


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory that widths are learned from or centres are moved on.

    Attributes
    ----------
    basis : the dictionary bound to these rows.
    X : (n, d) rows, equal ones merged where that is possible.
    rows : (n,) their numbers, as in ``basis.rows``.
    targets : (n, q) their (mean) targets.
    within : (n, q) weighted squares of the targets of merged rows about their mean.
    weights : (n,) their (total) weights.
    complete : whether these are all rows of the fit.
    """

    basis: Basis
    X: np.ndarray
    rows: np.ndarray
    targets: np.ndarray
    within: np.ndarray
    weights: np.ndarray
    complete: bool = True


@dataclass(frozen=True, eq=False)
class Subsample:
    """A draw of rows by content with the atoms of a dictionary that belong to it.

    Attributes
    ----------
    atoms : (m,) their numbers in the dictionary; basis : these atoms.
    X, targets, weights : (k, d), (k, q), (k,) the rows, equal ones merged.
    """

    atoms: np.ndarray
    basis: Basis
    X: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


class Source(ABC):
    """The rows of a fit with a positive weight, wherever they are.

    Attributes
    ----------
    n_rows, n_features, n_targets : their number, and the columns of X and of the targets.
    weight : sum of their weights.
    single : whether the targets are one column that was given as (n,).
    """

    single: bool = True
    n_rows: int
    n_features: int
    n_targets: int
    weight: float

    @property
    def identity(self) -> tuple:
        """What tells these rows from others, for checkpoints."""
        return ()

    @abstractmethod
    def bind(self, options: FitOptions) -> tuple[Basis, np.ndarray]:
        """The dictionary of candidates, bound to the rows, and which entries of its theta (p,) are to be learned."""

    @abstractmethod
    def sample(self, basis: Basis) -> Sample:
        """Rows in memory that the widths of a bound dictionary are learned from."""

    def for_learning(self) -> Source:
        """The same rows, where widths are to be learned: copies of a row and its weight must be the same to the fit."""
        return self

    def dictionary(self, basis: Basis) -> Any:
        """The dictionary that is searched, for one that `bind` gave, with its widths learned."""
        return basis

    @abstractmethod
    def feature_variances(self) -> np.ndarray:
        """Numbers in proportion to the weighted variances of the features (d,)."""

    @abstractmethod
    def take(self, basis: Basis, rows: np.ndarray) -> np.ndarray:
        """Rows (k, d) of X by the numbers (k,) that a fitted dictionary has for them."""

    def ordering(self, dictionary: Any, scale: Any) -> tuple[Any, Callable[[int], np.ndarray], np.ndarray]:
        """Ranks (M,) of the atoms by content, an even draw of them, and the atoms that stand on no row."""
        return content_ranks(dictionary, scale), even_draw(dictionary), np.flatnonzero(dictionary.rows < 0)

    def compact(self, dictionary: Any, fits: list, keep_last: bool) -> tuple[Basis, list]:
        """A dictionary that can be kept, and the fits over it."""
        return dictionary, fits

    def has_all_candidates(self, basis: Basis) -> bool:
        """Whether every row could be a centre of a dictionary."""
        return True

    def check_solver(self, dictionary: Any, options: FitOptions) -> None:  # noqa: B027
        """Refuse a solver that cannot search a dictionary on these rows."""

    @abstractmethod
    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        """Bytes that the memory limit leaves besides so many numbers, and bytes, for each row."""


class GaussianSource(Source):
    """Rows with targets under Gaussian noise."""

    @abstractmethod
    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Root mean square (1 for zeros) and relative variance (0 where constant to rounding) of each target (q,)."""

    @abstractmethod
    def in_units(self, units: np.ndarray) -> GaussianSource:
        """The same rows with targets divided by units (q,)."""

    @abstractmethod
    def rows(self, dictionary: Any, memory: float) -> Rows | None:
        """The dictionary on the rows, compressed where it pays; None where it is too long for the memory."""

    @abstractmethod
    def gram(self, basis: Basis, memory: float) -> Rows:
        """A short dictionary on the rows, reduced to its atoms."""

    @abstractmethod
    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        """Uncompressed columns of some atoms over their scale and a target: the k + 1 rows of a QR factorisation."""


class LaplaceSource(Source):
    """Rows with classes or counts."""

    @abstractmethod
    def merged(self) -> LaplaceSource:
        """The same rows, equal ones as one where that is possible."""

    @abstractmethod
    def columns(self, output: int, K: int) -> tuple[Any, Any]:
        """The target (n,) or (n, K) of an output of K functions, and weights (n,).

        Where the rows are elsewhere, the columns of the target there and a factor for all weights.
        """

    @abstractmethod
    def scan(self, dictionary: Any, memory: float) -> tuple[Any, LaplaceDesign | None]:
        """The design of a dictionary, None where it is too long; and the dictionary, which may have become shorter."""

    @abstractmethod
    def scan_part(self, basis: Basis, memory: float) -> LaplaceDesign:
        """The design of a part of a dictionary."""

    @abstractmethod
    def subset_atoms(self, memory: float) -> int:
        """Atoms of the parts that a long dictionary is searched in."""

    @abstractmethod
    def restarts_in_subsets(self, memory: float) -> bool:
        """Whether the models of a restart fit in memory where a dictionary is searched in parts."""

    def move_to_device(self, values: np.ndarray) -> Array:
        """Values where the designs are."""
        return values

    @abstractmethod
    def subsample(self, dictionary: Any, size: int, whole: bool) -> Subsample | None:
        """So many rows, drawn by content, with their atoms; None where a search on few rows does not help.

        ``whole`` tells whether the dictionary is that of the fit, or a part of it.
        """


class MemorySource(GaussianSource, LaplaceSource):
    """Rows in memory, those of positive weight, with the same rows on a device where work is to be done there.

    Parameters
    ----------
    X : (N, d) all rows as given, also those of weight zero.
    targets : (N, q) float64.
    weights : (N,).
    identity : of the data, for checkpoints.
    on_device : X on a device, or None.
    place : the device of classes and counts, or None.
    mergeable : whether equal rows are one row: not where X holds kernel values.
    single : see `Source`.
    """

    def __init__(
        self, X: np.ndarray, targets: np.ndarray, weights: np.ndarray, identity: tuple = (),
        on_device: Array | None = None, place: Device | None = None, mergeable: bool = True, single: bool = True,
    ) -> None:  # fmt: skip
        used = np.flatnonzero(weights > 0.0)
        self.given, self.given_weights, self._identity = X, weights, identity
        self.numbers = used
        self.X, self.targets, self.weights = (take_rows(values, used) for values in (X, targets, weights))
        self.within: np.ndarray | None = None
        self.learns = False
        self.on_device, self.place, self.mergeable, self.single = on_device, place, mergeable, single
        self._count()

    def _count(self) -> None:
        self.n_rows, self.n_features = self.X.shape
        self.n_targets, self.weight = self.targets.shape[1], float(self.weights.sum())

    def _changed(self, **changes: Any) -> MemorySource:
        """The same rows with some attributes changed; what was computed from them is forgotten, but for ``_groups``."""
        computed = ("_samples", "used_on_device", "_by_content")
        other = object.__new__(MemorySource)
        other.__dict__.update({k: v for k, v in vars(self).items() if k not in computed} | changes)
        other._count()
        return other

    @property
    def identity(self) -> tuple:
        return self._identity

    @property
    def root(self) -> np.ndarray:
        """Roots of the weights (n,)."""
        return np.sqrt(self.weights)

    def bind(self, options: FitOptions) -> tuple[Basis, np.ndarray]:
        all_used = len(self.numbers) == len(self.given)
        unbound = options.dictionary(self.n_features, self.on_device if all_used else None)
        return unbound.bind(self.given, self.given_weights, options.generator()), unbound.learned_mask(self.n_features)

    def sample(self, basis: Basis) -> Sample:
        rows = self.distinct()
        within = np.zeros(rows.targets.shape) if rows.within is None else rows.within
        return Sample(basis, rows.X, rows.numbers, rows.targets, within, rows.weights)

    def for_learning(self) -> MemorySource:
        return self._changed(learns=True)

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
        return self._changed(targets=self.targets / units)

    def rows(self, dictionary: Any, memory: float) -> Rows | None:
        return make_rows(dictionary, self.X, self.targets, self.weights, memory=memory, on_device=self.used_on_device)

    @cached_property
    def used_on_device(self) -> Array | None:
        """The rows of positive weight on the device, or None."""
        if self.on_device is None or len(self.numbers) == len(self.given):
            return self.on_device
        from relvec.runtime.arrays import take

        return take(self.on_device, self.numbers)

    @cached_property
    def _samples(self) -> LocalSamples:
        return LocalSamples(self.X, self.targets, self.weights)

    def gram(self, basis: Basis, memory: float) -> Rows:
        return gram_rows(basis, self._samples, memory)

    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        if self.on_device is not None:
            part, target = dictionary.take(active), self.targets[:, output]
            return exact_columns(part, self.used_on_device, self.root, scale[active], target)
        return exact_triangle(self._samples, dictionary.take(active), scale[active], output)

    def merged(self) -> MemorySource:
        """In lexicographic order, equal rows as one: mean targets, summed weights, and the squares within."""
        if not self.mergeable:
            return self
        rows, first, row_of = self._groups
        weights = np.bincount(row_of, self.weights)
        base = self.targets[first]  # means of equal targets are exact
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # targets too large to be squared are refused later, in words
            apart = self.weights[:, None] * (self.targets - base[row_of])
            mean = base + np.stack([np.bincount(row_of, column) for column in apart.T], axis=1) / weights[:, None]
            squares = self.weights[:, None] * (self.targets - mean[row_of]) ** 2
        within = np.stack([np.bincount(row_of, column) for column in squares.T], axis=1)
        numbers = self.numbers[first]
        groups = rows, np.arange(len(rows)), np.arange(len(rows))
        return self._changed(X=rows, targets=mean, weights=weights, within=within, numbers=numbers, on_device=None,
                             _groups=groups)  # fmt: skip

    @cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct rows, where each first occurs, and the place of every row among them."""
        return unique_rows(self.X)

    def columns(self, output: int, K: int) -> tuple[np.ndarray, np.ndarray]:
        target = self.targets[:, output * K : (output + 1) * K]
        return (np.ascontiguousarray(target[:, 0]) if K == 1 else target), self.weights

    def move_to_device(self, values: np.ndarray) -> Array:
        return values if self.place is None else self.place.to_device(values)

    def scan(self, dictionary: Any, memory: float) -> tuple[Any, LaplaceDesign | None]:
        if self.place is not None:
            return dictionary, device_scan_design(dictionary, self.place.to_device(self.X))
        return dictionary, scan_design(dictionary, self.X, memory=memory)

    def scan_part(self, basis: Basis, memory: float) -> LaplaceDesign:
        design = scan_design(basis, self.X, compression=False, memory=memory)
        assert design is not None
        return design

    def subset_atoms(self, memory: float) -> int:
        return max_scan_atoms(self.n_rows, memory)

    def restarts_in_subsets(self, memory: float) -> bool:
        return memory > 4 * MODEL_BYTES_PER_ROW * self.n_rows  # the models of a restart are twice as large

    @cached_property
    def _by_content(self) -> np.ndarray:
        """Numbers of the rows in an order that is as good as random, but decided by their content (n,)."""
        return np.argsort(row_hash64(np.column_stack([np.zeros(self.n_rows), self.X])), kind="stable")

    def subsample(self, dictionary: Any, size: int, whole: bool) -> Subsample | None:
        if self.place is not None:
            return None
        chosen = np.sort(self._by_content[:size])
        part, own = kernel_on_training_rows(dictionary), np.zeros(0, dtype=np.intp)
        if part is not None and part.centres is not None and np.array_equal(part.centres, self.X):
            own = next(w for q, w in zip(dictionary.parts, dictionary.part_columns(), strict=True) if q is part)
        drawn = own[chosen] if len(own) else np.random.default_rng(0).permutation(dictionary.n_atoms)[:size]
        atoms = np.union1d(np.flatnonzero(dictionary.rows < 0), drawn)
        return Subsample(atoms, dictionary.take(atoms), self.X[chosen], self.targets[chosen], self.weights[chosen])


class DiskSource(GaussianSource):
    """Rows X (N, d) that are read in slices; as many of them as fit in memory are candidates, evenly drawn."""

    def __init__(self, X: Any, targets: np.ndarray, weights: np.ndarray, memory_limit: Any, single: bool) -> None:
        self.X, self.targets, self.weights, self.single = X, targets, weights, single
        self._samples = LocalSamples(X, targets, weights)
        self.n_rows, self.n_features, self.n_targets = len(targets), int(X.shape[1]), targets.shape[1]
        self.weight, self._used = float(weights.sum()), np.flatnonzero(weights > 0.0)
        self._memory = memory_left(memory_limit, self.n_rows, self.n_targets + 3)
        self._spread = spreads(self._samples)
        few = max(int(DISK_CANDIDATES_SHARE * self._memory / (8 * self.n_features)), MIN_DISK_CANDIDATES)
        used = self._used
        self._drawn = used if len(used) <= few else np.sort(np.random.default_rng(0).choice(used, few, replace=False))

    @property
    def identity(self) -> tuple:
        return self._spread, self.targets, self.weights

    @cached_property
    def _rows_drawn(self) -> np.ndarray:
        return self._samples.take(self._drawn)

    def bind(self, options: FitOptions) -> tuple[Basis, np.ndarray]:
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
        other._samples = LocalSamples(self.X, other.targets, self.weights)
        return other

    def rows(self, dictionary: Any, memory: float) -> Rows | None:
        return rows_on_disk(dictionary, self._samples, memory)

    def gram(self, basis: Basis, memory: float) -> Rows:
        return gram_rows(basis, self._samples, memory)

    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        return exact_triangle(self._samples, dictionary.take(active), scale[active], output)


class SummarySource(GaussianSource):
    """Rows that are summed up (`relvec.design.Summary`): their number does not matter, and none of them is left."""

    def __init__(self, summary: Summary, single: bool, units: np.ndarray | None = None) -> None:
        self.summary, self.single, self._units = summary, single, units
        self.n_rows, self.n_targets, self.weight = summary.n_rows, summary.n_outputs, summary.weight
        self.n_features = len(summary.mean) - summary.n_outputs

    def bind(self, options: FitOptions) -> tuple[Basis, np.ndarray]:
        return self.summary.basis, np.zeros(len(self.summary.basis.theta), dtype=bool)

    def sample(self, basis: Basis) -> Sample:
        nothing = np.zeros((0, self.n_targets))
        return Sample(basis, np.zeros((0, self.n_features)), np.zeros(0, dtype=np.intp), nothing, nothing, np.zeros(0))

    def feature_variances(self) -> np.ndarray:
        return self.summary.feature_variances

    def take(self, basis: Basis, rows: np.ndarray) -> np.ndarray:
        return np.zeros((0, self.n_features))

    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        return options.memory

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        return self.summary.units

    def in_units(self, units: np.ndarray) -> SummarySource:
        return SummarySource(self.summary, self.single, units)

    def rows(self, dictionary: Any, memory: float) -> Rows:
        assert self._units is not None
        return self.summary.rows(self._units)

    def gram(self, basis: Basis, memory: float) -> Rows:
        return self.rows(basis, memory)

    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        rows = self.rows(dictionary, 0.0)  # never compressed: the triangle itself
        return rows.design.columns(active), rows.targets[:, output]


# ---------------------------------------------------------------- what sources are made of


def take_rows(values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """The rows whose numbers are in ``used``, in order; the array itself where that is all of them."""
    return values if len(used) == len(values) else values[used]


def spreads(samples: Samples) -> np.ndarray:
    """Weighted variances of the features (d,) of samples in blocks; an error where one is not finite."""
    origin = samples.take(np.array([0]))[0]

    def sums(block: Block) -> np.ndarray:
        if not np.all(np.isfinite(block.X)):
            raise ValueError(
                f"X has entries that are not finite between rows {block.start} and {block.start + len(block.X)}"
            )
        Z = block.X - origin
        return np.column_stack([block.weights @ Z, block.weights @ Z**2, np.full(len(origin), block.weights.sum())])

    first, second, total = samples.reduce(sums, np.add).T
    return np.maximum(second / total - (first / total) ** 2, 0.0)


def renumber_rows(basis: Basis, rows: np.ndarray) -> Basis:
    """A dictionary bound to some training rows (m,), with the numbers these have among all."""
    if isinstance(basis, Concat):
        return replace(basis, parts=tuple(renumber_rows(part, rows) for part in basis.parts))
    if isinstance(basis, KernelBasis) and basis.centre_rows is not None:
        return replace(basis, centre_rows=rows[basis.centre_rows])
    return basis


def _centre_copies(basis: Basis) -> int:
    """Numbers that a row takes where it is a centre of a bound dictionary: two copies, while they are sorted."""
    centred = any(isinstance(leaf, KernelBasis) and leaf.centre_rows is not None for leaf in leaves(basis))
    return 2 * (basis.n_features or 0) if centred else 0


@dataclass(frozen=True, eq=False)
class ModelColumns:
    """The columns of a model and its target on some rows."""

    basis: Basis
    scale: np.ndarray
    output: int

    def __call__(self, block: Block) -> np.ndarray:
        return np.column_stack([self.basis(block.X) / self.scale, block.targets[:, self.output]]) * block.root


def exact_triangle(samples: Samples, basis: Basis, scale: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
    """The QR triangle of the columns of a basis over their scale (k,), and of a target, in a pass over the samples."""
    R = tall_qr(samples, ModelColumns(basis, scale, output))
    return R[:, :-1], R[:, -1]
