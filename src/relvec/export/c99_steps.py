"""The steps of a pipeline before the model, as C99: scalers, imputers, encoders, one number at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def number(value: Any) -> str:
    """A double in decimal digits that give the same double back."""
    return repr(float(value))


def sklearn_name(step: Any) -> str:
    """Name of a class of scikit-learn, which need not be imported for it; empty for others."""
    return type(step).__name__ if type(step).__module__.split(".")[0] == "sklearn" else ""


class _Steps:
    """Statements that compute the model's inputs from the raw ones, one number at a time."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, expression: str) -> str:
        """A new variable of this value."""
        self.lines.append(f"    const double v{len(self.lines)} = {expression};")
        return f"v{len(self.lines) - 1}"

    def run(self, step: Any, columns: list[str]) -> list[str]:
        """The columns after a step."""
        if isinstance(step, str) or step is None:
            return columns if step != "drop" else []
        if sklearn_name(step) not in _RULES:
            raise NotImplementedError(f"C cannot be written for the step {step!r}")
        return list(_RULES[sklearn_name(step)](self, step, columns))


def statements(steps: list[Any], n_inputs: int) -> str:
    """C that computes the model's inputs x from the raw ones r."""
    known = _Steps()
    columns = [f"r[{i}]" for i in range(steps[0].n_features_in_)]
    for step in steps:
        columns = known.run(step, columns)
    assert len(columns) == n_inputs
    return "\n".join([*known.lines, *(f"    x[{i}] = {column};" for i, column in enumerate(columns))])


def _affine(known: _Steps, columns: list[str], shift: Any, scale: Any) -> Iterable[str]:
    """(column - shift) / scale; None stands for no shift, no scale."""
    for i, column in enumerate(columns):
        if shift is not None:
            column = f"({column} - {_signed(shift[i])})"
        yield known.let(column if scale is None else f"{column} / {_signed(scale[i])}")


def _signed(value: Any) -> str:
    return f"({number(value)})" if value < 0 else number(value)


def _min_max(known: _Steps, step: Any, columns: list[str]) -> Iterable[str]:
    low, high = (_signed(value) for value in step.feature_range)
    for i, column in enumerate(columns):
        value = known.let(f"{column} * {_signed(step.scale_[i])} + {_signed(step.min_[i])}")
        if step.clip:
            value = known.let(f"{value} < {low} ? {low} : {value} > {high} ? {high} : {value}")
        yield value


def _impute(known: _Steps, step: Any, columns: list[str]) -> Iterable[str]:
    statistics = np.asarray(step.statistics_)
    if statistics.dtype.kind not in "biuf" or not (
        isinstance(step.missing_values, float) and np.isnan(step.missing_values)
    ):
        raise NotImplementedError(f"C cannot be written for {step!r}: only numbers, missing as nan")
    for value, column in zip(statistics, columns, strict=True):
        if not np.isnan(value):
            yield known.let(f"isnan({column}) ? {_signed(value)} : {column}")
    if step.add_indicator:
        for i in step.indicator_.features_:
            yield known.let(f"isnan({columns[i]}) ? 1.0 : 0.0")


def _keys(categories: np.ndarray) -> list[str]:
    """What a column holds for each category: numbers are themselves, words are counted from 0."""
    if categories.dtype.kind in "biuf":
        if np.isnan(np.asarray(categories, dtype=float)).any():
            raise NotImplementedError("C cannot be written for an encoder with nan among its categories")
        return [_signed(value) for value in categories]
    return [f"{i}.0" for i in range(len(categories))]


def _one_hot(known: _Steps, step: Any, columns: list[str]) -> Iterable[str]:
    if step.min_frequency is not None or step.max_categories is not None:
        raise NotImplementedError("C cannot be written for a OneHotEncoder that joins rare categories")
    for i, column in enumerate(columns):
        dropped = None if step.drop_idx_ is None else step.drop_idx_[i]
        for j, key in enumerate(_keys(step.categories_[i])):
            if j != dropped:
                yield known.let(f"{column} == {key} ? 1.0 : 0.0")


def _ordinal(known: _Steps, step: Any, columns: list[str]) -> Iterable[str]:
    if step.min_frequency is not None or step.max_categories is not None:
        raise NotImplementedError("C cannot be written for an OrdinalEncoder that joins rare categories")
    unknown = -1.0 if step.unknown_value is None else step.unknown_value
    other = "NAN" if np.isnan(unknown) else _signed(unknown)
    for i, column in enumerate(columns):
        choices = "".join(f"{column} == {key} ? {j}.0 : " for j, key in enumerate(_keys(step.categories_[i])))
        yield known.let(choices + other)


def _polynomial(known: _Steps, step: Any, columns: list[str]) -> Iterable[str]:
    for powers in step.powers_:
        factors = [column for column, power in zip(columns, powers, strict=True) for _ in range(power)]
        yield known.let(" * ".join(factors) or "1.0")


_FUNCTIONS = {"exp", "expm1", "log", "log1p", "log10", "log2", "sqrt", "cbrt", "sin", "cos", "tan", "tanh"}


def _apply(known: _Steps, step: Any, columns: list[str]) -> Iterable[str]:
    if step.func is None:
        return columns
    name = getattr(step.func, "__name__", "") if isinstance(step.func, np.ufunc) else ""
    if name not in _FUNCTIONS or step.kw_args:
        raise NotImplementedError(
            f"C cannot be written for the function {step.func!r}; numpy's {sorted(_FUNCTIONS)} can"
        )
    return [known.let(f"{name}({column})") for column in columns]


def _pipeline(known: _Steps, step: Any, columns: list[str]) -> list[str]:
    for _, part in step.steps:
        columns = known.run(part, columns)
    return columns


def _union(known: _Steps, step: Any, columns: list[str]) -> list[str]:
    weights = step.transformer_weights or {}
    if weights:
        raise NotImplementedError("C cannot be written for a FeatureUnion with weights")
    return [column for _, part in step.transformer_list for column in known.run(part, columns)]


def _by_column(known: _Steps, step: Any, columns: list[str]) -> list[str]:
    if step.transformer_weights:
        raise NotImplementedError("C cannot be written for a ColumnTransformer with weights")
    found = []
    for name, part, _ in step.transformers_:
        found += known.run(part, [columns[i] for i in step._transformer_to_input_indices[name]])
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
