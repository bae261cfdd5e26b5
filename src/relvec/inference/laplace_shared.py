"""Rows of a search for a mode whose outputs all have the same functions with the same precisions.

A classifier that shares its functions has K copies of each column. The blocks of its Hessian are sums of products of
two columns, with one weight for each pair of outputs: the products are computed once a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from relvec.inference.curvature import curvature_root, factor_curvature
from relvec.inference.likelihoods import Likelihood, complement

MAX_PRODUCTS = 4_000_000  # numbers held at once; with more the columns count as different ones


@dataclass(frozen=True, eq=False)
class SharedPoint:
    """Weights v (K k,), output by output, the objective there, and the likelihood's values on the rows."""

    v: np.ndarray
    value: float
    f: np.ndarray
    r: np.ndarray
    W: np.ndarray


@dataclass(frozen=True, eq=False)
class SharedColumns:
    """Scaled columns X (n, k) that every one of K outputs has."""

    X: np.ndarray
    t: np.ndarray
    weights: np.ndarray
    likelihood: Likelihood

    def value_at_zero(self) -> float:
        """Return the objective where all weights are zero."""
        return self.at(np.zeros(self.likelihood.n_outputs * self.X.shape[1])).value

    def at(self, v: np.ndarray) -> SharedPoint:
        """Return the point v (K k,)."""
        f = (v.reshape(self.likelihood.n_outputs, -1) @ self.X.T).T
        value, r, W = self.likelihood.evaluate(self.t, f, self.weights)
        return SharedPoint(v, value - 0.5 * float(v @ v), f, r, W)

    def gradient(self, point: SharedPoint) -> np.ndarray:
        """Of the objective (K k,)."""
        return (point.r.T @ self.X).ravel() - point.v

    def factor(self, point: SharedPoint) -> np.ndarray:
        """Upper triangular U (K k, K k) with U'U = I + X'B X."""
        K, k = self.likelihood.n_outputs, self.X.shape[1]
        own = [slice(a * k, (a + 1) * k) for a in range(K)]
        return factor_curvature(
            self.gram(point.W), lambda: curvature_root(np.tile(self.X, K), point.W, self.weights, own)
        )

    def gram(self, W: np.ndarray) -> np.ndarray:
        """X'B X (K k, K k) for class probabilities W (n, K), T01 eq. (28)."""
        K, k = self.likelihood.n_outputs, self.X.shape[1]
        P, Q = np.asfortranarray(W), complement(W)
        curvature = np.empty((len(W), K * (K + 1) // 2), order="F")
        of_pair = np.empty((K, K), dtype=np.intp)
        for i, (a, b) in enumerate(combinations_with_replacement(range(K), 2)):
            curvature[:, i] = P[:, a] * (Q[:, a] if a == b else -P[:, b])
            of_pair[a, b] = of_pair[b, a] = i
        products, place = self._products
        sums = products.T @ (self.weights[:, None] * curvature)
        return sums[place[None, :, None, :], of_pair[:, None, :, None]].reshape(K * k, K * k)

    @cached_property
    def _products(self) -> tuple[np.ndarray, np.ndarray]:
        """Products (n, k (k + 1) / 2) of two columns, and which of them two columns (k, k) have."""
        k = self.X.shape[1]
        first, second = np.triu_indices(k)
        place = np.empty((k, k), dtype=np.intp)
        place[first, second] = place[second, first] = np.arange(len(first))
        return self.X[:, first] * self.X[:, second], place


def may_hold_products(n_rows: int, n_columns: int) -> bool:
    """Whether the products of so many columns are few enough."""
    return n_rows * n_columns * (n_columns + 1) // 2 <= MAX_PRODUCTS
