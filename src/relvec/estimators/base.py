"""Estimators as scikit-learn sees them: a fit that succeeds or changes nothing, rows from anywhere, attributes."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from relvec._version import __version__
from relvec.design import blocks_to_predict, is_dask, is_sliced, load_rows
from relvec.estimators.assemble import caller_level
from relvec.estimators.options import FitOptions
from relvec.estimators.records import Fitted, describe_as_html
from relvec.runtime.arrays import (
    Array,
    PerRow,
    RowsLike,
    TargetsLike,
    device_of,
    is_device_array,
    refuse_masked,
    to_host,
)
from relvec.runtime.progress import share_of_work, show_progress

MISSING_CELLS = (
    "Input X contains NaN: fill missing cells, such as by make_pipeline(SimpleImputer(add_indicator=True), model), or "
    "leave those rows out. The command `relvec fit` fills them in a table."
)
MIN_WEIGHT_SUM, MAX_WEIGHT_SUM = 1e-150, 1e30  # samples: the noise of more is too small to be told from 0
MAX_WEIGHT_SUM_OF_COUNTS = 1e15  # for classes and counts
FEW_SAMPLES = 0.1  # of the rows that have a weight: weights of no larger a sum look like shares, not like counts
MAX_INPUT = 1e302  # sums of more, and quotients by a small width, overflow

STORED = ("fitted_", "n_features_in_", "feature_names_in_", "classes_", "_metadata_request")  # beside the parameters
SPARSE_BLOCK_NUMBERS = 4_000_000  # of a sparse matrix that are made dense at once to predict: 32 MB


class BaseModel(BaseEstimator):
    """The common part of all estimators: `fit`, and rows to predict.

    Attributes
    ----------
    fitted_ : the fitted model as one frozen record (`relvec.estimators.records`), for exports.
    """

    record_type: ClassVar[type[Fitted]]

    fitted_: Fitted

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in self.__dict__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        tags.input_tags.sparse = self._takes_sparse
        return tags

    def __getstate__(self) -> dict:
        return super().__getstate__() | {"_relvec_version": __version__}  # for pickles; model files have their own

    def stored_state(self) -> dict[str, object]:
        """Return what a model file holds: the parameters, the record of the fit, and what the columns are called."""
        return {
            name: value for name, value in vars(self).items() if name in self.get_params(deep=False) or name in STORED
        }

    def restore_fit(self, fitted: Any, columns: dict[str, object]) -> None:
        """Set the record of a fit, with what the columns and classes are called, and all attributes that follow.

        Raises
        ------
        ValueError : where the record is of another family, or does not fit together.
        """
        if not isinstance(fitted, self.record_type):
            raise ValueError(f"fitted_ is no {self.record_type.__name__} but {type(fitted).__name__}")
        self.__dict__.update(columns)
        self._set_fitted(fitted)

    @property
    def _takes_sparse(self) -> bool:
        """Whether rows may come as a scipy.sparse matrix: where the functions are columns of it."""
        return False

    def __setstate__(self, state: dict) -> None:
        made_by = state.get("_relvec_version", __version__)
        state = {name: value for name, value in state.items() if name != "_relvec_version"}
        if made_by != __version__:
            warnings.warn(
                f"this pickle was made by relvec {made_by} and is read by {__version__}, which may fail: read it with "
                f"{made_by}, store it with relvec.save, and read that file with relvec.load",
                stacklevel=2,
            )
        super().__setstate__(state)

    def _repr_html_inner(self):
        return super()._repr_html_inner() + describe_as_html(self.__dict__)

    def _repr_mimebundle_(self, **kwargs):
        found = super()._repr_mimebundle_(**kwargs)
        return {kind: text + describe_as_html(self.__dict__) if kind == "text/html" else text
                for kind, text in found.items()}  # fmt: skip

    def fit(self, X, y=None, sample_weight=None, groups=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like (n_samples, n_features), or (n_samples, n_samples) for ``kernel="precomputed"``
            Training inputs. Also rows that are not in memory (see the guide, "Large data"): a `numpy.memmap`, a Zarr or
            HDF5 array, and the path of a Parquet file (then ``y`` names its column of targets). Arrays and tables of
            Dask, whose rows stay with its workers (see the guide, "Dask").
        y : array-like (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like (n_samples,), optional
            Each weight multiplies its sample's log-likelihood: 2 means twice the sample, 0 means absent. They are
            counts and no shares: a warning names the factor where their sum is a tenth of the rows or less.
        groups : array-like (n_samples,), optional
            A label for each row, such as the patient it was measured on: wherever the fit holds rows out (to choose
            kernels, sizes and error bars), rows of one label are held out together. For rows in memory.

        Returns
        -------
        self : the fitted estimator.
        """
        with self._atomic():
            self._fit(refuse_masked(X, y), y, sample_weight, groups)
        return self

    @abstractmethod
    def _fit(self, X: RowsLike, y: TargetsLike, sample_weight: PerRow, groups: PerRow) -> None:
        """Fit the model to rows as they were given, and set the attributes."""

    @abstractmethod
    def _set_fitted(self, fitted: Any) -> None:
        """Set public attributes from the record of a fit."""

    def _parameters(self) -> dict[str, object]:
        """Return the parameters of the constructor by name."""
        return {name: v for name, v in vars(self).items() if not name.startswith("_") and not name.endswith("_")}

    @property
    def _earlier(self) -> Any:
        """The model that a warm start begins with, or None."""
        return self.fitted_.earlier if self.warm_start and self.__sklearn_is_fitted__() else None

    def _copy_common(self, fitted: Fitted) -> None:
        """Set the attributes that all estimators have; drop those that this fit has not."""
        self.fitted_ = fitted
        self._set_or_drop(
            {
                "kernel_": fitted.kernel,
                "width_": fitted.width,
                "width_rule_": fitted.width_rule,
                "feature_relevance_": fitted.feature_relevance,
            }
        )

    def _set_or_drop(self, attributes: Mapping[str, object]) -> None:
        """Set attributes; drop those without a value, which an earlier fit may have left."""
        for name, value in attributes.items():
            self.__dict__.pop(name, None)
            if value is not None:
                setattr(self, name, value)

    def _load(
        self, X: RowsLike, y: TargetsLike, sample_weight: PerRow, options: FitOptions, in_passes: bool = False
    ) -> tuple[RowsLike, TargetsLike, PerRow, list[str] | None]:
        """X, y and weights of a source that was read into memory, or as they are; names where X stays on disk.

        in_passes : whether the fit reads its rows a few times only, so that they had better stay on disk.
        """
        found = load_rows(X, y, sample_weight, options.memory, in_passes)
        if found is None:
            return X, y, sample_weight, None
        if not is_sliced(found.X):
            if found.names is None:
                return found.X, found.y, found.weights, None
            import pandas as pd

            return pd.DataFrame(found.X, columns=found.names), found.y, found.weights, None
        return found.X, found.y, found.weights, found.names

    @contextmanager
    def _atomic(self) -> Iterator[None]:
        """Change the estimator, and leave it as it was where that fails."""
        before = dict(self.__dict__)
        try:
            with show_progress(self.verbose), share_of_work():
                yield
        except BaseException:  # bad input, Ctrl-C: as if nothing had been called
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _store_features(self, n_features: int, names: list[str] | None) -> None:
        """Attributes that tell of the columns of X, where scikit-learn does not see them."""
        self.n_features_in_ = n_features
        self._set_or_drop({"feature_names_in_": None if names is None else np.array(names, dtype=object)})

    @property
    def feature_importances_(self) -> np.ndarray:
        """Roots of `feature_relevance_` (n_features,), as shares, for `sklearn.feature_selection.SelectFromModel`.

        A relevance is a mean square, in which a weak input that matters is soon lost beside strong ones: its root is
        on the scale of the target, and above the mean (the default threshold) for more of the inputs that matter.
        """
        if self.__dict__.get("feature_relevance_") is None:
            raise AttributeError("feature_importances_ exists after fit, and only for kernels with a width")
        root = np.sqrt(self.__dict__["feature_relevance_"])
        return root / root.sum()

    def _on_device(self, X: RowsLike) -> Array | None:
        """X (n, d) on its device, where work is to be done there; None on the host."""
        return device_of(X).to_device(X) if is_device_array(X) else None

    def _to_host(self, X: RowsLike, *others: PerRow) -> tuple:
        """X and what belongs to it (targets, weights) on the host, and X on the device where work is to be done."""
        return (to_host(X), *map(to_host, others), self._on_device(X))

    @np.errstate(invalid="ignore")  # inf - inf in a sum, before what is infinite is refused
    def _validate(self, X: RowsLike, y: TargetsLike, **rules: Any) -> tuple[RowsLike, TargetsLike]:
        """X (n, d) and y, validated; what needs no conversion takes the short way."""
        plain = is_plain(X) and type(y) is np.ndarray and y.shape == X.shape[:1] != (1,)
        if plain and (y.dtype.kind in "iub" or is_plain(y[:, None])):
            self._store_features(X.shape[1], None)
        else:
            X, y = self._check_numbers(X, y, ensure_min_samples=2, **rules)
        largest = max(X.max(), -X.min())
        if largest > MAX_INPUT:
            raise ValueError(
                f"X has values of size {largest:.3g}, near the end of the range of numbers: rescale X (StandardScaler)"
            )
        return X, y

    def _check_weights(self, sample_weight: PerRow, rows: RowsLike, most: float = MAX_WEIGHT_SUM) -> np.ndarray:
        """Sample weights (n,) of rows, validated, whose sum is ``most`` or less; without any, ones."""
        if sample_weight is None:
            return np.ones(rows.shape[0])
        weights = _check_sample_weight(refuse_masked(sample_weight), rows, dtype=np.float64, ensure_non_negative=True)
        check_weight_sum(weights, most)
        warn_of_shares(weights)
        return weights

    def _validate_rows(self, X: RowsLike, native: bool = True) -> tuple[Array, Callable[[Array], Array]]:
        """Rows to predict, validated, and what turns results for them into the library of X.

        They stay on their device unless the model cannot work there (``native`` False).
        """
        if not is_device_array(X):
            return self._check_rows(X), lambda values: values
        rows, home = self._check_rows(to_host(X)), device_of(X)
        return (home.to_device(X) if native else rows), home.to_device

    def _sparse_blocks(self, X: RowsLike) -> Iterator[Any]:
        """Sparse rows to predict, validated, as dense blocks."""
        check_is_fitted(self)
        X = self._check_numbers(X, reset=False, accept_sparse="csr")
        rows = max(1, SPARSE_BLOCK_NUMBERS // X.shape[1])
        return (X[start : start + rows].toarray() for start in range(0, X.shape[0], rows))

    @np.errstate(invalid="ignore")
    def _check_rows(self, X) -> np.ndarray:
        """Rows X (n, d) to predict, validated; what needs no conversion takes the short way, a tenth of the time."""
        if is_plain(X) and self.__sklearn_is_fitted__():
            if X.shape[1] == self.n_features_in_ and "feature_names_in_" not in self.__dict__:
                return X
        check_is_fitted(self)
        return self._check_numbers(refuse_masked(X), reset=False)

    def _check_numbers(self, X: RowsLike, y: TargetsLike = "no_validation", **rules: Any) -> Any:
        """X (n, d) of finite numbers, with y where it is given, as scikit-learn validates them."""
        try:
            return validate_data(self, X, y, dtype=np.float64, **rules)
        except ValueError as error:
            if not str(error).startswith("Input X contains NaN"):
                raise
            raise ValueError(MISSING_CELLS) from None


def is_plain(X: RowsLike) -> bool:
    """Whether X (n, d) is an array of finite numbers that scikit-learn's validation would return as it is."""
    if not (type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size):
        return False
    with np.errstate(all="ignore"):
        return bool(np.isfinite(X.sum()))  # where this overflows the long way decides


def check_weight_sum(weights: np.ndarray, most: float = MAX_WEIGHT_SUM) -> None:
    """Refuse weights (n,) whose sum, the number of samples they stand for, is beyond what a fit can work with."""
    with np.errstate(over="ignore"):
        total = float(np.sum(weights))
    if not total <= most or 0.0 < total < MIN_WEIGHT_SUM:
        raise ValueError(
            f"the sample weights sum to {total:.3g}, beyond the range of numbers a fit can work with: "
            "divide sample_weight by its mean, so that the weights sum to the number of samples"
        )


def warn_of_shares(weights: np.ndarray) -> None:
    """Tell where weights (n,) stand for so few samples that they look like shares, and what makes them counts."""
    used, total = np.count_nonzero(weights), float(weights.sum())
    if used < 2 or not 0.0 < total <= FEW_SAMPLES * used:
        return
    warnings.warn(
        f"the sample weights of {used} rows sum to {total:.3g}. A weight says how many samples its row stands for, and "
        f"so few samples tell little. If the weights are shares, multiply sample_weight by {used / total:.6g}, so that "
        "they sum to the number of rows",
        UserWarning,
        stacklevel=caller_level(),
    )


def check_predictions(*arrays: Array) -> None:
    """Refuse predictions (n, ...) that overflowed, with the first row of X at fault."""
    for values in arrays:
        if not isinstance(values, np.ndarray) or np.isfinite(np.sum(values)):
            continue
        at_fault = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
        if at_fault.any():
            raise ValueError(
                f"the prediction for row {int(np.argmax(at_fault))} of X overflows: the row is too far from the "
                "training rows for a kernel or basis that grows without bound. Check its values, or clip them to the "
                "range of the training rows"
            )


def by_blocks(method: Callable) -> Callable:
    """Return a method of rows X that also takes rows that are not in memory, and predicts them block by block."""

    @wraps(method)
    def predicted(self, X: RowsLike, *args: Any, **options: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # `check_predictions` reports an overflow
            return _predict(method, self, X, *args, **options)

    return predicted


def _predict(method: Callable, model: BaseModel, X: RowsLike, *args: Any, **options: Any) -> Any:
    """Return what a method predicts for rows wherever they are, block by block where they are not in memory."""
    if type(X) is np.ndarray or is_dask(X):
        return method(model, X, *args, **options)
    names = getattr(model, "feature_names_in_", None)
    blocks = model._sparse_blocks(X) if issparse(X) and model._takes_sparse else blocks_to_predict(X, names)
    if blocks is None:
        return method(model, X, *args, **options)
    check_is_fitted(model)
    if options.get("return_cov") or (method.__name__ == "predict" and len(args) > 1 and args[1]):
        whole = np.concatenate([np.asarray(block, dtype=np.float64) for block in blocks])
        return method(model, whole, *args, **options)
    return _join_blocks([method(model, block, *args, **options) for block in blocks])


def _join_blocks(parts: list) -> Any:
    """Return the predictions for all blocks as one array, or as a tuple of arrays."""
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))
    return np.concatenate(parts)
