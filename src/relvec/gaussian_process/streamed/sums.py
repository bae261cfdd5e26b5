"""The pass over all rows that forms the sums of `relvec.gaussian_process.bound`: sums travel, rows stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from relvec.design import Block, Samples
from relvec.gaussian_process.bound import Sums, Vectors, sum_rows
from relvec.gaussian_process.rows import Units
from relvec.gaussian_process.target import Scale
from relvec.runtime.arrays import Array

_BLOCK_NUMBERS = 4_000_000  # of the features of a block, at most: 32 MB
_BLOCK_ROWS = 1000  # of a block on the host, or a million numbers: more of them only take memory on every thread
_BLOCK_BYTES = 400  # of the memory limit for each of these numbers: several arrays of them, on several threads


@dataclass(frozen=True, eq=False)
class Scaling:
    """How a block of rows becomes rows of the process: its units, scale and output, and a factor for all weights."""

    units: Units
    scale: Scale
    output: int
    weight_factor: float

    def rows(self, block: Block) -> tuple[Array, np.ndarray, np.ndarray]:
        """Standardised inputs (b, d), targets (b,) and weights (b,)."""
        u = self.units
        y = (self.scale.forward(block.targets[:, self.output]) - u.y_mean) / u.y_scale
        return u.inputs(block.X), y, self.weight_factor * block.weights


def _sum_block(vectors: Vectors, target: Scaling, block: Block) -> Sums:
    return sum_rows(vectors, *target.rows(block))


def sum_all(vectors: Vectors, samples: Samples, target: Scaling, memory: float, tell: Callable[[float], None]) -> Sums:
    """Return the sums over all rows, in one pass within so many bytes; `tell` is called with the share that is done."""
    m = vectors.Z.shape[0]
    numbers = min(_BLOCK_NUMBERS, int(memory / _BLOCK_BYTES))
    if isinstance(vectors.Z, np.ndarray):
        numbers = min(numbers, max(1_000_000, _BLOCK_ROWS * m))
    samples = samples.blocked(max(numbers // m, 64))
    block_sums = partial(_sum_block, vectors, target)
    if not samples.n_blocks:
        return samples.reduce(block_sums, Sums.add)
    done = 1

    def add(a: Sums, b: Sums) -> Sums:
        nonlocal done
        done += 1
        tell(done / samples.n_blocks)
        return a.add(b)

    return samples.reduce(block_sums, add)
