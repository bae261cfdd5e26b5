"""Which rows become vectors: pivots of a partial Cholesky factorisation, drawn for coverage and by relevance.

Rows are drawn in blocks. Half of a block is drawn with probability proportional to the conditional variance of the
function given the vectors so far (randomly pivoted Cholesky, Chen et al. 2023): these cover what the kernel allows. The
other half is drawn with that variance times the squared residual of the target: these are relevant to what is left of
it. For equal numbers of vectors both together predict better than the first alone (`benchmarks/vectors.py`). The draws
are of a fixed seed and the rows come in the order of their hash, so that the choice depends on the rows alone.

Of many rows vectors for coverage are drawn alone, twice as many at each stage, until rows held out ask for no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows
from relvec.inference.linalg import extend_features, factor, factor_lower, solve_lower
from relvec.runtime.arrays import Array, add_diagonal, device_of, like, squares, take, to_host
from relvec.runtime.machine import product

_BLOCK = 64  # vectors drawn at once, and those of the first stage of growth
_RELEVANT_SHARE = 0.5  # of a block: drawn by relevance
_ROUNDING = 1e-10  # of the prior variance
LEAST_TRIED = 512  # vectors, however little those before them gain
GAIN_NATS = 0.01  # a row, one standard error added, that more vectors have to gain at held-out rows


class GrowingFactor:
    """The features F (m, n) of rows on the vectors chosen so far, F'F the part of K that these represent.

    Vectors are among the rows but the last `n_held`, and the sums go over those. `left` are the weighted variances of
    these that the vectors leave, `chosen` (m,) the vectors.
    """

    def __init__(
        self, structure: Structure, theta: np.ndarray, rows: Rows, most: int, n_held: int = 0,
        place: Array | None = None,
    ):  # fmt: skip
        n = len(rows) - n_held
        self._structure, self._theta, self._n = structure, theta, n
        self._X = X = rows.X if place is None else like(place, rows.X)
        prior = to_host(structure.prior_variance(theta, X[:n, :]))
        self._weight, self._rounding = rows.weight[:n], _ROUNDING * prior.max()
        self.left, self._least = rows.weight[:n] * prior, 1e-8 * structure.noise(theta) + self._rounding
        self._scale = None if np.all(self._weight == 1.0) else like(X, self._weight)
        self._target = like(X, self._weight * rows.y[:n])
        self._truth, self._scatter = rows.y[n:], rows.scatter[n:] / rows.weight[n:]
        shapes = (most, X.shape[0]), (most, most), (most,)
        if isinstance(X, np.ndarray):
            self._F, self._gram, self._cross = (np.empty(shape) for shape in shapes)  # memory is taken when filled
        else:
            self._F, self._gram, self._cross = (device_of(X).zeros(*shape) for shape in shapes)
        self.chosen, self._summed = np.empty(0, dtype=np.intp), 0

    @property
    def n_chosen(self) -> int:
        """How many vectors there are."""
        return len(self.chosen)

    @property
    def is_complete(self) -> bool:
        """Whether the vectors leave nothing of any row."""
        return bool(self.left.max() <= self._least)

    def add(self, block: np.ndarray) -> None:
        """Add rows (k,) to the vectors."""
        done, end = self.n_chosen, self.n_chosen + len(block)
        K = self._structure(self._theta, take(self._X, block), self._X)
        self._F[done:end, :] = new = extend_features(K, self._F[:done, :], block, self._rounding)
        self.chosen = np.concatenate([self.chosen, block])
        self.left = np.maximum(self.left - self._weight * to_host(squares(new[:, : self._n], 0)), 0.0)
        self.left[self.chosen] = 0.0

    def cover(self, size: int, rng: np.random.Generator) -> None:
        """Add vectors drawn for coverage up to so many."""
        while self.n_chosen < size and not self.is_complete:
            self.add(_draw(self.left, min(_BLOCK, size - self.n_chosen), rng))

    def fit_targets(self) -> np.ndarray:
        """Return the posterior mean (n,) of the process on the vectors at the rows, all on the host."""
        F, (gram, cross) = self._F[: self.n_chosen], self._sums()
        precision = gram + self._structure.noise(self._theta) * np.eye(len(gram))
        return cho_solve((factor(precision), True), cross, check_finite=False) @ F

    def held_losses(self) -> np.ndarray:
        """Negative log density (h,) of held-out targets, with variances scaled to be right on average."""
        s, A, (gram, cross) = self._structure.noise(self._theta), self._F[: self.n_chosen, self._n :], self._sums()
        LB = factor_lower(add_diagonal(gram / s, 1.0))
        half = solve_lower(LB, A + 0.0)
        c = solve_lower(LB, cross / s)
        prior = self._structure.prior_variance(self._theta, self._X[self._n :, :])
        latent = np.maximum(to_host(prior - squares(A, 0)), 0.0) + to_host(squares(half, 0))
        error = (self._truth - to_host(half.T @ c)) ** 2 + self._scatter
        variance = latent + s
        variance = variance * float(np.mean(error / variance))
        return 0.5 * (np.log(2.0 * np.pi * variance) + error / variance)

    def _sums(self) -> tuple[Array, Array]:
        """F W F' (m, m) and F W y (m,) over the rows that are not held out."""
        m, old, F = self.n_chosen, self._summed, self._F[: self.n_chosen, : self._n]
        new = F[old:, :] if self._scale is None else F[old:, :] * self._scale[None, :]
        rows = product(new, F.T)
        self._gram[old:m, :m] = rows
        self._gram[:old, old:m] = rows[:, :old].T
        self._cross[old:m] = F[old:, :] @ self._target
        self._summed = m
        return self._gram[:m, :m], self._cross[:m]


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
    if n_vectors >= len(rows):
        return all_rows(len(rows))
    growing, rng = GrowingFactor(structure, theta, rows, n_vectors), np.random.default_rng(0)
    relevant: list[np.ndarray] = []
    root = np.sqrt(rows.weight)
    residual = root * rows.y
    while not relevant or (growing.n_chosen < n_vectors and not growing.is_complete):
        room = min(_BLOCK, n_vectors - growing.n_chosen)
        block, by_relevance = _draw_block(growing.left, residual, room, relevant_share, rng)
        growing.add(block)
        relevant.append(by_relevance)
        if relevant_share > 0 and growing.n_chosen < n_vectors:
            residual = root * (rows.y - growing.fit_targets())
    return Pivots(growing.chosen, np.concatenate(relevant))


