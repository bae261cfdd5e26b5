"""A draw of rows that depends on nothing but their content: not on their order, their blocks, or where they are.

Rows are drawn by a hash of inputs and targets, so that those with equal inputs are drawn one by one; copies of a row in
both are one row with the sum of their weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from relvec.basis import row_hash64
from relvec.design.samples import Block, Samples


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

    >>> from relvec.design import LocalSamples
    >>> X = np.array([[1.0], [2.0], [1.0], [3.0]])
    >>> some = draw_rows(LocalSamples(X, X), 3)
    >>> sorted(zip(some.X.ravel().tolist(), some.weights.tolist(), some.rows.tolist()))
    [(1.0, 2.0, 0), (2.0, 1.0, 1), (3.0, 1.0, 3)]
    >>> np.array_equal(some.X, draw_rows(LocalSamples(X[::-1], X[::-1], block_rows=1), 3).X)
    True
    """
    lowest = _Lowest(size)
    return samples.reduce(lowest, lowest.combine)


@dataclass(frozen=True)
class _Lowest:
    """The rows of a block with the lowest hashes."""

    size: int

    def __call__(self, block: Block) -> Draw:
        used = np.flatnonzero(block.weights > 0.0)
        X, targets = block.X[used], block.targets[used]
        hashed = row_hash64(np.column_stack([X, targets]))
        return self._lowest(Draw(hashed, block.start + used, X, targets, block.weights[used], len(used)))

    def combine(self, a: Draw, b: Draw) -> Draw:
        """The lowest of both."""
        joined = Draw(
            np.concatenate([a.hashed, b.hashed]), np.concatenate([a.rows, b.rows]), np.concatenate([a.X, b.X]),
            np.concatenate([a.targets, b.targets]), np.concatenate([a.weights, b.weights]), a.seen + b.seen,
        )  # fmt: skip
        return self._lowest(joined)

    def _lowest(self, drawn: Draw) -> Draw:
        if not len(drawn.rows):
            return drawn
        order = np.lexsort((drawn.rows, drawn.hashed))
        hashed = drawn.hashed[order]
        first = np.flatnonzero(np.append(True, hashed[1:] != hashed[:-1]))
        weights = np.add.reduceat(drawn.weights[order], first)[: self.size]
        kept = order[first[: self.size]]
        return Draw(
            drawn.hashed[kept], drawn.rows[kept], drawn.X[kept] + 0.0, drawn.targets[kept], weights, drawn.seen
        )  # fmt: skip
