"""Relevance vector classification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import compute_sample_weight
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from relvec import design
from relvec.estimators.base import MAX_WEIGHT_SUM_OF_COUNTS, check_weight_sum
from relvec.estimators.fitted import FittedModel
from relvec.estimators.laplace import LaplaceSearch
from relvec.estimators.options import FitOptions
from relvec.estimators.predictions.classes import ClassPredictions
from relvec.estimators.sources import MemorySource, SparseSource
from relvec.estimators.sources.base import check_labels
from relvec.inference.likelihoods import Bernoulli, Categorical
from relvec.inference.process import Process
from relvec.runtime.arrays import as_device, device_of, pick_device


class RelevanceVectorClassifier(ClassPredictions):
    """Relevance vector classification: a sparse probabilistic classifier over basis functions.

    By default, ``RVC()`` is a Gaussian process for classes with relevance vectors as its inducing inputs. A linear
    kernel and Gaussian ones, with one width or one for each input, are compared by the log density of held-out rows
    (five folds, fewer for large tables), and the best, or a sum of several, predicts; slope and moderation of its
    probabilities are learned from the same rows. `selection_` lists what was compared. Inputs are standardised inside:
    units do not matter. If no column varies, or if anything else about the model is given, such as a kernel, a width, a
    basis or ``predictive="rvm"``, the model is the relevance vector machine, as follows.

    For two classes the log-odds are ``f(x) = sum_m w_m phi_m(x)``, with a Gaussian prior of its own precision
    ``alpha_m`` over each weight (T01 section 3). The precisions maximise the evidence under Laplace's approximation;
    most become infinite and their basis functions leave the model. K > 2 classes are one softmax model with a function
    for each class (T01 eq. (28)), or K dichotomies.

    Parameters
    ----------
    kernel : str, Kernel, callable or None, default "auto"
        "auto" leaves the choice to the data where ``predictive`` and all other parameters of the model are at their
        defaults too, and is "gaussian" elsewhere. Otherwise as in `RelevanceVectorRegressor`.
    width : float, array-like (n_features,), or a word: "auto" (the default), "learn", "learn-per-feature", "scale", \
