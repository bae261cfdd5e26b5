"""The machine: limits of memory, and the threads of BLAS.

The C library keeps the memory of freed arrays in holes that arrays of other sizes do not fit. Between the parts of a
fit under a memory limit the holes are returned to the system, so that they do not add up.

BLAS has one thread for the small algebra of a search and all for its long products: matrices of forty rows lose more
to the synchronisation of threads than they gain, most of all where cores are shared. The limit is a setting of the
whole process, so fits that overlap in several threads share it: the first to enter sets it, the last to leave restores
the earlier setting.
"""

from __future__ import annotations

import ctypes
import numbers
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController

from relvec._version import __version__

if TYPE_CHECKING:
    from threadpoolctl import LibController

MIN_MEMORY_BYTES = 1e7  # less does not hold the workspace of any fit
_MAX_ROW_SHARE = 0.6  # of a memory limit for arrays as long as the rows; the rest is for the search
_ARRAYS_SHARE, _LIBRARY_BYTES = 0.9, 5e6  # of it for all arrays of a process; what BLAS and the C library take besides
# From which a product gains more than the synchronisation of threads costs, also where the cores are busy: there every
# product on several threads waits for a slice of time (`benchmarks/threads.py`).
_MIN_PARALLEL_MULTIPLICATIONS = 1e9

_lock = threading.Lock()
_inside = 0
_earlier: list[tuple[LibController, int]] = []  # libraries of BLAS with the threads that they had, while they have one
_AS_IT_IS = nullcontext()


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL("libc.so.6").malloc_trim if sys.platform == "linux" else None
    except (OSError, AttributeError):  # another C library than glibc
        return None


