"""Which rows become vectors: pivots of a partial Cholesky factorisation, drawn for coverage and by relevance.

Rows are drawn in blocks. Half of a block is drawn with probability proportional to the conditional variance of the
function given the vectors so far (randomly pivoted Cholesky, Chen et al. 2023): these cover what the kernel allows. The
other half is drawn with that variance times the squared residual of the target: these are relevant to what is left of
it. For equal numbers of vectors both together predict better than the first alone (`benchmarks/vectors.py`). The draws
are of a fixed seed and the rows come in the order of their hash, so that the choice depends on the rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows
from relvec.inference.linalg import extend_features, factor

_BLOCK = 64
_RELEVANT_SHARE = 0.5  # of a block: drawn by relevance
_ROUNDING = 1e-10  # of the prior variance


@dataclass(frozen=True, eq=False)
class Pivots:
    """Indices (m,) of rows in the order they were chosen, and which were drawn by relevance: (m,) of bool."""

    index: np.ndarray
    relevant: np.ndarray

    def first(self, count: int) -> Pivots:
        """Return the first of them."""
        return Pivots(self.index[:count], self.relevant[:count])

    def __len__(self) -> int:
        return len(self.index)


def all_rows(n_rows: int) -> Pivots:
    """Every row, none of them chosen before others."""
    return Pivots(np.arange(n_rows), np.zeros(n_rows, dtype=bool))


def pivots(
    structure: Structure, theta: np.ndarray, rows: Rows, n_vectors: int, relevant_share: float = _RELEVANT_SHARE
) -> Pivots:
    """Rows to keep; fewer than n_vectors where nothing is left to represent."""
    n = len(rows)
    if n_vectors >= n:
        return all_rows(n)
    rng = np.random.default_rng(0)
    prior, root = structure.prior_variance(theta, rows.X), np.sqrt(rows.weight)
    left, residual = rows.weight * prior, root * rows.y
    F = np.empty((n_vectors, n))  # F'F is the part of K represented
    B = structure.noise(theta) * np.eye(n_vectors)  # F W F' + s I, which gives the mean of the process on them
    chosen, relevant = np.empty(0, dtype=int), np.empty(0, dtype=bool)
    least = 1e-8 * structure.noise(theta) + _ROUNDING * prior.max()
    while not len(chosen) or (len(chosen) < n_vectors and left.max() > least):
        block, by_relevance = _draw_block(left, residual, min(_BLOCK, n_vectors - len(chosen)), relevant_share, rng)
        done, end = len(chosen), len(chosen) + len(block)
        new = extend_features(structure(theta, rows.X[block], rows.X), F[:done], block, _ROUNDING * prior.max())
        F[done:end] = new
        left = np.maximum(left - rows.weight * np.einsum("ij,ij->j", new, new), 0.0)
        chosen, relevant = np.concatenate([chosen, block]), np.concatenate([relevant, by_relevance])
        left[chosen] = 0.0
        if relevant_share > 0 and end < n_vectors:
            B[:end, done:end] += (F[:end] * rows.weight) @ new.T
            B[done:end, :done] = B[:done, done:end].T
            solved = cho_solve(
                (factor(B[:end, :end].copy()), True), F[:end] @ (rows.weight * rows.y), check_finite=False
            )
            residual = root * (rows.y - solved @ F[:end])
    return Pivots(chosen, relevant)


def _draw_block(
    left: np.ndarray, residual: np.ndarray, count: int, relevant_share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """At most `count` rows (k,), and which of them were drawn by relevance (k,)."""
    gain = left * residual**2
    n_relevant = int(relevant_share * count) if gain.max() > 0 else 0
    covering = draw_pivots(left, count - n_relevant, rng)
    gain[covering] = 0.0
    relevant = draw_pivots(gain, n_relevant, rng) if gain.max() > 0 else np.empty(0, dtype=int)
    return np.concatenate([covering, relevant]), np.arange(len(covering) + len(relevant)) >= len(covering)


def draw_pivots(left: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` different rows, drawn with probability proportional to `left` (n,)."""
    total = left.cumsum()
    drawn = np.searchsorted(total, rng.random(count) * total[-1], side="right")
    return np.unique(np.minimum(drawn, len(left) - 1))
