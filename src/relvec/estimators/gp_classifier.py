"""Classification by a Gaussian process whose kernel the data choose."""

from __future__ import annotations

from typing import Any

from relvec.estimators.options import process_options
from relvec.estimators.predictions.classes import ClassPredictions
from relvec.estimators.process import Process, fit_class_process
from relvec.estimators.records import FittedProcess
from relvec.estimators.sources.classes import ClassRows
from relvec.runtime.arrays import PerRow, RowsLike, TargetsLike


class GPClassifier(ClassPredictions, ClassRows, Process):
    """Gaussian process classification: kernels are compared by the log density of held-out rows.

    A linear kernel and Gaussian ones, with one width or one for each input, are compared in five folds (fewer for large
    tables), and the best, or a sum of several, predicts; slope and moderation of its probabilities are learned from
    the same rows. Inputs are standardised inside: units do not matter. Choose it where probabilities matter more than
    size; `RelevanceVectorClassifier` keeps a handful of functions.

    Parameters
    ----------
    kernel : {"auto", "gaussian", "matern32", "matern52"} or such an object of `relvec.kernels`, default "auto"
        The covariance of the log-odds; "auto" compares kernels.
    width : float, array-like (n_features,), or "auto", "scale", "learn", "learn-per-feature", default "auto"
        Width of a kernel that is given, held if it is a number or "scale" (r^2 = n_features * X.var()) and learned
        otherwise; "auto" tries one width and one for each input.
    class_weight : dict, "balanced" or None, default None
        Multiplies the sample weights of each class.
    max_vectors : int, optional
        Most distinct rows that the process keeps; None is 400 for two classes and fewer for more.
    warm_start : bool, default False
        Whether a further call of `fit` keeps the kernels of the last one, and begins at their hyperparameters.
    memory_limit : float or str, default "4GB"
        Bytes, or such as "500MB" or "2GiB", that a fit may take besides the data it is given.
    time_limit : float, optional
        Seconds for the whole fit; where they are not enough `status_` is "time_limit", the model is the best found so
        far, and a warning tells what was cut short.
    verbose : None, bool or int, default None
        How progress is shown, as in `GPRegressor`.

    Attributes
    ----------
    classes_ : (K,) class labels.
    kernel_, width_ : the stationary part of the first kernel with its widths in numbers, and those widths; absent where
        the model is linear.
    width_rule_ : "density", or "given".
    selection_ : what was compared and by how much the choice won (`relvec.gaussian_process.classes.Selection`): a
        record of each candidate, the log loss of the choice at rows that took no part, and their calibration curve.
    calibration_curve_ : (bins, 3) reliability of the probabilities of rows that took no part: mean probability, share
        that came true, weight; for more than two classes of all classes together. Empty where no row was held out.
    process_ : the process itself (`relvec.gaussian_process.classes.ClassModel`).
    vectors_ : (m, n_features) distinct training rows that are kept; `vector_rows_` (m,) their numbers, ascending. A
        linear model keeps none.
    log_marginal_likelihood_ : that of its kernel under Laplace's approximation, or of the first of two that are added;
        the log-likelihood of the base rates where no input tells anything.
    feature_relevance_ : (n_features,) share of each input in the mean squared slope of the log-odds, inputs in standard
        deviations. `feature_importances_` has the roots, as shares.
    status_ : how the fit ended: "converged", or the name of a warning.
    n_evaluations_ : evaluations of evidences.
    calibration_ : scores of the rows of `calibrate` (`relvec.inference.conformal.ConformalScores`); absent before it.
    fitted_ : all of the above as one frozen record (`relvec.estimators.records.FittedProcess`).
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2)) + np.repeat([[-1.0, 0.0], [1.0, 0.0]], 50, axis=0)
    >>> y = np.repeat(["left", "right"], 50)
    >>> model = GPClassifier().fit(X, y)
    >>> model.predict([[-2.0, 0.0], [2.0, 0.0]]).tolist()
    ['left', 'right']
    """

    def __init__(
        self, *, kernel: Any = "auto", width: Any = "auto", class_weight: Any = None, max_vectors: int | None = None,
        warm_start: bool = False, memory_limit: Any = "4GB", time_limit: float | None = None, verbose: Any = None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.width = width
        self.class_weight = class_weight
        self.max_vectors = max_vectors
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.time_limit = time_limit
        self.verbose = verbose

    def _fit(self, X: RowsLike, y: TargetsLike, sample_weight: PerRow, groups: PerRow) -> None:
        options = process_options(self._parameters(), noise="auto", earlier=self._earlier)
        source = self._class_source(options, X, y, sample_weight, groups)
        self._set_fitted(fit_class_process(options, source))

    def _set_fitted(self, fitted: FittedProcess) -> None:
        """Set public attributes."""
        self._copy_process(fitted)
        self.process_, self.selection_ = fitted.class_process, fitted.selection[0]
        self.calibration_curve_ = self.selection_.calibration_curve
        self.log_marginal_likelihood_ = float(fitted.log_evidence[0])
        self.status_, self.n_evaluations_ = fitted.status[0], int(fitted.n_evaluations[0])
