"""What the columns of a table are (numbers, booleans, dates, categories, identifiers) and how they become numbers.

`describe` decides from the cells; `TableColumns` is the scikit-learn transformer that applies what was decided, so that
a fitted pipeline reads a new table exactly as it read the first one. Filling, one-hot encoding and scaling are left to
scikit-learn's own transformers behind it (`relvec.tables.pipelines`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from relvec.tables.files import Table, TableError, as_table

__all__ = ["Column", "TableColumns", "describe", "numbers_of"]

MISSING = {"", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "nil", "?", "-", "--", ".", "missing", "<na>"}
BOOLEANS = (("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("off", "on"))
DATES = (
    "%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S",
    "%m/%d/%y", "%d/%m/%y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y",
    "%b %Y", "%B %Y",
)  # fmt: skip
AMBIGUOUS = {"%m/%d/%Y": "%d/%m/%Y", "%m/%d/%y": "%d/%m/%y", "%m/%d/%Y %H:%M": "%d/%m/%Y %H:%M",
             "%m/%d/%Y %H:%M:%S": "%d/%m/%Y %H:%M:%S", "%d-%m-%Y": "%m-%d-%Y"}  # fmt: skip
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
CODE = re.compile(r"0\d+")
IDENTIFIER = re.compile(r"(?i:(.*[\s_.-])?(id|uuid|guid|key|index))|.*[a-z](Id|ID)|column 1")
NEARLY = 0.9  # a column with this share of numbers is a column of numbers with errors in it
FLAGGED = 0.05  # missing cells get a column of their own from this share on
LEVELS = 20  # most categories of a column; rarer ones are joined
LONGEST_NAME = 40  # characters of an identifier; longer ones are text
TEXTS = 50  # so many different texts, in more than half of the rows, are no categories
OTHER, NO_VALUE = "(other)", "(missing)"
YEAR = 365.2425


@dataclass(frozen=True)
class Column:
    """What a column is.

    Attributes
    ----------
    name : str
    kind : "number", "boolean", "date" or "category" for an input; "identifier", "constant", "text" or "dropped" for
        a column that is none.
    note : what was seen and done, in words.
    format : of a date, for ``strptime``; "" for ISO 8601.
    words : the words for no and yes of a boolean.
    levels : the categories, the most frequent first.
    parts : of a date: "days", and "year" and "day" where it goes through several; "missing" where missing cells are
        flagged.
    """

    name: str
    kind: str
    note: str = ""
    format: str = ""
    words: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def is_input(self) -> bool:
        """Whether the column enters the model."""
        return self.kind in ENCODERS

    def features(self) -> list[str]:
        """Names of the numbers the column becomes."""
        if self.kind == "date":
            made = {"days": ["days"], "year": ["sin year", "cos year"], "day": ["sin day", "cos day"]}
            names = [f"{self.name} ({what})" for part in self.parts if part in made for what in made[part]]
        else:
            names = [self.name]
        return names + ([f"{self.name} (missing)"] if "missing" in self.parts else [])


def describe(
    table: Table, *, identifiers: Collection[str] = (), categorical: Collection[str] = (), drop: Collection[str] = ()
) -> list[Column]:
    """Decide what every column of a table is.

    Parameters
    ----------
    table : Table
    identifiers, categorical, drop : names of columns known to be such

    Returns
    -------
    columns : list of Column, in the table's order

    Raises
    ------
    TableError
        Where nearly all cells of a column are numbers or dates: the message names the first that is not.

    Examples
    --------
    >>> table = as_table({"age": ["31", "n/a", "47"], "smoker": ["yes", "no", "no"], "when": ["2024-01-31"] * 3})
    >>> [column.kind for column in describe(table)]
    ['number', 'boolean', 'constant']
    """
    for name in (*identifiers, *categorical, *drop):
        table[name]  # raises where there is none
    found = []
    for name in table.names:
        if name in drop:
            found.append(Column(name, "dropped", "left out as asked"))
        elif name in identifiers:
            found.append(Column(name, "identifier", "carried through"))
        else:
            found.append(_kind(table, name, name in categorical))
    return found


def numbers_of(table: Table, name: str) -> np.ndarray:
    """The column as numbers (n,), NaN where missing.

    Examples
    --------
    >>> numbers_of(as_table({"price": ["1,200", "$ 3.5", None, "?"]}), "price").tolist()
    [1200.0, 3.5, nan, nan]
    """
    values, bad = _numbers(table[name])
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise TableError(f"{table.place(row, name)}: expected a number, got {table[name][row]!r}")
    return _finite(values, table, name)


class TableColumns(TransformerMixin, BaseEstimator):
    """The first step of a pipeline on tables: cells become numbers, as `describe` decided.

    Numbers and booleans become one column each (NaN where missing), dates the days since 1970 with the phase of the
    year and of the day where they matter, categories the number of their level (-1 for one never seen).

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
        What is known of the fit (`relvec.tables.pipelines.fit_table`); empty otherwise.

    Examples
    --------
    >>> table = as_table({"age": [31.0, 47.0, 52.0, 38.0], "city": ["Ulm", "Bonn", "Ulm", "Ulm"]})
    >>> TableColumns(describe(table)).fit_transform(table).tolist()
    [[31.0, 0.0], [47.0, 1.0], [52.0, 0.0], [38.0, 0.0]]
    """

    def __init__(self, columns: Any = (), target: Any = None, task: str | None = None) -> None:
        self.columns = columns
        self.target = target
        self.task = task

    def __sklearn_is_fitted__(self) -> bool:
        return True  # what it knows are its parameters

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any = None) -> TableColumns:
        """Do nothing: the columns were described before.

        Parameters
        ----------
        X : Table, data frame, mapping of columns or array (n, d)
        y : ignored

        Returns
        -------
        self : TableColumns

        Examples
        --------
        >>> TableColumns().fit({"x": [1.0]})
        TableColumns()
        """
        self.record_: dict[str, Any] = {}
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The inputs as numbers.

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
            needs = f"the model needs the column{'s' if len(absent) > 1 else ''} {', '.join(map(repr, absent))}"
            raise TableError(f"{table.source}: {needs}; the table has {', '.join(map(repr, table.names))}")
        made = [values for column in inputs for values in ENCODERS[column.kind](table, column)]
        return np.column_stack(made) if made else np.empty((len(table), 0))

    def inputs(self) -> list[Column]:
        """The columns that enter the model.

        Examples
        --------
        >>> [column.name for column in TableColumns([Column("id", "identifier"), Column("x", "number")]).inputs()]
        ['x']
        """
        return [column for column in self.columns if column.is_input]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the numbers made (n_features_out,).

        Examples
        --------
        >>> TableColumns([Column("when", "date", parts=("days", "year"))]).get_feature_names_out().tolist()
        ['when (days)', 'when (sin year)', 'when (cos year)']
        """
        return np.array([name for column in self.inputs() for name in column.features()], dtype=object)

    def unseen(self, X: Any) -> list[str]:
        """What a table holds that the fit did not know, in words.

        Examples
        --------
        >>> city = Column("city", "category", levels=("Ulm", "Bonn"))
        >>> TableColumns([city]).unseen({"city": ["Ulm", "Rome", "Rome"]})
        ["column 'city': 2 cells hold a category that was not seen in the fit ('Rome')"]
        """
        table, notes = as_table(X), []
        for column in self.inputs():
            if column.kind != "category":
                continue
            strange = Counter(v for v in labels_of(table[column.name]) if v is not None and v not in column.levels)
            if strange and OTHER not in column.levels:
                examples = ", ".join(repr(value) for value, _ in strange.most_common(3))
                what = "cells hold a category that was" if strange.total() > 1 else "cell holds a category that was"
                notes.append(f"column {column.name!r}: {strange.total()} {what} not seen in the fit ({examples})")
        return notes


