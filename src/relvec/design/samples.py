"""N rows in blocks, in memory, in files or on a device: sums over them, their statistics, and a draw by content."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from mmap import mmap
from typing import Any, NamedTuple

import numpy as np

from relvec.design.base import Combine, Value
from relvec.runtime.arrays import Array, RowsLike, hash_rows
from relvec.runtime.machine import n_threads, one_thread

BLOCK_ROWS = 4096  # rows read at once, unless memory asks for fewer
_DEVICE_BLOCK_ROWS = 8192  # least rows of a device worked on at once
_MANTISSA = 2.0**33  # digits that count where rows are compared


class Block(NamedTuple):
    """Rows ``start`` to ``start + b`` of the samples: X (b, d), targets (b, q), weights (b,), all float64."""

    start: int
    X: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    @property
    def root(self) -> np.ndarray:
        """Roots of the weights as a column (b, 1): what multiplies the rows of a design."""
        return np.sqrt(self.weights)[:, None]


class Samples(ABC):
    """N rows with targets and weights, read in blocks."""

    n_rows: int
    n_features: int
    n_targets: int
    n_blocks: int = 0  # of a pass; 0 where they are not passed one after the other in this process

    @abstractmethod
    def reduce(self, function: Callable[[Block], Value], combine: Combine[Value]) -> Value:
        """Combine the function's values on all blocks, in the order of the blocks; both must be pure."""

    @property
    def held(self) -> Block | None:
        """All rows as one block where they are arrays in memory, else None."""
        return None

    def original_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbers, among all rows given, of rows (k,) among those of the blocks."""
        return rows

    def blocked(self, rows: int) -> Samples:
        """Return the same samples in blocks of about so many rows, where that can be chosen."""
        return self


class LocalSamples(Samples):
    """Samples on this machine: X (N, d) in memory or anything with a shape that is read by slicing.

    Parameters
    ----------
    X : (N, d) array, `numpy.memmap`, Zarr or HDF5 array.
    targets : (N, q) or None for no targets.
    weights : (N,) or None for ones.
    block_rows : rows of a block.

    Examples
    --------
    >>> import numpy as np
    >>> samples = LocalSamples(np.arange(10.0)[:, None], block_rows=4)
    >>> float(samples.reduce(lambda block: block.X.sum(), lambda a, b: a + b))
    45.0
    """

    def __init__(
        self,
        X: RowsLike,
        targets: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        block_rows: int = BLOCK_ROWS,
    ):
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        self._X, self.n_targets = X, 0 if targets is None else targets.shape[1]
        self.targets = np.zeros((self.n_rows, 0)) if targets is None else targets
        self.weights = np.ones(self.n_rows) if weights is None else weights
        self.block_rows = max(1, min(int(block_rows), self.n_rows))
        self.n_blocks = -(-self.n_rows // self.block_rows)

    def blocked(self, rows: int) -> LocalSamples:
        return LocalSamples(self._X, self.targets, self.weights, rows)

    @property
    def held(self) -> Block | None:
        X: Any = self._X
        plain = type(X) is np.ndarray and X.dtype == np.float64
        return Block(0, X, self.targets, self.weights) if plain else None

    def blocks(self) -> Iterator[Block]:
        """Return the blocks in order."""
        for start in range(0, self.n_rows, self.block_rows):
            stop = min(start + self.block_rows, self.n_rows)
            yield Block(start, read(self._X, start, stop), self.targets[start:stop], self.weights[start:stop])

    def reduce(self, function: Callable[[Block], Value], combine: Combine[Value]) -> Value:
        return functools.reduce(combine, in_order(function, self.blocks()))


def read(X: RowsLike, start: int, stop: int) -> np.ndarray:
    """Rows start to stop of X as float64 in memory."""
    mapped = X if isinstance(X, np.memmap) else None
    base: Any = None if mapped is None else mapped.base
    if mapped is not None and isinstance(base, mmap) and mapped.flags.c_contiguous:
        # a mapping of its own, closed at once: pages read through the given one would stay with the process
        row = mapped.dtype.itemsize * int(np.prod(mapped.shape[1:]))
        shape = (stop - start, *mapped.shape[1:])
        try:
            part: Any = np.memmap(str(mapped.filename), mapped.dtype, "r", mapped.offset + start * row, shape)
        except (OSError, ValueError) as error:
            reason = f"rows {start} to {stop} of X are no longer in the file {mapped.filename} that X was mapped from"
            raise ValueError(f"{reason}: write it again, and leave it alone during a fit ({error})") from error
        return np.array(part, dtype=np.float64)
    return np.ascontiguousarray(X[start:stop], dtype=np.float64)


def in_order(function: Callable[[Any], Value], items: Iterable[Any]) -> Iterator[Value]:
    """Return the function's values in the order of the items, computed on as many threads as BLAS may use."""
    workers = n_threads()
    with one_thread():
        if workers == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(workers) as pool:
            waiting: deque = deque()
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


