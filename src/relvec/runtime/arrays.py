"""Arrays of other libraries than NumPy (PyTorch, CuPy, any of the array API standard): devices, copies to and fro.

Code that runs on a device asks `namespace(x)` for the functions of the array's own library, under the names of the
array API standard. NumPy arrays need nothing but NumPy; for other libraries the functions come from array-api-compat,
or from the copy of it that scipy carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

Array = Any  # an array of whichever library
RowsLike = Any  # rows as users hand them in: arrays of any library, data frames, sparse matrices, Dask, files
TargetsLike = Any  # targets likewise: numbers, labels, or lists of them
PerRow = Any  # likewise one value for each row: sample weights, groups
Collection = Any  # a data frame, series or array of Dask
Namespace = Any  # its functions, by the names of the array API standard

# where array-api-compat is found: scipy's copy has moved
_COMPAT_PACKAGES = ("array_api_compat", "scipy._external.array_api_compat", "scipy._lib.array_api_compat")


@cache
def _compat(part: str = "") -> ModuleType:
    for package in _COMPAT_PACKAGES:
        try:
            return import_module(package + part)
        except ImportError as error:
            last = error
    raise ImportError(f"arrays on a device need array-api-compat: pip install array-api-compat ({last})")


_GOLDEN, _MIX1, _MIX2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def is_device_array(x: Array) -> bool:
    """Tell whether x is an array of a library other than NumPy that follows the array API (PyTorch, CuPy, ...).

    >>> is_device_array([1.0]), is_device_array(np.ones(2))
    (False, False)
    """
    kind: type = type(x)
    return _is_device_type(kind)


@cache
def _is_device_type(kind: type) -> bool:
    module = kind.__module__.partition(".")[0]
    if module in ("numpy", "builtins", "pandas", "polars", "scipy", "dask"):
        return False
    return module in ("torch", "cupy") or hasattr(kind, "__array_namespace__")


def namespace(x: Array) -> Namespace:
    """Return the functions for arrays like x, with the names of the array API standard: NumPy itself for NumPy arrays.

    >>> namespace(np.ones(2)) is np
    True
    """
    if isinstance(x, np.ndarray):
        return np
    kind = type(x)
    if kind not in _known:
        _known[kind] = _compat().array_namespace(x)
    return _known[kind]


_known: dict[type, Namespace] = {}  # asking array-api-compat takes longer than many an operation


def refuse_masked(*arrays: Array) -> Array:
    """Return the first of some arrays or lists of rows; refuse masked values, which are no values to use."""
    for values in arrays:
        parts = values if isinstance(values, list | tuple) else (values,)
        if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
            raise ValueError(
                "a masked array with masked values was given: drop those rows, or fill them with values of your "
                "choice (numpy.ma.MaskedArray.filled)"
            )
    return arrays[0]


def to_host(x: Array) -> np.ndarray:
    """Return X as a NumPy array, copied from its device where it has one; anything else is returned unchanged.

    An array with masked values is refused.

    >>> to_host(np.ones(2))
    array([1., 1.])
    """
    if not is_device_array(x):
        return refuse_masked(x)
    if hasattr(x, "detach"):  # PyTorch
        return x.detach().cpu().numpy()
    if type(x).__module__.startswith("cupy"):
        return x.get()
    try:
        return np.from_dlpack(x, device="cpu", copy=True)
    except (BufferError, TypeError, ValueError):
        return np.asarray(x)


def like(x: Array, values: Array) -> Array:
    """Return a host array of numbers in the library, on the device and of the type of x.

    >>> like(np.ones(2), [1, 2])
    array([1., 2.])
    """
    if isinstance(x, np.ndarray):
        return np.asarray(values, dtype=x.dtype)
    return namespace(x).asarray(_writeable(values), dtype=x.dtype, device=_raw_device(x))


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    """Return the rows (or columns, for axis 1) of x with the given indices, which are on the host."""
    if isinstance(x, np.ndarray):
        return x[indices] if axis == 0 else x[:, indices]
    xp = namespace(x)
    chosen = xp.asarray(_writeable(np.asarray(indices, dtype=np.int64)), dtype=xp.int64, device=_raw_device(x))
    return xp.take(x, chosen, axis=axis)


def dots(x: Array, y: Array, axis: int = 1) -> Array:
    """Return the sums of the products of two arrays (n, m) along an axis.

    >>> dots(np.eye(2), np.ones((2, 2)))
    array([1., 1.])
    """
    if isinstance(x, np.ndarray):
        return np.einsum("ij,ij->j" if axis == 0 else "ij,ij->i", x, y)
    return namespace(x).sum(x * y, axis=axis)


def squares(x: Array, axis: int) -> Array:
    """Return the sums of the squares of an array (n, m) along an axis."""
    return dots(x, x, axis)


def add_diagonal(x: Array, values: Array) -> Array:
    """Return a new matrix (n, n) with a number, or numbers (n,), added to its diagonal.

    >>> add_diagonal(np.zeros((2, 2)), 3.0).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    if isinstance(x, np.ndarray):
        x = x.copy()
        x.flat[:: len(x) + 1] += values
        return x
    eye = namespace(x).eye(x.shape[0], dtype=x.dtype, device=_raw_device(x))
    return x + eye * (float(values) if np.ndim(values) == 0 else like(x, values)[None, :])


def overwrite(name: str, x: Array) -> Array:
    """Return the elementwise function of that name of x, written over x in NumPy.

    >>> overwrite("sqrt", np.array([4.0, 9.0]))
    array([2., 3.])
    """
    return getattr(np, name)(x, out=x) if isinstance(x, np.ndarray) else getattr(namespace(x), name)(x)


