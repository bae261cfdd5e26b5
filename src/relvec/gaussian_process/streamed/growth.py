"""How many vectors: they are drawn as in `relvec.gaussian_process.vectors`, and held-out rows tell when to stop.

The features of the rows that a draw has are those of the partial Cholesky factorisation itself, so that the density at
held-out rows costs little more than the draw: after 64, 128, 256, ... vectors the posterior is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows
from relvec.gaussian_process.vectors import draw_pivots
from relvec.inference.linalg import factor_lower, solve_lower
from relvec.runtime.arrays import Array, add_diagonal, device_of, like, squares, take, to_host
from relvec.runtime.machine import product

_FIRST = 64  # vectors
LEAST_TRIED = 512
_BLOCK = 64  # drawn at once
_ROUNDING = 1e-10  # of the prior variance
GAIN = 0.01  # nats a row that twice as many vectors have to gain at held-out rows, one standard error added


@dataclass(frozen=True, eq=False)
class Growth:
    """Indices (m,) of the rows chosen, the density of held-out rows for each number of vectors tried (nats a row).

    `gains` tells whether more vectors would have been tried, had they been allowed.
    """

    index: np.ndarray
    densities: tuple[tuple[int, float], ...]
    gains: bool


def grow_vectors(
    structure: Structure, theta: np.ndarray, rows: Rows, n_held: int, most: int, place: Array | None,
    tell: Callable[[int, float], bool], least: int = LEAST_TRIED,
) -> Growth:  # fmt: skip
    """Vectors among the rows but the last `n_held`, as many as the density of those asks for, `most` at most.

    least : so many are tried before a small gain ends the growth, as vectors that are still far apart gain nothing.
    place : an array on the device where the work is to be done; None for the host.
    tell : called with the number of vectors and the density after each stage; it asks to stop by returning True.
    """
    X = rows.X if place is None else like(place, rows.X)
    n = len(rows) - n_held
    prior = to_host(structure.prior_variance(theta, X[:n, :]))
    weight, left = rows.weight[:n], rows.weight[:n] * prior
    share = rows.weight[n:] / rows.weight[n:].sum()
    state = _State(structure, theta, rows, X, n_held, most)
    rng, smallest = np.random.default_rng(0), 1e-8 * structure.noise(theta) + _ROUNDING * prior.max()
    densities: list[tuple[int, float]] = []
    size, tried = 0, list[np.ndarray]()
    while True:
        size = min(most, max(2 * size, _FIRST))
        while state.n_chosen < size and left.max() > smallest:
            block = draw_pivots(left, min(_BLOCK, size - state.n_chosen), rng)
            left = np.maximum(left - weight * state.add(block, _ROUNDING * prior.max()), 0.0)
            left[state.chosen] = 0.0
        tried.append(state.losses())
        densities.append((state.n_chosen, -float(share @ tried[-1])))
        stop = tell(*densities[-1])
        enough = [m for (m, _), losses in zip(densities, tried[:-1]) if _gain(losses, tried[-1], share) < GAIN]
        if enough and enough[-1] == densities[-2][0] and state.n_chosen >= least:
            return Growth(state.chosen[: enough[0]], tuple(densities), False)
        if stop or state.n_chosen >= most or left.max() <= smallest:
            return Growth(state.chosen, tuple(densities), stop or state.n_chosen >= most)


def _gain(before: np.ndarray, after: np.ndarray, share: np.ndarray) -> float:
    """Return the mean of what losses (h,) become less, with shares (h,), and one standard error."""
    gain = before - after
    mean = float(share @ gain)
    return mean + float(np.sqrt(share @ (gain - mean) ** 2 / len(gain)))


class _State:
    """The features F (m, n) of all rows on the vectors chosen so far, and their sums over the rows not held out."""

    def __init__(self, structure: Structure, theta: np.ndarray, rows: Rows, X: Array, n_held: int, most: int):
        n = len(rows) - n_held
        self._structure, self._theta, self._X, self._n = structure, theta, X, n
        self._weight = None if np.all(rows.weight[:n] == 1.0) else like(X, rows.weight[:n])
        self._target = like(X, rows.weight[:n] * rows.y[:n])
        self._truth, self._scatter = rows.y[n:], rows.scatter[n:] / rows.weight[n:]
        shapes = (most, X.shape[0]), (most, most), (most,)
        if isinstance(X, np.ndarray):
            self._F, self._gram, self._cross = (np.empty(shape) for shape in shapes)  # memory is taken when filled
        else:
            self._F, self._gram, self._cross = (device_of(X).zeros(*shape) for shape in shapes)
        self.chosen, self._summed = np.empty(0, dtype=np.intp), 0

    @property
    def n_chosen(self) -> int:
        return len(self.chosen)

    def add(self, block: np.ndarray, rounding: float) -> np.ndarray:
        """Add rows (k,) to the vectors; the squares (n,) of the new features of the rows not held out."""
        done, width = self.n_chosen, len(block)
        F = self._F[:done, :]
        K = self._structure(self._theta, take(self._X, block), self._X)
        K -= product(take(F, block, axis=1).T, F)
        L = factor_lower(add_diagonal(take(K, block, axis=1), rounding))
        new = solve_lower(L, K)
        self._F[done : done + width, :] = new
        self.chosen = np.concatenate([self.chosen, block])
        return to_host(squares(new[:, : self._n], 0))

    def losses(self) -> np.ndarray:
        """Negative log density (h,) of held-out targets, with variances scaled to be right on average."""
        m, old, s = self.n_chosen, self._summed, self._structure.noise(self._theta)
        F, A = self._F[:m, : self._n], self._F[:m, self._n :]
        new = F[old:, :] if self._weight is None else F[old:, :] * self._weight[None, :]
        rows = product(new, F.T)
        self._gram[old:m, :m] = rows
        self._gram[:old, old:m] = rows[:, :old].T
        self._cross[old:m] = F[old:, :] @ self._target
        self._summed = m
        LB = factor_lower(add_diagonal(self._gram[:m, :m] / s, 1.0))
        half = solve_lower(LB, A + 0.0)
        c = solve_lower(LB, self._cross[:m] / s)
        prior = self._structure.prior_variance(self._theta, self._X[self._n :, :])
        latent = np.maximum(to_host(prior - squares(A, 0)), 0.0) + to_host(squares(half, 0))
        error = (self._truth - to_host(half.T @ c)) ** 2 + self._scatter
        variance = latent + s
        variance = variance * float(np.mean(error / variance))
        return 0.5 * (np.log(2.0 * np.pi * variance) + error / variance)
