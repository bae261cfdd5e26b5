"""A fitted function of one input, and predictions against what was observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from relvec.plot.axes import (
    DASHED,
    LINE,
    POINT,
    TRUTH,
    VECTOR,
    axes_or_new,
    check_single,
    circle,
    final_step,
    moved_centres,
    tidy_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class FitDisplay:
    """The fitted function of one input with error bars, the data, and the relevance vectors circled.

    Make one with `from_estimator`; `plot` draws it once more.

    Attributes
    ----------
    x, mean, std : (n_grid,) the fitted function on a grid, and the standard deviation of a new target.
    X, y : (n,) the data.
    relevance : (r,) rows of the relevance vectors.
    truth : (n_grid,) the function behind the data, or None.
    centres : (p, 2) centres that are no training rows, with the mean there, or None.
    ax_, figure_ : where it was drawn last.
    """

    def __init__(
        self, x: np.ndarray, mean: np.ndarray, std: np.ndarray, X: np.ndarray, y: np.ndarray, relevance: np.ndarray,
        truth: np.ndarray | None = None, centres: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.x, self.mean, self.std, self.X, self.y, self.relevance, self.truth = x, mean, std, X, y, relevance, truth
        self.centres = centres

    @classmethod
    def from_estimator(
        cls, model: Any, X: ArrayLike, y: ArrayLike, *, truth: Callable[[np.ndarray], np.ndarray] | None = None,
        n_std: float = 2.0, ax: Axes | None = None,
    ) -> FitDisplay:  # fmt: skip
        """Evaluate a model on a grid and draw it.

        Parameters
        ----------
        model : fitted regressor of one input and one output, or a pipeline that ends in one
        X : array-like (n, 1), the training inputs
        y : array-like (n,), the training targets
        truth : function of X (n, 1) returning (n,), optional
            The function behind the data, drawn beneath the fit.
        n_std : float, default 2
            Half width of the band in standard deviations of a new target.
        ax : matplotlib axes, optional

        Returns
        -------
        display : FitDisplay

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import RVR, plot
        >>> X = np.linspace(0.0, 6.0, 30)[:, None]
        >>> model = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0]))
        >>> plot.FitDisplay.from_estimator(model, X, np.sin(X[:, 0]), ax=plot.new_figure().subplots()).mean.shape
        (500,)
        """
        check_single(model)
        X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        if X.ndim != 2 or X.shape[1] != 1 or y.shape != (len(X),):
            raise ValueError(
                f"plot_fit draws one input and one target, (n, 1) and (n,); got X {X.shape} and y {y.shape}"
            )
        grid = np.linspace(X.min(), X.max(), 500)[:, None]
        mean, std = model.predict(grid, return_std=True)
        behind = None if truth is None else np.asarray(truth(grid))
        centres = moved_centres(model)
        if centres is not None:
            centres = np.column_stack([centres, model.predict(centres)])
        rows = final_step(model).fitted_.kept_rows
        return cls(grid[:, 0], mean, std, X[:, 0], y, rows, behind, centres).plot(ax, n_std=n_std)

    def plot(self, ax: Axes | None = None, *, n_std: float = 2.0) -> FitDisplay:
        """Draw into `ax`, or into new axes, with a band of ``n_std`` standard deviations to either side."""
        ax, x = axes_or_new(ax), self.x
        low, high = self.mean - n_std * self.std, self.mean + n_std * self.std
        ax.fill_between(x, low, high, color=LINE, alpha=0.14, lw=0, label=f"±{n_std:g} standard deviations")
        if self.truth is not None:
            ax.plot(x, self.truth, color=TRUTH, lw=1.2, ls=DASHED, label="true function")
        ax.plot(self.X, self.y, ".", color=POINT, ms=5, label="data")
        ax.plot(x, self.mean, color=LINE, lw=2.0, label="fitted mean")
        circle(ax, np.column_stack([self.X, self.y]), self.relevance, self.centres)
        ax.set(xlabel="x", ylabel="y")
        ax.margins(x=0.02)
        self.ax_, self.figure_ = tidy_axes(ax), ax.figure
        return self


def plot_fit(
    model: Any, X: ArrayLike, y: ArrayLike, ax: Axes | None = None, *,
    truth: Callable[[np.ndarray], np.ndarray] | None = None, n_std: float = 2.0,
) -> Axes:  # fmt: skip
    """Draw a `FitDisplay`, with the same parameters, and return its axes."""
    return FitDisplay.from_estimator(model, X, y, truth=truth, n_std=n_std, ax=ax).ax_


def plot_predictions(model: Any, X: ArrayLike, y: ArrayLike, ax: Axes | None = None, *, n_std: float = 2.0) -> Axes:
    """Draw predicted against observed targets with error bars; bars that miss the diagonal are coloured.

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

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR, plot
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0]))
    >>> plot.plot_predictions(model, X, np.sin(X[:, 0]), plot.new_figure().subplots()).get_xlabel()
    'observed'
    """
    check_single(model)
    mean, std = model.predict(X, return_std=True)
    return draw_predictions(np.asarray(y, dtype=float), mean, std, ax, n_std=n_std)


def draw_predictions(
    y: np.ndarray, mean: np.ndarray, std: np.ndarray, ax: Axes | None = None, *, n_std: float = 2.0
) -> Axes:
    """Draw predictions against observed targets, from y, mean and std (n,)."""
    if y.shape != mean.shape:
        raise ValueError(f"y must hold one observed target per row, shape {mean.shape}; got {y.shape}")
    ax = axes_or_new(ax)
    held = np.abs(y - mean) <= n_std * std
    ends = [y.min(), y.max()]
    ax.plot(ends, ends, color=TRUTH, lw=1.0, ls=DASHED, label="predicted = observed")
    for chosen, colour, what in ((held, LINE, "bar holds the target"), (~held, VECTOR, "bar misses it")):
        low, high = (mean - n_std * std)[chosen], (mean + n_std * std)[chosen]
        ax.vlines(y[chosen], low, high, color=colour, lw=0.8, alpha=0.35)
        label = f"{what} ({chosen.sum()} of {len(y)})"
        ax.plot(y[chosen], mean[chosen], "o", ms=4.5, mec="white", mew=0.5, color=colour, label=label)
    ax.set(xlabel="observed", ylabel=f"predicted ±{n_std:g} standard deviations")
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.15 * (top - bottom))  # room for the legend
    return tidy_axes(ax, loc="upper left")
