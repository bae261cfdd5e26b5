"""Where the solvers meet scikit-learn: validation, the fit pipeline, the fitted attributes."""

from __future__ import annotations

import inspect
import numbers
import re
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from importlib.util import find_spec
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.special import softmax
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from relvec import centres, checkpoint, grvm, grvm_widths
from relvec._memory import release
from relvec._subsets import cut_short, in_subsets, of_some, thinned_start, unhurried
from relvec._threads import one_thread
from relvec._xp import Array, Place, as_place, is_foreign, place_of, to_host, unique_rows
from relvec.basis import (
    Basis,
    Bias,
    Concat,
    KernelBasis,
    Precomputed,
    as_basis,
    atom_keys,
    centres_of,
    content_ranks,
    leaves,
)
from relvec.design import (
    IN_MEMORY,
    MODELS,
    Block,
    DenseDesign,
    Rows,
    Samples,
    ScanDesign,
    blocks_to_predict,
    device_scan_design,
    is_dask,
    is_sliced,
    load,
    most_scanned,
    scan_design,
)
from relvec.kernels import as_kernel, has_width
from relvec.likelihoods import Likelihood
from relvec.predictive import LatentPredictor, LinearPredictor
from relvec.priors import FLAT, GammaPrior
from relvec.progress import Progress, carried, line, stage, watch
from relvec.solvers import Problem, Result, Sequential, Status, Step, as_solver, solve
from relvec.solvers._frame import Frame
from relvec.solvers._iterate import TOL_OF_MANY, Start
from relvec.solvers._laplace import LaplaceProblem
from relvec.solvers._laplace_search import solve_laplace
from relvec.solvers._moves import Model
from relvec.targets import GaussianTarget, LaplaceTarget
from relvec.tune import Learned, Setting, learn

# A model of more functions than this share of the samples, with a noise variance smaller by this factor than that of
# tied precisions, passes through the targets.
CROWDED, THROUGH = 0.25, 4.0
# A learned noise variance starts at a tenth of the target's variance (TF03 section 4, step 1) and stays above this
# fraction of it: a standard deviation of 1e-4 of the target's.
NOISE_START, NOISE_FLOOR = 0.1, 1e-8
# A fixed one may be smaller, but not below the square of the targets' own rounding errors.
LEAST_NOISE = float(np.finfo(float).eps) ** 2
LARGEST_TARGET = 1e153  # root mean square: the noise variance of more has no double

LARGEST_RATE = 1e30  # of a hyperprior, in scaled units: precisions it asks for are lost beside the data's
_MODEL_ATOMS = 500  # atoms whose scans take as long as the models of a subset
LEAST_MEMORY = 1e7  # bytes: less does not hold the workspace of any fit
_MOST_TAKEN = 0.6  # share of a memory limit that may go to what is as long as the rows
MOST_WIDTHS = 32  # width="auto" learns one width per feature up to so many
GRVM_WIDTHS = {"grvm": "learn", "grvm-per-feature": "learn-per-feature"}  # and what the kernel starts from
TUNING_SHARE = 0.7  # of a time limit, for learning widths
_NO_MATTER = ("checkpoint", "n_jobs", "verbose")  # parameters that do not decide how a fit goes

HISTORY = np.dtype(
    [("action", "U10"), ("atom", np.int64), ("row", np.int64), ("gain", float), ("objective", float),
     ("size", np.int64), ("noise_variance", float)]
)  # fmt: skip


def _as_it_is(values: Array) -> Array:
    return values


