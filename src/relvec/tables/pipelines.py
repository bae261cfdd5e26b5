"""From a table to a fitted pipeline, and from the pipeline to predictions for a table."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from relvec import RVC, RVR
from relvec.tables.columns import (
    BOOLEANS,
    Column,
    TableColumns,
    describe,
    labels_of,
    names_of,
    numbers_of,
    plural,
)
from relvec.tables.files import Table, TableError, as_table

__all__ = ["FittedTable", "Prediction", "fit_table", "predict_table", "summary", "target_of", "vectors_of"]

TASKS = ("auto", "regression", "classification", "count")
FEW_CLASSES = 10  # whole numbers 0, 1, ... are classes if there are at most so many,
COMMON = 0.05  # each in this share of the rows
LEVELS = np.arange(0.05, 1.0, 0.05)


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A pipeline fitted to a table.

    Attributes
    ----------
    pipeline : the steps "columns" (`relvec.tables.columns.TableColumns`), "encode" (a ColumnTransformer) and "model".
    table : the rows it was fitted on, those without a target left out.
    notes : what was done, in words.
    """

    pipeline: Pipeline
    table: Table
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for the rows of a table.

    Attributes
    ----------
    mean : (n,) expected target, for regression and counts; None for classes.
    std : (n,) standard deviation of a new target, or None.
    interval : (n, 2) central interval of a new target, or None.
    quantiles : (n, 19) quantiles 0.05, 0.10, ..., 0.95 of a new target, or None.
    proba : (n, K) class probabilities, or None.
    label : (n,) the most probable class, or None.
    """

    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    interval: np.ndarray | None = None
    quantiles: np.ndarray | None = None
    proba: np.ndarray | None = None
    label: np.ndarray | None = None


def fit_table(
    table: Any,
    target: str,
    *,
    task: str = "auto",
    features: Collection[str] | None = None,
    drop: Collection[str] = (),
    identifiers: Collection[str] = (),
    categorical: Collection[str] = (),
    model: Any = None,
) -> FittedTable:
    """Fit a model to a table with columns of any kind.

    Parameters
    ----------
    table : Table, data frame or mapping of columns
    target : str
        The column to predict. Rows where it is missing are left out.
    task : {"auto", "regression", "classification", "count"}, default "auto"
        "auto" takes text, booleans, two values, and a few whole numbers 0, 1, ... that are all common for classes, and
        other numbers for regression.
    features : names of the inputs, optional
        All other columns by default.
    drop, identifiers, categorical : names
        Columns left out, columns carried through to the predictions, and numbers that are names of categories.
    model : estimator, or function of the task that returns one, optional
        `RVR()`, `RVC()` or `RVR(likelihood="poisson")` by default, as the task is.

    Returns
    -------
    fitted : FittedTable

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(0.0, 6.0, 40)
    >>> table = {"hour": x, "site": ["north", "south"] * 20, "load": np.sin(x) + 0.1 * np.cos(9 * x)}
    >>> fitted = fit_table(table, "load")
    >>> predict_table(fitted.pipeline, {"hour": [1.0, 2.0], "site": ["north", "north"]}).mean.shape
    (2,)
    """
    table = as_table(table)
    if task not in TASKS:
        raise TableError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    notes = list(table.notes)
    table = _known_targets(table, target, notes)
    if features is not None:
        for name in features:
            table[name]
        drop = [*drop, *(n for n in table.names if n not in {*features, *identifiers, target})]
    task, column = _target(table, target, task, notes)
    rest = table.without(target)
    columns = describe(rest, identifiers=identifiers, categorical=categorical, drop=[n for n in drop if n != target])
    _check_inputs(columns, table, features)
    chosen = _estimator(task) if model is None else model(task) if callable(model) else clone(model)
    pipeline = _pipeline(TableColumns(columns, column, task), chosen)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline.fit(rest, target_of(pipeline, table))
    notes += [f"warning: {message}" for message in dict.fromkeys(str(w.message) for w in caught)]
    pipeline["columns"].record_ = _record(pipeline, table, notes, time.perf_counter() - start)
    return FittedTable(pipeline, table, tuple(notes))


def predict_table(pipeline: Pipeline, table: Any, coverage: float = 0.9, quantiles: bool = False) -> Prediction:
    """Predict the target for every row of a table.

    Parameters
    ----------
    pipeline : as `fit_table` makes it
    table : Table, data frame or mapping of columns; the target may be absent
    coverage : float, default 0.9
        Probability that the interval holds a new target.
    quantiles : bool, default False
        Whether to find the quantiles too.

    Returns
    -------
    prediction : Prediction

    Examples
    --------
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> predict_table(fitted.pipeline, {"x": [1.5]}).interval.shape
    (1, 2)
    """
    X, model = pipeline[:-1].transform(as_table(table)), pipeline[-1]
    if pipeline["columns"].task == "classification":
        proba = model.predict_proba(X)
        return Prediction(proba=proba, label=model.classes_[np.argmax(proba, axis=1)])
    mean, std = model.predict(X, return_std=True)
    levels = model.predict_quantiles(X, LEVELS) if quantiles else None
    return Prediction(mean=mean, std=std, interval=model.predict_interval(X, coverage=coverage), quantiles=levels)


def target_of(pipeline: Pipeline, table: Any) -> np.ndarray:
    """The observed targets (n,) of a table, as the pipeline's model takes them; NaN or None where missing.

    Examples
    --------
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": ["no", "Yes", "no", "yes"]}, "y")
    >>> target_of(fitted.pipeline, {"x": [1.0, 2.0], "y": ["YES", "no"]}).tolist()
    ['yes', 'no']
    """
    table, step = as_table(table), pipeline["columns"]
    column = step.target
    if step.task != "classification":
        values = numbers_of(table, column.name)
        if step.task == "count" and np.any((values < 0) | (values % 1 > 0)):
            row = int(np.flatnonzero((values < 0) | (values % 1 > 0))[0])
            raise TableError(f"{table.place(row, column.name)}: expected a count (0, 1, 2, ...), got {values[row]:g}")
        return values
    labels = [_canonical(label, column) for label in labels_of(table[column.name])]
    for row, label in enumerate(labels):
        if label is not None and label not in column.levels:
            known = ", ".join(map(repr, column.levels[:10]))
            raise TableError(f"{table.place(row, column.name)}: {label!r} is no class of the model, which has {known}")
    return np.array(labels) if None not in labels else np.array([*labels, None], dtype=object)[:-1]


# The target ------------------------------------------------------------------------------------------------------


def _known_targets(table: Table, target: str, notes: list[str]) -> Table:
    known = np.array([label is not None for label in labels_of(table[target])])
    if known.sum() < 2:
        raise TableError(f"{table.source}, column {target!r}: {plural(int(known.sum()), 'row')} with a target; at "
                         "least 2 are needed")  # fmt: skip
    if not known.all():
        notes.append(f"{plural(int((~known).sum()), 'row')} left out: {target!r} is missing there")
    return table.take(np.flatnonzero(known))


def _target(table: Table, name: str, task: str, notes: list[str]) -> tuple[str, Column]:
    """The task and what the target is."""
    labels = [label for label in labels_of(table[name]) if label is not None]
    counts: dict[str, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    if task == "auto":
        task, why = _guessed(table, name, counts)
        notes.append(f"task: {task}, because {why}; --task decides otherwise")
    if task != "classification":
        return task, Column(name, "number")
    words = _yes_and_no(counts)
    if words:
        return task, Column(name, "boolean", words=words[0], levels=words[1])
    if len(counts) < 2:
        raise TableError(f"{table.source}, column {name!r}: every row is {labels[0]!r}; a classifier needs two classes")
    if len(counts) > max(50, len(labels) // 4):
        raise TableError(
            f"{table.source}, column {name!r}: {len(counts)} different values in {len(labels)} rows are no classes; "
            "use --task regression for numbers"
        )
    return task, Column(name, "category", levels=tuple(sorted(counts)))


def _guessed(table: Table, name: str, counts: dict[str, int]) -> tuple[str, str]:
    column = table[name]
    try:
        values = numbers_of(table, name)
    except TableError:
        numeric = sum(1 for label in counts if label.replace(".", "", 1).lstrip("+-").isdigit())
        if numeric > 0.9 * len(counts) and len(counts) > FEW_CLASSES:
            raise  # numbers with an error among them
        return "classification", f"{name!r} holds text"
    if column.dtype == bool or len(counts) == 2:
        return "classification", f"{name!r} has two values"
    distinct, rows = np.unique(values, return_counts=True)
    whole = np.array_equal(distinct, distinct[0] + np.arange(len(distinct))) and distinct[0] in (0, 1)
    if 2 < len(distinct) <= FEW_CLASSES and whole and rows.min() >= COMMON * rows.sum():
        return (
            "classification",
            f"{name!r} holds the {len(distinct)} numbers {distinct[0]:g} to {distinct[-1]:g}, all common",
        )
    return "regression", f"{name!r} holds {len(distinct):,} different numbers"


def _yes_and_no(counts: dict[str, int]) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The words for no and yes if the classes are such, with each class's most frequent spelling."""
    lowered = {label.lower() for label in counts}
    for words in BOOLEANS:
        if lowered == set(words):
            spelling = {
                word: max((n, label) for label, n in counts.items() if label.lower() == word)[1] for word in words
            }
            return words, (spelling[words[0]], spelling[words[1]])
    return None


