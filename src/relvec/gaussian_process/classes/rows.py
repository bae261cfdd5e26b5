"""The rows a classifier learns from: merged where they repeat, standardised, dealt to folds by what they hold.

Rows with equal inputs are one row with the weight of every class there: Laplace's approximation sees log-likelihoods
only, and those of equal rows add. Weights are frequencies: a row of weight two and the row twice give one record, and
the order, which is that of a hash of the inputs, does not depend on the order in which rows come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.gaussian_process.rows import Units, order_keys, standardise_inputs

_FEW = 50  # distinct rows


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Merged rows: inputs X (n, d) and the weight of each class at each row, counts (n, K)."""

    X: np.ndarray
    counts: np.ndarray

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
    def base_rates(self) -> np.ndarray:
        """Share of every class (K,), with half a row added to each, so that none is zero."""
        totals = self.counts.sum(0) + 0.5
        return totals / totals.sum()

    @property
    def base_value(self) -> float:
        """The log-likelihood of the base rates."""
        return float(self.counts.sum(0) @ np.log(self.base_rates))

    def take(self, index: np.ndarray | slice) -> ClassRows:
        """Some of the rows."""
        return ClassRows(self.X[index], self.counts[index])


def merge(X: np.ndarray, labels: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> ClassRows:
    """Rows with equal inputs made one, in the order of a hash of the inputs; rows of no weight left out.

    X (N, d), labels (N,) from 0 to n_classes - 1, weights (N,).

    >>> rows = merge(np.array([[1.0], [2.0], [1.0]]), np.array([0, 1, 1]), 2)
    >>> sorted(zip(rows.X[:, 0].tolist(), rows.counts.tolist()))
    [(1.0, [1.0, 1.0]), (2.0, [0.0, 1.0])]
    """
    w = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=float)
    kept = w > 0
    X, labels, w = np.asarray(X, dtype=float)[kept] + 0.0, np.asarray(labels)[kept], w[kept]  # + 0.0: no -0.0
    order = np.lexsort((labels, *X.T[::-1], *order_keys(X, w)))  # two rows of one hash and other content stay apart
    X, labels, w = X[order], labels[order], w[order]
    new = np.ones(len(X), dtype=bool)
    new[1:] = (X[1:] != X[:-1]).any(1)
    group = np.cumsum(new) - 1
    counts = np.zeros((int(new.sum()), n_classes))
    np.add.at(counts, (group, labels), w)
    return ClassRows(X[new], counts)


def standardise(rows: ClassRows) -> tuple[ClassRows, Units]:
    """Rows of weighted mean zero and variance one; columns that are constant or repeat another are left out.

    Their order is that of a hash of what they are now: units do not change it.
    """
    X, units = standardise_inputs(rows.X, rows.weight)
    return _ordered(X, rows), units


def scale(rows: ClassRows, lengths: np.ndarray) -> tuple[ClassRows, Units]:
    """Rows in units of given lengths (d,), ordered as by `standardise`."""
    units = Units(np.arange(rows.X.shape[1]), np.zeros(rows.X.shape[1]), lengths)
    X: np.ndarray = units.inputs(rows.X)
    return _ordered(X, rows), units


def _ordered(X: np.ndarray, rows: ClassRows) -> ClassRows:
    order = np.lexsort(order_keys(X, rows.weight))
    return ClassRows(X[order], rows.counts[order])


def few_differ(rows: ClassRows) -> bool:
    """Whether the table has so few distinct rows that new ones will be copies, which no held-out row stands for."""
    return len(rows) < _FEW and rows.weight.sum() > 2.0 * len(rows)


def deal_fold(rows: ClassRows, n_folds: int, k: int) -> tuple[ClassRows, ClassRows]:
    """(rows to learn from, rows held out) for fold k: the classes spread evenly, copies together.

    Rows are taken class by class (the class of most weight at the row), in their order, which is a hash's, and dealt
    out in turn: neither the order of the user's rows, nor copies of them, nor the names of the classes change the
    folds.
    """
    label = rows.counts.argmax(1)
    first = np.full(rows.n_classes, len(rows))
    np.minimum.at(first, label, np.arange(len(rows)))
    order = np.argsort(first[label], kind="stable")  # classes in the order in which they first come
    fold = np.empty(len(rows), dtype=int)
    fold[order] = np.arange(len(rows)) % n_folds
    return rows.take(fold != k), rows.take(fold == k)
