"""Relevance vector classification."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from relvec.basis import Basis
from relvec.design import is_dask
from relvec.estimators.base import BaseRelevanceVector, by_blocks, some_of
from relvec.estimators.dictionary import dictionary, kept_centres, store_centres, store_widths
from relvec.estimators.laplace_fit import LaplaceFit, fit_laplace
from relvec.estimators.outcome import warn_unless_converged
from relvec.estimators.units import check_representable, feature_variances
from relvec.inference.likelihoods import Bernoulli, Categorical, Likelihood, logistic_log_odds, softmax_normal
from relvec.inference.predictive import Augmented, AugmentedLatentPredictor, LatentPredictor
from relvec.inference.process import Process, as_predictive, check_kernels, kernels_of
from relvec.kernels import Kernel
from relvec.runtime.arrays import as_device, device_of, namespace, to_host


class RelevanceVectorClassifier(ClassifierMixin, BaseRelevanceVector):
    """Relevance vector classification: a sparse probabilistic classifier over basis functions.

    For two classes the log-odds are ``f(x) = sum_m w_m phi_m(x)``, with a Gaussian prior of its own precision
    ``alpha_m`` over each weight (T01 section 3). The precisions maximise the evidence under Laplace's approximation;
    most become infinite and their basis functions leave the model. K > 2 classes are one softmax model with a function
    for each class (T01 eq. (28)), or K dichotomies.

    Parameters
    ----------
    kernel : str, Kernel, callable or None, default "gaussian"
        As in `RelevanceVectorRegressor`.
    width : float, array-like (n_features,), or a word: "auto" (the default), "learn", "learn-per-feature", "scale", \
