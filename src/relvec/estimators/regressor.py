"""Relevance vector regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import validate_data

from relvec.design import is_dask, is_sliced, summarise
from relvec.estimators.base import MAX_WEIGHT_SUM, MAX_WEIGHT_SUM_OF_COUNTS
from relvec.estimators.fitted import FittedModel
from relvec.estimators.gaussian import GaussianSearch, check_size
from relvec.estimators.options import FitOptions
from relvec.estimators.predictions.regression import RegressionPredictions
from relvec.estimators.sources import MemorySource, SummarySource
from relvec.estimators.sources.base import check_numbers, check_used
from relvec.estimators.sources.regression import RowsElsewhere, are_counts, check_counts, some_counts
from relvec.estimators.sources.summary import can_be_summed
from relvec.inference.censored import as_ends
from relvec.runtime.arrays import as_device, device_of, pick_device

LIKELIHOODS = ("gaussian", "student-t", "censored", "poisson")


class RelevanceVectorRegressor(RegressionPredictions, RowsElsewhere):
    """Regression with error bars: a process whose kernel the data choose, or a relevance vector machine.

    With nothing but the defaults, ``RVR().fit(X, y)`` compares kernels by merit p(t | M), the evidence integrated over
    their hyperparameters, and fits a sparse Gaussian process with the best of them (`relvec.gaussian_process`).

    ``predictive="rvm"``, and any parameter that only a relevance vector machine has, means that machine (T01):
    ``y = sum_m w_m phi_m(x) + noise`` with a Gaussian prior of its own precision ``alpha_m`` over each weight. The
    precisions and the noise variance maximise the evidence; most precisions become infinite and their basis functions
    leave the model. The basis functions are kernels centred on the training rows and a constant, unless others are
    given.

    Parameters
    ----------
    kernel : str, Kernel, callable or None, default "auto"
        "auto" compares one Gaussian or Matern 3/2 part and sums of two parts, with one width or one for each input (one
        for the one-hot columns of a category together), with or without a linear part, by merit. It does so where at
        least five rows are distinct and `width`, `centres`, `basis`, `fit_intercept`, `likelihood`, `predictive`,
        `noise_variance`, `hyperprior`, `solver` and `tol` are at their defaults; elsewhere "auto" is "gaussian". A
        kernel that is given is that of a relevance vector machine: a name ("gaussian" or "rbf", "laplace", "cauchy",
        "log_distance", "matern32", "matern52", "polynomial", "linear", "linear_spline", "precomputed"), an object of
        `relvec.kernels`, any ``callable(X, Z) -> (n, m)`` including scikit-learn's Gaussian-process kernels, or None
        for no kernel. It need not be positive definite.
    width : float, array-like (n_features,), or a word: "auto" (the default), "learn", "learn-per-feature", "scale", \
