"""The steps of a pipeline before the model, as C99: scalers, imputers, encoders, one number at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from sklearn.base import BaseEstimator

from relvec.export.c99.source import Statements, format_operand
from relvec.export.exported import sklearn_name


def write_steps(steps: list[BaseEstimator], n_inputs: int) -> str:
    """Write C that computes the model's inputs x from the raw ones r, one number at a time."""
    known = Statements()
    columns = [f"r[{i}]" for i in range(steps[0].n_features_in_)]
    for step in steps:
        columns = _add_step(known, step, columns)
    assert len(columns) == n_inputs
    return "\n".join([*known.lines, *(f"    x[{i}] = {column};" for i, column in enumerate(columns))])


def check_translatable(steps: list[BaseEstimator]) -> None:
    """Refuse steps that have no translation, such as the first of a pipeline for tables."""
    for step in steps:
        if sklearn_name(step) == "Pipeline":
            check_translatable([part for _, part in step.steps])
        elif not (isinstance(step, str) or step is None or sklearn_name(step) in _RULES):
            raise NotImplementedError(
                f"to_c cannot translate the step {type(step).__name__}; it can translate {', '.join(sorted(_RULES))}. "
                "The first step can be left out, to_c(pipeline[1:]): the C function then takes what that step returns"
            )


def _add_step(known: Statements, step: BaseEstimator, columns: list[str]) -> list[str]:
    """Append a step; return its columns."""
    if isinstance(step, str) or step is None:
        return columns if step != "drop" else []
    check_translatable([step])
    return list(_RULES[sklearn_name(step)](known, step, columns))


def _affine(known: Statements, columns: list[str], shift: np.ndarray | None, scale: np.ndarray | None) -> Iterable[str]:
    """Return (column - shift) / scale; None stands for no shift, no scale."""
    for i, column in enumerate(columns):
        if shift is not None:
            column = f"({column} - {format_operand(shift[i])})"
        yield known.let(column if scale is None else f"{column} / {format_operand(scale[i])}")


def _min_max(known: Statements, step: BaseEstimator, columns: list[str]) -> Iterable[str]:
    low, high = (format_operand(value) for value in step.feature_range)
    for i, column in enumerate(columns):
        value = known.let(f"{column} * {format_operand(step.scale_[i])} + {format_operand(step.min_[i])}")
        if step.clip:
            value = known.let(f"{value} < {low} ? {low} : {value} > {high} ? {high} : {value}")
        yield value


def _impute(known: Statements, step: BaseEstimator, columns: list[str]) -> Iterable[str]:
    statistics = np.asarray(step.statistics_)
    if statistics.dtype.kind not in "biuf" or not (
        isinstance(step.missing_values, float) and np.isnan(step.missing_values)
    ):
        raise NotImplementedError(f"to_c cannot translate {step!r}: it takes numbers only, missing as nan")
    for value, column in zip(statistics, columns, strict=True):
        if not np.isnan(value):
            yield known.let(f"isnan({column}) ? {format_operand(value)} : {column}")
    if step.add_indicator:
        for i in step.indicator_.features_:
            yield known.let(f"isnan({columns[i]}) ? 1.0 : 0.0")


def _write_categories(categories: np.ndarray) -> list[str]:
    """Write the value in a column for each category: numbers are themselves, words are counted from 0."""
    if categories.dtype.kind in "biuf":
        if np.isnan(np.asarray(categories, dtype=float)).any():
            raise NotImplementedError("to_c cannot translate an encoder with nan among its categories")
        return [format_operand(value) for value in categories]
    return [f"{i}.0" for i in range(len(categories))]


def _one_hot(known: Statements, step: BaseEstimator, columns: list[str]) -> Iterable[str]:
    if step.min_frequency is not None or step.max_categories is not None:
        raise NotImplementedError("to_c cannot translate a OneHotEncoder that joins rare categories")
    for i, column in enumerate(columns):
        dropped = None if step.drop_idx_ is None else step.drop_idx_[i]
        for j, key in enumerate(_write_categories(step.categories_[i])):
            if j != dropped:
                yield known.let(f"{column} == {key} ? 1.0 : 0.0")


def _ordinal(known: Statements, step: BaseEstimator, columns: list[str]) -> Iterable[str]:
    if step.min_frequency is not None or step.max_categories is not None:
        raise NotImplementedError("to_c cannot translate an OrdinalEncoder that joins rare categories")
    unknown = -1.0 if step.unknown_value is None else step.unknown_value
    other = "NAN" if np.isnan(unknown) else format_operand(unknown)
    for i, column in enumerate(columns):
        choices = "".join(
            f"{column} == {key} ? {j}.0 : " for j, key in enumerate(_write_categories(step.categories_[i]))
        )
        yield known.let(choices + other)


def _polynomial(known: Statements, step: BaseEstimator, columns: list[str]) -> Iterable[str]:
    for powers in step.powers_:
        factors = [column for column, power in zip(columns, powers, strict=True) for _ in range(power)]
        yield known.let(" * ".join(factors) or "1.0")


_FUNCTIONS = {"exp", "expm1", "log", "log1p", "log10", "log2", "sqrt", "cbrt", "sin", "cos", "tan", "tanh"}


def _apply(known: Statements, step: BaseEstimator, columns: list[str]) -> Iterable[str]:
    if step.func is None:
        return columns
    name = getattr(step.func, "__name__", "") if isinstance(step.func, np.ufunc) else ""
    if name not in _FUNCTIONS or step.kw_args:
        raise NotImplementedError(
            f"to_c cannot translate the function {step.func!r}; it can translate {', '.join(sorted(_FUNCTIONS))}"
        )
    return [known.let(f"{name}({column})") for column in columns]


def _pipeline(known: Statements, step: BaseEstimator, columns: list[str]) -> list[str]:
    for _, part in step.steps:
        columns = _add_step(known, part, columns)
    return columns


def _union(known: Statements, step: BaseEstimator, columns: list[str]) -> list[str]:
    weights = step.transformer_weights or {}
    if weights:
        raise NotImplementedError("to_c cannot translate a FeatureUnion with weights")
    return [column for _, part in step.transformer_list for column in _add_step(known, part, columns)]


def _by_column(known: Statements, step: BaseEstimator, columns: list[str]) -> list[str]:
    if step.transformer_weights:
        raise NotImplementedError("to_c cannot translate a ColumnTransformer with weights")
    found = []
    for name, part, _ in step.transformers_:
        found += _add_step(known, part, [columns[i] for i in step._transformer_to_input_indices[name]])
    return found


_RULES: dict[str, Callable[..., Iterable[str]]] = {
    "StandardScaler": lambda known, s, columns: _affine(
        known, columns, s.mean_ if s.with_mean else None, s.scale_ if s.with_std else None
    ),
    "RobustScaler": lambda known, s, columns: _affine(
        known, columns, s.center_ if s.with_centering else None, s.scale_ if s.with_scaling else None
    ),
    "MaxAbsScaler": lambda known, s, columns: _affine(known, columns, None, s.scale_),
    "MinMaxScaler": _min_max,
    "SimpleImputer": _impute,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
    "PolynomialFeatures": _polynomial,
    "FunctionTransformer": _apply,
    "Pipeline": _pipeline,
    "FeatureUnion": _union,
    "ColumnTransformer": _by_column,
}
