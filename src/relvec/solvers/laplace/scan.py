"""Scans of the dictionary under a Laplace posterior: the gain of adding each unit outside the model.

A scan has two parts, both answered by the design: sums over rows weighted by the posterior (`ScanRows`), and a look at
every atom with these sums (`ScanTask`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from relvec.design import Piece
from relvec.inference.evidence import gain_add, optimal_alpha
from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.inference.likelihoods import complement
from relvec.inference.linalg import factor_ridge_and_basis, inverse_triangular
from relvec.runtime.arrays import like, namespace, take, to_host
from relvec.solvers._native.laplace import Mode, scan_gains
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, pair_outputs


@dataclass(frozen=True)
class ScanSettings:
    """Limits and costs of a scan."""

    # Scans of K classes take all pairs of the model into account up to this many products, its own class's beyond.
    max_exact_products: float = 2e9
    fixed_ns: float = 0.3  # of a number that a scan reads, and for each weight of the model besides
    weight_ns: float = 0.1
    min_share_of_digits: float = 1e-6  # of phi' B phi: an S below this has lost too many digits


SCANS = ScanSettings()
_GRID = np.exp(np.linspace(-9.0, 9.0, 37))  # shared precisions are proposed on this grid, relative to the mean s


@dataclass(frozen=True, eq=False)
class ClassScan:
    """S, Q (L,) of atoms for one class, TF03 eq. (24)-(25), and what exchanges need.

    ``T`` (j, L) has S = diagonal - |T|^2, and ``root[i] @ T`` is the row of Sigma Phi_a' B Phi of the i-th weight of
    this class; ``own`` are the places of its weights in the model.
    """

    S: np.ndarray
    Q: np.ndarray
    T: np.ndarray
    root: np.ndarray
    own: np.ndarray


@dataclass(frozen=True, eq=False)
class Scan:
    """Statistics of L atoms, and for each unit of theirs the gain of adding it and the precision for it.

    The atoms are the dictionary, or the best of one that brings only some here. Units are counted as if there were no
    others: unit i is one of atom i % L, and its number in the dictionary is ``units[i]``.
    """

    classes: list[ClassScan]  # of the K outputs
    exact: bool  # see `ScanRows`
    # (L,) numbers and ranks by content of the atoms
    atoms: np.ndarray
    order: np.ndarray
    # (L,) or (K L,) of the units
    units: np.ndarray
    gains: np.ndarray
    alpha: np.ndarray
    outside: np.ndarray  # (1, L) or (K, L) whether units may enter
    # the look at the atoms and the sums over rows it rests on, for further looks; None where all atoms are here
    task: ScanTask | None = None
    moments: Any = None

    def pairs(self, problem: LaplaceProblem, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output of every weight of the units i, and the place of its atom."""
        return pair_outputs(i, len(self.atoms), problem.K if problem.share else 1)

    def rank(self, i: np.ndarray) -> np.ndarray:
        """Rank of units by content."""
        return self.order[i % len(self.atoms)] * len(self.classes) + i // len(self.atoms)

    def start(self, model: LaplaceModel, i: np.ndarray) -> np.ndarray:
        """Weights of the units i, pair by pair, in the linearised problem: Q / (alpha + S)."""
        if len(self.classes) == 1:
            S, Q = self.classes[0].S[i], self.classes[0].Q[i]
            return Q / (self.alpha[i] + S)
        outputs, atoms = self.pairs(model.problem, i)
        alpha = np.repeat(self.alpha[i], model.problem.per_unit)
        S, Q = np.array([(self.classes[c].S[m], self.classes[c].Q[m]) for c, m in zip(outputs, atoms)]).T
        return Q / (alpha + S)


def scan(model: LaplaceModel) -> Scan:
    """Gains of all additions, exact for the linearised problem (for K classes: see `ScanRows`).

    In a thorough search of one output the motion of B counts too, to first order in 1/alpha.
    """
    return _scan_in_memory(model) if isinstance(model.fit, Mode) else _scan_design(model)


