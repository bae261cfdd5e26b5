"""Pictures of fitted models. They need matplotlib (``pip install 'relvec[plot]'``), imported when a picture is drawn.

Every function draws into the axes it is given, or into new ones, and returns them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

__all__ = ["new_figure", "plot_fit", "plot_predictions"]

POINT, LINE, VECTOR, TRUTH = "#8a8f98", "#1f5fa8", "#d1495b", "#2b2d33"
MISSING = "pictures need matplotlib, which is not installed: pip install 'relvec[plot]'"


def new_figure(width: float = 6.4, height: float = 4.0) -> Any:
    """An empty matplotlib figure, in inches, that needs no screen: save it with ``figure.savefig(path)``."""
    _require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plot_fit(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    ax: Any = None,
    *,
    truth: Callable[[np.ndarray], np.ndarray] | None = None,
    n_std: float = 2.0,
) -> Any:
    """The fitted function of one input, its error bars, the data, and the relevance vectors circled.

    Parameters
    ----------
    model : fitted RelevanceVectorRegressor of one input and one output
    X : array-like (n, 1), the training inputs
    y : array-like (n,), the training targets
    ax : matplotlib axes, optional
    truth : function of X (n, 1) returning (n,), optional
        The function behind the data, drawn beneath the fit.
    n_std : float, default 2
        Half width of the band in standard deviations of a new target.

    Returns
    -------
    ax : matplotlib axes
    """
    _check_single(model)
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    if X.ndim != 2 or X.shape[1] != 1 or y.shape != (len(X),):
        raise ValueError(f"plot_fit draws one input and one target, (n, 1) and (n,); got X {X.shape} and y {y.shape}")
    ax = _axes(ax)
    grid = np.linspace(X.min(), X.max(), 500)[:, None]
    mean, std = model.predict(grid, return_std=True)
    x, low, high = grid[:, 0], mean - n_std * std, mean + n_std * std
    ax.fill_between(x, low, high, color=LINE, alpha=0.14, lw=0, label=f"±{n_std:g} standard deviations")
    if truth is not None:
        ax.plot(x, truth(grid), color=TRUTH, lw=1.2, ls=(0, (4, 3)), label="true function")
    ax.plot(X[:, 0], y, ".", color=POINT, ms=5, label="data")
    ax.plot(x, mean, color=LINE, lw=2.0, label="fitted mean")
    rows = model.relevance_
    _circle(ax, X[rows, 0], y[rows], f"relevance vectors ({len(rows)} of {len(X)})")
    ax.set(xlabel="x", ylabel="y")
    ax.margins(x=0.02)
    return _finished(ax)


def plot_predictions(model: Any, X: ArrayLike, y: ArrayLike, ax: Any = None, *, n_std: float = 2.0) -> Any:
    """Predicted against observed targets with error bars; bars that miss the diagonal are coloured.

    Parameters
    ----------
    model : fitted regressor of one output whose ``predict`` takes ``return_std``, or a pipeline that ends in one
    X : array-like (n, n_features), new inputs
    y : array-like (n,), what was observed there
    ax : matplotlib axes, optional
    n_std : float, default 2
        Half length of the bars in standard deviations of a new target.

    Returns
    -------
    ax : matplotlib axes
    """
    _check_single(model)
    y = np.asarray(y, dtype=float)
    mean, std = model.predict(X, return_std=True)
    if y.shape != mean.shape:
        raise ValueError(f"y must hold one observed target a row, shape {mean.shape}; got {y.shape}")
    ax = _axes(ax)
    held = np.abs(y - mean) <= n_std * std
    ends = [y.min(), y.max()]
    ax.plot(ends, ends, color=TRUTH, lw=1.0, ls=(0, (4, 3)), label="predicted = observed")
    for chosen, colour, what in ((held, LINE, "bar holds the target"), (~held, VECTOR, "bar misses it")):
        low, high = (mean - n_std * std)[chosen], (mean + n_std * std)[chosen]
        ax.vlines(y[chosen], low, high, color=colour, lw=0.8, alpha=0.35)
        label = f"{what} ({chosen.sum()} of {len(y)})"
        ax.plot(y[chosen], mean[chosen], "o", ms=4.5, mec="white", mew=0.5, color=colour, label=label)
    ax.set(xlabel="observed", ylabel=f"predicted ±{n_std:g} standard deviations")
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.15 * (top - bottom))  # room for the legend
    return _finished(ax, loc="upper left")


def _circle(ax: Any, x: ArrayLike, y: ArrayLike, label: str) -> None:
    ax.plot(x, y, "o", ms=10, mfc="none", mec=VECTOR, mew=1.7, label=label)


def _check_single(model: Any) -> None:
    final = model[-1] if isinstance(model, Pipeline) else model
    check_is_fitted(final)
    if np.ndim(getattr(final, "noise_variance_", 0.0)) > 0:
        raise ValueError("the model has several outputs; fit one output to draw it")


def _axes(ax: Any) -> Any:
    """`ax`, or the axes of a new figure known to pyplot, which notebooks show."""
    if ax is not None:
        return ax
    _require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]


def _finished(ax: Any, loc: str = "best") -> Any:
    """Axes without the lines that carry nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", loc=loc)
    return ax


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(MISSING) from error