def _canonical(label: str | None, column: Column) -> str | None:
    """Yes, YES and yes are one class."""
    if label is None or not column.words or label.lower() not in column.words:
        return label
    return column.levels[column.words.index(label.lower())]


# The pipeline ----------------------------------------------------------------------------------------------------


def _check_inputs(columns: list[Column], table: Table, features: Collection[str] | None) -> None:
    useless = [c for c in columns if features is not None and c.name in features and not c.is_input]
    if useless:
        raise TableError(f"{table.source}, column {useless[0].name!r}: asked for as an input, but {useless[0].note}")
    if not any(column.is_input for column in columns):
        raise TableError(f"{table.source}: no column is left to predict from: "
                         + "; ".join(f"{c.name!r} {c.note}" for c in columns[:10]))  # fmt: skip


def _estimator(task: str) -> Any:
    return RVC() if task == "classification" else RVR(likelihood="poisson") if task == "count" else RVR()


def _pipeline(first: TableColumns, model: Any) -> Pipeline:
    places = feature_places(first)
    # A part of the rows, in cross-validation, may have no value at all in a column.
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    sizes = [len(column.levels) for column in first.inputs() if column.kind == "category"]
    levels = OneHotEncoder(categories=[np.arange(size, dtype=float) for size in sizes], handle_unknown="ignore",
                           sparse_output=False)  # fmt: skip
    steps = [("numbers", numbers), ("flags", "passthrough"), ("categories", levels)]
    encode = ColumnTransformer([(name, step, places[name]) for name, step in steps if places[name]])
    return Pipeline([("columns", first), ("encode", encode), ("model", model)])


