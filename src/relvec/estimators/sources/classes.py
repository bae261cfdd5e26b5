"""Rows of a classification on their way into a source."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import column_or_1d, compute_sample_weight
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from relvec import design
from relvec.estimators.base import MAX_WEIGHT_SUM_OF_COUNTS, BaseModel, check_weight_sum
from relvec.estimators.options import FitOptions, ProcessOptions
from relvec.estimators.sources import LargeSource, MemorySource, Source, SparseSource, draw_size
from relvec.estimators.sources.base import check_groups, check_labels, refuse_groups
from relvec.runtime.arrays import PerRow, RowsLike, TargetsLike
from relvec.runtime.machine import memory_left

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
            if design.is_dask(X):
                refuse_groups(groups, "collections of Dask")
                return self._dask_source(options, X, y, sample_weight)
            X, y, sample_weight, names = self._load(X, y, sample_weight, options)
            if design.is_sliced(X):
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
        return LargeSource(design.LocalSamples(X, targets, weights), memory, len(self.classes_) == 2)

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
        labels = design.align_labels(X, y)
        classes, counts = design.count_labels(labels, check_classification_targets)
        n_rows, d = int(counts.sum()), X.shape[1]
        process = isinstance(options, ProcessOptions) and GATHERED_BYTES_PER_ROW * n_rows + 8 * d * n_rows
        if n_rows <= draw_size(options.memory, d) or 0 < process <= options.memory:
            return self._class_source(options, *design.gather(X, y, sample_weight))
        check_classes(classes)
        weights = sample_weight
        if self.class_weight is not None:
            factors = class_factors(self.class_weight, classes, counts)
            weights = design.weigh_classes(labels, X, sample_weight, classes, factors)
        samples = design.DaskSamples(X, design.class_indicators(labels, classes), weights)
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


def present_classes(block: design.Block) -> np.ndarray:
    """Which classes some rows have."""
    members = block.targets if block.targets.shape[1] > 1 else np.column_stack([1.0 - block.targets, block.targets])
    return np.asarray(members.any(axis=0))


def class_factors(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Factors (K,) of the weights of each class."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(classes) * counts)
    return compute_class_weight(class_weight, classes=classes, y=classes)
