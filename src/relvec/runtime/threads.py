"""BLAS threads: one for the small algebra of a search, all for its long products.

Matrices of forty rows lose more to the synchronisation of threads than they gain, most of all where cores are shared.
The limit is a setting of the whole process, so fits that overlap in several threads share it: the first to enter sets
it, the last to leave restores the earlier setting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

_MIN_PARALLEL_MULTIPLICATIONS = 1e8  # from which a product gains more than the synchronisation of threads costs

_lock = threading.Lock()
_inside = 0
_restore: Any = None


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """Run every BLAS call within on one thread; the earlier setting returns when the last user has left."""
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


def map_in_threads(function: Callable, items: Sequence, workers: int, stop: threading.Event) -> list:
    """Results of ``function(item)`` in order, computed by ``workers`` threads.

    An exception in the caller sets ``stop`` and is raised at once: the function polls it to end its threads.
    """
    if min(workers, len(items)) < 2:
        return [function(item) for item in items]
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(copy_context().run, function, item) for item in items]
        for future in wait(futures, return_when=FIRST_EXCEPTION).done:
            future.result()
        return [future.result() for future in futures]
    except BaseException:
        stop.set()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def n_threads() -> int:
    """Threads BLAS may use outside `one_thread`; 1 where another fit runs beside this one."""
    with _lock:
        if _inside > 1:
            return 1
        info = _controller().info() if _restore is None else _restore._original_info
        return max((pool["num_threads"] for pool in info), default=1)


@contextmanager
def all_threads(multiplications: float) -> Iterator[None]:
    """Run BLAS on all threads within if the work is long, even inside `one_thread`, unless another fit runs."""
    global _restore
    with _lock:
        lifted = multiplications >= _MIN_PARALLEL_MULTIPLICATIONS and _inside == 1 and _restore is not None
        if lifted:
            _restore.restore_original_limits()
    try:
        yield
    finally:
        if lifted:
            with _lock:
                if _inside:
                    _restore = _controller().limit(limits=1)


def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A B, on all threads if it is long."""
    multiplications = A.shape[0] * A.shape[1] * B.shape[1]
    if multiplications < _MIN_PARALLEL_MULTIPLICATIONS:
        return A @ B
    with all_threads(multiplications):
        return A @ B
