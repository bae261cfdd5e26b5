"""The noise of a fitted model, where it is not normal with one variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """The noise that was learned.

    Attributes
    ----------
    kind : "student-t" or "heteroscedastic".
    bounds : (k,) the variational bound after each fit, the last of the model that is kept.
    degrees : degrees of freedom of Student-t noise, else inf.
    outliers : training rows that count less than a quarter of a usual row, the worst first.
    """

    kind: str
    bounds: np.ndarray
    degrees: float
    outliers: np.ndarray
