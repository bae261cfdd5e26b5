"""What both estimators are to scikit-learn: a fit that is all or nothing, rows from anywhere, checked parameters."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import partial, wraps
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from relvec.design import MAX_MEMORY_SHARE, blocks_to_predict, is_dask, is_sliced, load
from relvec.estimators.callbacks import fit_with_callbacks
from relvec.inference.priors import FLAT, GammaPrior
from relvec.runtime import checkpoint
from relvec.runtime.arrays import Array, as_device, device_of, is_device_array, to_host
from relvec.runtime.memory import memory_bytes
from relvec.runtime.progress import show_progress

_NO_MATTER = ("checkpoint", "n_jobs", "verbose")  # parameters that do not decide how a fit goes


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
        fit = partial(fit_with_callbacks, self) if hasattr(self, "_skl_callbacks") else self._fit
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
            f"{size / MAX_MEMORY_SHARE:.3g}GB or more"
        )

    def _all_or_nothing(self, fit, *arguments):
        """Call a method that changes the estimator, and return that; as it was where the method fails."""
        before = dict(self.__dict__)
        asked = isinstance(self.verbose, str) and self.verbose == "progress"
        try:
            with show_progress(None if self.verbose is None else asked), checkpoint.session(self.checkpoint):
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
        ``context.progress`` of a step is a `relvec.runtime.progress.Progress`. A callback that asks to stop ends the
        search.

        Parameters
        ----------
        *callbacks : instances of `sklearn.callback.FitCallback`

        Returns
        -------
        self : the estimator.
        """
        from sklearn.callback import CallbackSupportMixin  # which imports rich where that is installed

        return CallbackSupportMixin.set_callbacks(self, *callbacks)

    def _store_features(self, n_features: int, names: list[str] | None) -> None:
        """Attributes that tell of the columns of X, where scikit-learn does not see them."""
        self.n_features_in_ = n_features
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _identify(self, *data: Any) -> None:
        """Where a checkpoint is kept: read what an earlier fit to the same data left there."""
        if self.checkpoint is None:
            return
        parameters = {name: v for name, v in self.get_params(deep=False).items() if name not in _NO_MATTER}
        earlier = (self.basis_, self.alpha_) if self.warm_start and hasattr(self, "basis_") else None
        checkpoint.identify(type(self).__name__, parameters, earlier, *data)

    @property
    def _trusts_evidence(self) -> bool:
        """Whether widths are learned unless something else is said: see the guide, "Widths"."""
        return False

    @property
    def _logs(self) -> bool:
        """Whether every step goes to the logger."""
        return bool(self.verbose) and not isinstance(self.verbose, str)

    @property
    def feature_importances_(self) -> np.ndarray:
        """`feature_relevance_` (n_features,), under the name `sklearn.feature_selection.SelectFromModel` asks for."""
        if not hasattr(self, "feature_relevance_"):
            raise AttributeError("feature_importances_ is known after fit, for kernels with a width")
        return self.feature_relevance_

    def _on_device(self, X: Any) -> Array | None:
        """X (n, d) on the device where work is to be done, or None for the host.

        That is the device of the option ``device``; without it, where scikit-learn's ``array_api_dispatch`` is set,
        the one X lives on.
        """
        foreign = is_device_array(X)
        if self.device is not None:
            return as_device(self.device).to_device(X) if foreign else None
        if not foreign:
            return None
        if get_config()["array_api_dispatch"]:
            return device_of(X).to_device(X)
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
        used = on_device if on_device is not None else as_device(self.device).to_device(rows)
        if is_device_array(X) and on_device is not None:
            home = device_of(X)
            return (used if native else rows), home.to_device
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
            "hyperprior must be None, a relvec.GammaPrior or a dict with keys among a, b, c, d, "
            f"got {self.hyperprior!r}"
        )


def some_of(rows: np.ndarray, used: np.ndarray) -> np.ndarray:
    """The rows whose numbers are in ``used``, in order; the array itself where that is all of them."""
    return rows if len(used) == len(rows) else rows[used]


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