def _scan_in_memory(model: LaplaceModel) -> Scan:
    problem, mode = model.problem, model.fit
    design: Any = problem.design  # rows in memory are arrays
    problem.budget.spent += design.scan_size * (SCANS.fixed_ns + SCANS.weight_ns * (1.0 + len(mode.alpha)))
    projected = np.ascontiguousarray(design.project(_directions_in_memory(model)))
    outside = np.ones(design.n_atoms, dtype=bool)
    outside[model.active] = False
    outside[list(problem.closed)] = False
    k, diagonal = len(mode.alpha), design.diagonal(mode.state[2])
    S, Q, gains, alpha = scan_gains(projected, diagonal, outside.view(np.uint8), k, design.scan_error)
    own, atoms = np.arange(len(model.active)), np.arange(design.n_atoms)
    classes = [ClassScan(S, Q, projected[:k], mode.root, own)]
    return Scan(classes, True, atoms, problem.order, atoms, gains, alpha, outside[None])


def _directions_in_memory(model: LaplaceModel) -> np.ndarray:
    """Y (n, k + 1) with Y'Phi = [T; Q]: B Phi_a root, and the residuals.

    In a thorough search with a further column E, the way in which an atom moves log|Phi'B Phi + A| through B:
    s - B Phi_a Sigma Phi_a's with the s of `PosteriorOnRows.evidence_slope`.
    """
    mode, problem = model.fit, model.problem
    (k, thorough), (_, r, W) = (len(mode.alpha), problem.thorough), mode.state
    Y = np.empty((k + 1 + thorough, len(W)))
    np.matmul(mode.root.T, mode.Phi.T, out=Y[:k])
    Y[:k] *= W
    Y[k] = r
    if thorough:
        s = model.posterior.evidence_slope(problem.likelihood, problem.weights)
        Y[k + 1] = s - (mode.root.T @ (mode.Phi.T @ s)) @ Y[:k]
    return Y.T


def _scan_design(model: LaplaceModel) -> Scan:
    problem, p, design = model.problem, model.posterior, model.problem.design
    K, M, on_rows = problem.K, design.n_atoms, model.on_rows
    exact = K == 1 or K * design.n_rows * M * max(1, len(p.alpha)) <= SCANS.max_exact_products
    weights = 1.0 + len(p.alpha) / (1 if exact else K)
    problem.budget.spent += K * design.scan_size * (SCANS.fixed_ns + SCANS.weight_ns * weights)
    rows = ScanRows(K, exact, roots_of(model, exact), places_by_class(model))
    output, contents = model.active // M, design.contents(model.active % M)
    taken = [contents[output == c] for c in range(1 if problem.share else K)]
    closed = np.array(problem.closed, dtype=np.intp)
    task = ScanTask(rows, problem.share, M, taken, closed, design.scan_error, design.max_candidates)
    moments = design.weighted_moments(on_rows, rows, problem.order)
    piece = design.scan_weighted(moments, task, task.combine)
    classes, outside = task.statistics(piece), task.outside(piece)
    if K == 1 and problem.thorough:
        _refine(model, piece, classes[0].S)
    gains, alpha = _gains(classes, problem.share)
    gains[~outside.ravel()] = 0.0
    order, units = content_order(piece.keys), task.units(piece.atoms).ravel()
    return Scan(classes, exact, piece.atoms, order, units, gains, alpha, outside, task, moments)


def _refine(model: LaplaceModel, piece: Piece, S: np.ndarray) -> None:
    """Compute S (L,) of one output again, by projection, where it is a difference of nearly equal numbers."""
    p = model.posterior
    design: Any = model.problem.design  # rows of a thorough search are in memory
    root = np.sqrt(p.W)
    _, basis = factor_ridge_and_basis(root[:, None] * p.Phi / np.sqrt(p.alpha))
    if basis is None:
        return
    for j in np.flatnonzero(S < SCANS.min_share_of_digits * piece.squares[0]):
        z = root * design.columns(piece.atoms[[j]])[:, 0]
        S[j] = max(float(z @ basis.split(z)[1]), 0.0)


def _gains(classes: list[ClassScan], share: bool) -> tuple[np.ndarray, np.ndarray]:
    S, Q = np.stack([s.S for s in classes]), np.stack([s.Q for s in classes])
    return shared_optimum(S, Q) if share else (gain_add(S, Q).ravel(), optimal_alpha(S, Q).ravel())


def places_by_class(model: LaplaceModel) -> list[np.ndarray]:
    """Places of the weights of each class."""
    return [np.flatnonzero(model.posterior.outputs == c) for c in range(model.problem.K)]


