"""Calibration of error bars and probabilities, and residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.pipeline import Pipeline

from relvec.plot.axes import DASHED, LINE, POINT, TRUTH, axes_or_new, check_single, final_step, tidy_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 10
LEVELS = np.arange(0.05, 1.0, 0.05)  # of the quantiles from which coverages 0.1, 0.2, ..., 0.9 are counted


class CalibrationDisplay:
    """Calibration of probabilities and intervals: nominal against observed shares.

    For a regressor, the coverage of central intervals; for a classifier, the frequency of a class among rows given
    about the same probability. On the diagonal they agree; intervals below it mean that the error bars are too narrow.
    Make one with `from_estimator` or one of the other constructors; `plot` draws it once more.

    Attributes
    ----------
    nominal, observed : (k,) shares.
    error : (k,) binomial standard error of `observed`.
    counts : (k,) rows behind each point.
    classes : whether these are class probabilities.
    ax_, figure_ : where it was drawn last.

    Examples
    --------
    >>> from relvec import RVC, plot
    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]], [0, 0, 1, 0, 1, 1]
    >>> model = RVC(width=2.0).fit(X, y)
    >>> display = plot.CalibrationDisplay.from_estimator(model, X, y, ax=plot.new_figure().subplots())
    >>> display.classes, display.observed.tolist()
    (True, [0.5])
    """

    def __init__(self, nominal: np.ndarray, observed: np.ndarray, counts: np.ndarray, classes: bool) -> None:
        self.nominal, self.observed, self.counts, self.classes = nominal, observed, counts, classes
        self.error = np.sqrt(np.maximum(nominal * (1 - nominal), 1e-12) / counts)

    @classmethod
    def from_estimator(
        cls, model: BaseEstimator, X: ArrayLike, y: ArrayLike, *, ax: Axes | None = None
    ) -> CalibrationDisplay:
        """Compare the predictions of a model with what was observed.

        Parameters
        ----------
        model : fitted regressor or classifier, or a pipeline that ends in one
        X : array-like (n, n_features), rows not used in the fit
        y : array-like (n,), their targets
        ax : matplotlib axes, optional

        Returns
        -------
        display : CalibrationDisplay

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import RVR, plot
        >>> X = np.linspace(0.0, 6.0, 50)[:, None]
        >>> y = np.sin(X[:, 0]) + np.random.default_rng(0).normal(0, 0.1, 50)
        >>> model = RVR(width=2.0).fit(X, y)
        >>> plot.CalibrationDisplay.from_estimator(model, X, y, ax=plot.new_figure().subplots()).nominal.round(1)
        array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
        """
        check_single(model)
        final = final_step(model)
        if is_classifier(final):
            return cls.from_probabilities(np.asarray(y), model.predict_proba(X), final.classes_, ax=ax)
        inputs = model[:-1].transform(X) if isinstance(model, Pipeline) and len(model) > 1 else X
        return cls.from_quantiles(np.asarray(y, dtype=float), final.predict_quantiles(inputs, LEVELS), ax=ax)

    @classmethod
    def from_quantiles(cls, y: np.ndarray, quantiles: np.ndarray, *, ax: Axes | None = None) -> CalibrationDisplay:
        """Draw from targets (n,) and their predicted quantiles (n, 19) at 0.05, 0.10, ..., 0.95.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import plot
        >>> y, quantiles = np.linspace(0.01, 0.99, 99), np.tile(np.arange(0.05, 1.0, 0.05), (99, 1))
        >>> display = plot.CalibrationDisplay.from_quantiles(y, quantiles, ax=plot.new_figure().subplots())
        >>> bool(np.all(np.abs(display.observed - display.nominal) < 0.03))
        True
        """
        half = len(LEVELS) // 2
        inside = [(quantiles[:, half - k] <= y) & (y <= quantiles[:, half + k]) for k in range(1, half + 1)]
        nominal = np.array([LEVELS[half + k] - LEVELS[half - k] for k in range(1, half + 1)])
        return cls(nominal, np.mean(inside, axis=1), np.full(half, len(y)), classes=False).plot(ax)

    @classmethod
    def from_probabilities(
        cls, y: np.ndarray, proba: np.ndarray, classes: np.ndarray, *, ax: Axes | None = None
    ) -> CalibrationDisplay:
        """Draw from labels (n,) and probabilities (n, K) of the classes (K,), in bins of equal numbers of rows.

        For two classes the second is counted; for more, every class of every row.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import plot
        >>> y, proba = np.array([0, 0, 1, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.1, 0.9]])
        >>> ax = plot.new_figure().subplots()
        >>> int(plot.CalibrationDisplay.from_probabilities(y, proba, np.array([0, 1]), ax=ax).counts.sum())
        4
        """
        member = np.equal.outer(y, classes)
        p, t = (proba[:, 1], member[:, 1]) if len(classes) == 2 else (proba.ravel(), member.ravel())
        order = np.argsort(p, kind="stable")
        parts = [part for part in np.array_split(order, min(BINS, max(1, len(y) // 5))) if len(part)]
        nominal, observed = (np.array([values[part].mean() for part in parts]) for values in (p, t))
        return cls(nominal, observed, np.array([len(part) for part in parts]), classes=True).plot(ax)

    def plot(self, ax: Axes | None = None) -> CalibrationDisplay:
        """Draw into `ax`, or into new axes."""
        ax = axes_or_new(ax)
        ax.plot([0, 1], [0, 1], color=TRUTH, lw=1.0, ls=DASHED, label="observed = nominal")
        what = "predicted probability" if self.classes else "nominal coverage of the interval"
        ax.errorbar(self.nominal, self.observed, yerr=2 * self.error, color=LINE, lw=1.6, marker="o", ms=5,
                    capsize=2, elinewidth=0.8, label="observed ±2 standard errors")  # fmt: skip
        ax.set(xlabel=what, ylabel="observed share", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set_aspect("equal")
        self.ax_, self.figure_ = tidy_axes(ax, loc="upper left"), ax.figure
        return self


class ResidualsDisplay:
    """Observed less predicted, against the prediction, with the band that should hold most of them.

    Make one with `from_estimator` or `from_predictions`; `plot` draws it once more.

    Attributes
    ----------
    mean, std : (n,) predictions and their standard deviations.
    residual : (n,)
    ax_, figure_ : where it was drawn last.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = RVR(width=1.0).fit(X, np.sin(X[:, 0]))
    >>> from relvec.plot import new_figure
    >>> ResidualsDisplay.from_estimator(model, X, np.sin(X[:, 0]), ax=new_figure().subplots()).residual.shape
    (30,)
    """

    def __init__(self, mean: np.ndarray, std: np.ndarray, residual: np.ndarray) -> None:
        self.mean, self.std, self.residual = mean, std, residual

    @classmethod
    def from_estimator(
        cls, model: BaseEstimator, X: ArrayLike, y: ArrayLike, *, ax: Axes | None = None
    ) -> ResidualsDisplay:
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
