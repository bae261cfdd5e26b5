"""Linear models held against a constant and a ridge, by the density of rows that took no part.

A search among columns is repeated without the rows of each fold, those that nearly repeat each other and those of a
group in one (`relvec.sparse.held_out`), and so are a constant and a ridge, which has one precision for all columns.
What predicts the rows left out best is the model, `judge`; how far these were off tells its error bars, which are
Student t where errors are heavier than normal ones. Of a large table the search is not repeated: the columns that it
found are fitted without some rows. To a constant and a ridge rows that nearly repeat each other count as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.held_out import FEW_ROWS, leads
from relvec.gaussian_process.rows import Rows, far_exponent, merge_rows
from relvec.inference.error_bars import HeldOut, known_error_bars
from relvec.inference.evidence import Posterior, gaussian
from relvec.inference.tails import TAIL_GAIN, least_tail, log_density
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.solvers.loop import Problem, State
from relvec.sparse.held_out import MEANINGLESS, VERY_FEW_ROWS, group_rows, make_folds, make_problem

FEW_PLACES = 50  # fewer distinct inputs, with more than two targets each: no row left out stands for new ones
LEAST_ROWS = 3  # of which one can be left out
SEARCHED_NUMBERS = 500_000  # of X: of more the search is not repeated
LEAST_NOISE_SHARE = 0.5  # of the noise variances of the folds, in a model that is one of theirs
MOST_RIDGE_COLUMNS = 2000  # whose covariance takes 32 MB
_RATIOS = np.logspace(-6.0, 8.0, 85)  # of the precisions of noise and slopes that are tried, for columns of length one

Search = Callable[[Problem], State]


@dataclass(frozen=True, eq=False)
class Baseline:
    """A constant or a ridge of all rows: its atoms (k,), and their posterior in the units of a problem.

    scale, offset : (d + 1,) lengths of the centred columns, and their means; those of the constant are last.
    """

    atoms: np.ndarray
    posterior: Posterior
    unit: float
    scale: np.ndarray
    offset: np.ndarray
    n_samples: float


@dataclass(frozen=True, eq=False)
class Verdict:
    """The baseline that takes the place of a model, if one does, the factor of variances and the tail of targets."""

    baseline: Baseline | None = None
    factor: float = 1.0
    tail: float = 0.0


AS_IT_IS = Verdict()


def judge(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray, groups: np.ndarray | None, search: Search,
    found: np.ndarray, noise: float, most_columns: int | None = None, seconds: float = 0.0, clock: Clock = NO_LIMIT,
) -> Verdict:  # fmt: skip
    """Return what predicts rows that took no part.

    Parameters
    ----------
    X, y, weights, groups : (n, d), (n,), (n,) rows, and numbers (n,) of those that are held out together, or None.
    search : for the model of a problem whose last atom is the constant.
    found, noise : columns and the noise variance that it found on all rows. Where that is far below those of the folds,
        it is a model that they say nothing of.
    most_columns : that a model may have, where that was asked for: a ridge has them all.
    seconds : that the search took; where the clock has no time for so many in each fold, it is not repeated.
    """
    rows = merge_rows(X, y, weights, groups)
    far = bool(far_exponent(X).any())  # squares of such inputs have no digits
    copied = len(rows) < FEW_PLACES and rows.total > 2.0 * len(rows)  # new rows will be copies of these
    folds = [] if far or copied or len(rows) < LEAST_ROWS else make_folds(group := group_rows(rows))
    if not folds:
        return AS_IT_IS
    large = X.size > SEARCHED_NUMBERS or clock.left() < seconds * (len(folds) + 1)
    rows = replace(rows, X=rows.X[:, found[found < rows.X.shape[1]]]) if large else rows
    kinds: dict[str, Callable[[_Fold], _Predicted]] = {
        "search": lambda fold: fold.find(search),
        "constant": _Fold.level,
    }
    if not large and rows.X.shape[1] <= min(MOST_RIDGE_COLUMNS, most_columns or MOST_RIDGE_COLUMNS):
        kinds["ridge"] = _Fold.tilt
    copies = group if rows.group is None else group_rows(replace(rows, group=None))
    once = replace(rows, weight=rows.weight / np.bincount(copies)[copies])
    each = [(_Fold.of(rows, index), _Fold.of(once, index)) for index in folds]
    held_rows, labels = rows.take(np.concatenate(folds)), group[np.concatenate(folds)]
    held = {
        name: _Held.of(held_rows, labels, [predict(fold[name != "search"]) for fold in each])
        for name, predict in kinds.items()
    }
    name = "constant"
    if "ridge" in held and held["ridge"].is_sane and held["ridge"].is_ahead_of(held[name]):
        name = "ridge"
    own = held["search"]
    if own.is_sane and noise > LEAST_NOISE_SHARE * own.noise and not held[name].takes_the_place_of(own):
        return own.verdict(None)
    return held[name].verdict(fit_baseline(once, name == "ridge", held[name].ratio))


@dataclass(frozen=True, eq=False)
class _Held:
    """What was predicted of rows left out: errors in predicted variances, and log densities with the best of these."""

    errors: HeldOut
    plain: np.ndarray
    density: np.ndarray
    # medians over the folds of the noise variance, and of the ratio of its precision to that of the first weight
    noise: float
    ratio: float

    @classmethod
    def of(cls, rows: Rows, labels: np.ndarray, found: list[_Predicted]) -> _Held:
        mean, variance = (np.concatenate([getattr(fold, name) for fold in found]) for name in ("mean", "variance"))
        noise, ratio = (np.median([getattr(fold, name) for fold in found]) for name in ("noise", "ratio"))
        squares = (rows.y - mean) ** 2 + rows.scatter / rows.weight
        errors = HeldOut(mean[:, None], squares / variance, rows.weight, np.unique(labels, return_inverse=True)[1])
        factor, tail = errors.scale
        plain, density = (log_density(squares, f * variance, t) for f, t in ((1.0, 0.0), (factor, tail)))
        return cls(errors, plain, density, float(noise), float(ratio))

    @property
    def is_sane(self) -> bool:
        """Whether errors are of the size of the predicted variances, so that a factor of these means something."""
        return self.errors.scale[0] <= MEANINGLESS

    def is_ahead_of(self, other: _Held) -> bool:
        """Tell whether this model has more density than a simpler one; of few rows or groups, clearly."""
        if self.errors.n_groups <= FEW_ROWS:
            return not other.takes_the_place_of(self)
        return bool(self.errors.weights @ (self.density - other.density) > 0.0)

    def takes_the_place_of(self, other: _Held) -> bool:
        """Tell whether this simpler model is ahead of another, or not clearly behind where rows are few or grouped."""
        return leads(self.density - other.density, self.errors.weights, self.errors.labels)

    def verdict(self, baseline: Baseline | None) -> Verdict:
        """Return the verdict; variances are as the posterior has them where rows left out gain little by others."""
        gain = self.errors.weights @ (self.density - self.plain) / self.errors.weights.mean()
        if gain <= TAIL_GAIN and self.errors.n_groups > FEW_ROWS:
            return Verdict(baseline, 1.0, least_tail(self.errors.n_groups))
        factor, tail = self.errors.scale
        if self.errors.n_groups <= FEW_ROWS:  # they say little of error bars
            if baseline and len(baseline.atoms) == 1 and self.errors.n_groups <= VERY_FEW_ROWS:
                known = known_error_bars(self.errors.n_groups)
                return Verdict(baseline, known.factor, known.tail)
            factor = max(factor, 1.0)
        return Verdict(baseline, factor, tail)


@dataclass(frozen=True, eq=False)
class _Predicted:
    """Means and variances (m,) of the targets of a fold, by a model of this noise variance and ratio of precisions."""

    mean: np.ndarray
    variance: np.ndarray
    noise: float
    ratio: float


@dataclass(frozen=True, eq=False)
class _Fold:
    """The problem without some rows, in units of its target, and the columns of these, scaled as in it."""

    problem: Problem
    unit: float
    Phi: np.ndarray

    @classmethod
    def of(cls, rows: Rows, index: np.ndarray) -> _Fold:
        """Return the problem of all rows but those of an index (m,), its columns centred."""
        few, held = rows.take(np.setdiff1d(np.arange(len(rows)), index)), rows.take(index)
        problem, unit, centre = _centre(few)
        scale = np.where(problem.design.scale > 0.0, problem.design.scale, np.inf)
        return cls(problem, unit, _with_constant(held.X - centre) / scale)

    def find(self, search: Search) -> _Predicted:
        """Predict the rows left out by the model that a search finds."""
        state = search(self.problem)
        return self._predict(self.Phi[:, state.active], state.posterior)

    def level(self) -> _Predicted:
        """Predict the rows left out by a constant."""
        p = fit_ridge(self.problem.design.columns([-1]), self.problem)
        return self._predict(self.Phi[:, -1:], p)

    def tilt(self) -> _Predicted:
        """Predict the rows left out by a ridge, along the directions in which the others differ."""
        A = self.problem.design.columns(np.arange(self.Phi.shape[1] - 1))
        V = np.linalg.svd(A, full_matrices=False)[2].T
        p = fit_ridge(np.column_stack([A @ V, self.problem.design.columns([-1])]), self.problem)
        along = self.Phi[:, :-1] @ V
        beyond = np.maximum(np.sum(self.Phi[:, :-1] ** 2, axis=1) - np.sum(along**2, axis=1), 0.0)
        return self._predict(np.column_stack([along, self.Phi[:, -1]]), p, beyond / p.alpha[0])

    def _predict(self, Phi: np.ndarray, p: Posterior, more: np.ndarray | float = 0.0) -> _Predicted:
        """Predict the targets of columns Phi (m, k), whose variances are larger by ``more``."""
        variance = np.sum((Phi @ p.root) ** 2, axis=1) + 1.0 / p.beta + more
        ratio = float(p.beta / p.alpha[0]) if len(p.alpha) else 1.0
        return _Predicted(self.unit * (Phi @ p.mean), self.unit**2 * variance, self.unit**2 / float(p.beta), ratio)


def _with_constant(X: np.ndarray) -> np.ndarray:
    return np.column_stack([X, np.ones(len(X))])


def _centre(rows: Rows) -> tuple[Problem, float, np.ndarray]:
    """Return the problem of rows with centred columns and a constant, the unit of its target, and the means (d,)."""
    centre = rows.weight @ rows.X / rows.total
    return *make_problem(_with_constant(rows.X - centre), rows), centre


def fit_baseline(rows: Rows, slopes: bool, ratio: float) -> Baseline:
    """Fit a constant, or a ridge with a ratio of the precisions of noise and slopes."""
    problem, unit, centre = _centre(rows)
    atoms = np.flatnonzero(problem.design.scale)[0 if slopes else -1 :]
    p = fit_ridge(problem.design.columns(atoms), problem, ratio)
    return Baseline(atoms, p, unit, problem.design.scale, np.append(centre, 0.0), problem.n_samples)


def fit_ridge(Phi: np.ndarray, problem: Problem, ratio: float | None = None) -> Posterior:
    """Return the posterior of columns Phi (n, k), the last of which is the constant, with one precision for the others.

    The others, which may be none, are orthogonal to the constant. The ratio of the precisions of noise and slopes is
    given, or maximises the evidence.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3))
    >>> rows = merge_rows(X, X @ [1.0, 1.0, 1.0] + 0.1 * rng.normal(size=50))
    >>> problem, unit, _ = _centre(rows)
    >>> p = fit_ridge(problem.design.matrix, problem)
    >>> bool(0.05 < unit / np.sqrt(p.beta) < 0.2), len(np.unique(p.alpha))
    (True, 2)
    """
    A, constant, t, N = Phi[:, :-1], Phi[:, -1], problem.target, problem.n_samples
    level = float(constant @ t)
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    u = U.T @ (t - level * constant)
    outside = max(float(t @ t) - level**2 - float(u @ u), 0.0) + problem.target_norm2_outside
    free = max(N - 1.0, 0.5 * N)  # without the constant's
    ratios = _RATIOS if ratio is None else np.array([ratio])
    shrink = 1.0 + np.outer(ratios, s**2)
    noise = np.maximum((outside + np.sum(u**2 / shrink, axis=1)) / free, problem.noise_floor)
    value = -0.5 * (free * np.log(noise) + (outside + np.sum(u**2 / shrink, axis=1)) / noise)
    best = int(np.argmax(value - 0.5 * np.sum(np.log(shrink), axis=1)))
    beta = 1.0 / float(noise[best])
    alpha = np.full(Phi.shape[1], beta / ratios[best])
    alpha[-1] = 1.0 / max(level**2, 1.0 / beta)
    return gaussian(Phi, t, problem.target_norm2_outside, N, alpha, beta)
