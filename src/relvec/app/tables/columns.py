"""Descriptions of columns, and the scikit-learn transformer that turns columns into numbers.

`relvec.app.tables.kinds.describe` decides what each column is; `TableColumns` applies that, so that a fitted pipeline
reads a new table exactly as it read the first one. Filling, one-hot encoding and scaling are left to scikit-learn's
own transformers behind it (`relvec.app.tables.pipelines`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from relvec.app.tables.cells import (
    NumberStyle,
    describe_strays,
    labels_of,
    mark_missing,
    parse_numbers,
    refuse_strays,
)
from relvec.app.tables.dates import days_since_1970, format_in_words
from relvec.app.tables.table import Table, TableError, TableLike, as_table, text_type
from relvec.app.tables.text import list_names, plural

if TYPE_CHECKING:
    from pandas import Series
    from sklearn.utils import Tags

__all__ = ["Column", "TableColumns", "numbers_of"]

OTHER, NO_VALUE = "(other)", "(missing)"  # levels of a category: the rare ones together, and missing cells
DAYS_PER_YEAR = 365.2425
MISSING_CURE = "; correct the cells, leave them empty, or name the values with --missing"
MAX_ODD_SHARE = 0.5  # of the cells of a new table's column: with more the column is another one than in the fit


@dataclass(frozen=True)
class Column:
    """A description of a column: its kind, and how its cells are read.

    Attributes
    ----------
    name : str
    kind : "number", "boolean", "date" or "category" for an input; "identifier", "constant", "text", "copy", "leak" or
        "dropped" for a column that the model does not see.
    note : what was found and done, in words.
    format : of a date, for ``strptime``, or "ISO8601". Several are separated by "|".
    words : the words for no and yes of a boolean.
    levels : the categories, the most frequent first.
    parts : of a date: "days", and "year" and "day" where the dates span several; "missing" where missing cells are
        flagged.
    missing : values that stand for a missing cell in this column.
    unit : text behind the numbers, which is taken off.
    decimal_comma : whether a comma separates the decimals.
    share : whether 5% is 0.05.

    Examples
    --------
    >>> column = Column("when", "date", parts=("days", "year"))
    >>> column.is_input, column.features()
    (True, ['when (days)', 'when (sin year)', 'when (cos year)'])
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
    share: bool = False

    @property
    def is_input(self) -> bool:
        """Whether the column enters the model."""
        return self.kind in READERS

    @property
    def style(self) -> NumberStyle:
        """How the numbers are written."""
        return NumberStyle(self.unit, self.decimal_comma, self.share)

    def features(self) -> list[str]:
        """Return the names of the numbers that the column becomes."""
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
    A few cells of a new table that cannot be read are missing, with a warning.

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

    def __init__(self, columns: Sequence[Column] = (), target: Column | None = None, task: str | None = None) -> None:
        self.columns = columns
        self.target = target
        self.task = task

    def __sklearn_is_fitted__(self) -> bool:
        return True  # all it knows is in its parameters

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags

    def fit(self, X: TableLike, y: object = None) -> TableColumns:
        """Do nothing: the columns were described before."""
        self.record_: dict[str, Any] = {}
        return self

    def transform(self, X: TableLike) -> np.ndarray:
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
        table, inputs = as_table(X), self.inputs()
        absent = [column.name for column in inputs if column.name not in table.names]
        if absent:
            needs = f"the model needs the column{'s' if len(absent) > 1 else ''} {list_names(absent)}"
            raise TableError(f"{table.source}: {needs}; the table has {list_names(table.names)}")
        made = np.empty((len(table), sum(len(column.features()) for column in inputs)))
        place = 0
        for column in inputs:
            values, strays, expected = read_column(table, column)
            if strays.any():
                warnings.warn(_excuse_strays(table, column, strays, expected), stacklevel=2)
            for feature in _encode(column, values):
                made[:, place] = feature
                place += 1
        return made

    def inputs(self) -> list[Column]:
        """Return the columns that enter the model."""
        return [column for column in self.columns if column.is_input]

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the names of the numbers made (n_features_out,).

        >>> TableColumns([Column("when", "date", parts=("days", "year"))]).get_feature_names_out().tolist()
        ['when (days)', 'when (sin year)', 'when (cos year)']
        """
        return np.array([name for column in self.inputs() for name in column.features()], dtype=object)

    def unseen(self, X: TableLike) -> list[str]:
        """Tell of categories in a table that were not seen in the fit.

        >>> city = Column("city", "category", levels=("Ulm", "Bonn"))
        >>> TableColumns([city]).unseen({"city": ["Ulm", "Rome", "Rome"]})
        ["column 'city': 2 cells hold a category that was not seen in the fit ('Rome')"]
        """
        table, notes = as_table(X), []
        for column in self.inputs():
            if column.kind == "category" and OTHER not in column.levels:
                labels = labels_of(mark_missing(table[column.name], column.missing)).dropna()
                unknown = labels[~labels.isin(column.levels)]
                if len(unknown):
                    examples = list_names(unknown.value_counts().index[:3])
                    cells = "cells hold" if len(unknown) > 1 else "cell holds"
                    notes.append(f"column {column.name!r}: {len(unknown)} {cells} a category that was not seen in the "
                                 f"fit ({examples})")  # fmt: skip
        return notes


def _excuse_strays(table: Table, column: Column, strays: np.ndarray, expected: str) -> str:
    """Tell of cells that are read as missing; refused where they are most of the column."""
    cells = mark_missing(table[column.name], column.missing)
    if strays.sum() > MAX_ODD_SHARE * labels_of(cells).notna().sum():
        refuse_strays(table, column.name, strays, expected, MISSING_CURE)
    return (f"column {column.name!r}: expected {expected}; {plural(int(strays.sum()), 'cell')} read as missing: "
            f"{describe_strays(table, column.name, strays)}")  # fmt: skip


def numbers_of(table: Table, name: str, style: NumberStyle | None = None) -> np.ndarray:
    """Return a column as numbers (n,), NaN where missing.

    >>> numbers_of(as_table({"price": ["1,200", "$ 3.5", None, "?"]}), "price").tolist()
    [1200.0, 3.5, nan, nan]
    """
    values, strays = parse_numbers(table[name], style or NumberStyle())
    unit = f" (in {style.unit})" if style is not None and style.unit else ""
    refuse_strays(table, name, strays, f"finite numbers{unit}", MISSING_CURE)
    return values


def names_of(columns: Sequence[Column], kind: str) -> list[str]:
    """Return the names of the columns of one kind."""
    return [column.name for column in columns if column.kind == kind]


# Cells of the kinds ----------------------------------------------------------------------------------------------

Read = tuple[np.ndarray, np.ndarray, str]  # values (n,), NaN where missing; strays (n,); what was expected


def read_column(table: Table, column: Column) -> Read:
    """Read the cells of an input as one number each, NaN where missing, with a mask of the cells that are none."""
    return READERS[column.kind](mark_missing(table[column.name], column.missing), column)


def _encode(column: Column, values: np.ndarray) -> list[np.ndarray]:
    """Return the features of a column, by its values (n,)."""
    made = [values]
    for part, period in (("year", DAYS_PER_YEAR), ("day", 1.0)):
        if part in column.parts:
            phase = 2 * np.pi * values / period
            made += [np.sin(phase), np.cos(phase)]
    return [*made, np.isnan(values).astype(float)] if "missing" in column.parts else made


def _read_number(cells: Series, column: Column) -> Read:
    return *parse_numbers(cells, column.style), f"numbers (in {column.unit})" if column.unit else "numbers"


def _read_boolean(cells: Series, column: Column) -> Read:
    words = column.words or ("false", "true")
    values, strays = parse_numbers(cells)
    if cells.dtype == text_type():
        labels = labels_of(cells)
        values = labels.str.lower().map({word: float(i) for i, word in enumerate(words)}).to_numpy(float)
        strays = labels.notna().to_numpy() & np.isnan(values)
    return values, strays, f"{words[1]} or {words[0]}"


def _read_date(cells: Series, column: Column) -> Read:
    return *days_since_1970(cells, column.format), f"dates ({format_in_words(column.format)})"


def _read_category(cells: Series, column: Column) -> Read:
    code = {level: float(i) for i, level in enumerate(column.levels)}
    labels = labels_of(cells)
    found = labels.map(code).to_numpy(float)
    found = np.where(labels.isna(), code.get(NO_VALUE, -1.0), np.where(np.isnan(found), code.get(OTHER, -1.0), found))
    return found, np.zeros(len(found), dtype=bool), "a category"


READERS: dict[str, Callable[[Series, Column], Read]] = {
    "number": _read_number, "boolean": _read_boolean, "date": _read_date, "category": _read_category,
}  # fmt: skip