@dataclass(frozen=True, eq=False)
class ScanRows:
    """The factors by which a scan of K classes multiplies the dictionary, row by row.

    Where K classes cost too much (``exact`` False) only the model's own weights of the class count. That takes B for
    block-diagonal over the classes, which is used to propose moves only: they are kept or not by the evidence of the
    joint model.
    """

    K: int
    exact: bool
    roots: list[np.ndarray]  # for each class the root of Sigma, (k, k), or of its own weights' share, (k_c, k_c)
    own: list[np.ndarray]  # places of the weights of each class

    @property
    def widths(self) -> list[int]:
        """Columns of the directions of each class."""
        return [root.shape[1] + 1 for root in self.roots]

    def curvature(self, p: PosteriorOnRows, weights: np.ndarray) -> np.ndarray:
        """Return the diagonal of B (n, K)."""
        return p.W[:, None] if self.K == 1 else weights[:, None] * p.W * complement(p.W)

    def directions(self, p: PosteriorOnRows, weights: np.ndarray, c: int) -> np.ndarray:
        """Y (n, j + 1) with Y'Phi = [T; Q] for class c."""
        root = self.roots[c]
        if self.K == 1:
            Y = p.Phi @ like(p.Phi, np.column_stack([root, np.zeros(len(root))]))  # the last column is for r
            Y *= p.W[:, None]
            Y[:, -1] = p.r
            return Y
        w = weights * p.W[:, c]
        if self.exact:
            # column of Phi_a'B for class c: weight p_c' (delta - p_c) phi
            factor = w[:, None] * (like(w, p.outputs == c) - take(p.W, p.outputs, 1))
            Y = (p.Phi * factor) @ like(p.Phi, root)
        else:
            Y = (take(p.Phi, self.own[c], 1) @ like(p.Phi, root)) * (w * complement(p.W)[:, c])[:, None]
        return namespace(Y).concat([Y, p.r[:, c][:, None]], axis=1)


def roots_of(model: LaplaceModel, exact: bool) -> list[np.ndarray]:
    """`ScanRows.roots` of a model."""
    problem, p = model.problem, model.posterior
    if exact:
        return [p.root] * problem.K
    own = places_by_class(model)
    spreads = [1.0 / np.sqrt(p.alpha[i]) for i in own]
    factors = problem.design.ridge_factors(model.on_rows, partial(own_columns, own, spreads))
    return [spread[:, None] * inverse_triangular(U) for spread, U in zip(spreads, factors, strict=True)]


def own_columns(
    places: list[np.ndarray], spreads: list[np.ndarray], p: PosteriorOnRows, weights: np.ndarray
) -> Iterator[np.ndarray]:
    """Columns (n, k_c) of the weights of each class, times the root of the diagonal of B and over those of alpha."""
    for c, (own, spread) in enumerate(zip(places, spreads, strict=True)):
        w, Phi = weights * p.W[:, c] * complement(p.W)[:, c], take(p.Phi, own, 1)
        yield namespace(w).sqrt(w)[:, None] * Phi * like(Phi, spread)


@dataclass(frozen=True, eq=False)
class ScanTask:
    """A look at pieces of the dictionary, maybe on another machine: the atoms of the largest gains, none twice."""

    rows: ScanRows
    share: bool
    n_atoms: int
    # contents of the atoms that each class has in the model (one list where classes share them); their equals may not
    # enter
    taken: list[np.ndarray]
    closed: np.ndarray  # atoms that may not enter
    error: float  # see `LaplaceDesign.scan_error`
    max_candidates: int | None  # atoms kept; None for all

    def statistics(self, piece: Piece) -> list[ClassScan]:
        """S and Q of its atoms for each class."""
        rows, found = self.rows, []
        for c, (each, squares) in enumerate(zip(piece.projected, piece.squares, strict=True)):
            T, Q = each[:-1], each[-1]
            S = squares - np.einsum("ij,ij->j", T, T)
            S[S < self.error * squares] = 0.0
            root = rows.roots[c][rows.own[c]] if rows.exact else rows.roots[c]
            found.append(ClassScan(S, Q, T, root, rows.own[c]))
        return found

    def units(self, atoms: np.ndarray) -> np.ndarray:
        """Numbers (K, L) of the units of atoms, (1, L) where classes share them."""
        return atoms + self.n_atoms * np.arange(len(self.taken))[:, None]

    def outside(self, piece: Piece) -> np.ndarray:
        """Which of those may enter."""
        free = np.stack([~np.isin(piece.contents, own) for own in self.taken])
        return free & ~np.isin(piece.atoms, self.closed) if self.closed.size else free

    def __call__(self, piece: Piece) -> Piece:
        if self.max_candidates is None:
            return piece
        by_number = np.argsort(piece.atoms)
        first = by_number[np.unique(piece.contents[by_number], return_index=True)[1]]
        piece = piece.take(np.sort(first))
        gains, _ = _gains(self.statistics(piece), self.share)
        outside = self.outside(piece)
        best = np.where(outside, gains.reshape(outside.shape), 0.0).max(axis=0)
        return piece.take(np.argsort(-best, kind="stable")[: self.max_candidates])

    def combine(self, a: Piece, b: Piece) -> Piece:
        """Return the best of both."""
        return self(a.append(b))