def feature_places(first: TableColumns) -> dict[str, list[int]]:
    """Which numbers made by the first step are plain numbers, flags of missing cells, and codes of categories.

    Examples
    --------
    >>> feature_places(TableColumns([Column("x", "number", parts=("missing",)), Column("c", "category")]))
    {'numbers': [0], 'flags': [1], 'categories': [2]}
    """
    places: dict[str, list[int]] = {"numbers": [], "flags": [], "categories": []}
    i = 0
    for column in first.inputs():
        for name in column.features():
            flag = "missing" in column.parts and name == f"{column.name} (missing)"
            places["categories" if column.kind == "category" else "flags" if flag else "numbers"].append(i)
            i += 1
    return places


def encoded_columns(pipeline: Pipeline) -> list[str]:
    """The table's column behind each input of the model (d,).

    Examples
    --------
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "c": list("abab"), "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> encoded_columns(fitted.pipeline)
    ['x', 'c', 'c']
    """
    first = pipeline["columns"]
    owners = [column for column in first.inputs() for _ in column.features()]
    places = feature_places(first)
    codes = [owners[i] for i in places["categories"]]
    plain = [owners[i].name for i in [*places["numbers"], *places["flags"]]]
    return plain + [column.name for column in codes for _ in column.levels]


def summary(pipeline: Pipeline) -> list[tuple[str, str]]:
    """What was found, as names and words.

    Examples
    --------
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> summary(fitted.pipeline)[0]
    ('vectors kept', '... of 4 rows')
    """
    step, model = pipeline["columns"], pipeline[-1]
    facts = [("vectors kept", f"{len(model.relevance_):,} of {plural(step.record_['rows'], 'row')}")]
    if step.task == "regression":
        facts.append(("noise", f"{np.sqrt(model.noise_variance_):.4g} (standard deviation, in the target's units)"))
    facts.append(("log evidence", f"{np.sum(model.log_marginal_likelihood_):.2f}"))
    status = model.status_ if isinstance(model.status_, str) else ", ".join(model.status_)
    return [*facts, ("status", status)]


def vectors_of(pipeline: Pipeline) -> tuple[list[str], list[list[Any]]]:
    """The rows of the training table that were kept, with their weights: header and rows, the largest first.

    Examples
    --------
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> vectors_of(fitted.pipeline)[0]
    ['row', 'weight', 'y', 'x']
    """
    model, kept = pipeline[-1], pipeline["columns"].record_["relevance"]
    weights = np.atleast_2d(model.weights_)[:, : len(model.relevance_)]
    names = ["weight"] if len(weights) == 1 else [f"weight {label}" for label in model.classes_]
    order = np.argsort(-np.abs(weights).max(axis=0), kind="stable")
    target = pipeline["columns"].target.name
    columns = [target, *(name for name in kept["columns"] if name != target)]
    cells = list(zip(*[kept["columns"][name] for name in columns], strict=True))
    rows = [[kept["rows"][i], *(float(w) for w in weights[:, i]), *cells[i]] for i in order]
    return ["row", *names, *columns], rows


def _record(pipeline: Pipeline, table: Table, notes: list[str], seconds: float) -> dict[str, Any]:
    """What a reader of the saved model may want to know of its fit, in plain types."""
    rows = pipeline[-1].relevance_
    shown = table.take(rows)
    return {
        "source": table.source,
        "rows": len(table),
        "seconds": float(seconds),
        "notes": list(notes),
        "identifiers": names_of(pipeline["columns"].columns, "identifier"),
        "relevance": {
            "rows": [int(row) for row in shown.numbers],
            "columns": {name: labels_of(column) for name, column in shown.columns.items()},
        },
    }
