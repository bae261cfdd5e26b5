"""Residuals of a regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier

from relvec.plot.axes import DASHED, LINE, POINT, TRUTH, axes_or_new, check_single, final_step, tidy_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ResidualsDisplay:
    """Observed less predicted, against the prediction, with the band that should hold most of them.

    Make one with `from_estimator` or `from_predictions`; `plot` draws it once more.

    Attributes
    ----------
    mean, std : (n,) predictions and their standard deviations.
    residual : (n,)
    ax_, figure_ : where it was drawn last.
    """

    def __init__(self, mean: np.ndarray, std: np.ndarray, residual: np.ndarray) -> None:
        self.mean, self.std, self.residual = mean, std, residual

    @classmethod
    def from_estimator(cls, model: Any, X: ArrayLike, y: ArrayLike, *, ax: Axes | None = None) -> ResidualsDisplay:
        """Predict and draw the residuals.

        Parameters
        ----------
        model : fitted regressor of one output, or a pipeline that ends in one
        X : array-like (n, n_features)
        y : array-like (n,)
        ax : matplotlib axes, optional

        Returns
        -------
        display : ResidualsDisplay

        Examples
        --------
        >>> from relvec import RVR, plot
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9]
        >>> model = RVR(kernel=None, basis="linear").fit(X, y)
        >>> plot.ResidualsDisplay.from_estimator(model, X, y, ax=plot.new_figure().subplots()).residual.shape
        (4,)
        """
        check_single(model)
        if is_classifier(final_step(model)):
            raise ValueError("a classifier has no residuals: see CalibrationDisplay, or scikit-learn's "
                             "ConfusionMatrixDisplay")  # fmt: skip
        return cls.from_predictions(np.asarray(y, dtype=float), *model.predict(X, return_std=True), ax=ax)

    @classmethod
    def from_predictions(
        cls, y: np.ndarray, mean: np.ndarray, std: np.ndarray, *, ax: Axes | None = None
    ) -> ResidualsDisplay:
        """Draw from targets, predictions and their standard deviations, (n,) each.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import plot
        >>> ax = plot.new_figure().subplots()
        >>> plot.ResidualsDisplay.from_predictions(np.ones(2), np.zeros(2), np.ones(2), ax=ax).residual
        array([1., 1.])
        """
        if y.shape != mean.shape:
            raise ValueError(f"y must hold one observed target per row, shape {mean.shape}; got {y.shape}")
        return cls(mean, std, y - mean).plot(ax)

    def plot(self, ax: Axes | None = None, *, n_std: float = 2.0) -> ResidualsDisplay:
        """Draw into `ax`, or into new axes, with a band of ``n_std`` standard deviations to either side."""
        ax, order = axes_or_new(ax), np.argsort(self.mean)
        x, std = self.mean[order], self.std[order]
        held = np.mean(np.abs(self.residual) <= n_std * self.std)
        label = f"±{n_std:g} standard deviations (hold {held:.0%})"
        ax.fill_between(x, -n_std * std, n_std * std, color=LINE, alpha=0.14, lw=0, label=label)
        ax.axhline(0.0, color=TRUTH, lw=1.0, ls=DASHED)
        ax.plot(self.mean, self.residual, ".", color=POINT, ms=5, label="residual")
        ax.set(xlabel="predicted", ylabel="observed − predicted")
        bottom, top = ax.get_ylim()
        ax.set_ylim(bottom, top + 0.18 * (top - bottom))  # room for the legend
        self.ax_, self.figure_ = tidy_axes(ax, loc="upper left"), ax.figure
        return self
