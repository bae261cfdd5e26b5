"""Units of X and y: their sizes, and precisions and rates for scaled columns and targets."""

from __future__ import annotations

import numpy as np

from relvec.inference.priors import GammaPrior

LARGEST_RATE = 1e30  # of a hyperprior, in scaled units: precisions it asks for are lost beside the data's


def weighted_moments(t: np.ndarray, weights: np.ndarray, within: float = 0.0) -> tuple[float, float]:
    """Root mean square and standard deviation of t (n,), safe for any magnitude.

    Values that are means of others leave out the weighted squares ``within`` those.
    """
    total = weights.sum()
    largest = float(max(np.abs(t).max(), np.sqrt(within / total)))
    if largest == 0.0:
        return 0.0, 0.0
    share, u, more = weights / total, t / largest, within / total / largest / largest
    mean = share @ u
    return largest * float(np.sqrt(share @ u**2 + more)), largest * float(np.sqrt(share @ (u - mean) ** 2 + more))


def target_units(y: np.ndarray, weights: np.ndarray, within: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square (1 for a target of zeros) and relative variance of each output of y (n, q).

    The variance is 0 for a target that is constant to rounding. ``within`` (q,) is as in `weighted_moments`.
    """
    units, variances = np.ones(y.shape[1]), np.zeros(y.shape[1])
    for i, t in enumerate(y.T):
        rms, deviation = weighted_moments(t, weights, 0.0 if within is None else float(within[i]))
        if rms > 0.0:
            units[i] = rms
            variances[i] = (deviation / rms) ** 2 if deviation > 1e-14 * rms else 0.0
    return units, variances


def feature_variances(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted variances (d,) of the columns of X (n, d), over the square of the largest deviation of all."""
    share = weights / weights.sum()
    deviation = X - share @ X
    size = np.abs(deviation).max(initial=0.0)
    return share @ (deviation / (size or 1.0)) ** 2


def scaled_rates(prior: GammaPrior, scale: np.ndarray, unit: float = 1.0) -> np.ndarray | None:
    """The hyperprior's rates b (M,) for columns divided by scale (M,) and targets by unit; None where it is flat."""
    if not prior.on_weights:
        return None
    with np.errstate(over="ignore"):
        rates = prior.b * (scale / unit) ** 2
    if not np.all(rates < LARGEST_RATE):
        raise ValueError(
            f"the hyperprior's b = {prior.b:g} is out of all proportion to the weights of this model: for basis "
            f"functions of unit length and a target of unit size it is {np.max(rates):.3g}. Standardise X and y, or "
            "choose b for their units"
        )
    return rates


def scaled_precisions(scale: np.ndarray, atoms: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the atoms (k,) that were in a model, and their precisions for columns divided by scale (M,)."""
    kept = np.isfinite(alpha) & (scale[atoms] > 0.0)
    return atoms[kept], alpha[kept] / scale[atoms[kept]] ** 2


def check_representable(*values: np.ndarray) -> None:
    """An error where weights, precisions or variances of a model, in the units of X and y, have no double."""
    if not all(np.all(np.isfinite(value)) for value in values):
        raise ValueError(
            "the weights of this model, their precisions or their variances are beyond the range of floating-point "
            "numbers: the basis functions are far too small or too large for the target. Standardise X and y, or give "
            "a kernel with values nearer to 1"
        )
