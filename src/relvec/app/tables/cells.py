"""Cells as labels and as numbers: words for missing values, decimal commas, thousands, currencies, units and times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from relvec.app.tables.table import Table, TableError, text_array

__all__ = ["NumberStyle", "count_distinct", "describe_strays", "find_number_style", "is_missing", "labels_of",
           "mark_missing", "parse_numbers"]  # fmt: skip

MISSING = {"", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "nil", "?", "-", "--", ".", "missing", "<na>"}
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+")
QUANTITY = re.compile(r"([+-]?[\d.,]*\d)\s*(°?[^\W\d_²³][^\s,;]{0,11}|[°'\"‰])")
CURRENCIES = "$€£¥% \u00a0"
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
    """

    unit: str = ""
    decimal_comma: bool = False

    def parse(self, label: str) -> float:
        """The number in a cell; a ValueError where there is none."""
        if "_" in label:  # which Python takes for a separator of digits
            raise ValueError(label)
        plain = label.strip(CURRENCIES)
        if self.unit == CLOCK and (time := TIME.fullmatch(plain)):
            return int(time[1]) + int(time[2]) / 60 + float(time[3] or 0) / 3600
        if self.unit and plain.endswith(self.unit):
            plain = plain[: -len(self.unit)].rstrip()
        if self.decimal_comma and "," in plain:
            plain = plain.replace(".", "").replace(",", ".")
        elif THOUSANDS.fullmatch(plain):
            plain = plain.replace(",", "")
        return float(plain)


PLAIN = NumberStyle()


def labels_of(column: np.ndarray) -> list[str | None]:
    """The cells as categories, None where missing; whole numbers without a decimal point.

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


def is_missing(column: np.ndarray) -> np.ndarray:
    """Mask (n,) of the missing cells, those without a label.

    >>> import numpy as np
    >>> is_missing(np.array([1.0, np.nan])).tolist(), is_missing(np.array(["a", "N/A"], dtype=object)).tolist()
    ([False, True], [False, True])
    """
    if column.dtype.kind != "O":
        return column != column  # NaN and NaT
    return np.array([label is None for label in labels_of(column)])


def count_distinct(column: np.ndarray) -> int:
    """How many different labels the cells have, missing ones aside; labels of numbers need not be made.

    >>> import numpy as np
    >>> count_distinct(np.array([1.0, 2.5, 1.0, np.nan]))
    2
    """
    if column.dtype.kind != "O":
        return len(np.unique(column[~is_missing(column)]))
    return len({label for label in labels_of(column) if label is not None})


def mark_missing(column: np.ndarray, words: Collection[str]) -> np.ndarray:
    """The column with the cells that hold one of these words, or an equal number, missing.

    >>> import numpy as np
    >>> mark_missing(np.array([1.0, -999.0]), ["-999"])
    array([ 1., nan])
    """
    if not words:
        return column
    known = {word.strip().lower() for word in words}
    if column.dtype.kind in "iuf":
        values = {number for word in known if (number := _as_float(word)) is not None}
        hit = np.isin(column, list(values)) if values else np.zeros(len(column), dtype=bool)
        return np.where(hit, np.nan, column.astype(float)) if hit.any() else column
    if column.dtype.kind != "O":
        return column
    return text_array([None if cell is None or str(cell).strip().lower() in known else cell for cell in column])


def _is_number(label: str) -> bool:
    return _as_float(label) is not None or THOUSANDS.fullmatch(label) is not None


def _as_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def parse_numbers(column: np.ndarray, style: NumberStyle = PLAIN) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (n,), NaN where missing, and a mask (n,) of the cells that are neither numbers nor missing.

    >>> import numpy as np
    >>> values, strays = parse_numbers(np.array(["1,200", "$ 3.5", None, "many"], dtype=object))
    >>> values.tolist(), strays.tolist()
    ([1200.0, 3.5, nan, nan], [False, False, False, True])
    """
    if column.dtype.kind in "biuf":
        return column.astype(float), np.zeros(len(column), dtype=bool)
    values, strays = np.full(len(column), np.nan), np.zeros(len(column), dtype=bool)
    if column.dtype.kind == "M":
        return values, ~strays
    for row, label in enumerate(labels_of(column)):
        if label is None:
            continue
        try:
            values[row] = style.parse(label)
        except ValueError:
            strays[row] = True
    return values, strays