"grvm", "grvm-per-feature"
        Width r of a kernel given by name, as in exp(-|x - z|^2 / r^2), or one per feature. "learn" and
        "learn-per-feature" maximise the evidence over it (`relvec.hyperparameters.widths`; dichotomies share it);
        "scale" is r^2 = n_features * X.var(), tens of times as fast, and what "auto" means: errors differ little, but
        learned widths may improve probabilities. A `relvec.kernels` object has its own width, also "learn" or
        "learn-per-feature". "grvm" is the one width of most evidence over weights and centres
        (`relvec.hyperparameters.grvm_widths`: RVM ME, or with ``centres="grvm"`` GRVM itself), "grvm-per-feature"
        climbs from there.
    centres : {"data", "move", "grvm"}, default "data"
        As in `RelevanceVectorRegressor`: kernels on training rows, or moved.
    basis : Basis, str, callable, or list of these, optional
        Further basis functions, appended to the kernel's; see `relvec.basis`.
    fit_intercept : bool, default True
        Whether a constant basis function, with its own precision, is among the candidates.
    solver : {"sequential", "mackay", "em"} or solver object, default "sequential"
        "sequential" keeps a move only if the evidence of the refitted model rises and ends at a maximum. "mackay" and
        "em" end at the fixed point of T01 eq. (16), which is near, not at, the maximum, because the curvature moves
        with the precisions; `certificate_` says how far.
    class_weight : dict, "balanced" or None, default None
        Multiplies the sample weights of each class.
    multi_class : {"multinomial", "ovr"}, default "multinomial"
        For K > 2: one softmax model, or one class against the rest K times, the probabilities normalised.
    share_alpha : bool, default False
        In the softmax model: whether the classes share one precision per basis function, so that a function is in
        the model of all classes or of none.
    averaging : {"posterior", "mode"}, default "posterior"
        Whether probabilities are averaged over the posterior of the weights or taken at its mode. For two classes
        the average is exact to about 1e-8; for a softmax it is an average over 1024 fixed quasi-random points.
    predictive : {"auto", "rvm", "augmented", "process"} or Augmented, default "auto"
        What probabilities are made of. "auto" is the process of ``kernel="auto"``, and "rvm" where a kernel or anything
        else of the model is given. "process" is the process also where ``kernel`` is "gaussian", "matern32" or
        "matern52", the covariance of the log-odds then: ``width`` in numbers or "scale" is held, "learn" and
        "learn-per-feature" are learned, "auto" tries both; its amplitude and calibration are learned in any case, and
        probabilities return to the base rates away from the data. "rvm" is the model over the functions kept.
        "augmented" (RVM*, RQ05) adds one more basis function at each point predicted, with a prior variance equal to
        the variance of the latent functions over the training rows, or one over the alpha of
        `relvec.inference.predictive.Augmented`: away from the data the log-odds become uncertain and the probabilities
        moderate. Keeps the training rows, O(N) a point.
    hyperprior : GammaPrior or dict, optional
        Gamma hyperprior (a, b) over the weight precisions, for "mackay" and "em"; None is flat.
    complexity_price : float or "auto", default 0.0
        Nats that every function of a relevance vector machine costs: functions that raise the evidence by less are not
        kept. Without a price the evidence of a sparse classifier, which is overconfident, would keep them. Part of what
        the sequential solver maximises and of `certificate_`; `log_marginal_likelihood_` stays the evidence. 0 is the
        search of the papers. A price asks for the relevance vector machine, not the process. "auto" is log M where the
        candidates are M columns of X and the constant, the information needed to name one of them, and 0 elsewhere.
    tol : float, default 1e-3
        A fit ends when no single move, refitted, gains more than this many nats of evidence.
    max_iter : int, default 10000
        Most steps of the solver.
    warm_start : bool, default False
        Whether a further call of `fit` starts the sequential solver from the functions and precisions that the last
        one kept, where the new dictionary has them, instead of from nothing. The model is held to the same
        certificate either way. Widths that are to be learned start from those of the last fit.
    memory_limit : float or str, default "4GB"
        As in `RelevanceVectorRegressor`.
    max_vectors : int, optional
        Most distinct rows that a process keeps; None is 400 for two classes and fewer for more. It has no meaning for a
        relevance vector machine.
    time_limit : float, optional
        Seconds for the whole fit; where they are not enough `status_` is "time_limit", the model is the best found so
        far, and a warning tells what was cut short.
    device : str, optional
        Where to compute, as in `RelevanceVectorRegressor`.
    random_state : int, RandomState or None
        Used where something is drawn: random centres, the restarts that remove atoms at random.
    verbose : None, "progress", bool or int, default None
        How progress is shown, as in `RelevanceVectorRegressor`.

    Attributes
    ----------
    classes_ : (K,) class labels.
    basis_ : bound basis of the m functions kept: kernels first, then the further basis, then the constant.
    atoms_ : list of their m names.
    relevance_ : (r,) training rows the kernels are centred on, ascending: the union over the classes, each row counted
        once. This is the number of relevance vectors, and of kernel evaluations a prediction costs.
    relevance_per_class_ : list of K arrays, the rows each class uses; for two classes one array. Their total length
        counts a vector once for each class that uses it.
    relevance_vectors_ : (r, n_features) the centres; absent for ``kernel="precomputed"``.
    centres_ : (p, n_features) where the kernels of the model sit, in the order of `weights_`, whose first p they are:
        `relevance_vectors_`, unless centres were given or moved. A moved centre is no training row: `relevance_` and
        `relevance_vectors_` are empty then, and `centres_` are the vectors.
    placement_ : how well the data place moved centres, the evidence over weights and centres, and the moves
        (`relvec.hyperparameters.grvm.Placement`); only where centres moved.
    weights_ : (m,) posterior mode of the weights for two classes; (K, m) otherwise, 0 where a function is not in the
        model of the class. The first r columns belong to `relevance_`. Of a process: the weights of the mean of the
        log-odds, or of the logarithms of the probabilities, over `basis_`, base rates included, before the variance
        moderates them.
    intercept_ : weight of the constant, a float or (K,); 0.0 where it is not in the model.
    coef_, coef_std_, selected_, gain_ : (n_features,), or (K, n_features) for K > 2 classes, only where ``kernel`` is
        None and ``basis="linear"``: slopes of the log-odds and their posterior standard deviations; which columns are
        in the model; the nats of log evidence each of them is worth.
    alpha_ : weight precisions, in the shape of `weights_`; inf where a function is not in the model of the class. A
        constant that is not may still have a weight: columns of X are centred, and it takes their means back.
    gamma_ : how well the data determine each weight, from 0 to 1, in the shape of `weights_`.
    covariance_ : posterior covariance of the weights: (m, m) for two classes, (K, m, m) for "ovr", and
        (K, m, K, m), joint over the classes, for a softmax; 0 where a function is not in the model.
    selection_ : what was compared and by how much the choice won (`relvec.gaussian_process.classes.Selection`): a
        record of each candidate, the log loss of the choice at rows that took no part, and their calibration curve;
        only for a process.
    calibration_curve_ : (bins, 3) reliability of the probabilities of rows that took no part: mean probability, share
        that came true, weight; for more than two classes of all classes together. Empty where no row was held out;
        only for a process.
    process_ : the process itself (`relvec.gaussian_process.classes.ClassModel`); only for a process, which has no
        `alpha_`, `gamma_` and `covariance_`. It has vectors unless it is linear; `relevance_` are their rows.
    log_marginal_likelihood_ : Laplace evidence; (K,) for "ovr". Of a process: that of its kernel, or of the first of
        two that are added.
    certificate_ : the largest gain (nats) that a single move, refitted, still offered; inf where it was not
        established. Moves are ranked by their linearised gain, and the most promising of each kind refitted. With two
        classes and at most 2,000 rows in memory every precision of up to 50 is tried far from its value as well, and in
        tables of up to 50 rows every addition at several; beyond, additions of no promise are not looked at. Of a
        process: the gain of a further Newton step of its weights.
    status_, n_iter_, history_ : how the fit ended, its steps, and a structured array with a row a step: action, atom,
        gain, objective, size, noise_variance (nan). ``atom`` counts units: atom m of class c is c * M + m in a
        dictionary of M functions. Lists of K, or (K,), for "ovr".
    n_candidates_, n_subsets_ : as in `RelevanceVectorRegressor`.
    kernel_ : the kernel (the first, if the basis has several) with its widths in numbers; absent without kernel.
    width_ : its width, a float or (n_features,); absent for kernels without.
    width_rule_ : the rule that gave it: "given", or the word for ``width``, where "auto" is the one it stood for;
        absent for kernels not given by name.
    feature_relevance_ : (n_features,) eta_k var(x_k) with eta_k = width_k^-2, normalised to sum 1: how much the
        kernel varies along each feature over the data (T01 section 4.3). `feature_importances_` has the
        roots, as shares.
    tuning_ : where each start of learned widths ended, and how often they agreed
        (`relvec.hyperparameters.widths.Tuning`); for "grvm" every width tried
        (`relvec.hyperparameters.grvm_widths.WidthSearch`).
    calibration_ : scores of the rows of `calibrate` (`relvec.inference.conformal.ConformalScores`); absent before it.
    fitted_ : all of the above as one frozen record (`relvec.estimators.fitted.FittedModel`).
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RelevanceVectorClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2)) + np.repeat([[-1.0, 0.0], [1.0, 0.0]], 50, axis=0)
    >>> y = np.repeat(["left", "right"], 50)
    >>> model = RelevanceVectorClassifier(width=3.0).fit(X, y)
    >>> len(model.relevance_) < 6, model.status_
    (True, 'converged')
    >>> model.predict([[-2.0, 0.0], [2.0, 0.0]]).tolist()
    ['left', 'right']
    """

    def __init__(
        self,
        *,
        kernel: Any = "auto",
        width: Any = "auto",
        centres: str = "data",
        basis: Any = None,
        fit_intercept: bool = True,
        solver: Any = "sequential",
        class_weight: Any = None,
        multi_class: str = "multinomial",
        share_alpha: bool = False,
        averaging: str = "posterior",
        predictive: Any = "auto",
        hyperprior: Any = None,
        complexity_price: float = 0.0,
        tol: float = 1e-3,
        max_iter: int = 10000,
        warm_start: bool = False,
        memory_limit: Any = "4GB",
        max_vectors: int | None = None,
        time_limit: float | None = None,
        device: str | None = None,
        random_state: Any = None,
        verbose: Any = None,
    ) -> None:
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
        self.hyperprior = hyperprior
        self.complexity_price = complexity_price
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.memory_limit = memory_limit
        self.max_vectors = max_vectors
        self.time_limit = time_limit
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _options(self) -> FitOptions:
        options = super()._options()
        for name, choices in (("multi_class", ("multinomial", "ovr")), ("averaging", ("posterior", "mode"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if isinstance(options.predictive, Process):
            return self._process_options(options)
        if options.predictive is not None and isinstance(options.predictive.alpha, str):
            raise ValueError("with classes the alpha of Augmented must be None or a positive number, got 'evidence'")
        return options

    def _process_options(self, options: FitOptions) -> FitOptions:
        """The options of ``predictive="process"``, where parameters of the RVM's search have no meaning."""
        usual = {"centres": "data", "basis": None, "fit_intercept": True, "hyperprior": None, "device": None,
                 "multi_class": "multinomial", "share_alpha": False, "averaging": "posterior"}  # fmt: skip
        for name, value in usual.items():
            if type(getattr(self, name)) is not type(value) or getattr(self, name) != value:
                raise ValueError(
                    f"predictive='process' does not support {name}={getattr(self, name)!r}: leave it at {value!r}"
                )
        auto = [isinstance(value, str) and value == "auto" for value in (self.kernel, self.width)]
        return replace(options, chooses_kernel=all(auto))

    def _prepare(self, options: FitOptions, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Callable]:
        if type(X) is not np.ndarray and not (self._takes_sparse and issparse(X)):
            if design.is_dask(X):
                return self._prepare_dask(options, X, y, sample_weight)
            X, y, sample_weight, _ = self._load(X, y, sample_weight, options)
            if design.is_sliced(X):
                self._refuse_disk(X)
        in_columns = issparse(X) and self._takes_sparse
        X, y, sample_weight, on_device = (
            (X, y, sample_weight, None) if in_columns else self._to_host(X, y, sample_weight)
        )
        accepted = "csc" if in_columns else False
        X, y = self._validate(X, check_labels(y), accept_sparse=accepted)
        chosen = options.chooses_kernel and self.device == "auto"  # the process of classes works on the host
        device = None if chosen else pick_device(self.device, X)
        place = as_device(device) if device is not None else None
        place = device_of(on_device) if on_device is not None else place
        classes, label = sort_classes(y)
        weights = self._check_weights(sample_weight, X, MAX_WEIGHT_SUM_OF_COUNTS)
        factors = compute_sample_weight(self.class_weight, y)
        if not np.all(factors >= 0.0):
            raise ValueError(f"class_weight must give each class a number of 0 or more, got {self.class_weight!r}")
        weights = weights * factors
        check_weight_sum(weights, MAX_WEIGHT_SUM_OF_COUNTS)
        check_classes(classes, len(np.unique(label[weights > 0.0])))
        member = np.equal.outer(label, np.arange(len(classes))).astype(float)
        targets = member[:, 1:] if len(classes) == 2 else member
        if in_columns:
            return SparseSource(X, targets, weights, len(classes) == 2), self._search_for(classes)
        source = MemorySource(X, targets, weights, None, place, not options.precomputed, len(classes) == 2)
        return source, self._search_for(classes)

    def _prepare_dask(self, options: FitOptions, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Callable]:
        """Rows that stay with the workers of Dask; few are brought here."""
        from relvec.estimators.sources.dask import DaskSource, are_brought_here, check_dask

        check_dask(options)
        labels = design.align_labels(X, y)
        classes, counts = design.count_labels(labels, check_classification_targets)
        if are_brought_here(int(counts.sum()), X.shape[1], options, gaussian=False):
            return self._prepare(options, *design.gather(X, y, sample_weight))
        check_classes(classes)
        weights = sample_weight
        if self.class_weight is not None:
            factors = class_factors(self.class_weight, classes, counts)
            weights = design.weigh_classes(labels, X, sample_weight, classes, factors)
        samples = design.DaskSamples(X, design.class_indicators(labels, classes), weights)
        check_classes(classes, int(np.count_nonzero(samples.reduce(present_classes, np.logical_or))))
        self._store_features(samples.n_features, samples.names)
        return DaskSource(samples, gaussian=False), self._search_for(classes)

    def _search_for(self, classes: np.ndarray) -> Callable:
        """Store the classes, and return the function that makes the search for their model."""
        self.classes_, K = classes, len(classes)
        if K > 2 and self.multi_class == "multinomial":
            return partial(LaplaceSearch.of, likelihood=Categorical(K), share=bool(self.share_alpha))
        labels = () if K == 2 else tuple(f"class {name!r} against the rest: " for name in classes)
        return partial(LaplaceSearch.of, likelihood=Bernoulli(), labels=labels)

    def _set_fitted(self, fitted: FittedModel, source: Any) -> None:
        """Public attributes, in the units of the basis functions as given."""
        single, joint = len(fitted.weights) == 1, len(fitted.predictors) == 1

        def per_function(values: Any) -> Any:
            return values[0] if single else values

        def per_search(values: Any) -> Any:
            return (values[0].item() if isinstance(values, np.ndarray) else values[0]) if joint else values

        self._copy_attributes(fitted)
        self.weights_, self.intercept_ = per_function(fitted.weights), per_function(fitted.intercept)
        self._describe_inputs(fitted, per_function)
        optional = {"coef_": per_function(fitted.coef) if hasattr(self, "selected_") else None}
        optional |= dict.fromkeys(("selection_", "process_", "calibration_curve_", "alpha_", "gamma_"))
        if fitted.selection is not None and fitted.processes is not None:
            selection = fitted.selection[0]
            optional |= {"selection_": selection, "process_": fitted.processes[0]}
            optional |= {"calibration_curve_": selection.calibration_curve}
            self.relevance_per_class_ = [fitted.relevance] * len(fitted.weights)
        else:
            rows = fitted.basis.rows
            self.relevance_per_class_ = [rows[np.isfinite(alpha) & (rows >= 0)] for alpha in fitted.alpha]
            optional |= {"alpha_": per_function(fitted.alpha), "gamma_": per_function(fitted.gamma)}
        self._set_or_drop(optional)
        self.log_marginal_likelihood_ = per_search(fitted.log_evidence)
        self.certificate_, self.n_iter_ = per_search(fitted.certificate), per_search(fitted.n_iter)
        self.status_, self.history_ = per_search(fitted.status), per_search(fitted.history)

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance of the weights, see the class."""
        if not hasattr(self, "fitted_") or not self.fitted_.functions:
            raise AttributeError("covariance_ exists only for a fitted relevance vector machine: set predictive='rvm'")
        found, m = self.fitted_.covariances(), len(self.atoms_)
        if len(found) > 1:
            return np.stack(found)
        K = self.fitted_.functions[0].n_outputs
        return found[0] if K == 1 else found[0].reshape(K, m, K, m)


def sort_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes (K,) of labels y (n,), in order, and the place of each label among them."""
    kinds = sorted({type(label).__name__ for label in y}) if y.dtype == object else []
    try:
        with np.errstate(invalid="ignore"):  # numbers that are no integers of 64 bits
            check_classification_targets(y)
        return np.unique(y, return_inverse=True)
    except (TypeError, ValueError) as error:
        if not kinds:
            raise
        found = f"Unknown label type: y has labels of the types {', '.join(kinds)} as objects"
        raise ValueError(f"{found}; make all of them text, y.astype(str)") from error


def check_classes(classes: np.ndarray, n_present: int | None = None) -> None:
    """Refuse fewer than two classes, or fewer than two of them with samples of positive weight."""
    if len(classes) < 2:
        raise ValueError(f"a classifier needs at least 2 classes in y, got only one class: {classes.tolist()}")
    if n_present is not None and n_present < 2:
        raise ValueError("at least 2 classes need samples of positive weight: check sample_weight and class_weight")


def present_classes(block: design.Block) -> np.ndarray:
    """Which classes some rows have."""
    members = block.targets if block.targets.shape[1] > 1 else np.column_stack([1.0 - block.targets, block.targets])
    return np.asarray(members.any(axis=0))


def class_factors(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Factors (K,) of the weights of each class."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(classes) * counts)
    return compute_class_weight(class_weight, classes=classes, y=classes)
