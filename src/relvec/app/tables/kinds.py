"""Decide what the columns of a table are: numbers, booleans, dates, categories, identifiers, free text."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from relvec.app.tables.cells import (
    CLOCK,
    MIXED,
    NumberStyle,
    describe_signs,
    describe_strays,
    find_number_style,
    labels_of,
    list_labels,
    mark_missing,
    mixed_units,
    parse_numbers,
    refuse_strays,
)
from relvec.app.tables.columns import DAYS_PER_YEAR, NO_VALUE, OTHER, Column
from relvec.app.tables.dates import days_since_1970, find_date_formats, format_in_words, other_reading
from relvec.app.tables.table import NESTED, Table, TableError, text_type
from relvec.app.tables.text import differ_in_case, list_names, plural

if TYPE_CHECKING:
    from pandas import Series

__all__ = ["describe"]

BOOLEANS = (("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("off", "on"))
CODE = r"0\d+"  # a number with leading zeros names something
IDENTIFIER = re.compile(r"(?i:(.*[\s_.-])?(id|uuid|guid|key|index|no|nr|obs|observation|case|row[\s_.-]?names?)\.?)|"
                        r".*[a-z](Id|ID)|column 1|Unnamed: \d+")  # fmt: skip
NAMES_THINGS = re.compile(r"(?i:(.*[\s_.-])?(id|uuid|guid|patient|subject|participant|customer|client|member|user|"
                          r"account|employee|student|person|household|invoice|transaction|ticket|serial|record|sample|"
                          r"specimen|row)([\s_.-]?(id|no|nr|num|number|code))?\.?|(.*[\s_.-])?(case|obs)[\s_.-]?(id|no|nr|num|"
                          r"number))|.*[a-z](Id|ID)")  # fmt: skip
ZIP_CODE = re.compile(r"(?i:(.*[\s_.-])?(zip|zip[\s_.-]?code|postal[\s_.-]?code|postcode|post[\s_.-]?code|plz))")
MAX_STRAY_SHARE = 0.1  # of the cells of a column of numbers or dates that are something else, and read as missing
MIN_FLAGGED_SHARE = 0.05  # of missing cells, from which on a flag for them becomes an input of its own
MAX_LEVELS = 20  # categories of a column; the rarer ones are joined
MAX_IDENTIFIER_LENGTH = 40  # characters; a longer cell is text
MIN_TEXTS = 50  # so many different texts, in more than half of the rows, are not categories
NINES = re.compile(r"-?9{2,}(\.0*)?")  # such as -999, often written where nothing is known
MAX_MISSING_WORDS = 100  # strange values of a column that are remembered for new tables
COPIED = "copied to the predictions"


@dataclass(frozen=True)
class _Cells:
    """A column of a table with what is asked of it more than once."""

    table: Table
    name: str
    cells: Series
    strict: bool

    @cached_property
    def labels(self) -> Series:
        return labels_of(self.cells)

    @cached_property
    def present(self) -> Series:
        return self.labels.dropna()

    @cached_property
    def style(self) -> NumberStyle:
        return find_number_style(self.cells)

    @cached_property
    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (n,), and a mask (n,) of the cells that are none, in the style of most."""
        return parse_numbers(self.cells, self.style)

    @cached_property
    def distinct(self) -> int:
        values, strays = self.numbers
        return self.present.nunique() if strays.any() else len(np.unique(values[~np.isnan(values)]))

    @cached_property
    def n_missing(self) -> int:
        values, strays = self.numbers
        return int(np.sum(np.isnan(values) & ~strays))

    def flags(self, n_missing: int) -> tuple[str, ...]:
        """Return the part of a column that flags missing cells, where there are many."""
        return ("missing",) if n_missing and n_missing >= MIN_FLAGGED_SHARE * len(self.cells) else ()

    def describe_filling(self, n_missing: int) -> str:
        """Say how missing cells are filled."""
        if not n_missing:
            return ""
        flagged = " and flagged" if self.flags(n_missing) else ""
        return f"{plural(n_missing, 'missing cell')}, filled with the median{flagged}"


