"""Checks of scikit-learn's steps in a file, so that no call of theirs writes beyond its memory or starts processes."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from relvec.export.model_file.layout import ModelFileError


def check_step(step: BaseEstimator) -> None:
    """Raise ModelFileError unless the attributes of a step are such as its class writes."""
    if isinstance(step, Pipeline) and not _is_pipeline(step):
        raise ModelFileError("the steps of a pipeline are not names with estimators")
    jobs = vars(step).get("n_jobs")
    if isinstance(jobs, bool) or not isinstance(jobs, int | None) or jobs == 0:
        raise ModelFileError(f"n_jobs is {jobs!r}")
    if isinstance(step, OneHotEncoder) and "categories_" in vars(step) and not _is_encoder(step):
        raise ModelFileError("the categories of an encoder do not match the columns that it makes")


def _is_pipeline(pipeline: Pipeline) -> bool:
    steps = pipeline.steps
    pairs = isinstance(steps, list) and all(isinstance(step, tuple | list) and len(step) == 2 for step in steps)
    return bool(pairs and steps) and all(
        isinstance(name, str) and (step is None or step == "passthrough" or isinstance(step, BaseEstimator))
        for name, step in steps
    )


def _is_encoder(encoder: OneHotEncoder) -> bool:
    """Tell whether every code of a category is the number of a column: scipy writes wherever the codes point to."""
    if not all(map(_is_sorted, encoder.categories_)):
        return False
    counts = [len(categories) for categories in encoder.categories_]
    if encoder._infrequent_enabled:
        groups = zip(encoder._default_to_infrequent_mappings, encoder._infrequent_indices, counts, strict=True)
        counts = [n if codes is None else _count_groups(codes, rare, n) for codes, rare, n in groups]
    dropped = encoder._drop_idx_after_grouping
    pairs = list(zip([None] * len(counts) if dropped is None else dropped, counts, strict=True))
    if not all(drop is None or 0 <= drop < n for drop, n in pairs):
        return False
    expected = [n - (drop is not None) for drop, n in pairs]
    return encoder.n_features_in_ == len(counts) and list(encoder._n_features_outs) == expected


def _is_sorted(categories: np.ndarray) -> bool:
    """Tell whether categories that are looked up by bisection are ascending; those of objects are looked up by name."""
    if not (isinstance(categories, np.ndarray) and categories.ndim == 1 and len(categories)):
        return False
    if categories.dtype.kind == "O":
        return True
    known = categories[categories == categories]  # a NaN is the last
    return bool((known[1:] > known[:-1]).all()) and bool((categories == categories)[: len(known)].all())


def _count_groups(codes: np.ndarray, rare: np.ndarray, count: int) -> int:
    """Count the groups that rare categories are joined to; 0, which no encoder makes, for wrong numbers."""
    known = all(part.dtype.kind in "iu" and part.size and 0 <= part.min() <= part.max() < count
                for part in (codes, rare))  # fmt: skip
    return int(codes.max()) + 1 if known else 0
