"""Dictionaries on the workers for likelihoods that are not Gaussian.

Under the Laplace approximation every step weighs the rows anew, so nothing of them can be summed up beforehand. What a
step needs of a row follows from the row, its target and the columns of the model, which are functions of a few
centres: a pass sends those to the rows and gets back sums of the size of the model. A scan of a kernel on every row
takes two passes: one weighs the rows, by their kernel values at a few hundred pivots, the other looks at them as
candidates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from relvec.basis import Basis, numbers_per_entry
from relvec.design.base import Combine, Piece, RemoteDesign, Value
from relvec.design.dask.kernel_basis import DistributedKernelBasis, Lookup
from relvec.design.dask.low_rank import row_factor
from relvec.design.dask.samples import DaskSamples
from relvec.design.dense import not_finite
from relvec.design.exact_columns import ExactColumns
from relvec.design.factor import _Square
from relvec.design.order import content_ranks
from relvec.design.samples import Block
from relvec.design.streamed import Factor, _block_rows, tall_qr
from relvec.inference.laplace import (
    LaplacePosterior,
    Weighting,
    curvature_gram,
    latent,
    log_evidence,
    newton,
    pulled_back,
)
from relvec.inference.likelihoods import Likelihood
from relvec.inference.linalg import NORMAL_EQUATIONS_LIMIT, factor_identity_plus, factor_ridge
from relvec.kernels import Kernel

_NUMBERS = 600_000  # of a block of a dictionary: more leave the cache
_NO_ROW = "the rows are on workers: see `total`, `weigh` and `look`"


class Sums(tuple):
    """Arrays that are added up one by one."""

    def __add__(self, other: Any) -> Sums:
        return Sums(a + b for a, b in zip(self, other, strict=True))


def _add(a: Any, b: Any) -> Any:
    return a + b


@dataclass(frozen=True, eq=False)
class _Columns:
    """Columns of atoms, which may come several times, on some rows: those of a small dictionary, over their norms."""

    basis: Basis
    places: np.ndarray
    scale: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        if not len(self.places):
            return np.zeros((len(X), 0), order="F")
        return np.asfortranarray(self.basis(X)[:, self.places] / self.scale)


@dataclass(frozen=True, eq=False)
class _Aim:
    """What is fitted: a likelihood of some columns of the targets, with the weights times ``heat``."""

    likelihood: Likelihood
    columns: slice
    heat: float

    def __call__(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        t = block.targets[:, self.columns]
        return t[:, 0] if self.likelihood.n_outputs == 1 else t, self.heat * block.weights


class _Point(NamedTuple):
    v: np.ndarray
    value: float
    back: np.ndarray
    gram: np.ndarray


@dataclass(frozen=True, eq=False)
class _At:
    """Log likelihood at v (k,), with X'r (k,) and X'B X (k, k), of some rows."""

    columns: _Columns
    weighting: Weighting
    aim: _Aim
    v: np.ndarray

    def __call__(self, block: Block) -> Sums:
        X, own, (t, weights) = self.weighting.scaled(self.columns(block.X)), self.weighting.own, self.aim(block)
        value, r, W = self.aim.likelihood.evaluate(t, latent(X, self.v, own), weights)
        return Sums((value, pulled_back(X, r, own), curvature_gram(X, W, weights, own)))

    def rooted(self, block: Block) -> np.ndarray:
        """B^1/2 X (b, k), for one output."""
        X, (t, weights) = self.weighting.scaled(self.columns(block.X)), self.aim(block)
        W = self.aim.likelihood.working(t, latent(X, self.v, self.weighting.own), weights)[1]
        return np.sqrt(W)[:, None] * X


@dataclass(frozen=True, eq=False)
class _There:
    """Rows of a search for a mode, on the workers: one pass a point."""

    samples: DaskSamples
    columns: _Columns
    weighting: Weighting
    aim: _Aim
    known: dict[float, float]  # `nothing` by the heat of the aim

    @property
    def nothing(self) -> float:
        if self.aim.heat not in self.known:
            self.known[self.aim.heat] = self.at(np.zeros(len(self.weighting.spread))).value
        return self.known[self.aim.heat]

    def at(self, v: np.ndarray) -> _Point:
        value, back, gram = self.samples.reduce(_At(self.columns, self.weighting, self.aim, v), _add)
        return _Point(v, value - 0.5 * float(v @ v), back, gram)

    def gradient(self, point: _Point) -> np.ndarray:
        return point.back - point.v

    def factor(self, point: _Point) -> np.ndarray:
        k = len(point.v)
        if self.aim.likelihood.n_outputs > 1:
            return factor_identity_plus(point.gram.copy())
        if point.gram.diagonal().max(initial=0.0) > NORMAL_EQUATIONS_LIMIT:
            at = _At(self.columns, self.weighting, self.aim, point.v)
            return factor_ridge(tall_qr(self.samples, at.rooted))
        return factor_ridge(np.zeros((0, k)), point.gram.copy())


@dataclass(frozen=True, eq=False)
class _Rows:
    """A function of the posterior on some rows, and of their weights; with ``more`` columns also of these."""

    columns: _Columns
    aim: _Aim
    posterior: LaplacePosterior
    function: Callable
    more: _Columns | None = None

    def __call__(self, block: Block) -> Any:
        p, (t, weights) = self.posterior, self.aim(block)
        Phi, K = self.columns(block.X), self.aim.likelihood.n_outputs
        own = [np.flatnonzero(p.outputs == a) for a in range(K)]
        f = latent(Phi, p.mean, own)
        r, W = self.aim.likelihood.working(t, f, weights)
        here = LaplacePosterior(Phi, p.outputs, p.alpha, p.mean, p.root, f, r, W, p.log_evidence)
        also = () if self.more is None else (self.more(block.X),)
        found = self.function(here, weights, *also)
        return Sums(found) if isinstance(found, list | tuple) else found


class DaskScanDesign(RemoteDesign):
    """A dictionary on rows that Dask holds, for one target of theirs.

    Parameters
    ----------
    terms : the dictionary.
    samples : the rows, with targets and weights.
    """

    def __init__(self, terms: Terms, samples: DaskSamples):
        self._terms, self._samples = terms, samples
        self._likelihood: Likelihood | None = None
        self._target = slice(0, 0)
        self._nothing: dict[float, float] = {}
        self.scale, self.error = terms.scale, terms.error

    def aimed(self, likelihood: Likelihood, output: int) -> DaskScanDesign:
        """The same for the output-th target of that likelihood, which has as many columns as its outputs."""
        part, K = copy(self), likelihood.n_outputs
        part._likelihood, part._target, part._nothing = likelihood, slice(output * K, output * K + K), {}
        return part

    @property
    def n_rows(self) -> int:
        return self._samples.n_rows

    @property
    def scan_size(self) -> float:
        return self._terms.scan_size

    def keys(self, atoms) -> np.ndarray:
        return self._terms.keys(np.asarray(atoms, dtype=np.intp))

    def gram(self, atoms) -> np.ndarray:
        columns = self._columns(np.asarray(atoms))
        return self._samples.reduce(_Gram(columns), _add)

    def mode(self, atoms, outputs, alpha, weights, start) -> LaplacePosterior:
        aim = self._aimed(weights)
        weighting = Weighting.of(outputs, alpha, aim.likelihood.n_outputs)
        rows = _There(self._samples, self._columns(atoms), weighting, aim, self._nothing)
        point, U = newton(rows, weighting.begin(rows, start))
        mean, root = weighting.given(point.v, U)
        none, value = np.zeros(0), log_evidence(point.value, U)
        return LaplacePosterior(self.held(atoms), outputs, alpha, mean, root, none, none, none, value)

    def total(self, p: LaplacePosterior, weights: np.ndarray, function: Callable, atoms=None) -> Any:
        more = None if atoms is None else self._columns(np.asarray(atoms))
        look = _Rows(self._columns(p.Phi[0]), self._aimed(weights), p, function, more)
        return self._samples.reduce(look, _add)

    def weigh(self, p: LaplacePosterior, weights: np.ndarray, function: Callable) -> Any:
        rows = _Rows(self._columns(p.Phi[0]), self._aimed(weights), p, function)
        found = self._samples.blocked(self._terms.block_rows).reduce(_Weigh(rows, self._terms.of_rows), _add)
        return self._terms.weighed(*found)

    def look(self, weighed: Any, function: Callable[[Piece], Value], combine: Combine[Value]) -> Value:
        return self._terms.look(weighed, self._samples, function, combine)

    def _aimed(self, weights: np.ndarray) -> _Aim:
        assert self._likelihood is not None
        return _Aim(self._likelihood, self._target, float(weights.sum()) / self._samples.statistics.weight)

    def _columns(self, atoms: np.ndarray) -> _Columns:
        own, places = np.unique(atoms, return_inverse=True)
        scale = self.scale[atoms]
        return _Columns(self._terms.take(own), places, np.where(scale > 0.0, scale, 1.0))

    def columns(self, atoms) -> np.ndarray:
        raise NotImplementedError(_NO_ROW)

    def approximate(self, atoms) -> np.ndarray:
        raise NotImplementedError(_NO_ROW)

    def project(self, Y: np.ndarray) -> np.ndarray:
        raise NotImplementedError(_NO_ROW)

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        raise NotImplementedError(_NO_ROW)

    def subset(self, atoms) -> DaskScanDesign:
        raise NotImplementedError(_NO_ROW)


@dataclass(frozen=True, eq=False)
class _Gram:
    columns: _Columns

    def __call__(self, block: Block) -> np.ndarray:
        Phi = self.columns(block.X)
        return Phi.T @ Phi


@dataclass(frozen=True, eq=False)
class _Weigh:
    rows: _Rows
    terms: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

    def __call__(self, block: Block) -> Sums:
        (Y, W), (A, B) = self.rows(block), self.terms(block.X)
        return Sums((Y.T @ A, W.T @ B))


# ---------------------------------------------------------------- what a dictionary is made of


class Terms(ABC):
    """A dictionary as linear combinations of a few functions of a row, and its squares of others."""

    scale: Any  # (M,) norms of the atoms
    error: float
    block_rows: int
    scan_size: float

    @abstractmethod
    def take(self, atoms: np.ndarray) -> Basis:
        """The dictionary of some atoms (k,), sorted and distinct."""

    @abstractmethod
    def keys(self, atoms: np.ndarray) -> np.ndarray:
        """See `RemoteDesign.keys`."""

    @property
    @abstractmethod
    def of_rows(self) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """The functions on rows X (b, d): (b, c) and, for the squares, (b, e)."""

    @abstractmethod
    def weighed(self, A: np.ndarray, B: np.ndarray) -> Any:
        """What `look` needs of their products (J, c) with Y and (K, e) with W."""

    @abstractmethod
    def look(self, weighed: Any, samples: DaskSamples, function: Callable, combine: Combine) -> Any:
        """See `RemoteDesign.look`."""


@dataclass(frozen=True, eq=False)
class _Both:
    basis: Basis

    def __call__(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Phi = self.basis(X)
        return Phi, Phi**2


class BasisTerms(Terms):
    """A bound basis of M atoms, which every pass evaluates on all rows."""

    error = 1e-13

    def __init__(self, basis: Basis, samples: DaskSamples):
        self._basis = basis
        self.block_rows = int(np.clip(_NUMBERS / (basis.n_atoms * numbers_per_entry(basis)), 16, 4096))
        self.scan_size = float(samples.n_rows) * basis.n_atoms
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            squares = samples.blocked(self.block_rows).reduce(_Squares(self.of_rows), _add)
        if not np.all(np.isfinite(squares)):
            raise not_finite(int(np.argmin(np.isfinite(squares))))
        self.scale = np.sqrt(squares)
        contents = basis.order_keys()
        self._contents = content_ranks(basis, self.scale)[:, None] if contents is None else contents

    def take(self, atoms: np.ndarray) -> Basis:
        return self._basis.take(atoms)

    def keys(self, atoms: np.ndarray) -> np.ndarray:
        return np.column_stack([self._contents[atoms], atoms]).astype(float)

    @property
    def of_rows(self) -> Callable:
        return _Both(self._basis)

    def weighed(self, A: np.ndarray, B: np.ndarray) -> Any:
        safe = np.where(self.scale > 0.0, self.scale, 1.0)
        return A / safe, B / safe**2

    def look(self, weighed: Any, samples: DaskSamples, function: Callable, combine: Combine) -> Any:
        atoms = np.arange(len(self.scale))
        return function(Piece(atoms, self.keys(atoms), *weighed))


@dataclass(frozen=True, eq=False)
class _Squares:
    terms: Callable

    def __call__(self, block: Block) -> np.ndarray:
        return self.terms(block.X)[1].sum(axis=0)


@dataclass(frozen=True, eq=False)
class _AtPivots:
    """The functions besides the kernels, and the kernels at pivots; the same of the squares."""

    others: Basis | None
    kernel: Kernel
    pivots: np.ndarray
    square: Any
    square_pivots: np.ndarray

    def __call__(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        K, E = self.kernels(X)
        if self.others is None:
            return K, E
        B = self.others(X)
        return np.hstack([B, K]), np.hstack([B**2, E])

    def kernels(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the kernels alone."""
        return self.kernel(X, self.pivots), self.square(X, self.square_pivots)


