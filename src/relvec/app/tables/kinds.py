"""Decide what the columns of a table are: numbers, booleans, dates, categories, identifiers, free text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relvec.app.tables.cells import (
    CLOCK,
    NumberStyle,
    count_distinct,
    describe_strays,
    find_number_style,
    is_missing,
    labels_of,
    mark_missing,
    parse_numbers,
    refuse_strays,
)
from relvec.app.tables.columns import DAYS_PER_YEAR, NO_VALUE, OTHER, Column, refuse_infinite
from relvec.app.tables.dates import days_since_1970, find_date_formats, format_in_words, other_reading
from relvec.app.tables.table import Table
from relvec.app.tables.text import differ_in_case, list_names, plural

__all__ = ["describe"]

BOOLEANS = (("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("off", "on"))
CODE = re.compile(r"0\d+")  # a number with leading zeros names something
IDENTIFIER = re.compile(r"(?i:(.*[\s_.-])?(id|uuid|guid|key|index|no|nr)\.?)|.*[a-z](Id|ID)|column 1")
MAX_STRAY_SHARE = 0.1  # of the cells of a column of numbers or dates that are something else, and read as missing
MIN_FLAGGED_SHARE = 0.05  # of missing cells, from which on a flag for them becomes an input of its own
MAX_LEVELS = 20  # categories of a column; the rarer ones are joined
MAX_IDENTIFIER_LENGTH = 40  # characters; a longer cell is text
MIN_TEXTS = 50  # so many different texts, in more than half of the rows, are not categories
NINES = re.compile(r"-?9{2,}(\.0*)?")  # such as -999, often written where nothing is known
MAX_MISSING_WORDS = 100  # strange values of a column that are remembered for new tables


@dataclass(frozen=True)
class _Cells:
    """A column of a table with its labels, and counts of them; labels are made where text is looked at."""

    table: Table
    name: str
    cells: np.ndarray
    strict: bool

    @cached_property
    def labels(self) -> list[str | None]:
        return labels_of(self.cells)

    @cached_property
    def present(self) -> list[str]:
        return [label for label in self.labels if label is not None]

    @cached_property
    def distinct(self) -> int:
        return count_distinct(self.cells)

    @cached_property
    def n_missing(self) -> int:
        return int(is_missing(self.cells).sum())

    def flags(self, n_missing: int) -> tuple[str, ...]:
        """The part of a column that flags missing cells, where there are many."""
        return ("missing",) if n_missing and n_missing >= MIN_FLAGGED_SHARE * len(self.cells) else ()

    def describe_filling(self, n_missing: int) -> str:
        """How missing cells are filled, in words."""
        if not n_missing:
            return ""
        flagged = " and flagged" if self.flags(n_missing) else ""
        return f"{plural(n_missing, 'missing cell')}, filled with the median{flagged}"


def describe(
    table: Table, *, identifiers: Collection[str] = (), categorical: Collection[str] = (), drop: Collection[str] = (),
    missing: Collection[str] = (), strict: bool = False,
) -> list[Column]:  # fmt: skip
    """Decide what every column of a table is.

    Parameters
    ----------
    table : Table
    identifiers, categorical, drop : names of columns known to be such
    missing : values that stand for a missing cell, besides the usual ones (empty, NA, NaN, null, ?, -)
    strict : bool, default False
        Whether a few cells that are not numbers in a column of numbers (or not dates in one of dates) are refused.
        Otherwise they are read as missing, and the column's note lists them.

    Returns
    -------
    columns : list of Column, in the table's order

    Examples
    --------
    >>> from relvec.app.tables.table import as_table
    >>> table = as_table({"age": ["31", "n/a", "47"], "smoker": ["yes", "no", "no"], "when": ["2024-01-31"] * 3})
    >>> [column.kind for column in describe(table)]
    ['number', 'boolean', 'constant']
    """
    for name in (*identifiers, *categorical, *drop):
        table[name]  # raises where there is none
    words = tuple(dict.fromkeys(word.strip().lower() for word in missing))
    found = []
    for name in table.names:
        if name in drop:
            found.append(Column(name, "dropped", "left out as asked"))
            continue
        if name in identifiers:
            found.append(Column(name, "identifier", "copied to the predictions"))
            continue
        column = describe_column(table.with_column(name, mark_missing(table[name], words)), name,
                                 categorical=name in categorical, strict=strict)  # fmt: skip
        found.append(replace(column, missing=tuple(dict.fromkeys((*words, *column.missing)))))
    return found


def describe_column(table: Table, name: str, *, categorical: bool, strict: bool) -> Column:
    """Decide what one column is."""
    column = _Cells(table, name, table[name], strict)
    if column.distinct == 0:
        return Column(name, "constant", "left out: every cell is missing")
    if column.distinct == 1 and column.n_missing < MIN_FLAGGED_SHARE * len(table):
        return Column(name, "constant", f"left out: every cell is {column.present[0]!r}")
    if categorical or column.distinct == 1:
        return _category(column)
    return (
        _number(column, rare=False) or _boolean(column) or _date(column) or _number(column, rare=True) or _text(column)
    )


def _number(column: _Cells, rare: bool) -> Column | None:
    """The column as numbers, if all its cells are; with ``rare``, if nearly all are."""
    style = find_number_style(column.cells)
    values, strays = parse_numbers(column.cells, style)
    most = MAX_STRAY_SHARE * (len(values) - column.n_missing) if rare else 1
    if _has_codes(column, style) or strays.sum() >= most:
        return None
    whole = bool(np.all(values[np.isfinite(values)] % 1 == 0))
    if whole and column.distinct == len(values) and IDENTIFIER.fullmatch(column.name) and not strays.any():
        return Column(column.name, "identifier", "copied to the predictions: a different number in every row")
    refuse_infinite(values, column.table, column.name)
    words, note = _read_strays(column, strays, "number")
    n_missing = int(np.isnan(values).sum())
    unit = "times as hours: 14:30 is 14.5" if style.unit == CLOCK else f"in {style.unit}" if style.unit else ""
    notes = [unit, "with decimal commas" if style.decimal_comma else "", note,
             _suspect_nines(values), column.describe_filling(n_missing)]  # fmt: skip
    kind = "boolean" if column.cells.dtype == bool else "number"
    return Column(column.name, kind, "; ".join(filter(None, notes)), parts=column.flags(n_missing), missing=words,
                  unit=style.unit, decimal_comma=style.decimal_comma)  # fmt: skip


def _suspect_nines(values: np.ndarray) -> str:
    """A note on a value such as -999 that lies farther from all others than these from each other.

    >>> _suspect_nines(np.array([31.0, 45.0, -999.0, 62.0, -999.0]))
    'if -999 (2 cells) stands for a missing value, give --missing -999'
    """
    known = values[np.isfinite(values)]
    for value in (known.min(), known.max()) if known.size else ():
        rest = known[known != value]
        if rest.size and NINES.fullmatch(f"{value:g}") and np.abs(rest - value).min() > np.ptp(rest):
            cells = plural(int(np.sum(known == value)), "cell")
            return f"if {value:g} ({cells}) stands for a missing value, give --missing {value:g}"
    return ""


def _has_codes(column: _Cells, style: NumberStyle) -> bool:
    if column.cells.dtype != object:
        return False
    return any(CODE.fullmatch(label.removesuffix(style.unit).rstrip()) for label in column.present)


def _read_strays(column: _Cells, strays: np.ndarray, kind: str) -> tuple[tuple[str, ...], str]:
    """Values that are read as missing, and a note on them; refused where the reading is strict."""
    if not strays.any():
        return (), ""
    if column.strict:
        refuse_strays(column.table, column.name, strays, f"{kind}s",
                      "; correct the cells, leave them empty, name the values with --missing, or use --categorical "
                      f"{column.name!r}")  # fmt: skip
    values = dict.fromkeys(str(column.labels[row]).lower() for row in np.flatnonzero(strays).tolist())
    listed = describe_strays(column.table, column.name, strays)
    cells = "1 cell is not a" if strays.sum() == 1 else f"{strays.sum():,} cells are not"
    plural_s = "" if strays.sum() == 1 else "s"
    return tuple(values)[:MAX_MISSING_WORDS], f"{cells} {kind}{plural_s} and read as missing: {listed}"


def _boolean(column: _Cells) -> Column | None:
    used = {label.lower() for label in column.present}
    for words in BOOLEANS:
        if used <= set(words):
            note = f"{words[1]} is 1, {words[0]} is 0"
            note += f"; {column.describe_filling(column.n_missing)}" if column.n_missing else ""
            return Column(column.name, "boolean", note, words=words, parts=column.flags(column.n_missing))
    return None


def _date(column: _Cells) -> Column | None:
    """The column as dates, if nearly all its cells are."""
    format, note = "", ""
    if column.cells.dtype.kind != "M":
        format, bad = find_date_formats(column.labels)
        if len(bad) >= MAX_STRAY_SHARE * len(column.present):
            return None
        other = other_reading(column.labels, format)
        if other is not None:
            note = f"read as {format_in_words(format)}, though {format_in_words(other)} is possible"
    days, strays = days_since_1970(column.cells, format)
    words, stray_note = _read_strays(column, strays, "date")
    known = days[np.isfinite(days)]
    parts = ["days"]
    if np.ptp(known) > 1.5 * DAYS_PER_YEAR:
        parts.append("year")
    if np.ptp(known) > 1.5 and np.any(known % 1 != 0):
        parts.append("day")
    first, last = (np.datetime64(int(day), "D") for day in (known.min(), known.max()))
    n_missing = int(np.isnan(days).sum())
    notes = [f"{first} to {last}", note, stray_note, column.describe_filling(n_missing)]
    return Column(column.name, "date", "; ".join(filter(None, notes)), format=format,
                  parts=(*parts, *column.flags(n_missing)), missing=words)  # fmt: skip


def _text(column: _Cells) -> Column:
    """The column as identifiers, free text or categories."""
    name, present, distinct = column.name, column.present, column.distinct
    numbers = 1 - parse_numbers(column.cells, find_number_style(column.cells))[1].sum() / len(present)
    if numbers >= 0.5 and distinct > MAX_LEVELS:
        return Column(name, "text", f"left out: only {numbers:.0%} of the cells are numbers; name the other values "
                      "with --missing to use them")  # fmt: skip
    if distinct == len(present) > 2 and max(map(len, present)) <= MAX_IDENTIFIER_LENGTH:
        return Column(name, "identifier", "copied to the predictions: a different text in every row")
    if (distinct > MIN_TEXTS and distinct > len(present) / 2) or distinct == len(present) > 2:
        return Column(name, "text", f"left out: {distinct:,} different texts in {len(present):,} rows are too many "
                      "for categories")  # fmt: skip
    return _category(column)


def _category(column: _Cells) -> Column:
    counts = sorted(Counter(column.present).items(), key=lambda item: (-item[1], item[0]))
    levels = [level for level, _ in counts]
    note = "1 category" if len(levels) == 1 else f"{len(levels)} categories"
    if same := differ_in_case(levels):
        note += f"; {list_names(same)} differ from each other in case alone"
    if len(levels) > MAX_LEVELS:
        levels, note = [*levels[: MAX_LEVELS - 1], OTHER], f"{note}, all but the {MAX_LEVELS - 1} most frequent joined"
    if missing := column.n_missing:
        levels.append(NO_VALUE)
        note += f"; {missing} missing cell{'s are a category of their' if missing > 1 else ' is a category of its'} own"
    return Column(column.name, "category", note, levels=tuple(levels))
