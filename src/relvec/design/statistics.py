"""Facts of all rows that add up over blocks: numbers, weights, means, variances, bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relvec.design.samples import Block, Samples


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
