"""Columns that should not be inputs as they are: copies of others, and near-copies of the target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.stats import rankdata

from relvec.app.tables.columns import Column, read_column
from relvec.app.tables.table import Table

__all__ = ["find_doubts"]

MAX_ROWS = 20_000  # that are compared
MIN_ROWS = 12  # fewer agree by chance
MAX_LEAK, MAX_SUSPECT = 0.003, 0.03  # share of the target's deviation that a leak, or what may be one, leaves
LEAST_OF_TRENDS = 0.01  # share of a target that rises in the order of the rows: named, not left out
MAX_CHANCE = -20.0  # log probability that classes agree with a category as they do if they did not belong together
SAME = 1e-9  # standard deviations by which copies may differ
MAX_LEVELS = 20  # of a leak that is a category


def find_doubts(table: Table, columns: list[Column], y: np.ndarray, use: Collection[str] = ()) -> list[Column]:
    """Leave out inputs that are near-copies of the target or copies of earlier inputs, except those named by `use`.

    Parameters
    ----------
    table : Table
    columns : as `relvec.app.tables.kinds.describe` makes them
    y : (n,) targets, numbers or labels of classes
    use : names of columns that are inputs all the same

    Returns
    -------
    columns : list of Column, in the same order

    Examples
    --------
    >>> from relvec.app.tables.kinds import describe
    >>> from relvec.app.tables.table import as_table
    >>> x = np.arange(40.0) ** 2 % 17
    >>> table = as_table({"x": x, "feet": 3.28 * x})
    >>> [column.kind for column in find_doubts(table, describe(table), np.sin(x))]
    ['number', 'copy']
    """
    rows = np.linspace(0, len(table) - 1, min(len(table), MAX_ROWS)).astype(int)
    if len(rows) < MIN_ROWS:
        return columns
    some, y = table.take(rows), y[rows]
    values = {column.name: read_column(some, column)[0] for column in columns if column.is_input}
    leaks = {c.name: _measure_leak(c, values[c.name], y) for c in columns if c.is_input and c.name not in use}
    strong = {name for name, share in leaks.items() if share <= MAX_LEAK}
    kept = strong == values.keys()  # with nothing else to predict from
    found = [_doubt_leak(column, leaks.get(column.name, 1.0), kept) for column in columns]
    return _leave_out_copies(found, values, use)


def _doubt_leak(column: Column, share: float, kept: bool) -> Column:
    """Leave out a column that leaves next to nothing of the target, unless all are kept; point out a suspect."""
    if share > MAX_SUSPECT:
        return column
    known = "it determines the target" if share <= MAX_LEAK else f"it explains all but {share:.1%} of the target"
    if share <= MAX_LEAK and not kept:
        note = f"left out: {known}, as a copy or what is known only afterwards does; --use {column.name!r} keeps it"
        return _noted(column, note, "leak")
    return _noted(column, f"{known}: if it is known only afterwards, give --drop {column.name!r}")


def _noted(column: Column, note: str, kind: str | None = None) -> Column:
    """Return a column with a further note, and of another kind."""
    return replace(column, kind=kind or column.kind, note="; ".join(filter(None, [column.note, note])))


def _measure_leak(column: Column, values: np.ndarray, y: np.ndarray) -> float:
    """Measure the share of the target's standard deviation that the column leaves; 1 where it is no near-copy."""
    known = np.isfinite(values) if column.kind != "category" else values >= 0
    levels = np.unique(values[known], return_inverse=True)
    if known.sum() < max(MIN_ROWS, len(y) / 2) or len(levels[0]) < 2:
        return 1.0
    x, target = values[known], y[known]
    if y.dtype.kind != "f":
        labels, classes = np.unique(target.astype(str), return_inverse=True)
        few = len(levels[0]) <= (MAX_LEVELS if column.kind == "category" else len(labels))
        return 0.0 if few and _determines(levels[1], classes) else 1.0
    if np.ptp(target) == 0.0:
        return 1.0
    if column.kind == "category":
        means = np.bincount(levels[1], target) / np.bincount(levels[1])
        few = len(levels[0]) <= min(MAX_LEVELS, len(x) / 3)
        return float(np.std(target - means[levels[1]]) / np.std(target)) if few else 1.0
    return _measure_trend(column, x, target) if len(levels[0]) >= MIN_ROWS else 1.0


