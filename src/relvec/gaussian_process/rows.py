"""The rows a process learns from: merged where they repeat, standardised, in an order of their own.

Rows with equal inputs are one row with their mean target, their total weight and the scatter of the targets about
that mean; the evidence of the merged rows is that of the rows themselves (`evidence`). Inputs that are equal up to
rounding are equal (`join_near_rows`). Weights are frequencies: a row of weight two and the row twice give the same
record. Rows that share their target more often than neighbours do are copies of a record and no second measurements,
which would put the noise at zero: the weights then sum to the number of different records (`without_copies`). The
order is that of a hash of the inputs (`order_keys`), so that neither the order in which rows come nor their units nor
copies of them change a subset or a hold-out. Rows of one group (`Rows.group`) are left out together, all or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.sparse import coo_array, csr_array, vstack
from scipy.sparse.csgraph import connected_components

from relvec.gaussian_process.kernel import squared_distances
from relvec.runtime.arrays import Array, hash_rows, like, starts_of_runs, take
from relvec.runtime.record import Record

_LEAST_WEIGHT = 1e-100  # of the largest: less is as good as none, and noise divided by it overflows
_NEIGHBOUR_ROWS = 500  # that distances and targets of neighbours are looked at
_ROUNDING_SHARE = 0.03  # of the distance of neighbours: rows closer than that are one row
_NEAR = 0.1  # of the distance to the nearest quarter of the rows: closer rows are left out together
MOST_HELD_ROWS, LEAST_HELD_ROWS = 1000, 30  # rows left out: more of them say the same, fewer say little
NEAR_COPY = 0.01  # standard deviations: inputs that agree when rounded to multiples of it are in one fold
_BLOCK = 128  # rows whose distances to all are computed at once
COMPARED_ROWS = 2000  # up to so many, rows are compared in pairs to find those near to each other
_FEW_LEVELS = 0.2  # from which share of equal neighbours on targets have few levels
_TARGET_ROUNDING = 1e-9  # standard deviations
_GRIDS = 4  # that are shifted against each other, so that no pair of rounded rows is apart in all
_PAIRS = 250_000  # of columns that are compared at once
_NEAR_ONE = 300  # powers of two from one, up to which sums of products of four numbers have a double
_ORDER_STEP = 1e-3  # standard deviations: the order of rows does not see smaller differences


@dataclass(frozen=True, eq=False)
class Rows:
    """Merged rows: inputs X (n, d), mean targets y (n,), total weights w (n,), scatter (n,) = sum w (y - mean)^2.

    Rows with equal numbers in `group` (n,) are held out together; each is on its own where there are none.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    scatter: np.ndarray
    group: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def total(self) -> float:
        """The number of rows before merging: the sum of the weights."""
        return float(self.weight.sum())

    @property
    def mean(self) -> float:
        """The weighted mean of the targets."""
        return float(self.weight @ self.y / self.total)

    @property
    def variance(self) -> float:
        """The variance of single targets about their mean."""
        return float((self.weight @ (self.y - self.mean) ** 2 + self.scatter.sum()) / self.total)

    def take(self, index: np.ndarray | slice) -> Rows:
        """Return some of the rows."""
        group = None if self.group is None else self.group[index]
        return Rows(self.X[index], self.y[index], self.weight[index], self.scatter[index], group)

    @property
    def labels(self) -> np.ndarray:
        """Numbers (n,) of the groups of the rows, in the order in which these come; one a row where there are none."""
        return np.arange(len(self)) if self.group is None else number_labels(self.group)

    def n_last(self, least: int) -> int:
        """Return how many of the last rows are whole groups: ``least`` or more, or as many as there are."""
        if self.group is None:
            return least
        last = np.zeros(int(self.group.max(initial=0)) + 1, dtype=np.intp)
        last[self.group] = np.arange(len(self))  # of each group, the last row
        cuts = np.flatnonzero(np.maximum.accumulate(last[self.group]) == np.arange(len(self))) + 1
        before = cuts[cuts <= len(self) - least]
        kept = int(before[-1] if len(before) else cuts[0])
        return len(self) - kept if kept < len(self) else least


