"""Calibration of any fitted model: rows to score, folds to fit again, and the record that is kept with the model."""

from __future__ import annotations

import copy
import numbers
import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted

from relvec.estimators.assemble import caller_level
from relvec.estimators.base import BaseModel
from relvec.estimators.records import Fitted
from relvec.estimators.sources.base import check_groups
from relvec.inference.conformal import ConformalScores


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
    def _scores(self, X: ArrayLike, y: Any, randomised: bool) -> np.ndarray:
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
