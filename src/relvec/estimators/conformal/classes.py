"""Sets of classes with a guaranteed coverage."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_consistent_length, column_or_1d

from relvec.basis import row_hash64
from relvec.design import is_dask
from relvec.estimators.base import by_blocks
from relvec.estimators.conformal.base import ConformalPredictions, check_coverage
from relvec.estimators.sources.base import check_labels
from relvec.inference.conformal import OWN_SHARE, add_most_probable, class_scores, credible_set, cross_set
from relvec.runtime.arrays import to_host


class ConformalSets(ConformalPredictions):
    """`calibrate` and `predict_set` for classes: adaptive prediction sets (Romano et al. 2020)."""

    classes_: np.ndarray

    def calibrate(
        self, X: Any, y: Any, cv: object = None, randomised: bool = False, groups: ArrayLike | None = None
    ) -> Self:
        """Make `predict_set` hold its coverage, by rows that took no part in the fit (conformal prediction).

        The promise is that of `RelevanceVectorRegressor.calibrate`, for the class of a new row: on average over
        new rows, not for every x or every class, and however wrong the probabilities are.

        Parameters
        ----------
        X : array-like (n, n_features)
            Rows that took no part in the fit; with `cv` the training rows.
        y : array-like (n,)
            Their classes. A class that the model does not know is never in a set.
        cv : int or splitter, optional
            Folds for cross-conformal prediction; see `RelevanceVectorRegressor.calibrate`.
        randomised : bool, default False
            The score of a class is the total probability of all more probable classes and a part of its own: half, or
            if randomised a uniform part, as Romano et al. (2020) have it. Without randomisation sets depend on nothing
            but the probabilities. With it, a class at the border of a set is in or out by a hash of the row, so that
            the same row always has the same set, and sets of rows that are alike differ; such sets are not exported
            to ONNX or C. Both have the guarantee, and the most probable class is in every set.
        groups : array-like (n,), optional
            A label for each row; see `RelevanceVectorRegressor.calibrate`.

        Returns
        -------
        self : the estimator, calibrated; `calibration_` has the scores.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import GPClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y = np.where(X[:, 0] + rng.normal(size=300) > 0.0, "high", "low")
        >>> model = GPClassifier().fit(X[:100], y[:100]).calibrate(X[100:200], y[100:200])
        >>> model.predict_set([[-3.0], [0.0], [3.0]], coverage=0.9).tolist()
        [[False, True], [True, True], [True, False]]
        """
        self._calibrate(X, y, cv, groups, bool(randomised))
        return self

    @by_blocks
    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return classes that hold the true one with the given probability.

        After `calibrate` the coverage is guaranteed, on average over new rows. Before, the set is the model's own
        opinion: the most probable classes that have the probability `coverage` together.

        Parameters
        ----------
        X : array-like (n, n_features)
        coverage : float, default 0.9

        Returns
        -------
        members : (n, K) of bool, which of `classes_` are in the set; no set is empty

        Examples
        --------
        >>> from relvec import RVC
        >>> model = RVC(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"])
        >>> model.predict_set([[0.0], [3.0]], coverage=0.5).tolist()
        [[True, False], [False, True]]
        """
        coverage = check_coverage(coverage)
        if is_dask(X):
            from relvec.design import evaluate_lazily

            names = getattr(self, "feature_names_in_", None)
            shape = (len(self.classes_),)
            return evaluate_lazily(self.predict_set, X, self.n_features_in_, names, shape, bool, coverage=coverage)
        proba = to_host(self.predict_proba(X))
        found = self.fitted_.calibration
        if found is None:
            return credible_set(proba, coverage)
        self._warn_of_few(coverage)
        if found.folds:
            models, scores = zip(*found.by_fold(), strict=True)
            new = [self._with_model(model)._all_scores(X, found.randomised) for model in models]
            members = cross_set([own[0] for own in scores], new, coverage)
        else:
            members = self._all_scores(X, found.randomised) <= found.thresholds(coverage)[0]
        return add_most_probable(members, proba)

    def _all_scores(self, X: ArrayLike, randomised: bool) -> np.ndarray:
        """Return the scores (n, K) of every class."""
        rows, _ = self._validate_rows(X, False)
        return class_scores(to_host(self.predict_proba(X)), uniform_parts(rows) if randomised else OWN_SHARE)

    def _scores(self, X: ArrayLike, y: Any, randomised: bool) -> np.ndarray:
        found, y = self._all_scores(X, randomised), column_or_1d(check_labels(to_host(y)))
        check_consistent_length(found, y)
        scores = np.full((1, len(y)), np.inf)  # of a class that the model does not know
        for k, label in enumerate(self.classes_):
            scores[0, y == label] = found[y == label, k]
        return scores


def uniform_parts(X: np.ndarray) -> np.ndarray:
    """Return a number (n,) between 0 and 1 for each row of X (n, d), as if drawn, and the same for the same row."""
    return np.asarray(row_hash64(X), dtype=np.float64) / 2.0**64
