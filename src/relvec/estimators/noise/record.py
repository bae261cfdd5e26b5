"""The record of noise that was learned with a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """The noise that was learned.

    Attributes
    ----------
    kind : "student-t", "heteroscedastic" or "censored".
    bounds : (k,) the variational bound after each fit, the last of the model that is kept; of censored targets the
        Laplace evidence.
    degrees : degrees of freedom of Student-t noise, else None.
    outliers : training rows that count less than a quarter of a usual row under Student-t noise, the worst first.
    columns : (c,) columns of the inputs that the variance of heteroscedastic noise depends on; d is the predicted mean.
    n_censored : training rows whose target is censored, else None.
    """

    kind: str
    bounds: np.ndarray
    degrees: float | None = None
    outliers: np.ndarray | None = None
    columns: np.ndarray | None = None
    n_censored: int | None = None
