"""From a table to a fitted pipeline, and from the pipeline to predictions for a table."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from relvec.app.tables.cells import list_labels
from relvec.app.tables.columns import NO_VALUE, Column, TableColumns, names_of, read_column
from relvec.app.tables.doubts import find_doubts
from relvec.app.tables.families import default_family, make_model
from relvec.app.tables.kinds import describe
from relvec.app.tables.table import Table, TableError, TableLike, as_table
from relvec.app.tables.target import ends_of, prepare_target, target_of
from relvec.app.tables.text import plural
from relvec.runtime.machine import release_memory

__all__ = ["FittedTable", "Plan", "Prediction", "fit_plan", "fit_table", "plan_table", "predict_table"]

MAX_DIGESTS = 200  # rows of the fit that are recognised later
QUANTILES = np.arange(0.05, 1.0, 0.05)


@dataclass(frozen=True, eq=False)
class FittedTable:
    """A pipeline fitted to a table.

    Attributes
    ----------
    pipeline : the steps "columns" (`relvec.app.tables.columns.TableColumns`), "encode" (a ColumnTransformer), "model".
    table : the rows it was fitted on, those without a target left out.
    notes : what was done, in words.

    Examples
    --------
    >>> from relvec import RVR
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> fitted = fit_table(table, "y", model=RVR(width=2.0))
    >>> [name for name, _ in fitted.pipeline.steps], len(fitted.table)
    (['columns', 'encode', 'model'], 4)
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
    members : (n, K) classes in the set of a calibrated model, or None.
    notes : cells that could not be read, and categories that the fit has not seen, in words.

    Examples
    --------
    >>> from relvec import RVR
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "y", model=RVR(width=2.0)).pipeline
    >>> found = predict_table(pipeline, {"x": [1.5, 2.5]}, quantiles=True)
    >>> found.mean.shape, found.interval.shape, found.quantiles.shape
    ((2,), (2, 2), (2, 19))
    """

    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    interval: np.ndarray | None = None
    quantiles: np.ndarray | None = None
    proba: np.ndarray | None = None
    label: np.ndarray | None = None
    members: np.ndarray | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """What a fit to a table is going to do.

    Attributes
    ----------
    table : the rows with a target.
    task : "regression", "classification" or "count".
    target : what the target is.
    columns : what the other columns are.
    notes : what was done, in words.
    ends : (n, 2) ends of the targets of these rows, where a column of upper ends was named.
    upper : that column.

    Examples
    --------
    >>> plan = plan_table({"x": [0.0, 1.0, 2.0], "y": [0.1, 0.9, 2.1]}, "y")
    >>> plan.task, plan.target.name
    ('regression', 'y')
    """

    table: Table
    task: str
    target: Column
    columns: list[Column]
    notes: tuple[str, ...]
    ends: np.ndarray | None = None
    upper: str | None = None


def plan_table(
    table: TableLike, target: str, *, task: str = "auto", features: Collection[str] | None = None,
    drop: Collection[str] = (), identifiers: Collection[str] = (), categorical: Collection[str] = (),
    use: Collection[str] = (), missing: Collection[str] = (), drop_rows: bool = False, strict: bool = False,
    upper: str | None = None,
) -> Plan:  # fmt: skip
    """Decide what every column of a table is and which rows are fitted; `fit_table` has the parameters.

    >>> plan = plan_table({"x": [0.0, 1.0, 2.0], "unit": ["m"] * 3, "y": [0.1, 0.9, 2.1]}, "y")
    >>> [(column.name, column.kind) for column in plan.columns]
    [('x', 'number'), ('unit', 'constant')]
    """
    table = as_table(table)
    if features is not None:
        for name in features:
            table[name]  # raises where there is none
        drop = [*drop, *(n for n in table.names if n not in {*features, *identifiers, target})]
        use = [*use, *features]
    notes, whole, ends = list(table.notes), table, None
    if upper is not None:
        task, drop = "regression", [*drop, upper]
        ends = ends_of(table, target, upper, missing)
        table = table.with_column(target, np.where(np.isinf(ends[:, 0]), ends[:, 1], ends[:, 0]))
    table, task, column, target_notes = prepare_target(table, target, task, missing=missing, strict=strict)
    notes += target_notes

    def describe_inputs() -> list[Column]:
        return describe(table.without(target), identifiers=identifiers, categorical=categorical, use=use,
                        drop=[n for n in drop if n != target], missing=missing, strict=strict)  # fmt: skip

    columns = describe_inputs()
    if drop_rows:
        table = _drop_incomplete(table, columns, notes)
        columns = describe_inputs()  # no cell is missing any more
    _check_inputs(columns, table, features)
    y = target_of(_make_pipeline(TableColumns(columns, column, task), None), table)
    columns = find_doubts(table, columns, y if task == "classification" else y.astype(float), use)
    ends = None if ends is None else ends[np.searchsorted(whole.numbers, table.numbers)]
    return Plan(table, task, column, columns, tuple(notes), ends, upper)


def fit_table(table: TableLike, target: str, *, model: Any = None, **options: Any) -> FittedTable:
    """Fit a model to a table with columns of any kind.

    Parameters
    ----------
    table : Table, data frame or mapping of columns
    target : str
        The column to predict. Rows where it is missing are left out.
    model : estimator, or function of the task that returns one, optional
        By default `GPRegressor()`, `GPClassifier()` or `RVR(likelihood="poisson")`, depending on the task.
    task : {"auto", "regression", "classification", "count"}, default "auto"
        "auto" chooses classes for text, booleans, two values, and a few whole numbers 0, 1, ... that are all common,
        and regression for other numbers.
    features : names of the inputs, optional
        All other columns by default.
    drop, identifiers, categorical : names
        Columns to leave out, columns to copy to the predictions, and columns of numbers that name categories.
    use : names
        Columns that are inputs even if they look like identifiers, copies of others or copies of the target, which are
        left out otherwise.
    missing : values
        Further values that stand for a missing cell, in every column.
    drop_rows : bool, default False
        Whether rows with a missing input are left out, rather than filled with the median.
    strict : bool, default False
        Whether a few cells that are not numbers, in a column of numbers, are refused rather than read as missing.
    upper : str, optional
        A column of upper ends, for a regression whose targets are known by intervals only: the target column then holds
        lower ends. Equal ends are a target that was observed; an empty cell is no end. The default model is
        ``GPRegressor(likelihood="censored")``.

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
    return fit_plan(plan_table(table, target, **options), model)


