"""What a fit went through, what it rests on, and whether its error bars can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from relvec.plot._axes import DASHED, LINE, POINT, TRUTH, VECTOR, axes_or_new, check_single, final_step, finished

BINS = 10
LEVELS = np.arange(0.05, 1.0, 0.05)  # of the quantiles from which coverages 0.1, 0.2, ..., 0.9 are counted


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
    def from_estimator(cls, model: Any, *, output: int = 0, ax: Any = None) -> HistoryDisplay:
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
        history = final_step(model).history_
        history = history[output] if isinstance(history, list) else history
        return cls(history["objective"], history["size"]).plot(ax)

    def plot(self, ax: Any = None) -> HistoryDisplay:
        """Draw into the axes given, or into new ones.

        Parameters
        ----------
        ax : matplotlib axes, optional

        Returns
        -------
        self : HistoryDisplay
        """
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


class FeatureRelevanceDisplay:
    """How much each input matters, as bars, the largest first.

    Make one with `from_estimator`; `plot` draws it once more.

    Attributes
    ----------
    relevance : (d,)
    error : (d,) its standard deviation, or None.
    names : d names.
    meaning : what the bars are.
    ax_, figure_ : where it was drawn last.
    """

    def __init__(self, relevance: ArrayLike, names: Sequence[str], error: ArrayLike | None = None,
                 meaning: str = "relevance") -> None:  # fmt: skip
        self.relevance, self.names, self.meaning = np.asarray(relevance, dtype=float), list(names), meaning
        self.error = None if error is None else np.asarray(error, dtype=float)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        feature_names: Sequence[str] | None = None,
        n_repeats: int = 10,
        random_state: int | None = 0,
        most: int = 20,
        ax: Any = None,
    ) -> FeatureRelevanceDisplay:
        """Draw the relevance a model learned with its scales, or how much worse it is when an input is shuffled.

        Parameters
        ----------
        model : fitted regressor or classifier, or a pipeline that ends in one
        X : array-like (n, n_features), optional
        y : array-like (n,), optional
            Where the model has no ``feature_relevance_``, data on which each input is shuffled in turn; the bars are
            the losses of the model's score (`sklearn.inspection.permutation_importance`).
        feature_names : d names, optional
            By default those seen in fit, or x1, x2, ...
        n_repeats : int, default 10
            How often each input is shuffled.
        random_state : int, optional
            Of the shuffling.
        most : int, default 20
            Most bars.
        ax : matplotlib axes, optional

        Returns
        -------
        display : FeatureRelevanceDisplay

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import RVR, plot
        >>> X = np.random.default_rng(0).uniform(-1, 1, (40, 2))
        >>> model = RVR(width=[1.0, 10.0]).fit(X, X[:, 0] ** 2 + 0.1 * np.sin(50 * X[:, 1]))
        >>> ax = plot.new_figure().subplots()
        >>> display = plot.FeatureRelevanceDisplay.from_estimator(model, X, X[:, 0] ** 2, ax=ax)
        >>> display.names[int(np.argmax(display.relevance))]
        'x1'
        """
        final = final_step(model)
        relevance = getattr(final, "feature_relevance_", None)
        error, meaning = None, "relevance (squared inverse width × variance, as a share)"
        if relevance is None or (
            isinstance(model, Pipeline) and len(relevance) != getattr(model, "n_features_in_", -1)
        ):
            if X is None or y is None:
                raise ValueError("the model has learned no feature_relevance_ (it has one width for all inputs): pass "
                                 "X and y, on which each input is shuffled")  # fmt: skip
            from sklearn.inspection import permutation_importance

            found = permutation_importance(model, X, y, n_repeats=n_repeats, random_state=random_state)
            relevance, error = found.importances_mean, found.importances_std
            meaning = "loss of score when the input is shuffled"
        if feature_names is None:
            feature_names = getattr(model, "feature_names_in_", [f"x{i + 1}" for i in range(len(relevance))])
        return cls(relevance, [str(name) for name in feature_names], error, meaning).plot(ax, most=most)

    def plot(self, ax: Any = None, *, most: int = 20) -> FeatureRelevanceDisplay:
        """Draw into the axes given, or into new ones.

        Parameters
        ----------
        ax : matplotlib axes, optional
        most : int, default 20
            Most bars.

        Returns
        -------
        self : FeatureRelevanceDisplay
        """
        ax = axes_or_new(ax)
        order = np.argsort(-self.relevance, kind="stable")[:most][::-1]
        error = None if self.error is None else self.error[order]
        ax.barh(np.arange(len(order)), self.relevance[order], xerr=error, color=LINE, ecolor=TRUTH, height=0.66)
        # Names come from data: a dollar sign is no mathematics.
        ax.set_yticks(np.arange(len(order)), [self.names[i] for i in order], parse_math=False)
        ax.set(xlabel=self.meaning)
        ax.axvline(0.0, color=TRUTH, lw=0.8)
        ax.margins(y=0.02)
        self.ax_, self.figure_ = finished(ax, loc=None), ax.figure
        return self


class CalibrationDisplay:
    """Whether probabilities and intervals come true: the share promised against the share observed.

    For a regressor, the coverage of central intervals; for a classifier, the frequency of a class among rows given
    about the same probability. On the diagonal, promises are kept; intervals below it mean error bars too narrow.
    Make one with `from_estimator` or one of the other constructors; `plot` draws it once more.

    Attributes
    ----------
    promised, observed : (k,) shares.
    error : (k,) binomial standard error of `observed`.
    counts : (k,) rows behind each point.
    classes : whether these are class probabilities.
    ax_, figure_ : where it was drawn last.
    """

    def __init__(self, promised: np.ndarray, observed: np.ndarray, counts: np.ndarray, classes: bool) -> None:
        self.promised, self.observed, self.counts, self.classes = promised, observed, counts, classes
        self.error = np.sqrt(np.maximum(promised * (1 - promised), 1e-12) / counts)

    @classmethod
    def from_estimator(cls, model: Any, X: ArrayLike, y: ArrayLike, *, ax: Any = None) -> CalibrationDisplay:
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
        >>> plot.CalibrationDisplay.from_estimator(model, X, y, ax=plot.new_figure().subplots()).promised.round(1)
        array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
        """
        check_single(model)
        final = final_step(model)
        if is_classifier(final):
            return cls.from_probabilities(np.asarray(y), model.predict_proba(X), final.classes_, ax=ax)
        inputs = model[:-1].transform(X) if isinstance(model, Pipeline) and len(model) > 1 else X
        return cls.from_quantiles(np.asarray(y, dtype=float), final.predict_quantiles(inputs, LEVELS), ax=ax)

    @classmethod
    def from_quantiles(cls, y: np.ndarray, quantiles: np.ndarray, *, ax: Any = None) -> CalibrationDisplay:
        """From targets (n,) and their predicted quantiles (n, 19) at 0.05, 0.10, ..., 0.95.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import plot
        >>> y, quantiles = np.linspace(0.01, 0.99, 99), np.tile(np.arange(0.05, 1.0, 0.05), (99, 1))
        >>> display = plot.CalibrationDisplay.from_quantiles(y, quantiles, ax=plot.new_figure().subplots())
        >>> bool(np.all(np.abs(display.observed - display.promised) < 0.03))
        True
        """
        half = len(LEVELS) // 2
        inside = [(quantiles[:, half - k] <= y) & (y <= quantiles[:, half + k]) for k in range(1, half + 1)]
        promised = np.array([LEVELS[half + k] - LEVELS[half - k] for k in range(1, half + 1)])
        return cls(promised, np.mean(inside, axis=1), np.full(half, len(y)), classes=False).plot(ax)

    @classmethod
    def from_probabilities(
        cls, y: np.ndarray, proba: np.ndarray, classes: np.ndarray, *, ax: Any = None
    ) -> CalibrationDisplay:
        """From labels (n,) and probabilities (n, K) of the classes (K,), in bins of equal numbers of rows.

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
        promised, observed = (np.array([values[part].mean() for part in parts]) for values in (p, t))
        return cls(promised, observed, np.array([len(part) for part in parts]), classes=True).plot(ax)

    def plot(self, ax: Any = None) -> CalibrationDisplay:
        """Draw into the axes given, or into new ones.

        Parameters
        ----------
        ax : matplotlib axes, optional

        Returns
        -------
        self : CalibrationDisplay
        """
        ax = axes_or_new(ax)
        ax.plot([0, 1], [0, 1], color=TRUTH, lw=1.0, ls=DASHED, label="promises kept")
        what = "predicted probability" if self.classes else "coverage of the interval"
        ax.errorbar(self.promised, self.observed, yerr=2 * self.error, color=LINE, lw=1.6, marker="o", ms=5,
                    capsize=2, elinewidth=0.8, label="observed ±2 standard errors")  # fmt: skip
        ax.set(xlabel=f"{what}, promised", ylabel="share observed", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set_aspect("equal")
        self.ax_, self.figure_ = finished(ax, loc="upper left"), ax.figure
        return self


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
    def from_estimator(cls, model: Any, X: ArrayLike, y: ArrayLike, *, ax: Any = None) -> ResidualsDisplay:
        """Predict and draw what is left over.

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
    def from_predictions(cls, y: np.ndarray, mean: np.ndarray, std: np.ndarray, *, ax: Any = None) -> ResidualsDisplay:
        """From targets, predictions and their standard deviations, (n,) each.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import plot
        >>> ax = plot.new_figure().subplots()
        >>> plot.ResidualsDisplay.from_predictions(np.ones(2), np.zeros(2), np.ones(2), ax=ax).residual
        array([1., 1.])
        """
        if y.shape != mean.shape:
            raise ValueError(f"y must hold one observed target a row, shape {mean.shape}; got {y.shape}")
        return cls(mean, std, y - mean).plot(ax)

    def plot(self, ax: Any = None, *, n_std: float = 2.0) -> ResidualsDisplay:
        """Draw into the axes given, or into new ones.

        Parameters
        ----------
        ax : matplotlib axes, optional
        n_std : float, default 2
            Half width of the band in standard deviations of a new target.

        Returns
        -------
        self : ResidualsDisplay
        """
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
        self.ax_, self.figure_ = finished(ax, loc="upper left"), ax.figure
        return self
