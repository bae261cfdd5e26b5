"""Rows of a regression on their way into a source: arrays, sparse matrices, rows on disk, with Dask or on a device."""

from __future__ import annotations

from operator import and_
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array, check_consistent_length

from relvec.design import Block, DaskSamples, LocalSamples, gather, is_dask, is_sliced
from relvec.estimators.base import MAX_WEIGHT_SUM, MAX_WEIGHT_SUM_OF_COUNTS, BaseModel
from relvec.estimators.gaussian import check_size
from relvec.estimators.options import FitOptions
from relvec.estimators.sources import LargeSource, MemorySource, Source, SparseSource, draw_size
from relvec.estimators.sources.base import check_groups, check_numbers, check_used, refuse_groups
from relvec.inference.censored import as_ends
from relvec.runtime.arrays import PerRow, RowsLike, TargetsLike
from relvec.runtime.machine import memory_left

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
        source = MemorySource(X, targets, weights, on_device, not options.precomputed, single, labels)
        if counts:
            check_counts(are_counts(source.targets), some_counts(source))
        return source

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
        source = SparseSource(X, y.reshape(len(y), -1), weights, y.ndim == 1)
        if counts:
            check_counts(are_counts(y), some_counts(source))
        return source

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
        samples = LocalSamples(X, y.reshape(len(y), -1), weights)
        if counts:
            check_counts(are_counts(y), some_counts(samples))
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
            check_counts(samples.reduce(holds_counts, and_), samples.reduce(some_counts, np.logical_or))
        self._store_features(samples.n_features, samples.names)
        return LargeSource(samples, options.memory, samples.single, statistics=samples.statistics)


def check_counts(whole: bool, some: np.ndarray) -> None:
    """Refuse targets that are no counts: not ``whole``, or not above 0 in ``some`` row of each output."""
    if not whole:
        raise ValueError(f"likelihood='poisson' needs counts: y must hold whole numbers from 0 to {MAX_COUNT:g}")
    if not np.all(some):
        raise ValueError("all counts of y are 0, which tells of no rate: likelihood='poisson' needs a count above 0")


def are_counts(targets: np.ndarray) -> bool:
    """Whether targets are whole numbers from 0 to `MAX_COUNT`."""
    return bool(np.all((targets >= 0.0) & (targets <= MAX_COUNT)) and np.all(targets == np.floor(targets)))


def some_counts(rows: Any) -> np.ndarray:
    """Which outputs (q,) have a count above 0 in a row of positive weight."""
    return np.asarray((rows.targets[rows.weights > 0.0] > 0.0).any(axis=0))


def holds_counts(block: Block) -> bool:
    """Whether the targets of some rows are counts."""
    return are_counts(block.targets)
