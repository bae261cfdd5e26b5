"""Sums over all rows that a process on m vectors needs: they travel, rows stay where they are.

With k(Z, Z) = L L' and the features A = L^-1 k(Z, X) of the rows (`relvec.gaussian_process.bound`), each row times the
root of its weight, the posterior and the bounds need A A' (m, m), A y (m,), y'y, tr(K - Q) and the sum of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relvec.design import Block, Samples
from relvec.gaussian_process.bound import Bounds
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows, Units
from relvec.gaussian_process.streamed.algebra import factor_lower, log_determinant, solve_lower
from relvec.gaussian_process.target import Scale
from relvec.runtime.arrays import Array, add_diagonal, like, squares, to_host

_JITTER = 1e-9  # of the largest k(z, z), as in `relvec.gaussian_process.bound`
_BLOCK_NUMBERS = 4_000_000  # of the features of a block, at most: 32 MB
_BLOCK_ROWS = 1000  # of a block on the host, or a million numbers: more of them only take memory on every thread
_BLOCK_BYTES = 400  # of the memory limit for each of these numbers: several arrays of them, on several threads


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors Z (m, d) of a process in its units, with the factor L (m, m) of k(Z, Z)."""

    structure: Structure
    theta: np.ndarray
    Z: Array
    L: Array

    @classmethod
    def at(cls, structure: Structure, theta: np.ndarray, Z: Array) -> Vectors:
        """The vectors at some rows, on whatever device these are."""
        return cls(structure, theta, Z, factor_lower(structure(theta, Z), _JITTER))

    def features(self, X: Array) -> Array:
        """A (m, n) of standardised rows X (n, d)."""
        return solve_lower(self.L, self.structure(self.theta, X, self.Z).T)

    def left(self, X: Array, A: Array) -> Array:
        """k(x, x) less what the vectors represent of it (n,)."""
        return self.structure.prior_variance(self.theta, X) - squares(A, 0)


@dataclass(frozen=True, eq=False)
class Sums:
    """A A' (m, m), A y (m,), y'y, tr(K - Q) and the sum of the weights, over some rows."""

    gram: Array
    cross: Array
    squares: float
    left: float
    total: float

    def add(self, other: Sums) -> Sums:
        """The sums over the rows of both; the matrices of this one are overwritten."""
        gram, cross = self.gram, self.cross
        gram += other.gram
        cross += other.cross
        return Sums(
            gram, cross, self.squares + other.squares, self.left + other.left, self.total + other.total
        )  # fmt: skip

    def without(self, other: Sums) -> Sums:
        """The sums over the rows of this that are not in the other."""
        return Sums(
            self.gram - other.gram, self.cross - other.cross, self.squares - other.squares, self.left - other.left,
            self.total - other.total,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Target:
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


@dataclass(frozen=True, eq=False)
class SumsOfBlock:
    """The sums over the rows of a block."""

    vectors: Vectors
    target: Target

    def __call__(self, block: Block) -> Sums:
        X, y, weights = self.target.rows(block)
        return sum_rows(self.vectors, X, y, weights)


def sum_rows(vectors: Vectors, X: Array, y: np.ndarray, weights: np.ndarray) -> Sums:
    """The sums over standardised rows X (n, d) with targets (n,) and weights (n,), on the device of X."""
    A = vectors.features(X)
    left = float(weights @ np.maximum(to_host(vectors.left(X, A)), 0.0))
    root = np.sqrt(weights)
    if np.any(root != 1.0):
        A = A * like(A, root)[None, :]
    return Sums(A @ A.T, A @ like(A, y * root), float(weights @ y**2), left, float(weights.sum()))


def sum_all(vectors: Vectors, samples: Samples, target: Target, memory: float, tell: Callable[[float], None]) -> Sums:
    """The sums over all rows, in one pass within so many bytes; `tell` is called with the share that is done."""
    m = vectors.Z.shape[0]
    numbers = min(_BLOCK_NUMBERS, int(memory / _BLOCK_BYTES))
    if isinstance(vectors.Z, np.ndarray):
        numbers = min(numbers, max(1_000_000, _BLOCK_ROWS * m))
    samples = samples.blocked(max(numbers // m, 64))
    if not samples.n_blocks:
        return samples.reduce(SumsOfBlock(vectors, target), Sums.add)
    done = 1

    def add(a: Sums, b: Sums) -> Sums:
        nonlocal done
        done += 1
        tell(done / samples.n_blocks)
        return a.add(b)

    return samples.reduce(SumsOfBlock(vectors, target), add)


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """LB (m, m), the factor of I + A A'/s, and B^-1 A y / s (m,): the mean of the features."""

    vectors: Vectors
    LB: Array
    mean: Array

    @classmethod
    def of(cls, vectors: Vectors, sums: Sums) -> SparsePosterior:
        """The posterior given the sums over rows."""
        s = vectors.structure.noise(vectors.theta)
        LB, c = _shifted(sums, s)
        return cls(vectors, LB, solve_lower(LB, c, trans=True))

    def predict(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (n,), without noise, at standardised rows X (n, d)."""
        A = self.vectors.features(X)
        mean, left = A.T @ self.mean, self.vectors.left(X, A)
        half = solve_lower(self.LB, A)
        return to_host(mean), np.maximum(to_host(left), 0.0) + to_host(squares(half, 0))


def _shifted(sums: Sums, s: float) -> tuple[Array, Array]:
    """The factor LB of I + A A'/s (m, m), and LB^-1 A y / s (m,)."""
    LB = factor_lower(add_diagonal(sums.gram / s, 1.0))
    return LB, solve_lower(LB, sums.cross / s)


def bounds_of(vectors: Vectors, sums: Sums) -> Bounds:
    """Lower and upper bound on log p(t | theta), as `relvec.gaussian_process.bound.bounds` has them."""
    s = vectors.structure.noise(vectors.theta)
    LB, c = _shifted(sums, s)
    level = sums.total * np.log(2.0 * np.pi * s) + log_determinant(LB)
    wide = s + sums.left
    c_wide = _shifted(sums, wide)[1]
    lower = -0.5 * (sums.squares / s - float(c @ c) + level + sums.left / s)
    upper = -0.5 * (sums.squares / wide - float(c_wide @ c_wide) + level)
    return Bounds(lower, upper, sums.total)


def rows_sums(vectors: Vectors, rows: Rows) -> Sums:
    """The sums over merged rows in memory, moved to where the vectors are; their scatter counts in y'y."""
    found = sum_rows(vectors, like(vectors.Z, rows.X), rows.y, rows.weight)
    return replace(found, squares=found.squares + float(rows.scatter.sum()))
