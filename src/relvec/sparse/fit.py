"""A sparse model that predicts: widths learned by a process, functions chosen by evidence, their number by other rows.

`fit_sparse` takes arrays and gives a record. A skewed target is modelled on the scale on which held-out rows lose less.
What is given is taken as it is: with ``basis`` no widths are learned, with ``price`` no number of functions is chosen,
and held-out rows then set the error bars alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from relvec.basis import Basis, centres_of, kernels_of
from relvec.gaussian_process.rows import Rows, far_exponent, merge_rows, without_copies
from relvec.gaussian_process.target import Losses, choose_scale, measure_losses
from relvec.inference.error_bars import ErrorBars, HeldOut, Reach, known_error_bars, learn_error_bars, learn_reach
from relvec.inference.evidence import Posterior
from relvec.inference.predictive.calibrated import CalibratedPredictor
from relvec.inference.predictive.linear import LinearPredictor
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.runtime.clock import Clock
from relvec.runtime.progress import report
from relvec.solvers.gaussian.model import GaussianModel
from relvec.solvers.loop import Problem
from relvec.solvers.price import PRICES_NATS
from relvec.solvers.stepwise import Stepwise, count_functions
from relvec.sparse.dictionary import MAX_KERNELS, LearnedWidths, count_kernels, dictionaries, learn_widths
from relvec.sparse.held_out import (
    MAX_FUNCTIONS,
    VERY_FEW_ROWS,
    Comparison,
    Level,
    choose_level,
    make_problem,
    search_like,
)

_WIDTHS_SHARE = 0.3  # of the work that is reported, and of the time that is left
_COMPARED_SHARE = 0.7  # of the time that is left then, for each dictionary
# A value of a function at a row, computed, copied for the folds and for the problem of all rows, and searched a little
_VALUE_SECONDS, _VALUE_BYTES = 1.2e-7, 45.0
_JUDGED = 2  # dictionaries that scales of the target are compared by: columns alone, and the first of learned widths
_FEWEST_ROWS = 200  # however little time there is


@dataclass(frozen=True, eq=False)
class SparseFit:
    """A sparse model of one output.

    Attributes
    ----------
    basis : bound dictionary of M functions, the constant last.
    scale : of the target, on which all of the model is.
    log_slope : the sum of the logarithms of its slopes at the targets.
    learned : the widths that a process learned; None where the dictionary was given.
    problem : the problem that was solved, in scaled units; its columns and targets belong to merged rows.
    unit : of the target.
    active : (k,) the functions kept, ascending.
    posterior : over their weights, in scaled units.
    price : nats that a function cost; inf where the constant alone predicts best.
    levels : held-out density and size at each price that was tried.
    largest_gain : nats that a single move would still gain at that price.
    n_steps : evaluations of evidences to learn widths, and prices tried.
    cut : stages that the time limit left out; `stopped`, whether a callback asked for it.
    bars, reach : of the error bars.
    """

    basis: Basis
    scale: Scale
    log_slope: float
    learned: tuple[LearnedWidths, ...] | None
    problem: Problem
    unit: float
    active: np.ndarray
    posterior: Posterior
    price: float
    levels: tuple[Level, ...]
    largest_gain: float
    n_steps: int
    cut: tuple[str, ...]
    stopped: bool
    bars: ErrorBars
    reach: Reach

    @property
    def predictor(self) -> CalibratedPredictor:
        """Return what predicts: T01's function with honest error bars."""
        p, scale = self.posterior, self.problem.design.scale[self.active]
        function = LinearPredictor(
            basis=self.basis.take(self.active),
            scale=scale,
            unit=self.unit,
            mean=p.mean,
            root=p.root,
            noise=1.0 / p.beta,
        )
        return CalibratedPredictor(function=function, bars=self.bars, reach=self.reach, scale=self.scale)

    @property
    def n_functions(self) -> int:
        """Return the number of functions, the constant not counted."""
        return int(np.count_nonzero(self.active != self.problem.bias))

    @property
    def log_evidence(self) -> float:
        """Return the log evidence in the units of the target."""
        return float(self.posterior.log_evidence - self.problem.n_samples * np.log(self.unit)) + self.log_slope


