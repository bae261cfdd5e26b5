"""Descriptions of columns, and the scikit-learn transformer that turns columns into numbers.

`relvec.app.tables.kinds.describe` decides what each column is; `TableColumns` applies that, so that a fitted pipeline
reads a new table exactly as it read the first one. Filling, one-hot encoding and scaling are left to scikit-learn's
own transformers behind it (`relvec.app.tables.pipelines`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from relvec.app.tables.cells import NumberStyle, labels_of, mark_missing, parse_numbers, refuse_strays
from relvec.app.tables.dates import days_since_1970, format_in_words
from relvec.app.tables.table import Table, TableError, as_table
from relvec.app.tables.text import list_names

__all__ = ["Column", "TableColumns", "days_of", "numbers_of"]

OTHER, NO_VALUE = "(other)", "(missing)"  # levels of a category: the rare ones together, and missing cells
DAYS_PER_YEAR = 365.2425
MISSING_CURE = "; correct the cells, leave them empty, or name the values with --missing"


@dataclass(frozen=True)
class Column:
    """A description of a column: its kind, and how its cells are read.

    Attributes
    ----------
    name : str
    kind : "number", "boolean", "date" or "category" for an input; "identifier", "constant", "text" or "dropped" for
        a column that the model does not see.
    note : what was found and done, in words.
    format : of a date, for ``strptime``; "" for ISO 8601. Several are separated by "|".
    words : the words for no and yes of a boolean.
    levels : the categories, the most frequent first.
    parts : of a date: "days", and "year" and "day" where the dates span several; "missing" where missing cells are
        flagged.
    missing : values that stand for a missing cell in this column.
    unit : text behind the numbers, which is taken off.
    decimal_comma : whether a comma separates the decimals.
    """

    name: str
    kind: str
    note: str = ""
    format: str = ""
    words: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unit: str = ""
    decimal_comma: bool = False

    @property
    def is_input(self) -> bool:
        """Whether the column enters the model."""
        return self.kind in ENCODERS

    @property
    def style(self) -> NumberStyle:
        """How the numbers are written."""
        return NumberStyle(self.unit, self.decimal_comma)

    def features(self) -> list[str]:
        """Names of the numbers that the column becomes."""
        if self.kind == "date":
            made = {"days": ["days"], "year": ["sin year", "cos year"], "day": ["sin day", "cos day"]}
            names = [f"{self.name} ({what})" for part in self.parts if part in made for what in made[part]]
        else:
            names = [self.name]
        return names + ([f"{self.name} (missing)"] if "missing" in self.parts else [])


class TableColumns(TransformerMixin, BaseEstimator):
    """The first step of a pipeline on tables: turn cells into numbers, as `relvec.app.tables.kinds.describe` decided.

    Numbers and booleans become one column each (NaN where missing), dates the days since 1970 with the phase of the
    year and of the day where they matter, categories the index of their level (-1 for a level not seen in the fit).

    Parameters
    ----------
    columns : list of Column
        The inputs among them are used, by name.
    target : Column, optional
        The column that is predicted.
    task : {"regression", "classification", "count"}, optional

    Attributes
    ----------
    record_ : dict
        Facts about the fit (`relvec.app.tables.pipelines.fit_table`); empty otherwise.

    Examples
    --------
    >>> from relvec.app.tables.kinds import describe
    >>> table = as_table({"age": [31.0, 47.0, 52.0, 38.0], "city": ["Ulm", "Bonn", "Ulm", "Ulm"]})
    >>> TableColumns(describe(table)).fit_transform(table).tolist()
    [[31.0, 0.0], [47.0, 1.0], [52.0, 0.0], [38.0, 0.0]]
    """

    def __init__(self, columns: Any = (), target: Any = None, task: str | None = None) -> None:
        self.columns = columns
        self.target = target
        self.task = task

    def __sklearn_is_fitted__(self) -> bool:
        return True  # all it knows is in its parameters

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any = None) -> TableColumns:
        """Do nothing: the columns were described before."""
        self.record_: dict[str, Any] = {}
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Turn the inputs into numbers.

        Parameters
        ----------
        X : Table, data frame, mapping of columns or array (n, d)

        Returns
        -------
        values : (n, n_features_out)

        Examples
        --------
        >>> TableColumns([Column("smoker", "boolean", words=("no", "yes"))]).transform({"smoker": ["yes", "No"]})
        array([[1.],
               [0.]])
        """
        table = as_table(X)
        inputs = self.inputs()
        absent = [column.name for column in inputs if column.name not in table.columns]
        if absent:
            needs = f"the model needs the column{'s' if len(absent) > 1 else ''} {list_names(absent)}"
            raise TableError(f"{table.source}: {needs}; the table has {list_names(table.names)}")
        made = [values for column in inputs for values in ENCODERS[column.kind](_read_missing(table, column), column)]
        return np.column_stack(made) if made else np.empty((len(table), 0))

    def inputs(self) -> list[Column]:
        """The columns that enter the model."""
        return [column for column in self.columns if column.is_input]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the numbers made (n_features_out,).

        >>> TableColumns([Column("when", "date", parts=("days", "year"))]).get_feature_names_out().tolist()
        ['when (days)', 'when (sin year)', 'when (cos year)']
        """
        return np.array([name for column in self.inputs() for name in column.features()], dtype=object)

    def unseen(self, X: Any) -> list[str]:
        """Categories in a table that were not seen in the fit, in words.

        >>> city = Column("city", "category", levels=("Ulm", "Bonn"))
        >>> TableColumns([city]).unseen({"city": ["Ulm", "Rome", "Rome"]})
        ["column 'city': 2 cells hold a category that was not seen in the fit ('Rome')"]
        """
        table, notes = as_table(X), []
        for column in self.inputs():
            if column.kind != "category":
                continue
            labels = labels_of(_read_missing(table, column)[column.name])
            unknown = Counter(label for label in labels if label is not None and label not in column.levels)
            if unknown and OTHER not in column.levels:
                examples = list_names([value for value, _ in unknown.most_common(3)])
                cells = "cells hold" if unknown.total() > 1 else "cell holds"
                notes.append(f"column {column.name!r}: {unknown.total()} {cells} a category that was not seen in the "
                             f"fit ({examples})")  # fmt: skip
        return notes


def _read_missing(table: Table, column: Column) -> Table:
    """The table with the column's own words for missing cells read as such."""
    if not column.missing:
        return table
    return table.with_column(column.name, mark_missing(table[column.name], column.missing))


