"""The rows of a fit as a sequence of blocks.

Whatever needs all N samples is a pass: a function of one block of rows, and a rule that combines two results. On one
machine a pass is a loop, on several threads; elsewhere it may be a reduction on the workers. Results are small, so
nothing of size N x M ever travels or is held.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from mmap import mmap
from typing import Any, NamedTuple

import numpy as np

from relvec.design.base import Combine, Value
from relvec.runtime.arrays import RowsLike
from relvec.runtime.machine import n_threads, one_thread

BLOCK_ROWS = 4096  # rows read at once, unless memory asks for fewer


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