def content_order(keys: np.ndarray) -> np.ndarray:
    """Ranks (L,) of atoms by content, from `Piece.keys`."""
    if keys.ndim == 1:
        return keys
    ranks = np.empty(len(keys), dtype=np.intp)
    ranks[np.lexsort(keys.T[::-1])] = np.arange(len(keys))
    return ranks


def shared_optimum(S: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gain (M,) and precision (M,) of adding atoms whose K classes share one precision, for S, Q (K, M).

    TF03 eq. (18) summed over the classes has no closed maximum; a grid is enough for a proposal.
    """
    centre = np.maximum(S.mean(axis=0), 1e-300)
    gains, best = np.zeros(S.shape[1]), np.full(S.shape[1], np.inf)
    for factor in _GRID:
        a = factor * centre
        with np.errstate(over="ignore"):
            value = 0.5 * np.sum(np.log(a / (a + S)) + Q * Q / (a + S), axis=0)
        better = (value > gains) & (S.max(axis=0) > 0.0) & np.isfinite(value)
        gains, best = np.where(better, value, gains), np.where(better, a, best)
    return gains, best


def correlations(model: LaplaceModel, found: Scan, i: np.ndarray) -> np.ndarray:
    """Correlation (u, u) of candidate units i in the metric C^-1 of the linearised problem, absolute."""
    problem = model.problem
    outputs, atoms = (np.zeros(len(i), dtype=np.intp), i) if problem.share else found.pairs(problem, i)
    products = partial(inner_products, outputs, problem.K, problem.share)
    inner = problem.design.reduce(model.on_rows, products, found.atoms[atoms])
    if problem.share:
        return np.abs(inner)
    S = np.array([found.classes[c].S[m] for c, m in zip(outputs, atoms)])
    if found.exact:
        T = np.column_stack([found.classes[c].T[:, m] for c, m in zip(outputs, atoms)])
        inner -= T.T @ T
    else:
        for c in np.unique(outputs):
            own = np.flatnonzero(outputs == c)
            T = found.classes[c].T[:, atoms[own]]
            inner[np.ix_(own, own)] -= T.T @ T
    size = np.sqrt(np.maximum(S, 1e-300))
    return np.abs(inner) / np.outer(size, size)


def inner_products(
    outputs: np.ndarray, K: int, plain: bool, p: PosteriorOnRows, weights: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Inner products (u, u) of columns (n, u) of outputs (u,) under B, or plain where classes share precisions."""
    if plain:
        return to_host(columns.T @ columns)
    if K == 1:
        return to_host(columns.T @ (columns * p.W[:, None]))
    root = namespace(p.W).sqrt(weights)[:, None]
    P = take(p.W, outputs, 1) * root
    inner = -to_host((columns * P).T @ (columns * P))
    return inner + (outputs[:, None] == outputs) * to_host(columns.T @ (columns * (P * root)))


def correlations_with(model: LaplaceModel, found: Scan, first: int, others: np.ndarray) -> np.ndarray:
    """Correlation (u,) of one candidate with others: a row of `correlations`, without the columns of the others."""
    problem = model.problem
    if problem.K > 1 or problem.share:
        return correlations(model, found, np.append(first, others))[0, 1:]
    scanned = found.classes[0]
    inner = problem.design.weighted_products(model.on_rows, int(found.atoms[first]), found.atoms[others])
    inner = inner - scanned.T[:, first] @ scanned.T[:, others]
    return np.abs(inner) / np.sqrt(np.maximum(scanned.S[first] * scanned.S[others], 1e-300))
