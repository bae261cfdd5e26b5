"""Which rows become vectors: pivots of a partial Cholesky factorisation, drawn by what is left of the prior variance.

Rows are drawn in blocks with probability proportional to their conditional variance given the vectors so far (randomly
pivoted Cholesky, Chen et al. 2023): nearly as good as the greedy pivots, in matrix products. The draws are of a fixed
seed and the rows come in the order of their hash, so that the choice depends on the rows alone.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from relvec.gaussian_process.evidence import factor
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows

_BLOCK = 64
_ROUNDING = 1e-10  # of the prior variance


def pivots(structure: Structure, theta: np.ndarray, rows: Rows, n_vectors: int) -> np.ndarray:
    """Indices (m,) of rows in the order they were chosen; fewer than n_vectors where nothing is left to represent."""
    n = len(rows)
    if n_vectors >= n:
        return np.arange(n)
    rng = np.random.default_rng(0)
    prior = structure.prior_variance(theta, rows.X)
    left = rows.weight * prior
    F = np.empty((n_vectors, n))  # F'F is the part of K represented
    chosen = np.empty(0, dtype=int)
    least = 1e-8 * structure.noise(theta) + _ROUNDING * prior.max()
    while len(chosen) < n_vectors and left.max() > least:
        block = draw_pivots(left, min(_BLOCK, n_vectors - len(chosen)), rng)
        done, width = len(chosen), len(block)
        G = structure(theta, rows.X[block], rows.X) - F[:done, block].T @ F[:done]
        # what is left is a difference of numbers of the prior's size: known to its rounding, and no better
        L = factor(G[:, block] + _ROUNDING * prior.max() * np.eye(width))
        F[done : done + width] = solve_triangular(L, G, lower=True, check_finite=False)
        new = F[done : done + width]
        left = np.maximum(left - rows.weight * np.einsum("ij,ij->j", new, new), 0.0)
        chosen = np.concatenate([chosen, block])
        left[chosen] = 0.0
    return chosen


def draw_pivots(left: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` different rows, drawn with probability proportional to `left` (n,)."""
    total = left.cumsum()
    drawn = np.searchsorted(total, rng.random(count) * total[-1], side="right")
    return np.unique(np.minimum(drawn, len(left) - 1))
