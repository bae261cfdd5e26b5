"""Regression by a relevance vector machine."""

from __future__ import annotations

from typing import Any

from relvec.estimators.machine import MachineRegressor


class RelevanceVectorRegressor(MachineRegressor):
    """Relevance vector regression: a weighted sum of a few basis functions, with error bars (T01).

    ``y = sum_m w_m phi_m(x) + noise`` with a Gaussian prior of its own precision ``alpha_m`` over each weight. The
    precisions and the noise variance maximise the evidence; most precisions become infinite and their functions leave
    the model. The functions are kernels centred on the training rows and a constant, unless others are given.

    Parameters
    ----------
    kernel : str, Kernel, callable or None, default "auto"
        With "auto" a process learns widths on few rows; functions of several such widths on the rows, the columns of X
        and a constant are the candidates, and held-out rows choose how many are kept and set the error bars. That is so
        for dense rows in memory with `width`, `centres`, `basis`, `fit_intercept`, `solver`, `likelihood`, `tol` and
        `share_alpha` as they come; elsewhere "auto" is "gaussian". Otherwise a name ("gaussian" or "rbf", "laplace",
        "cauchy", "log_distance", "matern32", "matern52", "polynomial", "linear", "linear_spline", "precomputed"), an
        object of `relvec.kernels`, any ``callable(X, Z) -> (n, m)``, or None. It need not be positive definite.
    width : float, array-like (n_features,), or "auto" (default), "learn", "learn-per-feature", "scale", "grvm", \
"grvm-per-feature"
        Width r of a kernel given by name, as in exp(-|x - z|^2 / r^2), or one per feature. "learn" and
        "learn-per-feature" maximise the evidence over widths with tied precisions (`relvec.hyperparameters.widths`);
        "scale" is r^2 = n_features * X.var(), the quickest; "auto" is "learn-per-feature" up to 32 features, and
        "scale" beyond and for counts. "grvm" is the one width of most evidence over weights and centres (GRVM).
    centres : {"data", "move", "grvm"}, default "data"
        Where kernels sit: on training rows, moved in their box, or moved as in GRVM's section 4.
    basis : Basis, str, callable, or list of these, optional
        Further basis functions, appended to the kernel's; see `relvec.basis`.
    fit_intercept : bool, default True
        Whether a constant basis function, with its own precision, is among the candidates.
    solver : {"sequential", "tf03", "mackay", "em"} or an object of `relvec.solvers`, default "sequential"
        How the evidence is maximised. `Sequential` has the prior over sets of functions, prices and restarts.
    likelihood : {"gaussian", "student-t", "poisson"}, default "gaussian"
        "student-t" is for heavy tails and gross errors (see `outliers_`); the evidence is a variational bound.
        "poisson" is for counts: the sum of functions is the logarithm of the rate (Laplace's approximation).
    predictive : {"auto", "rvm", "augmented"} or Augmented, default "auto"
        "rvm" is T01 eq. (21)-(22), sure of itself away from the data. "augmented" is RVM* (RQ05), which keeps the
        training rows, O(N) a point. "auto" is T01's mean with error bars set by held-out rows where ``kernel="auto"``
        has these, which return to the spread of the targets away from the data, and "rvm" elsewhere.
    noise_variance : float, optional
        Fixed noise variance; None learns it.
    tol : float, optional
        Nats that no single move gains any more. None: 1e-4, and 0.3 where a model has more than 300 functions.
    max_functions : int, optional
        Most basis functions, not counting the constant (see `relvec.relevance_path`).
    share_alpha : bool, default False
        Whether outputs of a two-dimensional y share the precisions of the weights (M-SBL): a function is in the models
        of all outputs or of none.
    warm_start : bool, default False
        Whether a further call of `fit` starts from the functions, precisions and widths of the last one.
    memory_limit : float or str, default "4GB"
        Bytes, or such as "500MB" or "2GiB", that a fit may take besides the data it is given.
    time_limit : float, optional
        Seconds for the whole fit. The best model by then is returned with the warning ``TIME_LIMIT``.
    random_state : int, RandomState or None
        Used where something is drawn: random centres, ``select="random"``, restarts beyond the third.
    verbose : None, bool or int, default None
        None draws a bar on a terminal, where tqdm is installed, when a fit takes longer than three seconds; True or 1
        logs its progress (logger "relvec"), 2 every step of the search too; False or 0 shows nothing.

    Attributes
    ----------
    weights_, alpha_, gamma_ : (m,) posterior mean of the weights, their precisions, and how well the data determine
        each, from 0 to 1. ``basis_(X) @ weights_`` is what `predict` gives.
    covariance_ : (m, m) posterior covariance of the weights.
    basis_, atoms_ : bound basis of the m functions kept (kernels first, then the further basis, then the constant), and
        the list of their names.
    relevance_ : (r,) training rows on which kernels are centred, ascending; `relevance_vectors_` (r, n_features) are
        those rows; absent for ``kernel="precomputed"``.
    centres_ : (p, n_features) where the kernels sit; no training rows, and `relevance_` is empty, where they moved. The
        three exist only for other candidates than columns of X.
    intercept_ : weight of the constant, 0.0 where it is not in the model.
    noise_variance_ : variance of the noise; absent for counts.
    log_marginal_likelihood_ : log evidence in the units of y, complete with -N/2 log 2 pi.
    certificate_ : nats: the largest gain that any single move still offered; inf where it was not established.
    status_, n_iter_ : how the fit ended ("converged", "held_out" or a warning's name); steps of learning and search.
    history_ : structured array, a row a step of the solver: action, atom (number in the dictionary), row (training row
        the atom is centred on, -1 for none), gain, objective, size, noise_variance; absent where held-out rows chose.
    kernel_, width_, width_rule_ : the kernel with its widths in numbers, those widths, and the rule that gave them;
        absent for kernels without.
    feature_relevance_ : (n_features,) eta_k var(x_k), eta_k = width_k^-2, as shares; `feature_importances_` the roots.
    choice_ : prices, sizes and losses of held-out rows, by which the size was chosen
        (`relvec.estimators.sparse.SparseChoice`); only where they were.
    tuning_, placement_ : how widths were learned, and how well the data place moved centres; only where they were.
    coef_ : (n_features,) only for a purely linear model; `coef_std_`, `selected_` and `gain_` as in
        `SparseBayesianRegressor`, for columns of X alone.
    degrees_of_freedom_, outliers_ : of Student-t noise: its degrees of freedom, and rows that count little.
    n_candidates_, n_subsets_ : functions that were candidates, and the subsets they were searched in.
    compression_ : how rows were compressed; only where they were.
    calibration_, fitted_ : scores of the rows of `calibrate`, absent before it; all of the above as one frozen record.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    For y of shape (n_samples, q) each output has its own model over the union of the functions kept: arrays have a
    first axis of q more, `history_`, `status_` and `choice_` are lists of q.

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
