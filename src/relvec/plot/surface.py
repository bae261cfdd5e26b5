"""A fitted function of two inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier

from relvec.plot.axes import CLASSES, TRUTH, axes_or_new, check_single, circle, final_step, moved_centres, tidy_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    """

    def __init__(
        self, x0: np.ndarray, x1: np.ndarray, surface: np.ndarray, region: np.ndarray | None, X: np.ndarray,
        y: np.ndarray, relevance: np.ndarray, classes: np.ndarray | None, centres: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.x0, self.x1, self.surface, self.region = x0, x1, surface, region
        self.X, self.y, self.relevance, self.classes, self.centres = X, y, relevance, classes, centres

    @classmethod
    def from_estimator(
        cls, model: Any, X: ArrayLike, y: ArrayLike, *, n_grid: int = 150, margin: float = 0.08, ax: Axes | None = None
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
