"""Predictions of a fitted regressor for new rows: means, error bars, quantiles, draws, densities."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from relvec.design import is_dask
from relvec.estimators.base import by_blocks, check_predictions
from relvec.estimators.conformal import ConformalIntervals, check_coverage
from relvec.estimators.predictions.scores import check_densities, check_targets, explained_intervals, explained_share
from relvec.inference.censored import as_ends, log_likelihood
from relvec.inference.evidence import LOG_2PI
from relvec.runtime.arrays import Array, RowsLike, TargetsLike, like, namespace, refuse_masked, to_host


def _check_asked(return_std: bool, return_cov: bool, return_interval: float | None) -> None:
    """Refuse questions to `predict` that have more than one answer."""
    if return_interval is not None and (return_std or return_cov):
        raise ValueError("ask for return_interval alone: the result is one array of mean, lower and upper end")
    if return_std and return_cov:
        raise ValueError("ask for return_std or return_cov, not both: the std is the root of cov's diagonal")


class RegressionPredictions(RegressorMixin, ConformalIntervals):
    """Predictions from a predictor of each output, which may be replaced by RVM* or a process."""

    @by_blocks
    def predict(
        self, X: RowsLike, return_std: bool = False, return_cov: bool = False, noise: bool = True,
        return_interval: float | None = None,
    ) -> Any:  # fmt: skip
        """Predictive mean, with standard deviation, covariance or interval if asked.

        Parameters
        ----------
        X : array-like (n, n_features), or (n, n_training_samples) for ``kernel="precomputed"``
        return_std : bool, default False
            Also the standard deviation of a new target (T01 eq. (22)).
        return_cov : bool, default False
            Also the joint covariance; not together with `return_std`.
        noise : bool, default True
            Whether std, cov and interval include the noise. False describes the function itself.
        return_interval : float, optional
            Probability, such as 0.9, of a central interval (`predict_interval`). The result is then one array, which
            `sklearn.pipeline.Pipeline` and `sklearn.compose.TransformedTargetRegressor` pass on: their ``predict``
            takes ``return_interval=0.9`` as well.

        Returns
        -------
        mean : (n,) or (n, n_outputs)
        std : (n,) or (n, n_outputs), if return_std
        cov : (n, n) or (n, n, n_outputs), if return_cov
        mean, lower, upper : as one array (n, 3) or (n, n_outputs, 3), if return_interval

        Examples
        --------
        >>> from relvec import RVR
        >>> model = RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
        >>> mean, std = model.predict([[4.0]], return_std=True)
        >>> mean.shape, std.shape
        ((1,), (1,))
        >>> mean, lower, upper = model.predict([[4.0], [5.0]], return_interval=0.9).T
        >>> bool((lower < mean).all() and (mean < upper).all())
        True
        """
        _check_asked(return_std, return_cov, return_interval)
        if return_interval is not None:
            return self._predict_with_interval(X, return_interval, noise)
        if is_dask(X):
            return self._predict_lazily(X, return_std, return_cov, noise)
        X, back = self._validate_rows(X, self._on_device_natively)
        mean, variance = self._moments(X, return_std, noise)
        if return_std:
            return back(mean), back(namespace(variance).sqrt(variance))
        if return_cov:
            found = [m.covariance(X, noise) for m in self.fitted_.predictors]
            check_predictions(*found)
            return back(mean), back(self._by_output(found))
        return back(mean)

    def _moments(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Any]:
        """Return the mean and, if asked, variance (n,) or (n, n_outputs) at validated rows X."""
        found = [m.moments(X, variance, noise) for m in self.fitted_.predictors]
        means, variances = [mean for mean, _ in found], [v for _, v in found if v is not None]
        check_predictions(*means, *variances)
        return self._by_output(means), self._by_output(variances) if variance else None

    def _predict_with_interval(self, X: RowsLike, coverage: float, noise: bool) -> Array | tuple[Array, ...]:
        """Mean, lower and upper end as one array (n, 3) or (n, n_outputs, 3)."""
        if is_dask(X):
            raise ValueError("return_interval needs rows in memory: with Dask call predict and predict_interval")
        interval, mean = self.predict_interval(X, coverage, noise), self.predict(X)
        return namespace(mean).concat([mean[..., None], interval], axis=-1)

    @property
    def _on_device_natively(self) -> bool:
        """Whether moments can be computed on a device."""
        return self.__sklearn_is_fitted__() and all(m.on_device for m in self.fitted_.predictors)

    @property
    def _of_counts(self) -> bool:
        """Whether the fitted model is one of counts."""
        return self.fitted_.predictors[0].is_count

    @property
    def _is_normal(self) -> bool:
        """Whether new targets are normal, so that their moments say all."""
        return all(predictor.is_normal for predictor in self.fitted_.predictors)

    def _predict_lazily(
        self, X: RowsLike, return_std: bool, return_cov: bool, noise: bool
    ) -> Array | tuple[Array, ...]:
        """Predictions for a collection of Dask, as such collections."""
        check_is_fitted(self)
        if return_cov:
            raise ValueError("a covariance matrix has an entry for every pair of rows: with Dask ask for return_std")
        from relvec.design import predict_lazily

        names = None if self.fitted_.single else [f"prediction {i}" for i in range(len(self.fitted_.predictors))]
        return predict_lazily(self.predict, X, self.n_features_in_, getattr(self, "feature_names_in_", None), names,
                              parts=2 if return_std else 0, return_std=return_std, noise=noise)  # fmt: skip

    def _lazily(self, method: Callable, X: RowsLike, size: int, **options: Any) -> Array:
        """Values (n, size) of each output for a collection of Dask, as an array of Dask."""
        from relvec.design import evaluate_lazily

        shape = (size,) if self.fitted_.single else (len(self.fitted_.predictors), size)
        names_in = getattr(self, "feature_names_in_", None)
        return evaluate_lazily(method, X, self.n_features_in_, names_in, shape, **options)

    @by_blocks
    def predict_quantiles(self, X: RowsLike, q: ArrayLike, noise: bool = True) -> np.ndarray:
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
        if is_dask(X):
            return self._lazily(self.predict_quantiles, X, len(q), q=q, noise=noise)
        X, back = self._validate_rows(X, self._on_device_natively and self._is_normal)
        found = [m.quantiles(X, q, noise) for m in self.fitted_.predictors]
        check_predictions(*found)
        return back(found[0] if self.fitted_.single else namespace(found[0]).stack(found, axis=1))

    @by_blocks
    def predict_interval(self, X: RowsLike, coverage: float = 0.9, noise: bool = True) -> np.ndarray:
        """Interval that holds a new target with the given probability.

        After `calibrate` that is guaranteed, on average over new rows. Before, it is the central interval of the
        predictive distribution, as good as the model is.

        Parameters
        ----------
        X : array-like (n, n_features)
        coverage : float, default 0.9
        noise : bool, default True
            Whether the noise counts; False gives an interval for the function, by the predictive distribution.

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
        coverage = check_coverage(coverage)
        check_is_fitted(self)
        if self.fitted_.calibration is None or not noise:
            return self.predict_quantiles(X, [0.5 - coverage / 2, 0.5 + coverage / 2], noise=noise)
        if is_dask(X):
            return self._lazily(self.predict_interval, X, 2, coverage=coverage)
        X, back = self._validate_rows(X, False)
        found = self._conformal_interval(X, coverage)
        return back(found[:, 0] if self.fitted_.single else found)

    @by_blocks
    def sample_y(
        self, X: RowsLike, n_samples: Any = 1, random_state: int | np.random.RandomState | None = 0, noise: bool = False
    ) -> np.ndarray:
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
        if not isinstance(n_samples, numbers.Integral) or int(n_samples) < 0:
            raise ValueError(f"n_samples must be a number of functions, 0 or more, got {n_samples!r}")
        (X, back), rng = self._validate_rows(X, False), check_random_state(random_state)
        drawn = [m.samples(X, int(n_samples), rng, noise) for m in self.fitted_.predictors]
        check_predictions(*drawn)
        return back(drawn[0] if self.fitted_.single else np.stack(drawn, axis=1))

    def log_predictive_density(self, X: RowsLike, y: TargetsLike) -> np.ndarray:
        """Log density of each target under its predictive distribution.

        Parameters
        ----------
        X : array-like (n, n_features)
        y : array-like (n,) or (n, n_outputs)
            For ``likelihood="censored"`` also the ends (n, 2): the log probability of the interval where they differ.

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
        with np.errstate(all="ignore"):  # `check_densities` reports what has no number
            if self._takes_ends(y):
                found = log_likelihood(as_ends(y), mean, std**2)
            else:
                found = self._log_densities(X, check_targets(y, mean.shape), mean, std)
        check_densities(found)
        return found

    def _log_densities(self, X: RowsLike, y: np.ndarray, mean: Array, std: Array) -> Array:
        """Log densities of targets y, where predictions have these moments, all (n,) or (n, q)."""
        if self._is_normal:
            return -0.5 * (LOG_2PI + ((like(mean, y) - mean) / std) ** 2) - namespace(std).log(std)
        (X, back), columns = self._validate_rows(X, False), y.reshape(len(y), -1).T
        return back(
            self._by_output([m.log_density(X, t) for m, t in zip(self.fitted_.predictors, columns, strict=True)])
        )

    def score(self, X: RowsLike, y: TargetsLike, sample_weight: ArrayLike | None = None) -> float:
        """R^2 of `predict`; D^2, the fraction of the Poisson deviance explained, for counts.

        Parameters
        ----------
        X : array-like (n, n_features)
        y : array-like (n,) or (n, n_outputs)
            For ``likelihood="censored"`` also the ends (n, 2): the error of a row is the distance from its interval.
        sample_weight : array-like (n,), optional

        Examples
        --------
        >>> from relvec import RVR
        >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1, 3, 7, 20]
        >>> RVR(kernel=None, basis="linear", likelihood="poisson").fit(X, y).score(X, y) > 0.9
        True
        """
        check_is_fitted(self)
        mean = np.asarray(to_host(self.predict(X)))
        weights = _check_sample_weight(to_host(sample_weight), mean, dtype=np.float64, ensure_non_negative=True)
        if self._takes_ends(refuse_masked(y)):
            return explained_intervals(as_ends(y), mean, weights)
        return explained_share(check_targets(y, mean.shape, True), mean, weights, self._of_counts)

    def _by_output(self, values: list[np.ndarray]) -> np.ndarray:
        return values[0] if self.fitted_.single else namespace(values[0]).stack(values, axis=-1)
