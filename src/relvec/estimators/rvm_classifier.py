"""Classification by a relevance vector machine."""

from __future__ import annotations

from typing import Any

from relvec.estimators.machine import MachineClassifier


class RelevanceVectorClassifier(MachineClassifier):
    """Relevance vector classification: log-odds that are a weighted sum of a few basis functions (T01 section 3).

    For two classes the log-odds are ``f(x) = sum_m w_m phi_m(x)``, with a Gaussian prior of its own precision
    ``alpha_m`` over each weight. The precisions maximise the evidence under Laplace's approximation; most become
    infinite: their functions leave the model. K > 2 classes are one softmax model with a function for each
    class (T01 eq. (28)), or K dichotomies.

    With nothing given, rows held out choose the functions: the columns of X, alone or with Gaussian functions of three
    scales about widths that a process learns, and what a function must gain. Settings that predict nearly as well are
    averaged: the log-odds are a sum of up to three machines. A slope of the log-odds is learned from the same rows. One
    row of the base rates, spread over all rows, keeps log-odds finite; classes share their functions.

    Parameters
    ----------
    kernel, width, centres, basis, fit_intercept
        The dictionary, as in `RelevanceVectorRegressor`. ``kernel="auto"`` chooses it from the data where rows are in
        memory with these, `solver`, `multi_class`, `share_alpha`, `predictive` and `tol` as they come; elsewhere it is
        "gaussian". ``width="auto"`` is then "scale", tens of times as fast as learned widths.
    solver : {"sequential", "tf03", "tf03-random", "tf03-order", "mackay", "em"} or object of `relvec.solvers`
        "sequential" (default) keeps a move only if the evidence of the refitted model rises and ends at a maximum;
        ``Sequential(price=2.0)`` makes every function cost two nats. "mackay" and "em" end at the fixed point of T01
        eq. (16), which is near, not at, the maximum; `certificate_` says how far.
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
        "rvm" is the model over the functions kept. "augmented" (RVM*, RQ05) adds one more basis function at each point
        predicted: away from the data the log-odds become uncertain. It keeps the training rows, O(N) a point.
    tol : float, default 1e-3
        A fit ends when no single move, refitted, gains more than this many nats of evidence.
    warm_start, memory_limit, time_limit, random_state, verbose
        As in `RelevanceVectorRegressor`.

    Attributes
    ----------
    classes_ : (K,) class labels.
    weights_ : (m,) posterior mode of the weights for two classes; (K, m) otherwise, 0 where a function is not in the
        model of the class.
    alpha_, gamma_ : weight precisions, and how well the data determine each weight, from 0 to 1, in the shape of
        `weights_`; alpha is inf where a function is not in the model of the class. A constant that is not may still
        have a weight: columns of X are centred, and it takes their means back.
    covariance_ : posterior covariance of the weights (T01 eq. (26)): (m, m) for two classes, (K, m, m) for "ovr", and
        (K, m, K, m), joint over the classes, for a softmax; 0 where a function is not in the model.
    basis_, atoms_ : bound basis of the m functions kept (kernels first, then the further basis, then the constant), and
        the list of their names.
    relevance_ : (r,) training rows the kernels are centred on, ascending: the union over the classes. This is the
        number of kernel evaluations a prediction costs; `relevance_vectors_` (r, n_features) are those rows.
    relevance_per_class_ : list of K arrays, the rows each class uses; for two classes one array.
    centres_ : (p, n_features) where the kernels sit, in the order of `weights_`.
    intercept_ : weight of the constant, a float or (K,); 0.0 where it is not in the model.
    coef_, coef_std_, selected_, gain_ : (n_features,), or (K, n_features), only for columns of X alone: slopes of the
        log-odds and their posterior standard deviations; which columns are in the model; the nats each is worth.
    log_marginal_likelihood_ : Laplace evidence; (K,) for "ovr".
    certificate_ : the largest gain (nats) that a single move, refitted, still offered; inf where it was not
        established. Moves are ranked by their linearised gain, and the most promising of each kind refitted;
        near-copies of functions in the model count where they gain over 2 log M nats (`Sequential`). It says nothing of
        other local maxima, which may be higher.
    status_, n_iter_ : how the fit ended, and its steps; a list of K, and (K,), for "ovr".
    history_ : structured array with a row a step, a list of K for "ovr": action, atom, gain, objective, size,
        noise_variance (nan). ``atom`` counts units: atom m of class c is c * M + m in a dictionary of M functions;
        absent where held-out rows chose.
    kernel_, width_, width_rule_, feature_relevance_, tuning_, placement_, n_candidates_
        As in `RelevanceVectorRegressor`.
    choice_, calibration_slope_ : log losses of the settings at rows held out and the shares of each
        (`relvec.estimators.sparse_classes.ClassChoice`), and the factor by which these rows multiply log-odds; only
        where they chose. `covariance_` is then that of the sum of independent machines.
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
        predictive: Any = "rvm", tol: float = 1e-3, warm_start: bool = False, memory_limit: Any = "4GB",
        time_limit: float | None = None, random_state: Any = None, verbose: Any = None,
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
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose
