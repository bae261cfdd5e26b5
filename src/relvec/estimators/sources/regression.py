"""Rows of a regression that are no dense array in memory, checked on their way into a source, and rows of counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import and_
from typing import Any

import numpy as np
from sklearn.utils import check_array

from relvec.design import Block, DaskSamples, gather
from relvec.estimators.base import BaseRelevanceVector
from relvec.estimators.gaussian import GaussianSearch
from relvec.estimators.laplace import LaplaceSearch
from relvec.estimators.options import FitOptions
from relvec.estimators.sources import DiskSource, SparseSource
from relvec.estimators.sources.base import check_used
from relvec.inference.likelihoods import Poisson

MAX_COUNT = 1e15  # beyond, doubles soon skip some whole numbers


class RowsElsewhere(BaseRelevanceVector):
    """The part of a regressor that takes sparse rows, rows on disk and rows of Dask."""

    _validate_targets: Callable

    def _prepare_sparse(self, options: FitOptions, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Callable]:
        """Rows of a scipy.sparse matrix, validated."""
        X, y = self._validate_targets(X, y, "csc")
        weights = self._check_weights(sample_weight, X)
        check_used(weights)
        source = SparseSource(X, y.reshape(len(y), -1), weights, y.ndim == 1)
        if self.likelihood != "poisson":
            return source, GaussianSearch.of
        check_counts(options, are_counts(y), some_counts(source))
        return source, self._search_for_counts(source)

    def _search_for_counts(self, source: Any) -> Callable:
        labels = () if source.single else tuple(f"output {i}: " for i in range(source.n_targets))
        return partial(LaplaceSearch.of, likelihood=Poisson(), labels=labels)

    def _prepare_disk(
        self, options: FitOptions, X: Any, y: Any, sample_weight: Any, names: list[str] | None
    ) -> DiskSource:
        """Rows that stay on disk, validated."""
        if self.likelihood == "poisson":
            self._refuse_disk(X)
        if options.predictive is not None or options.device not in (None, "auto") or options.centres != "data":
            raise ValueError("rows on disk are fitted for predictive='rvm', device=None and centres='data' alone")
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        weights = self._check_weights(sample_weight, y)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}: give a target for every row")
        check_used(weights)
        source = DiskSource(X, y.reshape(len(y), -1), weights, options.memory_limit, y.ndim == 1)
        self._store_features(source.n_features, names)
        return source

    def _prepare_dask(self, options: FitOptions, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Callable]:
        """Rows that stay with the workers of Dask; few are brought here."""
        from relvec.estimators.sources.dask import DaskSource, are_brought_here, check_dask

        check_dask(options)
        samples = DaskSamples(X, y, sample_weight)
        counts = self.likelihood == "poisson"
        if are_brought_here(samples.n_rows, samples.n_features, options, gaussian=not counts):
            return self._prepare(options, *gather(X, y, sample_weight))
        if counts:
            some = samples.reduce(some_counts, np.logical_or)
            check_counts(options, samples.reduce(holds_counts, and_), some)
        self._store_features(samples.n_features, samples.names)
        source = DaskSource(samples, gaussian=not counts)
        return source, self._search_for_counts(source) if counts else GaussianSearch.of


def check_counts(options: FitOptions, whole: bool, some: np.ndarray) -> None:
    """Refuse parameters and targets that are not for counts: not ``whole``, or not above 0 in ``some`` row of each."""
    if not whole:
        raise ValueError(f"likelihood='poisson' needs counts: y must hold whole numbers from 0 to {MAX_COUNT:g}")
    if not np.all(some):
        raise ValueError("all counts of y are 0, which tells of no rate: likelihood='poisson' needs a count above 0")
    if options.predictive is not None:
        raise ValueError("likelihood='poisson' works with predictive='auto' and 'rvm' only")
    if options.noise_variance is not None:
        raise ValueError("counts have no noise variance: leave noise_variance at None with likelihood='poisson'")


def are_counts(targets: np.ndarray) -> bool:
    """Whether targets are whole numbers from 0 to `MAX_COUNT`."""
    return bool(np.all((targets >= 0.0) & (targets <= MAX_COUNT)) and np.all(targets == np.floor(targets)))


def some_counts(rows: Any) -> np.ndarray:
    """Which outputs (q,) have a count above 0 in a row of positive weight."""
    return np.asarray((rows.targets[rows.weights > 0.0] > 0.0).any(axis=0))


def holds_counts(block: Block) -> bool:
    """Whether the targets of some rows are counts."""
    return are_counts(block.targets)
