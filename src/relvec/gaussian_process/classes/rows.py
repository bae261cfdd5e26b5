"""The rows a classifier learns from: merged where they repeat, standardised, dealt to folds by what they hold.

Rows with equal inputs are one row with the weight of every class there: Laplace's approximation sees log-likelihoods
only, and those of equal rows add. Weights are frequencies: a row of weight two and the row twice give one record, and
the order, which is that of a hash of the inputs, does not depend on the order in which rows come. Rows of one group
(`ClassRows.group`) are in one fold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.rows import (
    COMPARED_ROWS,
    Units,
    find_equal_rows,
    join_labels,
    near_groups,
    number_labels,
    order_keys,
    standardise_inputs,
)

_FEW = 50  # distinct rows


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Merged rows: inputs X (n, d), the weight of each class at each row, counts (n, K), and the group (n,) of each."""

    X: np.ndarray
    counts: np.ndarray
    group: np.ndarray | None = None  # each row is on its own where there are none

    def __len__(self) -> int:
        return len(self.X)

    @property
    def n_classes(self) -> int:
        """K."""
        return self.counts.shape[1]

    @property
    def weight(self) -> np.ndarray:
        """Total weight of every merged row (n,)."""
        return self.counts.sum(1)

    @property
    def labels(self) -> np.ndarray:
        """Numbers (n,) of the groups of the rows, in the order in which these come; one a row where there are none."""
        return np.arange(len(self)) if self.group is None else number_labels(self.group)

    @property
    def base_rates(self) -> np.ndarray:
        """Share of every class (K,), with half a row added to each, so that none is zero."""
        totals = self.counts.sum(0) + 0.5
        return totals / totals.sum()

    @property
    def base_value(self) -> float:
        """The log-likelihood of the base rates."""
        return float(self.counts.sum(0) @ np.log(self.base_rates))

    def take(self, index: np.ndarray | slice) -> DistinctRows:
        """Return some of the rows."""
        return DistinctRows(self.X[index], self.counts[index], None if self.group is None else self.group[index])


def merge_class_rows(
    X: np.ndarray, labels: np.ndarray, n_classes: int, weights: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> DistinctRows:  # fmt: skip
    """Return the rows, those with equal inputs made one, in the order of a hash of the inputs.

    X (N, d), labels (N,) from 0 to n_classes - 1, weights (N,): rows of none are left out, groups (N,): those that
    share a row become one.

    >>> rows = merge_class_rows(np.array([[1.0], [2.0], [1.0]]), np.array([0, 1, 1]), 2)
    >>> sorted(zip(rows.X[:, 0].tolist(), rows.counts.tolist()))
    [(1.0, [1.0, 1.0]), (2.0, [0.0, 1.0])]
    """
    found = find_equal_rows(X, labels, weights, groups)
    counts = np.zeros((len(found.X), n_classes))
    np.add.at(counts, (found.row_of, np.asarray(labels)[found.order]), found.weight)
    return DistinctRows(found.X, counts, found.group)


def standardise_rows(rows: DistinctRows) -> tuple[DistinctRows, Units]:
    """Rows of weighted mean zero and variance one; columns that are constant or repeat another are left out.

    Their order is that of a hash of what they are now: units do not change it.
    """
    X, units = standardise_inputs(rows.X, rows.weight)
    return _ordered(X, rows), units


def scale(rows: DistinctRows, lengths: np.ndarray) -> tuple[DistinctRows, Units]:
    """Rows in units of given lengths (d,), ordered as by `standardise_rows`."""
    units = Units(np.arange(rows.X.shape[1]), np.zeros(rows.X.shape[1]), lengths)
    X: np.ndarray = units.inputs(rows.X)
    return _ordered(X, rows), units


def _ordered(X: np.ndarray, rows: DistinctRows) -> DistinctRows:
    """Return the rows with inputs X (n, d), ordered; those near to each other and far from others are of one group."""
    order = np.lexsort(order_keys(X, rows.weight))
    return group_near_rows(replace(rows, X=X).take(order))


def group_near_rows(rows: DistinctRows) -> DistinctRows:
    """Return standardised rows, those near to each other and far from others of one group; many are not compared.

    >>> X = np.repeat(np.random.default_rng(0).normal(size=(30, 3)), 4, axis=0)
    >>> X += 0.01 * np.random.default_rng(1).normal(size=X.shape)
    >>> len(set(group_near_rows(DistinctRows(X, np.ones((120, 2)))).labels.tolist()))
    30
    """
    if not 2 < len(rows) <= COMPARED_ROWS:
        return rows
    near = join_labels(rows.labels, near_groups(rows.X))
    return rows if near.max() == len(near) - 1 else replace(rows, group=near)


def few_differ(rows: DistinctRows) -> bool:
    """Whether the table has so few distinct rows that new ones will be copies, which no held-out row stands for."""
    return len(rows) < _FEW and rows.weight.sum() > 2.0 * len(rows)


def deal_fold(rows: DistinctRows, n_folds: int, k: int) -> tuple[DistinctRows, DistinctRows]:
    """Return rows to learn from, and rows held out, of fold k: the classes spread evenly, copies and groups together.

    Groups, of one row each where there are none, are taken class by class (the class of most weight in the group), in
    their order, which is that of a hash of the rows, and dealt out in turn: neither the order of the user's rows, nor
    copies of them, nor the names of the classes change the folds.
    """
    group = rows.labels
    counts = np.zeros((int(group.max()) + 1, rows.n_classes))
    np.add.at(counts, group, rows.counts)
    label = counts.argmax(1)
    first = np.full(rows.n_classes, len(counts))
    np.minimum.at(first, label, np.arange(len(counts)))
    order = np.argsort(first[label], kind="stable")  # classes in the order in which they first come
    fold = np.empty(len(counts), dtype=int)
    fold[order] = np.arange(len(counts)) % n_folds
    return rows.take(fold[group] != k), rows.take(fold[group] == k)
