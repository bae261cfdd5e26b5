"""Evidence and density of the best model of every size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relvec.plot.axes import LINE, VECTOR, axes_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from relvec.estimators.explain.path import RelevancePath


class RelevancePathDisplay:
    """Log evidence, and log density at rows that took no part, by the number of functions.

    Make one with `from_path`; `plot` draws it once more.

    Attributes
    ----------
    sizes, log_evidence, log_density : (K,) as in `relvec.estimators.explain.path.RelevancePath`.
    ax_, density_ax_, figure_ : where it was drawn last; `density_ax_` is None without densities.
    """

    def __init__(self, sizes: np.ndarray, log_evidence: np.ndarray, log_density: np.ndarray) -> None:
        self.sizes, self.log_evidence, self.log_density = sizes, log_evidence, log_density

    @classmethod
    def from_path(cls, path: RelevancePath, *, ax: Axes | None = None) -> RelevancePathDisplay:
        """Draw what `relvec.relevance_path` found.

        Parameters
        ----------
        path : RelevancePath
        ax : matplotlib axes, optional

        Returns
        -------
        display : RelevancePathDisplay

        Examples
        --------
        >>> from relvec import SparseBayesianRegressor, plot, relevance_path
        >>> X = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [4.0, 1.0]]
        >>> path = relevance_path(X, [0.1, 0.9, 2.1, 2.9, 4.1], SparseBayesianRegressor(), n_folds=0)
        >>> display = plot.RelevancePathDisplay.from_path(path, ax=plot.new_figure().subplots())
        >>> display.density_ax_ is None
        True
        """
        return cls(path.sizes, path.log_evidence, path.log_density).plot(ax)

    def plot(self, ax: Axes | None = None) -> RelevancePathDisplay:
        """Draw into `ax`, or into new axes."""
        ax = axes_or_new(ax)
        lines = ax.plot(self.sizes, self.log_evidence, "o-", color=LINE, ms=4, lw=1.6, label="log evidence")
        ax.set_xlabel("functions, the constant not counted")
        ax.set_ylabel("log evidence", color=LINE)
        ax.locator_params(axis="x", integer=True)
        self.density_ax_ = None
        if not np.isnan(self.log_density).all():
            twin = self.density_ax_ = ax.twinx()
            lines += twin.plot(self.sizes, self.log_density, "s-", color=VECTOR, ms=4, lw=1.4,
                               label="log density at rows that took no part")  # fmt: skip
            best = int(np.nanargmax(self.log_density))
            twin.plot(self.sizes[best], self.log_density[best], "o", ms=11, mfc="none", mec=VECTOR, mew=1.7)
            twin.set_ylabel("mean log density", color=VECTOR)
            twin.spines["top"].set_visible(False)
        ax.spines["top"].set_visible(False)
        ax.legend(handles=lines, frameon=False, fontsize="small", loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self
