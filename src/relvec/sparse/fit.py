"""A sparse model that predicts: widths learned by a process, functions chosen by evidence, their number by other rows.

`fit_sparse` takes arrays and gives a record. What is given is taken as it is: with ``kernels`` no widths are learned,
with ``price`` no number of functions is chosen, and held-out rows then set the error bars alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis, centres_of, kernels_of
from relvec.gaussian_process.rows import Rows, merge_rows, without_copies
from relvec.inference.error_bars import ErrorBars, Reach, learn_error_bars, learn_reach
from relvec.inference.evidence import Posterior
from relvec.inference.predictive.calibrated import CalibratedPredictor
from relvec.inference.predictive.linear import LinearPredictor
from relvec.runtime.clock import Clock
from relvec.runtime.progress import report
from relvec.solvers.gaussian.model import GaussianModel
from relvec.solvers.loop import Problem
from relvec.solvers.price import PRICES_NATS
from relvec.solvers.stepwise import Stepwise
from relvec.sparse.dictionary import MAX_KERNELS, LearnedWidths, count_kernels, dictionaries, learn_widths
from relvec.sparse.held_out import (
    MAX_FUNCTIONS,
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
_FEWEST_ROWS = 200  # however little time there is


@dataclass(frozen=True, eq=False)
class SparseFit:
    """A sparse model of one output.

    Attributes
    ----------
    basis : bound dictionary of M functions, the constant last.
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
        return CalibratedPredictor(function=function, bars=self.bars, reach=self.reach)

    @property
    def n_functions(self) -> int:
        """Return the number of functions, the constant not counted."""
        return int(np.count_nonzero(self.active != self.problem.bias))

    @property
    def log_evidence(self) -> float:
        """Return the log evidence in the units of the target."""
        return float(self.posterior.log_evidence - self.problem.n_samples * np.log(self.unit))


def fit_sparse(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, groups: np.ndarray | None = None, *,
    basis: Basis | None = None, learned: tuple[LearnedWidths, ...] | None = None, price: float | None = None,
    max_functions: int | None = None, noise_variance: float | None = None, clock: Clock | None = None,
    memory: float = np.inf,
) -> SparseFit:  # fmt: skip
    """Return the sparse model of rows X (n, d) and targets y (n,).

    Parameters
    ----------
    weights : (n,) frequencies of the rows; one each where not given.
    groups : (n,) numbers of the groups of rows that are in one fold; each row is on its own where not given.
    basis : bound dictionary, a constant last; where not given several are compared whose widths a process learned.
    learned : such widths, where they were learned before.
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
    rows = without_copies(merge_rows(X, y, weights, groups), X, y, weights)  # rows copied with their targets are one
    most = MAX_FUNCTIONS if max_functions is None else max_functions
    steps, candidates = 0, iter([] if basis is None else [basis])
    if basis is None:
        if learned is None:
            learned, steps = _learn_widths(rows, clock)
        most_kernels = int(min(MAX_KERNELS, max(memory / (_VALUE_BYTES * len(rows)), 1.0)))
        rows = _draw_in_time(rows, count_kernels(learned, len(rows), most_kernels), clock)
        candidates = dictionaries(learned, rows, X, most_kernels)
    prices = PRICES_NATS if price is None else tuple(p for p in PRICES_NATS if p >= price)
    compared = _compare(candidates, rows, most, prices, noise_variance, clock)
    chosen, level = _choose(compared, price)
    problem, unit = make_problem(chosen.Phi, rows, noise_variance, clock)
    model = search_like(problem, unit, level, most, tuple(other.price for other in chosen.levels[1:]))
    model = model.keep(np.argsort(model.active, kind="stable"))
    if not clock.cut:
        clock.up("the last search")
    kept = centres_of(chosen.basis.take(model.active)) if len(model.active) else np.zeros((0, X.shape[1]))
    widths = learned[0].widths if learned else _widths_of(chosen.basis, rows)
    return SparseFit(
        basis=chosen.basis, learned=learned, problem=problem, unit=unit, active=model.active,
        posterior=model.full_posterior, price=level.price, levels=tuple(chosen.levels),
        largest_gain=_largest_gain(model, level.price), n_steps=steps + sum(len(each.levels) for each in compared),
        cut=tuple(clock.cut), stopped=clock.stopped, bars=learn_error_bars(level.held),
        reach=learn_reach(kept, widths, rows.X, rows.weight, rows.variance),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Compared:
    """A dictionary, its columns (n, M) at the merged rows, and the levels of its models."""

    basis: Basis
    Phi: np.ndarray
    levels: list[Level]


def _compare(
    candidates: Iterator[Basis], rows: Rows, most: int, prices: tuple[float, ...], noise_variance: float | None,
    clock: Clock,
) -> list[_Compared]:  # fmt: skip
    """Go down the ladder of prices in folds with every dictionary, the first of them whatever the time is."""
    found: list[_Compared] = []
    for basis in candidates:
        late = clock.left() < _VALUE_SECONDS * len(rows) * basis.n_atoms
        if found and (late or clock.left() <= 0.0):
            clock.cut.append("another dictionary")
            break
        own = clock.part(_COMPARED_SHARE)
        Phi = basis(rows.X)
        found.append(_Compared(basis, Phi, Comparison(Phi, rows, most, noise_variance, own).run(prices)))
        clock.take_over(own)
    return found


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
