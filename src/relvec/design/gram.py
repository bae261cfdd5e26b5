"""Rows reduced to the atoms of the dictionary: for few atoms on many rows, whatever the atoms are.

Regression depends on the rows only through Phi'Phi, Phi't and t't, which one pass over blocks adds up. With
Phi'Phi = R'R the columns of R stand for those of Phi.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, solve_triangular

from relvec.basis import Basis, numbers_per_entry
from relvec.design.base import Compression, Rows
from relvec.design.dense import DenseDesign
from relvec.design.samples import Block, Samples
from relvec.runtime.threads import n_threads

WORK = 1.7e12  # multiplications of a pass: what one takes a minute for on two cores
_BLOCK = 4_000_000  # numbers of the dictionary computed at once, at most
_BLOCKS = 0.2  # share of the memory limit for blocks on all threads, while they are computed
_ROUNDING = 1e-15  # of unit squares: what is smaller depends on the other atoms for all a Gram matrix can tell


def max_gram_atoms(n_rows: int, memory: float) -> int:
    """The longest dictionary that so many rows are reduced to in one pass, in memory and time."""
    held = n_threads() + 4  # matrices of that size at once
    return int(min(np.sqrt(0.6 * memory / (8 * held)), np.sqrt(WORK / n_rows)))


def gram_rows(basis: Basis, samples: Samples, memory: float = 4e9) -> Rows:
    """A bound basis of M atoms on the samples, in at most M coordinates; blocks take a fifth of ``memory`` bytes."""
    M = basis.n_atoms

    def moments(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with np.errstate(over="ignore", invalid="ignore"):
            Phi, T = basis(block.X), block.targets * block.root
            Phi *= block.root
            return Phi.T @ Phi, Phi.T @ T, np.einsum("ij,ij->j", T, T)

    numbers = min(_BLOCK, _BLOCKS * memory / (8 * n_threads() * numbers_per_entry(basis)))
    rows = int(np.clip(numbers // M, 16, 16_384))
    gram, cross, squares = samples.blocked(rows).reduce(moments, _added)
    norm = np.sqrt(np.diag(gram))
    if not np.all(np.isfinite(norm)):
        raise ValueError(
            f"basis function {int(np.argmin(np.isfinite(norm)))} is not finite on the training rows; "
            "rescale the inputs (StandardScaler) or lower the degree"
        )
    safe = np.where(norm > 0.0, norm, 1.0)
    gram /= safe
    gram /= safe[:, None]
    R, order, rank, _ = lapack.dpstrf(gram.T, lower=0, tol=_ROUNDING * M, overwrite_a=1)
    order = order - 1
    R = np.triu(R[:rank])
    y = solve_triangular(R[:, :rank], (cross / safe[:, None])[order[:rank]], trans=1, check_finite=False)
    columns = np.empty((rank, M), order="F")
    columns[:, order] = R
    del gram, R
    design = DenseDesign(columns, overwrite=True)
    design.scale = design.scale * norm
    rest = np.maximum(squares - np.einsum("ij,ij->j", y, y), 0.0)
    error = np.sqrt(_ROUNDING * M)  # of a column, relative to its norm
    return Rows(design, y, rest, Compression(samples.n_rows, rank, 0.0, float(error)))


def _added(a: tuple, b: tuple) -> tuple:
    for total, more in zip(a, b, strict=True):
        total += more
    return a
