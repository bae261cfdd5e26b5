"""Dictionaries of Dask-backed samples for likelihoods that are not Gaussian.

Under the Laplace approximation the weights of the rows change in every step, so no sums can be computed in advance. A
step needs the features and the target of a row, and the columns of the model, which are functions of a few centres: a
pass sends the centres to the rows and returns sums of the size of the model. A scan of a kernel on every row takes two
passes: weighted sums of the kernel values at a few hundred pivots, then the gains of the rows as candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any, NamedTuple

import numpy as np

from relvec.basis import Basis, row_hash64
from relvec.design.base import Combine, LaplaceDesign, ModelOnRows, Observed, Piece, RowDirections, Value
from relvec.design.cholesky import SquaredKernel
from relvec.design.dask.kernel_basis import DistributedKernelBasis
from relvec.design.dask.low_rank import row_factor
from relvec.design.dask.reductions import DaskSamples
from relvec.design.dask.terms import BasisTerms, RowTerms, Terms, Totals
from relvec.design.samples import Block
from relvec.design.streamed import tall_qr
from relvec.inference.laplace import (
    Weighting,
    curvature_gram,
    curvature_root,
    factor_curvature,
    log_evidence,
    newton,
    pull_back,
)
from relvec.inference.laplace_posterior import LaplacePosterior, PosteriorOnRows, latent

_MAX_CANDIDATES = 512  # atoms that a scan brings here: more are not looked at before the next scan


Columns = Callable[[np.ndarray], np.ndarray]  # of atoms, as a function of rows X (b, d)

# Functions of a block are made by `partial`, which workers can be sent.


def _scaled_columns(basis: Basis, places: np.ndarray, scale: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Columns of atoms, which may come several times, on some rows: those of a small dictionary, over their norms."""
    if not len(places):
        return np.zeros((len(X), 0), order="F")
    return np.asfortranarray(basis(X)[:, places] / scale)