def _measure_trend(column: Column, x: np.ndarray, target: np.ndarray) -> float:
    """Measure what a straight line, or the order of the numbers x, leaves of the target's standard deviation."""
    straight, ordered = _residual_share(x, target), _residual_share(rankdata(x), rankdata(target))
    if column.kind == "date" or abs(np.sign(np.diff(x)).sum()) == len(x) - 1:  # time: what grows with it is no leak
        ordered = max(ordered, LEAST_OF_TRENDS)
    return min(straight if column.kind != "date" else ordered, ordered)


def _residual_share(x: np.ndarray, y: np.ndarray) -> float:
    """Measure what a straight line in x leaves of the standard deviation of y."""
    x, y = ((v - v.mean()) / (np.abs(v - v.mean()).max() or 1.0) for v in (x, y))
    r = float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))
    return float(np.sqrt(max(0.0, 1.0 - r * r)))


def _determines(levels: np.ndarray, classes: np.ndarray) -> bool:
    """Tell whether every level has one class only, and not by chance."""
    counts = np.zeros((levels.max() + 1, classes.max() + 1))
    np.add.at(counts, (levels, classes), 1.0)
    if np.any((counts > 0).sum(axis=1) > 1):
        return False
    own, rows = counts.argmax(axis=1), counts.sum(axis=1)
    share = counts.sum(axis=0) / counts.sum()
    return float(np.sum((rows - 1.0) * np.log(share[own]))) < MAX_CHANCE


def _leave_out_copies(columns: list[Column], values: dict[str, np.ndarray], use: Collection[str]) -> list[Column]:
    """Leave out inputs that equal an earlier one up to scale, offset or the names of categories.

    Copies have equal products with a random vector: they are next to each other in the order of these.
    """
    probe = np.random.default_rng(0).standard_normal(len(next(iter(values.values()), ())))
    kinds: dict[bool, list[tuple[float, int, np.ndarray]]] = {False: [], True: []}
    for i, column in enumerate(columns):
        if column.is_input:
            scaled = _standardise(column, values[column.name])
            kinds[column.kind == "category"].append((abs(float(scaled @ probe)), i, scaled))
    found = list(columns)
    for items in kinds.values():
        for group in _group_copies(sorted(items, key=lambda item: item[:2]), columns, values):
            kept = min(group, key=lambda i: (columns[i].name not in use, i))
            for i in group:
                if i != kept and (name := columns[i].name) not in use:
                    note = (
                        f"left out: the same as {columns[kept].name!r} but for units or names; --use {name!r} keeps it"
                    )
                    found[i] = _noted(columns[i], note, "copy")
    return found


def _group_copies(
    items: list[tuple[float, int, np.ndarray]], columns: list[Column], values: dict[str, np.ndarray]
) -> list[list[int]]:
    """Return the places of columns in groups of copies, by their scaled values in order."""
    groups: list[list[int]] = [[items[0][1]]] if items else []
    for (_, i, one), (_, j, other) in pairwise(items):
        gaps = np.array_equal(np.isnan(values[columns[i].name]), np.isnan(values[columns[j].name]))
        if gaps and min(np.abs(one - other).max(), np.abs(one + other).max()) <= SAME:
            groups[-1].append(j)
        else:
            groups.append([j])
    return groups


def _standardise(column: Column, values: np.ndarray) -> np.ndarray:
    """Bring a column to a form that its copies share but for the sign, 0 where a cell is missing."""
    if column.kind == "category":
        _, first, place = np.unique(values, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first)).astype(float)[place]  # by the first row of each level
    known = np.isfinite(values)
    centred = np.where(known, values - values[known].mean(), 0.0) if known.any() else np.zeros(len(values))
    scale = float(np.abs(centred).max()) or 1.0
    return centred / scale / (np.sqrt(np.mean((centred / scale) ** 2)) or 1.0)
