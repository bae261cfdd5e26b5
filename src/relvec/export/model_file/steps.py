"""Checks of scikit-learn's steps in a file: a row must pass through them and come out as finite numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from relvec.export.exported import is_exportable
from relvec.export.model_file.classes import find_class
from relvec.export.model_file.layout import ModelFileError

_SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
# Steps that take any row of numbers, or of words that they know, to finite numbers.
_TOTAL = (*_SCALERS, Pipeline, ColumnTransformer, TransformedTargetRegressor, SimpleImputer, OneHotEncoder,
          OrdinalEncoder, VarianceThreshold, PCA, TruncatedSVD)  # fmt: skip


def check_steps(model: Any, parts: list[BaseEstimator], max_numbers: int) -> None:
    """Raise an error if the steps of a fitted model do not turn a row into finite numbers.

    ``parts`` are all estimators in the file, and ``max_numbers`` bounds the length of the row. Steps that refuse some
    rows, such as logarithms, are not tried.
    """
    for part in parts:
        if isinstance(part, Pipeline) and not _is_pipeline(part):
            raise ModelFileError("the steps of a pipeline are not names with estimators")
        if isinstance(jobs := getattr(part, "n_jobs", None), bool) or not isinstance(jobs, int | None) or jobs == 0:
            raise ModelFileError(f"n_jobs is {jobs!r}")
        if isinstance(part, OneHotEncoder) and hasattr(part, "categories_") and not _is_encoder(part):
            raise ModelFileError("the categories of an encoder do not match the columns that it makes")
    if all(_is_total(part) for part in parts):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # such as that a row has no names
            _try_steps(model, max_numbers)


def _is_pipeline(pipeline: Pipeline) -> bool:
    steps = pipeline.steps
    pairs = isinstance(steps, list) and all(isinstance(step, tuple | list) and len(step) == 2 for step in steps)
    return bool(pairs and steps) and all(
        isinstance(name, str) and (step is None or step == "passthrough" or isinstance(step, BaseEstimator))
        for name, step in steps
    )


def _is_encoder(encoder: OneHotEncoder) -> bool:
    """Tell whether every code of a category is the number of a column: scipy writes wherever the codes point to."""
    categories, outs = encoder.categories_, encoder._n_features_outs
    if not all(isinstance(c, np.ndarray) and c.ndim == 1 and len(c) and _is_sorted(c) for c in categories):
        return False
    counts = [len(c) for c in categories]
    if encoder._infrequent_enabled:
        mappings, infrequent = encoder._default_to_infrequent_mappings, encoder._infrequent_indices
        if not len(mappings) == len(infrequent) == len(counts):
            return False
        for i, mapping in enumerate(mappings):
            if mapping is not None:
                if not (_are_codes(mapping, counts[i]) and _are_codes(infrequent[i], counts[i])):
                    return False
                counts[i] = int(mapping.max()) + 1
    dropped: list[Any] = [None] * len(counts)
    if encoder._drop_idx_after_grouping is not None:
        dropped = list(encoder._drop_idx_after_grouping)
        if len(dropped) != len(counts) or not all(d is None or 0 <= d < n for d, n in zip(dropped, counts)):
            return False
    expected = [n - (d is not None) for n, d in zip(counts, dropped, strict=True)]
    return encoder.n_features_in_ == len(counts) and list(outs) == expected


def _is_sorted(categories: np.ndarray) -> bool:
    """Tell whether categories that are looked up by bisection are ascending; those of objects are looked up by name."""
    if categories.dtype.kind == "O":
        return True
    known = categories[categories == categories]  # a NaN is the last
    return bool((known[1:] > known[:-1]).all()) and bool((categories == categories)[: len(known)].all())


def _are_codes(values: np.ndarray, count: int) -> bool:
    return values.dtype.kind in "iu" and values.size > 0 and values.min() >= 0 and values.max() < count


def _is_total(part: BaseEstimator) -> bool:
    if isinstance(part, FunctionTransformer):
        return part.func is None and part.inverse_func is None
    if getattr(part, "n_jobs", None) not in (None, 1):  # a load starts no processes
        return is_exportable(part)
    return isinstance(part, _TOTAL) or is_exportable(part) or _reads_tables(part)


def _reads_tables(part: Any) -> bool:
    return isinstance(part, find_class("relvec.tables.TableColumns"))


def _is_fitted(model: Any) -> bool:
    if isinstance(model, Pipeline) and model.steps:
        return _is_fitted(model.steps[-1][1])
    return hasattr(model, "regressor_" if isinstance(model, TransformedTargetRegressor) else "fitted_")


def _try_steps(model: Any, max_numbers: int) -> None:
    """Send a row through all steps of a fitted model before the estimator of relvec, and a target back."""
    if not _is_fitted(model):
        return
    if isinstance(model, TransformedTargetRegressor):
        back = model.transformer_
        whole = isinstance(back, BaseEstimator) and isinstance(model.regressor, BaseEstimator | None)
        if not whole or not _is_fitted(model.regressor_):
            raise ModelFileError("a transformed target has no regressor or transformer")
        if isinstance(back, _SCALERS):
            _refuse_infinite(back, back.inverse_transform(np.zeros((1, back.n_features_in_))))
        _try_steps(model.regressor_, max_numbers)
    elif isinstance(model, Pipeline):
        steps = [step for _, step in model.steps[:-1] if isinstance(step, BaseEstimator)]
        rows = _first_row(steps[0], max_numbers) if steps else None
        for step in steps if rows is not None else ():
            rows = step.transform(rows)
            if not _reads_tables(step):
                _refuse_infinite(step, rows)
        last = model.steps[-1][1]
        if rows is not None and is_exportable(last) and rows.shape != (1, last.n_features_in_):
            raise ModelFileError(
                f"the steps make rows of shape {rows.shape} for a model of {last.n_features_in_} columns"
            )
        _try_steps(last, max_numbers)


def _refuse_infinite(step: BaseEstimator, rows: Any) -> None:
    if not np.isfinite(np.asarray(rows.todense() if hasattr(rows, "todense") else rows, dtype=float)).all():
        raise ModelFileError(f"{type(step).__name__} does not give finite numbers")


def _first_row(step: Any, max_numbers: int) -> Any:
    """Return a row (1, d) that a fitted step takes: zeros, or a category's first word; None where it is not known."""
    if _reads_tables(step):
        return {column.name: [None] for column in step.inputs()}
    d = step.steps[0][1].n_features_in_ if isinstance(step, Pipeline) else step.n_features_in_
    if type(d) is not int or not 0 < d <= max(max_numbers, 1000):
        raise ModelFileError(f"{type(step).__name__} has {d!r} columns")
    row = np.zeros((1, d), dtype=object)
    if not _fill(row, step):
        return None
    numeric = not any(isinstance(cell, str) for cell in row[0])
    return row.astype(float) if numeric else row


def _fill(row: np.ndarray, step: Any) -> bool:
    """Write words that a step knows into a row (1, d); whether its columns are known by numbers."""
    if isinstance(step, Pipeline):
        return _fill(row, step.steps[0][1])
    if hasattr(step, "categories_"):
        row[0] = [words[0] for words in step.categories_]
    if isinstance(step, ColumnTransformer):
        for _, part, columns in step.transformers_:
            ends = (
                [columns.start, columns.stop] if isinstance(columns, slice) else np.ravel(np.asarray(columns)).tolist()
            )
            if any(isinstance(name, str) for name in ends):
                return False
            place = np.atleast_1d(np.arange(row.shape[1])[columns])
            inner = np.zeros((1, len(place)), dtype=object)
            if not isinstance(part, str) and len(place):
                _fill(inner, part)
            row[:, place] = inner
    return True
