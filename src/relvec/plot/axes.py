"""Axes, colours and checks that the pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from relvec.estimators.base import BaseModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT, LINE, VECTOR, TRUTH = "#8a8f98", "#1f5fa8", "#d1495b", "#2b2d33"
CLASSES = ("#1f5fa8", "#d1495b", "#3f8f5b", "#c98a1b", "#7a5195", "#2a9d9d", "#8c564b", "#6b7280")
DASHED = (0, (4, 3))
MISSING = "pictures need matplotlib, which is not installed: pip install 'relvec[plot]'"


def new_figure(width: float = 6.4, height: float = 4.0) -> Figure:
    """Return an empty matplotlib figure, in inches, that needs no screen: save it with ``figure.savefig(path)``.

    Examples
    --------
    >>> new_figure(3.0, 2.0).get_size_inches().tolist()
    [3.0, 2.0]
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def axes_or_new(ax: Axes | None) -> Axes:
    """Return `ax`, or the axes of a new figure known to pyplot, which notebooks show."""
    if ax is not None:
        return ax
    require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]


def tidy_axes(ax: Axes, loc: Literal["best", "upper left"] | None = "best", *, frame: bool = False) -> Axes:
    """Take off the lines that carry nothing; no legend for None, framed where it lies on colours."""
    ax.spines[["top", "right"]].set_visible(False)
    if loc is not None:
        ax.legend(frameon=frame, framealpha=0.85, edgecolor="none", fontsize="small", loc=loc)
    return ax


def circle(ax: Axes, points: np.ndarray, relevance: np.ndarray, centres: np.ndarray | None) -> None:
    """Draw rows that are kept, of the points (n, 2), or centres (p, 2) that are no rows, circled."""
    label = f"vectors ({len(relevance)} of {len(points)})"
    if centres is not None:
        label = f"centres ({len(centres)})"
    found = points[relevance] if centres is None else centres
    ax.plot(*found.T, "o", ms=10, mfc="none", mec=VECTOR, mew=1.7, label=label)


def final_step(model: BaseEstimator) -> BaseModel:
    """Return the fitted estimator itself, or the last one of a pipeline."""
    final = model[-1] if isinstance(model, Pipeline) else model
    check_is_fitted(final)
    return final


def moved_centres(model: BaseEstimator) -> np.ndarray | None:
    """Return centres (p, d) that are no training rows, in the units of X; None where they are rows."""
    final = final_step(model)
    centres = final.fitted_.centres
    if len(final.fitted_.kept_rows) or not len(centres):
        return None
    if final is model:
        return centres
    try:
        return model[:-1].inverse_transform(centres)
    except AttributeError:  # of a step that has no inverse
        return None


def check_single(model: BaseEstimator) -> None:
    """Refuse a model of several outputs."""
    fitted = final_step(model).fitted_
    if fitted.classifier is None and not fitted.single:
        raise ValueError("the model has several outputs; fit one output to draw it")


def require_matplotlib() -> None:
    """Say which extra brings matplotlib where it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(MISSING) from error
