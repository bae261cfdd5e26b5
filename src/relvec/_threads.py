"""BLAS threads: one for the small algebra of a search, all for its long products.

Matrices of forty rows lose more to the hand-over between threads than they gain, most of all where cores are shared.
The limit is a setting of the whole process, so overlapping fits in several threads share one: the first to
enter sets it, the last to leave restores what was there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

_LONG = 1e8  # multiplications: a product of more is worth the hand-over

_lock = threading.Lock()
_inside = 0
_restore: Any = None


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, every BLAS call runs on one thread; what was set before returns when the last user has left."""
    global _inside, _restore
    with _lock:
        if _inside == 0:
            _restore = _controller().limit(limits=1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _restore is not None:
                _restore.restore_original_limits()
                _restore = None


def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A B, on all threads where it is long, also within `one_thread`; there only while no other fit runs."""
    global _restore
    if A.shape[0] * A.shape[1] * B.shape[1] < _LONG:
        return A @ B
    with _lock:
        lifted = _inside == 1 and _restore is not None
        if lifted:
            _restore.restore_original_limits()
    try:
        return A @ B
    finally:
        if lifted:
            with _lock:
                if _inside:
                    _restore = _controller().limit(limits=1)