"grvm", "grvm-per-feature"
        Width r of a kernel given by name, as in exp(-|x - z|^2 / r^2), or one per feature; with ``kernel="auto"`` that
        of a Gaussian kernel. "learn" and "learn-per-feature" maximise the evidence over it
        (`relvec.hyperparameters.widths`; several outputs share it); "scale" is r^2 = n_features * X.var(), the
        quickest; "auto" is "learn-per-feature" up to 32 features, and "scale" beyond and for counts, unless the kernel
        is chosen by merit, which learns its widths itself. A `relvec.kernels` object has its own width, which may be
        "learn" or "learn-per-feature" too. "grvm" is the one width of most evidence over weights and centres
        (`relvec.hyperparameters.grvm_widths`: RVM ME, or with ``centres="grvm"`` GRVM itself), "grvm-per-feature"
        climbs from there.
    centres : {"data", "move", "grvm"}, default "data"
        Where kernels sit. "data": on training rows. "move": anywhere in the box of the training rows; they start on
        rows and are shifted, merged, split and added while the evidence rises (`relvec.hyperparameters.centres`).
        "grvm": moved by GRVM's section 4, likelihood and precisions in turn (`relvec.hyperparameters.grvm`).
    basis : Basis, str, callable, or list of these, optional
        Further basis functions, appended to the kernel's; see `relvec.basis`.
    fit_intercept : bool, default True
        Whether a constant basis function, with its own precision, is among the candidates.
    solver : {"sequential", "mackay", "em"} or solver object, default "sequential"
        How the evidence of a relevance vector machine is maximised; see `relvec.solvers`.
    likelihood : {"gaussian", "student-t", "censored", "poisson"}, default "gaussian"
        "student-t" is for noise with heavy tails and gross errors, whose degrees of freedom are learned: rows far off
        count little and are named in `outliers_`; the evidence is the variational bound (`relvec.inference.student`).
        "censored" is for targets some of which are only known to lie in an interval: y is (n, 2), the lower and the
        upper limit of each target, equal where it was observed, -inf or inf where there is no limit (left and right
        censoring), or a structured array (event, time). The noise is normal, the posterior is Laplace's approximation,
        and predictions are for the target itself, whether or not it would be observed; see the guide, "Noise as it is".
        "poisson" is for counts: the sum of basis functions is the logarithm of the rate, the posterior is Laplace's
        approximation, `predict` gives the mean count averaged over it, quantiles and intervals are counts, `score` is
        the fraction of deviance explained (D^2), and the evidence includes -sum log y!.
    predictive : {"auto", "rvm", "augmented", "process"}, Augmented or Process, default "auto"
        What `predict` and its like use. "auto" is the process with the kernel of most merit where ``kernel="auto"``
        chooses one, and "rvm" elsewhere. The others start from a relevance vector machine (RQ05):

        - "rvm": T01 eq. (21)-(22). Sure of itself away from the data, where no basis function reaches.
        - "augmented" (RVM*): one more basis function at each point predicted. Keeps the training rows, O(N) a point;
          no covariances between points. `relvec.inference.predictive.Augmented` sets its prior.
        - "process": a Gaussian process with the relevance vectors as its inducing inputs: the variance returns to the
          prior's away from the data, nothing but the vectors is kept. Its own widths, amplitude and noise are fitted
          by `relvec.inference.process`; the kernel must be positive definite. `relvec.inference.process.Process` can
          hold the widths.

        See the guide, "How much to trust the error bars".
    noise : {"auto", "constant", "heteroscedastic"}, default "auto"
        Whether error bars depend on the inputs. With "auto" those of a process with a chosen kernel do if leave-one-out
        errors clearly show it; "heteroscedastic" learns noise and function together. See the guide, "Noise as it is".
    noise_variance : float, optional
        Fixed noise variance; None learns it. Counts have none: `noise_variance_` is nan.
    hyperprior : GammaPrior or dict, optional
        Gamma hyperpriors over precisions (a, b) and noise precision (c, d); None is flat.
    tol : float, optional
        The fit of a relevance vector machine ends when no single move gains more than this many nats of evidence. None:
        1e-4, and 0.3 where a Gaussian model has more than 300 functions; `certificate_` is the gain that is left.
    max_iter : int, default 10000
        Most steps of the solver of a relevance vector machine. A process has no such steps, and this parameter no
        effect on it: ``time_limit`` is what bounds both.
    warm_start : bool, default False
        Whether a further call of `fit` starts from the last model. A process keeps its kernels and learns their
        hyperparameters from where they were, nothing else is compared; the sequential solver starts from the functions
        and precisions that the last fit kept, where the new dictionary has them, and is held to the same certificate.
        Widths that are to be learned start from those of the last fit.
    memory_limit : float or str, default "4GB"
        Bytes, or such as "500MB" or "2GiB", that a fit may take besides the data it is given. Where the dictionary does
        not fit it is computed in blocks, held in single precision or reduced to its rank, without a change of the
        result; where nothing else fits the candidates are searched in subsets (TF03 6.2), and `status_` says
        "candidates" unless all of them were looked at. See the guide, "Large data".
    max_vectors : int, optional
        Most distinct rows that a process keeps; None is 1000. Fewer are kept where that costs almost nothing at rows
        held out: a small number makes small and quick models. It has no meaning for a relevance vector machine.
    max_functions : int, optional
        Maximum number of basis functions of a relevance vector machine, not counting the constant: of such models, the
        one of highest evidence that additions, deletions and exchanges find (see `relvec.relevance_path`).
    support_prior : {"auto", "flat", "size"}, default "auto"
        The prior over sets of basis functions of a relevance vector machine. "flat": all sets are alike, as in T01.
        "size": all numbers of functions are alike, and so are all sets of one size among M candidates,
        p(S) ~ 1 / C(M, |S|): a further function has to gain log((M - k) / (k + 1)) nats, and no less than 1, which the
        best of many useless ones seldom does.
        "auto" is "size" where the candidates are the columns of X (``kernel=None, basis="linear"``), else "flat".
    groups : array-like (n_features,), optional
        A label for each column of X, with ``kernel=None, basis="linear"``: columns of one label have one precision and
        enter or leave the model together, such as those that stand for one category each.
    share_alpha : bool, default False
        Whether outputs of a two-dimensional y share the precisions of the weights (M-SBL), in units of each output's
        root mean square: a function is in the models of all outputs or of none. Each output has a noise of its own.
    time_limit : float, optional
        Seconds for the whole fit. The best model by then is returned with the warning ``TIME_LIMIT``, which names the
        stages of a process that were cut short.
    device : str, optional
        Where to compute: "cuda", "cuda:1", "torch", "torch:cuda" (PyTorch) or "cupy"; data given as NumPy arrays are
        taken there, predictions come back as the library of X. "auto" is PyTorch's CUDA device where there is one and
        at least 10,000 rows are fitted or predicted, else the CPU. None is the CPU, or the device X lives on where
        scikit-learn's ``array_api_dispatch`` is set. The model found is the same; fitted attributes are NumPy arrays.
    random_state : int, RandomState or None
        Used where something is drawn: random centres, ``select="random"``, restarts beyond the third.
    verbose : None, "progress", bool or int, default None
        None shows a line with stage, size, evidence and times on a terminal (stderr) when a fit takes longer than three
        seconds, "progress" also where stderr is not a terminal; False or 0 never shows it; True or 1 logs every step
        (logger "relvec"). `relvec.runtime.progress.watch` passes the same values to a function.

    Attributes
    ----------
    selection_ : what was compared, best first (`relvec.gaussian_process.Compared`): name, merit, n_rows it was learned
        on, held_out (mean negative log density of held-out rows, nan if there were none), share in the prediction,
        refused (why it is excluded from the prediction, or ""). A name such as "gaussian[4] + linear" has a width for
        each of 4 inputs. Merits compare where n_rows is the same. Only where the kernel was chosen by merit.
    merit_ : log p(t | M) of the first of them, on its rows, the target standardised. Only where chosen by merit.
    process_ : where the kernel was chosen by merit, the process (`relvec.gaussian_process.FittedProcess`): components
        and their shares, scale of the target, bounds on the evidence and their gap a row, vectors, messages. With
        ``predictive="process"`` a `relvec.inference.process.ProcessPredictor`, None for an output without relevance
        vectors: then `noise_variance_` is the process's, and the other attributes tell of the machine that chose the
        vectors.
    basis_ : bound basis of the m functions kept: kernels first, then the further basis, then the constant.
    atoms_ : list of their m names.
    relevance_ : (r,) training rows that are kept, on which kernels are centred, ascending.
    vectors_ : (r,) records of those rows for a process: ``row``, and ``why`` it was kept: "relevance" to what the rows
        before it leave of the target, "coverage" of what the kernel allows, "all" where every row is kept.
    relevance_vectors_ : (r, n_features) those rows; absent for ``kernel="precomputed"``.
    centres_ : (p, n_features) where the kernels of the model sit, in the order of `weights_`: `relevance_vectors_`,
        unless centres were given or moved. A moved centre is no training row: `relevance_` and `relevance_vectors_`
        are empty then, and `centres_` are the vectors.
    placement_ : how well the data place moved centres, the evidence over weights and centres, and the moves
        (`relvec.hyperparameters.grvm.Placement`); only where centres moved.
    weights_ : (m,) posterior mean of the weights over `basis_`: ``basis_(X) @ weights_`` is what `predict` gives, and
        where a process has a logarithmic `process_.scale` the mean on that scale.
    intercept_ : weight of the constant, 0.0 where it is not in the model.
    coef_ : (n_features,) only for a purely linear model.
    coef_std_, selected_, gain_ : (n_features,) only for ``kernel=None, basis="linear"``: posterior standard deviations
        of `coef_`; which columns are in the model; the nats of log evidence that each of them is worth, the other
        precisions as they are. Both `coef_std_` and `gain_` are 0 for columns that are not in the model.
    alpha_ : (m,) weight precisions. `alpha_`, `gamma_` and `covariance_` are those of a relevance vector machine, and
        absent where the kernel was chosen by merit.
    covariance_ : (m, m) posterior covariance of the weights.
    gamma_ : (m,) how well the data determine each weight, from 0 to 1.
    noise_variance_ : noise variance, on the scale of the target where a process has one.
    degrees_of_freedom_ : of Student-t noise, at least 2.1; 200 is as good as normal.
    outliers_ : training rows that count less than a quarter of a usual row under Student-t noise, the worst first.
    noise_columns_ : columns of X that error bars depend on, n_features for the predicted mean. With noise="auto" only
        where they do; empty with noise="heteroscedastic" where noise of one variance explains the targets as well.
    n_censored_ : training rows whose target is known by an interval only; for ``likelihood="censored"``.
    log_marginal_likelihood_ : log evidence in the units of y, complete with -N/2 log 2 pi. Of a process chosen by merit
        it is the lower bound, of its first component.
    certificate_ : nats. Of a process chosen by merit: the upper bound on the exact evidence at its hyperparameters
        minus the lower; 0 where every row is a vector. Of a relevance vector machine: the largest gain that any single
        move still offered (of counts, see `RVC`); inf where it was not established.
    status_ : how the fit ended: "converged", or the name of a warning.
    history_ : structured array, a row a step of the solver, empty for a process: action, atom (number in the
        dictionary), row (training row the atom is centred on, -1 for none), gain, objective, size, noise_variance.
    n_iter_ : steps taken; evaluations of evidences by a process.
    n_candidates_ : basis functions that were candidates: all, unless `memory_limit` led to subsets.
    n_subsets_ : subsets the candidates were searched in; above 1 another local maximum may have been found than in one
        piece.
    compression_ : how N rows were reduced to the rank of the dictionary (`relvec.design.Compression`), or None.
    kernel_ : the kernel (the first, if the model has several) with its widths in numbers; absent without kernel.
    width_ : its width, a float or (n_features,); absent for kernels without.
    width_rule_ : the rule that gave it: "given", "merit", or the word for ``width``, where "auto" is the one it stood
        for; absent for kernels not given by name.
    feature_relevance_ : (n_features,) share of each input, summing to 1. Where the kernel was chosen by merit: in the
        mean squared slope of the function, inputs in standard deviations. Else eta_k var(x_k) with eta_k = width_k^-2:
        how much the kernel varies along each feature over the data (T01 section 4.3). `feature_importances_` has
        the roots, as shares.
    tuning_ : where each start of learned widths ended, and how often they agreed
        (`relvec.hyperparameters.widths.Tuning`); for "grvm" every width tried
        (`relvec.hyperparameters.grvm_widths.WidthSearch`). Absent where the kernel was chosen by merit.
    calibration_ : scores of the rows of `calibrate` (`relvec.inference.conformal.ConformalScores`); absent before it.
    fitted_ : all of the above as one frozen record (`relvec.estimators.fitted.FittedModel`).
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    For y of shape (n_samples, q) each output has its own model over the union of the functions kept, and where the
    kernel is chosen by merit all share the choice: `weights_`, `alpha_` (inf where a function is not in that output's
    model) and `gamma_` are (q, m), `covariance_` (q, m, m), `coef_` (q, n_features), `intercept_`, `noise_variance_`,
    `log_marginal_likelihood_`, `certificate_`, `merit_` and `n_iter_` (q,), `history_`, `status_`, `selection_` and
    `process_` lists of q.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RelevanceVectorRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(100)
    >>> model = RelevanceVectorRegressor().fit(X, y)
    >>> model.selection_[0].name, model.status_
    ('gaussian', 'converged')
    >>> mean, std = model.predict([[0.0]], return_std=True)
    >>> bool(abs(mean[0] - 1.0) < 2 * std[0])
    True

    The relevance vector machine of the papers:

    >>> sparse = RelevanceVectorRegressor(predictive="rvm").fit(X, y)
    >>> len(sparse.relevance_) < 12
    True
    """

    weights_: Any
    _has_default_tol = True

    def __init__(
        self, *, kernel: Any = "auto", width: Any = "auto", centres: str = "data", basis: Any = None,
        fit_intercept: bool = True, solver: Any = "sequential", likelihood: str = "gaussian",
        predictive: Any = "auto", noise: str = "auto", noise_variance: float | None = None, hyperprior: Any = None,
        tol: float | None = None, max_iter: int = 10000, warm_start: bool = False, memory_limit: Any = "4GB",
        max_vectors: int | None = None, max_functions: int | None = None, support_prior: str = "auto",
        groups: Any = None, share_alpha: bool = False, time_limit: float | None = None, device: str | None = None,
        random_state: Any = None, verbose: Any = None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.width = width
        self.centres = centres
        self.basis = basis
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.likelihood = likelihood
        self.predictive = predictive
        self.noise = noise
        self.noise_variance = noise_variance
        self.hyperprior = hyperprior
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.max_vectors = max_vectors
        self.max_functions = max_functions
        self.support_prior = support_prior
        self.groups = groups
        self.share_alpha = share_alpha
        self.time_limit = time_limit
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def _learns_widths(self) -> bool:
        return not self._wants_counts

    @property
    def _wants_counts(self) -> bool:
        """Whether the parameters ask for counts."""
        if self.likelihood not in LIKELIHOODS:
            raise ValueError(f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}, got {self.likelihood!r}")
        return self.likelihood == "poisson"

    def _prepare(self, options: FitOptions, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Callable]:
        counts = self._wants_counts
        if type(X) is not np.ndarray:
            if self._takes_sparse and issparse(X):
                return self._prepare_sparse(options, X, y, sample_weight)
            if is_dask(X):
                return self._prepare_dask(options, X, y, sample_weight)
            in_passes = options.chooses_kernel and options.noise in ("auto", "constant") and self.device is None
            X, y, sample_weight, names = self._load(X, y, sample_weight, options, in_passes)
            if is_sliced(X):
                return self._prepare_disk(options, X, y, sample_weight, names), GaussianSearch.of
        X, y, sample_weight, on_device = self._to_host(X, y, sample_weight)
        censored = self.likelihood == "censored"
        X, y = self._validate_ends(X, y) if censored else self._validate_targets(X, y)
        weights = self._check_weights(sample_weight, X, MAX_WEIGHT_SUM_OF_COUNTS if counts else MAX_WEIGHT_SUM)
        if censored:
            weights = np.where(np.isinf(y).all(axis=1), 0.0, weights)  # nothing is known of such a row
        check_used(weights)
        device = pick_device(self.device, X)
        if device is not None and on_device is None:
            on_device = as_device(device).to_device(X)
        targets, single = y.reshape(len(y), -1), y.ndim == 1 or censored
        if not counts and can_be_summed(options):
            basis = options.dictionary(X.shape[1]).bind(X, weights, options.generator())
            return SummarySource(summarise(basis, X, targets, weights), single), GaussianSearch.of
        place = None if on_device is None else device_of(on_device)
        source = MemorySource(X, targets, weights, on_device, place, not options.precomputed, single)
        if not counts:
            return source, GaussianSearch.of
        check_counts(options, are_counts(source.targets), some_counts(source))
        return source, self._search_for_counts(source)

    def _validate_targets(self, X: Any, y: Any, accept_sparse: Any = False) -> tuple[Any, np.ndarray]:
        """X (n, d) and y (n,) or (n, q) as finite numbers."""
        X, y = self._validate(X, check_numbers(y), multi_output=True, y_numeric=True, accept_sparse=accept_sparse)
        return X, np.asarray(y, dtype=np.float64)

    def _validate_ends(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """X (n, d) as finite numbers, and the ends (n, 2) of censored targets."""
        X, ends = validate_data(self, X, dtype=np.float64, ensure_min_samples=2), as_ends(y)
        check_consistent_length(X, ends)
        check_size(np.max(np.abs(ends), initial=0.0, where=np.isfinite(ends)))
        return X, ends

    def _set_fitted(self, fitted: FittedModel, source: Any) -> None:
        """Public attributes, in the units of X and y."""

        def per_output(values: Any) -> Any:
            return values[0] if fitted.single else values

        self._copy_attributes(fitted)
        self.weights_ = per_output(fitted.weights)
        of_rvm = fitted.selection is None
        self.intercept_, self.noise_variance_ = per_output(fitted.intercept), per_output(fitted.noise_variance)
        self.log_marginal_likelihood_ = per_output(fitted.log_evidence)
        self.certificate_, self.n_iter_ = per_output(fitted.certificate), per_output(fitted.n_iter)
        self.status_, self.history_ = per_output(fitted.status), per_output(fitted.history)
        self.compression_, noise = fitted.compression, fitted.noise
        optional = {
            "alpha_": fitted.alpha if of_rvm else None,
            "gamma_": fitted.gamma if of_rvm else None,
            "covariance_": np.array(fitted.covariances()) if of_rvm else None,
            "coef_": fitted.coef,
            "process_": None,
            "selection_": fitted.selection,
            "merit_": fitted.merit,
            "degrees_of_freedom_": [noise.degrees] if noise is not None and noise.degrees else None,
            "outliers_": [noise.outliers] if noise is not None and noise.degrees else None,
            "noise_columns_": fitted.noise_columns,
            "n_censored_": [noise.n_censored] if noise is not None and noise.kind == "censored" else None,
        }
        self._set_or_drop({name: v if v is None else per_output(v) for name, v in optional.items()})
        if fitted.processes is not None:
            self.process_ = per_output(fitted.processes)  # None for an output without vectors
        self._describe_inputs(fitted, per_output)
