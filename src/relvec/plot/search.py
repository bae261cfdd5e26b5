"""Evidence and size by step of a search, and of the best model of every size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator

from relvec.plot.axes import LINE, VECTOR, axes_or_new, final_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from relvec.estimators.path import RelevancePath


class HistoryDisplay:
    """Evidence and size of the model by step of the solver.

    Make one with `from_estimator`; `plot` draws it once more.

    Attributes
    ----------
    evidence : (n_steps,) the objective after each step.
    size : (n_steps,) number of functions in the model.
    ax_, size_ax_, figure_ : where it was drawn last: the axes of the evidence and of the size.
    """

    def __init__(self, evidence: np.ndarray, size: np.ndarray) -> None:
        self.evidence, self.size = evidence, size

    @classmethod
    def from_estimator(cls, model: BaseEstimator, *, output: int = 0, ax: Axes | None = None) -> HistoryDisplay:
        """Draw the history of a fit.

        Parameters
        ----------
        model : fitted regressor or classifier, or a pipeline that ends in one
        output : int, default 0
            Which output, or which class of a one-vs-rest classifier.
        ax : matplotlib axes, optional

        Returns
        -------
        display : HistoryDisplay

        Examples
        --------
        >>> from relvec import RVR, plot
        >>> model = RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
        >>> display = plot.HistoryDisplay.from_estimator(model, ax=plot.new_figure().subplots())
        >>> int(display.size[-1]) == len(model.weights_)
        True
        """
        histories = final_step(model).fitted_.histories
        if not histories:
            raise ValueError("a process is not found by a search: see selection_ for the kernels compared")
        history = histories[output]
        if not len(history):
            raise ValueError("this model has no history: held-out rows chose its size, see choice_ for what they said")
        return cls(history["objective"], history["size"]).plot(ax)

    def plot(self, ax: Axes | None = None) -> HistoryDisplay:
        """Draw into `ax`, or into new axes."""
        ax, steps = axes_or_new(ax), np.arange(1, len(self.evidence) + 1)
        (first,) = ax.plot(steps, self.evidence, color=LINE, lw=1.8, label="log evidence")
        twin = ax.twinx()
        (second,) = twin.step(steps, self.size, where="post", color=VECTOR, lw=1.4, label="functions in the model")
        # A search rises steeply at first: show where it ends, not where it began.
        low, high = np.quantile(self.evidence, 0.1), self.evidence.max()
        if np.isfinite([low, high]).all() and high > low and self.evidence.min() < low - 3 * (high - low):
            ax.set_ylim(low - 0.1 * (high - low), high + 0.1 * (high - low))
        ax.set(xlabel="step")
        ax.set_ylabel("log evidence", color=LINE)
        twin.set_ylabel("functions", color=VECTOR)
        twin.set_ylim(bottom=0)
        for axis in (ax, twin):
            axis.spines["top"].set_visible(False)
        ax.legend(handles=[first, second], frameon=False, fontsize="small", loc="lower right")
        self.ax_, self.size_ax_, self.figure_ = ax, twin, ax.figure
        return self


class RelevancePathDisplay:
    """Log evidence, and log density at rows that took no part, by the number of functions.

    Make one with `from_path`; `plot` draws it once more.

    Attributes
    ----------
    sizes, log_evidence, log_density : (K,) as in `relvec.estimators.path.RelevancePath`.
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
