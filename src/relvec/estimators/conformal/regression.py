"""Intervals for new targets with a guaranteed coverage."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length

from relvec.estimators.base import check_predictions
from relvec.estimators.conformal.base import ConformalPredictions
from relvec.estimators.sources.base import check_numbers
from relvec.inference.censored import as_ends
from relvec.inference.conformal import cross_interval, standardised_residuals
from relvec.inference.predictive import Predictor
from relvec.runtime.arrays import to_host


class ConformalIntervals(ConformalPredictions):
    """`calibrate` for regression: scores are residuals in units of their predicted standard deviation.

    A process on a logarithmic scale of the target is scored, and has symmetric intervals, on that scale.
    """

    def _takes_ends(self, y: ArrayLike) -> bool:
        """Tell whether y holds the ends of censored targets, for a model of such."""
        noise = self.fitted_.noise
        ends = np.ndim(y) == 2 or getattr(getattr(y, "dtype", None), "names", None) is not None
        return ends and noise is not None and noise.kind == "censored"

    def calibrate(self, X: Any, y: Any, cv: object = None, groups: ArrayLike | None = None) -> Self:
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

    def _scores(self, X: ArrayLike, y: Any, randomised: bool) -> np.ndarray:
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
