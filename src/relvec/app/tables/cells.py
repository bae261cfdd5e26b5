"""Cells as labels and as numbers: words for missing values, decimal commas, thousands, currencies, units and times."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relvec.app.tables.table import Table, TableError, import_pandas, text_type

if TYPE_CHECKING:
    from pandas import Series

__all__ = ["NumberStyle", "describe_strays", "find_number_style", "labels_of", "list_labels", "mark_missing",
           "parse_numbers"]  # fmt: skip

MISSING = {"", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "nil", "?", "-", "--", ".", "missing", "<na>"}
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+")
QUANTITY = re.compile(r"([+-]?[\d.,]*\d)\s*(°?[^\W\d_²³][^\s,;]{0,11}|[°'\"‰])")
CURRENCIES = "$€£¥"
MIXED = " (--strict refuses mixed signs)"
AROUND = f"{CURRENCIES}% \u00a0"  # taken off a number
CLOCK, TIME = "h:mm", re.compile(r"(\d{1,4}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")  # a unit: 14:30 is 14.5 hours
MIN_UNIT_SHARE = 0.5  # of the numbers must carry a unit: in fewer cells it may be another one than in the rest
MIN_UNIT_AGREEMENT = 0.9  # of the cells with a unit must have the same; a number with another one is not used
MAX_LISTED_VALUES, MAX_LISTED_ROWS = 10, 5  # of the strange values of a column, in messages


@dataclass(frozen=True)
class NumberStyle:
    """How the numbers of a column are written.

    Attributes
    ----------
    unit : text behind the numbers, the same in all cells that have any.
    decimal_comma : whether 3,14 is a little more than three.
    share : whether 5% is 0.05, as where other cells of the column are shares.
    """

    unit: str = ""
    decimal_comma: bool = False
    share: bool = False

    def parse(self, label: str) -> float:
        """Return the number in a cell; raise a ValueError where there is none."""
        if "_" in label:  # which Python takes for a separator of digits
            raise ValueError(label)
        plain = label.strip(AROUND)
        if self.unit == CLOCK and (time := TIME.fullmatch(plain)):
            return int(time[1]) + int(time[2]) / 60 + float(time[3] or 0) / 3600
        plain = plain.removesuffix(self.unit).rstrip()
        if self.decimal_comma and "," in plain:
            plain = plain.replace(".", "").replace(",", ".")
        elif THOUSANDS.fullmatch(plain):
            plain = plain.replace(",", "")
        return float(plain) / (100.0 if self.share and label.endswith("%") else 1.0)


PLAIN = NumberStyle()


def labels_of(column: Series) -> Series:
    """Return the cells as categories, NaN where missing; whole numbers without a decimal point.

    >>> from relvec.app.tables.table import as_column
    >>> labels_of(as_column([1.0, 2.5, None], "x")).tolist()
    ['1', '2.5', nan]
    """
    if column.dtype == text_type():
        stripped = column.str.strip()
        return stripped.mask(stripped.str.lower().isin(MISSING))
    known = column.dropna()
    words = {value: _spell(value) for value in known.unique()} if column.dtype != object else {}
    return (known.map(words) if words else known.astype(str)).reindex(column.index).astype(text_type())


def _spell(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else repr(float(value))
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


def list_labels(column: Series) -> list[str | None]:
    """Return the labels as a list, None where missing."""
    labels = labels_of(column)
    return labels.astype(object).where(labels.notna(), None).tolist()


def mark_missing(column: Series, words: Collection[str]) -> Series:
    """Return the column with the cells that hold one of these words, or an equal number, missing.

    >>> from relvec.app.tables.table import as_column
    >>> mark_missing(as_column([1.0, -999.0], "x"), ["-999"]).tolist()
    [1.0, nan]
    """
    known = {word.strip().lower() for word in words}
    if known and column.dtype == text_type():
        return column.mask(column.str.strip().str.lower().isin(known))
    if known and column.dtype.kind in "iuf":
        hit = column.isin([number for word in known if (number := _as_float(word)) is not None])
        return column.astype(float).mask(hit) if hit.any() else column
    return column


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def parse_numbers(column: Series, style: NumberStyle = PLAIN) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers (n,), NaN where missing, and a mask (n,) of the cells that are no finite numbers, nor missing.

    >>> from relvec.app.tables.table import as_column
    >>> values, strays = parse_numbers(as_column(["1,200", "$ 3.5", None, "many"], "x"))
    >>> values.tolist(), strays.tolist()
    ([1200.0, 3.5, nan, nan], [False, False, False, True])
    """
    known = column.notna().to_numpy()
    if column.dtype.kind in "biuf" and column.dtype != text_type():
        values = column.to_numpy(float)
    elif column.dtype != text_type():
        return np.full(len(column), np.nan), known
    else:
        values, odd = _parse_plain(column)
        known = ~np.isnan(values)
        known[odd.index] = True
        values[odd.index] = [_parse_or_nan(label, style) for label in odd]
    finite = np.isfinite(values)
    return np.where(finite, values, np.nan), known & ~finite


