"""Sums over rows in blocks, and the vectors that grow by what these rows ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from relvec.design import Block, Samples
from relvec.gaussian_process.bound import Sums, Vectors, sum_rows
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows, Units
from relvec.gaussian_process.target import Scale
from relvec.gaussian_process.vectors import draw_pivots
from relvec.inference.linalg import extend_features, factor_lower, solve_lower
from relvec.runtime.arrays import Array, add_diagonal, device_of, like, squares, take, to_host
from relvec.runtime.machine import product

_BLOCK_NUMBERS = 4_000_000  # of the features of a block, at most: 32 MB
_BLOCK_ROWS = 1000  # of a block on the host, or a million numbers: more of them only take memory on every thread
_BLOCK_BYTES = 400  # of the memory limit for each of these numbers: several arrays of them, on several threads


@dataclass(frozen=True, eq=False)
class Scaling:
    """How a block of rows becomes rows of the process: its units, scale and output, and a factor for all weights."""

    units: Units
    scale: Scale
    output: int
    weight_factor: float

    def rows(self, block: Block) -> tuple[Array, np.ndarray, np.ndarray]:
        """Standardised inputs (b, d), targets (b,) and weights (b,)."""
        u = self.units
        y = (self.scale.forward(block.targets[:, self.output]) - u.y_mean) / u.y_scale
        return u.inputs(block.X), y, self.weight_factor * block.weights


def _sum_block(vectors: Vectors, target: Scaling, block: Block) -> Sums:
    return sum_rows(vectors, *target.rows(block))


def sum_all(vectors: Vectors, samples: Samples, target: Scaling, memory: float, tell: Callable[[float], None]) -> Sums:
    """Return the sums over all rows, in one pass within so many bytes; `tell` is called with the share that is done."""
    m = vectors.Z.shape[0]
    numbers = min(_BLOCK_NUMBERS, int(memory / _BLOCK_BYTES))
    if isinstance(vectors.Z, np.ndarray):
        numbers = min(numbers, max(1_000_000, _BLOCK_ROWS * m))
    samples = samples.blocked(max(numbers // m, 64))
    block_sums = partial(_sum_block, vectors, target)
    if not samples.n_blocks:
        return samples.reduce(block_sums, Sums.add)
    done = 1

    def add(a: Sums, b: Sums) -> Sums:
        nonlocal done
        done += 1
        tell(done / samples.n_blocks)
        return a.add(b)

    return samples.reduce(block_sums, add)


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
        new = extend_features(self._structure(self._theta, take(self._X, block), self._X), F, block, rounding)
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
