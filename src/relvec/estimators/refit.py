"""The functions that a search on a draw of rows kept, fitted to all rows: Newton steps of a pass each.

Under Laplace's approximation the weights of the rows change in every step, so that nothing can be summed up in advance;
but a few functions need only sums of the size of the model from a block of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relvec.basis import Basis
from relvec.design import Block, Samples, tall_qr
from relvec.estimators.sources.base import output_target
from relvec.inference.curvature import curvature_gram, curvature_root, factor_curvature
from relvec.inference.laplace import Weighting, log_evidence, newton, pull_back
from relvec.inference.laplace_posterior import LaplacePosterior, latent
from relvec.inference.likelihoods import Likelihood
from relvec.inference.prior_rows import PriorRows
from relvec.runtime.arrays import Array, to_host
from relvec.runtime.clock import Clock

if TYPE_CHECKING:
    from relvec.estimators.laplace import LaplaceFit

MAX_ROUNDS = 8  # of re-estimated precisions
MIN_GAIN_NATS = 0.01  # of the evidence, that another round has to bring


def refit(
    fit: LaplaceFit, basis: Basis, samples: Samples, output: int, K: int, weight: float, clock: Clock
) -> LaplacePosterior:  # fmt: skip
    """Return the posterior of the functions of a fit given all rows, with precisions at a fixed point, T01 eq. (16).

    Parameters
    ----------
    fit : the model of output ``output`` (of K functions) that was found on a draw of the rows.
    basis : the dictionary of its atoms.
    samples : all rows, of a total ``weight``.
    clock : no further round of precisions begins where it is up.
    """
    problem, p = fit.problem, fit.result.state.posterior
    functions, atoms = fit.pairs
    own = np.unique(atoms)
    columns = ModelColumns(basis.take(own) if len(own) else None, np.searchsorted(own, atoms), fit.scale[atoms],
                           None if fit.offset is None else fit.offset[atoms])  # fmt: skip
    prior_rows = replace(problem.prior_rows, weight=weight)
    model = partial(BlockOfModel, columns, problem.likelihood, output, prior_rows)
    b = 0.0 if problem.prior_b is None else np.repeat(problem.prior_b[atoms[:: problem.per_unit]], problem.per_unit)
    best, alpha, mean = None, p.alpha, p.mean
    for _ in range(MAX_ROUNDS):
        weighting = Weighting.of(functions, alpha, K)
        found = _posterior(ModeSamples(samples, model(weighting)), functions, alpha, mean)
        gain = np.inf if best is None else found.log_evidence - best.log_evidence
        best = found if best is None or gain > 0.0 else best
        if gain < MIN_GAIN_NATS or not len(alpha) or clock.left() <= 0.0:
            break
        gamma, squares = (_of_units(values, problem.per_unit) for values in (found.gamma, found.mean**2))
        alpha = (gamma + 2.0 * problem.prior.a) / np.maximum(squares + 2.0 * b, np.finfo(float).tiny)
        mean = found.mean
    assert best is not None
    return best


def _of_units(values: np.ndarray, per_unit: int) -> np.ndarray:
    """For every weight the mean over those that share its precision."""
    return np.repeat(values.reshape(-1, per_unit).mean(axis=1), per_unit)


def _posterior(rows: ModeSamples, functions: np.ndarray, alpha: np.ndarray, start: np.ndarray) -> LaplacePosterior:
    weighting = rows.model.weighting
    point, U = newton(rows, weighting.begin(rows, start))
    mean, root = weighting.in_given_order(point.v, U)
    return LaplacePosterior(functions, alpha, mean, root, log_evidence(point.value, U))


def replace_posterior(fit: LaplaceFit, posterior: LaplacePosterior) -> LaplaceFit:
    """Return the fit with a posterior of all rows; the objectives of its history are moved to where they end."""
    problem, result = replace(fit.problem, shift=0.0), fit.result
    objective = problem.objective(result.state.active, posterior)
    shift = objective - result.state.objective
    history = [replace(step, objective=step.objective + shift) for step in result.history]
    state = replace(result.state, posterior=posterior, objective=objective)
    return replace(fit, problem=problem, result=replace(result, state=state, history=history))


@dataclass(frozen=True, eq=False)
class ModelColumns:
    """The column of each weight (b, k), as a function of rows X (b, d): those of a few atoms, scaled and centred."""

    basis: Basis | None
    places: np.ndarray
    scale: np.ndarray
    offset: np.ndarray | None

    def __call__(self, X: Array) -> np.ndarray:
        if self.basis is None:
            return np.zeros((len(X), 0))
        found = to_host(self.basis(X)).astype(float, copy=False)[:, self.places]
        return (found if self.offset is None else found - self.offset) / self.scale


class Point(NamedTuple):
    """Weights v (k,), the objective there, X'r (k,) and X'B X (k, k)."""

    v: np.ndarray
    value: float
    back: np.ndarray
    gram: np.ndarray


class Totals(tuple):
    """Arrays that are added up one by one."""

    def __add__(self, other: Any) -> Totals:
        return Totals(a + b for a, b in zip(self, other, strict=True))


@dataclass(frozen=True, eq=False)
class ModeSamples:
    """Rows of a search for a mode, `relvec.inference.laplace.ModeRows`: one pass a point."""

    samples: Samples
    model: BlockOfModel

    def value_at_zero(self) -> float:
        return self.at(np.zeros(len(self.model.weighting.spread))).value

    def at(self, v: np.ndarray) -> Point:
        value, back, gram = self.samples.reduce(partial(_sum_slopes, self.model, v), add)
        return Point(v, value - 0.5 * float(v @ v), back, gram)

    def gradient(self, point: Point) -> np.ndarray:
        return point.back - point.v

    def factor(self, point: Point) -> np.ndarray:
        roots = partial(_roots, self.model, point.v)
        return factor_curvature(point.gram.copy(), partial(tall_qr, self.samples, roots))


@dataclass(frozen=True, eq=False)
class BlockOfModel:
    """What a model is on a block of rows; it can be sent to workers."""

    columns: ModelColumns
    likelihood: Likelihood
    output: int
    prior_rows: PriorRows
    weighting: Weighting

    def __call__(
        self, v: np.ndarray, block: Block
    ) -> tuple[np.ndarray, np.ndarray, tuple[float, np.ndarray, np.ndarray]]:
        """X (b, k), the weights (b,), and log likelihood, residuals and curvature at v (k,)."""
        X = self.weighting.scale_columns(self.columns(block.X))
        t = self.prior_rows.shrink(output_target(block.targets, self.output, self.likelihood.n_outputs))
        return X, block.weights, self.likelihood.evaluate(t, latent(X, v, self.weighting.own), block.weights)


def _sum_slopes(model: BlockOfModel, v: np.ndarray, block: Block) -> Totals:
    X, weights, (value, r, W) = model(v, block)
    own = model.weighting.own
    return Totals((value, pull_back(X, r, own), curvature_gram(X, W, weights, own)))


def _roots(model: BlockOfModel, v: np.ndarray, block: Block) -> np.ndarray:
    X, weights, (_, _, W) = model(v, block)
    return curvature_root(X, W, weights, model.weighting.own)
