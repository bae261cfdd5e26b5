"""Would more rows help? The error of models fitted to a part of the rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import sklearn.model_selection
from sklearn.pipeline import Pipeline

from relvec.app.tables.evaluation import Evaluation
from relvec.app.tables.importance import error_of, measure_of, negative_error

SHARES = (0.125, 0.25, 0.5)  # of the rows outside the last part; together less than one more fit
MIN_ROWS = 20  # a fit to fewer is not informative


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Errors of fits to more and more rows, at the same rows.

    Attributes
    ----------
    rows : (k,) rows that were fitted.
    error : (k,) RMSE, or log loss, at the rows of one fold.
    measure : "RMSE" or "log loss".
    """

    rows: np.ndarray
    error: np.ndarray
    measure: str


def learning_curve(pipeline: Pipeline, evaluation: Evaluation, seed: int = 0) -> LearningCurve | None:
    """Fit parts of the rows of a cross-validation, and compare with its own predictions; None where there was none.

    Examples
    --------
    >>> from relvec import RVR
    >>> from relvec.app.tables.evaluation import evaluate_table
    >>> from relvec.app.tables.pipelines import fit_table
    >>> x = np.linspace(0.0, 12.0, 200)
    >>> table = {"x": x, "y": np.sin(x) + 0.1 * np.random.default_rng(0).normal(size=200)}
    >>> pipeline = fit_table(table, "y", model=RVR(width=1.0)).pipeline
    >>> learning_curve(pipeline, evaluate_table(pipeline, table, folds=2)).rows
    array([ 25,  50, 100])
    """
    n, y = len(evaluation.observed), evaluation.observed
    if not evaluation.folds:
        return None
    order = np.random.default_rng(seed).permutation(n)
    held, rest = np.sort(order[: n // evaluation.folds]), order[n // evaluation.folds :]
    sizes = [size for share in SHARES if (size := round(share * len(rest))) >= MIN_ROWS]
    sizes = [size for size in sizes if len(np.unique(y[rest[:size]])) == len(np.unique(y)) or y.dtype.kind == "f"]
    if not sizes:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit on all rows has said it
        scores = sklearn.model_selection.learning_curve(
            pipeline, evaluation.table.frame, y, train_sizes=sizes, cv=[(rest, held)], scoring=negative_error
        )[2][:, 0]
    classes = pipeline[-1].classes_ if pipeline["columns"].task == "classification" else None
    predicted = evaluation.prediction.mean if classes is None else evaluation.prediction.proba
    assert predicted is not None
    whole = error_of(y[held], predicted[held], classes)
    return LearningCurve(np.array([*sizes, len(rest)]), np.array([*-scores, whole]), measure_of(pipeline))
