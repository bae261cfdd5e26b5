"""Scores of predictions for targets of any size, and densities that have a number."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array

from relvec.estimators.sources.base import check_numbers
from relvec.gaussian_process.rows import far_exponent
from relvec.inference.censored import explained_distance
from relvec.runtime.arrays import Array, TargetsLike, to_host


def check_targets(y: TargetsLike, shape: tuple[int, ...], column: bool = False) -> np.ndarray:
    """Targets y as finite numbers in the shape (n,) or (n, q) of their predictions.

    column : whether (n,) and (n, 1) are the same.
    """
    y = check_array(check_numbers(to_host(y)), ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="y")
    one = {shape[:1], (shape[0], 1)}
    if y.shape != shape and not (column and {shape, y.shape} == one):
        raise ValueError(f"y must have the shape {shape} of the predictions, got {y.shape}")
    return y.reshape(shape)


def explained_share(y: np.ndarray, mean: np.ndarray, weights: np.ndarray, counts: bool) -> float:
    """R^2 of predictions for targets, both (n,) or (n, q), with weights (n,); D^2 of the Poisson deviance for counts.

    >>> y = np.array([1e200, 2e200, 3e200])
    >>> round(explained_share(y, y[[0, 1, 1]], np.ones(3), False), 6)
    0.5
    """
    from sklearn.metrics import d2_tweedie_score, r2_score  # imports much, and most fits never need it

    y, mean = _near_one(y.reshape(len(y), -1), mean.reshape(len(mean), -1))
    weights = weights / (weights.max(initial=0.0) or 1.0)
    if not counts:
        return float(r2_score(y, mean, sample_weight=weights))
    used = weights > 0.0  # counts that do not differ have no deviance that could be explained
    parts = [
        d2_tweedie_score(t, m, sample_weight=weights, power=1) if np.ptp(t[used]) > 1e-7 * t[used].max() else 0.0
        for t, m in zip(y.T, np.maximum(mean, np.finfo(float).tiny).T, strict=True)
    ]
    return float(np.mean(parts))


def explained_intervals(ends: np.ndarray, mean: np.ndarray, weights: np.ndarray) -> float:
    """`explained_distance` of predictions (n,) for intervals (n, 2), in numbers whose squares have a double."""
    near, mean = _near_one(ends.reshape(-1, 1), mean[:, None])
    return explained_distance(near.reshape(-1, 2), mean[:, 0], weights / (weights.max(initial=0.0) or 1.0))


def check_densities(values: Array) -> None:
    """Refuse log densities (n, ...) that have no number, with the first row at fault."""
    if not isinstance(values, np.ndarray):
        return
    at_fault = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if at_fault.any():
        raise ValueError(
            f"the log density of row {int(np.argmax(at_fault))} is beyond the range of numbers: its target is "
            "impossible for this model, or too far from the prediction. Check y there, or leave the row out"
        )


def _near_one(*arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays (n, q) with their columns in common units, a power of two each: squares of their numbers have a double."""
    together = np.concatenate(arrays)
    exponent = far_exponent(np.where(np.isfinite(together), together, 0.0))
    return [np.ldexp(values, -exponent) for values in arrays]