def numbers_of(table: Table, name: str, style: NumberStyle | None = None) -> np.ndarray:
    """A column as numbers (n,), NaN where missing.

    >>> numbers_of(as_table({"price": ["1,200", "$ 3.5", None, "?"]}), "price").tolist()
    [1200.0, 3.5, nan, nan]
    """
    values, strays = parse_numbers(table[name], style or NumberStyle())
    unit = f" (in {style.unit})" if style is not None and style.unit else ""
    refuse_strays(table, name, strays, f"numbers{unit}", MISSING_CURE)
    return refuse_infinite(values, table, name)


def refuse_infinite(values: np.ndarray, table: Table, name: str) -> np.ndarray:
    """The values, if none of them is infinite."""
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise TableError(f"{table.locate(row, name)}: expected a finite number, got {table[name][row]}{MISSING_CURE}")
    return values


def days_of(table: Table, column: Column) -> np.ndarray:
    """A column of dates as days since 1970 (n,), NaN where missing; times with a zone in UTC."""
    days, strays = days_since_1970(table[column.name], column.format)
    refuse_strays(table, column.name, strays, f"dates ({format_in_words(column.format)})", MISSING_CURE)
    return days


def names_of(columns: Sequence[Column], kind: str) -> list[str]:
    """The names of the columns of one kind."""
    return [column.name for column in columns if column.kind == kind]


# Encoders of the kinds -------------------------------------------------------------------------------------------


def _missing_flag(values: np.ndarray, column: Column) -> list[np.ndarray]:
    return [np.isnan(values).astype(float)] if "missing" in column.parts else []


def _encode_number(table: Table, column: Column) -> list[np.ndarray]:
    values = numbers_of(table, column.name, column.style)
    return [values, *_missing_flag(values, column)]


def _encode_boolean(table: Table, column: Column) -> list[np.ndarray]:
    cells = table[column.name]
    if cells.dtype.kind in "biuf":
        return _encode_number(table, column)
    words = column.words or ("false", "true")
    labels = [None if label is None else label.lower() for label in labels_of(cells)]
    strays = np.array([label is not None and label not in words for label in labels])
    refuse_strays(table, column.name, strays, f"{words[1]} or {words[0]}", MISSING_CURE)
    values = np.array([np.nan if label is None else words.index(label) for label in labels], dtype=float)
    return [values, *_missing_flag(values, column)]


def _encode_date(table: Table, column: Column) -> list[np.ndarray]:
    days = days_of(table, column)
    made = [days]
    for part, period in (("year", DAYS_PER_YEAR), ("day", 1.0)):
        if part in column.parts:
            phase = 2 * np.pi * days / period
            made += [np.sin(phase), np.cos(phase)]
    return [*made, *_missing_flag(days, column)]


def _encode_category(table: Table, column: Column) -> list[np.ndarray]:
    code = {level: float(i) for i, level in enumerate(column.levels)}
    other, missing = code.get(OTHER, -1.0), code.get(NO_VALUE, -1.0)
    labels = labels_of(table[column.name])
    return [np.array([missing if label is None else code.get(label, other) for label in labels], dtype=float)]


ENCODERS: dict[str, Callable[[Table, Column], list[np.ndarray]]] = {
    "number": _encode_number, "boolean": _encode_boolean, "date": _encode_date, "category": _encode_category,
}  # fmt: skip
