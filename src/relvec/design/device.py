"""Rows on a device: kernels and products of a block are computed there, and sums come to the host."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from relvec.design.base import Combine, Value
from relvec.design.samples import Block, Samples
from relvec.runtime.arrays import Array

_BLOCK_ROWS = 8192  # least of samples worked on at once


class DeviceSamples(Samples):
    """Rows X (N, d) on a device, with targets (N, q) and weights (N,) on the host; the blocks have X there.

    >>> samples = DeviceSamples(np.ones((5, 2)), np.zeros((5, 1)), np.ones(5), block_rows=2)
    >>> samples.reduce(lambda block: block.X.sum(), lambda a, b: a + b), samples.n_blocks
    (np.float64(10.0), 3)
    """

    def __init__(self, X: Array, targets: np.ndarray, weights: np.ndarray, block_rows: int = _BLOCK_ROWS):
        self._X, self._targets, self._weights, self._block_rows = X, targets, weights, block_rows
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        self.n_targets, self.n_blocks = targets.shape[1], -(-self.n_rows // block_rows)

    def blocked(self, rows: int) -> DeviceSamples:
        return DeviceSamples(self._X, self._targets, self._weights, max(rows, _BLOCK_ROWS))

    def reduce(self, function: Callable[[Block], Value], combine: Combine[Value]) -> Value:
        def value(start: int) -> Value:
            some = slice(start, min(start + self._block_rows, self.n_rows))
            return function(Block(start, self._X[some, :], self._targets[some], self._weights[some]))

        return functools.reduce(combine, map(value, range(0, self.n_rows, self._block_rows)))
