"""Class labels in collections of Dask: their classes, indicators and weights, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from relvec.design.dask.collections import align, as_dask_array, compute_chunks
from relvec.runtime.arrays import Collection


def align_labels(X: Collection, y: Collection) -> Collection:
    """Labels as an array (n,) of Dask, in the chunks of the rows X."""
    labels = align(y, as_dask_array(X, "X", 2), "y")
    if labels.ndim == 2 and labels.shape[1] == 1:
        return labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"y must hold one label for every row, (n_samples,), got {labels.ndim} dimensions")
    return labels


def count_labels(labels: Collection, check: Callable[[np.ndarray], None]) -> tuple[np.ndarray, np.ndarray]:
    """Count the distinct labels: sorted (K,), and how often each comes (K,); ``check`` refuses values that are none."""
    found = compute_chunks(labels, partial(_count_chunk, check))
    classes, place = np.unique(np.concatenate([names for names, _ in found]), return_inverse=True)
    return classes, np.bincount(place, np.concatenate([counts for _, counts in found])).astype(np.intp)


def class_indicators(labels: Collection, classes: np.ndarray) -> Collection:
    """One for the class of each row, zero for the others: (n, K), or (n, 1) for the second of two."""
    columns = len(classes) if len(classes) > 2 else 1
    chunks = (labels.chunks[0], (columns,))
    return labels.map_blocks(_indicate_classes, classes, chunks=chunks, new_axis=1, meta=np.zeros((0, 0)))


def weigh_classes(
    labels: Collection, X: Collection, sample_weight: Collection, classes: np.ndarray, factors: np.ndarray
) -> Collection:
    """Sample weights (n,), ones for None, times the factor (K,) of each row's class."""
    weights = align(sample_weight, as_dask_array(X, "X", 2), "sample_weight")
    return labels.map_blocks(_weigh_chunk, weights, classes, factors, dtype=float)


def _count_chunk(check: Callable[[np.ndarray], None], labels: Collection) -> tuple[np.ndarray, np.ndarray]:
    labels = np.asarray(labels)
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise ValueError("Input y contains NaN or infinity: remove or impute such rows")
    if len(labels):
        check(labels)
    return np.unique(labels, return_counts=True)


def _indicate_classes(labels: Collection, classes: np.ndarray) -> np.ndarray:
    member = np.zeros((len(labels), len(classes)))
    member[np.arange(len(labels)), np.searchsorted(classes, np.asarray(labels))] = 1.0
    return member if len(classes) > 2 else member[:, 1:]


def _weigh_chunk(labels: Collection, weights: Collection, classes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    return np.asarray(weights, dtype=float) * factors[np.searchsorted(classes, np.asarray(labels))]