def labels_of(column: np.ndarray) -> list[str | None]:
    """The cells as categories, None where missing; whole numbers without a decimal point.

    Examples
    --------
    >>> import numpy as np
    >>> labels_of(np.array([1.0, 2.5, np.nan]))
    ['1', '2.5', None]
    """
    if column.dtype.kind == "f":
        return [None if v != v else str(int(v)) if v.is_integer() else repr(v) for v in column.astype(float).tolist()]
    if column.dtype.kind == "M":
        return [None if np.isnat(v) else str(v) for v in column]
    cells = column.tolist()
    if column.dtype.kind == "b":
        return ["true" if v else "false" for v in cells]
    return [None if v is None or str(v).strip().lower() in MISSING else str(v).strip() for v in cells]


# What a column is ------------------------------------------------------------------------------------------------


def _kind(table: Table, name: str, categorical: bool) -> Column:
    column = table[name]
    labels = labels_of(column)
    present = [label for label in labels if label is not None]
    n, missing = len(labels), len(labels) - len(present)
    distinct = len(set(present))
    if distinct == 0:
        return Column(name, "constant", "left out: every cell is missing")
    if distinct == 1 and missing < FLAGGED * n:
        return Column(name, "constant", f"left out: every cell is {present[0]!r}")
    if categorical or distinct == 1:
        return _category(name, present, missing)
    values, bad = _numbers(column)
    whole = bool(np.all(values[np.isfinite(values)] % 1 == 0))
    if not bad.any() and not (column.dtype == object and any(CODE.fullmatch(label) for label in present)):
        if whole and not missing and distinct == n and IDENTIFIER.fullmatch(name):
            return Column(name, "identifier", "carried through: a different number in every row")
        _finite(values, table, name)
        return Column(
            name, "boolean" if column.dtype == bool else "number", _filled(missing, n), parts=_flag(missing, n)
        )
    words = {label.lower() for label in present}
    for pair in BOOLEANS:
        if words <= set(pair):
            note = f"{pair[1]} is 1, {pair[0]} is 0" + (f"; {_filled(missing, n)}" if missing else "")
            return Column(name, "boolean", note, words=pair, parts=_flag(missing, n))
    date = _date(table, name, labels, missing)
    if date is not None:
        return date
    if 0 < bad.sum() < (1 - NEARLY) * len(present):
        row = int(np.flatnonzero(bad)[0])
        raise TableError(
            f"{table.place(row, name)}: expected a number, as {len(present) - int(bad.sum())} of {len(present)} cells "
            f"of the column are, got {column[row]!r}; correct it, leave it empty, or use --categorical {name!r}"
        )
    if distinct == len(present) and len(present) > 2 and max(map(len, present)) <= LONGEST_NAME:
        return Column(name, "identifier", "carried through: a different text in every row")
    if (distinct > TEXTS and distinct > len(present) / 2) or distinct == len(present) > 2:
        return Column(name, "text", f"left out: {distinct} different texts in {len(present)} rows are no categories")
    return _category(name, present, missing)