@dataclass(frozen=True, eq=False)
class Units(Record):
    """From the user's units to the process's: x -> (x[columns] - centre) / scale, y -> (y - y_mean) / y_scale."""

    SHAPES: ClassVar[dict[str, str]] = {"columns": "d", "centre": "d", "scale": "d"}

    columns: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    y_mean: float = 0.0
    y_scale: float = 1.0

    def inputs(self, X: Array) -> Array:
        """Standardised inputs (n, d) of X in the user's units, on its device."""
        if isinstance(X, np.ndarray):
            return (X[:, self.columns] - self.centre) / self.scale
        return (take(X, self.columns, axis=1) - like(X, self.centre)[None, :]) / like(X, self.scale)[None, :]

    def stretch_target(self, exponent: int) -> Units:
        """Return the units of targets 2^exponent times as large."""
        return replace(
            self, y_mean=float(np.ldexp(self.y_mean, exponent)), y_scale=float(np.ldexp(self.y_scale, exponent))
        )


def merge_rows(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, groups: np.ndarray | None = None
) -> Rows:
    """Return the rows, those with equal inputs made one, in the order of a hash of the inputs.

    Rows of no weight are left out. Groups (n,) that share a row become one.

    >>> rows = merge_rows(np.array([[1.0], [2.0], [1.0]]), np.array([0.0, 5.0, 2.0]))
    >>> sorted(zip(rows.y.tolist(), rows.weight.tolist(), rows.scatter.tolist()))
    [(1.0, 2.0, 2.0), (5.0, 1.0, 0.0)]
    """
    rows = find_equal_rows(X, y, weights, groups)
    y, w, first = np.asarray(y, dtype=float)[rows.order], rows.weight, rows.first
    total = np.add.reduceat(w, first)
    mean = np.add.reduceat(w * y, first) / total
    scatter = np.add.reduceat(w * (y - mean[rows.row_of]) ** 2, first)
    return Rows(rows.X, mean, total, scatter, rows.group)


@dataclass(frozen=True, eq=False)
class EqualRows:
    """Distinct inputs X (m, d), and the groups (m,) of them: those that share a row are one; None where none are given.

    The n rows of positive weight are in the order of a hash of their inputs, equal ones next to each other and in the
    order of something else: `order` (n,) are their numbers, `weight` (n,) their weights, `row_of` (n,) the distinct row
    that each is, and `first` (m,) the place where each distinct one begins.
    """

    X: np.ndarray
    group: np.ndarray | None
    order: np.ndarray
    weight: np.ndarray
    row_of: np.ndarray
    first: np.ndarray


def find_equal_rows(
    X: np.ndarray, then: np.ndarray, weights: np.ndarray | None = None, groups: np.ndarray | None = None
) -> EqualRows:
    """Return the distinct rows of X (N, d), and which each row is; equal ones come in the order of `then` (N,)."""
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    kept = np.flatnonzero(w > 0)
    X, w = np.asarray(X, dtype=float)[kept] + 0.0, w[kept]  # + 0.0: no -0.0
    w = np.maximum(w, _LEAST_WEIGHT * w.max(initial=0.0))
    sort = np.lexsort((np.asarray(then)[kept], *order_keys(X, w)))
    X, order = X[sort], kept[sort]
    new = starts_of_runs(X)
    first, row_of = np.flatnonzero(new), np.cumsum(new) - 1
    label = None if groups is None else join_labels(row_of, np.asarray(groups)[order])[first]
    return EqualRows(X[first], label, order, w[sort], row_of, first)


def number_labels(labels: np.ndarray) -> np.ndarray:
    """Return numbers (n,) from 0 on of labels (n,), in the order in which they first come.

    >>> number_labels(np.array([7, 3, 7, 5])).tolist()
    [0, 1, 0, 2]
    """
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[place]


