"""Relevance vector regression."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, validate_data

from relvec.basis import Basis
from relvec.design import LocalSamples, Rows, Samples, exact_columns, is_dask, make_rows, summarise
from relvec.estimators.base import some_of
from relvec.estimators.dictionary import (
    dictionary,
    is_linear,
    kept_centres,
    learned_widths,
    moved_centres,
    row_copies,
    store_centres,
    store_widths,
)
from relvec.estimators.gaussian_fit import (
    GaussianFit,
    gaussian_fits,
    gaussian_in_subsets,
    gaussian_problems,
    gaussian_target,
    held_noise,
    polished_by,
)
from relvec.estimators.incremental import RowsInParts
from relvec.estimators.laplace_fit import LaplaceFit, fit_laplace
from relvec.estimators.on_disk import fit_on_disk
from relvec.estimators.outcome import warn_unless_converged
from relvec.estimators.predictions import RegressionPredictions
from relvec.estimators.units import check_representable, feature_variances, target_units
from relvec.inference.likelihoods import Poisson
from relvec.inference.predictive import Augmented, CountPredictor, LinearPredictor
from relvec.inference.process import Process, as_predictive, check_kernels, kernels_of
from relvec.runtime.arrays import Device, as_device, device_of, take
from relvec.runtime.memory import memory_left
from relvec.runtime.progress import stage
from relvec.solvers.loop import TOL


class RelevanceVectorRegressor(RegressionPredictions, RowsInParts):
    """Relevance vector regression: a sparse linear model over basis functions, with error bars.

    The target is ``y = sum_m w_m phi_m(x) + noise`` with a Gaussian prior of its own precision ``alpha_m`` over each
    weight (T01). The precisions and the noise variance maximise the evidence; most precisions become infinite and
    their basis functions leave the model. By default the basis functions are kernels centred on the training
    rows and a constant.

    Parameters
    ----------
    kernel : str, Kernel, callable or None, default "gaussian"
        Name of a kernel ("gaussian" or "rbf", "laplace", "cauchy", "log_distance", "matern32", "matern52",
        "polynomial", "linear", "linear_spline", "precomputed"), an object of `relvec.kernels`, any
        ``callable(X, Z) -> (n, m)`` including scikit-learn's Gaussian-process kernels, or None for no kernel. It need
        not be positive definite.
    width : float, array-like (n_features,), or a word: "auto" (the default), "learn", "learn-per-feature", "scale", \
