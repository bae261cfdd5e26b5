"""Dates written as text, and how they become numbers."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

import numpy as np

from relvec.app.tables.cells import labels_of
from relvec.app.tables.table import import_optional, import_pandas, text_type

if TYPE_CHECKING:
    from pandas import Series

__all__ = ["days_since_1970", "find_date_formats", "format_in_words"]

ISO = "ISO8601"
SEPARATOR = "|"  # between the formats of a column that has several
MAX_FORMATS = 3
MIN_SHARE = 0.02  # of the cells that a further format must account for
SAMPLE = 40  # cells whose formats are guessed
MIN_SAMPLE_SHARE = 0.2  # of these that must look like dates
DATE_LIKE = r"(?=.*\d.*)(?!\d+$).{6,40}"  # a shorter text, or a number, is no date


def find_date_formats(labels: Series) -> tuple[str, np.ndarray]:
    """Find the format, or the few formats, in which most labels are dates; also a mask (n,) of those that are not.

    >>> from relvec.app.tables.table import as_column
    >>> find_date_formats(as_column(["31.01.2024", "1.2.2024", None, "soon"], "day"))[0]
    '%d.%m.%Y'
    """
    strays = labels.notna().to_numpy()
    left, chosen = labels.dropna(), list[str]()
    least = max(1.0, MIN_SHARE * len(left))
    while len(left) and len(chosen) < MAX_FORMATS:
        fits = {format: _parse(left, format).notna() for format in _candidates(left, chosen)}
        best = max(fits, key=lambda format: int(fits[format].sum()), default=None)
        if best is None or fits[best].sum() < least:
            break
        chosen.append(best)
        left = left[~fits[best]]
    return SEPARATOR.join(chosen), strays & labels.index.isin(left.index)


def _candidates(labels: Series, chosen: list[str]) -> list[str]:
    """Guess the formats of a few labels; none that swaps day and month of one that was chosen."""
    guess = import_optional("pandas.tseries.api", "reading dates").guess_datetime_format
    sample = labels.iloc[:: max(1, len(labels) // SAMPLE)]
    likely = sample[sample.str.fullmatch(DATE_LIKE)].tolist()
    if len(likely) < MIN_SAMPLE_SHARE * len(sample):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas tells which of day and month it takes for the first
        guessed = [guess(label, dayfirst=first) for first in (False, True) for label in likely]
    known = [format for format in guessed if format and re.search("%[yY]", format) and re.search("%[mbB]", format)]
    excluded = {*chosen, *map(_swap, chosen)}
    return [format for format in dict.fromkeys([ISO, *known]) if format not in excluded]


def _swap(format: str) -> str:
    """Exchange day and month in a format of numbers."""
    return format.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m") if format != ISO else ""


def _parse(labels: Series, format: str) -> Series:
    found = import_pandas().to_datetime(labels, format=format, errors="coerce", utc=True)
    return found.where(labels.str.fullmatch(DATE_LIKE)) if format == ISO else found


def other_reading(labels: Series, formats: str) -> str | None:
    """Return another format in which all labels are dates too, such as the day before the month, if there is one."""
    other = _swap(formats)
    ordered = "%d" in formats and "%m" in formats and not re.match("%Y", formats) and SEPARATOR not in formats
    return other if ordered and _parse(labels.dropna(), other).notna().all() else None


def format_in_words(formats: str) -> str:
    """Write a format for people.

    >>> format_in_words("%d.%m.%Y|ISO8601"), format_in_words("%b %Y")
    ('DD.MM.YYYY or YYYY-MM-DD', 'Jan YYYY')
    """
    words = {"%Y": "YYYY", "%y": "YY", "%m": "MM", "%d": "DD", "%H": "hh", "%M": "mm", "%S": "ss", "%b": "Jan",
             "%B": "January"}  # fmt: skip
    parts = (formats or ISO).replace(ISO, "%Y-%m-%d").split(SEPARATOR)
    return " or ".join(re.sub(r"%\w", lambda match: words.get(match[0], match[0]), part) for part in parts)


def days_since_1970(column: Series, formats: str) -> tuple[np.ndarray, np.ndarray]:
    """Return days since 1970 (n,), in UTC, NaN where missing; and a mask (n,) of cells that are no dates.

    >>> from relvec.app.tables.table import as_column
    >>> days_since_1970(as_column(["1970-01-02", "1970-01-01T12:00:00"], "when"), "ISO8601")[0].tolist()
    [1.0, 0.5]
    """
    if column.dtype.kind == "M" and column.dtype != text_type():
        found, known = column, column.notna().to_numpy()
    elif column.dtype == text_type():
        labels = labels_of(column)
        known = labels.notna().to_numpy()
        first, *others = (formats or ISO).split(SEPARATOR)
        found = _parse(labels, first)
        for format in others:
            found = found.fillna(_parse(labels, format))
        found = found.dt.tz_localize(None)
    else:
        known = column.notna().to_numpy()
        return np.full(len(column), np.nan), known
    times = found.to_numpy("datetime64[us]")
    days = np.where(np.isnat(times), np.nan, times.astype(np.int64) / 86400e6)
    return days, known & np.isnan(days)
