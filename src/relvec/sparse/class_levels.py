"""Models of classes at a ladder of prices, and the log loss of rows that took no part in their search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from relvec.design import DenseDesign
from relvec.gaussian_process.classes.rows import DistinctRows, deal_fold
from relvec.gaussian_process.held_out import GROUPED_ERRORS
from relvec.inference.error_bars import FOLDS
from relvec.inference.likelihoods import Bernoulli, Categorical, logistic_log_odds, softmax_normal
from relvec.inference.prior_rows import PriorRows
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.search import ModelInSearch, begin_laplace
from relvec.sparse.held_out import has_turned

PRICES_NATS = (np.inf, 8.0, 4.0, 2.0, 1.0, 0.4)
# Of a model; the constant is not counted. The steps of Newton's method take the cube of the weights.
MOST_FUNCTIONS, MOST_WEIGHTS = 60, 240
TOL_NATS = 0.1  # that a move of a fold gains at least
_MOST_STEPS = 1000
_PATIENCE, _LOST_NATS = 2, 0.01  # prices beyond the best, and nats a row lost, after which folds go no further down
_TIE_ERRORS = 0.5  # standard errors that a smaller model may lose
_SPREAD = 0.5  # prior standard deviation of the logarithm of the slope of log-odds

Units = tuple[np.ndarray, np.ndarray]  # of a model (u,), and their precisions
NOTHING: Units = (np.zeros(0, dtype=np.intp), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Latents:
    """Means (n, C) and covariances (n, C, C) of the latent functions of rows: C = 1 for two classes, else one each."""

    mean: np.ndarray
    covariance: np.ndarray

    def log_probabilities(self, slope: float = 1.0) -> np.ndarray:
        """Return the logarithms (n, K) of the class probabilities, whose log-odds are multiplied by a slope."""
        return log_softmax(slope * self._logits, axis=1)

    @cached_property
    def _logits(self) -> np.ndarray:
        """Logarithms (n, K) of the class probabilities, up to a number for each row."""
        if self.mean.shape[1] == 1:
            odds = logistic_log_odds(self.mean[:, 0], self.covariance[:, 0, 0])
            return np.column_stack([np.zeros(len(odds)), odds])
        with np.errstate(divide="ignore"):
            logs = np.log(softmax_normal(self.mean, self.covariance))
        return np.maximum(logs, np.log(np.finfo(float).tiny))


def mix_latents(parts: list[Latents], shares: np.ndarray) -> Latents:
    """Return the sum of latent functions times their shares; the parts are taken to be independent."""
    return Latents(
        sum((share * part.mean for share, part in zip(shares, parts)), np.zeros(1)),
        sum((share**2 * part.covariance for share, part in zip(shares, parts)), np.zeros(1)),
    )


@dataclass(frozen=True, eq=False)
class ClassLevel:
    """The models of the folds at one price.

    Attributes
    ----------
    price : nats a function; inf is the constant alone.
    n_functions : the mean number of functions in the folds.
    latents : of the rows that each fold left out.
    losses : (g,) log losses of these rows, times their weights, summed over each group.
    loss : their sum, a row.
    """

    price: float
    n_functions: float
    latents: Latents
    losses: np.ndarray
    loss: float


def make_class_problem(
    Phi: np.ndarray, rows: DistinctRows, most: int = MOST_FUNCTIONS, clock: Clock = NO_LIMIT
) -> LaplaceProblem:
    """Return the problem of columns Phi (n, M), the last of ones; several classes share the functions they have."""
    weight, K = rows.weight, rows.n_classes
    target = rows.counts / weight[:, None]
    total = float(weight.sum())
    target = PriorRows.of(weight @ target / total, total).shrink(target)
    return LaplaceProblem(
        DenseDesign(np.asfortranarray(Phi), overwrite=True),
        np.ascontiguousarray(target[:, 1]) if K == 2 else target,
        weight,
        Bernoulli() if K == 2 else Categorical(K),
        np.arange(Phi.shape[1]),
        share=K > 2,
        bias=Phi.shape[1] - 1,
        tol=TOL_NATS,
        most_functions=min(most, MOST_WEIGHTS // (K if K > 2 else 1)),
        clock=clock,
    )


def search_at(problem: LaplaceProblem, price: float, start: Units = NOTHING) -> ModelInSearch:
    """Return the model at a price, from one of nearly the same problem on.

    Functions are added and deleted, not exchanged, and no certificate is looked for: exchanges took twice as long, and
    gained the rows that are held out next to nothing (wine, image and four drawn classes). Where the clock is up
    nothing is added or deleted any more.
    """
    tol, model = problem.tol, begin_laplace(replace(problem, price=price, start=start), False)
    for _ in range(_MOST_STEPS):
        if problem.clock.left() <= 0.0:
            break
        better = model.grow(None, tol)
        if better is None:
            model = model.settle(tol)
            better = model.shrink(tol)
        if better is None:
            break
        model = better
    return model


def units_of(problem: LaplaceProblem, model: ModelInSearch) -> Units:
    """Return the units (u,) of a model and their precisions."""
    return model.active, model.posterior.alpha[:: problem.per_unit]


def latents_of(problem: LaplaceProblem, model: ModelInSearch, Phi: np.ndarray) -> Latents:
    """Return the latent functions at rows with columns Phi (n, M)."""
    p = model.posterior
    outputs, atoms = problem.pairs(model.active)
    F = Phi[:, atoms] / problem.design.scale[atoms]
    mean, root = np.zeros((len(Phi), problem.K)), np.zeros((len(Phi), problem.K, p.root.shape[1]))
    for c in range(problem.K):
        own = outputs == c
        mean[:, c], root[:, c] = F[:, own] @ p.mean[own], F[:, own] @ p.root[own]
    return Latents(mean, root @ root.transpose(0, 2, 1))


def log_losses(log_p: np.ndarray, rows: DistinctRows) -> np.ndarray:
    """Return the log losses (n,) of rows, times their weights, for log probabilities (n, K)."""
    return -np.sum(rows.counts * log_p, axis=1)


class ClassFolds:
    """Rows that are held out in turns: ``index`` are all of them, fold by fold, ``rows`` those rows."""

    def __init__(self, rows: DistinctRows):
        numbered = DistinctRows(np.arange(float(len(rows)))[:, None], rows.counts, rows.group)
        folds = min(FOLDS, int(rows.labels.max()) + 1)
        held = [deal_fold(numbered, folds, k)[1].X[:, 0].astype(int) for k in range(folds)]
        self.parts = [own for own in held if 0 < len(own) < len(rows)]
        self.index = np.concatenate(self.parts) if self.parts else np.zeros(0, dtype=int)
        self.rows, self._all = rows.take(self.index), rows

    def compare(self, Phi: np.ndarray, most: int, clock: Clock) -> list[ClassLevel]:
        """Return the levels of models of ``most`` functions of a dictionary Phi (n, M), from the highest price down."""
        problems = [self._problem_without(own, Phi, most, clock) for own in self.parts]
        found = [NOTHING] * len(problems)
        levels: list[ClassLevel] = []
        for price in PRICES_NATS:
            models = [search_at(problem, price, start) for problem, start in zip(problems, found)]
            levels.append(self._level(price, problems, models, Phi))
            losses = [level.loss for level in levels if level.n_functions]
            if (losses and has_turned(losses, _PATIENCE, _LOST_NATS)) or clock.up(f"prices below {price:g} nats"):
                break
            found = [units_of(problem, model) for problem, model in zip(problems, models)]
        return levels

    def _problem_without(self, own: np.ndarray, Phi: np.ndarray, most: int, clock: Clock) -> LaplaceProblem:
        kept = np.delete(np.arange(len(self._all)), own)
        return make_class_problem(Phi[kept], self._all.take(kept), most, clock)

    def _level(
        self, price: float, problems: list[LaplaceProblem], models: list[ModelInSearch], Phi: np.ndarray
    ) -> ClassLevel:
        parts = [latents_of(p, model, Phi[own]) for p, model, own in zip(problems, models, self.parts)]
        latents = Latents(*(np.concatenate(a) for a in zip(*((part.mean, part.covariance) for part in parts))))
        losses = np.bincount(self.rows.labels, log_losses(latents.log_probabilities(), self.rows))
        size = float(np.mean([p.count_functions(model.active) for p, model in zip(problems, models)]))
        return ClassLevel(price, size, latents, losses, float(losses.sum() / self.rows.weight.sum()))


def choose_class_level(levels: list[ClassLevel]) -> int:
    """Return the level of least held-out loss, or a smaller one that loses some standard errors at most.

    Losses of two levels are compared row by row, or group by group. Where groups have several rows more may be lost: a
    search has counted each group as often as it has rows.
    """
    best = min(levels, key=lambda level: level.loss)
    grouped = 3 * len(best.losses) <= len(best.latents.mean)  # on a line many rows are near one other by chance
    errors = GROUPED_ERRORS if grouped else _TIE_ERRORS
    for i, level in sorted(enumerate(levels), key=lambda pair: pair[1].n_functions):
        more = level.losses - best.losses
        if level is best or more.sum() <= errors * np.sqrt(len(more)) * more.std():
            return i
    return 0


def calibrate_slope(latents: Latents, rows: DistinctRows) -> float:
    """Return the factor of log-odds of most likelihood at held-out rows, under a weak prior about one."""

    def loss(log_slope: float) -> float:
        fit = log_losses(latents.log_probabilities(float(np.exp(log_slope))), rows).sum()
        return float(fit) + 0.5 * (log_slope / _SPREAD) ** 2

    return float(np.exp(minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded", options={"xatol": 1e-3}).x))
