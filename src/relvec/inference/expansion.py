"""Predictive distributions as weighted sums of basis functions, as exports write them down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis
from relvec.inference.heteroscedastic import LogNoise


@dataclass(frozen=True, eq=False)
class LinearExpansion:
    """Mean w'phi(x) and variance max(prior + |root'phi(x)|^2 - |represented'phi(x)|^2, 0) + noise of new targets.

    Where error bars depend on the inputs, exp(h) of `varying`, a function of the inputs and the mean, multiplies them.
    """

    basis: Basis  # bound basis of the k functions phi
    # (k,), (k, j), (k, m)
    weights: np.ndarray
    root: np.ndarray
    represented: np.ndarray
    # variances
    prior: float
    noise: float
    varying: LogNoise | None = None