def join_labels(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return numbers (n,) that are equal where a chain of equal labels, of the first or the second kind, joins rows.

    >>> join_labels(np.array([1, 1, 2, 3, 4]), np.array([5, 6, 6, 7, 7])).tolist()
    [0, 0, 0, 1, 1]
    """
    first, second = number_labels(first), number_labels(second)
    size = int(first.max(initial=-1)) + 1
    shape = (size + int(second.max(initial=-1)) + 1,) * 2
    graph = coo_array((np.ones(len(first)), (first, size + second)), shape=shape)
    return connected_components(graph, directed=False)[1][first]


def put_groups_last(rows: Rows, share: float) -> np.ndarray:
    """Return an order (n,) of rows in which a share of them or more, in whole groups, come last, group by group.

    A group of more than half the rows is not among the last where there are others. Without groups the rows are in
    this order already.
    """
    n = len(rows)
    if rows.group is None:
        return np.arange(n)
    label = rows.labels
    size = np.bincount(label)
    groups = np.argsort(size > n // 2, kind="stable")  # the first of them are put last
    last = groups[:-1][: int(np.searchsorted(np.cumsum(size[groups]), share * n)) + 1]
    place = np.full(len(size), -1)
    place[last] = np.arange(len(last))
    return np.argsort(place[label], kind="stable")


def near_groups(X: np.ndarray) -> np.ndarray:
    """Return numbers (n,) of groups of standardised rows X (n, d) near to each other and far from others.

    Rows that nearly repeat others are left out together with them: a row whose copies were fitted proves nothing.

    >>> X = np.repeat(np.arange(20.0), 2)[:, None] + np.tile([0.0, 1e-3], 20)[:, None]
    >>> len(np.unique(near_groups(X))), len(np.unique(near_groups(np.arange(20.0)[:, None])))
    (20, 20)
    """
    n = len(X)
    blocks = [slice(i, i + _BLOCK) for i in range(0, n, _BLOCK)]  # distances of all pairs would take memory
    quarter = [np.partition(squared_distances(X[block], X), n // 4, axis=1)[:, n // 4] for block in blocks]
    reach = _NEAR * np.median(np.sqrt(np.concatenate(quarter)))
    near = vstack([csr_array(squared_distances(X[block], X) < reach**2) for block in blocks])
    group = connected_components(near, directed=False)[1]
    size = np.bincount(group)
    first = np.unique(group, return_index=True)[1]
    span = np.linalg.norm(X - X[first[group]], axis=1)
    wide = np.maximum.reduceat(span[np.argsort(group, kind="stable")], np.cumsum(size) - size)
    chained = wide > 3.0 * reach  # neighbours on a line, one by one
    return np.unique(np.where(chained[group], len(size) + np.arange(n), group), return_inverse=True)[1]


def without_copies(rows: Rows, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Rows:
    """Return the merged rows of X (n, d), y (n,), the weights of copies as many as there are records.

    A second measurement has the target of the first about as often as the nearest other row has. Where more than half
    of the equal targets are in excess of that, they are copies; of few levels, where that is often, only if all are.

    >>> X, y = np.array([[1.0], [2.0], [1.0]]), np.array([3.0, 5.0, 3.0])
    >>> without_copies(merge_rows(X, y), X, y).total
    2.0
    """
    records = merge_rows(np.column_stack([X, y]), y, weights)
    if rows.total <= len(records):
        return rows
    row, n = np.unique(hash_rows(records.X[:, :-1]), return_inverse=True)[1], len(rows)
    weight = np.bincount(row, records.weight, n)
    pairs = np.maximum(weight * (weight - 1.0), 0.0)
    equal = np.bincount(row, np.maximum(records.weight * (records.weight - 1.0), 0.0), n)
    more = np.flatnonzero(pairs > 0.0)
    if not len(more):
        return rows
    same = float(np.average(equal[more] / pairs[more], weights=weight[more] - 1.0))
    if same < 1.0:
        chance = _share_of_equal_neighbours(records)
        copies = (same - chance) / (1.0 - chance) if chance < _FEW_LEVELS else 0.0
        if copies <= 0.5 * same:
            return rows
    factor = len(records) / rows.total
    return replace(rows, weight=rows.weight * factor, scatter=rows.scatter * factor)


def _share_of_equal_neighbours(records: Rows) -> float:
    """How often the nearest row with other inputs has the target of a record, the last of its columns of inputs."""
    X, y = records.X[:, :-1], records.X[:, -1]
    first = np.unique(hash_rows(X), return_index=True)[1][:_NEIGHBOUR_ROWS]  # in the order of their hash
    if len(first) < 2:
        return 0.0
    D = squared_distances(standardise_inputs(X[first], np.ones(len(first)))[0])
    np.fill_diagonal(D, np.inf)
    return float(np.mean(y[first] == y[first][D.argmin(1)]))


def join_near_rows(X: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """X (n, d) with rows made equal that are equal up to rounding, and have the same targets (n, q).

    Rounding is far below the distance of neighbours, which that of some rows tells: even if all lie on a line, n rows
    are k / n times as far apart as k of them. Rows are joined that share a cell of one of several shifted grids; all
    get the inputs of the one of least hash.

    >>> X = np.array([[0.0], [1.0 + 1e-12], [3.0], [1.0]])
    >>> [len(np.unique(join_near_rows(X, np.array(y)[:, None]))) for y in ([1.0, 2.0, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0])]
    [3, 4]
    """
    n, hashed = len(X), hash_rows(X + 0.0)
    if n < 3:
        return X
    order = np.argsort(hashed, kind="stable")
    inputs, outputs = (standardise_inputs(values[order], np.ones(n))[0] for values in (X, targets))
    step = _ROUNDING_SHARE * _typical_distance(inputs)
    if step <= 0.0:
        return X
    scaled = np.column_stack([inputs / step, outputs / _TARGET_ROUNDING])
    shifts = np.random.default_rng(0).random((_GRIDS, scaled.shape[1]))
    label, *cells = (hash_rows(np.floor(scaled + shift)) for shift in shifts)
    for cell in cells:
        label = join_labels(label, cell)
    joined = np.empty_like(X)
    joined[order] = X[order][np.unique(label, return_index=True)[1]][np.unique(label, return_inverse=True)[1]]
    return joined


def _typical_distance(X: np.ndarray) -> float:
    """Return a length below the distance of most neighbours among standardised X (n, d), however many are copies."""
    n = len(X)
    k = min(_NEIGHBOUR_ROWS, n // 8)
    if k >= 10:
        few = np.unique(X[:k], axis=0)
        return neighbour_distance(few, k) * k / n
    D = squared_distances(X)
    return float(np.sqrt(np.median(D[D > 0.0]))) / n if np.any(D > 0.0) else 0.0


def order_keys(X: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return keys for `numpy.lexsort` that put rows X (n, d) with weights (n,) in an order of their own.

    They are `rounded_hash`, and a hash that keeps equal rows together.

    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> (np.lexsort(order_keys(X, np.ones(50))) == np.lexsort(order_keys(3.0 * X + 1.0, np.ones(50)))).all()
    np.True_
    """
    return hash_rows(X), rounded_hash(X, weight, _ORDER_STEP)


def rounded_hash(X: np.ndarray, weight: np.ndarray, step: float) -> np.ndarray:
    """Return a hash (n,) of rows X (n, d) rounded to multiples of a step in standard deviations.

    Units and storage in single precision hardly change it, and columns that tell nothing new do not.
    """
    return hash_rows(np.round(standardise_inputs(X, weight)[0] / step) + 0.0)


def standardise(rows: Rows) -> tuple[Rows, Units]:
    """Rows in units of their own, with every column that varies, once: weighted mean zero and variance one."""
    X, units = standardise_inputs(rows.X, rows.weight)
    y_mean, y_scale = rows.mean, float(np.sqrt(rows.variance)) or 1.0
    scaled = replace(rows, X=X, y=(rows.y - y_mean) / y_scale, scatter=rows.scatter / y_scale**2)
    return scaled, replace(units, y_mean=y_mean, y_scale=y_scale)


def standardise_inputs(X: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, Units]:
    """Columns of weighted mean zero and variance one, of inputs X (n, d) with weights (n,), and their units.

    A column that is constant, or that repeats another up to scale and sign, tells the process nothing new: it is left
    out of `Units.columns`.
    """
    total, exponent = float(weight.sum()), far_exponent(X)
    X = np.ldexp(X, -exponent) if exponent.any() else X
    centre = weight @ X / total
    deviation = X - centre
    scale = np.sqrt(weight @ deviation**2 / total)
    varies = scale > 1e-10 * np.maximum(np.abs(centre), np.finfo(float).tiny)
    columns = np.flatnonzero(varies)
    columns = columns[_first_of_copies(deviation[:, columns] / scale[columns])]
    units = Units(columns, *(np.ldexp(values, exponent)[columns] for values in (centre, scale)))
    return deviation[:, columns] / scale[columns], units


def far_exponent(values: np.ndarray) -> np.ndarray:
    """Powers of two (d,) that bring columns (n, d) of very large or very small numbers near one; 0 for all others.

    >>> far_exponent(np.array([[3.0, 0.0, 2.0**400], [1.0, 0.0, 0.0]])).tolist()
    [0, 0, 401]
    """
    exponent = np.frexp(np.maximum(values.max(0, initial=0.0), -values.min(0, initial=0.0)))[1]
    return np.where(np.abs(exponent) > _NEAR_ONE, exponent, 0)


def find_categories(X: np.ndarray) -> tuple[int, ...]:
    """Numbers (d,) of the columns of X (n, d) that are equal for the levels of a category; () where there is none.

    Levels are three or more neighbouring columns of two values each, of which every row has the larger one in exactly
    one: what one-hot encoders make, whatever the unit. Of two levels one column is a copy of the other up to sign.

    >>> find_categories(np.array([[1.0, 0.0, 0.0, 3.0], [0.0, 1.0, 0.0, 3.5], [0.0, 0.0, 1.0, 4.0]]))
    (0, 0, 0, 1)
    """
    n, d = X.shape
    high, others = X.max(0), (X != X.min(0)) & (X != X.max(0))
    on = ((X == high) | others.any(0)).astype(np.float32)  # columns of more values are on everywhere, and meet all
    last = np.full(d, -1)  # the last column before that a column meets
    for own, before in _earlier_columns(d):
        meets = np.triu(on[:, before].T @ on[:, own] > 0, 1 - own.start)
        last[own] = np.where(meets.any(0), before.stop - 1 - meets[::-1].argmax(0), -1)
    total = np.concatenate([[0], np.cumsum(on.sum(0, dtype=int))])
    first, start = np.arange(d), 0
    while start < d:
        end = int(np.searchsorted(total, total[start] + n))
        found = start + 2 < end <= d and total[end] == total[start] + n and last[start:end].max() < start
        first[start : end if found else start + 1] = start
        start = end if found else start + 1
    groups = np.unique(first, return_inverse=True)[1].tolist()
    return tuple(groups) if len(set(groups)) < d else ()


def _first_of_copies(X: np.ndarray) -> np.ndarray:
    """Which columns of standardised X (n, d) are not plus or minus an earlier one: (d,) of bool."""
    if X.shape[1] == 0:
        return np.zeros(0, dtype=bool)
    first, size = np.ones(X.shape[1], dtype=bool), np.maximum(np.einsum("ij,ij->j", X, X), np.finfo(float).tiny)
    for own, before in _earlier_columns(X.shape[1]):
        correlation = np.abs(X[:, before].T @ X[:, own]) / size[own]
        first[own] = ~np.triu(correlation > 1.0 - 1e-12, 1 - own.start).any(0)
    return first


def _earlier_columns(n_columns: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of columns, and with each all columns up to its last: pairs of few enough columns for little memory."""
    step = max(_PAIRS // max(n_columns, 1), 1)
    for start in range(0, n_columns, step):
        stop = min(start + step, n_columns)
        yield slice(start, stop), slice(0, stop)


def rounding_step(y: np.ndarray) -> float:
    """Return the step targets y (n,) look rounded to: the least difference of two, if all are multiples of it; else 0.

    >>> rounding_step(np.array([0.5, 2.0, 3.5, 9.5]))
    1.5
    """
    levels = np.unique(y)
    if len(levels) < 2:
        return 0.0
    gaps = np.diff(levels)
    step = float(gaps[gaps > 1e-9 * (levels[-1] - levels[0])].min())
    multiples = (levels - levels[0]) / step
    return step if np.abs(multiples - np.round(multiples)).max() < 1e-3 else 0.0


def neighbour_distance(X: np.ndarray, n_rows: int = _NEIGHBOUR_ROWS) -> float:
    """Return the median distance between neighbours among the first rows of X (n, d); 0 for a single row.

    >>> neighbour_distance(np.array([[0.0], [1.0], [3.0]]))
    1.0
    """
    few = X[:n_rows]
    if len(few) < 2:
        return 0.0
    D = squared_distances(few)
    np.fill_diagonal(D, np.inf)
    return float(np.sqrt(np.median(D.min(1))))