def _targets(observed: Observed, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """The targets of a block, (b,) or (b, K), and its weights (b,)."""
    t = block.targets[:, observed.target]
    return t[:, 0] if observed.likelihood.n_outputs == 1 else t, observed.weights * block.weights


class _Point(NamedTuple):
    v: np.ndarray
    value: float
    back: np.ndarray
    gram: np.ndarray


def _log_likelihood(columns: Columns, weighting: Weighting, observed: Observed, v: np.ndarray, block: Block) -> Totals:
    """Log likelihood at v (k,), with X'r (k,) and X'B X (k, k), of some rows."""
    X, own, (t, weights) = weighting.scale_columns(columns(block.X)), weighting.own, _targets(observed, block)
    value, r, W = observed.likelihood.evaluate(t, latent(X, v, own), weights)
    return Totals((value, pull_back(X, r, own), curvature_gram(X, W, weights, own)))


def _curved_columns(
    columns: Columns, weighting: Weighting, observed: Observed, v: np.ndarray, block: Block
) -> np.ndarray:
    """F with F'F = X'B X, of some rows."""
    X, own, (t, weights) = weighting.scale_columns(columns(block.X)), weighting.own, _targets(observed, block)
    return curvature_root(X, observed.likelihood.working(t, latent(X, v, own), weights)[1], weights, own)


@dataclass(frozen=True, eq=False)
class _ModeRows:
    """Rows of a search for a mode, on the workers: one pass a point."""

    samples: DaskSamples
    columns: Columns
    weighting: Weighting
    observed: Observed
    zero: Callable[[_ModeRows], float]

    def value_at_zero(self) -> float:
        return self.zero(self)

    def at(self, v: np.ndarray) -> _Point:
        sums = partial(_log_likelihood, self.columns, self.weighting, self.observed, v)
        value, back, gram = self.samples.reduce(sums, add)
        return _Point(v, value - 0.5 * float(v @ v), back, gram)

    def gradient(self, point: _Point) -> np.ndarray:
        return point.back - point.v

    def factor(self, point: _Point) -> np.ndarray:
        curved = partial(_curved_columns, self.columns, self.weighting, self.observed, point.v)
        return factor_curvature(point.gram.copy(), partial(tall_qr, self.samples, curved))


def _on_block(columns: Columns, model: ModelOnRows, function: Callable, more: Columns | None, block: Block) -> Any:
    """A function of the posterior on some rows, and of their weights; with ``more`` columns also of these."""
    p, likelihood = model.posterior, model.observed.likelihood
    t, weights = _targets(model.observed, block)
    Phi = columns(block.X)
    f = latent(Phi, p.mean, [np.flatnonzero(p.outputs == a) for a in range(likelihood.n_outputs)])
    r, W = likelihood.working(t, f, weights)
    here = PosteriorOnRows(p.outputs, p.alpha, p.mean, p.root, p.log_evidence, Phi, f, r, W)
    return function(here, weights, *(() if more is None else (more(block.X),)))


class DaskScanDesign(LaplaceDesign):
    """A dictionary of Dask-backed samples; nothing of a row is kept between passes.

    Parameters
    ----------
    terms : the dictionary.
    samples : the rows, with targets and weights.
    """

    max_candidates = _MAX_CANDIDATES

    def __init__(self, terms: Terms, samples: DaskSamples):
        self._terms, self._samples = terms, samples
        self._values_at_zero: dict[tuple, float] = {}
        self.scale, self.scan_error = terms.scale, terms.scan_error

    @property
    def n_rows(self) -> int:
        return self._samples.n_rows

    @property
    def scan_size(self) -> float:
        return self._terms.scan_size

    def total_weight(self, weights: float) -> float:
        return weights * self._samples.statistics.weight

    def model_columns(self, atoms: np.ndarray, near: ModelOnRows | None = None) -> None:
        return None

    def mode(self, observed: Observed, atoms, columns, outputs, alpha, start, guess=None) -> LaplacePosterior:
        weighting = Weighting.of(outputs, alpha, observed.likelihood.n_outputs)
        rows = _ModeRows(self._samples, self._columns(atoms), weighting, observed, self._value_at_zero)
        point, U = newton(rows, weighting.begin(rows, start))
        mean, root = weighting.in_given_order(point.v, U)
        return LaplacePosterior(outputs, alpha, mean, root, log_evidence(point.value, U))

    def _value_at_zero(self, rows: _ModeRows) -> float:
        """The same for all models of a target: a pass that every start of a search for a mode would ask for."""
        target, factor, likelihood = rows.observed
        key = likelihood, target.start, target.stop, float(factor)
        if key not in self._values_at_zero:
            self._values_at_zero[key] = rows.at(np.zeros(len(rows.weighting.spread))).value
        return self._values_at_zero[key]

    def reduce(self, model: ModelOnRows, function: Callable[..., Value], atoms: np.ndarray | None = None) -> Value:
        more = None if atoms is None else self._columns(np.asarray(atoms))
        return self._samples.reduce(partial(_on_block, self._columns(model.atoms), model, function, more), add)

    def ridge_factors(self, model: ModelOnRows, function: Callable[..., Iterable[np.ndarray]]) -> list[np.ndarray]:
        factors = []
        for i, gram in enumerate(self.reduce(model, partial(_grams, function))):
            own = partial(_on_block, self._columns(model.atoms), model, partial(_take, function, i), None)
            factors.append(factor_curvature(gram.copy(), partial(tall_qr, self._samples, own)))
        return factors

    def gram(self, atoms: np.ndarray) -> np.ndarray:
        return self._samples.reduce(partial(_gram, self._columns(np.asarray(atoms))), add)

    def weighted_products(self, model: ModelOnRows, atom: int, others: np.ndarray) -> np.ndarray:
        return self.reduce(model, _weighted_products, np.append(atom, others))

    def contents(self, atoms: np.ndarray) -> np.ndarray:
        return row_hash64(self._terms.keys(np.asarray(atoms, dtype=np.intp))[:, :-1])

    def weighted_moments(self, model: ModelOnRows, rows: RowDirections, order: np.ndarray) -> Any:
        factors = partial(_on_block, self._columns(model.atoms), model, partial(_factors, rows), None)
        sums = partial(_weighted_sums, factors, self._terms.of_rows)
        A, B = self._samples.blocked(self._terms.block_rows).reduce(sums, add)
        return self._terms.moments(A, B), np.cumsum(rows.widths)[:-1]

    def scan_weighted(self, moments: Any, function: Callable[[Piece], Value], combine: Combine[Value]) -> Value:
        values, ends = moments
        return self._terms.scan(values, ends, self._samples, function, combine)

    def _columns(self, atoms: np.ndarray) -> Columns:
        own, places = np.unique(atoms, return_inverse=True)
        scale = self.scale[atoms]
        return partial(_scaled_columns, self._terms.take(own), places, np.where(scale > 0.0, scale, 1.0))


def _gram(columns: Columns, block: Block) -> np.ndarray:
    Phi = columns(block.X)
    return Phi.T @ Phi


def _grams(function: Callable[..., Iterable[np.ndarray]], p: PosteriorOnRows, weights: np.ndarray) -> Totals:
    return Totals(X.T @ X for X in function(p, weights))


def _take(function: Callable[..., Iterable[np.ndarray]], i: int, p: PosteriorOnRows, weights: np.ndarray) -> np.ndarray:
    return list(function(p, weights))[i]


def _weighted_products(p: PosteriorOnRows, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return (columns[:, 0] * p.W) @ columns[:, 1:]


def _factors(rows: RowDirections, p: PosteriorOnRows, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Y (n, J) of all classes and the diagonal of B (n, K), of some rows."""
    return np.hstack([rows.directions(p, weights, c) for c in range(rows.K)]), rows.curvature(p, weights)


def _weighted_sums(factors: Callable, terms: Callable, block: Block) -> Totals:
    (Y, W), (A, B) = factors(block), terms(block.X)
    return Totals((Y.T @ A, W.T @ B))


def scan_rows(dictionary: DistributedKernelBasis, memory: float) -> DaskScanDesign | None:
    """A kernel on every row for scans on the workers; None where the rank of it, or of its square, is not low.

    This process and each worker use no more than ``memory`` bytes.
    """
    kernel, samples = dictionary.kernel, dictionary.samples
    if not kernel.positive_definite:
        return None
    found = row_factor(samples, kernel, memory)
    squared = None if found is None else row_factor(samples, SquaredKernel(kernel), memory)
    if found is None or squared is None:
        return None
    return DaskScanDesign(RowTerms(dictionary, found[0], squared[0]), samples)


def scan_basis(basis: Basis, samples: DaskSamples) -> DaskScanDesign:
    """A bound basis for scans on the workers."""
    return DaskScanDesign(BasisTerms(basis, samples), samples)
