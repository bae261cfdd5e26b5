"""Bounds on the evidence of a process from m of its rows, in O(N m^2), and the sums over the rows that they need.

The vectors Z (m, d) are rows. With k(Z, Z) = L L' and the features A = L^-1 k(Z, X), Q = A'A is the part of K = k(X, X)
that the vectors represent. In whitened rows (targets and covariances times sqrt(w); the noise is s for all of them)

    lower = log N(y | 0, Q + s I) - tr(K - Q) / (2 s)                            Titsias 2009, eq. (9)
    upper = -1/2 [n log 2 pi + log|Q + s I| + y'(Q + (t + s) I)^-1 y],  t = tr(K - Q)      Titsias 2014, sec. 2

enclose log N(y | 0, K + s I). Both get the terms of merged rows, -(N - n)/2 log(2 pi s) - scatter / (2 s) (`evidence`;
the sums of log w cancel). Posterior and bounds need A A' (m, m), A y (m,), y'y, t and N: sums over rows, which may stay
where they are. Vectors may be on a device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows
from relvec.inference.linalg import factor_lower, log_determinant, solve_lower
from relvec.runtime.arrays import Array, add_diagonal, like, squares, to_host

_JITTER = 1e-9  # of the largest k(z, z); Q only shrinks by it: the bounds stay bounds


@dataclass(frozen=True, eq=False)
class Bounds:
    """lower <= log p(t | theta) <= upper for rows of total weight N; `gap` = (upper - lower) / N.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GPRegressor().fit(X, np.sin(3.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0]))
    >>> lower, upper = model.bounds_
    >>> bool(lower <= upper)
    True
    """

    lower: float
    upper: float
    total: float

    @property
    def gap(self) -> float:
        """Width of the enclosure, in nats a row."""
        return (self.upper - self.lower) / self.total


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors Z (m, d) of a process in its units, with the factor L (m, m) of k(Z, Z)."""

    structure: Structure
    theta: np.ndarray
    Z: Array
    L: Array

    @classmethod
    def at(cls, structure: Structure, theta: np.ndarray, Z: Array) -> Vectors:
        """Return the vectors at some rows, on whatever device these are."""
        return cls(structure, theta, Z, factor_lower(structure(theta, Z), _JITTER))

    def features(self, X: Array) -> Array:
        """Return A (m, n) of standardised rows X (n, d)."""
        return solve_lower(self.L, self.structure(self.theta, X, self.Z).T)

    def left(self, X: Array, A: Array) -> Array:
        """Return the part (n,) of k(x, x) that the vectors do not represent."""
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
        """Return the sums over the rows of both; the matrices of this one are overwritten."""
        gram, cross = self.gram, self.cross
        gram += other.gram
        cross += other.cross
        return Sums(
            gram, cross, self.squares + other.squares, self.left + other.left, self.total + other.total
        )  # fmt: skip

    def without(self, other: Sums) -> Sums:
        """Return the sums over the rows of this that are not in the other."""
        return Sums(
            self.gram - other.gram, self.cross - other.cross, self.squares - other.squares, self.left - other.left,
            self.total - other.total,
        )  # fmt: skip


def sum_rows(vectors: Vectors, X: Array, y: np.ndarray, weights: np.ndarray) -> Sums:
    """Return the sums over standardised rows X (n, d) with targets (n,) and weights (n,), on the device of X."""
    A = vectors.features(X)
    left = float(weights @ np.maximum(to_host(vectors.left(X, A)), 0.0))
    root = np.sqrt(weights)
    if np.any(root != 1.0):
        A = A * like(A, root)[None, :]
    return Sums(A @ A.T, A @ like(A, y * root), float(weights @ y**2), left, float(weights.sum()))


def rows_sums(vectors: Vectors, rows: Rows) -> Sums:
    """Return the sums over merged rows in memory, moved to where the vectors are; their scatter counts in y'y."""
    found = sum_rows(vectors, like(vectors.Z, rows.X), rows.y, rows.weight)
    return replace(found, squares=found.squares + float(rows.scatter.sum()))


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """LB (m, m), the factor of I + A A'/s, and B^-1 A y / s (m,): the mean of the features."""

    vectors: Vectors
    LB: Array
    mean: Array

    @classmethod
    def of(cls, vectors: Vectors, sums: Sums) -> SparsePosterior:
        """Return the posterior given the sums over rows."""
        s = vectors.structure.noise(vectors.theta)
        LB, c = _factor_shifted(sums, s)
        return cls(vectors, LB, solve_lower(LB, c, trans=True))

    def predict(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (n,), without noise, at standardised rows X (n, d)."""
        A = self.vectors.features(X)
        mean, left = A.T @ self.mean, self.vectors.left(X, A)
        half = solve_lower(self.LB, A)
        return to_host(mean), np.maximum(to_host(left), 0.0) + to_host(squares(half, 0))


def _factor_shifted(sums: Sums, s: float) -> tuple[Array, Array]:
    """Return the factor LB of I + A A'/s (m, m), and LB^-1 A y / s (m,)."""
    LB = factor_lower(add_diagonal(sums.gram / s, 1.0))
    return LB, solve_lower(LB, sums.cross / s)


def bounds(structure: Structure, theta: np.ndarray, rows: Rows, Z: np.ndarray) -> Bounds:
    """Lower and upper bound on log p(t | theta) of merged rows in memory from the vectors Z (m, d)."""
    vectors = Vectors.at(structure, theta, Z)
    return bounds_of(vectors, sum_rows(vectors, rows.X, rows.y, rows.weight), float(rows.scatter.sum()))


def bounds_of(vectors: Vectors, sums: Sums, scatter: float = 0.0) -> Bounds:
    """Lower and upper bound on log p(t | theta) from the sums over all rows, and the scatter within merged ones."""
    s = vectors.structure.noise(vectors.theta)
    LB, c = _factor_shifted(sums, s)
    level = sums.total * np.log(2.0 * np.pi * s) + log_determinant(LB) + scatter / s
    wide = s + sums.left
    c_wide = _factor_shifted(sums, wide)[1]
    lower = -0.5 * (sums.squares / s - float(c @ c) + level + sums.left / s)
    upper = -0.5 * (sums.squares / wide - float(c_wide @ c_wide) + level)
    return Bounds(lower, upper, sums.total)