def _filled(missing: int, n: int) -> str:
    if not missing:
        return ""
    flagged = " and flagged" if _flag(missing, n) else ""
    return f"{missing} missing cell{'s' if missing > 1 else ''}, filled with the median{flagged}"


def _flag(missing: int, n: int) -> tuple[str, ...]:
    return ("missing",) if missing >= FLAGGED * n and missing else ()


def _category(name: str, present: list[str], missing: int) -> Column:
    counts = sorted(Counter(present).items(), key=lambda item: (-item[1], item[0]))
    levels = [level for level, _ in counts]
    note = f"{len(levels)} categories"
    if len(levels) > LEVELS:
        levels, note = [*levels[: LEVELS - 1], OTHER], f"{note}, all but the {LEVELS - 1} most frequent joined"
    if missing:
        levels.append(NO_VALUE)
        note += f"; {missing} missing cell{'s are a category of their' if missing > 1 else ' is a category of its'} own"
    return Column(name, "category", note, levels=tuple(levels))


def _date(table: Table, name: str, labels: list[str | None], missing: int) -> Column | None:
    """The column as a date, if its cells are dates."""
    column, note = table[name], ""
    if column.dtype.kind == "M":
        format, days = "", days_of(table, Column(name, "date"))
    else:
        found = _date_format(table, name, labels)
        if found is None:
            return None
        format = found
        days = days_of(table, Column(name, "date", format=format))
        other = AMBIGUOUS.get(format)
        if other is not None and all(label is None or _parses(label, other) for label in labels):
            note = f"; read as {_in_words(format)}, though {_in_words(other)} is possible"
    known = days[np.isfinite(days)]
    parts = ["days"]
    if np.ptp(known) > 1.5 * YEAR:
        parts.append("year")
    if np.ptp(known) > 1.5 and np.any(known % 1 != 0):
        parts.append("day")
    first, last = (np.datetime64(int(day), "D") for day in (known.min(), known.max()))
    filled = f"; {_filled(missing, len(labels))}" if missing else ""
    return Column(name, "date", f"{first} to {last}{note}{filled}", format=format,
                  parts=(*parts, *_flag(missing, len(labels))))  # fmt: skip


