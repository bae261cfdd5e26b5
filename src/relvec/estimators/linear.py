"""Sparse Bayesian linear regression and classification."""

from __future__ import annotations

from typing import Any

from relvec.estimators.machine import MachineClassifier, MachineRegressor


class SparseBayesianRegressor(MachineRegressor):
    """Sparse Bayesian linear regression: a relevance vector machine whose candidates are the columns of X.

    Columns are centred and scaled inside, also those of a scipy.sparse matrix, which stays sparse. Each column has a
    precision of its own; precisions and noise maximise the evidence, and the set of columns the evidence times a prior
    over sets (``support_prior`` of `relvec.solvers.Sequential`, "size" here), which no unit of a column changes. There
    is no threshold to choose. Where a constant or a ridge predicts rows that were left out better, it is the model, and
    `status_` is "baseline"; these rows widen error bars that are too narrow.

    Parameters
    ----------
    fit_intercept : bool, default True
        Whether a constant, with its own precision, is among the candidates.
    solver : {"sequential", "tf03", "tf03-random", "tf03-order", "mackay", "em"} or object of `relvec.solvers`
        How the evidence is maximised.
    noise_variance : float, optional
        Fixed noise variance; None learns it.
    tol : float, optional
        The fit ends when no single move gains more than this many nats of evidence. None: 1e-4, and 0.3 where a model
        has more than 300 columns; `certificate_` is the gain that is left.
    max_functions : int, optional
        Most columns of the model.
    column_groups : array-like (n_features,), optional
        A label for each column of X: columns of one label have one precision and enter or leave the model together,
        such as those that stand for one category each.
    share_alpha : bool, default False
        Whether outputs of a two-dimensional y share the precisions (M-SBL): a column is in all models or in none.
    warm_start, memory_limit, time_limit, random_state, verbose
        As in `RelevanceVectorRegressor`.

    Attributes
    ----------
    coef_, coef_std_ : (n_features,) slopes, and their posterior standard deviations; 0 for columns not in the model.
    intercept_ : the constant.
    selected_ : (n_features,) which columns are in the model.
    gain_ : (n_features,) the nats of log evidence that each column is worth, the other precisions as they are.
    noise_variance_, log_marginal_likelihood_, certificate_, status_, n_iter_, history_, compression_, n_candidates_
        As in `RelevanceVectorRegressor`.
    weights_, alpha_, gamma_, covariance_, basis_, atoms_ : of the columns in the model and the constant.
    calibration_ : scores of the rows of `calibrate` (`relvec.inference.conformal.ConformalScores`); absent before it.
    fitted_ : all of the above as one frozen record (`relvec.estimators.records.FittedRVM`).
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import SparseBayesianRegressor
    >>> X = np.random.default_rng(0).standard_normal((80, 500))
    >>> y = 3.0 * X[:, 7] - 2.0 * X[:, 40] + 1.0
    >>> model = SparseBayesianRegressor(noise_variance=0.01).fit(X, y)
    >>> np.flatnonzero(model.selected_).tolist(), np.round(model.coef_[model.selected_], 2).tolist()
    ([7, 40], [3.0, -2.0])
    """

    def __init__(
        self, *, fit_intercept: bool = True, solver: Any = "sequential", noise_variance: float | None = None,
        tol: float | None = None, max_functions: int | None = None, column_groups: Any = None,
        share_alpha: bool = False, warm_start: bool = False, memory_limit: Any = "4GB",
        time_limit: float | None = None, random_state: Any = None, verbose: Any = None,
    ) -> None:  # fmt: skip
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.noise_variance = noise_variance
        self.tol = tol
        self.max_functions = max_functions
        self.column_groups = column_groups
        self.share_alpha = share_alpha
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose


class SparseBayesianClassifier(MachineClassifier):
    """Sparse Bayesian linear classification: a relevance vector machine whose candidates are the columns of X.

    Columns are centred and scaled inside, also those of a scipy.sparse matrix, which stays sparse. A column has to gain
    more evidence than the logarithm of the number of columns, which the best of many useless ones seldom does, unless
    ``solver=Sequential(price=...)`` says otherwise. Where the shares of the classes or a ridge predict rows that were
    left out better, they are the model, and `status_` is "baseline".

    Parameters
    ----------
    fit_intercept : bool, default True
        Whether a constant, with its own precision, is among the candidates.
    solver : {"sequential", "tf03", "tf03-random", "tf03-order", "mackay", "em"} or object of `relvec.solvers`
        How the evidence is maximised.
    class_weight, multi_class, share_alpha, averaging, tol, max_functions
        As in `RelevanceVectorClassifier`.
    warm_start, memory_limit, time_limit, random_state, verbose
        As in `RelevanceVectorRegressor`.

    Attributes
    ----------
    classes_ : (K,) class labels.
    coef_, coef_std_ : (n_features,), or (K, n_features) for K > 2 classes: slopes of the log-odds, and their posterior
        standard deviations; 0 for columns not in the model.
    intercept_ : the constant, a float or (K,).
    selected_, gain_ : which columns are in the model, and the nats of log evidence that each of them is worth.
    weights_, alpha_, gamma_, covariance_, basis_, atoms_ : of the columns in the model and the constant.
    log_marginal_likelihood_, certificate_, status_, n_iter_, history_, n_candidates_
        As in `RelevanceVectorClassifier`.
    calibration_ : scores of the rows of `calibrate` (`relvec.inference.conformal.ConformalScores`); absent before it.
    fitted_ : all of the above as one frozen record (`relvec.estimators.records.FittedRVM`).
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import SparseBayesianClassifier
    >>> X = np.random.default_rng(0).standard_normal((200, 30))
    >>> model = SparseBayesianClassifier().fit(X, X[:, 4] + 0.3 * X[:, 5] > 0.2)
    >>> bool(model.selected_[4]), model.coef_.shape
    (True, (30,))
    """

    def __init__(
        self, *, fit_intercept: bool = True, solver: Any = "sequential", class_weight: Any = None,
        multi_class: str = "multinomial", share_alpha: bool = False, averaging: str = "posterior",
        tol: float = 1e-3, max_functions: int | None = None, warm_start: bool = False, memory_limit: Any = "4GB",
        time_limit: float | None = None, random_state: Any = None, verbose: Any = None,
    ) -> None:  # fmt: skip
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.class_weight = class_weight
        self.multi_class = multi_class
        self.share_alpha = share_alpha
        self.averaging = averaging
        self.tol = tol
        self.max_functions = max_functions
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose
