"""What a memory limit means and leaves; freed memory, given back to the system.

The C library keeps what large arrays leave behind, in holes that arrays of other sizes do not fit. Between the parts of
a fit under a memory limit the holes are given back, so that they do not add up.
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

LEAST_MEMORY = 1e7  # bytes: less does not hold the workspace of any fit
_MOST_TAKEN = 0.6  # share of a memory limit that may go to what is as long as the rows


@cache
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL("libc.so.6").malloc_trim if sys.platform == "linux" else None
    except (OSError, AttributeError):  # another C library than glibc
        return None


def release() -> None:
    """Give freed memory back to the system, where the C library can do that."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def memory_bytes(limit: Any) -> float:
    """Bytes of a memory limit, a number or such as "4GB" or "500 MiB".

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
    if not LEAST_MEMORY <= value < np.inf:
        raise ValueError(
            f'memory_limit must be bytes, {LEAST_MEMORY / 1e6:.0f} million or more, or such as "4GB" or "500MiB", '
            f"got {limit!r}"
        )
    return value


def memory_left(limit: Any, n_rows: int, numbers: float, a_row: float = 0.0) -> float:
    """Bytes that a memory limit leaves besides so many numbers for each of the rows; a warning where that is little.

    ``a_row`` are further bytes for a row without which no search goes on.
    """
    memory, taken = memory_bytes(limit), 8.0 * n_rows * numbers
    if taken + a_row * n_rows > _MOST_TAKEN * memory:
        enough = (taken + a_row * n_rows) / _MOST_TAKEN / 1e6
        warnings.warn(
            f"memory_limit={limit!r} is less than the fit of {n_rows} rows takes for their copies and the model alone, "
            f"and will be exceeded: set it to '{np.ceil(enough):.0f}MB' or more",
            UserWarning,
            stacklevel=2,
        )
    return max(memory - taken, (1.0 - _MOST_TAKEN) * memory)
