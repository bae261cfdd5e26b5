"""Numbers, names and counts as text: for terminals, messages and JSON."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

MAX_LISTED_NAMES = 12
MAX_DIGITS = 5  # of a value, however small its error
ROUNDING = 1e-12  # of a value: a smaller error comes from the order of sums
SMALL_ERROR = 1e-4  # a smaller one has a row of zeros before its first digit
LONG_NUMBER = re.compile(r"[+-]?\d+\.\d{8,}(e[+-]?\d+)?")  # a computed number, as text in a file


def format_cell(value: object) -> str:
    r"""Format a value for people: numbers with four digits, text on one line without control characters.

    >>> format_cell(3.14159), format_cell(12345.6), format_cell(None), format_cell("two\nlines")
    ('3.142', '12,346', '', 'two lines')
    >>> format_cell("0.8355328530048087"), format_cell("0.83550")
    ('0.8355', '0.83550')
    """
    if value is None:
        return ""
    if isinstance(value, str) and LONG_NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1e4 <= abs(float(value)) < 1e9 else f"{value:.4g}"
    return escape_controls(" ".join(str(value).split()))


def escape_controls(text: str) -> str:
    r"""Write control characters as escapes, so that no text from a file reaches a terminal as a command.

    >>> print(escape_controls("red\x1b[31m\nnext line"))
    red\x1b[31m
    next line
    """
    harmless = "\n\t\u00a0\u202f"  # ends of lines, tabs and spaces that do not break
    return "".join(c if c.isprintable() or c in harmless else c.encode("unicode_escape").decode() for c in text)


def on_terminal() -> bool:
    """Tell whether standard output is a terminal; it is None where the caller has closed it."""
    return sys.stdout is not None and sys.stdout.isatty()


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # which a spreadsheet takes for the beginning of a formula


def escape_formula(value: object) -> object:
    """Write an apostrophe before text that a spreadsheet would run as a formula; other values stay.

    >>> escape_formula("=1+2"), escape_formula("Ulm"), escape_formula(-1.5)
    ("'=1+2", 'Ulm', -1.5)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def format_with_error(value: float, error: float) -> str:
    """Format a value with its standard error, both to the second digit of the error.

    >>> format_with_error(12537.2, 2391.0), format_with_error(0.9562, 0.0203), format_with_error(3.0, 0.0)
    ('12,500 ± 2,400', '0.956 ± 0.020', '3 ± 0')

    An error that rounding alone makes is none, and a small one is written with a power of ten.

    >>> format_with_error(2.3139, 4.4e-16), format_with_error(7.5658189, 1.4e-6)
    ('2.3139 ± 0', '7.5658 ± 1.4e-06')
    """
    if error < ROUNDING * abs(value):
        return f"{format_to_error(value, error)} ± 0"
    shown = f"{error:.2g}" if 0.0 < error < SMALL_ERROR else format_to_error(error, error)
    return f"{format_to_error(value, error)} ± {shown}"


def format_range(low: float, high: float, error: float) -> str:
    """Format both ends of an interval to the second digit of a standard error.

    >>> format_range(7904.2, 17391.0, 2391.0), format_range(0.9, 1.0, 0.0203)
    ('7,900 to 17,400', '0.900 to 1.000')
    """
    return f"{format_to_error(low, error)} to {format_to_error(high, error)}"


def format_to_error(value: float, error: float) -> str:
    """Format a value to the second digit of its standard error; nothing for NaN.

    >>> format_to_error(12537.2, 2391.0), format_to_error(0.9562, 0.0203), format_to_error(float("nan"), 1.0)
    ('12,500', '0.956', '')
    >>> format_to_error(7.5658189, 1.4e-6), format_to_error(-0.3, 14.0)
    ('7.5658', '0')
    """
    if math.isnan(value):
        return ""
    if not (math.isfinite(error) and error > 0 and math.isfinite(value)):
        return format_cell(float(value))
    digits = 1 - math.floor(math.log10(error))
    if value != 0.0:
        digits = min(digits, MAX_DIGITS - 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, digits) + 0.0:,.{max(digits, 0)}f}"  # 0, not -0


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Round shares to whole percents with the sum that they have; the largest remainders are rounded up.

    >>> whole_percents([1 / 3, 1 / 3, 1 / 3]), whole_percents([0.125, 0.125, 0.75])
    ([34, 33, 33], [13, 12, 75])
    """
    percents = 100.0 * np.asarray(shares, dtype=float)
    whole = np.floor(percents + ROUNDING * 100.0).astype(int)
    up = np.argsort(whole - percents, kind="stable")[: max(0, round(float(percents.sum())) - int(whole.sum()))]
    whole[up] += 1
    return whole.tolist()


def plural(count: int, noun: str) -> str:
    """Format a count with its noun.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def list_names(names: Iterable[str], most: int = MAX_LISTED_NAMES) -> str:
    """List names in quotes, the first dozen of many.

    >>> list_names(["x", "y"]), list_names("abcd", most=2)
    ("'x', 'y'", "'a', 'b' and 2 more")
    """
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def differ_in_case(names: Collection[str]) -> list[str]:
    """Return those of the names that another one equals but for its case.

    >>> differ_in_case(["Ulm", "Bonn", "ULM"])
    ['Ulm', 'ULM']
    """
    spellings = Counter(name.casefold() for name in names)
    return sorted((name for name in names if spellings[name.casefold()] > 1), key=str.casefold)


def to_json_types(value: object) -> Any:
    """Convert a value to types that JSON has; NaN and infinities become null.

    >>> to_json_types({"a": np.array([1.0, np.nan]), "b": (np.int64(2), True)})
    {'a': [1.0, None], 'b': [2, True]}
    """
    if isinstance(value, dict):
        return {str(key): to_json_types(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return to_json_types(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json_types(item) for item in value]
    if isinstance(value, np.generic):
        return to_json_types(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str | None) else str(value)
