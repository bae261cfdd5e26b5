"""Rows that come in parts: a regression brought up to date with every block of rows, and models merged."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from relvec.basis import as_basis, is_fixed
from relvec.design import Summary, summarise
from relvec.estimators.base import BaseRelevanceVector
from relvec.estimators.gaussian import GaussianSearch
from relvec.estimators.options import FitOptions
from relvec.estimators.pipeline import fit as fit_model
from relvec.estimators.sources import SummarySource
from relvec.estimators.sources.base import check_numbers
from relvec.runtime.arrays import refuse_masked

MAX_SUMMARY_SIZE = 10_000_000  # numbers of a summary that `fit` stores for `partial_fit`


def _takes_parts(model: Any) -> bool:
    """Whether rows may come in parts; an AttributeError says why not."""
    gaussian = isinstance(model.likelihood, str) and model.likelihood == "gaussian"
    gaussian = gaussian and isinstance(model.noise, str) and model.noise in ("auto", "constant")
    if not gaussian or not isinstance(model.predictive, str) or model.predictive not in ("auto", "rvm"):
        raise AttributeError(
            "rows can come in parts for likelihood='gaussian', noise='constant' and predictive='rvm' only"
        )
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


class IncrementalFitMixin(BaseRelevanceVector):
    """Incremental fits of a regressor over basis functions known before any row; it keeps a `Summary` of its rows."""

    _single: bool
    _summary: Summary

    @available_if(_takes_parts)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, refit: bool = True) -> Self:
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
        with self._atomic():
            self._partial_fit(X, y, sample_weight, refit)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, refit: bool) -> None:
        options = self._options()
        earlier: Summary | None = getattr(self, "_summary", None)
        if earlier is None and hasattr(self, "weights_"):
            raise ValueError(
                f"this model comes from a fit that kept nothing of its rows: it had other parameters, or more than "
                f"{MAX_SUMMARY_SIZE} numbers to keep. Begin with partial_fit on a new estimator (sklearn.base.clone)"
            )
        rules: dict = {"dtype": np.float64, "multi_output": True, "y_numeric": True, "reset": earlier is None}
        X, y = validate_data(self, refuse_masked(X, y), check_numbers(y), **rules)
        y = np.asarray(y, dtype=np.float64)
        weights = self._check_weights(sample_weight, X)
        single = y.ndim == 1
        if earlier is not None and (single != self._single or y.size != len(y) * earlier.n_outputs):
            kept = "(n,)" if self._single else f"(n, {earlier.n_outputs})"
            raise ValueError(f"y had the shape {kept} in earlier calls of partial_fit, got {y.shape}")
        basis = options.dictionary(X.shape[1]).bind(X, np.ones(len(X)), options.generator())
        block = summarise(basis, X, y.reshape(len(y), -1), weights)
        if block.n_rows == 0:
            raise ValueError("at least one sample needs a positive weight, got none: check sample_weight")
        summary = block if earlier is None else earlier.with_weights_scaled(float(self.forgetting)).merged(block)
        self._refit(options, summary, single) if refit else self._remember(summary, single)

    @property
    def _comes_in_parts(self) -> bool:
        try:
            return _takes_parts(self)
        except AttributeError:
            return False

    def _refit(self, options: FitOptions, summary: Summary, single: bool) -> None:
        """Fit the model to all rows seen, however many numbers they leave."""
        source = SummarySource(summary, single)
        self._set_fitted(fit_model(options, source, GaussianSearch.of), source)
        self._remember(summary, single)

    def _remember(self, summary: Summary, single: bool) -> None:
        """Keep the summary of the rows seen."""
        self._summary, self._single, self.n_samples_seen_ = summary, single, summary.n_rows

    def _keep_summary(self, summary: Summary, single: bool) -> None:
        """Keep what `fit` leaves of its rows for `partial_fit`, unless that is too much."""
        if summary.R.size <= MAX_SUMMARY_SIZE:
            self._remember(summary, single)

    @available_if(_takes_parts)
    def merge(self, *others: Self) -> Self:
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
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(merged, name, getattr(self, name))
        summary = self._summary
        for other in others:
            if other._single != self._single:
                raise ValueError(
                    "models of y of shape (n,) and of shape (n, 1) cannot be merged: use one shape for all parts"
                )
            if list(getattr(other, "feature_names_in_", ())) != list(getattr(self, "feature_names_in_", ())):
                raise ValueError("the models have seen features of different names: give all parts the same columns")
            summary = summary.merged(other._summary)
        merged._refit(merged._options(), summary, self._single)
        return merged
