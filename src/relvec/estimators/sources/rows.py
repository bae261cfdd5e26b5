"""Rows of a regression or a classification on their way into a source: memory, disk, Dask or a device."""

from __future__ import annotations

from operator import and_
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array, check_consistent_length, column_or_1d, compute_sample_weight
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from relvec.design import (
    Block,
    DaskSamples,
    LocalSamples,
    align_labels,
    class_indicators,
    count_labels,
    gather,
    is_dask,
    is_sliced,
    weigh_classes,
)
from relvec.estimators.base import MAX_WEIGHT_SUM, MAX_WEIGHT_SUM_OF_COUNTS, BaseModel, check_weight_sum
from relvec.estimators.gaussian import check_size
from relvec.estimators.options import FitOptions, ProcessOptions
from relvec.estimators.sources import LargeSource, MemorySource, Source, SparseSource, draw_size
from relvec.estimators.sources.base import check_groups, check_labels, check_numbers, check_used, refuse_groups
from relvec.inference.censored import as_ends
from relvec.runtime.arrays import PerRow, RowsLike, TargetsLike
from relvec.runtime.machine import memory_left

PRIOR_COUNT = 0.5  # of an output without any
MAX_COUNT = 1e15  # beyond, doubles soon skip some whole numbers


class RegressionRows(BaseModel):
    """The part of a regressor that checks its rows, wherever they are."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _regression_source(
        self, options: FitOptions, X: RowsLike, y: TargetsLike, sample_weight: PerRow, groups: PerRow = None, *,
        counts: bool = False, censored: bool = False, passes: bool = False,
    ) -> Source:  # fmt: skip
        """Return the rows, validated, as a source.

        counts, censored : whether targets are counts, or the ends of intervals.
        passes : whether the fit reads rows on disk a few times only, so that they had better stay there.
        """
        if type(X) is not np.ndarray:
            if self._takes_sparse and issparse(X):
                check_groups(groups, X.shape[0])
                return self._sparse_source(X, y, sample_weight, counts)
            if is_dask(X):
                refuse_groups(groups, "collections of Dask")
                return self._dask_source(options, X, y, sample_weight, counts, censored)
            X, y, sample_weight, names = self._load(X, y, sample_weight, options, passes)
            if is_sliced(X):
                options.check_elsewhere("rows on disk")
                refuse_groups(groups, "rows on disk")
                return self._disk_source(options, X, y, sample_weight, names, counts)
        X, y, sample_weight, on_device = self._to_host(X, y, sample_weight)
        X, y = self._validate_ends(X, y) if censored else self._validate_targets(X, y)
        weights = self._check_weights(sample_weight, X, MAX_WEIGHT_SUM_OF_COUNTS if counts else MAX_WEIGHT_SUM)
        if censored:
            weights = np.where(np.isinf(y).all(axis=1), 0.0, weights)  # nothing is known of such a row
        check_used(weights)
        labels = check_groups(groups, X.shape[0])
        targets, single = y.reshape(len(y), -1), y.ndim == 1 or censored
        if counts:
            check_counts(are_counts(targets))
            targets = with_prior_count(targets, weights)
        return MemorySource(X, targets, weights, on_device, not options.precomputed, single, labels)

    def _validate_targets(self, X: RowsLike, y: TargetsLike, accept_sparse: Any = False) -> tuple[RowsLike, np.ndarray]:
        """X (n, d) and y (n,) or (n, q) as finite numbers."""
        X, y = self._validate(X, check_numbers(y), multi_output=True, y_numeric=True, accept_sparse=accept_sparse)
        return X, np.asarray(y, dtype=np.float64)

    def _validate_ends(self, X: RowsLike, y: TargetsLike) -> tuple[np.ndarray, np.ndarray]:
        """X (n, d) as finite numbers, and the ends (n, 2) of censored targets."""
        X, ends = self._check_numbers(X, ensure_min_samples=2), as_ends(y)
        check_consistent_length(X, ends)
        check_size(np.max(np.abs(ends), initial=0.0, where=np.isfinite(ends)))
        return X, ends

    def _sparse_source(self, X: RowsLike, y: TargetsLike, sample_weight: PerRow, counts: bool) -> Source:
        """Rows of a scipy.sparse matrix, validated."""
        X, y = self._validate_targets(X, y, "csc")
        weights = self._check_weights(sample_weight, X)
        check_used(weights)
        targets = y.reshape(len(y), -1)
        if counts:
            check_counts(are_counts(targets))
            targets = with_prior_count(targets, weights)
        return SparseSource(X, targets, weights, y.ndim == 1)

    def _disk_source(
        self,
        options: FitOptions,
        X: RowsLike,
        y: TargetsLike,
        sample_weight: PerRow,
        names: list[str] | None,
        counts: bool,
    ) -> Source:
        """Rows that stay on disk, validated."""
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        weights = self._check_weights(sample_weight, y)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}: give a target for every row")
        targets = y.reshape(len(y), -1)
        if counts:
            check_counts(are_counts(y))
            targets = with_prior_count(targets, weights)
        samples = LocalSamples(X, targets, weights)
        memory = memory_left(options.memory_limit, samples.n_rows, samples.n_targets + 3)
        self._store_features(samples.n_features, names)
        return LargeSource(samples, memory, y.ndim == 1)

    def _dask_source(
        self, options: FitOptions, X: RowsLike, y: TargetsLike, sample_weight: PerRow, counts: bool, censored: bool
    ) -> Source:
        """Rows that stay with the workers of Dask; few are brought here."""
        options.check_elsewhere("collections of Dask")
        samples = DaskSamples(X, y, sample_weight)
        if samples.n_rows <= draw_size(options.memory, samples.n_features):
            gathered = gather(X, y, sample_weight)
            return self._regression_source(options, *gathered, counts=counts, censored=censored)
        if counts:
            check_counts(samples.reduce(holds_counts, and_))
            none = samples.statistics.mean[samples.n_features :] == 0.0
            if none.any():
                samples = samples.plus(np.where(none, PRIOR_COUNT / samples.statistics.weight, 0.0))
        self._store_features(samples.n_features, samples.names)
        return LargeSource(samples, options.memory, samples.single, statistics=samples.statistics)


def with_prior_count(targets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return counts (n, q), those of an output that are all 0 with half a count spread over the rows.

    Jeffreys' prior over the rate, Gamma(1/2, 0), has this posterior mean; without a prior the log rate has no maximum.
    """
    none = ~(targets[weights > 0.0] > 0.0).any(axis=0)
    return np.where(none, PRIOR_COUNT / weights.sum(), targets)


