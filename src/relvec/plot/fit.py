"""A fitted function of one or two inputs, and predictions against what was observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier

from relvec.plot.axes import (
    CLASSES,
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

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = RVR(width=1.0).fit(X, np.sin(X[:, 0]))
    >>> from relvec.plot import new_figure
    >>> display = FitDisplay.from_estimator(model, X, np.sin(X[:, 0]), ax=new_figure().subplots())
    >>> display.ax_.get_xlabel()
    'x'
    """

    def __init__(
        self, x: np.ndarray, mean: np.ndarray, std: np.ndarray, X: np.ndarray, y: np.ndarray, relevance: np.ndarray,
        truth: np.ndarray | None = None, centres: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.x, self.mean, self.std, self.X, self.y, self.relevance, self.truth = x, mean, std, X, y, relevance, truth
        self.centres = centres

    @classmethod
    def from_estimator(
        cls, model: BaseEstimator, X: ArrayLike, y: ArrayLike, *,
        truth: Callable[[np.ndarray], np.ndarray] | None = None, n_std: float = 2.0, ax: Axes | None = None,
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
    model: BaseEstimator, X: ArrayLike, y: ArrayLike, ax: Axes | None = None, *,
    truth: Callable[[np.ndarray], np.ndarray] | None = None, n_std: float = 2.0,
) -> Axes:  # fmt: skip
    """Draw a `FitDisplay`, with the same parameters, and return its axes.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR, plot
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0]))
    >>> plot.plot_fit(model, X, np.sin(X[:, 0]), plot.new_figure().subplots(), n_std=1.0).get_ylabel()
    'y'
    """
    return FitDisplay.from_estimator(model, X, y, truth=truth, n_std=n_std, ax=ax).ax_


def plot_predictions(
    model: BaseEstimator, X: ArrayLike, y: ArrayLike, ax: Axes | None = None, *, n_std: float = 2.0
) -> Axes:
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


class SurfaceDisplay:
    """A fitted function of two inputs: the mean of a regressor, or the regions and probabilities of a classifier.

    Make one with `from_estimator`; `plot` draws it once more.

    Attributes
    ----------
    x0, x1 : (n_grid,) the grid.
    surface : (n_grid, n_grid) mean of a regressor, probability of the second of two classes, or of the most probable
        of more.
    region : (n_grid, n_grid) place of the most probable class in `classes`, or None.
    X, y : (n, 2) and (n,) the data.
    relevance : (r,) rows of the relevance vectors.
    classes : (K,) labels, or None.
    centres : (p, 2) centres that are no training rows, or None.
    ax_, figure_ : where it was drawn last.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR, plot
    >>> X = np.random.default_rng(0).uniform(size=(20, 2))
    >>> model = RVR(width=1.0, noise_variance=0.01).fit(X, X[:, 0] * X[:, 1])
    >>> ax = plot.new_figure().subplots()
    >>> plot.SurfaceDisplay.from_estimator(model, X, X[:, 0] * X[:, 1], n_grid=10, ax=ax).surface.shape
    (10, 10)
    """

    def __init__(
        self, x0: np.ndarray, x1: np.ndarray, surface: np.ndarray, region: np.ndarray | None, X: np.ndarray,
        y: np.ndarray, relevance: np.ndarray, classes: np.ndarray | None, centres: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.x0, self.x1, self.surface, self.region = x0, x1, surface, region
        self.X, self.y, self.relevance, self.classes, self.centres = X, y, relevance, classes, centres

    @classmethod
    def from_estimator(
        cls,
        model: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_grid: int = 150,
        margin: float = 0.08,
        ax: Axes | None = None,
    ) -> SurfaceDisplay:
        """Evaluate a model on a grid and draw it.

        Parameters
        ----------
        model : fitted regressor or classifier of two inputs, or a pipeline that ends in one
        X : array-like (n, 2), the training inputs
        y : array-like (n,), the training targets
        n_grid : int, default 150
            Points of the grid along each input.
        margin : float, default 0.08
            How far the grid reaches beyond the data, as a part of their range.
        ax : matplotlib axes, optional

        Returns
        -------
        display : SurfaceDisplay

        Examples
        --------
        >>> from sklearn.datasets import make_moons
        >>> from relvec import RVC, plot
        >>> X, y = make_moons(60, noise=0.2, random_state=0)
        >>> model = RVC(width=1.0).fit(X, y)
        >>> plot.SurfaceDisplay.from_estimator(model, X, y, n_grid=20, ax=plot.new_figure().subplots()).surface.shape
        (20, 20)
        """
        check_single(model)
        X, y = np.asarray(X, dtype=float), np.asarray(y)
        if X.ndim != 2 or X.shape[1] != 2 or y.shape != (len(X),):
            raise ValueError(
                f"a surface needs two inputs and one target, (n, 2) and (n,); got X {X.shape}, y {y.shape}"
            )
        reach = margin * np.ptp(X, axis=0)
        x0, x1 = (np.linspace(a, b, n_grid) for a, b in zip(X.min(axis=0) - reach, X.max(axis=0) + reach, strict=True))
        points = np.column_stack([axis.ravel() for axis in np.meshgrid(x0, x1)])
        final, region, classes = final_step(model), None, None
        if is_classifier(final):
            proba, classes = model.predict_proba(points), final.classes_
            surface = proba[:, 1] if len(classes) == 2 else proba.max(axis=1)
            region = proba.argmax(axis=1).reshape(n_grid, n_grid)
        else:
            surface = model.predict(points)
        shape = (n_grid, n_grid)
        centres = moved_centres(model)
        return cls(x0, x1, surface.reshape(shape), region, X, y, final.fitted_.kept_rows, classes, centres).plot(ax)

    def plot(self, ax: Axes | None = None) -> SurfaceDisplay:
        """Draw into `ax`, or into new axes."""
        ax = axes_or_new(ax)
        if self.classes is None:
            shades = ax.contourf(self.x0, self.x1, self.surface, levels=15, cmap="viridis", alpha=0.85)
            ax.figure.colorbar(shades, ax=ax, label="mean")
            ax.plot(*self.X.T, ".", color="white", mec=TRUTH, mew=0.4, ms=7, label="data")
        else:
            self._plot_classes(ax)
        circle(ax, self.X, self.relevance, self.centres)
        ax.set(xlabel="x1", ylabel="x2")
        self.ax_, self.figure_ = tidy_axes(ax, frame=True), ax.figure
        return self

    def _plot_classes(self, ax: Axes) -> None:
        from matplotlib.colors import ListedColormap

        assert self.classes is not None and self.region is not None
        colours = [CLASSES[k % len(CLASSES)] for k in range(len(self.classes))]
        extent = (self.x0[0], self.x0[-1], self.x1[0], self.x1[-1])
        sure = self.surface if len(colours) > 2 else np.maximum(self.surface, 1 - self.surface)
        ax.imshow(self.region, extent=extent, origin="lower", aspect="auto", cmap=ListedColormap(colours),
                  vmin=-0.5, vmax=len(colours) - 0.5, alpha=0.08 + 0.3 * (sure - sure.min()),
                  interpolation="nearest")  # fmt: skip
        if len(colours) == 2:
            lines = ax.contour(self.x0, self.x1, self.surface, levels=[0.1, 0.5, 0.9], colors=TRUTH, linewidths=1.0,
                               linestyles=["dotted", "solid", "dotted"])  # fmt: skip
            ax.clabel(lines, fmt="%g", fontsize="small")
        for k, (label, colour) in enumerate(zip(self.classes, colours, strict=True)):
            ax.plot(*self.X[self.y == label].T, "os^Dv<>p"[k % 8], color=colour, mec="white", mew=0.4, ms=5,
                    label=str(label))  # fmt: skip