def _writeable(values: Array) -> np.ndarray:
    """Return a contiguous host array that may be written: PyTorch warns of others when it shares their memory."""
    values = np.ascontiguousarray(values)
    return values if values.flags.writeable else values.copy()


def _raw_device(x: Array) -> object:
    return _compat().device(x)


@dataclass(frozen=True)
class Device:
    """A library, one of its devices, and the floating type used there: float64 where the device has it."""

    xp: Namespace
    device: object
    dtype: object

    @property
    def name(self) -> str:
        """Library and device, for messages."""
        return f"{self.xp.__name__.rpartition('array_api_compat.')[2]}:{self.device}"

    def to_device(self, values: Array) -> Array:
        """Return the numbers as an array of floats on the device."""
        if is_device_array(values) and namespace(values) is not self.xp:
            values = to_host(values)
        if not is_device_array(values):
            values = _writeable(values)
        elif hasattr(values, "detach"):
            values = values.detach()
        return self.xp.asarray(values, dtype=self.dtype, device=self.device)

    def zeros(self, *shape: int) -> Array:
        """Return zeros on the device."""
        return self.xp.zeros(shape, dtype=self.dtype, device=self.device)


def device_of(x: Array) -> Device:
    """Return the device of an array of another library."""
    xp, device = namespace(x), _raw_device(x)
    return Device(xp, device, _float_type(xp, device))


def _float_type(xp: Namespace, device: object) -> object:
    """Return float64, or float32 on devices without it."""
    try:
        xp.zeros(1, dtype=xp.float64, device=device)
    except (TypeError, ValueError, RuntimeError):
        return xp.float32
    return xp.float64


def row_slices(n: int, width: int, max_numbers: int = 2**25) -> Iterator[slice]:
    """Return slices of n rows, each of at most ``max_numbers`` numbers when a row has ``width`` of them.

    >>> [(piece.start, piece.stop) for piece in row_slices(5, 2, max_numbers=4)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, max_numbers // max(width, 1))
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def array_slices(x: Array, width: int, host_numbers: int) -> Iterator[slice]:
    """Return `row_slices` of an array, one at least: of so many numbers on the host, of many more on a device."""
    n = max(x.shape[0], 1)
    return row_slices(n, width, host_numbers) if isinstance(x, np.ndarray) else row_slices(n, width)


def unique_rows(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct rows of X (n, d) in lexicographic order, where each first occurs, and the place of each row (n,).

    >>> [part.tolist() for part in unique_rows(np.array([[2.0], [1.0], [2.0]]))]
    [[[1.0], [2.0]], [1, 0], [1, 0, 1]]
    """
    order = np.argsort(X[:, 0], kind="stable") if X.shape[1] else np.arange(len(X))
    first = X[order[1:], :1] > X[order[:-1], :1]
    if not (first.size and first.all()):  # the other columns decide too
        order = np.lexsort(X.T[::-1])
    new, row_of = starts_of_runs(X[order]), np.empty(len(X), dtype=np.intp)
    row_of[order] = np.cumsum(new) - 1
    return X[order[new]], order[new], row_of


def starts_of_runs(X: np.ndarray) -> np.ndarray:
    """Return which rows of X (n, d) differ from the one before: the first of each run of equal rows (n,).

    >>> starts_of_runs(np.array([[1.0], [1.0], [2.0]])).tolist()
    [True, False, True]
    """
    new = np.ones(len(X), dtype=bool)
    new[1:] = (X[1:] != X[:-1]).any(axis=1)
    return new


def hash_rows(X: np.ndarray) -> np.ndarray:
    """Return a number of 64 bits for each row of X (n, q), as good as random but decided by the row's content alone.

    The rows with the lowest ones are an even draw that no order of the rows can change (splitmix64 a column).

    >>> one, two, other = hash_rows(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])).tolist()
    >>> one == two, one == other
    (True, False)
    """
    h = np.full(len(X), _GOLDEN)
    for column in (X + 0.0).T:  # -0.0 becomes 0.0
        h = (h ^ np.ascontiguousarray(column, dtype=float).view(np.uint64)) * _MIX1 + _GOLDEN
        h = (h ^ (h >> np.uint64(30))) * _MIX1
        h = (h ^ (h >> np.uint64(27))) * _MIX2
        h = h ^ (h >> np.uint64(31))
    return h


class Scratch:
    """The large arrays of a calculation that is repeated: in the next round they are the same again.

    Memory fresh from the system costs more than what is computed in it. An array may be used until the next round
    begins. Other libraries than NumPy keep their memory themselves: their arrays are always new.

    >>> scratch = Scratch()
    >>> first = scratch.copy(np.ones(3))
    >>> scratch.begin()
    >>> scratch.copy(np.zeros(3)) is first
    True
    """

    def __init__(self) -> None:
        self._held: list[np.ndarray] = []
        self._used = 0

    def begin(self) -> None:
        """Begin the next round."""
        self._used = 0

    def empty(self, *shape: int) -> np.ndarray:
        """Return an array of that shape whose numbers are still to be written."""
        at, self._used = self._used, self._used + 1
        if at == len(self._held):
            self._held.append(np.empty(shape))
        elif self._held[at].shape != shape:
            self._held[at] = np.empty(shape)
        return self._held[at]

    def copy(self, x: Array) -> Array:
        """Return a copy of x that may be overwritten."""
        if not isinstance(x, np.ndarray):
            return x + 0.0
        out = self.empty(*x.shape)
        np.copyto(out, x)
        return out
