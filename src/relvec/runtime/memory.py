"""Memory limits, and the return of freed memory to the system.

The C library keeps the memory of freed arrays in holes that arrays of other sizes do not fit. Between the parts of a
fit under a memory limit the holes are returned to the system, so that they do not add up.
"""

from __future__ import annotations

import ctypes
import numbers
import re
import sys
import warnings
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

MIN_MEMORY_BYTES = 1e7  # less does not hold the workspace of any fit
_MAX_ROW_SHARE = 0.6  # of a memory limit for arrays as long as the rows; the rest is for the search


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL("libc.so.6").malloc_trim if sys.platform == "linux" else None
    except (OSError, AttributeError):  # another C library than glibc
        return None


def release_memory() -> None:
    """Return freed memory to the system, where the C library can do that."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def memory_bytes(limit: Any) -> float:
    """Bytes of a memory limit: a number, or text such as "4GB" or "500 MiB".

    >>> memory_bytes("4GB"), memory_bytes(50e6), memory_bytes("1.5 GiB")
    (4000000000.0, 50000000.0, 1610612736.0)
    """
    said = limit if isinstance(limit, str) else ""
    found, value = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", said, re.IGNORECASE), np.nan
    if found is not None:
        power = " kmgt".index(found[2].lower() or " ")
        with suppress(ValueError):
            value = float(found[1]) * (1024.0 if found[3] else 1000.0) ** power
    elif isinstance(limit, numbers.Real):
        value = float(limit)
    if not MIN_MEMORY_BYTES <= value < np.inf:
        raise ValueError(
            f'memory_limit must be bytes, {MIN_MEMORY_BYTES / 1e6:.0f} million or more, or such as "4GB" or "500MiB", '
            f"got {limit!r}"
        )
    return value


def memory_left(limit: Any, n_rows: int, numbers_per_row: float, bytes_per_row: float = 0.0) -> float:
    """Bytes of a memory limit that remain beside ``numbers_per_row`` doubles for each row; warns where that is little.

    ``bytes_per_row`` are further bytes that every search needs for a row.
    """
    memory, taken = memory_bytes(limit), 8.0 * n_rows * numbers_per_row
    if taken + bytes_per_row * n_rows > _MAX_ROW_SHARE * memory:
        enough = (taken + bytes_per_row * n_rows) / _MAX_ROW_SHARE / 1e6
        warnings.warn(
            f"memory_limit={limit!r} is less than the copies of {n_rows} rows and the model need by themselves, and "
            f"will be exceeded: set it to '{np.ceil(enough):.0f}MB' or more",
            UserWarning,
            stacklevel=2,
        )
    return max(memory - taken, (1.0 - _MAX_ROW_SHARE) * memory)