class BaseRelevanceVector(BaseEstimator):
    """What regressor and classifier share."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.array_api_support = True
        return tags

    def fit(self, X, y=None, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like (n_samples, n_features), or (n_samples, n_samples) for ``kernel="precomputed"``
            Training inputs. Also rows that are not in memory (see the guide, "Large data"): a `numpy.memmap`, a Zarr or
            HDF5 array, the path of a Parquet file (then ``y`` names its column of targets), and an iterator of blocks
            ``(X, y)`` or ``(X, y, sample_weight)``, or a function that returns one (then ``y`` is None). Arrays and
            tables of Dask, whose rows stay with its workers (see the guide, "Dask").
        y : array-like (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like (n_samples,), optional
            Each weight multiplies its sample's log-likelihood: 2 means twice the sample, 0 means absent.

        Returns
        -------
        self : the fitted estimator.
        """
        fit = self._fit_with_callbacks if hasattr(self, "_skl_callbacks") else self._fit
        return self._all_or_nothing(fit, X, y, sample_weight)

    def _loaded(self, X, y, sample_weight) -> tuple | None:
        """X, y and weights of a source that was read into memory, or what they are without one; None once fitted."""
        if type(X) is np.ndarray:
            return X, y, sample_weight
        memory = memory_bytes(self.memory_limit)
        found = load(X, y, sample_weight, memory)
        if found is None:
            return X, y, sample_weight
        if not is_sliced(found.X):
            rows = found.X if found.names is None else _named(found.X, found.names)
            return rows, found.y, found.weights
        self._fit_on_disk(found.X, found.y, found.weights, found.names, memory)
        return None

    def _fit_on_disk(self, X, y, sample_weight, names, memory) -> None:
        size = 8e-9 * X.shape[0] * X.shape[1]
        raise ValueError(
            f"rows of {size:.3g} GB stay on disk under memory_limit={self.memory_limit!r}, which is possible for "
            "likelihood='gaussian' alone: classes and counts need their rows in memory. Set memory_limit to "
            f"{size / IN_MEMORY:.3g}GB or more"
        )

    def _all_or_nothing(self, fit, *arguments):
        """Call a method that changes the estimator, and return that; as it was where the method fails."""
        before = dict(self.__dict__)
        asked = isinstance(self.verbose, str) and self.verbose == "progress"
        try:
            with line(None if self.verbose is None else asked), checkpoint.session(self.checkpoint):
                fit(*arguments)
            return self
        except BaseException:  # bad input, Ctrl-C: as if nothing had been called
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    @available_if(lambda self: find_spec("sklearn.callback") is not None)
    def set_callbacks(self, *callbacks):
        """Set callbacks of scikit-learn 1.9 and later, which are called at both ends of a fit and of its steps.

        The tasks of a fit are its stages ("widths", "kernel", "search", "process"), whose tasks are their steps;
        ``context.progress`` of a step is a `relvec.progress.Progress`. A callback that asks to stop ends the search.

        Parameters
        ----------
        *callbacks : instances of `sklearn.callback.FitCallback`

        Returns
        -------
        self : the estimator.
        """
        from sklearn.callback import CallbackSupportMixin  # which imports rich where that is installed

        return CallbackSupportMixin.set_callbacks(self, *callbacks)

    def _fit_with_callbacks(self, X, y, sample_weight) -> None:
        from sklearn.callback import CallbackSupportMixin, with_callbacks

        @with_callbacks
        def fit(self) -> None:
            context = CallbackSupportMixin._init_callback_context(self, max_subtasks=None)
            data = {"estimator": self, "X": X, "y": y, "metadata": {"sample_weight": sample_weight}}
            context.call_on_fit_task_begin(**data)
            tasks = _Tasks(context, data)
            with watch(tasks):
                self._fit(X, y, sample_weight)
            tasks.close()
            context.call_on_fit_task_end(**data, reconstruction_attributes={})

        fit(self)

    def _identify(self, *data: Any) -> None:
        """Where a checkpoint is kept: read what an earlier fit to the same data left there."""
        if self.checkpoint is None:
            return
        parameters = {name: v for name, v in self.get_params(deep=False).items() if name not in _NO_MATTER}
        earlier = (self.basis_, self.alpha_) if self.warm_start and hasattr(self, "basis_") else None
        checkpoint.identify(type(self).__name__, parameters, earlier, *data)

    def _dictionary(
        self, X: np.ndarray, weights: np.ndarray, on_device: Array | None = None
    ) -> tuple[Basis, np.ndarray]:
        """The dictionary of candidate atoms on the training rows X, bound.

        Also which entries of its theta (p,) are to be learned. Rows on a device are sorted there.
        """
        given = None if on_device is None or not np.all(weights > 0.0) else on_device
        unbound = self._unbound(X.shape[1], given)
        return unbound.bind(X, weights, self._generator()), unbound.learned(X.shape[1])

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31))

    def _unbound(self, n_features: int, on_device: Array | None = None) -> Concat:
        """The dictionary before it knows its rows, but for those on a device: kernel, basis, bias in this order."""
        parts: list[Basis] = []
        precomputed = isinstance(self.kernel, str) and self.kernel == "precomputed"
        if self.centres not in ("data", "move", "grvm"):
            raise ValueError(f"centres must be 'data', 'move' or 'grvm', got {self.centres!r}")
        if self.centres != "data" and precomputed:
            raise ValueError("centres that move need the kernel as a function of them, not kernel='precomputed'")
        unsaid = isinstance(self.width, str) and self.width in ("auto", "scale")
        if (precomputed or self.kernel is None) and not unsaid:
            raise ValueError(f"width belongs to a kernel given by name; with kernel={self.kernel!r} leave it at 'auto'")
        if precomputed and self.basis is not None:
            raise ValueError(
                "with kernel='precomputed' X holds kernel values, on which other basis functions make no sense; "
                "pass the inputs themselves with the kernel as a callable, or append columns to X"
            )
        if precomputed:
            parts.append(Precomputed())
        elif self.kernel is not None:
            kernel = as_kernel(self.kernel, self._width(n_features))
            if on_device is not None:
                centres, first, _ = map(to_host, unique_rows(on_device))
                parts.append(KernelBasis(kernel, centres.astype(np.float64, copy=False), centre_rows=first))
            else:
                parts.append(KernelBasis(kernel))
        if self.basis is not None:
            parts.append(as_basis(self.basis))
        if self.fit_intercept:
            parts.append(Bias())
        if not parts:
            raise ValueError("the model is empty: give a kernel, a basis, or fit_intercept=True")
        return Concat(tuple(parts))

    def _width(self, n_features: int) -> Any:
        """What ``width`` means: "auto" learns the widths of a kernel given by name where evidence can be trusted."""
        if isinstance(self.width, str) and self.width in GRVM_WIDTHS:
            return GRVM_WIDTHS[self.width]  # by another evidence: see `_learned`
        if not (isinstance(self.width, str) and self.width == "auto"):
            return self.width
        named = isinstance(self.kernel, str) and has_width(self.kernel)
        return "learn-per-feature" if named and self._trusts_evidence and n_features <= MOST_WIDTHS else "scale"

    @property
    def _trusts_evidence(self) -> bool:
        """Whether widths are learned unless something else is said: see the guide, "Widths"."""
        return False

    def _learned(self, basis: Basis, free: np.ndarray, X: np.ndarray, targets: list) -> Learned:
        """The basis with its free parameters learned on the rows X (n, d), and a model of each target."""
        limit = as_solver(self.solver).time_limit
        deadline = np.inf if limit is None else time.monotonic() + TUNING_SHARE * limit
        seed = 0 if self.random_state is None else check_random_state(self.random_state).randint(2**31)
        setting = Setting.of(basis, X, targets, free, deadline)
        if isinstance(self.width, str) and self.width in GRVM_WIDTHS:
            choose = grvm_widths.choose_width if self.width == "grvm" else grvm_widths.choose_widths
            chosen = choose(basis, setting, seed)
            return Learned(chosen.basis, [None] * len(targets), chosen.tuning)
        return learn(basis, setting, seed, self._logs)

    def _moved(self, basis: Basis, X: np.ndarray, targets: list, models: list) -> tuple[Basis, list, list]:
        """The dictionary with its centres moved from where models (one a target) have them; models, and the moves."""
        limit = as_solver(self.solver).time_limit
        deadline = np.inf if limit is None else time.monotonic() + TUNING_SHARE * limit
        space = centres.Space.of(basis, X, targets, deadline)
        placed = centres.start(basis, space, models)
        placed, moves = centres.move(placed) if self.centres == "move" else grvm.train(placed)
        return (placed.basis, placed.models, moves) if len(placed.Z) else (basis, models, [])

    def _store_centres(self, basis: Basis, X: np.ndarray, targets: list, models: list, moves: list) -> None:
        """What movable centres add to the attributes: how well the data place them, and the way there."""
        self.__dict__.pop("placement_", None)
        if moves:
            space = centres.Space.of(basis, X, targets)
            self.placement_ = grvm.placement(centres.start(basis, space, models, settle=False), moves)
            own = np.sum(self.log_marginal_likelihood_)  # in the units of the targets as given
            self.placement_ = replace(self.placement_, log_evidence=own + self.placement_.log_share)

    @property
    def _logs(self) -> bool:
        """Whether every step goes to the logger."""
        return bool(self.verbose) and not isinstance(self.verbose, str)

    def _store_widths(self, basis: Basis, variances: np.ndarray, learned: Learned | None) -> None:
        """Attributes that tell of the kernels: widths, feature relevance, how widths were learned.

        The features have variances in these proportions (d,).
        """
        for name in ("kernel_", "width_", "feature_relevance_", "tuning_"):
            self.__dict__.pop(name, None)
        parts = basis.parts if isinstance(basis, Concat) else ()
        kernels = [part.kernel for part in parts if isinstance(part, KernelBasis)]
        if learned is not None:
            self.tuning_ = learned.tuning
        if not kernels:
            return
        self.kernel_ = kernels[0]
        width = getattr(self.kernel_, "width", None)
        if width is not None:
            self.width_ = np.array(width) if isinstance(width, tuple) else width
        scales = np.sum([kernel.scales(len(variances)) for kernel in kernels], axis=0)
        with np.errstate(divide="ignore"):
            relevance = np.log(scales) + np.log(variances)  # the products themselves may overflow
        if np.any(relevance > -np.inf):
            self.feature_relevance_ = softmax(relevance)

    @property
    def feature_importances_(self) -> np.ndarray:
        """`feature_relevance_` (n_features,), under the name `sklearn.feature_selection.SelectFromModel` asks for."""
        if not hasattr(self, "feature_relevance_"):
            raise AttributeError("feature_importances_ is known after fit, for kernels with a width")
        return self.feature_relevance_

    def _earlier(self, basis: Basis, n_functions: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Atoms of a dictionary that the last fit kept (k,), and their precisions (n_functions, k) as it left them."""
        if not self.warm_start or not hasattr(self, "basis_"):
            return None
        alpha = np.atleast_2d(self.alpha_)
        if len(alpha) != n_functions:
            return None
        place = {key: m for m, key in enumerate(atom_keys(basis))}
        kept = sorted((place[key], i) for i, key in enumerate(atom_keys(self.basis_)) if key in place)
        atoms, own = np.array(kept, dtype=np.intp).reshape(-1, 2).T
        return atoms, alpha[:, own]

    def _on_device(self, X: Any) -> Array | None:
        """X (n, d) on the device where work is to be done, or None for the host.

        That is the device of the option ``device``; without it, where scikit-learn's ``array_api_dispatch`` is set,
        the one X lives on.
        """
        foreign = is_foreign(X)
        if self.device is not None:
            return as_place(self.device).put(X) if foreign else None
        if not foreign:
            return None
        if get_config()["array_api_dispatch"]:
            return place_of(X).put(X)
        if "cuda" in str(getattr(X, "device", "")).lower():
            raise TypeError(
                f"X lives on {X.device}: allow that with sklearn.set_config(array_api_dispatch=True), or give the "
                "estimator a device, such as device='cuda'"
            )
        return None

    def _hosted(self, X: Any, *others: Any) -> tuple:
        """X and what belongs to it (targets, weights) on the host, and X on the device where work is to be done."""
        return (to_host(X), *map(to_host, others), self._on_device(X))

    def _rows(self, X: Any, native: bool = True) -> tuple[Array, Callable[[Array], Array]]:
        """Rows to predict, validated, and what turns results for them into the library of X.

        They are on the device where `_on_device` says so, unless the model cannot work there (``native`` False).
        """
        if type(X) is np.ndarray and self.device is None:
            return self._checked(X), _as_it_is
        on_device = self._on_device(X)
        rows = self._checked(to_host(X))
        if on_device is None and (self.device is None or not native):
            return rows, to_host
        used = on_device if on_device is not None else as_place(self.device).put(rows)
        if is_foreign(X) and on_device is not None:
            home = place_of(X)
            return (used if native else rows), home.put
        return used, to_host

    def _checked(self, X) -> np.ndarray:
        """Rows X (n, d) to predict, validated; what needs no conversion takes the short way, a tenth of the time."""
        if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and hasattr(self, "weights_"):
            with np.errstate(all="ignore"):
                finite = np.isfinite(X.sum())  # where this overflows the long way decides
            if finite and len(X) and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_"):
                return X
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)

    @property
    def _tol(self) -> Any:
        """Nats that no single move may gain any more."""
        return self.tol

    def _check_numbers(self) -> None:
        """Scalar parameters, with errors that say what was expected."""
        if not isinstance(self._tol, numbers.Real) or not 0 < float(self._tol) < np.inf:
            raise ValueError(f"tol must be a positive number (nats), got {self.tol!r}")
        if not isinstance(self.max_iter, numbers.Integral) or int(self.max_iter) < 1:
            raise ValueError(f"max_iter must be an integer >= 1, got {self.max_iter!r}")
        memory_bytes(self.memory_limit)
        if isinstance(self.verbose, str) and self.verbose != "progress":
            raise ValueError(f"verbose must be None, 'progress', True, False or a number, got {self.verbose!r}")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise ValueError(f"fit_intercept must be True or False, got {self.fit_intercept!r}")

    def _hyperprior(self) -> GammaPrior:
        """The hyperprior as an object."""
        if self.hyperprior is None:
            return FLAT
        if isinstance(self.hyperprior, GammaPrior):
            return self.hyperprior
        if isinstance(self.hyperprior, dict) and set(self.hyperprior) <= set("abcd"):
            return GammaPrior(**self.hyperprior)
        raise ValueError(
            "hyperprior must be None, a relvec.priors.GammaPrior or a dict with keys among a, b, c, d, "
            f"got {self.hyperprior!r}"
        )


class _Tasks:
    """A watcher that tells scikit-learn's callbacks: a task for each stage of a fit, and in it one for each step."""

    def __init__(self, context, data: dict[str, Any]) -> None:
        self._context, self._data, self._lock = context, data, threading.Lock()
        self._stage: Any = None

    def __call__(self, progress: Progress) -> bool:
        with self._lock:  # outputs of a model may be fitted in several threads
            if self._stage is None or self._stage.task_name != progress.stage:
                self.close()
                self._stage = self._context.subcontext(task_name=progress.stage, max_subtasks=None)
                self._stage.call_on_fit_task_begin(**self._data)
            step = self._stage.subcontext(task_name=str(progress))
            step.progress = progress
            step.call_on_fit_task_begin(**self._data)
            return bool(step.call_on_fit_task_end(**self._data))

    def close(self) -> None:
        """End the stage that is open."""
        if self._stage is not None:
            self._stage.call_on_fit_task_end(**self._data)
            self._stage = None


def spreads(samples: Samples) -> np.ndarray:
    """Weighted variances of the features (d,) of samples in blocks; an error where one is not finite."""
    origin = samples.take(np.array([0]))[0]

    def sums(block: Block) -> np.ndarray:
        if not np.all(np.isfinite(block.X)):
            raise ValueError(
                f"X has entries that are not finite between rows {block.start} and {block.start + len(block.X)}"
            )
        Z = block.X - origin
        return np.column_stack([block.weights @ Z, block.weights @ Z**2, np.full(len(origin), block.weights.sum())])

    first, second, total = samples.reduce(sums, np.add).T
    return np.maximum(second / total - (first / total) ** 2, 0.0)


def renumbered(basis: Basis, rows: np.ndarray) -> Basis:
    """A dictionary bound to some training rows (m,), with the numbers these have among all."""
    if isinstance(basis, Concat):
        return replace(basis, parts=tuple(renumbered(part, rows) for part in basis.parts))
    if isinstance(basis, KernelBasis) and basis.centre_rows is not None:
        return replace(basis, centre_rows=rows[basis.centre_rows])
    return basis


def feature_variances(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted variances (d,) of the columns of X (n, d), over the square of the largest deviation of all."""
    share = weights / weights.sum()
    deviation = X - share @ X
    size = np.abs(deviation).max(initial=0.0)
    return share @ (deviation / (size or 1.0)) ** 2


def kept_centres(basis: Basis) -> np.ndarray:
    """Centres (p, d) of the kernels of a fitted basis, in its order."""
    found = centres_of(basis)
    return found[~np.isnan(found).any(axis=1)]


def check_representable(*values: np.ndarray) -> None:
    """An error where weights, precisions or variances of a model, in the units of X and y, have no double."""
    if not all(np.all(np.isfinite(value)) for value in values):
        raise ValueError(
            "the weights of this model, their precisions or their variances are beyond the range of floating-point "
            "numbers: the basis functions are far too small or too large for the target. Standardise X and y, or give "
            "a kernel with values nearer to 1"
        )


def memory_bytes(limit: Any) -> float:
    """Bytes of a memory limit, a number or such as "4GB" or "500 MiB".

    >>> memory_bytes("4GB"), memory_bytes(50e6), memory_bytes("1.5 GiB")
    (4000000000.0, 50000000.0, 1610612736.0)
    """
    said = limit if isinstance(limit, str) else ""
    found, value = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", said, re.IGNORECASE), np.nan
    if found is not None:
        power = " kmgt".index(found[2].lower() or " ")
        with suppress(ValueError):
            value = float(found[1]) * (1024.0 if found[3] else 1000.0) ** power
    elif isinstance(limit, numbers.Real):
        value = float(limit)
    if not LEAST_MEMORY <= value < np.inf:
        raise ValueError(
            f'memory_limit must be bytes, {LEAST_MEMORY / 1e6:.0f} million or more, or such as "4GB" or "500MiB", '
            f"got {limit!r}"
        )
    return value


def memory_left(limit: Any, n_rows: int, numbers: float, a_row: float = 0.0) -> float:
    """Bytes that a memory limit leaves besides so many numbers for each of the rows; a warning where that is little.

    ``a_row`` are further bytes for a row without which no search goes on.
    """
    memory, taken = memory_bytes(limit), 8.0 * n_rows * numbers
    if taken + a_row * n_rows > _MOST_TAKEN * memory:
        enough = (taken + a_row * n_rows) / _MOST_TAKEN / 1e6
        warnings.warn(
            f"memory_limit={limit!r} is less than the fit of {n_rows} rows takes for their copies and the model alone, "
            f"and will be exceeded: set it to '{np.ceil(enough):.0f}MB' or more",
            UserWarning,
            stacklevel=2,
        )
    return max(memory - taken, (1.0 - _MOST_TAKEN) * memory)


def row_copies(basis: Basis) -> int:
    """Numbers that a row takes where it is a centre of a bound dictionary: two copies, while they are sorted."""
    centred = any(isinstance(leaf, KernelBasis) and leaf.centre_rows is not None for leaf in leaves(basis))
    return 2 * (basis.n_features or 0) if centred else 0


def some_of(rows: np.ndarray, used: np.ndarray) -> np.ndarray:
    """The rows whose numbers are in ``used``, in order; the array itself where that is all of them."""
    return rows if len(used) == len(rows) else rows[used]


def weighted_moments(t: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Root mean square and standard deviation of t (n,), safe for any magnitude."""
    largest = float(np.abs(t).max())
    if largest == 0.0:
        return 0.0, 0.0
    share, u = weights / weights.sum(), t / largest
    mean = share @ u
    return largest * float(np.sqrt(share @ u**2)), largest * float(np.sqrt(share @ (u - mean) ** 2))


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """One output's fit: what the solver returned, in scaled units, and the units."""

    result: Result
    unit: float
    prior: GammaPrior
    scale: np.ndarray
    n_samples: float

    @property
    def model(self) -> Start:
        """Atoms, their precisions and the noise precision, in scaled units."""
        posterior = self.result.state.posterior
        return Start(self.result.state.active, posterior.alpha, posterior.beta)

    @property
    def log_evidence(self) -> float:
        """Log evidence in the target's own units."""
        return self.result.state.posterior.log_evidence - self.n_samples * np.log(self.unit)

    def history(self, rows: np.ndarray) -> np.ndarray:
        """The history (structured array) in the target's own units; rows (M,) are the atoms' training rows."""
        state = self.result.state
        shift = -self.n_samples * np.log(self.unit) - 2.0 * self.prior.c * np.log(self.unit)
        if self.prior.on_weights:  # nothing is pruned then, so the support never changes
            shift += 2.0 * self.prior.a * np.sum(np.log(self.scale[state.active] / self.unit))
        return _history(self.result.history, rows, shift, self.unit)


def _named(X: np.ndarray, names: list[str]) -> Any:
    """X as a table with named columns."""
    import pandas as pd

    return pd.DataFrame(X, columns=names)


def by_blocks(method: Callable) -> Callable:
    """A method of rows X that also takes rows that are not in memory, and predicts them block by block."""

    @wraps(method)
    def predicted(self, X: Any, *args: Any, **options: Any) -> Any:
        if type(X) is np.ndarray or is_dask(X):
            return method(self, X, *args, **options)
        blocks = blocks_to_predict(X, getattr(self, "feature_names_in_", None))
        if blocks is None:
            return method(self, X, *args, **options)
        check_is_fitted(self)
        if options.get("return_cov") or (method.__name__ == "predict" and len(args) > 1 and args[1]):
            return method(
                self, np.concatenate([np.asarray(block, dtype=np.float64) for block in blocks]), *args, **options
            )
        parts = [method(self, block, *args, **options) for block in blocks]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        return np.concatenate(parts)

    return predicted


def _history(steps: list[Step], rows: np.ndarray, shift: float, unit: float) -> np.ndarray:
    """Steps as a structured array. An atom of a model with several outputs counts on beyond M, output by output."""
    table = [
        (h.action, h.atom, rows[h.atom % len(rows)] if h.atom >= 0 else -1, h.gain, h.objective + shift, h.size,
         h.noise_variance * unit**2)
        for h in steps
    ]  # fmt: skip
    return np.array(table, dtype=HISTORY)


def target_units(y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square (1 for a target of zeros) and relative variance of each output of y (n, q).

    The variance is 0 for a target that is constant to rounding.
    """
    units, variances = np.ones(y.shape[1]), np.zeros(y.shape[1])
    for i, t in enumerate(y.T):
        rms, deviation = weighted_moments(t, weights)
        if rms > 0.0:
            units[i] = rms
            variances[i] = (deviation / rms) ** 2 if deviation > 1e-14 * rms else 0.0
    return units, variances


def gaussian_problem(estimator, unit: float, variance: float, n: float, seed: int) -> Problem:
    """What a solver is asked to do for a target in units of ``unit``, all but the design; n sums the sample weights."""
    prior, given = estimator._hyperprior(), estimator.noise_variance
    if given is not None and given / unit / unit < LEAST_NOISE:
        raise ValueError(
            f"noise_variance={given!r} is below the rounding errors of targets of size {unit:.3g}: "
            "give a larger one, or None to learn it"
        )
    if unit > LARGEST_TARGET:
        raise ValueError(f"y has values of size {unit:.3g}, whose squares overflow: divide y by its standard deviation")
    constant = variance == 0.0
    return Problem(
        design=DenseDesign(np.zeros((1, 0))),
        target=np.zeros(1),
        rest=0.0,
        n_samples=n,
        noise_variance=None if given is None else given / unit / unit,
        noise_start=NOISE_START * (1.0 if constant else variance),
        noise_floor=NOISE_FLOOR**2 if constant else NOISE_FLOOR * variance,
        order=np.zeros(0, dtype=np.intp),
        prior=prior,
        prior_d=prior.d / unit / unit,
        tol=float(estimator._tol),
        tol_of_many=TOL_OF_MANY if estimator.tol is None else None,
        rng=np.random.default_rng(seed),
    )


def gaussian_target(problem: Problem, target: np.ndarray, weights: np.ndarray) -> GaussianTarget:
    """A target (n,) to learn widths from, under a flat hyperprior."""
    return GaussianTarget(target, weights, replace(problem, prior=FLAT, prior_d=0.0))


def fit_gaussian(
    estimator, problem: Problem, rows: Rows, output: int, exact, order: np.ndarray, essential: np.ndarray, bias: int,
    unit: float, variance: float, start: Start | None = None, solver: Any = None,
) -> GaussianFit:  # fmt: skip
    """Maximise the evidence for one output, in scaled units.

    ``exact(active, output)`` gives the uncompressed columns of some atoms, scaled like the design's, and the target,
    both as the k + 1 rows of their QR factorisation; it is used to polish a fit on compressed rows.
    """
    prior, design = problem.prior, rows.design
    problem = replace(
        problem,
        design=design,
        target=np.ascontiguousarray(rows.targets[:, output]),
        rest=float(rows.rest[output]),
        order=order,
        essential=essential,
        bias=bias,
        start=start,
        prior_b=scaled_rates(prior, design.scale, unit),
    )
    solver = as_solver(estimator.solver) if solver is None else solver
    nothing = float(problem.target @ problem.target) + problem.rest == 0.0
    if variance == 0.0 and not problem.fixed_noise and (bias >= 0 or nothing) and not prior.on_weights:
        result = _constant(problem)
    else:
        named = checkpoint.part(f"output {output}")
        with one_thread(), named, stage("search", shift=-problem.n_samples * np.log(unit)):
            result = solve(solver, problem, int(estimator.max_iter), int(estimator._logs))
            if rows.compression is not None:
                result = polish(problem, result, *exact(result.state.active, output))
    return GaussianFit(result, unit, prior, design.scale, problem.n_samples)


def held_noise(fits: list[GaussianFit], problems: list[Problem], noises: np.ndarray | None) -> list[Problem] | None:
    """The problems with the noise (K,) of learned widths, where a fit passes through its targets; None if none does.

    Narrow functions, each with a precision of its own, can explain targets that are noise to all of them together.
    """

    def passes(fit: GaussianFit, problem: Problem, noise: float) -> bool:
        state = fit.result.state
        many = len(state.active) > CROWDED * fit.n_samples
        return many and not problem.fixed_noise and noise * state.posterior.beta > THROUGH

    if noises is None:
        return None
    through = [passes(*each) for each in zip(fits, problems, noises, strict=True)]
    pairs = zip(problems, noises, through, strict=True)
    return [replace(p, noise_variance=float(noise)) if so else p for p, noise, so in pairs] if any(through) else None


def scaled_rates(prior: GammaPrior, scale: np.ndarray, unit: float = 1.0) -> np.ndarray | None:
    """The hyperprior's rates b (M,) for columns divided by scale (M,) and targets by unit; None where it is flat."""
    if not prior.on_weights:
        return None
    with np.errstate(over="ignore"):
        rates = prior.b * (scale / unit) ** 2
    if not np.all(rates < LARGEST_RATE):
        raise ValueError(
            f"the hyperprior's b = {prior.b:g} is out of all proportion to the weights of this model: for basis "
            f"functions of unit length and a target of unit size it is {np.max(rates):.3g}. Standardise X and y, or "
            "choose b for their units"
        )
    return rates


def warm_starts(estimator, basis: Basis, problems: list[Problem], scale: np.ndarray, units: np.ndarray) -> list:
    """Models of the last fit of a regressor, one for each problem, for columns divided by scale (M,); None for none."""
    earlier = estimator._earlier(basis, len(problems))
    if earlier is None:
        return [None] * len(problems)
    starts: list[Start | None] = []
    noises = np.atleast_1d(estimator.noise_variance_)
    for problem, unit, alpha, noise in zip(problems, units, earlier[1], noises, strict=True):
        active, precisions = _scaled(scale / unit, earlier[0], alpha)
        learned = noise / unit / unit if np.isfinite(noise) else problem.noise_start
        beta = 1.0 / (problem.noise_variance or max(learned, problem.noise_floor))
        starts.append(Start(active, precisions, beta) if active.size else None)
    return starts


def _laplace_start(problem: LaplaceProblem, atoms: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Units and their precisions to start from, for atoms (k,) and the precisions (K, k) each output had for them."""
    found = [_scaled(problem.design.scale, atoms, row) for row in (alpha[:1] if problem.share else alpha)]
    units = [own + c * problem.design.n_atoms for c, (own, _) in enumerate(found)]
    return np.concatenate(units), np.concatenate([precisions for _, precisions in found])


def _scaled(scale: np.ndarray, atoms: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the atoms (k,) that were in a model, and their precisions for columns divided by scale (M,)."""
    kept = np.isfinite(alpha) & (scale[atoms] > 0.0)
    return atoms[kept], alpha[kept] / scale[atoms[kept]] ** 2


def polish(problem: Problem, result: Result, columns: np.ndarray, target: np.ndarray) -> Result:
    """The same support on the uncompressed rows: precisions, noise and evidence exact, the history shifted to it."""
    state = result.state
    design = DenseDesign(columns)
    local = np.arange(design.n_atoms)
    prior_b = None if problem.prior_b is None else problem.prior_b[state.active] * design.scale**2
    order = problem.order[state.active]
    whole = replace(problem, design=design, target=target, rest=0.0, order=order, prior_b=prior_b)
    frame = Frame(design, target, 0.0)
    model = Model(whole, frame, local[:0], state.posterior).at(
        local, state.posterior.alpha * design.scale**-2.0, state.posterior.beta)  # fmt: skip
    if not problem.prior.on_weights:
        model = model.relaxed(50)
    p = model.posterior
    exact = replace(p, alpha=p.alpha * design.scale[model.active] ** 2)
    active = state.active[model.active]
    objective = problem.objective(active, exact)
    shift = objective - state.objective
    history = [replace(step, objective=step.objective + shift) for step in result.history]
    return replace(result, state=replace(state, active=active, posterior=exact, objective=objective), history=history)


def _constant(problem: Problem) -> Result:
    """The model of a target without variation: the bias at the noise floor, or nothing for a target of zeros."""
    fixed = replace(problem, noise_variance=problem.noise_floor)
    solver = Sequential(start="bias")
    state = solver.init(fixed)
    step = Step("start", problem.bias, 0.0, state.objective, len(state.active), problem.noise_floor)
    return Result(state.stepped(largest_gain=0.0, done=True), Status.CONSTANT_TARGET, [step], 0)


def warn_unless_converged(result: Result, tol: float, where: str = "") -> None:
    """A fit that ended without its certificate says what to do."""
    status = result.status
    if not status.success:
        gain = result.state.largest_gain
        offer = f" (the best single move still gains {gain:.2g} nats, tol is {tol:g})" if tol < gain < np.inf else ""
        warnings.warn(f"{where}{status.name}: {status.value}{offer}.", ConvergenceWarning, stacklevel=_to_the_caller())


def _to_the_caller() -> int:
    """The stacklevel, for a warning of the function that asks, of the first caller outside of relvec."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("relvec."):
        frame, level = frame.f_back, level + 1
    return level


def predictor(fit: GaussianFit | LaplaceFit, basis: Basis, atoms: np.ndarray) -> LinearPredictor:
    """The fitted function over the given atoms, a superset of the fit's own in a fixed order."""
    state = fit.result.state
    place = {atom: i for i, atom in enumerate(state.active.tolist())}
    own = np.array([i for i, atom in enumerate(atoms.tolist()) if atom in place], dtype=np.intp)
    source = np.array([place[atoms[i]] for i in own], dtype=np.intp)
    mean, root = np.zeros(len(atoms)), np.zeros((len(atoms), len(place)))
    mean[own] = state.posterior.mean[source]
    root[own] = state.posterior.root[source]
    return LinearPredictor(basis, fit.scale[atoms], fit.unit, mean, root, 1.0 / state.posterior.beta)


@dataclass(frozen=True, eq=False)
class LaplaceFit:
    """A fit of classes or counts, on scaled columns."""

    result: Result
    problem: LaplaceProblem

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Output and atom of each weight (k,)."""
        return self.problem.pairs(self.result.state.active)

    @property
    def model(self) -> tuple[np.ndarray, np.ndarray]:
        """Units and their precisions."""
        return self.result.state.active, self.result.state.posterior.alpha[:: self.problem.per_unit]

    @property
    def unit(self) -> float:
        """Unit of the target: classes and counts are not scaled."""
        return 1.0

    @property
    def scale(self) -> np.ndarray:
        """Norms of the basis functions (M,)."""
        return self.problem.design.scale

    @property
    def log_evidence(self) -> float:
        """Laplace evidence, complete."""
        return self.result.state.posterior.log_evidence + self.problem.shift

    def history(self, rows: np.ndarray) -> np.ndarray:
        """The history (structured array); rows (M,) are the atoms' training rows."""
        return _history(self.result.history, rows, 0.0, np.nan)

    def latent(self, basis: Basis, atoms: np.ndarray) -> LatentPredictor:
        """The fitted latent functions over the given atoms, a superset of the fit's own."""
        outputs, own = self.pairs
        rank = np.argsort(atoms)
        places = rank[np.searchsorted(atoms, own, sorter=rank)]
        p = self.result.state.posterior
        scale = self.problem.design.scale[atoms]
        return LatentPredictor(basis, scale, self.problem.K, outputs, places, p.mean, p.root)


def merge_rows(X: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of X in lexicographic order, with the mean of their targets (n, K) and the sum of their weights.

    Exact for likelihoods whose logarithm is linear in t, but for a constant.
    """
    rows, _, row_of = unique_rows(X)
    size = np.bincount(row_of, weights)
    mean = np.stack([np.bincount(row_of, weights * t) for t in targets.T], axis=1) / size[:, None]
    return rows, mean, size


def laplace_prior(estimator) -> tuple[GammaPrior, Any]:
    """The hyperprior and the solver of a fit of classes or counts."""
    prior, solver = estimator._hyperprior(), as_solver(estimator.solver)
    if prior.on_noise:
        raise ValueError("classes and counts have no noise variance: leave c and d of the hyperprior at 0")
    if prior.on_weights and isinstance(solver, Sequential):
        raise ValueError(
            "the sequential solver has no closed form for a hyperprior on the weight precisions (a, b); "
            "use solver='mackay' or solver='em', or leave a and b at 0"
        )
    return prior, solver


def fit_laplace(
    estimator, basis: Basis, free: np.ndarray, X: np.ndarray, targets: list[np.ndarray], weights: np.ndarray,
    likelihood: Likelihood, share: bool = False, place: Place | None = None,
) -> tuple[list[LaplaceFit], Basis, Learned | None, tuple | None]:  # fmt: skip
    """Maximise the Laplace evidence for each target, (N,) or (N, K), over one dictionary on the rows X (N, d).

    What is as long as the rows lives at ``place``, a device, where one is given. Also returns the dictionary with the
    parameters marked in ``free`` (p,) learned, and how; and, where centres have moved, what `_store_centres` asks for.
    """
    prior, solver = laplace_prior(estimator)
    width = targets[0].shape[1] if targets[0].ndim == 2 else 1
    raw = np.column_stack(targets)
    if isinstance(estimator.kernel, str) and estimator.kernel == "precomputed":
        rows, mean, size = X, raw, weights
    else:
        rows, mean, size = merge_rows(X, raw, weights)
    merged = [mean[:, i * width : (i + 1) * width] for i in range(len(targets))]
    seeds = check_random_state(estimator.random_state).randint(2**31, size=len(targets))
    problems = [
        LaplaceProblem(
            design=DenseDesign(np.zeros((1, 0))),
            target=t if target.ndim == 2 else np.ascontiguousarray(t[:, 0]),
            weights=size,
            likelihood=likelihood,
            order=np.zeros(0, dtype=np.intp),
            share=share,
            bias=basis.n_atoms - 1 if estimator.fit_intercept else -1,
            shift=likelihood.constant(target, weights) - likelihood.constant(t if target.ndim == 2 else t[:, 0], size),
            tol=float(estimator._tol),
            rng=np.random.default_rng(seed),
        )
        for t, target, seed in zip(merged, targets, seeds, strict=True)
    ]
    learned, starts = None, [None] * len(problems)
    if free.any():
        learned = estimator._learned(basis, free, rows, [LaplaceTarget(p, basis.n_atoms) for p in problems])
        basis, starts = learned.basis, learned.models
    earlier = None if learned is not None else estimator._earlier(basis, raw.shape[1])

    def searched(
        part: Basis, design: ScanDesign, starts: list, first: bool, restarting: bool = True
    ) -> list[LaplaceFit]:
        order, b = content_ranks(part, design.scale), scaled_rates(prior, design.scale)
        own = [
            replace(problem, design=design, order=order, start=start, prior=prior, prior_b=b,
                    bias=part.n_atoms - 1 if estimator.fit_intercept else -1)
            for problem, start in zip(placed, starts, strict=True)
        ]  # fmt: skip
        if first and earlier is not None and part is basis:
            rows_of = [earlier[1][i * width : (i + 1) * width] for i in range(len(own))]
            own = [replace(p, start=_laplace_start(p, earlier[0], a)) for p, a in zip(own, rows_of, strict=True)]
        on_few = (solver, part, rows) if first and place is None else None
        return laplace_fits(estimator, solver if first and restarting else unhurried(solver), own, on_few)

    placed = problems
    memory = memory_left(estimator.memory_limit, len(rows), row_copies(basis) + 3 * raw.shape[1] + 8, MODELS)
    if place is not None:
        placed = [replace(p, target=place.put(p.target), weights=place.put(p.weights)) for p in problems]

    def over(basis: Basis, starts: list) -> tuple[list[LaplaceFit], Basis]:
        design: ScanDesign | None
        with stage("kernel"):
            if place is not None:
                design = device_scan_design(basis, place.put(rows))
            else:
                design = scan_design(basis, rows, memory=memory)
        estimator.n_candidates_, estimator.n_subsets_ = basis.n_atoms, 1
        if design is not None:
            return searched(basis, design, starts, True), basis
        restarting = memory > 4 * MODELS * len(rows)  # the models of a restart are twice as large
        return laplace_in_subsets(
            estimator, basis, len(rows), starts, most_scanned(len(rows), memory),
            lambda part: scan_design(part, rows, compression=False, memory=memory),
            partial(searched, restarting=restarting),
        )  # fmt: skip

    fits, basis = over(basis, starts)
    moved = None
    if estimator.centres != "data":
        targets_of = [LaplaceTarget(p, basis.n_atoms) for p in problems]
        basis, starts, moves = estimator._moved(basis, rows, targets_of, [fit.model for fit in fits])
        if moves:
            earlier = None
            fits, basis = over(basis, starts)
        moved = rows, [LaplaceTarget(p, basis.n_atoms) for p in problems], [fit.model for fit in fits], moves
    return fits, basis, learned, moved


def laplace_in_subsets(
    estimator, basis: Any, n_rows: int, starts: list, size: int, designed: Callable, searched: Callable
) -> tuple[list[LaplaceFit], Basis]:
    """Fit over a dictionary in subsets of ``size`` atoms; also the part of it that came last.

    ``designed(part)`` is the design of a part, ``searched(part, design, starts, first)`` fits over it.
    """
    M, part = basis.n_atoms, basis
    fits: list[LaplaceFit] = []
    given = [np.zeros(0, dtype=np.intp), *(s[0] % M for s in starts if s is not None)]

    def run(atoms: np.ndarray, first: bool) -> tuple[np.ndarray, bool, bool]:
        nonlocal fits, part, starts
        place = np.full(M, -1)
        place[atoms] = np.arange(len(atoms))
        part = basis.take(atoms)
        local = [None if s is None else (s[0] // M * len(atoms) + place[s[0] % M], s[1]) for s in starts]
        before = [f.result.state.objective for f in fits] or [-np.inf] * len(starts)
        fits = []  # their dictionary goes before the next one comes
        release()
        fits = searched(part, designed(part), local, first)
        states = [f.result.state for f in fits]
        gained = any(s.objective > b + estimator._tol for s, b in zip(states, before, strict=True))
        units = [s.active // len(atoms) * M + atoms[s.active % len(atoms)] for s in states]
        starts = [(u, s.posterior.alpha[:: f.problem.per_unit]) for u, s, f in zip(units, states, fits, strict=True)]
        return np.concatenate(units) % M, gained, any(cut_short(f.result) for f in fits)

    work = 2000.0 * n_rows * (size + _MODEL_ATOMS)
    estimator.n_candidates_, estimator.n_subsets_, complete = in_subsets(basis, size, np.concatenate(given), work, run)
    return fits if complete else [replace(f, result=of_some(f.result)) for f in fits], part


def laplace_fits(estimator, solver, problems: list[LaplaceProblem], on_few: tuple | None = None) -> list[LaplaceFit]:
    """Search each of the problems, side by side; ``on_few`` is what `thinned_start` asks for."""
    run, max_iter, logs = delayed(carried(_search_laplace)), int(estimator.max_iter), int(estimator._logs)
    with one_thread():
        results = Parallel(n_jobs=estimator.n_jobs, prefer="threads")(
            run(i, solver, problem, max_iter, logs, on_few) for i, problem in enumerate(problems)
        )
    return [LaplaceFit(result, problem) for result, problem in zip(results, problems, strict=True)]


def _search_laplace(
    output: int, solver, problem: LaplaceProblem, max_iter: int, verbose: int, on_few: tuple | None
) -> Result:
    with stage("search", shift=problem.shift), checkpoint.part(f"output {output}"):
        start = None if on_few is None else thinned_start(on_few[0], problem, on_few[1], on_few[2], max_iter)
        if start is not None:
            problem = replace(problem, start=start)
        return solve_laplace(solver, problem, max_iter, verbose)