def release_memory() -> None:
    """Return freed memory to the system, where the C library can do that."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def memory_bytes(limit: object) -> float:
    """Return the bytes of a memory limit: a number, or text such as "4GB" or "500 MiB".

    >>> memory_bytes("4GB"), memory_bytes(50e6), memory_bytes("1.5 GiB")
    (4000000000.0, 50000000.0, 1610612736.0)
    """
    value = np.nan
    if isinstance(limit, str):
        value = _bytes_of_text(limit)
    elif isinstance(limit, numbers.Real):
        value = float(limit)
    if not MIN_MEMORY_BYTES <= value < np.inf:
        raise ValueError(
            f'memory_limit must be bytes, {MIN_MEMORY_BYTES / 1e6:.0f} million or more, or such as "4GB" or "500MiB", '
            f"got {limit!r}"
        )
    return value


@cache
def _bytes_of_text(limit: str) -> float:
    """Return the bytes of a number with a unit; nan where it is none."""
    found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", limit, re.IGNORECASE)
    if found is not None:
        with suppress(ValueError):
            return float(found[1]) * (1024.0 if found[3] else 1000.0) ** " kmgt".index(found[2].lower() or " ")
    return np.nan


def memory_left(limit: object, n_rows: int, numbers_per_row: float, bytes_per_row: float = 0.0) -> float:
    """Return the bytes of a limit that remain beside ``numbers_per_row`` doubles for each row; refuse too few.

    ``bytes_per_row`` are further bytes that every search needs for a row.
    """
    taken = 8.0 * n_rows * numbers_per_row
    return _at_least(limit, n_rows, (taken + bytes_per_row * n_rows) / _MAX_ROW_SHARE) - taken


def room_for_vectors(limit: object, n_rows: int, numbers_per_row: float, bytes_per_row: float) -> float:
    """Return bytes of a limit for the matrices of a process; numbers and least bytes of a row as in `memory_left`."""
    taken = 8.0 * n_rows * numbers_per_row + _LIBRARY_BYTES
    return _ARRAYS_SHARE * _at_least(limit, n_rows, (taken + bytes_per_row * n_rows) / _ARRAYS_SHARE) - taken


def _at_least(limit: object, n_rows: int, enough: float) -> float:
    """Return the bytes of a memory limit that has to be enough for so many rows."""
    if (memory := memory_bytes(limit)) < enough:
        raise ValueError(
            f"memory_limit={limit!r} is less than the copies of {n_rows} rows and the model need by themselves: "
            f"set it to '{np.ceil(enough / 1e6):.0f}MB' or more"
        )
    return memory


def most_vectors(room: float, bytes_each: float, bytes_of_a_pair: float) -> int:
    """Return the most vectors whose arrays fit into so many bytes.

    >>> most_vectors(1e6, 8000.0, 20.0)
    100
    """
    half = 0.5 * bytes_each / bytes_of_a_pair
    return int(np.sqrt(half**2 + max(room, 0.0) / bytes_of_a_pair) - half + 1e-9)


@cache
def _libraries() -> list[LibController]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_threads(one: bool) -> None:
    """Give BLAS one thread or those it had. threadpoolctl's own limits look up much more than their number."""
    for library, threads in _earlier:
        library.set_num_threads(1 if one else threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run every BLAS call within on one thread; the earlier setting returns when the last user has left."""
    global _inside, _earlier
    with _lock:
        if _inside == 0:
            threads = [(library, library.num_threads) for library in _libraries()]
            _earlier = [(library, number) for library, number in threads if number != 1]
            _set_threads(one=True)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside = max(_inside - 1, 0)  # 0 in a child that was forked here
            if _inside == 0:
                _set_threads(one=False)
                _earlier = []


def _begin_again() -> None:
    """Forget the fits of other threads in a forked child, which has none of them, and the locks that they held.

    If one of them ran, BLAS keeps its single thread in the child: asking it for more there may wait for ever.
    """
    global _lock, _inside, _earlier
    _lock, _inside, _earlier = threading.Lock(), 0, []
    for name, module in list(sys.modules.items()):
        for kind in vars(module).values() if name.startswith("relvec.") else ():
            for value in vars(kind).values() if isinstance(kind, type) else ():
                if isinstance(value, cached_property) and hasattr(value, "lock"):  # until Python 3.11
                    value.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_again)


def map_in_threads(function: Callable, items: Sequence, workers: int, stop: threading.Event) -> list:
    """Return the results of ``function(item)`` in order, computed by ``workers`` threads.

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
    """Return how many threads BLAS may use outside `one_thread`; 1 where another fit runs beside this one."""
    with _lock:
        if _inside > 1:
            return 1
        threads = [before for _, before in _earlier] or [library.num_threads for library in _libraries()]
        return max(threads, default=1)


def all_threads(multiplications: float) -> AbstractContextManager[None]:
    """Run BLAS on all threads within if the work is long, even inside `one_thread`, unless another fit runs."""
    return _lift_limit() if multiplications >= _MIN_PARALLEL_MULTIPLICATIONS else _AS_IT_IS


@contextmanager
def _lift_limit() -> Iterator[None]:
    with _lock:
        lifted = _inside == 1
        if lifted:
            _set_threads(one=False)
    try:
        yield
    finally:
        if lifted:
            with _lock:
                if _inside:
                    _set_threads(one=True)


def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return A B, on all threads if it is long."""
    multiplications = A.shape[0] * A.shape[1] * B.shape[1]
    if multiplications < _MIN_PARALLEL_MULTIPLICATIONS:
        return A @ B
    with all_threads(multiplications):
        return A @ B


_REQUIRED = ("numpy", "scipy", "scikit-learn", "threadpoolctl")
_OPTIONAL = ("pandas", "polars", "pyarrow", "matplotlib", "tqdm", "dask", "distributed", "torch", "cupy-cuda12x",
             "array-api-compat", "onnx", "onnxruntime", "skl2onnx", "h5py", "zarr")  # fmt: skip


def show_versions() -> None:
    """Print versions of relvec, its dependencies and the system, and how the engine was compiled.

    Examples
    --------
    >>> import relvec
    >>> relvec.show_versions()
    relvec            ...
    """
    found = {
        "relvec": __version__,
        "engine": _describe_engine(),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
    }
    found |= {name: _installed_version(name) or "not installed" for name in _REQUIRED}
    found |= {name: number for name in _OPTIONAL if (number := _installed_version(name))}
    print("\n".join(f"{name:<17} {value}" for name, value in found.items()))


def _describe_engine() -> str:
    spec = find_spec("relvec.solvers._native.gaussian")
    if spec is None or spec.origin is None:
        return "missing: the package was not built; install it again with pip, where a C compiler is available"
    return f"compiled ({Path(spec.origin).name})"


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