def fit_plan(plan: Plan, model: Any = None) -> FittedTable:
    """Fit a model as a plan says; `model` as `fit_table` takes it.

    Examples
    --------
    >>> from relvec import RVR
    >>> plan = plan_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> type(fit_plan(plan, RVR(width=2.0)).pipeline[-1]).__name__
    'RelevanceVectorRegressor'
    """
    release_memory()  # that of the plan: whole columns were parsed
    task, notes = plan.task, list(plan.notes)
    if model is None:
        chosen = make_model(default_family(task), task, plan.upper is not None)
    else:
        chosen = model(task) if callable(model) else clone(model)
    pipeline = _make_pipeline(TableColumns(plan.columns, plan.target, task), chosen)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = target_of(pipeline, plan.table) if plan.ends is None else plan.ends
        pipeline.fit(plan.table.without(plan.target.name), y)
    notes += [f"warning: {message}" for message in dict.fromkeys(str(w.message) for w in caught)]
    record = _record(pipeline, plan.table, notes, time.perf_counter() - start)
    pipeline["columns"].record_ = record | {"upper": plan.upper}
    return FittedTable(pipeline, plan.table, tuple(notes))


def inputs_of(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs (n, d) of a model and the targets (n,) of the rows that a plan fits.

    >>> X, y = inputs_of(plan_table({"x": [0.0, 1.0, 2.0, 3.0], "c": list("abab"), "y": [0.1, 0.9, 2.1, 2.9]}, "y"))
    >>> X.shape, y.tolist()
    ((4, 3), [0.1, 0.9, 2.1, 2.9])
    """
    pipeline = _make_pipeline(TableColumns(plan.columns, plan.target, plan.task), None)
    y = target_of(pipeline, plan.table)
    return pipeline[:-1].fit_transform(plan.table.without(plan.target.name), y), y


def predict_table(pipeline: Pipeline, table: TableLike, coverage: float = 0.9, quantiles: bool = False) -> Prediction:
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
    (X, notes), model = transform_table(pipeline, as_table(table)), pipeline[-1]
    if pipeline["columns"].task == "classification":
        proba = model.predict_proba(X)
        members = model.predict_set(X, coverage) if model.fitted_.calibration is not None else None
        return Prediction(proba=proba, label=model.classes_[np.argmax(proba, axis=1)], members=members,
                          notes=notes)  # fmt: skip
    mean, std = model.predict(X, return_std=True)
    levels = model.predict_quantiles(X, QUANTILES) if quantiles else None
    if (
        levels is not None and model.fitted_.calibration is not None
    ):  # the ends of the calibrated intervals 0.9, 0.8, ..., 0.1
        for i, q in enumerate(QUANTILES[: len(QUANTILES) // 2]):
            levels[:, [i, -1 - i]] = model.predict_interval(X, coverage=1.0 - 2.0 * q)
    interval = model.predict_interval(X, coverage=coverage)
    return Prediction(mean=mean, std=std, interval=interval, quantiles=levels, notes=notes)


def transform_table(pipeline: Pipeline, table: Table) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the inputs (n, d) of the model for the rows of a table, and notes on what could not be read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        X = pipeline[:-1].transform(table)
    return X, (*(str(w.message) for w in caught), *pipeline["columns"].unseen(table))


# The pipeline ----------------------------------------------------------------------------------------------------


def _check_inputs(columns: list[Column], table: Table, features: Collection[str] | None) -> None:
    useless = [c for c in columns if features is not None and c.name in features and not c.is_input]
    if useless:
        raise TableError(f"{table.source}, column {useless[0].name!r}: asked for as an input, but {useless[0].note}")
    if not any(column.is_input for column in columns):
        raise TableError(f"{table.source}: no column is left to predict from: "
                         + "; ".join(f"{c.name!r} {c.note}" for c in columns[:10]))  # fmt: skip


def _drop_incomplete(table: Table, columns: list[Column], notes: list[str]) -> Table:
    """Return the rows in which no input is missing."""
    complete = np.ones(len(table), dtype=bool)
    for column in columns:
        if column.is_input:
            first = read_column(table, column)[0]
            empty = column.levels.index(NO_VALUE) if NO_VALUE in column.levels else None
            complete &= ~np.isnan(first) & (first != empty)
    if complete.sum() < 2:
        raise TableError(f"{table.source}: {plural(int(complete.sum()), 'row')} without a missing cell; leave out "
                         "columns with --drop, or let missing cells be filled")  # fmt: skip
    if not complete.all():
        notes.append(f"{plural(int((~complete).sum()), 'row')} left out: a cell is missing there")
    return table.take(complete)


def _make_pipeline(first: TableColumns, model: BaseEstimator | None) -> Pipeline:
    places = feature_places(first)
    # A part of the rows, in cross-validation, may have no value at all in a column.
    numbers = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True, copy=False), StandardScaler(copy=False)
    )
    sizes = [len(column.levels) for column in first.inputs() if column.kind == "category"]
    levels = OneHotEncoder(categories=[np.arange(size, dtype=float) for size in sizes], handle_unknown="ignore",
                           sparse_output=False)  # fmt: skip
    steps = [("numbers", numbers), ("flags", "passthrough"), ("categories", levels)]
    encode = ColumnTransformer([(name, step, places[name]) for name, step in steps if places[name]])
    return Pipeline([("columns", first), ("encode", encode), ("model", model)])


def feature_places(first: TableColumns) -> dict[str, list[int]]:
    """Return the indices of numbers, flags of missing cells and codes of categories that the first step makes.

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
    """Return the table's column behind each input of the model (d,).

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


def row_digests(table: Table, names: Sequence[str]) -> list[str]:
    """Return a digest of the cells of each row in columns of these names, which tells rows apart and no cell.

    >>> row_digests(as_table({"x": [1.0, 2.0, 1.0], "c": list("aba")}), ["x", "c"])
    ['...', '...', '...']
    """
    rows = zip(*[list_labels(table[name]) for name in names], strict=True)
    return [blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() for row in rows]


def _record(pipeline: Pipeline, table: Table, notes: list[str], seconds: float) -> dict[str, object]:
    """Return the facts about a fit for readers of the saved model, in plain types."""
    fitted = pipeline[-1].fitted_
    rows, noise = fitted.kept_rows, fitted.noise
    outliers = () if noise is None or noise.outliers is None else noise.outliers
    shown = table.take(rows)
    some = table.take(np.unique(np.linspace(0, len(table) - 1, MAX_DIGESTS).round().astype(int)))
    differ = any(len(set(list_labels(some[name]))) > len(some) / 2 for name in some.names)  # categories alone do not
    return {
        "source": table.source,
        "rows": len(table),
        "seconds": float(seconds),
        "notes": list(notes),
        "identifiers": names_of(pipeline["columns"].columns, "identifier"),
        "outliers": [int(row) for row in table.numbers[list(outliers)]],
        "relevance": {
            "rows": [int(row) for row in shown.numbers],
            "columns": {name: list_labels(shown[name]) for name in shown.names},
        },
        "digests": {"columns": list(table.names), "rows": row_digests(some, table.names) if differ else []},
    }
