"""Fits of rows that stay on disk: the same search, with passes over blocks of rows that are read and forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import _check_sample_weight

from relvec.basis import Basis
from relvec.design import Block, LocalSamples, Rows, Samples, rows_on_disk
from relvec.estimators.base import some_of
from relvec.estimators.dictionary import dictionary, learned_widths, renumbered, store_widths
from relvec.estimators.gaussian_fit import (
    GaussianFit,
    gaussian_fits,
    gaussian_in_subsets,
    gaussian_problems,
    gaussian_target,
    polished_by,
)
from relvec.estimators.subsets import of_some
from relvec.estimators.units import target_units
from relvec.inference.process import as_predictive
from relvec.runtime.memory import memory_left
from relvec.runtime.progress import stage

CANDIDATES = 0.05  # share of the memory limit for centres of rows on disk


def fit_on_disk(model: Any, X: Any, y: Any, sample_weight: Any, names: list[str] | None) -> None:
    """Fit a regressor to rows X that are read in blocks; as many of them as fit are candidates, evenly drawn."""
    if as_predictive(model.predictive) is not None or model.device is not None or model.centres != "data":
        raise ValueError("rows on disk are fitted for predictive='rvm', device=None and centres='data' alone")
    y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
    if len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}: give a target for every row")
    used = np.flatnonzero(weights > 0.0)
    if used.size < 2:
        raise ValueError(f"at least 2 samples need a positive weight, got {used.size}: check sample_weight")
    outputs = y.reshape(len(y), -1)
    units, variances = target_units(some_of(outputs, used), some_of(weights, used))
    samples = LocalSamples(X, outputs / units, weights)
    memory = memory_left(model.memory_limit, len(y), len(units) + 3)
    spread = spreads(samples)
    few = max(int(CANDIDATES * memory / (8 * samples.n_features)), 1000)
    drawn = used if len(used) <= few else np.sort(np.random.default_rng(0).choice(used, few, replace=False))
    rows_drawn = samples.take(drawn)
    basis, free = dictionary(model, rows_drawn, weights[drawn])
    model._identify(basis, spread, y, weights)
    problems = gaussian_problems(model, units, variances, float(weights.sum()))
    model._forget_parts()
    model._of_counts, learned = False, None
    if free.any() and variances.any():
        targets = [gaussian_target(p, t, weights[drawn]) for p, t in zip(problems, (outputs / units)[drawn].T)]
        learned = learned_widths(model, basis, free, rows_drawn, targets)
        basis = learned.basis
    basis = renumbered(basis, drawn)
    model.n_candidates_, model.n_subsets_ = basis.n_atoms, 1

    def fitted(part: Basis, rows: Rows, starts: list | None, first: bool) -> list[GaussianFit]:
        exact = polished_by(samples, part, rows)
        return gaussian_fits(model, part, rows, problems, units, variances, starts, exact, first)

    with stage("kernel"):
        rows = rows_on_disk(basis, samples, memory)
    if rows is not None:
        fits = fitted(basis, rows, [None] * len(units), True)
    else:
        fits, basis, rows = gaussian_in_subsets(model, basis, samples, None, memory, fitted)
    if len(drawn) < len(used) and np.any(basis.rows >= 0):
        fits = [replace(f, result=of_some(f.result)) for f in fits]
    model._store_features(samples.n_features, names)
    model._finish(basis, samples, rows, fits, y.ndim == 1)
    store_widths(model, basis, spread, learned)


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