class RowTerms(Terms):
    """A kernel on every row, and p functions besides, through low-rank factors of the kernel and of its square."""

    error = ExactColumns.error

    def __init__(self, dictionary: DistributedKernelBasis, factor: Factor, square: Factor):
        self._dictionary, self._factors = dictionary, (factor, square)
        p, samples = dictionary.n_others, dictionary.samples
        self.block_rows = _block_rows(factor.rank + square.rank)
        self.scan_size = float(samples.n_rows + dictionary.n_atoms) * (factor.rank + p)
        squares = samples.blocked(self.block_rows).reduce(_Squares(self.of_rows), _add)
        self._norms, self._other_scale = squares[p:] @ square.inverse.T @ square.inverse, np.sqrt(squares[:p])
        self._known: dict[int, float] = {}
        self.scale = Lookup(dictionary.n_atoms, self._scale)

    def _scale(self, atoms: np.ndarray) -> np.ndarray:
        n, square = self._dictionary.samples.n_rows, self._factors[1]
        new = np.array(sorted(set(atoms[atoms < n].tolist()) - self._known.keys()), dtype=np.intp)
        if new.size:
            X = self._dictionary.samples.take(new)
            norms = np.sqrt(np.maximum(square.kernel(X, square.pivots) @ self._norms, 0.0))
            self._known.update(zip(new.tolist(), norms.tolist(), strict=True))
        found = [self._known[a] if a < n else float(self._other_scale[a - n]) for a in atoms.ravel().tolist()]
        return np.array(found).reshape(atoms.shape)

    def take(self, atoms: np.ndarray) -> Basis:
        return self._dictionary.unnumbered(atoms)

    def keys(self, atoms: np.ndarray) -> np.ndarray:
        samples, own = self._dictionary.samples, atoms < self._dictionary.samples.n_rows
        X = np.zeros((len(atoms), samples.n_features))
        X[own] = samples.take(atoms[own])
        return _row_keys(np.where(own, 0, atoms - samples.n_rows + 1), X, atoms)

    @property
    def of_rows(self) -> _AtPivots:
        factor, square = self._factors
        others = self._dictionary.others
        return _AtPivots(others, factor.kernel, factor.pivots, square.kernel, square.pivots)

    def weighed(self, A: np.ndarray, B: np.ndarray) -> Any:
        # k(x, z) ~= k(x, Z) L^-T L^-1 k(Z, z) for the pivots Z, and so the squares
        p, (factor, square) = self._dictionary.n_others, self._factors
        M, N = A[:, p:] @ factor.inverse.T @ factor.inverse, B[:, p:] @ square.inverse.T @ square.inverse
        return A[:, :p], B[:, :p], M, N

    def look(self, weighed: Any, samples: DaskSamples, function: Callable, combine: Combine) -> Any:
        A, B, M, N = weighed
        look = _Look(self.of_rows, M, np.vstack([N, self._norms]), function)
        total = samples.blocked(self.block_rows).reduce(look, combine)
        p = self._dictionary.n_others
        if p:
            atoms, safe = samples.n_rows + np.arange(p), np.where(self._other_scale > 0.0, self._other_scale, 1.0)
            total = combine(total, function(Piece(atoms, self.keys(atoms), A / safe, B / safe**2)))
        return total


