"""Relevance vector regression."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import RegressorMixin, clone
from sklearn.utils import check_array, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from relvec._base import (
    BaseRelevanceVector,
    by_blocks,
    some_of,
    spreads,
)
from relvec._dictionary import (
    dictionary,
    is_linear,
    kept_centres,
    learned_widths,
    moved_centres,
    renumbered,
    row_copies,
    store_centres,
    store_widths,
)
from relvec._gaussian_fit import (
    GaussianFit,
    gaussian_fits,
    gaussian_in_subsets,
    gaussian_problems,
    gaussian_target,
    held_noise,
    polished_by,
)
from relvec._laplace_fit import LaplaceFit, fit_laplace
from relvec._memory import memory_left
from relvec._outcome import warn_unless_converged
from relvec._subsets import of_some
from relvec._units import check_representable, feature_variances, target_units
from relvec._xp import Place, as_place, is_foreign, like, namespace, place_of, take, to_host
from relvec.basis import Basis, as_basis, is_fixed
from relvec.design import (
    LocalSamples,
    Rows,
    Samples,
    Summary,
    exact_columns,
    is_dask,
    make_rows,
    rows_on_disk,
    summarise,
)
from relvec.evidence import LOG_2PI
from relvec.kernels import Kernel
from relvec.likelihoods import Poisson
from relvec.predictive import Augmented, AugmentedPredictor, CountPredictor, LinearPredictor
from relvec.process import (
    Process,
    ProcessPredictor,
    ProcessRows,
    as_predictive,
    check_kernels,
    kernels_of,
    process_predictor,
)
from relvec.progress import stage
from relvec.solvers._iterate import TOL

_MOST_KEPT = 10_000_000  # numbers that `fit` leaves in a model for `partial_fit` to go on from


def _takes_parts(model: RelevanceVectorRegressor) -> bool:
    """Whether rows may come in parts; an AttributeError says why not."""
    gaussian = isinstance(model.likelihood, str) and model.likelihood == "gaussian"
    if not gaussian or not isinstance(model.predictive, str) or model.predictive != "rvm":
        raise AttributeError("rows can come in parts for likelihood='gaussian' with predictive='rvm' only")
    try:
        fixed = model.basis is None or is_fixed(as_basis(model.basis))
    except ValueError as error:
        raise AttributeError(f"rows can come in parts only for a basis: {error}") from error
    if model.kernel is not None or not fixed or model.centres != "data":
        raise AttributeError(
            "rows can come in parts only where the basis functions are known before any row: kernel=None, and a basis "
            "such as 'linear', functions, or relvec.basis.KernelBasis(Gaussian(2.0), centres=Z) with a width in numbers"
        )
    return True


CANDIDATES = 0.05  # share of the memory limit for centres of rows on disk


class RelevanceVectorRegressor(RegressorMixin, BaseRelevanceVector):
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
        "learn-per-feature" maximise the evidence over it (`relvec.tune`; several outputs or dichotomies share it);
        "scale" is r^2 = n_features * X.var(), the quickest; "auto" is "learn-per-feature" up to 32 features, and
        "scale" beyond and for counts. A `relvec.kernels` object has its own width,
        "learn" and "learn-per-feature" among them. "grvm" is the one width of most evidence over weights and centres
        (`relvec.grvm_widths`: RVM ME, or with ``centres="grvm"`` GRVM itself), "grvm-per-feature" climbs from there.
    centres : {"data", "move", "grvm"}, default "data"
        Where kernels sit. "data": on training rows. "move": anywhere in the box of the training rows; they start on
        rows and are shifted, merged, split and added while the evidence rises (`relvec.centres`). "grvm": moved by
        GRVM's section 4, likelihood and precisions in turn (`relvec.grvm`).
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
          no covariances between points. `relvec.predictive.Augmented` sets its prior.
        - "process": a Gaussian process with the relevance vectors as its inducing inputs: the variance returns to the
          prior's away from the data, nothing but the vectors is kept. Its own widths, amplitude and noise are fitted
          by `relvec.process`; the kernel must be positive definite. `relvec.process.Process` can hold the widths.

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
        A folder where a fit keeps, every few seconds, what it needs to go on (`relvec.checkpoint`): the same `fit`
        in a new process continues where a killed one was. The file goes when the fit has ended by itself.
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
        "relvec"). `relvec.progress.watch` hands the same to a function.

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
        (`relvec.grvm.Placement`); only where centres moved.
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
    process_ : the process (`relvec.process.ProcessPredictor`), or a list of one an output, for
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
    tuning_ : where each start of learned widths ended, and how often they agreed (`relvec.tune.Tuning`); every width
        tried, for "grvm" (`relvec.grvm_widths.WidthSearch`).
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

    _models: list[Any]
    _single: bool
    _summary: Summary
    alpha_: Any
    basis_: Basis
    noise_variance_: Any
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
            from relvec._distributed import fit_on_workers

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
            on_device = as_place(self.device).put(X)
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
            place = None if on_device is None else place_of(on_device)
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
        """Fit rows X that are read in blocks; as many of them as fit are candidates, evenly drawn."""
        self._check_numbers()
        if self._counts:
            super()._fit_on_disk(X, y, sample_weight, names, memory)
        if as_predictive(self.predictive) is not None or self.device is not None or self.centres != "data":
            raise ValueError("rows on disk are fitted for predictive='rvm', device=None and centres='data' alone")
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        weights = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}: give a target for every row")
        used = np.flatnonzero(weights > 0.0)
        if used.size < 2:
            raise ValueError(f"at least 2 samples need a positive weight, got {used.size}: check sample_weight")
        outputs = y.reshape(len(y), -1)
        units, variances = target_units(some_of(outputs, used), some_of(weights, used))
        samples = LocalSamples(X, outputs / units, weights)
        memory = memory_left(self.memory_limit, len(y), len(units) + 3)
        spread = spreads(samples)
        few = max(int(CANDIDATES * memory / (8 * samples.n_features)), 1000)
        drawn = used if len(used) <= few else np.sort(np.random.default_rng(0).choice(used, few, replace=False))
        rows_drawn = samples.take(drawn)
        basis, free = dictionary(self, rows_drawn, weights[drawn])
        self._identify(basis, spread, y, weights)
        problems = gaussian_problems(self, units, variances, float(weights.sum()))
        self._forget_parts()
        self._of_counts, learned = False, None
        if free.any() and variances.any():
            targets = [gaussian_target(p, t, weights[drawn]) for p, t in zip(problems, (outputs / units)[drawn].T)]
            learned = learned_widths(self, basis, free, rows_drawn, targets)
            basis = learned.basis
        basis = renumbered(basis, drawn)
        self.n_candidates_, self.n_subsets_ = basis.n_atoms, 1

        def fitted(part: Basis, rows: Rows, starts: list | None, first: bool) -> list[GaussianFit]:
            exact = polished_by(samples, part, rows)
            return gaussian_fits(self, part, rows, problems, units, variances, starts, exact, first)

        with stage("kernel"):
            rows = rows_on_disk(basis, samples, memory)
        if rows is not None:
            fits = fitted(basis, rows, [None] * len(units), True)
        else:
            fits, basis, rows = gaussian_in_subsets(self, basis, samples, None, memory, fitted)
        if len(drawn) < len(used) and np.any(basis.rows >= 0):
            fits = [replace(f, result=of_some(f.result)) for f in fits]
        self.n_features_in_ = samples.n_features
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        self._finish(basis, samples, rows, fits, y.ndim == 1)
        store_widths(self, basis, spread, learned)

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

    @available_if(_takes_parts)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, refit: bool = True) -> RelevanceVectorRegressor:
        """Take further rows in, and fit the model to all rows seen so far.

        For basis functions that are known before any row. The model is the one that `fit` would find on all rows at
        once, with the weights ``forgetting`` has left them: what is kept is one triangular matrix of as many rows
        as there are basis functions and outputs (a QR factorisation, brought up to date). After `fit` it goes on from
        the rows of `fit`.

        Parameters
        ----------
        X : array-like (n_samples, n_features)
        y : array-like (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like (n_samples,), optional
            As in `fit`.
        refit : bool, default True
            Whether to search for the model now. With False the rows are only taken in, and the model stays as it is
            (none before the first search): for blocks that follow one another closely.

        Returns
        -------
        self : the estimator.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import RVR
        >>> X = np.linspace(-1.0, 1.0, 60)[:, None]
        >>> y = 3.0 * X[:, 0] + 0.1 * np.cos(40.0 * X[:, 0])
        >>> model = RVR(kernel=None, basis="quadratic")
        >>> for i in range(0, 60, 20):
        ...     model = model.partial_fit(X[i : i + 20], y[i : i + 20], refit=i == 40)
        >>> batch = RVR(kernel=None, basis="quadratic").fit(X, y)
        >>> model.atoms_ == batch.atoms_, model.n_samples_seen_
        (True, 60)
        >>> bool(np.isclose(model.log_marginal_likelihood_, batch.log_marginal_likelihood_, rtol=1e-8))
        True
        """
        return self._all_or_nothing(self._partial_fit, X, y, sample_weight, refit)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, refit: bool) -> None:
        earlier: Summary | None = getattr(self, "_summary", None)
        if earlier is None and hasattr(self, "weights_"):
            raise ValueError(
                f"this model comes from a fit that kept nothing of its rows: it had other parameters, or more than "
                f"{_MOST_KEPT} numbers to keep. Begin with partial_fit on a new estimator (sklearn.base.clone)"
            )
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=earlier is None
        )  # fmt: skip
        y = np.asarray(y, dtype=np.float64)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self._check_numbers()
        single = y.ndim == 1
        if earlier is not None and (single != self._single or y.size != len(y) * earlier.n_outputs):
            kept = "(n,)" if self._single else f"(n, {earlier.n_outputs})"
            raise ValueError(f"y had the shape {kept} in earlier calls of partial_fit, got {y.shape}")
        basis, _ = dictionary(self, X, np.ones(len(X)))
        block = summarise(basis, X, y.reshape(len(y), -1), weights)
        if block.n_rows == 0:
            raise ValueError("at least one sample needs a positive weight, got none: check sample_weight")
        summary = block if earlier is None else earlier.faded(float(self.forgetting)).merged(block)
        self._single, self._of_counts = single, False
        self._keep(summary, refit)

    @property
    def _comes_in_parts(self) -> bool:
        try:
            return _takes_parts(self)
        except AttributeError:
            return False

    def _begin(self, summary: Summary, single: bool) -> RelevanceVectorRegressor:
        """Fit to the first rows, all there are as far as `fit` knows."""
        self._single = single
        self._keep(summary, refit=True)
        if summary.R.size > _MOST_KEPT:
            self._forget_parts()
        return self

    def _keep(self, summary: Summary, refit: bool) -> None:
        """Remember what is left of the rows seen, and fit the model to it."""
        self._summary, self.n_samples_seen_ = summary, summary.n_rows
        if not refit:
            return
        units, variances = summary.units
        problems = gaussian_problems(self, units, variances, summary.weight)
        nothing = np.zeros((0, self.n_features_in_))
        rows = summary.rows(units)
        fits = gaussian_fits(self, summary.basis, rows, problems, units, variances, None, None)
        self._finish(summary.basis, nothing, rows, fits, single=self._single)
        store_widths(self, summary.basis, summary.feature_variances, None)

    @available_if(_takes_parts)
    def merge(self, *others: RelevanceVectorRegressor) -> RelevanceVectorRegressor:
        """The model of all rows that this one and others have taken in.

        Parameters
        ----------
        *others : fitted regressors over the same basis functions, with the same outputs.

        Returns
        -------
        merged : a new regressor with this one's parameters, fitted to the rows of all; it can take in more.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import RVR
        >>> X = np.linspace(-1.0, 1.0, 60)[:, None]
        >>> y = 3.0 * X[:, 0] + 0.1 * np.cos(40.0 * X[:, 0])
        >>> parts = [RVR(kernel=None, basis="linear").partial_fit(X[i::3], y[i::3]) for i in range(3)]
        >>> parts[0].merge(*parts[1:]).n_samples_seen_
        60
        """
        for model in (self, *others):
            if not isinstance(getattr(model, "_summary", None), Summary):
                raise ValueError(
                    f"only fitted models whose rows can come in parts can be merged (see partial_fit), got {model!r}"
                )
        merged = clone(self)
        for name in ("n_features_in_", "feature_names_in_", "_single", "_of_counts"):
            if hasattr(self, name):
                setattr(merged, name, getattr(self, name))
        summary = self._summary
        for other in others:
            if other._single != self._single:
                raise ValueError("models of y of shape (n,) and of shape (n, 1) do not merge: give all parts the same")
            if list(getattr(other, "feature_names_in_", ())) != list(getattr(self, "feature_names_in_", ())):
                raise ValueError("the models have seen features of different names: give all parts the same columns")
            summary = summary.merged(other._summary)
        merged._keep(summary, refit=True)
        return merged

    def _forget_parts(self) -> None:
        for name in ("_summary", "n_samples_seen_"):
            self.__dict__.pop(name, None)

    def _augment(
        self, spec: Augmented, kernel: Kernel, X: np.ndarray, root: np.ndarray, targets: np.ndarray,
        variances: np.ndarray,
    ) -> None:  # fmt: skip
        """Replace the models of the outputs by RVM* (RQ05)."""
        models = []
        for model, t, variance, alpha in zip(self._models, targets, variances, np.atleast_2d(self.alpha_), strict=True):
            if spec.alpha is None:
                star = 1.0 / variance if variance > 0.0 else np.inf
            else:
                star = None if isinstance(spec.alpha, str) else float(spec.alpha) * model.unit**2
            with np.errstate(over="ignore", under="ignore"):
                precision = np.where(np.isfinite(alpha), alpha, 0.0) * (model.unit / model.scale) ** 2
            remainder = root * (t - model.columns(X) @ model.mean)
            models.append(AugmentedPredictor(model, kernel, X, root, remainder, precision, star))
        self._models = models

    def _condition(
        self, spec: Process, kernels: tuple[Kernel, ...], X: np.ndarray, weights: np.ndarray, targets: np.ndarray,
        variances: np.ndarray, floors: list[float | None],
    ) -> None:  # fmt: skip
        """Replace the models of the outputs by processes on their relevance vectors."""
        processes: list[ProcessPredictor | None] = []
        for i, model in enumerate(self._models):
            own = np.flatnonzero(np.isfinite(np.atleast_2d(self.alpha_)[i]))
            rows = ProcessRows(X, targets[i], weights, np.zeros((len(X), 0)))
            weight = model.mean[own] / model.scale[own]
            with stage("process", shift=-weights.sum() * np.log(model.unit)):
                found = own.size and process_predictor(
                    spec, kernels, self.basis_.take(own), weight, rows, self.fit_intercept, model.unit, variances[i],
                    model.noise, floors[i])  # fmt: skip
            processes.append(found or None)
        self._models = [process or model for process, model in zip(processes, self._models, strict=True)]
        noise = np.array([model.noise * model.unit**2 for model in self._models])
        self.process_ = processes[0] if self._single else processes
        self.noise_variance_ = noise[0] if self._single else noise

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
        weights: np.ndarray, single: bool, place: Place | None,
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

    @by_blocks
    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, noise: bool = True) -> Any:
        """Predictive mean, with standard deviation or covariance if asked.

        Parameters
        ----------
        X : array-like (n, n_features), or (n, n_training_samples) for ``kernel="precomputed"``
        return_std : bool, default False
            Also the standard deviation of a new target (T01 eq. (22)).
        return_cov : bool, default False
            Also the joint covariance; not together with `return_std`.
        noise : bool, default True
            Whether std and cov include the noise. False describes the function itself.

        Returns
        -------
        mean : (n,) or (n, n_outputs)
        std : (n,) or (n, n_outputs), if return_std
        cov : (n, n) or (n, n, n_outputs), if return_cov

        Examples
        --------
        >>> from relvec import RVR
        >>> model = RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
        >>> mean, std = model.predict([[4.0]], return_std=True)
        >>> mean.shape, std.shape
        ((1,), (1,))
        """
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not both: the std is the root of cov's diagonal")
        if is_dask(X):
            return self._predict_lazily(X, return_std, return_cov, noise)
        X, back = self._rows(X, self._native)
        moments = [m.moments(X, return_std, noise) for m in self._models]
        mean = back(self._by_output([mean for mean, _ in moments]))
        if return_std:
            return mean, back(self._by_output([namespace(v).sqrt(v) for _, v in moments if v is not None]))
        if return_cov:
            return mean, back(self._by_output([m.covariance(X, noise) for m in self._models]))
        return mean

    @property
    def _native(self) -> bool:
        """Whether predictions can be made on a device."""
        return all(type(model) is LinearPredictor for model in getattr(self, "_models", ()))

    def _predict_lazily(self, X: Any, return_std: bool, return_cov: bool, noise: bool) -> Any:
        """Predictions for a collection of Dask, as such collections."""
        check_is_fitted(self)
        if return_cov:
            raise ValueError("a covariance is of the size of all pairs of rows: with Dask ask for return_std")
        from relvec._distributed import by_chunk

        names = None if self._single else [f"prediction {i}" for i in range(len(self._models))]
        return by_chunk(self, "predict", X, names, parts=2 if return_std else 0, return_std=return_std, noise=noise)

    def _quantiles_lazily(self, X: Any, q: np.ndarray, noise: bool) -> Any:
        """Quantiles of counts for a collection of Dask, as an array of Dask."""
        from relvec._distributed import chunkwise

        shape = (len(q),) if self._single else (len(self._models), len(q))
        return chunkwise(self, "predict_quantiles", X, shape, q=q, noise=noise)

    @by_blocks
    def predict_quantiles(self, X: Any, q: Any, noise: bool = True) -> np.ndarray:
        """Quantiles of a new target.

        Parameters
        ----------
        X : array-like (n, n_features)
        q : array-like (n_q,)
            Probabilities between 0 and 1.
        noise : bool, default True
            Whether the noise counts; False gives quantiles of the function.

        Returns
        -------
        quantiles : (n, n_q) or (n, n_outputs, n_q)

        Examples
        --------
        >>> from relvec import RVR
        >>> model = RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
        >>> model.predict_quantiles([[1.5]], [0.1, 0.5, 0.9]).shape
        (1, 3)
        """
        q = np.atleast_1d(np.asarray(q, dtype=float))
        if q.ndim != 1 or not np.all((q > 0) & (q < 1)):
            raise ValueError(f"q must hold probabilities strictly between 0 and 1, got {q.tolist()}")
        check_is_fitted(self)
        if self._of_counts:
            if is_dask(X):
                return self._quantiles_lazily(X, q, noise)
            X, back = self._rows(X, False)
            found = [m.quantiles(X, q, noise) for m in self._models]
            return back(found[0] if self._single else np.stack(found, axis=1))
        mean, std = self.predict(X, return_std=True, noise=noise)
        return mean[..., None] + std[..., None] * like(mean, ndtri(q))

    @by_blocks
    def predict_interval(self, X: Any, coverage: Any = 0.9, noise: bool = True) -> np.ndarray:
        """Central interval that holds a new target with the given probability.

        Parameters
        ----------
        X : array-like (n, n_features)
        coverage : float, default 0.9
        noise : bool, default True
            Whether the noise counts; False gives an interval for the function.

        Returns
        -------
        interval : (n, 2) or (n, n_outputs, 2), lower and upper end

        Examples
        --------
        >>> from relvec import RVR
        >>> model = RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
        >>> lower, upper = model.predict_interval([[1.5]], coverage=0.5)[0]
        >>> bool(lower < 1.5 < upper)
        True
        """
        if not (isinstance(coverage, numbers.Real) and 0 < float(coverage) < 1):
            raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}")
        return self.predict_quantiles(X, [0.5 - float(coverage) / 2, 0.5 + float(coverage) / 2], noise=noise)

    @by_blocks
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, noise: bool = False) -> np.ndarray:
        """Draw functions from the posterior, evaluated at X.

        Parameters
        ----------
        X : array-like (n, n_features)
        n_samples : int, default 1
        random_state : int, RandomState or None, default 0
        noise : bool, default False
            Whether to add observation noise.

        Returns
        -------
        samples : (n, n_samples) or (n, n_outputs, n_samples)

        Examples
        --------
        >>> from relvec import RVR
        >>> model = RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
        >>> model.sample_y([[0.0], [1.0]], n_samples=5).shape
        (2, 5)
        """
        (X, back), rng = self._rows(X, False), check_random_state(random_state)
        drawn = [m.samples(X, n_samples, rng, noise) for m in self._models]
        return back(drawn[0] if self._single else np.stack(drawn, axis=1))

    def log_predictive_density(self, X: Any, y: Any) -> np.ndarray:
        """Log density of each target under its predictive distribution.

        Parameters
        ----------
        X : array-like (n, n_features)
        y : array-like (n,) or (n, n_outputs)

        Returns
        -------
        log_density : (n,) or (n, n_outputs)

        Examples
        --------
        >>> from relvec import RVR
        >>> model = RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
        >>> model.log_predictive_density([[1.5]], [1.5]).shape
        (1,)
        """
        mean, std = self.predict(X, return_std=True)
        y = like(mean, to_host(y))
        if y.shape != mean.shape:
            raise ValueError(f"y must have the shape {mean.shape} of the predictions, got {y.shape}")
        check_is_fitted(self)
        if self._of_counts:
            (X, back), y = self._rows(X, False), to_host(y)
            columns = y.reshape(len(y), -1).T
            return back(self._by_output([m.log_density(X, t) for m, t in zip(self._models, columns, strict=True)]))
        return -0.5 * (LOG_2PI + ((y - mean) / std) ** 2) - namespace(std).log(std)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of `predict`; D^2, the fraction of the Poisson deviance explained, for counts.

        Parameters
        ----------
        X : array-like (n, n_features)
        y : array-like (n,) or (n, n_outputs)
        sample_weight : array-like (n,), optional

        Examples
        --------
        >>> from relvec import RVR
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1, 3, 7, 20]
        >>> RVR(kernel=None, basis="linear", likelihood="poisson").fit(X, y).score(X, y) > 0.9
        True
        """
        from sklearn.metrics import d2_tweedie_score, r2_score  # imports much, and most fits never need it

        check_is_fitted(self)
        if not self._of_counts and not is_foreign(X):
            return super().score(X, y, sample_weight)
        mean, y = to_host(self.predict(X)), np.asarray(to_host(y), dtype=float)
        if not self._of_counts:
            return r2_score(y, mean, sample_weight=to_host(sample_weight))
        weights = _check_sample_weight(sample_weight, mean, dtype=np.float64)
        average = np.average(y, axis=0, weights=weights)
        parts = [
            d2_tweedie_score(t, m, sample_weight=weights, power=1) if a > 0.0 else 0.0
            for t, m, a in zip(y.reshape(len(y), -1).T, mean.reshape(len(y), -1).T, np.ravel(average), strict=True)
        ]
        return float(np.mean(parts))

    def _by_output(self, values: list[np.ndarray]) -> np.ndarray:
        return values[0] if self._single else namespace(values[0]).stack(values, axis=-1)


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