def _parse_plain(column: Series) -> tuple[np.ndarray, Series]:
    """Return the plain numbers (n,) of a column of text, NaN elsewhere, and the other labels by their places."""
    column = column.reset_index(drop=True)
    values = import_pandas().to_numeric(column, errors="coerce").to_numpy(float, na_value=np.nan, copy=True)
    return values, labels_of(column[np.isnan(values) & column.notna().to_numpy()]).dropna()


def _parse_or_nan(label: str, style: NumberStyle) -> float:
    try:
        return style.parse(label)
    except ValueError:
        return np.nan


def find_number_style(column: Series) -> NumberStyle:
    """Return the style in which most cells are numbers; decimal points and no unit where it makes no difference.

    >>> from relvec.app.tables.table import as_column
    >>> find_number_style(as_column(["154 PS", "90 PS", "75"], "power")).unit
    'PS'
    """
    if column.dtype != text_type():
        return PLAIN
    values, others = _parse_plain(column)
    odd = Counter[str](others.value_counts().to_dict())
    known = odd.total() + int(np.sum(~np.isnan(values)))
    bare = {label: label.strip(AROUND) for label in odd}
    if sum(count for label, count in odd.items() if TIME.fullmatch(bare[label])) > known / 2:
        return NumberStyle(CLOCK)
    unit = _find_unit(odd, bare, known - odd.total())
    plain = [text.removesuffix(unit).rstrip() if unit else text for text in bare.values()]
    percent = any(label.endswith("%") for label in odd)
    return NumberStyle(unit, _has_decimal_commas(plain), percent and _are_shares(values[np.isfinite(values)]))


def _find_unit(odd: Counter[str], bare: dict[str, str], plain: int) -> str:
    """Return the unit that most labels carry, beside so many plain numbers; nothing where too few agree."""
    units, numbers = Counter[str](), plain
    for label, rows in odd.items():
        if _is_number(bare[label]):
            numbers += rows
        elif match := QUANTITY.fullmatch(bare[label]):
            units[match[2]] += rows
    unit, carried = units.most_common(1)[0] if units else ("", 0)
    least = max(MIN_UNIT_AGREEMENT * units.total(), MIN_UNIT_SHARE * (numbers + units.total()))
    return unit if carried >= least else ""


def _has_decimal_commas(numbers: list[str]) -> bool:
    """Tell whether commas are decimal: 1,234 may be a thousand, and only another comma shows it."""
    thousands = [THOUSANDS.fullmatch(n) is not None for n in numbers]
    decimal = any(DECIMAL_COMMA.fullmatch(n) and not t for n, t in zip(numbers, thousands, strict=True))
    return decimal and not any(t and "." in n for n, t in zip(numbers, thousands, strict=True))


def _are_shares(finite: np.ndarray) -> bool:
    return len(finite) > 0 and bool(np.abs(finite).max() <= 1.0)