def _row_keys(kind: np.ndarray, X: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Kernels by their rows X (k, d), then the others, of kinds (k,) from 1 on."""
    return np.column_stack([kind, X, atoms])


@dataclass(frozen=True, eq=False)
class _Look:
    """The rows of a block as candidates: M and N take their kernels at the pivots to Y'Phi and to weighted squares.

    The last row of N is for the squares of their norms.
    """

    terms: _AtPivots
    M: np.ndarray
    N: np.ndarray
    function: Callable

    def __call__(self, block: Block) -> Any:
        K, E = self.terms.kernels(block.X)
        *squares, norms = self.N @ E.T
        safe = np.where(norms > 0.0, norms, 1.0)
        atoms = block.start + np.arange(len(block.X))
        keys = _row_keys(np.zeros(len(atoms)), block.X, atoms)
        return self.function(Piece(atoms, keys, (self.M @ K.T) / np.sqrt(safe), np.array(squares) / safe))


def scan_rows(dictionary: DistributedKernelBasis, memory: float) -> DaskScanDesign | None:
    """A kernel on every row for scans on the workers; None where the rank of it, or of its square, is not low.

    This process and each worker use no more than ``memory`` bytes.
    """
    kernel, samples = dictionary.kernel, dictionary.samples
    if not kernel.positive_definite:
        return None
    found = row_factor(samples, kernel, memory)
    squared = None if found is None else row_factor(samples, _Square(kernel), memory)
    if found is None or squared is None:
        return None
    return DaskScanDesign(RowTerms(dictionary, found[0], squared[0]), samples)


def scan_basis(basis: Basis, samples: DaskSamples) -> DaskScanDesign:
    """A bound basis for scans on the workers."""
    return DaskScanDesign(BasisTerms(basis, samples), samples)
