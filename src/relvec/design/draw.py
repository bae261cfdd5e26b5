"""A draw of rows that depends on nothing but their content: not on their order, their blocks, or where they are.

Rows are drawn by a hash of inputs and targets, so that those with equal inputs are drawn one by one; copies of a row in
both, which may differ by rounding, are one row with the sum of their weights.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from relvec.design.samples import Block, Samples
from relvec.runtime.arrays import hash_rows

_MANTISSA = 2.0**33  # digits that count where rows are compared


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