class DeviceSamples(Samples):
    """Rows X (N, d) on a device, with targets (N, q) and weights (N,) on the host; the blocks have X there.

    >>> samples = DeviceSamples(np.ones((5, 2)), np.zeros((5, 1)), np.ones(5), block_rows=2)
    >>> samples.reduce(lambda block: block.X.sum(), lambda a, b: a + b), samples.n_blocks
    (np.float64(10.0), 3)
    """

    def __init__(self, X: Array, targets: np.ndarray, weights: np.ndarray, block_rows: int = _DEVICE_BLOCK_ROWS):
        self._X, self._targets, self._weights, self._block_rows = X, targets, weights, block_rows
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        self.n_targets, self.n_blocks = targets.shape[1], -(-self.n_rows // block_rows)

    def blocked(self, rows: int) -> DeviceSamples:
        return DeviceSamples(self._X, self._targets, self._weights, max(rows, _DEVICE_BLOCK_ROWS))

    def reduce(self, function: Callable[[Block], Value], combine: Combine[Value]) -> Value:
        def value(start: int) -> Value:
            some = slice(start, min(start + self._block_rows, self.n_rows))
            return function(Block(start, self._X[some, :], self._targets[some], self._weights[some]))

        return functools.reduce(combine, map(value, range(0, self.n_rows, self._block_rows)))


class Statistics(NamedTuple):
    """Numbers of rows X (n, d) with targets (n, q), and moments of those with a positive weight."""

    n_rows: int
    n_used: int
    weight: float
    mean: np.ndarray  # (d + q,)
    spread: np.ndarray  # (d + q,) roots of the sums of squares about the means
    finite: tuple[bool, bool, bool]  # X, targets, weights
    negative: bool  # a weight

    @classmethod
    def of(cls, block: Block) -> Statistics:
        """Return the facts of some rows.

        >>> one = Statistics.of(Block(0, np.array([[1.0], [3.0]]), np.zeros((2, 1)), np.ones(2)))
        >>> one.weight, one.mean.tolist(), one.merged(one).spread.round(6).tolist()
        (2.0, [2.0, 0.0], [2.0, 0.0])
        """
        _, X, targets, weights = block
        finite = bool(np.isfinite(X).all()), bool(np.isfinite(targets).all()), bool(np.isfinite(weights).all())
        negative, used = bool(np.any(weights < 0.0)), weights > 0.0
        values = np.column_stack([X, targets])
        values, w = values[used], weights[used]
        if negative or not all(finite) or not len(w):
            nothing = np.zeros(values.shape[1])
            return cls(len(X), 0, 0.0, nothing, nothing, finite, negative)
        total = float(w.sum())
        largest = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)  # whose square may overflow
        mean = largest * ((w / total) @ (values / largest))
        spread = largest * np.sqrt(w @ ((values - mean) / largest) ** 2)
        return cls(len(X), len(w), total, mean, spread, finite, negative)

    def merged(self, other: Statistics) -> Statistics:
        """Return the facts of both."""
        weight = self.weight + other.weight
        apart, share = other.mean - self.mean, other.weight / weight if weight else 0.0
        between = np.abs(apart) * np.sqrt(self.weight * share)
        return Statistics(
            self.n_rows + other.n_rows,
            self.n_used + other.n_used,
            weight,
            self.mean + share * apart,
            np.hypot(np.hypot(self.spread, other.spread), between),
            tuple(a and b for a, b in zip(self.finite, other.finite, strict=True)),  # type: ignore[arg-type]
            self.negative or other.negative,
        )

    def check(self) -> None:
        """Refuse rows that no model can be fitted to."""
        for name, finite in zip(("X", "y", "sample_weight"), self.finite, strict=True):
            if not finite:
                raise ValueError(f"Input {name} contains NaN or infinity: remove or impute such rows")
        if self.negative:
            raise ValueError("Negative values in data passed to `sample_weight`")
        if self.n_used < 2:
            raise ValueError(f"at least 2 samples need a positive weight, got {self.n_used}: check sample_weight")

    def feature_variances(self, d: int) -> np.ndarray:
        """Return the weighted variances of the first d columns (d,)."""
        with np.errstate(over="ignore"):  # inf, as the variance of such data is
            return self.spread[:d] ** 2 / self.weight

    def target_units(self, q: int) -> tuple[np.ndarray, np.ndarray]:
        """Return root mean square (1 for zeros) and relative variance (0 where constant to rounding) of the last q."""
        deviation = self.spread[-q:] / np.sqrt(self.weight)
        rms = np.hypot(self.mean[-q:], deviation)
        units = np.where(rms > 0.0, rms, 1.0)
        return units, np.where(deviation > 1e-14 * units, deviation / units, 0.0) ** 2


