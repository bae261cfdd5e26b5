"""A sparse model of classes: settings compared by the log loss of rows held out, and those that are as good averaged.

Settings differ in their functions: the columns of X alone, or with them Gaussian functions of three scales about widths
that a process of the classes learned on few rows, one for all inputs or one for each. Choosing one of them by some
hundred rows loses more than any of them is worse than the others, so that up to three are averaged: the latent
functions are sums of theirs times shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from relvec.basis import Basis
from relvec.gaussian_process.classes.learn import Effort, learn_latent
from relvec.gaussian_process.classes.rows import DistinctRows, few_differ, group_near_rows, merge_class_rows
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.rows import Rows, Units, find_categories, order_keys, standardise_inputs
from relvec.runtime.clock import Clock
from relvec.runtime.progress import report
from relvec.solvers import Sequential
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.solve import solve_laplace
from relvec.solvers.loop import Result
from relvec.sparse.class_levels import (
    MOST_FUNCTIONS,
    NOTHING,
    PRICES_NATS,
    ClassFolds,
    ClassLevel,
    calibrate_slope,
    choose_class_level,
    make_class_problem,
    mix_latents,
    search_at,
    units_of,
)
from relvec.sparse.class_shares import as_result, fit_shares, shares_lead
from relvec.sparse.dictionary import LEARNED_ROWS, SCALES, LearnedWidths, build, columns_alone, in_units

SEARCHED_ROWS = 2000  # that functions are chosen on; all rows then say what their weights are
CENTRES = 400  # rows that functions sit on
UNCERTAIN_PRICE_NATS = 2.0  # where no rows can be held out
_WIDTHS_SHARE, _COMPARED_SHARE = 0.3, 0.5  # of the time that is left
_SLOPE_SECONDS = 4e-5  # of finding the slope of log-odds, a row and class
_VALUE_BYTES = 70.0  # of a function's value at a row, in the problems of all folds
_SHARE_NATS, _LEAST_SHARE = 0.05, 0.15  # of a nat held out in the logarithm of a share, and a share that is dropped
_LAST, _STEPS = Sequential(restarts=0), 1000  # of the search that ends with a certificate
# Of learning widths, for two classes and for more: inducing rows at first, at most, and evaluations of the evidence
_EFFORT, _EFFORT_OF_MORE = (60, 100, 200, 25), (30, 50, 100, 20)

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class ClassSetting:
    """A dictionary and what held-out rows said of it.

    Attributes
    ----------
    name : its functions in words.
    basis : the bound dictionary, a constant last.
    levels : at each price that was tried; none where no rows were held out.
    taken : the place of the level that was taken.
    share : of its functions in the model, 0 where it is not in it. All are 0 where shares of classes are better.
    """

    name: str
    basis: Basis
    levels: tuple[ClassLevel, ...] = ()
    taken: int = 0
    share: float = 0.0

    @property
    def level(self) -> ClassLevel:
        """The level that was taken."""
        return self.levels[self.taken]

    @property
    def price(self) -> float:
        """Nats that a function costs."""
        return self.level.price if self.levels else UNCERTAIN_PRICE_NATS


@dataclass(frozen=True, eq=False)
class ClassMember:
    """A model that is averaged: its setting, the problem that was solved on all rows, and what was found."""

    setting: ClassSetting
    problem: LaplaceProblem
    found: Result

    @property
    def n_functions(self) -> int:
        """Functions, the constant not counted."""
        return self.problem.count_functions(self.found.state.active)


@dataclass(frozen=True, eq=False)
class SparseClasses:
    """A sparse model of classes: its members, the settings compared, the slope of log-odds, and what was cut short."""

    members: tuple[ClassMember, ...]
    settings: tuple[ClassSetting, ...]
    learned: tuple[LearnedWidths, ...]
    slope: float
    n_steps: int
    cut: tuple[str, ...]
    stopped: bool


def fit_sparse_classes(
    X: np.ndarray, labels: np.ndarray, n_classes: int, weights: np.ndarray | None = None,
    groups: np.ndarray | None = None, *, learned: tuple[LearnedWidths, ...] | None = None,
    max_functions: int | None = None, clock: Clock | None = None, memory: float = np.inf,
) -> SparseClasses:  # fmt: skip
    """Return the sparse model of rows X (n, d) with labels (n,) from 0 to n_classes - 1.

    Parameters
    ----------
    weights : (n,) frequencies of the rows; one each where not given.
    groups : (n,) numbers of the groups of rows that are in one fold; each row is on its own where not given.
    learned : widths that were learned before.
    max_functions : most functions, the constant not counted, of one setting; where not given settings may be averaged.
    clock : of learning widths, of comparing settings, and of the models of all rows.
    memory : bytes for the values of functions, of which fewer are candidates where there is little.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(120, 2))
    >>> model = fit_sparse_classes(X, (X[:, 0] ** 2 > X[:, 1]).astype(int), 2)
    >>> sum(member.n_functions for member in model.members) < 20
    True
    """
    clock = Clock() if clock is None else clock
    rows, scaled, units = order_rows(merge_class_rows(X, labels, n_classes, weights, groups))
    steps = 0
    if learned is None:
        learned, steps = _share_time(clock, _WIDTHS_SHARE, partial(learn_class_widths, scaled, units, rows.X))
    few = rows.take(slice(0, SEARCHED_ROWS))
    most = int(min(CENTRES, max(memory / (_VALUE_BYTES * len(few) * len(SCALES[0])), 1.0)))
    dictionaries = _dictionaries(learned, few, X, most)
    settings = _share_time(clock, _COMPARED_SHARE, partial(compare_settings, dictionaries, few, max_functions))
    taken = [setting for setting in settings if setting.share > 0.0]
    members = [
        _share_time(clock, 1.0 / (len(taken) - i), partial(_fit_member, setting, few, rows, max_functions))
        for i, setting in enumerate(taken)
    ]
    if not clock.cut:
        clock.up("the last search")
    slope = 1.0
    if settings[0].levels and clock.left() > _SLOPE_SECONDS * n_classes * len(few):
        chosen = [member.setting for member in members]
        latents = mix_latents([s.level.latents for s in chosen], np.array([s.share for s in chosen]))
        folds = ClassFolds(few)
        slope = calibrate_slope(latents, folds.rows)
        if shares_lead(few, folds, latents.log_probabilities(slope)):
            members, slope = [_fit_shares(dictionaries[0][1], rows)], 1.0
            settings = tuple(replace(setting, share=0.0) for setting in settings)
    steps += sum(len(setting.levels) for setting in settings)
    return SparseClasses(tuple(members), settings, learned, slope, steps, tuple(clock.cut), clock.stopped)


def _fit_shares(basis: Basis, rows: DistinctRows) -> ClassMember:
    """Return the model of the shares of the classes, the constant that a dictionary has last."""
    problem = make_class_problem(np.ones((len(rows), 1)), rows)
    setting = ClassSetting("shares of the classes", basis.take(np.array([basis.n_atoms - 1])), share=1.0)
    return ClassMember(setting, problem, as_result(fit_shares(problem)))


def _share_time(clock: Clock, share: float, stage: Callable[[Clock], Found]) -> Found:
    """Return what a stage finds with a share of the time that is left."""
    own = clock.part(share)
    found = stage(own)
    clock.take_over(own)
    return found


def order_rows(rows: DistinctRows) -> tuple[DistinctRows, DistinctRows, Units]:
    """Return rows in an order that their units do not change, the same rows standardised, and the units.

    Rows near to each other and far from others are of one group.
    """
    Z, units = standardise_inputs(rows.X, rows.weight)
    order = np.lexsort(order_keys(Z, rows.weight))
    rows = rows.take(order)
    scaled = group_near_rows(DistinctRows(Z[order], rows.counts, rows.group))
    return replace(rows, group=scaled.group), scaled, units


def learn_class_widths(
    scaled: DistinctRows, units: Units, X: np.ndarray, clock: Clock
) -> tuple[tuple[LearnedWidths, ...], int]:
    """Learn the width of a process of standardised rows, then one of each input; evaluations of evidences second.

    The one width is in ranges of the inputs, as in `gaussian_process.classes.candidates`.
    """
    few, d, found, steps = scaled.take(slice(0, LEARNED_ROWS)), scaled.X.shape[1], list[LearnedWidths](), 0
    span = np.ptp(scaled.X, axis=0)
    inducing, most, utmost, climbs = _EFFORT if scaled.n_classes == 2 else _EFFORT_OF_MORE
    effort = Effort(
        inducing=inducing, most=most, utmost=utmost, final=inducing, grown=inducing, rows=LEARNED_ROWS,
        regression=LEARNED_ROWS, steps=climbs,
    )  # fmt: skip
    ratios = np.log(span) + 0.5 * np.log(np.mean(span**-2.0)) if d else span
    parts = [Part(Shape.GAUSSIAN, log_ratios=tuple(ratios.tolist()) if d > 1 else None)] if d else []
    parts += [Part(Shape.GAUSSIAN, True, groups=find_categories(scaled.X))] if d > 1 else []
    for part in parts:
        if found and clock.up("widths for each input"):
            break
        structure = Structure((part,), False, d)
        process = learn_latent(few, structure, effort, clock=clock)
        lengths = np.broadcast_to(np.exp(part.log_lengths(process.theta[structure.widths[0]])), d)
        found.append(LearnedWidths(structure.name, ((Shape.GAUSSIAN, in_units(lengths, units, X)),)))
        steps += process.evaluations
        if report():
            clock.stop()
    return tuple(found), steps


def _dictionaries(
    learned: tuple[LearnedWidths, ...], rows: DistinctRows, X: np.ndarray, most: int
) -> list[tuple[str, Basis]]:
    none = np.zeros(len(rows))
    drawn = Rows(rows.X, none, rows.weight, none)
    found = [("columns", columns_alone(drawn, X))]
    return [*found, *((widths.name, build(widths.kernels(SCALES[0]), drawn, X, most)) for widths in learned)]


def compare_settings(
    dictionaries: list[tuple[str, Basis]], rows: DistinctRows, max_functions: int | None, clock: Clock
) -> tuple[ClassSetting, ...]:
    """Return the settings with their shares, by log losses of rows held out.

    Where only few rows differ new ones will be copies, and none is held out: the largest dictionary is taken.
    """
    folds = ClassFolds(rows)
    if few_differ(rows) or not folds.parts or (len(dictionaries) == 1 and dictionaries[0][1].n_atoms == 1):
        return (ClassSetting(*dictionaries[-1], share=1.0),)
    found: list[ClassSetting] = []
    for name, basis in dictionaries:
        if found and clock.up(f"functions of {name}"):
            break
        levels = folds.compare(basis(rows.X), max_functions or MOST_FUNCTIONS, clock)
        taken = choose_class_level(levels)
        found.append(ClassSetting(name, basis, tuple(levels), taken))
        if report(round(levels[taken].n_functions), fraction=len(found) / (len(dictionaries) + 1)):
            clock.stop()
    if max_functions is None:
        shares = _share_out(found, rows.weight.sum())
    else:
        losses = [setting.level.loss for setting in found]
        shares = np.eye(len(found))[int(np.argmin(losses))].tolist()
    return tuple(replace(setting, share=share) for setting, share in zip(found, shares))


def _share_out(settings: list[ClassSetting], total: float) -> list[float]:
    """Return shares of settings, near equal ones unless the losses of rows of a total weight are far apart."""
    losses = total * np.array([setting.level.loss for setting in settings])
    shares = np.exp(-_SHARE_NATS * (losses - losses.min()))
    shares[shares < _LEAST_SHARE * shares.sum()] = 0.0
    room = float(MOST_FUNCTIONS)
    for i in np.argsort(losses, kind="stable"):
        room -= settings[i].level.n_functions
        if room < 0.0 and losses[i] > losses.min():
            shares[i] = 0.0
    return (shares / shares.sum()).tolist()


def _fit_member(
    setting: ClassSetting, few: DistinctRows, rows: DistinctRows, max_functions: int | None, clock: Clock
) -> ClassMember:
    """Return the model of all rows: the ladder as in the folds on those that are searched, then weights by all."""
    most = max_functions or MOST_FUNCTIONS
    problem, start = make_class_problem(setting.basis(few.X), few, most, clock), NOTHING
    for price in [*(price for price in PRICES_NATS if price > setting.price), setting.price]:
        start = units_of(problem, search_at(problem, price, start))
    if len(rows) > len(few):
        active, alpha = start
        kept, scale = np.unique(np.append(active, problem.bias)), problem.design.scale[active]
        setting = replace(setting, basis=setting.basis.take(kept))
        problem, units = make_class_problem(setting.basis(rows.X), rows, most, clock), np.searchsorted(kept, active)
        start = units, alpha * (problem.design.scale[units] / scale) ** 2
    return ClassMember(
        setting, problem, solve_laplace(_LAST, replace(problem, price=setting.price, start=start), _STEPS)
    )