def mixed_units(column: Series) -> list[str]:
    """Return the units of a column of text most of whose cells are numbers with one, where there are several.

    >>> from relvec.app.tables.table import as_column
    >>> mixed_units(as_column(["1.72 m", "168 cm", "1.80 m", "1.65 m", "175 cm", "?"], "height"))
    ['m', 'cm']
    """
    found = labels_of(column).dropna()
    units = Counter(match[2] for label in found if (match := QUANTITY.fullmatch(label.strip(AROUND))))
    several = len(units) > 1 and units.total() > MIN_UNIT_SHARE * len(found) and units.total() > 2 * len(units)
    return [unit for unit, _ in units.most_common()] if several else []


def _is_number(label: str) -> bool:
    return _as_float(label) is not None or THOUSANDS.fullmatch(label) is not None


def describe_signs(column: Series, style: NumberStyle) -> str:
    """Say how percent signs and currencies were read, where not all cells carry the same.

    >>> from relvec.app.tables.table import as_column
    >>> column = as_column(["5.3%", "0.053"], "rate")
    >>> describe_signs(column, find_number_style(column))
    '1 of 2 cells has a percent sign and the others are shares, so 5% is read as 0.05 (--strict refuses mixed signs)'
    """
    if column.dtype != text_type():
        return ""
    values, labels = _parse_plain(column)
    rows = len(labels) + int(np.sum(~np.isnan(values)))
    percent = int(labels.str.endswith("%").sum())
    found = [sign for sign in CURRENCIES if labels.str.contains(sign, regex=False).any()]
    notes = [f"currencies are mixed ({', '.join(found)}) and read as equal{MIXED}"] if len(found) > 1 else []
    if 0 < percent < rows:
        rest = "are shares, so 5% is read as 0.05" if style.share else "none, so 5% and 5 are the same"
        have = "has" if percent == 1 else "have"
        notes.append(f"{percent:,} of {rows:,} cells {have} a percent sign and the others {rest}{MIXED}")
    return "; ".join(["in percent"] if percent == rows > 0 else notes)


def describe_strays(table: Table, name: str, strays: np.ndarray) -> str:
    """List the values of a column at some rows (a mask), the most frequent first, with their rows.

    >>> from relvec.app.tables.table import as_table
    >>> table = as_table({"age": ["31", "old", "young", "old"]})
    >>> describe_strays(table, "age", np.array([False, True, True, True]))
    "'old' in rows 2 and 4, 'young' in row 3"
    """
    rows: dict[str, list[int]] = {}
    for row, label in zip(table.numbers[strays].tolist(), list_labels(table[name][strays]), strict=True):
        rows.setdefault(str(label), []).append(row)
    found = sorted(rows.items(), key=lambda item: -len(item[1]))
    shown = [(value if len(value) <= 40 else f"{value[:39]}…", places) for value, places in found[:MAX_LISTED_VALUES]]
    parts = [f"{value!r} in {_list_rows(places)}" for value, places in shown]
    more = f" and {len(found) - MAX_LISTED_VALUES} more values" if len(found) > MAX_LISTED_VALUES else ""
    return ", ".join(parts) + more


def refuse_strays(table: Table, name: str, strays: np.ndarray, expected: str, cure: str = "") -> None:
    """Raise a `TableError` that lists the cells of a column that are not as expected, if there are any."""
    if strays.any():
        found = f"{describe_strays(table, name, strays)} ({strays.sum()} of {len(table)} cells)"
        raise TableError(f"{table.source}, column {name!r}: expected {expected}, got {found}{cure}")  # fmt: skip


def _list_rows(rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    if len(rows) > MAX_LISTED_ROWS:
        return f"{len(rows)} rows ({', '.join(map(str, rows[:MAX_LISTED_ROWS]))}, ...)"
    return f"rows {', '.join(map(str, rows[:-1]))} and {rows[-1]}"
