"""Widths of kernels: their checks, the widths that words stand for, and the base of kernels of x/width."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from relvec.kernels.base import Kernel, as_rows
from relvec.runtime.arrays import like

LEARNED = ("learn", "learn-per-feature")
WIDTH_WORDS = ("scale", *LEARNED)
Width = str | float | tuple[float, ...]


class ScaledKernel(Kernel):
    """Kernels of x/width, with one width for all features or one for each."""

    width: Width

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_width(self.width))

    def resolve(self, X: ArrayLike, sample_weight: ArrayLike | None = None) -> Kernel:
        X = as_rows(X)
        if self.width == "learn-per-feature":
            return replace(self, width=feature_widths(X, sample_weight))  # type: ignore[type-var]
        if isinstance(self.width, str):
            return replace(self, width=scale_width(X, sample_weight))  # type: ignore[type-var]
        self.scale_rows(X)
        return self

    def learned_mask(self, n_features: int) -> np.ndarray:
        per_feature = self.width == "learn-per-feature" or isinstance(self.width, tuple)
        return np.full(n_features if per_feature else 1, self.width in LEARNED)

    def inverse_square_widths(self, n_features: int) -> np.ndarray:
        return np.full(n_features, self.width_array() ** -2.0)

    def width_array(self) -> np.ndarray:
        """The width as an array, () or (d,)."""
        if isinstance(self.width, str):
            raise ValueError(f"{self!r} has no numeric width yet: call resolve(X) first, or give a positive number")
        return np.asarray(self.width)

    def scale_rows(self, X: np.ndarray) -> np.ndarray:
        """X / width, divided before anything is squared so that large and small units neither over- nor underflow."""
        width = self.width_array()
        if width.ndim and len(width) != X.shape[1]:
            raise ValueError(
                f"width has {len(width)} entries but the data have {X.shape[1]} features: "
                "give one positive number, or one per feature"
            )
        return X / (width if isinstance(X, np.ndarray) else like(X, width))

    def _width_bar(self, log_width_bar: np.ndarray) -> np.ndarray:
        """Derivatives per feature (d,), added up where all features share one width."""
        return log_width_bar if self.width_array().ndim else log_width_bar.sum(keepdims=True)

    def _width_from(self, parameters: np.ndarray) -> Width:
        return tuple(parameters) if self.width_array().ndim else parameters[0]


def check_width(width: str | ArrayLike) -> Width:
    """`width` as one of WIDTH_WORDS, a positive float or a tuple of positive floats; a ValueError for all else.

    >>> check_width([1, 2])
    (1.0, 2.0)
    """
    wanted = f"width must be {', '.join(map(repr, WIDTH_WORDS))}, a positive number, or one positive number per feature"
    if isinstance(width, str):
        if width not in WIDTH_WORDS:
            raise ValueError(f"{wanted}; got {width!r}")
        return width
    try:
        values = np.asarray(width, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{wanted}; got {width!r}") from None
    if values.ndim > 1 or values.size == 0 or not np.all((values > 0) & (values < np.inf)):
        raise ValueError(f"{wanted}; got {width!r}")
    return tuple(values.tolist()) if values.ndim else float(values)


def scale_width(X: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """sqrt(n_features * X.var()), the variance over all entries of X (n, d), weighted by row; 1.0 where that is 0.

    With gamma = width^-2 it is what scikit-learn calls gamma="scale".

    >>> scale_width([[0.0], [2.0], [2.0], [0.0]])
    1.0
    """
    X = as_rows(X)
    weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    X, weight = X[weight > 0], weight[weight > 0]
    if X.size == 0:
        raise ValueError("width='scale' needs at least one row of positive weight and one feature")
    unit = np.abs(X).max()
    if unit == 0:
        return 1.0
    # In units of the largest entry nothing overflows; less the first entry, constant data give exactly zero.
    U = X / unit
    U -= U[0, 0]
    weight = weight / weight.max()
    total = weight.sum() * X.shape[1]
    U -= (weight @ U).sum() / total
    variance = (weight @ U**2).sum() / total
    return float(unit * np.sqrt(X.shape[1] * variance)) or 1.0


def feature_widths(X: ArrayLike, sample_weight: ArrayLike | None = None) -> tuple[float, ...]:
    """sqrt(n_features) times the standard deviation of each column of X (n, d), 1.0 where that is 0.

    >>> feature_widths([[0.0, 5.0], [2.0, 5.0]])
    (1.4142135623730951, 1.0)
    """
    X = as_rows(X)
    # of one column `scale_width` is the standard deviation
    root = np.sqrt(X.shape[1])
    return tuple(float(root * scale_width(x[:, None], sample_weight)) if np.ptp(x) > 0 else 1.0 for x in X.T)