"grvm", "grvm-per-feature"
        Width r of a kernel given by name, as in exp(-|x - z|^2 / r^2), or one per feature. "learn" and
        "learn-per-feature" maximise the evidence over it (`relvec.hyperparameters.widths`; several outputs or
        dichotomies share it);
        "scale" is r^2 = n_features * X.var(), tens of times as quick, and what "auto" means: with classes errors
        differ little, though probabilities may gain. A `relvec.kernels` object has its
        own width, "learn" and "learn-per-feature" among them. "grvm" is the one width of most evidence over weights
        and centres, which does not run to small widths (`relvec.hyperparameters.grvm_widths`: RVM ME, or with
        ``centres="grvm"`` GRVM itself), "grvm-per-feature" climbs from there.
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
        the average is computed to about 1e-8; for a softmax it is an average over 1024 fixed quasi-random points.
    predictive : {"rvm", "augmented"} or Augmented, default "rvm"
        What probabilities are made of. "augmented" (RVM*, RQ05) adds one more basis function at each point predicted,
        with a prior variance equal to the variance of the latent functions over the training rows, or one over the
        alpha of `relvec.inference.predictive.Augmented`: away from the data the log-odds become uncertain and the
        probabilities moderate. Keeps the training rows, O(N) a point.
    hyperprior : GammaPrior or dict, optional
        Gamma hyperprior (a, b) over the weight precisions, for "mackay" and "em"; None is flat.
    tol : float, default 1e-3
        A fit ends when no single move, refitted, gains more than this many nats of evidence.
    max_iter : int, default 10000
        Most steps of the solver.
    warm_start : bool, default False
        Whether a further call of `fit` starts the sequential solver from the functions and precisions that the last
        one kept, where the new dictionary has them, instead of from nothing. The model is held to the same
        certificate either way. Widths that are to be learned are learned anew, and the start is what that found.
    checkpoint : str or path, optional
        As in `RelevanceVectorRegressor`: a folder from which the same `fit` continues after its process was killed.
    memory_limit : float or str, default "4GB"
        As in `RelevanceVectorRegressor`.
    n_jobs : int, optional
        Dichotomies fitted at once for ``multi_class="ovr"``.
    device : str, optional
        Where to compute: "cuda", "cuda:1", "torch", "torch:cuda" (PyTorch) or "cupy"; data given as NumPy arrays are
        taken there, predictions come back as the library of X. None is the CPU, or the device X lives on where
        scikit-learn's ``array_api_dispatch`` is set. The model found is the same; fitted attributes are NumPy arrays.
    random_state : int, RandomState or None
        Used where something is drawn: random centres, the restarts that remove atoms at random.
    verbose : None, "progress", bool or int, default None
        None shows a line with stage, size, evidence and times on a terminal (stderr) while a fit takes longer than
        three seconds, "progress" also where stderr is none, False or 0 never; True or 1 logs every step (logger
        "relvec"). `relvec.runtime.progress.watch` hands the same to a function.

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
        model of the class. The first r columns belong to `relevance_`.
    intercept_ : weight of the constant, a float or (K,); 0.0 where it is not in the model.
    alpha_ : weight precisions, in the shape of `weights_`; inf where a function is not in the model of the class.
    gamma_ : how well the data determine each weight, from 0 to 1, in the shape of `weights_`.
    covariance_ : posterior covariance of the weights: (m, m) for two classes, (K, m, m) for "ovr", and
        (K, m, K, m), joint over the classes, for a softmax; 0 where a function is not in the model.
    log_marginal_likelihood_ : Laplace evidence; (K,) for "ovr".
    certificate_ : the largest gain (nats) that a single move, refitted, still offered; inf where it was not
        established. Moves are ranked by their linearised gain, and the most promising of each kind refitted.
    status_, n_iter_, history_ : how the fit ended, its steps, and a structured array with a row a step: action, atom,
        gain, objective, size, noise_variance (nan). ``atom`` counts units: atom m of class c is c * M + m in a
        dictionary of M functions. Lists of K, or (K,), for "ovr".
    n_candidates_, n_subsets_ : as in `RelevanceVectorRegressor`.
    kernel_ : the kernel (the first, if the basis has several) with its widths in numbers; absent without kernel.
    width_ : its width, a float or (n_features,); absent for kernels without.
    feature_relevance_ : (n_features,) eta_k var(x_k) with eta_k = width_k^-2, normalised to sum 1: how much the
        kernel varies along each feature over the data (T01 section 4.3). `feature_importances_` is the same.
    tuning_ : where each start of learned widths ended, and how often they agreed
        (`relvec.hyperparameters.widths.Tuning`); for "grvm" every width tried
        (`relvec.hyperparameters.grvm_widths.WidthSearch`).
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

    _latents: list[LatentPredictor]
    _models: list[LatentPredictor | AugmentedLatentPredictor]

    def __init__(
        self,
        *,
        kernel: Any = "gaussian",
        width: Any = "auto",
        centres: str = "data",
        basis: Any = None,
        fit_intercept: bool = True,
        solver: Any = "sequential",
        class_weight: Any = None,
        multi_class: str = "multinomial",
        share_alpha: bool = False,
        averaging: str = "posterior",
        predictive: Any = "rvm",
        hyperprior: Any = None,
        tol: float = 1e-3,
        max_iter: int = 10000,
        warm_start: bool = False,
        checkpoint: Any = None,
        memory_limit: Any = "4GB",
        n_jobs: int | None = None,
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
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> RelevanceVectorClassifier:
        if is_dask(X):
            from relvec.estimators.dask_classes import fit_classes_on_workers

            fit_classes_on_workers(self, X, y, sample_weight)
            return self
        loaded = self._loaded(X, y, sample_weight)
        if loaded is None:
            return self
        X, y, sample_weight = loaded
        X, y, sample_weight, on_device = self._hosted(X, y, sample_weight)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        place = as_device(self.device) if self.device is not None else None
        place = device_of(on_device) if on_device is not None else place
        check_classification_targets(y)
        self._check_numbers()
        self._check_choices()
        classes, label = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"a classifier needs at least 2 classes in y, got only one class: {classes.tolist()}")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weights = weights * compute_sample_weight(self.class_weight, y)
        used = np.flatnonzero(weights > 0.0)
        if len(np.unique(label[used])) < 2:
            raise ValueError("at least 2 classes need samples of positive weight: check sample_weight and class_weight")
        basis, free = dictionary(self, X, weights)
        self._identify(basis, X, label, classes, weights)
        predictive = _as_augmented(self.predictive)
        if predictive is not None:
            check_kernels(kernels_of(basis), predictive)
        K, w = len(classes), weights[used]
        member = np.equal.outer(label[used], np.arange(K)).astype(float)
        likelihood: Likelihood = Bernoulli()
        if K == 2:
            targets = [member[:, 1]]
        elif self.multi_class == "ovr":
            targets = list(member.T)
        else:
            targets, likelihood = [member], Categorical(K)
        share = K > 2 and self.multi_class == "multinomial" and bool(self.share_alpha)
        fits, basis, learned, moved = fit_laplace(
            self, basis, free, some_of(X, used), targets, w, likelihood, share, place
        )
        for i, fit in enumerate(fits):
            where = f"class {classes[i]!r} against the rest: " if len(fits) > 1 else ""
            warn_unless_converged(fit.result, self._tol, where)
        self.classes_ = classes
        self._store(basis, X, fits)
        store_widths(self, basis, feature_variances(X, weights), learned)
        store_centres(self, basis, *(moved or (X, [], [], [])))
        if predictive is not None:
            kernel = kernels_of(basis)[0]
            self._models = [
                _augmented(predictive, model, kernel, X[used], t, w, likelihood)
                for model, t in zip(self._latents, targets, strict=True)
            ]
        return self

    def _check_choices(self) -> None:
        for name, choices in (("multi_class", ("multinomial", "ovr")), ("averaging", ("posterior", "mode"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")

    def _store(self, basis: Basis, X: Any, fits: list[LaplaceFit]) -> None:
        """Public attributes, in the units of the basis functions as given."""
        union = np.unique(np.concatenate([fit.pairs[1] for fit in fits])).astype(np.intp)
        atoms = union[np.lexsort((basis.rows[union], basis.rows[union] < 0))]  # training rows ascending, then the rest
        kept = basis.take(atoms)
        models = [fit.latent(kept, atoms) for fit in fits]
        R = sum(model.n_outputs for model in models)  # functions: 1, or K
        weights, alpha, gamma = np.zeros((R, len(atoms))), np.full((R, len(atoms)), np.inf), np.zeros((R, len(atoms)))
        scale = fits[0].problem.design.scale[atoms]
        for i, (model, fit) in enumerate(zip(models, fits, strict=True)):
            p = fit.result.state.posterior
            at = (model.outputs + i, model.places)
            with np.errstate(over="ignore", under="ignore"):
                weights[at] = p.mean / scale[model.places]
                alpha[at] = p.alpha * scale[model.places] ** 2
                variances = np.sum((model.root / scale[model.places, None]) ** 2, axis=1)
            check_representable(weights[at], alpha[at], variances)
            gamma[at] = p.gamma
        single, joint = R == 1, len(fits) == 1

        def squeezed(values: Any) -> Any:
            return values[0] if single else values

        def per_fit(values: list) -> Any:
            return values[0] if joint else (values if isinstance(values[0], str | np.ndarray) else np.array(values))

        self._latents, self._models = models, list(models)
        self.basis_, self.atoms_, self.centres_ = kept, kept.labels(), kept_centres(kept)
        self.relevance_ = kept.rows[kept.rows >= 0]
        present = [np.flatnonzero(np.isfinite(row) & (kept.rows >= 0)) for row in alpha]
        self.relevance_per_class_ = [kept.rows[i] for i in present]
        self.weights_, self.alpha_, self.gamma_ = squeezed(weights), squeezed(alpha), squeezed(gamma)
        has_bias = self.fit_intercept and basis.n_atoms - 1 in atoms
        self.intercept_ = squeezed(weights[:, -1] if has_bias else np.zeros(R))
        self.log_marginal_likelihood_ = per_fit([float(fit.log_evidence) for fit in fits])
        self.certificate_ = per_fit([float(fit.result.state.largest_gain) for fit in fits])
        self.n_iter_ = per_fit([fit.result.n_iter for fit in fits])
        self.status_ = per_fit([fit.result.status.name.lower() for fit in fits])
        self.history_ = per_fit([fit.history(basis.rows) for fit in fits])
        self.__dict__.pop("relevance_vectors_", None)
        if not (isinstance(self.kernel, str) and self.kernel == "precomputed"):
            self.relevance_vectors_ = X[self.relevance_]

    @property
    def covariance_(self) -> np.ndarray:
        """Posterior covariance of the weights, see the class."""
        if not hasattr(self, "_latents"):
            raise AttributeError("covariance_ is known after fit")
        m, found = len(self.atoms_), []
        for model in self._latents:
            place = model.outputs * m + model.places
            root = model.root / model.scale[model.places, None]
            full = np.zeros((model.n_outputs * m, model.n_outputs * m))
            full[np.ix_(place, place)] = root @ root.T
            found.append(full)
        if len(found) > 1:
            return np.stack(found)
        K = self._latents[0].n_outputs
        return found[0] if K == 1 else found[0].reshape(K, m, K, m)

    @by_blocks
    def decision_function(self, X: Any) -> np.ndarray:
        """Confidence of each class.

        Parameters
        ----------
        X : array-like (n, n_features), or (n, n_training_samples) for ``kernel="precomputed"``

        Returns
        -------
        scores : (n,) or (n, K)
            For two classes the log-odds of the second, averaged as `predict_proba`; for "ovr" the log-odds of each
            class against the rest; for a softmax the logarithms of the probabilities, less their mean.

        Examples
        --------
        >>> from relvec import RVC
        >>> model = RVC(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> model.decision_function([[0.0], [3.0]]).shape
        (2,)
        """
        if is_dask(X):
            return self._lazily("decision_function", X)
        X, back = self._rows(X)
        xp = namespace(X)
        if len(self.classes_) > 2 and len(self._models) == 1:
            logs = xp.log(xp.clip(self._softmax(X), float(np.finfo(float).tiny), None))
            return back(logs - xp.mean(logs, axis=1, keepdims=True))
        odds = xp.stack([self._odds(model, X) for model in self._models], axis=1)
        return back(odds[:, 0] if odds.shape[1] == 1 else odds)

    @by_blocks
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : array-like (n, n_features), or (n, n_training_samples) for ``kernel="precomputed"``

        Returns
        -------
        proba : (n, K), rows sum to one

        Examples
        --------
        >>> from relvec import RVC
        >>> model = RVC(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> model.predict_proba([[0.0], [3.0]]).sum(axis=1).tolist()
        [1.0, 1.0]
        """
        if is_dask(X):
            return self._lazily("predict_proba", X)
        X, back = self._rows(X)
        if len(self.classes_) > 2 and len(self._models) == 1:
            return back(self._softmax(X))
        xp = namespace(X)
        odds = xp.stack([self._odds(model, X) for model in self._models], axis=1)
        if odds.shape[1] == 1:
            return back(xp.concat([Bernoulli().mean(-odds), Bernoulli().mean(odds)], axis=1))
        p = Bernoulli().mean(odds)
        total = xp.sum(p, axis=1, keepdims=True)
        some = total > 0.0
        shares = p / xp.where(some, total, xp.ones_like(total))
        return back(xp.where(some, shares, xp.full_like(p, 1.0 / p.shape[1])))

    @by_blocks
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of `predict_proba`, (n, K).

        Examples
        --------
        >>> from relvec import RVC
        >>> model = RVC(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> model.predict_log_proba([[0.0]]).shape
        (1, 2)
        """
        if is_dask(X):
            return self._lazily("predict_log_proba", X)
        proba = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return namespace(proba).log(proba)

    @by_blocks
    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row of X (n, n_features): (n,).

        Examples
        --------
        >>> from relvec import RVC
        >>> model = RVC(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"])
        >>> model.predict([[0.0], [3.0]]).tolist()
        ['a', 'b']
        """
        if is_dask(X):
            return self._lazily("predict", X)
        scores = self.decision_function(X)
        xp = namespace(scores)
        if xp is not np and self.classes_.dtype.kind in "biuf":  # labels that the array library knows
            classes = xp.asarray(self.classes_, device=device_of(scores).device)
            best = xp.astype(scores > 0, xp.int64) if scores.ndim == 1 else xp.argmax(scores, axis=1)
            return xp.take(classes, best, axis=0)
        scores = to_host(scores)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows X (n, n_features) whose class y (n,) `predict` finds, with sample weights (n,) if given.

        Examples
        --------
        >>> from relvec import RVC
        >>> X, y = [[-2.0], [-1.0], [1.0], [2.0]], ["a", "a", "b", "b"]
        >>> RVC(kernel=None, basis="linear").fit(X, y).score(X, y)
        1.0
        """
        from sklearn.metrics import accuracy_score  # imports much, and most fits never need it

        found = to_host(self.predict(X))  # counted on the host, in double precision
        return float(accuracy_score(to_host(y), found, sample_weight=to_host(sample_weight)))

    def _lazily(self, method: str, X: Any) -> Any:
        from relvec.estimators.dask_regression import by_chunk

        check_is_fitted(self)
        if method == "predict":
            return by_chunk(self, method, X, None, self.classes_.dtype)
        if method == "decision_function" and len(self.classes_) == 2:
            return by_chunk(self, method, X, None)
        return by_chunk(self, method, X, [str(name) for name in self.classes_])

    def _odds(self, model: Any, X: np.ndarray) -> np.ndarray:
        averaged = self.averaging == "posterior"
        mean, covariance = model.moments(X, averaged)
        return logistic_log_odds(mean[:, 0], covariance[:, 0, 0]) if averaged else mean[:, 0]

    def _softmax(self, X: np.ndarray) -> np.ndarray:
        model = self._models[0]
        averaged = self.averaging == "posterior"
        mean, covariance = model.moments(X, averaged)
        return Categorical(model.n_outputs).mean(mean) if covariance is None else softmax_normal(mean, covariance)


def _as_augmented(spec: Any) -> Augmented | None:
    """The predictive distribution asked for: RVM* or, None, the RVM's own."""
    found = as_predictive(spec)
    if isinstance(found, Process):
        raise ValueError("classes have the predictive distributions 'rvm' and 'augmented', not 'process'")
    if found is not None and isinstance(found.alpha, str):
        raise ValueError("with classes the alpha of Augmented must be None or a positive number, got 'evidence'")
    return found


def _augmented(
    spec: Augmented, latent: LatentPredictor, kernel: Kernel, X: np.ndarray, target: np.ndarray, weights: np.ndarray,
    likelihood: Likelihood,
) -> LatentPredictor | AugmentedLatentPredictor:  # fmt: skip
    """RVM* of one model on its training rows X (n, d); the model itself where its functions are constant."""
    f, K = latent.moments(X, False)[0], latent.n_outputs
    share = weights / weights.sum()
    variance = float(np.mean(share @ (f - share @ f) ** 2)) if spec.alpha is None else 1.0 / float(spec.alpha)
    if variance == 0.0:
        return latent
    r, W = likelihood.working(target, f[:, 0] if K == 1 else f, weights)
    if K == 1:
        r, curvature = r[:, None], W[:, None, None]
    else:
        curvature = weights[:, None, None] * (W[:, :, None] * np.eye(K) - W[:, :, None] * W[:, None, :])
    return AugmentedLatentPredictor(latent, kernel, X, r, curvature, 1.0 / variance)
