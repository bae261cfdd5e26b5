"""The column to predict: which task it asks for, and its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from sklearn.pipeline import Pipeline

from relvec.app.tables.cells import (
    describe_signs,
    describe_strays,
    find_number_style,
    labels_of,
    list_labels,
    mark_missing,
    parse_numbers,
    refuse_strays,
)
from relvec.app.tables.columns import MAX_ODD_SHARE, MISSING_CURE, Column, numbers_of
from relvec.app.tables.kinds import BOOLEANS, MAX_STRAY_SHARE
from relvec.app.tables.table import Table, TableError, TableLike, as_table, text_type
from relvec.app.tables.text import differ_in_case, list_names, plural

__all__ = ["TASKS", "prepare_target", "target_of"]

TASKS = ("auto", "regression", "classification", "count")
MAX_NUMBERED_CLASSES = 10  # whole numbers 0, 1, ... are classes if there are at most so many,
MIN_CLASS_SHARE = 0.05  # each in this share of the rows
FAR_SPREADS = 100  # a target is far off beyond so many median distances from the median,
FAR_NEXT = 10  # and so many times as far as the next
LEAST_ROWS_OF_DOUBT, FEW_LEVELS = 50, 10  # of numbers that are few-valued: in so many rows no more values than that
MAX_CLASSES, MIN_ROWS_PER_CLASS = 50, 4  # more classes than both allow are names or numbers


def prepare_target(
    table: Table, name: str, task: str, *, missing: Collection[str] = (), strict: bool = False
) -> tuple[Table, str, Column, list[str]]:
    """Decide the task and leave out rows without a target.

    Parameters
    ----------
    table : Table
    name : the column to predict
    task : {"auto", "regression", "classification", "count"}
    missing : values that stand for a missing cell
    strict : whether a few targets that are not numbers, among many that are, are refused rather than left out

    Returns
    -------
    table : the rows with a target
    task : "regression", "classification" or "count"
    column : what the target is
    notes : what was done, in words

    Examples
    --------
    >>> from relvec.app.tables.table import as_table
    >>> table, task, column, notes = prepare_target(as_table({"y": ["yes", "no", "", "yes", "no"]}), "y", "auto")
    >>> len(table), task, column.levels
    (4, 'classification', ('no', 'yes'))
    >>> notes[0]
    "1 row left out: 'y' is missing there"
    """
    if task not in TASKS:
        raise TableError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    notes: list[str] = []
    words = tuple(word.strip().lower() for word in missing)
    table = _drop_missing(table.with_column(name, mark_missing(table[name], words)), name, notes)
    if task == "auto":
        task, reason = _guess_task(table, name)
        notes.append(f"task: {task}, because {reason}; choose another with --task")
    if task == "classification":
        notes += _doubtful_classes(table, name)
        return table, task, replace(_class_column(table, name), missing=words), notes
    table, column = _number_column(table, name, strict, notes)
    if task == "regression":
        notes += _doubtful_numbers(parse_numbers(table[name], column.style)[0], name)
    return table, task, replace(column, missing=words), notes


def _doubtful_numbers(values: np.ndarray, name: str) -> list[str]:
    """Return what is odd about the targets (n,) of a regression: many zeros, or few values.

    >>> _doubtful_numbers(np.append(np.zeros(50), np.arange(30.0) + 0.5), "rain")[0]
    "'rain' is 0 in 50 of 80 rows: one model for whether it is 0, and one of the others, may say more"
    >>> _doubtful_numbers(np.arange(60.0) % 4, "stars")[0]
    "'stars' has only 4 values, for which '--task count' or '--task classification' may say more"
    """
    n, levels = len(values), np.unique(values)
    zeros = int(np.count_nonzero(values == 0.0))
    if n < LEAST_ROWS_OF_DOUBT or len(levels) == 1:
        return []
    if len(levels) <= FEW_LEVELS:
        whole = levels[0] >= 0.0 and np.all(levels % 1.0 == 0.0)
        other = "'--task count' or '--task classification'" if whole else "'--task classification'"
        return [f"{name!r} has only {len(levels)} values, for which {other} may say more"]
    if 2 * zeros > n:
        return [
            f"{name!r} is 0 in {zeros} of {n} rows: one model for whether it is 0, and one of the others, may say more"
        ]
    return []


def target_of(pipeline: Pipeline, table: TableLike) -> np.ndarray:
    """Return the observed targets (n,) of a table, as the pipeline's model takes them; NaN or None where missing.

    >>> from relvec.app.tables.pipelines import fit_table
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": ["no", "Yes", "no", "yes"]}, "y")
    >>> target_of(fitted.pipeline, {"x": [1.0, 2.0], "y": ["YES", "no"]}).tolist()
    ['yes', 'no']
    """
    table, step = as_table(table), pipeline["columns"]
    column = step.target
    table = table.with_column(column.name, mark_missing(table[column.name], column.missing))
    if step.task != "classification":
        values, strays = parse_numbers(table[column.name], column.style)
        if strays.sum() > MAX_ODD_SHARE * table[column.name].notna().sum():
            refuse_strays(table, column.name, strays, "numbers", MISSING_CURE)
        if step.task == "count" and np.any((values < 0) | (values % 1 > 0)):
            row = int(np.flatnonzero((values < 0) | (values % 1 > 0))[0])
            raise TableError(f"{table.locate(row, column.name)}: expected a count (0, 1, 2, ...), got {values[row]:g}")
        return values
    labels = [_spell(label, column) for label in list_labels(table[column.name])]
    expected = f"a class of the model, which has {list_names(column.levels, 10)}"
    refuse_strays(table, column.name, ~has_known_class(column, table), expected)
    return np.array(labels) if None not in labels else np.array([*labels, None], dtype=object)[:-1]


def has_known_class(column: Column, table: Table) -> np.ndarray:
    """Mask (n,) the rows whose class is missing or one of the fit's; of a target without classes all rows."""
    if not column.levels:
        return np.ones(len(table), dtype=bool)
    known = {None, *column.levels}
    labels = list_labels(mark_missing(table[column.name], column.missing))
    return np.array([_spell(label, column) in known for label in labels], dtype=bool)


