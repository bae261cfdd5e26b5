"""Models of classes held against the shares of the classes and a ridge, by the log loss of rows that took no part.

What a search has seen it is sure of, the more so where rows nearly repeat each other, and a constant that the evidence
leaves out says that classes are equally frequent. Where the shares of the classes, of the rows of other folds, predict
rows better than the model, or nearly as well where rows are few or come in groups, they are the model; likewise a ridge
of few columns, whose slopes have one precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.classes.rows import DistinctRows, few_differ, group_near_rows
from relvec.gaussian_process.held_out import FEW_ROWS, leads
from relvec.gaussian_process.rows import standardise_inputs
from relvec.inference.tails import TAIL_GAIN
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.search import ModelInSearch, begin_laplace
from relvec.solvers.loop import Result, State, Status
from relvec.sparse.class_levels import ClassFolds, Latents, calibrate_slope, latents_of, log_losses

_LOG_ODDS_VARIANCE = 9.0  # of a class under the prior: shares of 5 % are one standard deviation from those of a half
_VARIANCES = np.geomspace(0.03, 30.0, 6)  # of log-odds, by all slopes of a ridge, that are tried
_MOST_SLOPES = 60  # of a ridge: Newton's steps take the cube


def fit_shares(problem: LaplaceProblem) -> ModelInSearch:
    """Return the model of the constant alone, under a prior that says next to nothing."""
    return _fit(problem, np.array([problem.bias]), np.inf)


def fit_ridge(problem: LaplaceProblem) -> ModelInSearch:
    """Return the model of all columns whose slopes have the precision of most evidence, the same for all."""
    atoms = np.flatnonzero(problem.design.scale)
    slopes = problem.design.n_rows * _VARIANCES / len(atoms)  # a column of length one has entries of n^-1/2
    return max((_fit(problem, atoms, variance) for variance in slopes), key=lambda model: model.objective)


def _fit(problem: LaplaceProblem, atoms: np.ndarray, variance: float) -> ModelInSearch:
    """Return the model of some atoms whose weights have a prior variance, and the constant one of its own."""
    own = _LOG_ODDS_VARIANCE * problem.design.scale[problem.bias] ** 2
    alpha = 1.0 / np.where(atoms == problem.bias, own, variance)
    outputs = 1 if problem.share else problem.K
    units = (atoms + problem.design.n_atoms * np.arange(outputs)[:, None]).ravel()
    return begin_laplace(replace(problem, start=(units, np.tile(alpha, outputs)), price=0.0), False)


def as_result(model: ModelInSearch) -> Result:
    """Return a baseline as the result of a search."""
    state = State(model.active, model.posterior, model.objective, done=True, largest_gain=0.0)
    return Result(state, Status.BASELINE, [], 0)


def shares_lead(rows: DistinctRows, folds: ClassFolds, log_p: np.ndarray) -> bool:
    """Tell whether the shares of the classes in other folds take the place of a model with log probabilities (m, K).

    >>> rows = DistinctRows(np.arange(40.0)[:, None], np.tile([[1.0, 0.0], [0.0, 1.0]], (20, 1)))
    >>> folds = ClassFolds(rows)
    >>> sure = np.log(np.where(folds.rows.counts == 1.0, 0.9, 0.1))
    >>> shares_lead(rows, folds, sure), shares_lead(rows, folds, sure[:, ::-1])
    (False, True)
    """
    return _leads(folds.rows, shares_without(rows, folds), log_p)


def shares_without(rows: DistinctRows, folds: ClassFolds) -> np.ndarray:
    """Return the logarithms (m, K) of the shares of the classes in the other folds, at the rows of each."""
    others = (rows.take(np.setdiff1d(np.arange(len(rows)), own)) for own in folds.parts)
    return np.concatenate([np.tile(np.log(few.base_rates), (len(rows) - len(few), 1)) for few in others])


def count_copies_once(rows: DistinctRows) -> DistinctRows:
    """Return the rows with counts that are shared among those near to each other and far from others."""
    scaled = DistinctRows(standardise_inputs(rows.X, rows.weight)[0], rows.counts)
    group = group_near_rows(scaled).labels
    return replace(rows, counts=rows.counts / np.bincount(group)[group][:, None])


def _leads(held: DistinctRows, simpler: np.ndarray, log_p: np.ndarray) -> bool:
    gains = np.sum(held.counts * (simpler - log_p), axis=1) / held.weight
    return leads(gains, held.weight, held.labels)


@dataclass(frozen=True, eq=False)
class ClassVerdict:
    """What takes the place of a model, `fit_shares` or `fit_ridge`, if anything does, and the slope of log-odds."""

    baseline: Callable[[LaplaceProblem], ModelInSearch] | None = None
    slope: float = 1.0


def judge_classes(
    rows: DistinctRows, problem_of: Callable[[DistinctRows, np.ndarray], LaplaceProblem], Phi: np.ndarray,
    search: Callable[[LaplaceProblem], ModelInSearch],
) -> ClassVerdict:  # fmt: skip
    """Return what rows say of a search that took no part in it.

    Parameters
    ----------
    rows : in the order of their hash.
    problem_of : makes the problem of some of the rows, and of their numbers.
    Phi : (n, M) the columns of all rows.
    search : for the model of a problem.
    """
    folds = ClassFolds(rows)
    if not folds.parts or few_differ(rows):
        return ClassVerdict()
    kept = [np.setdiff1d(np.arange(len(rows)), own) for own in folds.parts]
    problems = [problem_of(rows.take(own), own) for own in kept]

    def predict(
        fit: Callable[[LaplaceProblem], ModelInSearch], problems: list[LaplaceProblem]
    ) -> tuple[np.ndarray, float]:
        """Return log probabilities (m, K) of the rows left out, and the slope that they ask for."""
        parts = [
            latents_of(problem, fit(problem), Phi[own]) for problem, own in zip(problems, folds.parts, strict=True)
        ]
        latents = Latents(*(np.concatenate(a) for a in zip(*((part.mean, part.covariance) for part in parts))))
        slope = calibrate_slope(latents, folds.rows)
        log_p, plain = latents.log_probabilities(slope), latents.log_probabilities()
        gain = float(np.sum(log_losses(plain, folds.rows) - log_losses(log_p, folds.rows)))
        return (log_p, slope) if gain > TAIL_GAIN else (plain, 1.0)

    verdict, simpler = ClassVerdict(fit_shares), shares_without(rows, folds)
    once = count_copies_once(rows)
    tried = [(fit_ridge, fit_ridge, [problem_of(once.take(own), own) for own in kept])]
    most = problems[0].most_functions  # a ridge has them all
    few = Phi.shape[1] * problems[0].K <= _MOST_SLOPES and (most is None or Phi.shape[1] - 1 <= most)
    for baseline, fit, own in [*(tried if few else []), (None, search, problems)]:
        log_p, slope = predict(fit, own)
        gain = float(np.sum(folds.rows.counts * (log_p - simpler)))
        clear = not _leads(folds.rows, simpler, log_p)
        if clear or (baseline is not None and gain > 0.0 and len(np.unique(folds.rows.labels)) > FEW_ROWS):
            verdict, simpler = ClassVerdict(baseline, slope), log_p
    return verdict