def describe(
    table: Table, *, identifiers: Collection[str] = (), categorical: Collection[str] = (), drop: Collection[str] = (),
    use: Collection[str] = (), missing: Collection[str] = (), strict: bool = False,
) -> list[Column]:  # fmt: skip
    """Decide what every column of a table is.

    Parameters
    ----------
    table : Table
    identifiers, categorical, drop : names of columns known to be such
    use : names of columns that are inputs even if they look like identifiers
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
    for name in (*identifiers, *categorical, *drop, *use):
        table[name]  # raises where there is none
    words = tuple(dict.fromkeys(word.strip().lower() for word in missing))
    found = []
    for name in table.names:
        if name in drop:
            found.append(Column(name, "dropped", "left out as asked"))
        elif name in identifiers:
            found.append(Column(name, "identifier", COPIED))
        else:
            column = _Cells(table, name, mark_missing(table[name], words), strict)
            made = _describe_column(column, name in categorical, name in use)
            found.append(replace(made, missing=tuple(dict.fromkeys((*words, *made.missing)))))
    return found


def _describe_column(column: _Cells, categorical: bool, use: bool) -> Column:
    name = column.name
    if column.cells.dtype == object:  # text and numbers are of other types
        known = column.cells.dropna()
        what = "lists or objects" if len(known) and isinstance(known.iloc[0], NESTED) else "objects"
        return Column(name, "text", f"left out: its cells hold {what}")
    if column.distinct == 0:
        return Column(name, "constant", "left out: every cell is missing")
    if column.distinct == 1 and column.n_missing < MIN_FLAGGED_SHARE * len(column.cells):
        return Column(name, "constant", f"left out: every cell is {_constant_in_words(column)}")
    if categorical or column.distinct == 1:
        return _category(column)
    if ZIP_CODE.fullmatch(name) and not use:
        return _zip_code(column)
    return (
        _number(column, rare=False, use=use)
        or _boolean(column)
        or _date(column)
        or _number(column, rare=True, use=use)
        or _text(column, use)
    )


def _constant_in_words(column: _Cells) -> str:
    """Return the value that every cell has; of numbers that are spelt in more than one way the plain one."""
    values, strays = column.numbers
    if strays.any() or (column.present.nunique() == 1 and not np.all(values == 0.0)):
        return repr(column.present.iloc[0])
    return f"{np.nanmax(values) + 0.0:g}"  # 0.0 and -0.0 are both 0


def _zip_code(column: _Cells) -> Column:
    """Describe codes of places: categories, also where they are written without leading zeros."""
    use = f"numbers that name places; --use {column.name!r} reads them as they are"
    if column.distinct == len(column.present) > 2:
        return Column(column.name, "identifier", f"{COPIED}: a different one in every row, {use}")
    found = _category(column)
    return replace(found, note=f"{found.note}; {use}")


def _number(column: _Cells, rare: bool, use: bool) -> Column | None:
    """Describe the column as numbers, if all its cells are; with ``rare``, if nearly all are."""
    style, (values, strays) = column.style, column.numbers
    most = max(1.0, MAX_STRAY_SHARE * (len(values) - column.n_missing)) if rare else 1.0
    if column.cells.dtype.kind == "M" or _has_codes(column, style.unit):
        return None
    if column.cells.dtype == text_type() and strays.sum() >= most:  # of numbers the infinite ones are strays
        return None
    if not use and not strays.any() and (reason := _names_rows(column, values)):
        return Column(column.name, "identifier", f"{COPIED}: {reason}; --use {column.name!r} makes it an input")
    words, note = _read_strays(column, strays, "number")
    signs = describe_signs(column.cells, style)
    if column.strict and MIXED in signs:
        raise TableError(f"{column.table.source}, column {column.name!r}: {signs}: write them alike, or leave --strict "
                         "out")  # fmt: skip
    n_missing = int(np.isnan(values).sum())
    unit = "times as hours: 14:30 is 14.5" if style.unit == CLOCK else f"in {style.unit}" if style.unit else ""
    notes = [unit, "with decimal commas" if style.decimal_comma else "", signs, note,
             _suspect_nines(values), column.describe_filling(n_missing)]  # fmt: skip
    kind = "boolean" if column.cells.dtype == bool else "number"
    return Column(column.name, kind, "; ".join(filter(None, notes)), parts=column.flags(n_missing), missing=words,
                  unit=style.unit, decimal_comma=style.decimal_comma, share=style.share)  # fmt: skip


def _names_rows(column: _Cells, values: np.ndarray) -> str:
    """Say why whole numbers name rows rather than measure something; nothing where they do not seem to."""
    if not np.all(values[np.isfinite(values)] % 1 == 0):
        return ""
    known = NAMES_THINGS.fullmatch(column.name) is not None
    if column.distinct == len(values) and (known or IDENTIFIER.fullmatch(column.name)):
        return "a different number in every row"
    if known and column.distinct > MAX_LEVELS:
        return f"{column.distinct:,} whole numbers that name something"
    return ""


def _suspect_nines(values: np.ndarray) -> str:
    """Point out a value such as -999 that lies farther from all others than these from each other.

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


