"""All that a Gaussian model over a fixed dictionary needs of its rows, whatever their number.

With [Phi t] = Q R the triangle R (M + q, M + q) has the inner products of every column: it stands for the rows. A QR
factorisation of a triangle on top of further rows, or of another triangle, adds them up like a Gram matrix does, and
keeps the digits that squaring would lose. Fewer rows than that stand for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack, qr

from relvec.basis import Basis
from relvec.design.base import Rows
from relvec.design.dense import DenseDesign

_PANEL = 32  # columns that LAPACK reduces at once
_AT_ONCE = 2_000_000  # numbers of the basis computed at once


@dataclass(frozen=True, eq=False)
class Summary:
    """Rows of a bound basis and of q targets, summed up."""

    basis: Basis  # bound basis of M atoms that depends on no row
    # (r, M + q) the rows of [Phi t], each multiplied by the root of its weight, or where those are more than M + q the
    # upper triangle of their QR factorisation
    R: np.ndarray
    n_rows: int  # rows with a positive weight
    weight: float  # sum of their weights
    mean: np.ndarray  # (d + q,) weighted means of the features and of the targets
    spread: np.ndarray  # (d + q,) roots of their weighted sums of squares about the means

    @property
    def n_outputs(self) -> int:
        """Number q of targets."""
        return self.R.shape[1] - self.basis.n_atoms

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Root mean square (1 for zeros) and relative variance (0 where constant to rounding) of each target (q,)."""
        return units_of(self.mean, self.spread, self.weight, self.n_outputs)

    @property
    def feature_variances(self) -> np.ndarray:
        """Weighted variances of the features (d,)."""
        with np.errstate(over="ignore"):  # inf, as the variance of such data is
            return self.spread[: -self.n_outputs] ** 2 / self.weight

    def rows(self, units: np.ndarray) -> Rows:
        """The dictionary and the targets, in the given units (q,), in M + q coordinates at most."""
        M = self.basis.n_atoms
        return Rows(DenseDesign(self.R[:, :M]), self.R[:, M:] / units, np.zeros(self.n_outputs))

    def merged(self, other: Summary) -> Summary:
        """Both sums' rows together; the basis must be the same."""
        if other.n_outputs != self.n_outputs or other.basis != self.basis:
            raise ValueError(
                f"only rows of the same basis functions and targets add up: here {self.basis.n_atoms} functions and "
                f"{self.n_outputs} targets, there {other.basis.n_atoms} and {other.n_outputs}; give all parts the same "
                "kernel, basis and fit_intercept"
            )
        n_rows = self.n_rows + other.n_rows
        return Summary(self.basis, stack_triangle(self.R, other.R), n_rows, *merge_moments(self, other))


def merge_moments(a: Any, b: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """Total weight, means and roots of the sums of squares about them, of two sums of rows that have such."""
    weight = a.weight + b.weight
    apart, share = b.mean - a.mean, b.weight / weight if weight else 0.0
    between = np.abs(apart) * np.sqrt(a.weight * share)
    return weight, a.mean + share * apart, np.hypot(np.hypot(a.spread, b.spread), between)


def units_of(mean: np.ndarray, spread: np.ndarray, weight: float, q: int) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square (1 for zeros) and relative variance (0 where constant to rounding) of each target (q,).

    The last q of the means and of the roots of the sums of squares about them are the targets'.
    """
    deviation = spread[-q:] / np.sqrt(weight)
    rms = np.hypot(mean[-q:], deviation)
    units = np.where(rms > 0.0, rms, 1.0)
    return units, np.where(deviation > 1e-14 * units, deviation / units, 0.0) ** 2


def summarise(basis: Basis, X: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Summary:
    """Sum up the rows X (n, d) with targets (n, q) and sample weights (n,), those of positive weight.

    >>> import numpy as np
    >>> from relvec.basis import Linear
    >>> X = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> whole = summarise(Linear().bind(X), X, 2.0 * X, np.ones(4))
    >>> parts = [summarise(Linear().bind(X), X[i : i + 2], 2.0 * X[i : i + 2], np.ones(2)) for i in (0, 2)]
    >>> bool(np.allclose(np.abs(whole.R), np.abs(parts[0].merged(parts[1]).R)))
    True
    """
    used = np.flatnonzero(weights > 0.0)
    if len(used) < len(X):
        X, targets, weights = X[used], targets[used], weights[used]
    size = basis.n_atoms + targets.shape[1]
    R, at_once = np.zeros((0, size)), max(_AT_ONCE // size, 1)
    for first in range(0, len(X), at_once):
        part = slice(first, first + at_once)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values are refused below
            rows = np.column_stack([basis(X[part]), targets[part]])
            if np.any(weights[part] != 1.0):
                rows *= np.sqrt(weights[part])[:, None]
            R = stack_triangle(R, rows)
    if not np.all(np.isfinite(R)):
        raise ValueError(
            f"basis function {int(np.argmin(np.isfinite(R).all(axis=0)))} is not finite on the training rows; "
            "rescale the inputs (StandardScaler) or lower the degree"
        )
    values, weight = np.column_stack([X, targets]), float(weights.sum())
    share = weights / weight if weight else weights
    largest = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
    largest = np.maximum(largest, np.finfo(float).tiny)  # whose square may overflow
    values /= largest
    mean = share @ values
    values -= mean
    values *= values
    mean, spread = largest * mean, largest * np.sqrt(weights @ values)
    return Summary(basis, R, len(used), weight, mean, spread)


def stack_triangle(R: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Rows (r, c) on top of others (n, c), or the triangle (c, c) of their QR factorisation where they are more than c.

    R is that triangle already where it has c rows.
    """
    c = R.shape[1]
    if len(R) < c:
        rows = np.vstack([R, below]) if len(R) else below
        if len(rows) <= c:
            return np.triu(qr(rows, mode="r")[0]) if len(rows) == c else rows
        R, below = np.zeros((c, c)), rows
    return lapack.dtpqrt(0, min(_PANEL, c), R, below)[0]
