"""The curvature X'B X of a log likelihood over weights, T01 eqs. (25) and (28), and the factor of I + X'B X."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relvec.inference.likelihoods import complement
from relvec.inference.linalg import NORMAL_EQUATIONS_LIMIT, factor_ridge


def factor_curvature(gram: np.ndarray, root: Callable[[], np.ndarray]) -> np.ndarray:
    """Upper triangular U with U'U = I + X'B X, from that product (k, k), which is overwritten.

    Where the product is so large that rounding hides the identity, the rows (r, k) of ``root()`` are factored instead.
    """
    if gram.diagonal().max(initial=0.0) <= NORMAL_EQUATIONS_LIMIT:
        return factor_ridge(np.zeros((0, len(gram))), gram)
    return factor_ridge(root(), gram)


def curvature_gram(X: np.ndarray, W: np.ndarray, weights: np.ndarray, own: list[slice]) -> np.ndarray:
    """X'B X (k, k)."""
    if W.ndim == 1:
        Z = np.sqrt(W)[:, None] * X
        return Z.T @ Z
    # T01 eq. (28): off the diagonal blocks B is -p_c p_c', one product; the blocks themselves keep p (1 - p) exact
    Z, P, Q = np.empty_like(X), np.asfortranarray(W), complement(W)
    root = np.sqrt(weights)
    for a, i in enumerate(own):
        np.multiply(X[:, i], (root * P[:, a])[:, None], out=Z[:, i])
    G = Z.T @ Z
    np.negative(G, out=G)
    for a, i in enumerate(own):
        if i.stop > i.start:
            Y = np.multiply(X[:, i], np.sqrt(weights * P[:, a] * Q[:, a])[:, None], out=Z[:, i])
            G[i, i] = Y.T @ Y
    return G


def curvature_root(X: np.ndarray, W: np.ndarray, weights: np.ndarray, own: list[slice]) -> np.ndarray:
    """Rows F, (n, k) for one output and (n K, k) for K, with F'F = X'B X."""
    if W.ndim == 1:
        return np.sqrt(W)[:, None] * X
    # T01 eq. (28): B = diag(p) - pp' = S'S with S_ac = p_a^1/2 (delta_ac - p_c), as the p of a row sum to one
    outputs = _outputs(own)
    Q, P, root = complement(W)[:, outputs], W[:, outputs], np.sqrt(weights[:, None] * W)
    same = [(outputs == a).astype(float) for a in range(len(own))]
    return np.concatenate([(same[a] * Q - (1.0 - same[a]) * P) * X * root[:, a : a + 1] for a in range(len(own))])


def _outputs(own: list[slice]) -> np.ndarray:
    """Return the output of each weight (k,)."""
    return np.repeat(np.arange(len(own)), [i.stop - i.start for i in own])