def _has_codes(column: _Cells, unit: str) -> bool:
    if column.cells.dtype != text_type():
        return False
    labels = column.cells.str.strip()
    labels = labels[labels.str.startswith("0", na=False)]
    return bool(labels.str.removesuffix(unit).str.rstrip().str.fullmatch(CODE).any())


def _read_strays(column: _Cells, strays: np.ndarray, kind: str) -> tuple[tuple[str, ...], str]:
    """Return the values that are read as missing, and a note on them; refused where the reading is strict."""
    if not strays.any():
        return (), ""
    if column.strict:
        refuse_strays(column.table, column.name, strays, f"{kind}s",
                      "; correct the cells, leave them empty, name the values with --missing, or use --categorical "
                      f"{column.name!r}")  # fmt: skip
    values = dict.fromkeys(str(label).lower() for label in list_labels(column.cells[strays]))
    listed = describe_strays(column.table, column.name, strays)
    cells = "1 cell is not a" if strays.sum() == 1 else f"{strays.sum():,} cells are not"
    plural_s = "" if strays.sum() == 1 else "s"
    return tuple(values)[:MAX_MISSING_WORDS], f"{cells} {kind}{plural_s} and read as missing: {listed}"


def _boolean(column: _Cells) -> Column | None:
    used = set(column.present.str.lower().unique())
    for words in BOOLEANS:
        if used <= set(words):
            note = f"{words[1]} is 1, {words[0]} is 0"
            note += f"; {column.describe_filling(column.n_missing)}" if column.n_missing else ""
            return Column(column.name, "boolean", note, words=words, parts=column.flags(column.n_missing))
    return None


def _date(column: _Cells) -> Column | None:
    """Describe the column as dates, if nearly all its cells are."""
    format, note = "", ""
    if column.cells.dtype == text_type():
        format, bad = find_date_formats(column.labels)
        if not format or bad.sum() >= MAX_STRAY_SHARE * len(column.present):
            return None
        if (other := other_reading(column.labels, format)) is not None:
            note = f"read as {format_in_words(format)}, though {format_in_words(other)} is possible"
    elif column.cells.dtype.kind != "M":
        return None
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


def _text(column: _Cells, use: bool) -> Column:
    """Describe the column as identifiers, free text or categories."""
    name, present, distinct = column.name, column.present, column.distinct
    numbers = 1 - column.numbers[1].sum() / len(present)
    if numbers >= 0.5 and distinct > MAX_LEVELS and not _has_codes(column, ""):
        return Column(name, "text", f"left out: only {numbers:.0%} of the cells are numbers; name the other values "
                      f"with --missing to use them, or give --categorical {name!r}")  # fmt: skip
    if distinct > MAX_LEVELS and (units := mixed_units(column.cells)):
        return Column(name, "text", f"left out: numbers with different units ({list_names(units)}): write them in one, "
                      f"or as numbers alone, or give --categorical {name!r}")  # fmt: skip
    if use:
        return _category(column)
    keep = f"--use {name!r} makes it a category"
    if distinct == len(present) > 2 and present.str.len().max() <= MAX_IDENTIFIER_LENGTH:
        return Column(name, "identifier", f"{COPIED}: a different text in every row; {keep}")
    if NAMES_THINGS.fullmatch(name) and distinct > MAX_LEVELS:
        return Column(name, "identifier", f"{COPIED}: {distinct:,} texts that name something; {keep}")
    if (distinct > MIN_TEXTS and distinct > len(present) / 2) or distinct == len(present) > 2:
        return Column(name, "text", f"left out: {distinct:,} different texts in {len(present):,} rows are too many "
                      f"for categories; {keep} all the same")  # fmt: skip
    return _category(column)


def _category(column: _Cells) -> Column:
    counts = column.present.value_counts().to_dict()
    levels = sorted(counts, key=lambda level: (-counts[level], level))
    note = "1 category" if len(levels) == 1 else f"{len(levels)} categories"
    if same := differ_in_case(levels):
        note += f"; {list_names(same)} differ from each other in case alone"
    if len(levels) > MAX_LEVELS:
        levels, note = [*levels[: MAX_LEVELS - 1], OTHER], f"{note}, all but the {MAX_LEVELS - 1} most frequent joined"
    if missing := column.n_missing:
        levels.append(NO_VALUE)
        note += f"; {missing} missing cell{'s are a category of their' if missing > 1 else ' is a category of its'} own"
    return Column(column.name, "category", note, levels=tuple(levels))
