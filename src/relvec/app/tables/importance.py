"""Permutation importance and partial dependence of the columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.pipeline import Pipeline

from relvec.app.tables.columns import NO_VALUE, OTHER, Column, TableColumns
from relvec.app.tables.evaluation import Evaluation
from relvec.app.tables.pipelines import predict_table, transform_table
from relvec.app.tables.table import Table, TableLike, as_table

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Dependence", "Importance", "column_importance", "partial_dependence"]

ROWS = 1000  # most rows for the importance
CURVE_ROWS = 60  # rows drawn one by one
GRID = 25


@dataclass(frozen=True, eq=False)
class Importance:
    """Loss of accuracy by shuffling each column, the most important first.

    Attributes
    ----------
    names : d columns.
    loss : (d,) rise of the error.
    error : (d,) its standard deviation over the repetitions.
    measure : the error, "RMSE" or "log loss".
    seen : whether the model was fitted to the rows that were shuffled.

    Examples
    --------
    >>> found = Importance(["age"], np.array([0.4]), np.array([0.1]), "RMSE", seen=False)
    >>> found.meaning[-36:]
    'on rows that the model had not seen.'
    """

    names: list[str]
    loss: np.ndarray
    error: np.ndarray
    measure: str
    seen: bool

    @property
    def meaning(self) -> str:
        """What was measured, and on which rows."""
        where = (
            "rows that the model was fitted to; rows held out may rank them otherwise"
            if self.seen
            else ("rows that the model had not seen")
        )
        return f"How much worse the predictions become ({self.measure}) when a column's cells are shuffled, on {where}."


@dataclass(frozen=True, eq=False)
class Dependence:
    """Predictions as one column is set to a value in every row.

    Attributes
    ----------
    name : the column.
    grid : (g,) values, dates for dates; empty for categories.
    labels : the g categories, or None.
    rows : (n, g) predictions for single rows.
    mean : (g,) their mean over all rows.
    label : the class whose probability this is, or None.
    dates : whether the grid holds dates.

    Examples
    --------
    >>> from relvec import RVR
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "y", model=RVR(width=2.0)).pipeline
    >>> curve = partial_dependence(pipeline, table, "x")
    >>> curve.name, curve.grid.shape == curve.mean.shape
    ('x', True)
    """

    name: str
    grid: np.ndarray
    labels: list[str] | None
    rows: np.ndarray
    mean: np.ndarray
    label: str | None
    dates: bool = False


def column_importance(pipeline: Pipeline, evaluation: Evaluation, *, repeats: int = 5, seed: int = 0) -> Importance:
    """Shuffle each column in turn and see how much worse the fitted pipeline predicts.

    After a cross-validation the rows of each fold are shuffled for the model that was fitted without them.

    Parameters
    ----------
    pipeline : as `relvec.app.tables.pipelines.fit_table` makes it
    evaluation : of `relvec.app.tables.evaluation.evaluate_table`; its rows are used, a thousand of them at most
    repeats : int, default 5
    seed : int, default 0

    Returns
    -------
    importance : Importance

    Examples
    --------
    >>> import numpy as np
    >>> from relvec.app.tables.evaluation import evaluate_table
    >>> from relvec.app.tables.pipelines import fit_table
    >>> x = np.linspace(0.0, 6.0, 40)
    >>> table = {"phase": x, "other": np.cos(40 * x), "y": np.sin(x) + 0.1 * np.cos(9 * x)}
    >>> pipeline = fit_table(table, "y").pipeline
    >>> column_importance(pipeline, evaluate_table(pipeline, table)).names
    ['phase', 'other']
    """
    n = len(evaluation.observed)
    drawn = np.zeros(n, dtype=bool)
    drawn[np.arange(n) if n <= ROWS else np.random.default_rng(seed).choice(n, ROWS, replace=False)] = True
    names = [column.name for column in pipeline["columns"].inputs()]
    rises = np.zeros((len(names), repeats))
    for model, places in evaluation.models:
        rows = np.sort(places[drawn[places]])
        if len(rows) > 1:  # a single row is not shuffled
            frame, y = evaluation.table.frame[names].iloc[rows], evaluation.observed[rows]
            found = permutation_importance(
                model, frame, y, scoring=negative_error, n_repeats=repeats, random_state=seed
            )
            rises += found.importances * len(rows) / drawn.sum()
    order = np.argsort(-rises.mean(axis=1), kind="stable")
    names = [names[i] for i in order]
    return Importance(names, rises.mean(axis=1)[order], rises.std(axis=1)[order], measure_of(pipeline), evaluation.seen)


def measure_of(pipeline: Pipeline) -> str:
    """Return the name of the error of a pipeline's predictions."""
    return "log loss" if pipeline["columns"].task == "classification" else "RMSE"