def check_counts(whole: bool) -> None:
    """Refuse targets that are no counts."""
    if not whole:
        raise ValueError(f"likelihood='poisson' needs counts: y must hold whole numbers from 0 to {MAX_COUNT:g}")


def are_counts(targets: np.ndarray) -> bool:
    """Whether targets are whole numbers from 0 to `MAX_COUNT`."""
    return bool(np.all((targets >= 0.0) & (targets <= MAX_COUNT)) and np.all(targets == np.floor(targets)))


def holds_counts(block: Block) -> bool:
    """Whether the targets of some rows are counts."""
    return are_counts(block.targets)


GATHERED_BYTES_PER_ROW = 12_800  # that a process of classes may take for a row of Dask that it is fitted to here


class ClassRows(BaseModel):
    """The part of a classifier that checks its rows, wherever they are."""

    classes_: np.ndarray
    class_weight: Any

    def _class_source(
        self, options: FitOptions, X: RowsLike, y: TargetsLike, sample_weight: PerRow, groups: PerRow = None
    ) -> Source:
        """Return the rows, validated, as a source, and store the classes."""
        in_columns = issparse(X) and self._takes_sparse
        if type(X) is not np.ndarray and not in_columns:
            if is_dask(X):
                refuse_groups(groups, "collections of Dask")
                return self._dask_source(options, X, y, sample_weight)
            X, y, sample_weight, names = self._load(X, y, sample_weight, options)
            if is_sliced(X):
                refuse_groups(groups, "rows on disk")
                return self._disk_source(options, X, y, sample_weight, names)
        on_device = None
        if not in_columns:
            X, y, sample_weight, on_device = self._to_host(X, y, sample_weight)
        X, y = self._validate(X, check_labels(y), accept_sparse="csc" if in_columns else False)
        targets, weights = self._encode(y, self._check_weights(sample_weight, X, MAX_WEIGHT_SUM_OF_COUNTS))
        groups, two = check_groups(groups, X.shape[0]), len(self.classes_) == 2
        if in_columns:
            return SparseSource(X, targets, weights, two)
        return MemorySource(X, targets, weights, on_device, not options.precomputed, two, groups)

    def _encode(self, y: TargetsLike, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the class of each label as ones (n, K), (n, 1) for the second of two, and weights; store classes."""
        classes, label = sort_classes(y)
        weights = self._weigh(y, weights)
        check_classes(classes, len(np.unique(label[weights > 0.0])))
        self.classes_ = classes
        member = np.equal.outer(label, np.arange(len(classes))).astype(float)
        return member[:, 1:] if len(classes) == 2 else member, weights

    def _disk_source(
        self, options: FitOptions, X: RowsLike, y: TargetsLike, sample_weight: PerRow, names: list[str] | None
    ) -> LargeSource:
        """Rows that stay on disk; their labels are in memory."""
        options.check_elsewhere("rows on disk")
        y = column_or_1d(check_labels(y))
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}: give a label for every row")
        targets, weights = self._encode(y, self._check_weights(sample_weight, y, MAX_WEIGHT_SUM_OF_COUNTS))
        memory = memory_left(options.memory_limit, len(y), targets.shape[1] + 2)
        self._store_features(int(X.shape[1]), names)
        return LargeSource(LocalSamples(X, targets, weights), memory, len(self.classes_) == 2)

    def _weigh(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Sample weights (n,) times the weights of the classes."""
        factors = compute_sample_weight(self.class_weight, y)
        if not np.all(factors >= 0.0):
            raise ValueError(f"class_weight must give each class a number of 0 or more, got {self.class_weight!r}")
        check_weight_sum(weights * factors, MAX_WEIGHT_SUM_OF_COUNTS)
        return weights * factors

    def _dask_source(self, options: FitOptions, X: RowsLike, y: TargetsLike, sample_weight: PerRow) -> Source:
        """Rows that stay with the workers of Dask; few are brought here."""
        options.check_elsewhere("collections of Dask")
        labels = align_labels(X, y)
        classes, counts = count_labels(labels, check_classification_targets)
        n_rows, d = int(counts.sum()), X.shape[1]
        process = isinstance(options, ProcessOptions) and GATHERED_BYTES_PER_ROW * n_rows + 8 * d * n_rows
        if n_rows <= draw_size(options.memory, d) or 0 < process <= options.memory:
            return self._class_source(options, *gather(X, y, sample_weight))
        check_classes(classes)
        weights = sample_weight
        if self.class_weight is not None:
            factors = class_factors(self.class_weight, classes, counts)
            weights = weigh_classes(labels, X, sample_weight, classes, factors)
        samples = DaskSamples(X, class_indicators(labels, classes), weights)
        check_classes(classes, int(np.count_nonzero(samples.reduce(present_classes, np.logical_or))))
        self._store_features(samples.n_features, samples.names)
        self.classes_ = classes
        return LargeSource(samples, options.memory, len(classes) == 2, statistics=samples.statistics)


def sort_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes (K,) of labels y (n,), in order, and the place of each label among them."""
    kinds = sorted({type(label).__name__ for label in y}) if y.dtype == object else []
    try:
        with np.errstate(invalid="ignore"):  # numbers that are no integers of 64 bits
            check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        if not kinds:
            raise
        found = f"Unknown label type: y has labels of the types {', '.join(kinds)} as objects"
        raise ValueError(f"{found}; make all of them text, y.astype(str)") from error


def check_classes(classes: np.ndarray, n_present: int | None = None) -> None:
    """Refuse fewer than two classes, or fewer than two of them with samples of positive weight."""
    if len(classes) < 2:
        raise ValueError(f"a classifier needs at least 2 classes in y, got only one class: {classes.tolist()}")
    if n_present is not None and n_present < 2:
        raise ValueError("at least 2 classes need samples of positive weight: check sample_weight and class_weight")


def present_classes(block: Block) -> np.ndarray:
    """Which classes some rows have."""
    members = block.targets if block.targets.shape[1] > 1 else np.column_stack([1.0 - block.targets, block.targets])
    return np.asarray(members.any(axis=0))


def class_factors(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Factors (K,) of the weights of each class."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(classes) * counts)
    return compute_class_weight(class_weight, classes=classes, y=classes)
