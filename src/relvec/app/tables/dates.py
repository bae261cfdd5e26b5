"""Dates written as text, and how they become numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np

from relvec.app.tables.cells import labels_of

__all__ = ["days_since_1970", "find_date_formats", "format_in_words"]

DATE_FORMATS = (
    "%Y/%m/%d", "%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S",
    "%m/%d/%y", "%d/%m/%y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y",
    "%b %Y", "%B %Y",
)  # fmt: skip
ISO = ""  # the format of ISO 8601, which datetime reads itself
# Formats that many dates fit as well, with another meaning.
AMBIGUOUS = {"%m/%d/%Y": "%d/%m/%Y", "%m/%d/%y": "%d/%m/%y", "%m/%d/%Y %H:%M": "%d/%m/%Y %H:%M",
             "%m/%d/%Y %H:%M:%S": "%d/%m/%Y %H:%M:%S", "%d-%m-%Y": "%m-%d-%Y"}  # fmt: skip
SEPARATOR = "|"  # between the formats of a column that has several
MAX_FORMATS = 3
MIN_SHARE = 0.02  # of the cells that a further format must account for
MIN_SAMPLE, MIN_SAMPLE_SHARE = 20, 0.2  # cells that are tried first, and the share of them that a format must fit


def find_date_formats(labels: list[str | None]) -> tuple[str, list[int]]:
    """The format, or the few formats, in which most cells are dates, and the rows of the cells that are not.

    >>> find_date_formats(["31.01.2024", "1.2.2024", None, "soon"])
    ('%d.%m.%Y', [3])
    >>> find_date_formats(["31.01.2024", "2024-02-01"] * 10)
    ('|%d.%m.%Y', [])
    """
    left = [(row, label) for row, label in enumerate(labels) if label is not None]
    present, chosen = len(left), list[str]()
    while left and len(chosen) < MAX_FORMATS:
        best = min(_candidates(left, chosen), key=lambda found: len(found[1]), default=None)
        if best is None or len(left) - len(best[1]) < max(1.0, MIN_SHARE * present):
            break
        chosen.append(best[0])
        left = best[1]
    return SEPARATOR.join(sorted(chosen)), [row for row, _ in left]


def _candidates(cells: list[tuple[int, str]], chosen: list[str]) -> Iterable[tuple[str, list[tuple[int, str]]]]:
    """Formats that fit many of the cells, and the cells that they do not fit; the first alone if it fits all."""
    sample = cells[: max(MIN_SAMPLE, len(cells) // 10)]
    excluded = {*chosen, *(other for pair in AMBIGUOUS.items() for other in pair if set(pair) & set(chosen))}
    for format in (ISO, *DATE_FORMATS):
        if format in excluded or sum(fits(label, format) for _, label in sample) < MIN_SAMPLE_SHARE * len(sample):
            continue
        unfit = [(row, label) for row, label in cells if not fits(label, format)]
        yield format, unfit
        if not unfit:
            return


def fits(label: str, formats: str) -> bool:
    """Whether a text is a date in one of the formats."""
    try:
        parse_date(label, formats)
    except ValueError:
        return False
    return True


def parse_date(label: str, formats: str) -> datetime:
    """The date in a text, by the first of the formats that fits; a ValueError where none does."""
    for format in formats.split(SEPARATOR):
        try:
            if format != ISO:
                return datetime.strptime(label, format)
            if len(label) >= 8 and label[:4].isdigit():  # a shorter number is no date
                return datetime.fromisoformat(label)
        except ValueError:
            continue
    raise ValueError(label)


def other_reading(labels: list[str | None], formats: str) -> str | None:
    """Another format in which all cells are dates too, such as the day before the month; None where there is none."""
    other = AMBIGUOUS.get(formats)
    return other if other is not None and all(label is None or fits(label, other) for label in labels) else None


def format_in_words(formats: str) -> str:
    """A format for people.

    >>> format_in_words("%d.%m.%Y|"), format_in_words("%b %Y")
    ('DD.MM.YYYY or YYYY-MM-DD', 'Jan YYYY')
    """
    words = {"%Y": "YYYY", "%y": "YY", "%m": "MM", "%d": "DD", "%H": "hh", "%M": "mm", "%S": "ss", "%b": "Jan",
             "%B": "January"}  # fmt: skip
    parts = formats.split(SEPARATOR)
    return " or ".join(re.sub(r"%\w", lambda match: words[match[0]], part) or "YYYY-MM-DD" for part in parts)


def days_since_1970(cells: np.ndarray, formats: str) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970 (n,), NaN where missing, times with a zone in UTC; and a mask (n,) of cells that are no dates.

    >>> import numpy as np
    >>> days_since_1970(np.array(["1970-01-02", "1970-01-01T12:00:00"], dtype=object), "")[0].tolist()
    [1.0, 0.5]
    """
    if cells.dtype.kind == "M":
        days = cells.astype("datetime64[us]").astype(np.int64) / 86400e6
        return np.where(np.isnat(cells), np.nan, days), np.zeros(len(cells), dtype=bool)
    days, strays = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    for row, label in enumerate(labels_of(cells)):
        if label is None:
            continue
        try:
            when = parse_date(label, formats)
        except ValueError:
            strays[row] = True
            continue
        days[row] = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() / 86400
    return days, strays