"grvm", "grvm-per-feature"
        Width r of a kernel given by name, as in exp(-|x - z|^2 / r^2), or one per feature. "learn" and
        "learn-per-feature" maximise the evidence over it (`relvec.hyperparameters.widths`; several outputs or
        dichotomies share it);
        "scale" is r^2 = n_features * X.var(), the quickest; "auto" is "learn-per-feature" up to 32 features, and
        "scale" beyond and for counts. A `relvec.kernels` object has its own width,
        "learn" and "learn-per-feature" among them. "grvm" is the one width of most evidence over weights and centres
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
        How the evidence is maximised; see `relvec.solvers`.
    likelihood : {"gaussian", "poisson"}, default "gaussian"
        "poisson" is for counts: the sum of basis functions is the logarithm of the rate, the posterior is Laplace's
        approximation, `predict` gives the mean count averaged over it, quantiles and intervals are counts, `score` is
        the fraction of deviance explained (D^2), and the evidence includes -sum log y!.
    predictive : {"rvm", "augmented", "process"}, Augmented or Process, default "rvm"
        What `predict` and its like make of the fitted model (RQ05):

        - "rvm": T01 eq. (21)-(22). Sure of itself away from the data, where no basis function reaches.
        - "augmented" (RVM*): one more basis function at each point predicted. Keeps the training rows, O(N) a point;
          no covariances between points. `relvec.inference.predictive.Augmented` sets its prior.
        - "process": a Gaussian process with the relevance vectors as its inducing inputs: the variance returns to the
          prior's away from the data, nothing but the vectors is kept. Its own widths, amplitude and noise are fitted
          by `relvec.inference.process`; the kernel must be positive definite. `relvec.inference.process.Process` can
          hold the widths.

        See the guide, "How much to trust the error bars", for what each is good for and why "rvm" is the default.
    noise_variance : float, optional
        Fixed noise variance; None learns it. Counts have none: `noise_variance_` is nan.
    hyperprior : GammaPrior or dict, optional
        Gamma hyperpriors over precisions (a, b) and noise precision (c, d); None is flat.
    tol : float, optional
        A fit ends when no single move gains more than this many nats of evidence. None: 1e-4, and 0.3 where a Gaussian
        model has more than 300 functions; `certificate_` tells what is left.
    max_iter : int, default 10000
        Most steps of the solver.
    warm_start : bool, default False
        Whether a further call of `fit` starts the sequential solver from the functions and precisions that the last
        one kept, where the new dictionary has them, instead of from nothing. The model is held to the same
        certificate either way. Widths that are to be learned are learned anew, and the start is what that found.
    checkpoint : str or path, optional
        A folder where a fit keeps, every few seconds, what it needs to go on (`relvec.runtime.checkpoint`): the same
        `fit` in a new process continues where a killed one was. The file goes when the fit has ended by itself.
    forgetting : float, default 1.0
        What every call of `partial_fit` multiplies the weights of all earlier rows by; 1 forgets nothing.
    memory_limit : float or str, default "4GB"
        Bytes, or such as "500MB" or "2GiB", that a fit may take besides the data it is given. Where the dictionary does
        not fit it is computed in blocks, held in single precision or reduced to its rank, without a change of the
        result; where nothing else fits the candidates are searched in subsets (TF03 6.2), and `status_` says
        "candidates" unless all of them were looked at. See the guide, "Large data".
    n_jobs : int, optional
        Outputs of a two-dimensional y fitted at once.
    device : str, optional
        Where to compute: "cuda", "cuda:1", "torch", "torch:cuda" (PyTorch) or "cupy"; data given as NumPy arrays are
        taken there, predictions come back as the library of X. None is the CPU, or the device X lives on where
        scikit-learn's ``array_api_dispatch`` is set. The model found is the same; fitted attributes are NumPy arrays.
    random_state : int, RandomState or None
        Used where something is drawn: random centres, ``select="random"``, restarts beyond the fourth.
    verbose : None, "progress", bool or int, default None
        None shows a line with stage, size, evidence and times on a terminal (stderr) while a fit takes longer than
        three seconds, "progress" also where stderr is none, False or 0 never; True or 1 logs every step (logger
        "relvec"). `relvec.runtime.progress.watch` hands the same to a function.

    Attributes
    ----------
    basis_ : bound basis of the m functions kept: kernels first, then the further basis, then the constant.
    atoms_ : list of their m names.
    relevance_ : (r,) training rows the kernels are centred on, ascending.
    relevance_vectors_ : (r, n_features) those rows (centres); absent for ``kernel="precomputed"``.
    centres_ : (p, n_features) where the kernels of the model sit, in the order of `weights_`, whose first p they are:
        `relevance_vectors_`, unless centres were given or moved. A moved centre is no training row: `relevance_` and
        `relevance_vectors_` are empty then, and `centres_` are the vectors.
    placement_ : how well the data place moved centres, the evidence over weights and centres, and the moves
        (`relvec.hyperparameters.grvm.Placement`); only where centres moved.
    weights_ : (m,) posterior mean of the weights; the first r belong to `relevance_`.
    intercept_ : weight of the constant, 0.0 where it is not in the model.
    coef_ : (n_features,) only for a purely linear model.
    alpha_ : (m,) weight precisions.
    covariance_ : (m, m) posterior covariance of the weights.
    gamma_ : (m,) how well the data determine each weight, from 0 to 1.
    noise_variance_ : noise variance.
    log_marginal_likelihood_ : log evidence, complete with -N/2 log 2 pi, in the units of y.
    certificate_ : the largest gain (nats) that any single move still offered; inf where it was not established.
    status_ : how the fit ended: "converged", or the name of a warning.
    history_ : structured array, a row a step: action, atom (number in the dictionary), row (training row the atom
        is centred on, -1 for none), gain, objective, size, noise_variance.
    n_iter_ : steps taken.
    process_ : the process (`relvec.inference.process.ProcessPredictor`), or a list of one an output, for
        ``predictive="process"`` only; None for an output without relevance vectors, which is predicted as "rvm". Then
        `noise_variance_` is the process's; all other attributes still tell of the RVM that chose the vectors:
        `weights_` are its weights, `log_marginal_likelihood_` its evidence. The process has `process_.log_evidence`.
    n_candidates_ : basis functions that were candidates: all, unless `memory_limit` led to subsets.
    n_subsets_ : subsets the candidates were searched in; above 1 another local maximum may have been found than in one
        piece.
    compression_ : how N rows were reduced to the rank of the dictionary (`relvec.design.Compression`), or None.
    kernel_ : the kernel (the first, if the basis has several) with its widths in numbers; absent without kernel.
    width_ : its width, a float or (n_features,); absent for kernels without.
    feature_relevance_ : (n_features,) eta_k var(x_k) with eta_k = width_k^-2, normalised to sum 1: how much the
        kernel varies along each feature over the data (T01 section 4.3). `feature_importances_` is the same.
    tuning_ : where each start of learned widths ended, and how often they agreed
        (`relvec.hyperparameters.widths.Tuning`); for "grvm" every width tried
        (`relvec.hyperparameters.grvm_widths.WidthSearch`).
    n_samples_seen_ : rows of positive weight that `fit` and `partial_fit` have taken in; absent where rows cannot come
        in parts.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.

    For y of shape (n_samples, q) each output has its own model over the union of the functions kept: `weights_`,
    `alpha_` (inf where a function is not in that output's model) and `gamma_` are (q, m), `covariance_` (q, m, m),
    `coef_` (q, n_features), `intercept_`, `noise_variance_`, `log_marginal_likelihood_`, `certificate_` and
    `n_iter_` (q,), `history_` and `status_` lists of q.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RelevanceVectorRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(-10, 10, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(100)
    >>> model = RelevanceVectorRegressor(width=3.0).fit(X, y)
    >>> len(model.relevance_) < 12, model.status_
    (True, 'converged')
    >>> mean, std = model.predict([[0.0]], return_std=True)
    >>> bool(abs(mean[0] - 1.0) < 2 * std[0])
    True
    """

    weights_: Any

    def __init__(
        self,
        *,
        kernel: Any = "gaussian",
        width: Any = "auto",
        centres: str = "data",
        basis: Any = None,
        fit_intercept: bool = True,
        solver: Any = "sequential",
        likelihood: str = "gaussian",
        predictive: Any = "rvm",
        noise_variance: float | None = None,
        hyperprior: Any = None,
        tol: float | None = None,
        max_iter: int = 10000,
        warm_start: bool = False,
        checkpoint: Any = None,
        forgetting: float = 1.0,
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
        self.likelihood = likelihood
        self.predictive = predictive
        self.noise_variance = noise_variance
        self.hyperprior = hyperprior
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.forgetting = forgetting
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _tol(self) -> Any:
        return TOL if self.tol is None else self.tol

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> RelevanceVectorRegressor:
        if is_dask(X):
            from relvec.estimators.dask_regression import fit_on_workers

            fit_on_workers(self, X, y, sample_weight)
            return self
        loaded = self._loaded(X, y, sample_weight)
        if loaded is None:
            return self
        X, y, sample_weight, on_device = self._hosted(*loaded)
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        y = np.asarray(y, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.device is not None and on_device is None:
            on_device = as_device(self.device).to_device(X)
        self._check_numbers()
        used = np.flatnonzero(weights > 0.0)
        if used.size < 2:
            raise ValueError(f"at least 2 samples need a positive weight, got {used.size}: check sample_weight")
        basis, free = dictionary(self, X, weights, on_device)
        self._identify(basis, X, y, weights)
        if on_device is not None and used.size < len(X):
            on_device = take(on_device, used)
        predictive = as_predictive(self.predictive)
        if predictive is not None:
            check_kernels(kernels_of(basis), predictive)
        inputs, w = some_of(X, used), some_of(weights, used)
        outputs = some_of(y, used).reshape(len(used), -1)
        self._forget_parts()
        self._of_counts = self._counts
        if self._comes_in_parts:
            return self._begin(summarise(basis, X, y.reshape(len(y), -1), weights), single=y.ndim == 1)
        if self._of_counts:
            place = None if on_device is None else device_of(on_device)
            return self._fit_counts(basis, free, X, used, outputs, w, y.ndim == 1, place)
        units, variances = target_units(outputs, w)
        problems = gaussian_problems(self, units, variances, float(w.sum()))
        learned, starts = None, None
        outputs = outputs / units
        scaled = [gaussian_target(p, np.ascontiguousarray(t), w) for p, t in zip(problems, outputs.T, strict=True)]
        if free.any() and variances.any():  # constant targets say nothing about widths
            learned = learned_widths(self, basis, free, inputs, scaled)
            basis, starts = learned.basis, learned.models
        memory = memory_left(self.memory_limit, len(inputs), row_copies(basis) + 2 * len(units) + 10)
        root, samples = np.sqrt(w), LocalSamples(inputs, outputs, w)

        def fitted(part: Basis, rows: Rows, starts: list | None, first: bool) -> list[GaussianFit]:
            def there(active: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
                return exact_columns(part.take(active), on_device, root, rows.design.scale[active], outputs[:, output])

            exact = polished_by(samples, part, rows) if on_device is None else there
            return gaussian_fits(self, part, rows, problems, units, variances, starts, exact, first)

        def searched(basis: Basis, starts: list | None) -> tuple[list[GaussianFit], Basis, Rows]:
            with stage("kernel"):
                rows = make_rows(basis, inputs, outputs, w, memory=memory, on_device=on_device)
            self.n_candidates_, self.n_subsets_ = basis.n_atoms, 1
            if rows is not None:
                return fitted(basis, rows, starts, True), basis, rows
            return gaussian_in_subsets(self, basis, samples, starts, memory, fitted)

        fits, basis, rows = searched(basis, starts)
        if learned is not None and (held := held_noise(fits, problems, learned.noises)) is not None:
            problems = held
            fits, basis, rows = searched(learned.basis, None)
        moves: list = []
        if self.centres != "data" and variances.all():
            basis, starts, moves = moved_centres(self, basis, inputs, scaled, [fit.model for fit in fits])
            if moves:
                fits, basis, rows = searched(basis, starts)
        self._finish(basis, X, rows, fits, single=y.ndim == 1)
        store_widths(self, basis, feature_variances(X, weights), learned)
        store_centres(self, basis, inputs, scaled, [fit.model for fit in fits], moves)
        targets = outputs.T
        if isinstance(predictive, Augmented):
            self._augment(predictive, kernels_of(basis)[0], inputs, root, targets, variances)
        elif isinstance(predictive, Process):
            floors = [None if problem.fixed_noise else problem.noise_floor for problem in problems]
            self._condition(predictive, kernels_of(basis), inputs, w, targets, variances, floors)
        return self

    def _fit_on_disk(self, X: Any, y: Any, sample_weight: Any, names: list[str] | None, memory: float) -> None:
        self._check_numbers()
        if self._counts:
            super()._fit_on_disk(X, y, sample_weight, names, memory)
        fit_on_disk(self, X, y, sample_weight, names)

    def _check_numbers(self) -> None:
        super()._check_numbers()
        noise: Any = self.noise_variance
        if noise is not None and not (isinstance(noise, numbers.Real) and 0 < float(noise) < np.inf):
            raise ValueError(f"noise_variance must be None (learned) or a positive number, got {noise!r}")
        forgetting: Any = self.forgetting
        if not (isinstance(forgetting, numbers.Real) and 0 < float(forgetting) <= 1):
            raise ValueError(f"forgetting must be a number above 0 and up to 1 (nothing), got {self.forgetting!r}")

    def _finish(self, basis: Basis, X: Any, rows: Rows, fits: list[GaussianFit], single: bool) -> None:
        """Store the models, and say where one has no certificate."""
        for i, fit in enumerate(fits):
            warn_unless_converged(fit.result, self._tol, "" if single else f"output {i}: ")
        self._store(basis, X, fits, single=single)
        self.compression_ = rows.compression

    @property
    def _trusts_evidence(self) -> bool:
        return not self._counts

    @property
    def _counts(self) -> bool:
        if self.likelihood not in ("gaussian", "poisson"):
            raise ValueError(f"likelihood must be 'gaussian' or 'poisson', got {self.likelihood!r}")
        return self.likelihood == "poisson"

    def _fit_counts(
        self, basis: Basis, free: np.ndarray, X: np.ndarray, used: np.ndarray, counts: np.ndarray,
        weights: np.ndarray, single: bool, place: Device | None,
    ) -> RelevanceVectorRegressor:  # fmt: skip
        self._check_counts(bool(np.all(counts >= 0.0) and np.all(counts == np.floor(counts))))
        fits, basis, learned, moved = fit_laplace(
            self, basis, free, X[used], list(counts.T), weights, Poisson(), place=place
        )
        for i, fit in enumerate(fits):
            warn_unless_converged(fit.result, self._tol, "" if single else f"output {i}: ")
        self._store_counts(basis, X, fits, single)
        store_widths(self, basis, feature_variances(X[used], weights), learned)
        store_centres(self, basis, *(moved or (X, [], [], [])))
        return self

    def _check_counts(self, whole: bool) -> None:
        """Errors where targets, ``whole`` numbers from 0 on or not, or parameters are not for counts."""
        if not whole:
            raise ValueError("likelihood='poisson' needs counts: y must hold whole numbers >= 0")
        if as_predictive(self.predictive) is not None:
            raise ValueError("likelihood='poisson' has the predictive distribution of the RVM alone: predictive='rvm'")
        if self.noise_variance is not None:
            raise ValueError("counts have no noise variance: leave noise_variance at None with likelihood='poisson'")

    def _store_counts(self, basis: Basis, X: Any, fits: list[LaplaceFit], single: bool) -> None:
        """Public attributes of a fit of counts."""
        self._store(basis, X, fits, single=single)
        self._models = [CountPredictor(model) for model in self._models]
        self.compression_ = None

    def _store(self, basis: Basis, X: Any, fits: Any, single: bool) -> None:
        """Public attributes, in the units of X and y."""
        union = np.unique(np.concatenate([f.result.state.active for f in fits])).astype(np.intp)
        atoms = union[np.lexsort((basis.rows[union], basis.rows[union] < 0))]  # training rows ascending, then the rest
        kept = basis.take(atoms)
        models = [_predictor(f, kept, atoms) for f in fits]
        alpha, gamma = np.full((len(fits), len(atoms)), np.inf), np.zeros((len(fits), len(atoms)))
        ranked = np.argsort(atoms)
        for i, f in enumerate(fits):
            state = f.result.state
            place = ranked[np.searchsorted(atoms, state.active, sorter=ranked)]
            with np.errstate(over="ignore", under="ignore"):
                alpha[i, place] = state.posterior.alpha * (f.scale[state.active] / f.unit) ** 2
            check_representable(alpha[i, place])
            gamma[i, place] = state.posterior.gamma
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # refused below, in words
            shrink = [m.unit / m.scale for m in models]
            weights = np.array([m.mean * s for m, s in zip(models, shrink, strict=True)])
            roots = [m.root * s[:, None] for m, s in zip(models, shrink, strict=True)]
            covariance = np.array([root @ root.T for root in roots])
        check_representable(weights, covariance)

        def per_output(values: Any) -> Any:
            return values[0] if single else (values if isinstance(values, list) else np.asarray(values))

        self._models, self._single = list(models), single
        self.basis_, self.atoms_, self.centres_ = kept, kept.labels(), kept_centres(kept)
        self.relevance_ = kept.rows[kept.rows >= 0]
        self.weights_, self.alpha_, self.gamma_ = per_output(weights), per_output(alpha), per_output(gamma)
        self.covariance_ = per_output(covariance)
        has_bias = self.fit_intercept and basis.n_atoms - 1 in atoms
        self.intercept_ = per_output(weights[:, -1] if has_bias else np.zeros(len(fits)))
        self.noise_variance_ = per_output(np.array([m.noise * m.unit**2 for m in models]))
        self.log_marginal_likelihood_ = per_output(np.array([f.log_evidence for f in fits]))
        self.certificate_ = per_output(np.array([f.result.state.largest_gain for f in fits]))
        self.n_iter_ = per_output(np.array([f.result.n_iter for f in fits]))
        self.status_ = per_output([f.result.status.name.lower() for f in fits])
        self.history_ = per_output([f.history(basis.rows) for f in fits])
        self._drop_stale()
        if not (isinstance(self.kernel, str) and self.kernel == "precomputed"):
            self.relevance_vectors_ = X.take(self.relevance_) if isinstance(X, Samples) else X[self.relevance_]
        if is_linear(basis):  # slopes: a linear function at the unit vectors, less its value at the origin
            slopes = kept(np.eye(self.n_features_in_)) - kept(np.zeros((1, self.n_features_in_)))
            self.coef_ = per_output(weights @ slopes.T)

    def _drop_stale(self) -> None:
        for name in ("coef_", "relevance_vectors_", "process_"):
            self.__dict__.pop(name, None)


def _predictor(fit: GaussianFit | LaplaceFit, basis: Basis, atoms: np.ndarray) -> LinearPredictor:
    """The fitted function over the given atoms, a superset of the fit's own in a fixed order."""
    state = fit.result.state
    place = {atom: i for i, atom in enumerate(state.active.tolist())}
    own = np.array([i for i, atom in enumerate(atoms.tolist()) if atom in place], dtype=np.intp)
    source = np.array([place[atoms[i]] for i in own], dtype=np.intp)
    mean, root = np.zeros(len(atoms)), np.zeros((len(atoms), len(place)))
    mean[own] = state.posterior.mean[source]
    root[own] = state.posterior.root[source]
    return LinearPredictor(basis, fit.scale[atoms], fit.unit, mean, root, 1.0 / state.posterior.beta)