def fit_sparse(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, groups: np.ndarray | None = None, *,
    basis: Basis | None = None, learned: tuple[LearnedWidths, ...] | None = None, target: Scale | None = None,
    price: float | None = None, max_functions: int | None = None, noise_variance: float | None = None,
    clock: Clock | None = None, memory: float = np.inf,
) -> SparseFit:  # fmt: skip
    """Return the sparse model of rows X (n, d) and targets y (n,).

    Parameters
    ----------
    weights : (n,) frequencies of the rows; one each where not given.
    groups : (n,) numbers of the groups of rows that are in one fold; each row is on its own where not given.
    basis : bound dictionary, a constant last; where not given several are compared whose widths a process learned.
    learned : such widths, where they were learned before.
    target : the scale of the target; chosen by held-out density where not given, the target's own where the dictionary
        or the noise variance is given.
    price : nats a function, one of `relvec.solvers.price.PRICES_NATS`; chosen by held-out density where not given.
    max_functions : most functions, the constant not counted; 300 and a third of the rows where not given.
    noise_variance : in the units of the targets; learned where not given.
    clock : of learning widths and of going down the ladder of prices; the first rows by a hash are fitted where there
        is no time for all.
    memory : bytes for the values of functions, of which fewer are candidates where there is little.

    Examples
    --------
    >>> X = np.linspace(-10.0, 10.0, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.05 * np.random.default_rng(0).standard_normal(100)
    >>> model = fit_sparse(X, y)
    >>> mean, variance = model.predictor.moments(np.array([[0.5], [200.0]]), True, True)
    >>> model.n_functions < 15, bool(abs(mean[0] - 0.959) < 0.05), bool(variance[1] >= y.var())
    (True, True, True)
    """
    clock = Clock() if clock is None else clock
    table = _Table(X, y, weights, groups)
    most = MAX_FUNCTIONS if max_functions is None else max_functions
    prices = PRICES_NATS if price is None else tuple(p for p in PRICES_NATS if p >= price)
    asked = _Asked(basis, learned, most, prices, noise_variance, memory)
    if basis is not None or noise_variance is not None:
        target = AS_IT_IS
    search = _choose_scale(table, asked, clock) if target is None else _Search(target, table, asked, clock)
    search.compare(clock)
    chosen, level = _choose(search.compared, price)
    rows, learned = search.rows, search.learned
    problem, unit = make_problem(chosen.Phi, rows, noise_variance, clock)
    model = search_like(problem, unit, level, most, tuple(other.price for other in chosen.levels[1:]))
    model = model.keep(np.argsort(model.active, kind="stable"))
    if not clock.cut:
        clock.up("the last search")
    kept = centres_of(chosen.basis.take(model.active)) if len(model.active) else np.zeros((0, X.shape[1]))
    widths = learned[0].widths if learned else _widths_of(chosen.basis, rows)
    return SparseFit(
        basis=chosen.basis, scale=search.scale, log_slope=float(rows.weight @ search.slopes), learned=learned,
        problem=problem, unit=unit, active=model.active, posterior=model.full_posterior, price=level.price,
        levels=tuple(chosen.levels), largest_gain=_largest_gain(model, level.price),
        n_steps=search.steps + sum(len(each.levels) for each in search.compared), cut=tuple(clock.cut),
        stopped=clock.stopped, bars=_learn_bars(level.held, count_functions(model)),
        reach=learn_reach(kept, widths, rows.X, rows.weight, rows.variance),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows X (n, d), targets y (n,), weights and groups (n,) of a fit."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    groups: np.ndarray | None

    def on_scale(self, scale: Scale) -> Rows:
        """Return the merged rows, with targets on a scale; rows that were copied with their targets are one."""
        u = scale.forward(self.y)
        return without_copies(merge_rows(self.X, u, self.weights, self.groups), self.X, u, self.weights)

    def propose_scale(self, clock: Clock) -> Scale:
        """Return the scale of the target that suits a process on few rows."""
        used = np.arange(len(self.y)) if self.weights is None else np.flatnonzero(self.weights > 0.0)
        weights, groups = (None if own is None else own[used] for own in (self.weights, self.groups))
        y = self.y[used]
        exponent = int(far_exponent(y))
        return choose_scale(self.X[used], np.ldexp(y, -exponent), weights, clock, groups).in_units(-exponent)

    def slopes(self, scale: Scale) -> np.ndarray:
        """Return the mean logarithm of du/dy of the targets of each merged row (m,)."""
        return merge_rows(self.X, scale.log_slope(self.y), self.weights).y


@dataclass(frozen=True, eq=False)
class _Asked:
    """What a fit is asked for: see `fit_sparse`."""

    basis: Basis | None
    learned: tuple[LearnedWidths, ...] | None
    most: int
    prices: tuple[float, ...]
    noise_variance: float | None
    memory: float


@dataclass(frozen=True, eq=False)
class _Compared:
    """A dictionary, its columns (n, M) at the merged rows, and the levels of its models."""

    basis: Basis
    Phi: np.ndarray
    levels: list[Level]


class _Search:
    """The dictionaries for targets on one scale, and the models of those that were compared so far."""

    def __init__(self, scale: Scale, table: _Table, asked: _Asked, clock: Clock):
        self.scale, self.asked, self.learned, self.steps = scale, asked, asked.learned, 0
        self.compared: list[_Compared] = []
        rows = table.on_scale(scale)
        if asked.basis is None:
            if self.learned is None:
                self.learned, self.steps = _learn_widths(rows, clock)
            most_kernels = int(min(MAX_KERNELS, max(asked.memory / (_VALUE_BYTES * len(rows)), 1.0)))
            rows = _draw_in_time(rows, count_kernels(self.learned, len(rows), most_kernels), clock)
            self._candidates = dictionaries(self.learned, rows, table.X, most_kernels)
        else:
            self._candidates = iter([asked.basis])
        self.rows, self.slopes = rows, table.slopes(scale)[: len(rows)]

    def compare(self, clock: Clock, most: int | None = None) -> None:
        """Go down the ladder of prices in folds with the next dictionaries, the first of all whatever the time is."""
        for basis in islice(self._candidates, most):
            late = clock.left() < _VALUE_SECONDS * len(self.rows) * basis.n_atoms
            if self.compared and (late or clock.left() <= 0.0):
                clock.cut.append("another dictionary")
                break
            own = clock.part(_COMPARED_SHARE)
            Phi, asked = basis(self.rows.X), self.asked
            levels = Comparison(Phi, self.rows, asked.most, asked.noise_variance, own).run(asked.prices)
            self.compared.append(_Compared(basis, Phi, levels))
            clock.take_over(own)

    def losses(self, table: _Table) -> Losses:
        """Return what held-out rows lose with the best model so far."""
        level = _choose(self.compared, None)[1]
        index, mean, (factor, tail) = level.index, level.held.Z[:, -1], level.held.scale
        raw = merge_rows(table.X, table.y, table.weights).take(index)
        rows, slopes, variance = self.rows.take(index), self.slopes[index], factor * level.variance
        return measure_losses(self.scale, raw, rows, slopes, mean, variance, (tail,))


def _choose_scale(table: _Table, asked: _Asked, clock: Clock) -> _Search:
    """Return the search on the scale of the target on which held-out rows lose less with the first dictionaries.

    The scale is one that suits a process on few rows, or the target's own.
    """
    other = table.propose_scale(clock)
    plain = _Search(AS_IT_IS, table, asked, clock)
    if other.sign == 0 or clock.up("the scale of the target"):
        return plain
    search = _Search(other, table, asked, clock)
    for each in (plain, search):
        each.compare(clock, _JUDGED)
    before, after = plain.losses(table), search.losses(table)
    better = bool((after.own < before.own).all() and after.are_less_than(before, before))
    return search if better else plain


def _learn_bars(held: HeldOut, n_functions: int) -> ErrorBars:
    """Return the error bars that held-out rows ask for; a constant's are known where few rows say little of them."""
    known = not n_functions and held.n_groups <= VERY_FEW_ROWS
    return known_error_bars(held.n_groups) if known else learn_error_bars(held)


def _draw_in_time(rows: Rows, n_functions: int, clock: Clock) -> Rows:
    """Return the rows whose values of so many functions take half of the time that is left."""
    if clock.left() == np.inf:
        return rows
    most = max(int(0.5 * clock.left() / (_VALUE_SECONDS * n_functions)), _FEWEST_ROWS)
    if most >= len(rows):
        return rows
    clock.cut.append(f"rows beyond the first {most}")
    return rows.take(slice(0, most))


def _learn_widths(rows: Rows, clock: Clock) -> tuple[tuple[LearnedWidths, ...], int]:
    """Learn widths and tell how far that is: the first share of the search."""
    own = clock.part(_WIDTHS_SHARE, progress=lambda _, fraction: report(fraction=_WIDTHS_SHARE * fraction))
    found = learn_widths(rows, own)
    clock.take_over(own)
    return found


def _largest_gain(model: GaussianModel, price: float) -> float:
    return 0.0 if price == np.inf else max(Stepwise("flat", price=price).largest_gain(model), 0.0)


def _choose(compared: list[_Compared], price: float | None) -> tuple[_Compared, Level]:
    """Return the dictionary and the level to take; the last level where a price was given."""
    if price is not None:
        return compared[0], compared[0].levels[-1]
    best = [each.levels[choose_level(each.levels)] for each in compared]
    owner = choose_level(best)
    return compared[owner], best[owner]


def _widths_of(basis: Basis, rows: Rows) -> np.ndarray:
    """Return the narrowest width (d,) of each input among the kernels of a dictionary; inf where there is none."""
    inverse = [kernel.inverse_square_widths(rows.X.shape[1]) for kernel in kernels_of(basis)]
    with np.errstate(divide="ignore"):
        return np.max([np.zeros(rows.X.shape[1]), *inverse], axis=0) ** -0.5
