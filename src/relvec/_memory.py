"""Freed memory, given back to the system.

The C library keeps what large arrays leave behind, in holes that arrays of other sizes do not fit. Between the parts of
a fit under a memory limit the holes are given back, so that they do not add up.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


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
