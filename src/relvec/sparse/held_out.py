"""How many functions: searches in folds at a ladder of prices, judged by the density of the rows that each leaves out.

All of the search is inside each fold, since a support that was chosen with a row is not surprised by it. The folds go
down the ladder together, price by price (`Comparison`), and turn back when their rows have lost density for some time:
what a crowded model costs is not spent. Rows with equal or nearly equal inputs, and those of a group, are in one fold.
Large tables have one fold. `choose_level` takes the price of least loss at the rows left out, or one of fewer functions
that loses next to nothing; `search_like` finds the model of all rows at that price, which has the number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.design import DenseDesign
from relvec.gaussian_process.held_out import FEW_ROWS, GROUPED_ERRORS
from relvec.gaussian_process.rows import (
    COMPARED_ROWS,
    MOST_HELD_ROWS,
    NEAR_COPY,
    Rows,
    join_labels,
    near_groups,
    rounded_hash,
    standardise_inputs,
)
from relvec.inference.error_bars import HeldOut
from relvec.inference.tails import log_density
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.runtime.progress import report
from relvec.solvers.gaussian.model import GaussianModel
from relvec.solvers.loop import Problem, Start
from relvec.solvers.price import PRICES_NATS, Ladder, continue_from, sharpen
from relvec.solvers.stepwise import count_functions

VERY_FEW_ROWS = 10  # left out one by one that say nothing of the error bars of a constant, which are known
FOLDS = ((500, 10), (1500, 5))  # of tables of up to so many rows
ONE_FOLD_SHARE = 0.2  # of the rows of larger ones in their only fold
MAX_SHARE = 1.0 / 3.0  # functions, of the rows: a model of more explains the noise too
MAX_FUNCTIONS = 300  # where no number is given
NOISE_START, NOISE_FLOOR = 0.1, 1e-8  # of the target's variance
_AT_FLOOR = 10.0  # noise variances below so many times the floor explain the noise too
_TOO_SURE, MEANINGLESS = 10.0, 100.0  # times larger squared errors than predicted, at the floor and anywhere
_PATIENCE, _LOST_NATS = 3, 0.02  # prices beyond the best, and nats a row lost, after which folds turn back
LIKE_FOLDS = 0.75  # of the functions that the folds have, at least, in the model of all rows
_MOST_LIKE_FOLDS = 2.0  # times as many, and half a function, at most: error bars are those of the folds
_FEW_PLACES, _REPEATS = 8, 5  # fewer distinct inputs, with more targets each: their scatter tells of other targets
_TIE_ERRORS, _TIE_NATS = 0.25, 0.02  # a smaller model may lose so many standard errors, and so much a row
_FEW_ERRORS = 1.0  # standard errors that a smaller model may lose at few rows or groups


@dataclass(frozen=True, eq=False)
class Level:
    """The models of the folds at one price.

    Attributes
    ----------
    price : nats a function; inf for the constant alone.
    n_functions : the mean number of functions in the folds.
    loss : mean negative log density of held-out targets, at the best common factor of variances and the best tail.
    losses : (n,) those of each row.
    index, variance : (n,) the numbers of the held-out rows, and the variances of targets that were predicted of them.
    held : what was predicted of the rows.
    refused : whether held-out errors are so large that the variances mean nothing.
    models : of the folds, with the precisions of weights in the units of X and the targets.
    """

    price: float
    n_functions: float
    loss: float
    losses: np.ndarray
    index: np.ndarray
    variance: np.ndarray
    held: HeldOut
    refused: bool
    models: list[Start]


@dataclass(frozen=True, eq=False)
class Fold:
    """The search without some rows, and what it has to predict: their columns, targets, weights, scatter, inputs."""

    ladder: Ladder
    unit: float
    index: np.ndarray
    Phi: np.ndarray
    rows: Rows


def group_rows(rows: Rows) -> np.ndarray:
    """Return the numbers (n,) of groups of rows that are held out together, in the order of a hash of their inputs."""
    hashed = rounded_hash(rows.X, rows.weight, NEAR_COPY)
    _, group = np.unique(hashed, return_inverse=True)
    if len(rows) <= COMPARED_ROWS:
        group = join_labels(group, near_groups(standardise_inputs(rows.X, rows.weight)[0]))
    if rows.group is not None:
        group = join_labels(group, rows.group)
    least = np.full(group.max(initial=-1) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(least, group, hashed)
    return np.argsort(np.argsort(least, kind="stable"))[group]


def make_folds(group: np.ndarray) -> list[np.ndarray]:
    """Return the rows (m,) that each fold leaves out, those of a group (n,) together; none where all are one group.

    >>> X = np.repeat(np.arange(50.0), 2)[:, None] + np.tile([0.0, 1e-6], 50)[:, None]
    >>> folds = make_folds(group_rows(Rows(X, np.zeros(100), np.ones(100), np.zeros(100))))
    >>> len(folds), all(set(fold // 2 * 2) <= set(fold) for fold in folds)
    (10, True)
    """
    n = len(group)
    place = np.cumsum(np.bincount(group)) / n  # groups in the order of their hash, as shares of the rows
    if len(place) == 1:
        return []
    folds = next((folds for most, folds in FOLDS if n <= most), 1)
    if folds == 1:
        return [np.flatnonzero(place[group] <= max(min(ONE_FOLD_SHARE, MOST_HELD_ROWS / n), place[0]))]
    fold = np.minimum((place[group] * folds).astype(int), folds - 1)
    return [found for k in range(folds) if len(found := np.flatnonzero(fold == k)) and len(found) < n]


def make_problem(
    Phi: np.ndarray, rows: Rows, noise_variance: float | None = None, clock: Clock = NO_LIMIT
) -> tuple[Problem, float]:
    """Return the problem of columns Phi (n, M), the last of ones, and rows, and the unit of its target.

    A noise variance that is given is in the units of the targets.
    """
    root, n = np.sqrt(rows.weight), rows.total
    unit = float(np.sqrt((rows.weight @ rows.y**2 + rows.scatter.sum()) / n)) or 1.0
    variance = max(rows.variance / unit**2, NOISE_FLOOR)
    problem = Problem(
        design=DenseDesign(np.multiply(Phi, root[:, None], order="F"), overwrite=True),
        target=np.ascontiguousarray(rows.y * root / unit),
        target_norm2_outside=float(rows.scatter.sum()) / unit**2,
        n_samples=n,
        noise_variance=None if noise_variance is None else noise_variance / unit**2,
        noise_start=NOISE_START * variance,
        noise_floor=NOISE_FLOOR * variance,
        order=np.arange(Phi.shape[1]),
        bias=Phi.shape[1] - 1,
        tol=1e-3,
        clock=clock,
    )
    return problem, unit


class Comparison:
    """The searches of one dictionary, in folds."""

    def __init__(
        self, Phi: np.ndarray, rows: Rows, most: int, noise_variance: float | None = None, clock: Clock = NO_LIMIT
    ):
        self.rows, self.folds, self.clock = rows, list[Fold](), clock
        everything = np.arange(len(rows))
        self.group = group_rows(rows)
        repeated = rows.group is None and len(rows) < _FEW_PLACES and rows.total > _REPEATS * len(rows)
        for index in ([] if repeated else make_folds(self.group)) or [everything]:
            kept = np.delete(everything, index) if len(index) < len(rows) else everything
            problem, unit = make_problem(Phi[kept], rows.take(kept), noise_variance, clock)
            ladder = Ladder(problem, most_functions(problem, most))
            self.folds.append(Fold(ladder, unit, index, Phi[index], rows.take(index)))

    def run(self, prices: tuple[float, ...] = PRICES_NATS) -> list[Level]:
        """Return the levels that were reached, the constant alone first."""
        constant = self._level(np.inf, [fold.ladder.model for fold in self.folds])
        reached = self._descend(prices)
        levels = [self._level(price, [fold.ladder.ascend(price) for fold in self.folds]) for price in reached[::-1]]
        return [constant, *levels[::-1]]

    def _descend(self, prices: tuple[float, ...]) -> tuple[float, ...]:
        """Go down the ladder as far as it pays, and return the prices that were reached."""
        losses: list[float] = []
        for price in prices:
            models = [fold.ladder.descend(price) for fold in self.folds]
            losses.append(self._level(price, models).loss)
            size = round(float(np.mean([count_functions(model) for model in models])))
            if report(size, fraction=len(losses) / len(prices)):
                self.clock.stop()
            if has_turned(losses, _PATIENCE, _LOST_NATS) or any(fold.ladder.is_full for fold in self.folds):
                break
            if self.clock.up(f"prices below {price} nats"):
                break
        return prices[: len(losses)]

    def _level(self, price: float, models: list[GaussianModel]) -> Level:
        found = [_predict(fold, model) for fold, model in zip(self.folds, models)]
        mean, variance, scatter = map(np.concatenate, zip(*found))
        index = np.concatenate([fold.index for fold in self.folds])
        rows = self.rows.take(index)
        errors = (rows.y - mean) ** 2 + scatter
        labels = np.unique(self.group[index], return_inverse=True)[1]
        held = HeldOut(np.column_stack([rows.X, mean]), errors / variance, rows.weight, labels)
        factor, tail = held.scale
        losses = -log_density(errors, factor * variance, tail)
        refused = any(model.core.beta * model.problem.noise_floor * _AT_FLOOR > 1.0 for model in models)
        refused = refused and factor > _TOO_SURE and not models[0].problem.fixed_noise
        refused |= factor > MEANINGLESS
        size = float(np.mean([count_functions(model) for model in models]))
        starts = [_in_units(fold, model) for fold, model in zip(self.folds, models)]
        loss = float(rows.weight @ losses / rows.total)
        return Level(price, size, loss, losses, index, variance, held, refused, starts)


def _predict(fold: Fold, model: GaussianModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance (m,) of single targets at the rows of a fold, and their scatter about their means."""
    p, scale = model.full_posterior, model.problem.design.scale[model.active]
    Phi = fold.Phi[:, model.active] / scale * fold.unit
    spread = np.einsum("ij,ij->i", *[Phi @ p.root] * 2)
    return Phi @ p.mean, spread + fold.unit**2 / p.beta, fold.rows.scatter / fold.rows.weight


def _in_units(fold: Fold, model: GaussianModel) -> Start:
    p, scale = model.posterior, model.problem.design.scale[model.active]
    return Start(model.active, p.alpha * (scale / fold.unit) ** 2, p.beta / fold.unit**2)


def has_turned(losses: list[float], patience: int, nats: float) -> bool:
    """Tell whether held-out losses, price by price, have been rising for so many prices, and by more than some nats."""
    best = int(np.argmin(losses))
    return len(losses) - 1 - best >= patience and losses[-1] > losses[best] + nats


def most_functions(problem: Problem, most: int) -> int:
    """Return how many functions a model of a problem may have."""
    return max(min(most, int(MAX_SHARE * problem.n_samples)), 1)


def choose_level(levels: list[Level]) -> int:
    """Return the level of least loss, or a smaller model's that loses next to nothing (both are in one order).

    Losses of two levels are compared row by row.
    """
    judged = [i for i, level in enumerate(levels) if not level.refused] or [0]
    best = min(judged, key=lambda i: levels[i].loss)
    held = levels[best].held
    w = held.weights
    grouped, few = 2 * held.n_groups <= len(w), held.n_groups <= FEW_ROWS
    errors, most = (GROUPED_ERRORS, np.inf) if grouped else (_FEW_ERRORS, np.inf) if few else (_TIE_ERRORS, _TIE_NATS)
    for i in sorted(judged, key=lambda i: levels[i].n_functions):
        if levels[i].n_functions >= levels[best].n_functions:
            break
        more = levels[i].losses - levels[best].losses
        lost = w @ more / w.sum()
        error = np.linalg.norm(np.bincount(held.labels, w * (more - lost))) / w.sum()
        if lost < min(errors * error, most):
            return i
    return best


def search_like(problem: Problem, unit: float, level: Level, most: int, prices: tuple[float, ...]) -> GaussianModel:
    """Return the model of all rows at the price of a level, found as those of the folds were: down the ladder and back.

    Where it has far fewer functions than they, an end of the search that they did not meet, that of a lower price. From
    the model of a single fold the search goes on, and from that of the first where no time is left.
    """
    most = most_functions(problem, most)
    if level.price == np.inf:
        return sharpen(Ladder(problem, most).model)
    if len(level.models) == 1 or problem.clock.left() <= 0.0:
        start = level.models[0]
        scale = problem.design.scale[start.active]
        beta = start.beta * unit**2 if problem.noise_variance is None else 1.0 / problem.noise_variance
        own = Start(start.active, start.alpha * (unit / scale) ** 2, beta)
        return sharpen(continue_from(problem, own, level.price, most))
    return sharpen(_go_down_and_back(Ladder(problem, most), level, prices))


def _go_down_and_back(ladder: Ladder, level: Level, prices: tuple[float, ...]) -> GaussianModel:
    """Return the model at the price of a level, found on the way back up.

    Where it has far fewer functions than the folds have, that of a lower price; where it has far more, that of a higher
    one, or the constant alone.
    """
    constant = ladder.model
    reached: list[float] = []
    for price in prices:
        ladder.descend(price)
        reached.append(price)
        if ladder.is_full and price <= level.price:
            break
    found, allowed = ladder.model, _MOST_LIKE_FOLDS * level.n_functions + 0.5
    for price in reached[::-1]:
        model = ladder.ascend(price)
        enough = price <= level.price and count_functions(model) >= LIKE_FOLDS * level.n_functions
        if not enough and count_functions(found) <= allowed:
            break
        found = model
    return found if count_functions(found) <= allowed else constant
