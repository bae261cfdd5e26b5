"""Displays of a fit: the relevance of inputs, the steps of a search, and evidence over the width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from relvec.plot.axes import LINE, TRUTH, VECTOR, axes_or_new, final_step, tidy_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from relvec.estimators.path import RelevancePath
    from relvec.estimators.records import Fitted

BY_SLOPE = "share of the input in the squared slope of the fitted function"
BY_WIDTH = "relevance (squared inverse width × variance, as a share)"


def find_relevance(model: BaseEstimator) -> tuple[np.ndarray, str] | None:
    """Return the relevance of each input (d,) and its meaning in words; None where the fit has learned none.

    A process knows the slope of its function along each input. A relevance vector machine knows the widths that it
    learned; with one width for all, the share of an input is that of its variance, which is unrelated to the target.

    Examples
    --------
    >>> from relvec import RVR
    >>> find_relevance(RVR(width=1.0).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]], [0.0, 1.0, 2.0])) is None
    True
    """
    final = final_step(model)
    fitted = final.fitted_
    relevance, by_slope = fitted.feature_relevance, bool(fitted.compared)
    if relevance is None or _is_constant(fitted, relevance) or not (by_slope or np.ndim(fitted.width)):
        return None
    if isinstance(model, Pipeline) and len(relevance) != getattr(model, "n_features_in_", -1):
        return None  # the steps before the model make other inputs
    return np.asarray(relevance), BY_SLOPE if by_slope else BY_WIDTH


def _is_constant(fitted: Fitted, relevance: np.ndarray) -> bool:
    """Tell whether a model predicts one number: its inputs have equal shares."""
    names = [record.name for record in fitted.compared if record.share > 0.0]
    equal = len(relevance) > 1 and np.ptp(relevance) == 0.0
    return equal or "constant_target" in fitted.status or names == ["constant"]


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

    Examples
    --------
    >>> from relvec.plot import new_figure
    >>> display = FeatureRelevanceDisplay([0.2, 0.8], ["age", "dose"])
    >>> display.plot(new_figure().subplots()).names
    ['age', 'dose']
    """

    def __init__(self, relevance: ArrayLike, names: Sequence[str], error: ArrayLike | None = None,
                 meaning: str = "relevance") -> None:  # fmt: skip
        self.relevance, self.names, self.meaning = np.asarray(relevance, dtype=float), list(names), meaning
        self.error = None if error is None else np.asarray(error, dtype=float)

    @classmethod
    def from_estimator(
        cls, model: BaseEstimator, X: ArrayLike | None = None, y: ArrayLike | None = None, *,
        feature_names: Sequence[str] | None = None, n_repeats: int = 10, random_state: int | None = 0, most: int = 20,
        ax: Axes | None = None,
    ) -> FeatureRelevanceDisplay:  # fmt: skip
        """Draw the relevance that was learned, or how much worse the model is when an input is shuffled.

        Parameters
        ----------
        model : fitted regressor or classifier, or a pipeline that ends in one
        X : array-like (n, n_features), optional
        y : array-like (n,), optional
            Where the model has learned one width for all inputs, data on which each input is shuffled in turn; the
            bars are the losses of the model's score (`sklearn.inspection.permutation_importance`).
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
        learned, error = find_relevance(model), None
        if learned is not None:
            relevance, meaning = learned
        else:
            if X is None or y is None:
                raise ValueError("the fit has learned nothing about single inputs, as with one width for all: pass "
                                 "X and y, and each input is shuffled in turn")  # fmt: skip
            from sklearn.inspection import permutation_importance

            found = permutation_importance(model, X, y, n_repeats=n_repeats, random_state=random_state)
            relevance, error = found.importances_mean, found.importances_std
            meaning = "loss of score when the input is shuffled"
        if feature_names is None:
            feature_names = getattr(model, "feature_names_in_", [f"x{i + 1}" for i in range(len(relevance))])
        return cls(relevance, [str(name) for name in feature_names], error, meaning).plot(ax, most=most)

    def plot(self, ax: Axes | None = None, *, most: int = 20) -> FeatureRelevanceDisplay:
        """Draw into `ax`, or into new axes. At most ``most`` bars."""
        ax = axes_or_new(ax)
        order = np.argsort(-self.relevance, kind="stable")[:most][::-1]
        error = None if self.error is None else self.error[order]
        ax.barh(np.arange(len(order)), self.relevance[order], xerr=error, color=LINE, ecolor=TRUTH, height=0.66)
        # Names come from data: a dollar sign is no mathematics.
        ax.set_yticks(np.arange(len(order)), [self.names[i] for i in order], parse_math=False)
        ax.set(xlabel=self.meaning)
        ax.axvline(0.0, color=TRUTH, lw=0.8)
        ax.margins(y=0.02)
        self.ax_, self.figure_ = tidy_axes(ax, loc=None), ax.figure
        return self


class HistoryDisplay:
    """Evidence and size of the model by step of the solver.

    Make one with `from_estimator`; `plot` draws it once more.

    Attributes
    ----------
    evidence : (n_steps,) the objective after each step.
    size : (n_steps,) number of functions in the model.
    ax_, size_ax_, figure_ : where it was drawn last: the axes of the evidence and of the size.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = RVR(width=1.0).fit(X, np.sin(X[:, 0]))
    >>> from relvec.plot import new_figure
    >>> len(HistoryDisplay.from_estimator(model, ax=new_figure().subplots()).figure_.axes) > 0
    True
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
        >>> model = RVR(width=2.0, noise_variance=0.01).fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
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
    process_sizes, process_log_density : (P,) likewise, of processes with as many vectors.
    ax_, density_ax_, figure_ : where it was drawn last; `density_ax_` is None without densities.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import SparseBayesianRegressor, plot, relevance_path
    >>> X = np.random.default_rng(0).normal(size=(20, 3))
    >>> path = relevance_path(X, X[:, 0] - X[:, 2], SparseBayesianRegressor(), max_functions=2, n_folds=0)
    >>> plot.RelevancePathDisplay.from_path(path, ax=plot.new_figure().subplots()).sizes
    array([1, 2])
    """

    def __init__(
        self, sizes: np.ndarray, log_evidence: np.ndarray, log_density: np.ndarray, process_sizes: np.ndarray,
        process_log_density: np.ndarray,
    ) -> None:  # fmt: skip
        self.sizes, self.log_evidence, self.log_density = sizes, log_evidence, log_density
        self.process_sizes, self.process_log_density = process_sizes, process_log_density

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
        return cls(path.sizes, path.log_evidence, path.log_density, path.process_sizes, path.process_log_density).plot(
            ax
        )

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
            if len(self.process_sizes):
                lines += twin.plot(self.process_sizes, self.process_log_density, "^--", color="0.45", ms=4, lw=1.2,
                                   label="the same of a process with as many vectors")  # fmt: skip
            best = int(np.nanargmax(self.log_density))
            twin.plot(self.sizes[best], self.log_density[best], "o", ms=11, mfc="none", mec=VECTOR, mew=1.7)
            twin.set_ylabel("mean log density", color=VECTOR)
            twin.spines["top"].set_visible(False)
        ax.spines["top"].set_visible(False)
        ax.legend(handles=lines, frameon=False, fontsize="small", loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self