def _date_format(table: Table, name: str, labels: list[str | None]) -> str | None:
    present = [(row, label) for row, label in enumerate(labels) if label is not None]
    sample = present[: max(20, len(present) // 10)]
    best, failed = None, len(present)
    for format in ("", *DATES):
        if sum(not _parses(label, format) for _, label in sample) > 0.5 * len(sample):
            continue
        bad = [row for row, label in present if not _parses(label, format)]
        if not bad:
            return format
        if len(bad) < failed:
            best, failed = (format, bad[0]), len(bad)
    if best is not None and failed < (1 - NEARLY) * len(present):
        raise TableError(
            f"{table.place(best[1], name)}: expected a date ({_in_words(best[0])}), as {len(present) - failed} of "
            f"{len(present)} cells of the column are, got {labels[best[1]]!r}; correct it or leave it empty"
        )
    return None


def _parses(label: str, format: str) -> bool:
    try:
        _parsed(label, format)
    except ValueError:
        return False
    return True


def _parsed(label: str, format: str) -> datetime:
    if format:
        return datetime.strptime(label, format)
    if len(label) < 8 or not label[:4].isdigit():  # a bare number is no date
        raise ValueError(label)
    return datetime.fromisoformat(label)


def _in_words(format: str) -> str:
    if not format:
        return "YYYY-MM-DD"
    words = {
        "%Y": "YYYY",
        "%y": "YY",
        "%m": "MM",
        "%d": "DD",
        "%H": "hh",
        "%M": "mm",
        "%S": "ss",
        "%b": "Jan",
        "%B": "January",
    }
    return re.sub(r"%\w", lambda match: words[match[0]], format)


# Cells into numbers ----------------------------------------------------------------------------------------------


def _numbers(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (n,), NaN where missing, and where a cell is neither (n,)."""
    if column.dtype.kind in "biuf":
        return column.astype(float), np.zeros(len(column), dtype=bool)
    values, bad = np.full(len(column), np.nan), np.zeros(len(column), dtype=bool)
    if column.dtype.kind == "M":
        return values, ~bad
    for row, label in enumerate(labels_of(column)):
        if label is None:
            continue
        try:
            values[row] = float(_plain(label))
        except ValueError:
            bad[row] = True
    return values, bad


def _plain(label: str) -> str:
    """A number without thousands separators, currency and percent sign."""
    if "_" in label:
        raise ValueError(label)
    plain = label.strip("$€£¥% \u00a0")
    return plain.replace(",", "") if THOUSANDS.fullmatch(plain) else plain


def _finite(values: np.ndarray, table: Table, name: str) -> np.ndarray:
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise TableError(f"{table.place(row, name)}: expected a finite number, got {table[name][row]}")
    return values


def days_of(table: Table, column: Column) -> np.ndarray:
    """A column of dates as days since 1970 (n,), NaN where missing; times with a zone in UTC.

    Examples
    --------
    >>> days_of(as_table({"when": ["1970-01-02", "1970-01-01T12:00:00"]}), Column("when", "date")).tolist()
    [1.0, 0.5]
    """
    cells = table[column.name]
    if cells.dtype.kind == "M":
        days = cells.astype("datetime64[us]").astype(np.int64) / 86400e6
        return np.where(np.isnat(cells), np.nan, days)
    days = np.full(len(cells), np.nan)
    for row, label in enumerate(labels_of(cells)):
        if label is None:
            continue
        try:
            when = _parsed(label, column.format)
        except ValueError as error:
            raise TableError(f"{table.place(row, column.name)}: expected a date ({_in_words(column.format)}), "
                             f"got {cells[row]!r}") from error  # fmt: skip
        days[row] = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() / 86400
    return days


def _flagged(values: np.ndarray, column: Column) -> list[np.ndarray]:
    return [np.isnan(values).astype(float)] if "missing" in column.parts else []


def _encode_number(table: Table, column: Column) -> list[np.ndarray]:
    values = numbers_of(table, column.name)
    return [values, *_flagged(values, column)]


def _encode_boolean(table: Table, column: Column) -> list[np.ndarray]:
    cells = table[column.name]
    if cells.dtype.kind in "biuf":
        return _encode_number(table, column)
    words = column.words or ("false", "true")
    values = np.full(len(cells), np.nan)
    for row, label in enumerate(labels_of(cells)):
        if label is None:
            continue
        if label.lower() not in words:
            raise TableError(f"{table.place(row, column.name)}: expected {words[1]} or {words[0]}, got {label!r}")
        values[row] = words.index(label.lower())
    return [values, *_flagged(values, column)]


def _encode_date(table: Table, column: Column) -> list[np.ndarray]:
    days = days_of(table, column)
    made = [days]
    for part, period in (("year", YEAR), ("day", 1.0)):
        if part in column.parts:
            phase = 2 * np.pi * days / period
            made += [np.sin(phase), np.cos(phase)]
    return [*made, *_flagged(days, column)]


def _encode_category(table: Table, column: Column) -> list[np.ndarray]:
    code = {level: float(i) for i, level in enumerate(column.levels)}
    other, missing = code.get(OTHER, -1.0), code.get(NO_VALUE, -1.0)
    labels = labels_of(table[column.name])
    return [np.array([missing if label is None else code.get(label, other) for label in labels], dtype=float)]


ENCODERS: dict[str, Callable[[Table, Column], list[np.ndarray]]] = {
    "number": _encode_number, "boolean": _encode_boolean, "date": _encode_date, "category": _encode_category,
}  # fmt: skip


def plural(count: int, what: str) -> str:
    """A count with its noun.

    Examples
    --------
    >>> plural(1, "row"), plural(2, "row")
    ('1 row', '2 rows')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def names_of(columns: Sequence[Column], kind: str) -> list[str]:
    """The names of the columns of one kind.

    Examples
    --------
    >>> names_of([Column("id", "identifier"), Column("x", "number")], "identifier")
    ['id']
    """
    return [column.name for column in columns if column.kind == kind]