def find_number_style(column: np.ndarray) -> NumberStyle:
    """The style in which most cells of a column are numbers; decimal points and no unit where it makes no difference.

    >>> import numpy as np
    >>> find_number_style(np.array(["154 PS", "90 PS", "75"], dtype=object))
    NumberStyle(unit='PS', decimal_comma=False)
    """
    if column.dtype.kind != "O":
        return PLAIN
    labels = [label.strip(CURRENCIES) for label in labels_of(column) if label is not None]
    if sum(TIME.fullmatch(label) is not None for label in labels) > len(labels) / 2:
        return NumberStyle(CLOCK)
    matches = [QUANTITY.fullmatch(label) for label in labels if not _is_number(label)]
    units = Counter(match[2] for match in matches if match)
    count = units.total() + sum(map(_is_number, labels))
    unit, carried = units.most_common(1)[0] if units else ("", 0)
    if carried < max(MIN_UNIT_AGREEMENT * units.total(), MIN_UNIT_SHARE * count):
        unit = ""
    numbers = [label[: -len(unit)].rstrip() if unit and label.endswith(unit) else label for label in labels]
    # 1,234 may be a thousand: only a comma that cannot separate thousands shows that commas are decimal.
    comma = any(DECIMAL_COMMA.fullmatch(n) and not THOUSANDS.fullmatch(n) for n in numbers)
    comma = comma and not any(THOUSANDS.fullmatch(n) and "." in n for n in numbers)
    return NumberStyle(unit, comma)


def describe_strays(table: Table, name: str, strays: np.ndarray) -> str:
    """The values of a column at some rows (a mask), the most frequent first, with their counts and rows.

    >>> import numpy as np
    >>> table = Table({"age": np.array(["31", "old", "young", "old"], dtype=object)})
    >>> describe_strays(table, "age", np.array([False, True, True, True]))
    "'old' in rows 2 and 4, 'young' in row 3"
    """
    rows: dict[str, list[int]] = {}
    labels = labels_of(table[name])
    for row in np.flatnonzero(strays).tolist():
        rows.setdefault(str(labels[row]), []).append(row)
    found = sorted(rows.items(), key=lambda item: -len(item[1]))
    shown = [(value if len(value) <= 40 else f"{value[:39]}…", places) for value, places in found[:MAX_LISTED_VALUES]]
    parts = [f"{value!r} in {_list_rows(table, places)}" for value, places in shown]
    more = f" and {len(found) - MAX_LISTED_VALUES} more values" if len(found) > MAX_LISTED_VALUES else ""
    return ", ".join(parts) + more


def refuse_strays(table: Table, name: str, strays: np.ndarray, expected: str, cure: str = "") -> None:
    """Raise a `TableError` that lists the cells of a column that are not as expected, if there are any."""
    if strays.any():
        found = f"{describe_strays(table, name, strays)} ({strays.sum()} of {len(table)} cells)"
        raise TableError(f"{table.source}, column {name!r}: expected {expected}, got {found}{cure}")  # fmt: skip


def _list_rows(table: Table, rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {table.row_and_line(rows[0])}"
    if len(rows) > MAX_LISTED_ROWS:
        return f"{len(rows)} rows ({', '.join(str(table.numbers[row]) for row in rows[:MAX_LISTED_ROWS])}, ...)"
    numbers = [str(table.numbers[row]) for row in rows]
    return f"rows {', '.join(numbers[:-1])} and {numbers[-1]}"