def ends_of(table: Table, lower: str, upper: str, missing: Collection[str] = ()) -> np.ndarray:
    """Return lower and upper ends (n, 2) of targets that are known by intervals, infinite where a cell is empty.

    >>> from relvec.app.tables import as_table
    >>> ends_of(as_table({"from": ["1", "2", ""], "to": ["1", "", "3"]}), "from", "to").tolist()
    [[1.0, 1.0], [2.0, inf], [-inf, 3.0]]
    """
    words, columns = tuple(word.strip().lower() for word in missing), []
    for name, none in ((lower, -np.inf), (upper, np.inf)):
        cells = mark_missing(table[name], words)
        own = numbers_of(table.with_column(name, cells), name, find_number_style(cells))
        columns.append(np.where(np.isnan(own), none, own))
    ends = np.column_stack(columns)
    wrong = np.flatnonzero(ends[:, 0] > ends[:, 1])
    if len(wrong):
        low, high = ends[wrong[0]]
        raise TableError(f"{table.locate(int(wrong[0]), upper)}: the upper end {high:g} is below the lower end {low:g}")
    return ends


def has_target(table: Table, column: Column, upper: str | None = None) -> np.ndarray:
    """Mask (n,) the rows whose target can be read; with a column of upper ends, not those of an interval."""
    cells = mark_missing(table[column.name], column.missing)
    known = labels_of(cells).notna().to_numpy()
    if column.kind == "number":
        values, strays = parse_numbers(cells, column.style)
        known = known if strays.sum() > MAX_ODD_SHARE * known.sum() else ~np.isnan(values)
    if upper is None or upper not in table.names:
        return known
    low, high = ends_of(table, column.name, upper, column.missing).T
    return known & (low == high)


def _drop_missing(table: Table, name: str, notes: list[str]) -> Table:
    known = labels_of(table[name]).notna().to_numpy()
    if known.sum() < 2:
        raise TableError(f"{table.source}, column {name!r}: {plural(int(known.sum()), 'row')} with a target; at "
                         "least 2 are needed")  # fmt: skip
    if known.all():
        return table
    words = sorted({str(cell).strip() for cell in table[name][~known].dropna().unique()} - {""})
    listed = f" ({list_names(words)})" if words else ""
    notes.append(f"{plural(int((~known).sum()), 'row')} left out: {name!r} is missing there{listed}")
    return table.take(known)


