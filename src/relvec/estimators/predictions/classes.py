"""Predictions of a fitted classifier for new rows: scores, probabilities, classes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from relvec.design import is_dask
from relvec.estimators.base import by_blocks, check_predictions
from relvec.estimators.conformal import ConformalSets
from relvec.estimators.sources.base import check_labels
from relvec.runtime.arrays import Array, RowsLike, TargetsLike, device_of, namespace, to_host


class ClassPredictions(ClassifierMixin, ConformalSets):
    """Predictions from the latent functions of classes."""

    @by_blocks
    def decision_function(self, X: RowsLike) -> np.ndarray:
        """Confidence of each class.

        Parameters
        ----------
        X : array-like (n, n_features), or (n, n_training_samples) for ``kernel="precomputed"``

        Returns
        -------
        scores : (n,) or (n, K)
            For two classes the log-odds of the second, averaged as `predict_proba`; for "ovr" the log-odds of each
            class against the rest; for a softmax and a process of more classes the logarithms of the probabilities,
            less their mean.

        Examples
        --------
        >>> from relvec import RVC
        >>> model = RVC(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
        >>> model.decision_function([[0.0], [3.0]]).shape
        (2,)
        """
        if is_dask(X):
            return self._lazily("decision_function", X)
        return self._evaluate("decision", X)

    @by_blocks
    def predict_proba(self, X: RowsLike) -> np.ndarray:
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
        return self._evaluate("predict_proba", X)

    @by_blocks
    def predict_log_proba(self, X: RowsLike) -> np.ndarray:
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
        xp = namespace(proba)
        return xp.log(xp.clip(proba, float(np.finfo(float).tiny), None))

    @by_blocks
    def predict(self, X: RowsLike, return_set: float | None = None) -> Array:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like (n, n_features), or (n, n_training_samples) for ``kernel="precomputed"``
        return_set : float, optional
            Also the sets of classes of this coverage, as `predict_set` gives them: in a pipeline, whose `predict` hands
            it on, the way to sets.

        Returns
        -------
        labels : (n,)
        members : (n, K) of bool, if return_set

        Examples
        --------
        >>> from relvec import RVC
        >>> model = RVC(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"])
        >>> model.predict([[0.0], [3.0]]).tolist()
        ['a', 'b']
        """
        if return_set is not None:
            return self.predict(X), self.predict_set(X, return_set)
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

    def score(self, X: RowsLike, y: TargetsLike, sample_weight: Any = None) -> float:
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
        if sample_weight is not None:
            sample_weight = _check_sample_weight(to_host(sample_weight), found, ensure_non_negative=True)
            sample_weight = sample_weight / sample_weight.max()
        with np.errstate(invalid="ignore"):  # of NaN among labels, before it is refused
            return float(accuracy_score(check_labels(to_host(y)), found, sample_weight=sample_weight))

    def _lazily(self, method: str, X: RowsLike) -> Array:
        from relvec.design import predict_lazily

        check_is_fitted(self)
        lazily = partial(predict_lazily, getattr(self, method), X, self.n_features_in_,
                         getattr(self, "feature_names_in_", None))  # fmt: skip
        if method == "predict":
            return lazily(None, self.classes_.dtype)
        if method == "decision_function" and len(self.classes_) == 2:
            return lazily(None)
        return lazily([str(name) for name in self.classes_])

    def _evaluate(self, method: str, X: RowsLike) -> Array:
        """Values of a method of the predictor at rows, validated, in the library of X."""
        check_is_fitted(self)
        predictor: Any = self.fitted_.classifier
        rows, back = self._validate_rows(X, native=predictor.on_device)
        found = getattr(predictor, method)(rows)
        check_predictions(found)
        return back(found)