def negative_error(pipeline: Pipeline, frame: DataFrame, y: np.ndarray) -> float:
    """Score a fitted pipeline as scikit-learn's functions take it: the larger, the better."""
    X, model = transform_table(pipeline, Table(frame))[0], pipeline[-1]
    if pipeline["columns"].task == "classification":
        return -error_of(y, model.predict_proba(X), model.classes_)
    return -error_of(y, model.predict(X))


def error_of(y: np.ndarray, predicted: np.ndarray, classes: np.ndarray | None = None) -> float:
    """Return the root mean square error of predictions (n,), or log loss of the probabilities (n, K) of classes."""
    if classes is None:
        return float(np.sqrt(np.mean((predicted - y) ** 2)))
    own = predicted[np.arange(len(y)), np.searchsorted(classes, y)]
    return float(-np.mean(np.log(np.maximum(own, 1e-15))))


def partial_dependence(pipeline: Pipeline, table: TableLike, name: str, *, seed: int = 0) -> Dependence:
    """Return the predictions as one column is set to each of a grid of values in every row.

    Parameters
    ----------
    pipeline : as `relvec.app.tables.pipelines.fit_table` makes it
    table : Table, data frame or mapping of columns
    name : a column that enters the model
    seed : int, default 0
        Of the choice of rows, where there are many.

    Returns
    -------
    dependence : Dependence
        For two classes, of the probability of the second, or of yes; for more, of the class most often predicted.

    Examples
    --------
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> partial_dependence(fit_table(table, "y").pipeline, table, "x").mean.shape
    (4,)
    """
    table, step = as_table(table), pipeline["columns"]
    column = next(column for column in step.inputs() if column.name == name)
    n = len(table)
    if n > CURVE_ROWS:
        table = table.take(np.sort(np.random.default_rng(seed).choice(n, CURVE_ROWS, replace=False)))
    grid, labels = _grid(table, column)
    k = _class_to_show(pipeline, table) if step.task == "classification" else 0
    values = []
    for value in grid if labels is None else labels:
        cells = np.full(len(table), value) if labels is None else [None if value == NO_VALUE else value] * len(table)
        found = predict_table(pipeline, table.with_column(name, cells))
        values.append(found.mean if found.proba is None else found.proba[:, k])
    rows = np.array(values).T
    label = str(pipeline[-1].classes_[k]) if step.task == "classification" else None
    return Dependence(name, grid, labels, rows, rows.mean(axis=0), label, column.kind == "date")


def _class_to_show(pipeline: Pipeline, table: Table) -> int:
    """Return the place of yes rather than no, of the second of two classes, or of the most probable of more."""
    target, proba = pipeline["columns"].target, predict_table(pipeline, table).proba
    assert proba is not None
    if target.words:
        return int(np.flatnonzero(pipeline[-1].classes_ == target.levels[1])[0])
    return 1 if proba.shape[1] == 2 else int(np.argmax(proba.mean(axis=0)))


def _grid(table: Table, column: Column) -> tuple[np.ndarray, list[str] | None]:
    if column.kind == "category":
        return np.empty(0), [level for level in column.levels if level != OTHER]
    if column.kind == "boolean":
        return np.empty(0), list(column.words) or ["false", "true"]
    values = TableColumns([column]).transform(table)[:, 0]  # numbers, or days since 1970
    values = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    # The extreme cells may be far out: from the 1st to the 99th percent of the rows.
    low, high = np.quantile(values, [0.01, 0.99])
    distinct = np.unique(values)
    grid = distinct if len(distinct) <= GRID // 3 else np.linspace(low, high, GRID)
    if column.kind == "date":
        return (grid * 86400e6).astype("datetime64[us]"), None
    return grid, None