def _guess_task(table: Table, name: str) -> tuple[str, str]:
    """Guess the task that the values of a target ask for, and say why."""
    cells = table[name]
    labels = labels_of(cells).nunique()
    values, strays = parse_numbers(cells, find_number_style(cells))
    if strays.any():
        if strays.sum() < MAX_STRAY_SHARE * len(table) and labels > MAX_NUMBERED_CLASSES:
            return "regression", f"nearly all cells of {name!r} are numbers"
        return "classification", f"{name!r} holds text"
    if cells.dtype == bool or labels == 2:
        return "classification", f"{name!r} has two values"
    distinct, rows = np.unique(values, return_counts=True)
    consecutive = np.array_equal(distinct, distinct[0] + np.arange(len(distinct))) and distinct[0] in (0, 1)
    if 2 < len(distinct) <= MAX_NUMBERED_CLASSES and consecutive and rows.min() >= MIN_CLASS_SHARE * rows.sum():
        span = f"{distinct[0]:g} to {distinct[-1]:g}"
        return "classification", f"{name!r} holds the {len(distinct)} numbers {span}, all common"
    return "regression", f"{name!r} holds {plural(len(distinct), 'different number')}"


def _number_column(table: Table, name: str, strict: bool, notes: list[str]) -> tuple[Table, Column]:
    """Read the target as numbers; rows whose target is something else are left out where they are few."""
    style = find_number_style(table[name])
    values, strays = parse_numbers(table[name], style)
    if strays.any() and not strict and strays.sum() < MAX_STRAY_SHARE * len(table):
        listed = describe_strays(table, name, strays)
        notes.append(f"{plural(int(strays.sum()), 'row')} left out: {name!r} is not a number there: {listed}")
        table, values, strays = table.take(~strays), values[~strays], strays[~strays]
    refuse_strays(table, name, strays, "finite numbers" if table[name].dtype != text_type() else "numbers",
                  MISSING_CURE)  # fmt: skip
    if signs := describe_signs(table[name], style):
        notes.append(f"{name!r}: {signs}")
    notes += _suspect_total(values, table, name)
    return table, Column(name, "number", unit=style.unit, decimal_comma=style.decimal_comma, share=style.share)


def _suspect_total(values: np.ndarray, table: Table, name: str) -> list[str]:
    """Point out a target that lies far beyond all others, as a row of totals at the end of a table has it."""
    away = np.abs(values - np.median(values))
    second, far = np.sort(away)[-2:]
    if far <= FAR_SPREADS * np.median(away) or far <= FAR_NEXT * second:
        return []
    where = table.locate(row := int(away.argmax()), name)
    return [f"{where}: {values[row]:,.6g} lies far beyond all other targets; leave the row out if it is a total or a "
            "typing error"]  # fmt: skip


def _class_column(table: Table, name: str) -> Column:
    counts = Counter[str](labels_of(table[name]).value_counts().to_dict())
    for words in BOOLEANS:
        if {label.lower() for label in counts} == set(words):
            spelling = {
                label.lower(): label for label, _ in sorted(counts.items(), key=lambda item: (item[1], item[0]))
            }
            return Column(name, "boolean", words=words, levels=(spelling[words[0]], spelling[words[1]]))
    if len(counts) < 2:
        raise TableError(f"{table.source}, column {name!r}: every row is {next(iter(counts))!r}; a classifier needs "
                         "two classes")  # fmt: skip
    if len(counts) > max(MAX_CLASSES, counts.total() // MIN_ROWS_PER_CLASS):
        raise TableError(f"{table.source}, column {name!r}: {len(counts)} different values in {counts.total()} rows "
                         "are too many for classes; use --task regression for numbers")  # fmt: skip
    return Column(name, "category", levels=tuple(sorted(counts)))


def _doubtful_classes(table: Table, name: str) -> list[str]:
    """Point out classes that differ in case alone, and those of a single row."""
    counts = labels_of(table[name]).value_counts().to_dict()
    notes = []
    if (same := differ_in_case(counts)) and {label.lower() for label in counts} not in map(set, BOOLEANS):
        notes.append(f"{list_names(same)} are different classes here: correct {name!r} if only the case differs")
    if single := sorted(label for label, rows in counts.items() if rows == 1):
        notes.append(f"classes of {name!r} with one row, too few to learn from: {list_names(single)}")
    return notes


def _spell(label: str | None, column: Column) -> str | None:
    """Write the class as the fit does: yes, Yes and YES are one class."""
    if label is None or not column.words or label.lower() not in column.words:
        return label
    return column.levels[column.words.index(label.lower())]
