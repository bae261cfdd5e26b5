"""Calibration of any fitted model: rows to score, folds to fit again, and the record that is kept with the model."""

from __future__ import annotations

import copy
import numbers
import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import _num_samples, check_is_fitted

from relvec.design import is_dask
from relvec.estimators.assemble import caller_level
from relvec.estimators.base import BaseModel, by_blocks, check_predictions
from relvec.estimators.records import Fitted
from relvec.estimators.sources.base import check_groups, check_labels, check_numbers
from relvec.inference.censored import as_ends
from relvec.inference.conformal import (
    OWN_SHARE,
    ConformalScores,
    add_most_probable,
    class_scores,
    credible_set,
    cross_interval,
    cross_set,
    standardised_residuals,
)
from relvec.inference.predictive import Predictor
from relvec.runtime.arrays import RowsLike, TargetsLike, hash_rows, to_host


class ConformalPredictions(BaseModel):
    """Scores of rows that took no part in the fit, kept with the fitted model."""

    @property
    def calibration_(self) -> ConformalScores:
        """Scores of the calibration rows (`relvec.inference.conformal.ConformalScores`), after `calibrate`."""
        found = self.fitted_.calibration if self.__sklearn_is_fitted__() else None
        if found is None:
            raise AttributeError("calibration_ exists after calibrate: call fit, then calibrate")
        return found

    @abstractmethod
    def _scores(self, X: ArrayLike, y: TargetsLike, randomised: bool) -> np.ndarray:
        """Return the scores (q, n) of targets y at X under this model."""

    def _calibrate(
        self, X: ArrayLike, y: ArrayLike, cv: object, groups: ArrayLike | None, randomised: bool = False
    ) -> None:
        """Keep the scores of rows with the model, a new record in place of the old."""
        check_is_fitted(self)
        labels = check_groups(groups, _num_samples(y))
        if cv is None:
            kept = ConformalScores.of_rows(self._scores(X, y, randomised), randomised, labels)
        else:
            kept = self._cross_calibrate(X, y, cv, labels, randomised)
        self.fitted_ = replace(self.fitted_, calibration=kept)

    def _cross_calibrate(
        self, X: ArrayLike, y: ArrayLike, cv: object, groups: np.ndarray | None, randomised: bool
    ) -> ConformalScores:
        if isinstance(cv, numbers.Integral):
            cv = _make_folds(int(cv), is_classifier(self), groups is not None)
        if isinstance(cv, str) or not hasattr(cv, "split"):
            raise ValueError(f"cv must be a number of folds, 2 or more, or a splitter such as KFold, got {cv!r}")
        n = _num_samples(y)
        scores: np.ndarray | None = None
        fold, folds = np.full(n, -1), []
        given = (y,) if groups is None else (y, groups)
        for i, (rest, own) in enumerate(cv.split(np.zeros(n), *given)):
            kept_together = None if groups is None else groups[rest]
            part = clone(self).fit(_safe_indexing(X, rest), _safe_indexing(y, rest), groups=kept_together)
            found = self._with_model(part.fitted_, part)._scores(
                _safe_indexing(X, own), _safe_indexing(y, own), randomised
            )
            scores = np.full((len(found), n), np.inf) if scores is None else scores
            scores[:, own], fold[own] = found, i
            folds.append(part.fitted_)
        if scores is None or (fold < 0).any():
            raise ValueError("cv must put every row into one fold: give a number of folds, or a splitter such as KFold")
        return ConformalScores(scores, randomised, None, fold, tuple(folds))

    def _with_model(self, fitted: Fitted, same: BaseModel | None = None) -> Self:
        """Return a copy of the estimator with another fitted model, for predictions."""
        if same is not None and getattr(same, "classes_", np.zeros(0)).tolist() != (
            getattr(self, "classes_", np.zeros(0)).tolist()
        ):
            raise ValueError("the training rows of a fold lack a class: use fewer folds, or calibrate on separate rows")
        other = copy.copy(self)
        other.fitted_ = fitted
        return other

    def _warn_of_few(self, coverage: float) -> None:
        """Tell that too few rows were calibrated on for finite intervals of this coverage."""
        found = self.calibration_
        if coverage > found.max_coverage + 1e-9:
            needed = int(np.ceil(coverage / (1.0 - coverage) - 1e-9))
            what = "sets hold all classes" if is_classifier(self) else "intervals are infinite"
            warnings.warn(
                f"coverage {coverage:g} needs {needed} {found.unit} or more, and there are {found.n_groups}: {what}. "
                f"Calibrate on more, or ask for at most {found.max_coverage:.3g}",
                UserWarning,
                stacklevel=caller_level(),
            )


