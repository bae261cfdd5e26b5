"""Relevance vector machines: regression and classes."""

from __future__ import annotations

from typing import Any

from relvec.estimators.machine import MachineClassifier, MachineRegressor


class RelevanceVectorRegressor(MachineRegressor):
    """Relevance vector regression: a weighted sum of a few basis functions, with error bars (T01).

    ``y = sum_m w_m phi_m(x) + noise`` with a Gaussian prior of its own precision ``alpha_m`` over each weight. The
    precisions and the noise variance maximise the evidence; most precisions become infinite and their functions leave
    the model. The functions are kernels centred on the training rows and a constant, unless others are given.

    Parameters
    ----------
    kernel : str, Kernel, callable or None, default "auto"
        With "auto" a process learns widths on few rows; kernels of several such widths, columns of X and a constant are
        candidates; held-out rows choose how many are kept, the scale of a skewed target (`choice_.scale`) and the error
        bars. That needs dense rows in memory and `width`, `centres`, `basis`, `fit_intercept`, `solver`, `likelihood`,
        `tol` and `share_alpha` as they come; elsewhere "auto" is "gaussian". Otherwise a name ("gaussian", "laplace",
        "cauchy", "log_distance", "matern32", "matern52", "polynomial", "linear", "linear_spline", "precomputed"), an
        object of `relvec.kernels`, a ``callable(X, Z) -> (n, m)``, or None.
    width : float, array-like (n_features,) or a word, default "auto"
        Width r of a named kernel, as in exp(-|x - z|^2 / r^2), or one per feature. "learn" and "learn-per-feature"
        maximise the evidence of all functions with one precision a kernel, not that of the sparse model found after;
        "grvm", "grvm-per-feature" and GRVM's own "grvm-diagonal" that over weights and centres; "interleaved" is T01 C,
        for ``solver="mackay"``. "scale" is r^2 = n_features * X.var(); "auto" is "learn-per-feature" up to 32 features,
        "scale" beyond and for counts.
    centres : {"data", "move", "grvm"}, default "data"
        Where kernels sit: on training rows, moved in their box, or moved as in GRVM's section 4.
    basis : Basis, str, callable, or list of these, optional
        Further basis functions; see `relvec.basis`.
    fit_intercept : bool, default True
        Whether a constant is a candidate.
    solver : {"sequential", "tf03", "tf03-random", "tf03-order", "mackay", "em"} or object of `relvec.solvers`
        How the evidence is maximised. `Sequential` (default) has the prior over sets, prices and restarts.
    likelihood : {"gaussian", "student-t", "poisson"}, default "gaussian"
        "student-t" is for gross errors (evidence: a variational bound); "poisson" for counts, whose log rate is
        the sum of functions (Laplace's approximation).
    predictive : {"auto", "rvm", "augmented"} or Augmented, default "auto"
        "rvm" is T01 eq. (21)-(22), sure of itself away from the data; "augmented" is RVM* (RQ05), which keeps the
        training rows; "auto" is "rvm", with error bars of held-out rows where ``kernel="auto"``.
    noise_variance : float, optional
        Fixed noise variance; None learns it.
    tol : float, optional
        A fit ends when no single move gains more nats. None: 1e-4, and 0.3 for more than 300 functions.
    max_functions : int, optional
        Most functions, not counting the constant (see `relvec.relevance_path`).
    share_alpha : bool, default False
        Whether outputs share precisions, and so functions (M-SBL).
    warm_start : bool, default False
        Whether `fit` starts from the functions, precisions and widths of the last fit.
    memory_limit : float or str, default "4GB"
        Bytes, or such as "500MB", for a fit besides its data.
    time_limit : float, optional
        Seconds, after which the fit returns its best model and warns.
    random_state : int, RandomState or None
        Seed of random centres, ``select="random"`` and restarts beyond the third.
    verbose : None, bool or int, default None
        None draws a bar on a terminal after three seconds, where tqdm is installed; 1 logs progress (logger
        "relvec"), 2 every step too; 0 shows nothing.

    Attributes
    ----------
    weights_, alpha_, gamma_ : (m,) posterior means of the weights, their precisions, and how well the data determine
        each, from 0 to 1. ``basis_(X) @ weights_`` is what `predict` gives, on its scale.
    covariance_ : (m, m) posterior covariance of the weights.
    basis_, atoms_ : the m functions kept (kernels, further basis, constant), and their names.
    relevance_, relevance_vectors_ : (r,) training rows that kernels sit on, ascending, none where centres moved, and
        (r, n_features) their values, absent for ``kernel="precomputed"``.
    centres_ : (p, n_features) where the kernels sit; as the two above, absent where only columns of X are candidates.
    intercept_ : weight of the constant, 0.0 where it is not in the model.
    noise_variance_ : variance of the noise, on the target's scale; absent for counts.
    log_marginal_likelihood_ : log evidence in the units of y, complete with -N/2 log 2 pi.
    certificate_ : nats that the best single move still offered; inf where not established. Other maxima may be higher.
    status_, n_iter_ : how the fit ended ("converged": no single move gains `tol`; "held_out"; a warning's name); steps.
    history_ : structured array of the search's steps: action, atom (number in the dictionary), row (it sits on, or -1),
        gain, objective, size, noise_variance; absent where held-out rows chose.
    kernel_, width_, width_rule_ : the kernel, its widths and their rule; absent for kernels without.
    feature_relevance_ : (n_features,) var(x_k) / width_k^2 as shares; `feature_importances_` are their roots.
    choice_ : what held-out rows chose (`relvec.estimators.sparse.SparseChoice`); only where they did.
    tuning_, placement_ : only where widths were learned, and where centres moved: how.
    coef_ : (n_features,) slopes, only for linear models.
    coef_std_, selected_, gain_ : as in `SparseBayesianRegressor`, only for columns of X.
    degrees_of_freedom_, outliers_ : of Student-t noise; rows that count little.
    n_candidates_ : functions that were candidates.
    loss_nats_ : density lost, nats a row; only for what `GPRegressor.distill` returns.
    compression_ : how rows were compressed; only where they were.
    calibration_, fitted_ : scores of the rows of `calibrate`, absent before it; all of the above as one frozen record.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Of y (n_samples, q) each output has its own model over the union of the functions kept: arrays have one axis more,
    `history_`, `status_` and `choice_` are lists of q.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(100)
    >>> model = RVR().fit(X, y)
    >>> mean, std = model.predict([[0.0]], return_std=True)
    >>> len(model.relevance_) < 12, bool(abs(mean[0] - 1.0) < 2 * std[0])
    (True, True)
    """

    def __init__(
        self, *, kernel: Any = "auto", width: Any = "auto", centres: str = "data", basis: Any = None,
        fit_intercept: bool = True, solver: Any = "sequential", likelihood: str = "gaussian", predictive: Any = "auto",
        noise_variance: float | None = None, tol: float | None = None, max_functions: int | None = None,
        share_alpha: bool = False, warm_start: bool = False, memory_limit: Any = "4GB",
        time_limit: float | None = None, random_state: Any = None, verbose: Any = None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.width = width
        self.centres = centres
        self.basis = basis
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.likelihood = likelihood
        self.predictive = predictive
        self.noise_variance = noise_variance
        self.tol = tol
        self.max_functions = max_functions
        self.share_alpha = share_alpha
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose


class RelevanceVectorClassifier(MachineClassifier):
    """Relevance vector classification: log-odds that are a weighted sum of a few basis functions (T01 section 3).

    For two classes the log-odds are ``f(x) = sum_m w_m phi_m(x)``, with a Gaussian prior of its own precision
    ``alpha_m`` over each weight. The precisions maximise the evidence under Laplace's approximation; most become
    infinite: their functions leave the model. K > 2 classes are one softmax model with a function for each
    class (T01 eq. (28)), or K dichotomies.

    With nothing given, rows held out choose the functions: the columns of X, alone or with Gaussian functions of three
    scales about widths that a process learns, and what a function must gain. Settings that predict nearly as well are
    averaged: the log-odds are a sum of up to three machines. A slope of the log-odds is learned from the same rows;
    classes share their functions.

    Parameters
    ----------
    kernel, width, centres, basis, fit_intercept
        The dictionary, as in `RelevanceVectorRegressor`. ``kernel="auto"`` chooses it from the data where rows are in
        memory with these, `solver`, `multi_class`, `share_alpha`, `predictive` and `tol` as they come; elsewhere it is
        "gaussian". ``width="auto"`` is then "scale", tens of times as fast as learned widths.
    solver : {"sequential", "tf03", "tf03-random", "tf03-order", "mackay", "em"} or object of `relvec.solvers`
        "sequential" (default) keeps a move only if the evidence of the refitted model rises and ends at a maximum;
        ``Sequential(price=2.0)`` makes functions cost two nats. "mackay" and "em" end at the fixed point of T01
        eq. (16), near the maximum. "sequential" has a proper prior, a row of the base rates spread over all rows;
        ``Sequential(prior_rows=0.0)`` is without.
    class_weight : dict, "balanced" or None, default None
        Multiplies the sample weights of each class.
    multi_class : {"multinomial", "ovr"}, default "multinomial"
        For K > 2: one softmax model, or one class against the rest K times, normalised.
    share_alpha : bool, default False
        In the softmax model: whether the classes share precisions, and so functions.
    averaging : {"posterior", "mode"}, default "posterior"
        Whether probabilities are averaged over the posterior of the weights, or of its mode. For two classes
        the average is exact to about 1e-8; for a softmax it is an average over 1024 fixed quasi-random points.
    predictive : {"rvm", "augmented"} or Augmented, default "rvm"
        "augmented" (RVM*, RQ05) adds one more basis function at each point predicted: away from the data the log-odds
        become uncertain. It keeps the training rows, O(N) a point.
    tol : float, default 1e-3
        A fit ends when no single move, refitted, gains more than this many nats; 0.1 where held-out rows chose.
    max_functions : int, optional
        Most functions of one machine, not counting the constant.
    warm_start, memory_limit, time_limit, random_state, verbose
        As in `RelevanceVectorRegressor`.

    Attributes
    ----------
    classes_ : (K,) class labels.
    weights_ : (m,) posterior mode of the weights for two classes; (K, m) otherwise, 0 where a function is not in the
        model of the class.
    alpha_, gamma_ : weight precisions, and how well the data determine each weight, from 0 to 1, in the shape of
        `weights_`; alpha is inf where a function is not in the model of the class. A constant that is not may still
        have a weight: it takes back the means of centred columns.
    covariance_ : posterior covariance of the weights (T01 eq. (26)): (m, m) for two classes, (K, m, m) for "ovr", and
        (K, m, K, m), joint over the classes, for a softmax; 0 where a function is not in the model.
    basis_, atoms_ : bound basis of the m functions kept, in the order of `weights_`, and the list of their names.
    relevance_, relevance_vectors_ : (r,) training rows the kernels are centred on, ascending, the union over the
        classes; (r, n_features) these rows.
    relevance_per_class_ : list of K arrays, the rows each class uses; for two classes one array.
    centres_ : (p, n_features) where the kernels sit, in the order of `weights_`.
    intercept_ : weight of the constant, a float or (K,); 0.0 where it is not in the model.
    coef_, coef_std_, selected_, gain_ : (n_features,), or (K, n_features), only for columns of X alone: slopes of the
        log-odds and their posterior standard deviations; which columns are in the model; the nats each is worth.
    log_marginal_likelihood_ : Laplace evidence, with that row; (K,) for "ovr".
    certificate_ : the largest gain (nats) that a single move, refitted, still offered; inf where it was not
        established. Moves are ranked by their linearised gain, and the most promising of each kind refitted;
        near-copies of functions in the model count where they gain over 2 log M nats (`Sequential`). Other maxima may
        be higher.
    status_, n_iter_ : how the fit ended, and its steps; a list of K, and (K,), for "ovr".
    history_ : as in `RelevanceVectorRegressor`, a list of K for "ovr"; atom m of class c is c * M + m in a dictionary
        of M functions; absent where held-out rows chose.
    kernel_, width_, width_rule_, feature_relevance_, tuning_, placement_, n_candidates_
        As in `RelevanceVectorRegressor`.
    choice_, calibration_slope_ : log losses of the settings at rows held out and the shares of each
        (`relvec.estimators.sparse.ClassChoice`), and the factor by which these rows multiply log-odds; only
        where they chose. Weights are then those of the sum of the machines, each times its share: `covariance_` and
        the prior variances ``1 / alpha_`` add up theirs, times the shares squared, as if the machines were independent,
        and ``gamma_ = 1 - alpha_ * diag(covariance_)``. The slope is not in the weights.
    calibration_ : scores of the rows of `calibrate` (`relvec.inference.conformal.ConformalScores`); absent before it.
    fitted_ : all of these as one record (`relvec.estimators.records.FittedRVM`).
    n_features_in_, feature_names_in_ : scikit-learn's.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2)) + np.repeat([[-1.0, 0.0], [1.0, 0.0]], 50, axis=0)
    >>> y = np.repeat(["left", "right"], 50)
    >>> model = RVC(width=3.0).fit(X, y)
    >>> len(model.relevance_) < 6, model.status_
    (True, 'converged')
    >>> model.predict([[-2.0, 0.0], [2.0, 0.0]]).tolist()
    ['left', 'right']
    """

    def __init__(
        self, *, kernel: Any = "auto", width: Any = "auto", centres: str = "data", basis: Any = None,
        fit_intercept: bool = True, solver: Any = "sequential", class_weight: Any = None,
        multi_class: str = "multinomial", share_alpha: bool = False, averaging: str = "posterior",
        predictive: Any = "rvm", tol: float = 1e-3, max_functions: int | None = None, warm_start: bool = False,
        memory_limit: Any = "4GB", time_limit: float | None = None, random_state: Any = None, verbose: Any = None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.width = width
        self.centres = centres
        self.basis = basis
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.class_weight = class_weight
        self.multi_class = multi_class
        self.share_alpha = share_alpha
        self.averaging = averaging
        self.predictive = predictive
        self.tol = tol
        self.max_functions = max_functions
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose
