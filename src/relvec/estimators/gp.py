"""Gaussian processes whose kernel the data choose: regression and classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from relvec.estimators.distill import distill_process
from relvec.estimators.noise import fit_noise
from relvec.estimators.options import ProcessOptions, check_choices, process_options
from relvec.estimators.predictions.classes import ClassPredictions
from relvec.estimators.predictions.regression import RegressionPredictions
from relvec.estimators.process import Process, fit_class_process, fit_processes
from relvec.estimators.records import FittedProcess
from relvec.estimators.rvm import RelevanceVectorRegressor
from relvec.estimators.sources.rows import ClassRows, RegressionRows
from relvec.runtime.arrays import PerRow, RowsLike, TargetsLike, to_host

LIKELIHOODS, NOISES = ("gaussian", "student-t", "censored"), ("auto", "constant", "heteroscedastic")


class GPRegressor(RegressionPredictions, RegressionRows, Process):
    """Gaussian process regression: the kernel is chosen by its evidence, and as many rows are kept as that needs.

    Kernels are compared by merit p(t | M), the evidence integrated over their hyperparameters: one Gaussian or Matern
    3/2 part and sums of two, with one width or one for each input (one for the one-hot columns of a category
    together), with or without a linear part. Every row is a vector of the process in small tables; in larger ones the
    rows that matter are (Titsias 2009). Choose it where predictions matter more than size; `RelevanceVectorRegressor`
    keeps a handful of functions.

    Parameters
    ----------
    likelihood : {"gaussian", "student-t", "censored"}, default "gaussian"
        "student-t" is for noise with heavy tails and gross errors, whose degrees of freedom are learned: rows far off
        count little and are named in `outliers_`; the evidence is a variational bound. "censored" is for targets some
        of which are only known to lie in an interval: y is (n, 2), the lower and the upper limit of each target, equal
        where it was observed, -inf or inf where there is no limit, or a structured array (event, time).
    noise : {"auto", "constant", "heteroscedastic"}, default "auto"
        Whether error bars depend on the inputs: "auto" lets them if rows left out clearly show it; "heteroscedastic"
        learns noise and function together, for Gaussian noise.
    max_vectors : int, optional
        Most distinct rows that the process keeps; None is 1000, and more for large tables. Fewer are kept where that
        costs almost nothing at rows held out: a small number makes small and quick models.
    warm_start : bool, default False
        Whether a further call of `fit` keeps the kernels of the last one and learns their hyperparameters from where
        they were; nothing else is compared.
    memory_limit : float or str, default "4GB"
        Bytes, or such as "500MB" or "2GiB", that a fit may take besides the data it is given.
    time_limit : float, optional
        Seconds for the whole fit. The best model by then is returned with the warning ``TIME_LIMIT``, which names the
        stages that were cut short.
    verbose : None, bool or int, default None
        None draws a bar on a terminal, where tqdm is installed, when a fit takes longer than three seconds; True or 1
        logs stages, size, evidence and times (logger "relvec"); False or 0 shows nothing.

    Attributes
    ----------
    kernel_ : the first part of the kernel with its widths in numbers; `width_` are those widths (n_features,).
    width_rule_ : "merit".
    selection_ : what was compared, best first (`relvec.gaussian_process.Compared`): name, merit, n_rows it was learned
        on, held_out (mean negative log density of held-out rows, nan if there were none), share in the prediction,
        refused (why it is excluded, or ""). "gaussian[4] + linear" has a width for each of 4 inputs.
    merit_ : log p(t | M) of the first of them, on its rows, the target standardised.
    process_ : the process (`relvec.gaussian_process.ProcessPredictor`): components and their shares, scale of the
        target, vectors and why each is kept, messages.
    vectors_ : (m, n_features) distinct training rows that are kept; `vector_rows_` (m,) their numbers, ascending.
    noise_variance_ : noise variance, on the scale of the target where that is a logarithm.
    noise_columns_ : columns of X that error bars depend on, n_features for the predicted mean; only where they do.
    log_marginal_likelihood_ : lower bound on the log evidence in the units of y, of the first kernel.
    bounds_ : (2,) lower and upper bound on it, equal where every row is a vector.
    feature_relevance_ : (n_features,) share of each input in the mean squared slope of the function, inputs in standard
        deviations. `feature_importances_` has the roots, as shares.
    status_ : how the fit ended: "converged", or the name of a warning.
    n_evaluations_ : evaluations of evidences.
    degrees_of_freedom_, outliers_ : of Student-t noise: its degrees of freedom, at least 2.1, and training rows that
        count less than a quarter of a usual row, the worst first.
    n_censored_ : training rows whose target is known by an interval only; for ``likelihood="censored"``.
    calibration_ : scores of the rows of `calibrate` (`relvec.inference.conformal.ConformalScores`); absent before it.
    fitted_ : all of the above as one frozen record (`relvec.estimators.records.FittedProcess`).
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    For y of shape (n_samples, q) each output has a process, with one choice of kernels: `noise_variance_`,
    `log_marginal_likelihood_`, `merit_` and `n_evaluations_` are (q,), `bounds_` (q, 2), `status_`, `selection_` and
    `process_` lists of q.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(100)
    >>> model = GPRegressor().fit(X, y)
    >>> model.selection_[0].name, model.status_
    ('gaussian', 'converged')
    >>> mean, std = model.predict([[0.0]], return_std=True)
    >>> bool(abs(mean[0] - 1.0) < 2 * std[0])
    True
    """

    def __init__(
        self, *, likelihood: str = "gaussian", noise: str = "auto", max_vectors: int | None = None,
        warm_start: bool = False, memory_limit: Any = "4GB", time_limit: float | None = None, verbose: Any = None,
    ) -> None:  # fmt: skip
        self.likelihood = likelihood
        self.noise = noise
        self.max_vectors = max_vectors
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.time_limit = time_limit
        self.verbose = verbose

    def distill(self, X: Any, max_loss_nats: float = 0.02) -> RelevanceVectorRegressor:
        """Return few functions that predict as this process does, as a fitted relevance vector machine.

        Functions are searched for in the mean and the variance of the process itself, as few as lose no more of its
        density at a fifth of the rows that the search does not see. Means, error bars, intervals and densities, files,
        ONNX and C are those of any such machine; covariances and draws of functions remain the process's. Where no few
        functions follow the mean, all of the process's do, and its variance alone becomes quick.

        Parameters
        ----------
        X : array-like (n, n_features)
            Rows like those to predict, without targets: the training rows, or better 1,000 that no fit has seen.
        max_loss_nats : float, default 0.02
            Nats a row that may be lost, on average.

        Returns
        -------
        small : RelevanceVectorRegressor, whose `status_` is "distilled" and `loss_nats_` what is lost.

        Raises
        ------
        ValueError : where all functions that were found lose more; the message says how much.
        NotImplementedError : for noise that is learned with the function, as Student-t noise is.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import GPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = np.linspace(-10, 10, 200)[:, None]
        >>> model = GPRegressor().fit(X, np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(200))
        >>> small = model.distill(X)
        >>> len(small.weights_) < 20, bool(small.loss_nats_ < 0.02)
        (True, True)
        """
        check_is_fitted(self)
        if not 0.0 < max_loss_nats < np.inf:
            raise ValueError(f"max_loss_nats must be a number above 0, got {max_loss_nats!r}")
        small = RelevanceVectorRegressor(verbose=self.verbose)
        columns = {name: value for name, value in vars(self).items() if name in ("n_features_in_", "feature_names_in_")}
        rows = to_host(self._check_rows(to_host(X)))
        small.restore_fit(distill_process(self.fitted_, rows, float(max_loss_nats)), columns)
        return small

    def _options(self) -> ProcessOptions:
        check_choices(self._parameters(), likelihood=LIKELIHOODS, noise=NOISES)
        learned = self.likelihood if self.likelihood != "gaussian" else self.noise
        if self.noise != "auto" and learned != self.noise:
            raise ValueError(f"noise={self.noise!r} is for likelihood='gaussian': leave it at 'auto' with {learned!r}")
        return process_options(self._parameters(), noise=learned, earlier=self._earlier)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        options = self._options()
        learns_noise = options.noise not in ("auto", "constant")
        censored = self.likelihood == "censored"
        source = self._regression_source(
            options, X, y, sample_weight, groups, censored=censored, passes=not learns_noise
        )
        self._set_fitted(fit_noise(options, source, fit_processes) if learns_noise else fit_processes(options, source))

    def _set_fitted(self, fitted: FittedProcess) -> None:
        """Set public attributes, in the units of X and y."""

        def per_output(values: Any) -> Any:
            return values[0] if fitted.single else values

        self._copy_process(fitted)
        self.process_, self.selection_ = per_output(fitted.processes), per_output(fitted.selection)
        self.merit_, self.bounds_ = per_output(fitted.merit), per_output(fitted.bounds)
        self.noise_variance_ = per_output(fitted.noise_variance)
        self.log_marginal_likelihood_ = per_output(fitted.log_evidence)
        self.status_, self.n_evaluations_ = per_output(fitted.status), per_output(fitted.n_evaluations)
        noise, columns = fitted.noise, fitted.noise_columns
        self._set_or_drop(
            {
                "noise_columns_": None if columns is None else per_output(columns),
                "degrees_of_freedom_": None if noise is None else noise.degrees,
                "outliers_": None if noise is None else noise.outliers,
                "n_censored_": None if noise is None else noise.n_censored,
            }
        )


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