def _draw_block(
    left: np.ndarray, residual: np.ndarray, count: int, relevant_share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """At most `count` rows (k,), and which of them were drawn by relevance (k,)."""
    gain = left * residual**2
    n_relevant = int(relevant_share * count) if gain.max() > 0 else 0
    covering = _draw(left, count - n_relevant, rng)
    gain[covering] = 0.0
    relevant = _draw(gain, n_relevant, rng) if gain.max() > 0 else np.empty(0, dtype=int)
    return np.concatenate([covering, relevant]), np.arange(len(covering) + len(relevant)) >= len(covering)


def _draw(left: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` different rows, drawn with probability proportional to `left` (n,)."""
    total = left.cumsum()
    drawn = np.searchsorted(total, rng.random(count) * total[-1], side="right")
    return np.unique(np.minimum(drawn, len(left) - 1))


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
    growing, rng = GrowingFactor(structure, theta, rows, most, n_held, place), np.random.default_rng(0)
    held = rows.weight[len(rows) - n_held :]
    share, tried = held / held.sum(), list[np.ndarray]()
    densities: list[tuple[int, float]] = []
    size = _BLOCK
    while True:
        size = min(size, most)
        growing.cover(size, rng)
        tried.append(growing.held_losses())
        densities.append((growing.n_chosen, -float(share @ tried[-1])))
        stop = tell(*densities[-1])
        enough = _first_enough(tried, share)
        if enough is not None and growing.n_chosen >= least:
            return Growth(growing.chosen[: densities[enough][0]], tuple(densities), False)
        limited = stop or growing.n_chosen >= most
        if limited or growing.is_complete:
            return Growth(growing.chosen, tuple(densities), limited)
        size *= 2


def _first_enough(tried: list[np.ndarray], share: np.ndarray) -> int | None:
    """Return the first stage that the last one hardly gains over; None where it gains over the one before it."""
    little = [likely_gain(losses, tried[-1], share) < GAIN_NATS for losses in tried[:-1]]
    return little.index(True) if little and little[-1] else None


def likely_gain(before: np.ndarray, after: np.ndarray, share: np.ndarray) -> float:
    """Return the mean of what losses (h,) become less, with shares (h,), and one standard error."""
    gain = before - after
    mean = float(share @ gain)
    return mean + float(np.sqrt(share @ (gain - mean) ** 2 / len(gain)))