def measure(samples: Samples) -> Statistics:
    """Return the facts of samples in blocks, checked, in one pass."""
    found = samples.reduce(Statistics.of, Statistics.merged)
    found.check()
    return found


class Draw(NamedTuple):
    """Rows in the order of their hash (n,): the number of the first copy (n,), X (n, d), targets (n, q), weights (n,).

    `seen` counts the rows of positive weight that the draw was taken from.
    """

    hashed: np.ndarray
    rows: np.ndarray
    X: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    seen: int


def draw_rows(samples: Samples, size: int) -> Draw:
    """At most ``size`` distinct rows of positive weight, in one pass.

    >>> X = np.array([[1.0], [2.0], [1.0], [3.0]])
    >>> some = draw_rows(LocalSamples(X, X), 3)
    >>> sorted(zip(some.X.ravel().tolist(), some.weights.tolist(), some.rows.tolist()))
    [(1.0, 2.0, 0), (2.0, 1.0, 1), (3.0, 1.0, 3)]
    >>> np.array_equal(some.X, draw_rows(LocalSamples(X[::-1], X[::-1], block_rows=1), 3).X)
    True
    """
    return samples.reduce(partial(_draw_block, size), partial(_join, size))


def _draw_block(size: int, block: Block) -> Draw:
    used = np.flatnonzero(block.weights > 0.0)
    X, targets = block.X[used], block.targets[used]
    hashed = hash_rows(_round(np.column_stack([X, targets])))
    return _lowest(size, Draw(hashed, block.start + used, X, targets, block.weights[used], len(used)))


def _round(values: np.ndarray) -> np.ndarray:
    """Numbers to ten digits: what unit, storage and order of summation leave of them."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * _MANTISSA), exponent)


def _join(size: int, a: Draw, b: Draw) -> Draw:
    hashed, rows, X, targets, weights = (np.concatenate(pair) for pair in zip(a[:-1], b[:-1], strict=True))
    return _lowest(size, Draw(hashed, rows, X, targets, weights, a.seen + b.seen))


def _lowest(size: int, drawn: Draw) -> Draw:
    """Return the rows with the lowest hashes, copies as one."""
    if not len(drawn.rows):
        return drawn
    order = np.lexsort((drawn.rows, drawn.hashed))
    hashed = drawn.hashed[order]
    first = np.flatnonzero(np.append(True, hashed[1:] != hashed[:-1]))
    weights = np.add.reduceat(drawn.weights[order], first)[:size]
    kept = order[first[:size]]
    return Draw(drawn.hashed[kept], drawn.rows[kept], drawn.X[kept] + 0.0, drawn.targets[kept], weights, drawn.seen)