def _make_folds(n_folds: int, classes: bool, grouped: bool) -> object:
    """Return the splitter of so many folds that keeps classes even and rows of a group together."""
    from sklearn import model_selection  # imports much, and few models need it

    splitter = getattr(model_selection, f"{'Stratified' if classes else ''}{'Group' if grouped else ''}KFold")
    return splitter(n_folds, shuffle=True, random_state=0)


def check_coverage(coverage: object) -> float:
    """Return the coverage as a float, refused unless it is a probability."""
    if not (isinstance(coverage, numbers.Real) and 0 < float(coverage) and 0.5 + float(coverage) / 2 < 1):
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}")
    return float(coverage)


class ConformalIntervals(ConformalPredictions):
    """`calibrate` for regression: scores are residuals in units of their predicted standard deviation.

    A model on a logarithmic scale of the target is scored, and has symmetric intervals, on that scale.
    """

    def _takes_ends(self, y: ArrayLike) -> bool:
        """Tell whether y holds the ends of censored targets, for a model of such."""
        noise = self.fitted_.noise
        ends = np.ndim(y) == 2 or getattr(getattr(y, "dtype", None), "names", None) is not None
        return ends and noise is not None and noise.kind == "censored"

    def calibrate(self, X: RowsLike, y: TargetsLike, cv: object = None, groups: ArrayLike | None = None) -> Self:
        """Make `predict_interval` hold its coverage, by rows that took no part in the fit (conformal prediction).

        If calibration rows and new rows are exchangeable (drawn from one distribution, in any order), intervals of
        coverage c hold a new target with a probability of at least c, and at most c + 1 / (n + 1) where scores do not
        tie: whatever the data and however wrong the model. The probability is over the draw of the calibration rows
        and the new row together; it is not promised for every x, nor for rows of another distribution, such as the
        future of a series. A further `fit` forgets the calibration; model files, ONNX and C keep it.

        Parameters
        ----------
        X : array-like (n, n_features)
            Rows that took no part in the fit; with `cv` the training rows.
        y : array-like (n,) or (n, n_outputs)
            Their targets. Every output has a coverage of its own.
        cv : int or splitter, optional
            Number of folds for cross-conformal prediction, which needs no rows besides the training rows: the model is
            fitted again without each fold, every row is scored by the model that did not see it, and the models of all
            folds are kept and take part in every interval. The coverage is about c in practice; what is guaranteed is
            1 - 2 (1 - c) - sqrt(2 / n). Such intervals are not exported to ONNX or C.
        groups : array-like (n,), optional
            A label for each row, such as the patient it was measured on. The promise is then for a new row of a new
            group, where groups are exchangeable: the rows of a group count as one together, so that coverage c needs
            c / (1 - c) groups. With `cv` rows of a group are in one fold, and nothing is guaranteed.

        Returns
        -------
        self : the estimator, calibrated; `calibration_` has the scores.

        Examples
        --------
        >>> import numpy as np
        >>> from relvec import RVR
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3.0, 3.0, (300, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2, 300)
        >>> model = RVR().fit(X[:100], y[:100]).calibrate(X[100:200], y[100:200])
        >>> low, high = model.predict_interval(X[200:], coverage=0.8).T
        >>> bool(0.7 < np.mean((low <= y[200:]) & (y[200:] <= high)) < 0.9)
        True
        """
        self._calibrate(X, y, cv, groups)
        return self

    def _scores(self, X: ArrayLike, y: TargetsLike, randomised: bool) -> np.ndarray:
        rows, _ = self._validate_rows(X, False)
        if self._takes_ends(y):
            y, high = as_ends(y).T
            if (y < high).any():
                raise ValueError("calibrate needs targets that were observed: leave rows with censored targets out")
        y = check_array(check_numbers(to_host(y)), ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(rows, y)
        targets = y.reshape(len(y), -1).T
        if len(targets) != len(self.fitted_.predictors):
            raise ValueError(f"y has {len(targets)} columns, and the model {len(self.fitted_.predictors)} outputs")
        return np.array([_score(m, rows, t) for m, t in zip(self.fitted_.predictors, targets, strict=True)])

    def _conformal_interval(self, X: np.ndarray, coverage: float) -> np.ndarray:
        """Return the intervals (n, q, 2) of a calibrated model at validated rows X."""
        found = self.calibration_
        self._warn_of_few(coverage)
        if not found.folds:
            pairs = zip(self.fitted_.predictors, found.thresholds(coverage), strict=True)
            return np.stack([np.stack(_interval(m, X, np.full(1, t)), axis=-1)[0] for m, t in pairs], axis=1)
        ends = []
        for output in range(len(self.fitted_.predictors)):
            parts = [_interval(model.predictors[output], X, scores[output]) for model, scores in found.by_fold()]
            lower, upper = (np.concatenate(part) for part in zip(*parts, strict=True))
            ends.append(np.stack(cross_interval(lower, upper, coverage), axis=-1))
        return np.stack(ends, axis=1)


def _score(predictor: Predictor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the standardised residuals (n,); infinite where a target is beyond the end of the predictor's scale."""
    u, (centre, deviation) = predictor.to_scale(y), predictor.location(X, True)
    known = np.isfinite(u)
    return np.where(known, standardised_residuals(np.where(known, u, centre), centre, deviation), np.inf)


def _interval(predictor: Predictor, X: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends (m, n) of the targets at X whose scores are up to thresholds (m,)."""
    centre, deviation = predictor.location(X, True)
    reach = np.where(np.isinf(thresholds), 0.0, thresholds)[:, None] * deviation
    with np.errstate(over="ignore"):
        lower, upper = predictor.from_scale(centre - reach), predictor.from_scale(centre + reach)
    check_predictions(lower.T, upper.T)
    if predictor.is_count:
        lower, upper = np.maximum(np.ceil(lower), 0.0), np.floor(upper)
    open_ = np.isinf(thresholds)[:, None]
    return np.where(open_, -np.inf, lower), np.where(open_, np.inf, upper)


class ConformalSets(ConformalPredictions):
    """`calibrate` and `predict_set` for classes: adaptive prediction sets (Romano et al. 2020)."""

    classes_: np.ndarray

    def calibrate(
        self, X: RowsLike, y: TargetsLike, cv: object = None, randomised: bool = False, groups: ArrayLike | None = None
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
    def predict_set(self, X: RowsLike, coverage: float = 0.9) -> np.ndarray:
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

    def _scores(self, X: ArrayLike, y: TargetsLike, randomised: bool) -> np.ndarray:
        found, y = self._all_scores(X, randomised), column_or_1d(check_labels(to_host(y)))
        check_consistent_length(found, y)
        scores = np.full((1, len(y)), np.inf)  # of a class that the model does not know
        for k, label in enumerate(self.classes_):
            scores[0, y == label] = found[y == label, k]
        return scores


def uniform_parts(X: np.ndarray) -> np.ndarray:
    """Return a number (n,) between 0 and 1 for each row of X (n, d), as if drawn, and the same for the same row."""
    return np.asarray(hash_rows(X), dtype=np.float64) / 2.0**64
