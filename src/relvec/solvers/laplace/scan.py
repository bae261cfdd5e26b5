"""Scans of the dictionary under a Laplace posterior: what each unit outside the model, or in exchange, would gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from relvec.design import Piece, RemoteDesign
from relvec.design.order import row_hash64
from relvec.inference.evidence import exchange_statistics, gain_add, optimal_alpha
from relvec.inference.laplace import LaplacePosterior, ridge_on_device
from relvec.inference.likelihoods import others
from relvec.inference.linalg import factor_identity_plus, factor_ridge, inverse_triangular
from relvec.runtime.arrays import is_device_array, like, namespace, take, to_host
from relvec.solvers.gaussian.moves import _first_of_equals
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem, deletion_gains, paired

# Scans of K classes take all pairs of the model into account up to this many products, its own class's beyond.
_EXACT = 2e9
_PROMISING = 512  # atoms that a scan of rows elsewhere returns
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

    The atoms are the dictionary, or the best of one whose rows are elsewhere. Units are counted as if there were no
    others: unit i is one of atom i % L, and its number in the dictionary is ``units[i]``.

    Attributes
    ----------
    classes : of the K outputs.
    exact : see `Sides`.
    atoms, order : (L,) numbers and ranks by content of the atoms.
    units, gains, alpha : (L,) or (K L,) of the units.
    looked : what the rows elsewhere were asked, for further questions; None where they are here.
    """

    classes: list[ClassScan]
    exact: bool
    atoms: np.ndarray
    order: np.ndarray
    units: np.ndarray
    gains: np.ndarray
    alpha: np.ndarray
    looked: Any = None

    def pairs(self, problem: LaplaceProblem, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output of every weight of the units i, and the place of its atom."""
        return paired(i, len(self.atoms), problem.K if problem.share else 1)

    def rank(self, i: np.ndarray) -> np.ndarray:
        """Rank of units by content."""
        return self.order[i % len(self.atoms)] * len(self.classes) + i // len(self.atoms)

    def start(self, model: LaplaceModel, i: np.ndarray) -> np.ndarray:
        """Weights of the units i, pair by pair, in the linearised problem: Q / (alpha + S)."""
        outputs, atoms = self.pairs(model.problem, i)
        alpha = np.repeat(self.alpha[i], model.problem.per_unit)
        S, Q = np.array([(self.classes[c].S[m], self.classes[c].Q[m]) for c, m in zip(outputs, atoms)]).T
        return Q / (alpha + S)


def scan(model: LaplaceModel) -> Scan:
    """Gains of all additions, exact for the linearised problem (for K classes: see `Sides`)."""
    problem, p, design = model.problem, model.posterior, model.problem.design
    size = design.n_rows * design.n_atoms * max(1, len(p.alpha))
    exact = problem.K == 1 or problem.K * size <= _EXACT
    rows = 1.0 + len(p.alpha) / (1 if exact else problem.K)
    problem.budget.spent += problem.K * design.scan_size * (0.3 + 0.1 * rows)
    sides = Sides(problem.K, exact, _roots(model, exact), [np.flatnonzero(p.outputs == c) for c in range(problem.K)])
    if isinstance(design, RemoteDesign):
        return _scan_there(model, design, sides)
    curvature = sides.curvature(p, problem.weights)
    diagonal = design.diagonal(curvature[:, 0] if problem.K == 1 else curvature).reshape(problem.K, -1)
    together = [design.project(sides(p, problem.weights, c)) for c in range(problem.K)]
    classes = sides.classes(together, diagonal, design.error)
    gains, alpha = _gains(classes, problem.share)
    gains[~problem.outside(model.active)] = 0.0
    return Scan(classes, exact, np.arange(design.n_atoms), problem.order, np.arange(len(gains)), gains, alpha)


def _gains(classes: list[ClassScan], share: bool) -> tuple[np.ndarray, np.ndarray]:
    S, Q = np.stack([s.S for s in classes]), np.stack([s.Q for s in classes])
    return shared_optimum(S, Q) if share else (gain_add(S, Q).ravel(), optimal_alpha(S, Q).ravel())


@dataclass(frozen=True, eq=False)
class Sides:
    """What a scan of K classes multiplies the dictionary with, row by row.

    Where K classes are dear (``exact`` False) only the model's own weights of the class count. That takes B for
    block-diagonal over the classes, which is used to propose moves only: they are kept or not by the evidence of the
    joint model.

    Attributes
    ----------
    roots : for each class the root of Sigma, (k, k), or of its own weights' share, (k_c, k_c).
    own : places of the weights of each class.
    """

    K: int
    exact: bool
    roots: list[np.ndarray]
    own: list[np.ndarray]

    def curvature(self, p: LaplacePosterior, weights: np.ndarray) -> np.ndarray:
        """The diagonal of B (n, K)."""
        return p.W[:, None] if self.K == 1 else weights[:, None] * p.W * others(p.W)

    def __call__(self, p: LaplacePosterior, weights: np.ndarray, c: int) -> np.ndarray:
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
            Y = (take(p.Phi, self.own[c], 1) @ like(p.Phi, root)) * (w * others(p.W)[:, c])[:, None]
        return namespace(Y).concat([Y, p.r[:, c][:, None]], axis=1)

    def classes(self, together: list[np.ndarray], diagonal: np.ndarray, error: float) -> list[ClassScan]:
        """The statistics, from Y'Phi (j + 1, L) of each class and the weighted squares (K, L) of the atoms."""
        found = []
        for c, (each, squares) in enumerate(zip(together, diagonal, strict=True)):
            T, Q = each[:-1], each[-1]
            S = squares - np.einsum("ij,ij->j", T, T)
            S[S < error * squares] = 0.0
            root = self.roots[c][self.own[c]] if self.exact else self.roots[c]
            found.append(ClassScan(S, Q, T, root, self.own[c]))
        return found


def _roots(model: LaplaceModel, exact: bool) -> list[np.ndarray]:
    problem, p, design = model.problem, model.posterior, model.problem.design
    if exact:
        return [p.root] * problem.K
    own = [np.flatnonzero(p.outputs == c) for c in range(problem.K)]
    spreads = [1.0 / np.sqrt(p.alpha[i]) for i in own]
    if isinstance(design, RemoteDesign):
        grams = design.total(p, problem.weights, _OwnGrams(own, spreads))
        factors = [factor_identity_plus(gram.copy()) for gram in grams]
    else:
        ridged = (_own_columns(p, problem.weights, c, *each) for c, each in enumerate(zip(own, spreads, strict=True)))
        factors = [ridge_on_device(X) if is_device_array(X) else factor_ridge(X) for X in ridged]
    return [spread[:, None] * inverse_triangular(U) for spread, U in zip(spreads, factors, strict=True)]


def _own_columns(p: LaplacePosterior, weights: np.ndarray, c: int, own: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Columns (n, k_c) of the weights of class c, times the root of the diagonal of B and over those of alpha."""
    w, Phi = weights * p.W[:, c] * others(p.W)[:, c], take(p.Phi, own, 1)
    return namespace(w).sqrt(w)[:, None] * Phi * like(Phi, spread)


def shared_optimum(S: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gain (M,) and precision (M,) of adding atoms whose K classes share one precision, for S, Q (K, M).

    TF03 eq. (18) summed over the classes has no closed maximum; a grid is enough for a proposal.
    """
    centre = np.maximum(S.mean(axis=0), 1e-300)
    gains, best = np.zeros(S.shape[1]), np.full(S.shape[1], np.inf)
    for factor in _GRID:
        a = factor * centre
        value = 0.5 * np.sum(np.log(a / (a + S)) + Q * Q / (a + S), axis=0)
        better = (value > gains) & (S.max(axis=0) > 0.0)
        gains, best = np.where(better, value, gains), np.where(better, a, best)
    return gains, best


def overlaps(model: LaplaceModel, found: Scan, i: np.ndarray) -> np.ndarray:
    """Correlation (u, u) of candidate units i in the metric C^-1 of the linearised problem, absolute."""
    problem, p, design = model.problem, model.posterior, model.problem.design
    outputs, atoms = (np.zeros(len(i), dtype=np.intp), i) if problem.share else found.pairs(problem, i)
    metric = Metric(outputs, problem.K, problem.share)
    if isinstance(design, RemoteDesign):
        inner = design.total(p, problem.weights, metric, found.atoms[atoms])
    else:
        inner = metric(p, problem.weights, design.approximate(found.atoms[atoms]))
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


@dataclass(frozen=True, eq=False)
class Metric:
    """Inner products (u, u) of columns (n, u) under B, or plain where classes share precisions; outputs (u,)."""

    outputs: np.ndarray
    K: int
    plain: bool

    def __call__(self, p: LaplacePosterior, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        if self.plain:
            return to_host(columns.T @ columns)
        if self.K == 1:
            return to_host(columns.T @ (columns * p.W[:, None]))
        root = namespace(p.W).sqrt(weights)[:, None]
        P = take(p.W, self.outputs, 1) * root
        inner = -to_host((columns * P).T @ (columns * P))
        return inner + (self.outputs[:, None] == self.outputs) * to_host(columns.T @ (columns * (P * root)))


def alike(model: LaplaceModel, found: Scan, first: int, others: np.ndarray) -> np.ndarray:
    """Correlation (u,) of one candidate with others: a row of `overlaps`, without the columns of the others."""
    problem, p = model.problem, model.posterior
    if problem.K > 1 or problem.share or isinstance(problem.design, RemoteDesign):
        return overlaps(model, found, np.append(first, others))[0, 1:]
    scanned = found.classes[0]
    weighted = problem.design.approximate(np.array([first])) * p.W[:, None]
    inner = to_host(problem.design.project(weighted))[0, others] - scanned.T[:, first] @ scanned.T[:, others]
    return np.abs(inner) / np.sqrt(np.maximum(scanned.S[first] * scanned.S[others], 1e-300))


@dataclass(frozen=True, eq=False)
class Swaps:
    """For units of the model (places ``leaving``) the best unit to take its place, the linearised gain, its start."""

    leaving: np.ndarray
    entering: np.ndarray
    gain: np.ndarray
    alpha: np.ndarray
    weight: list[np.ndarray]


def swaps(model: LaplaceModel, found: Scan) -> Swaps:
    """The best exchange of every unit by another of the same class (TF03 6.2), before re-estimation."""
    problem, p, design = model.problem, model.posterior, model.problem.design
    lost, _ = deletion_gains(model)
    seek = Exchange(problem.share, p.variance, p.mean)
    if isinstance(design, RemoteDesign):
        best = _exchange_there(model, design, found, seek)
    else:
        outside = problem.outside(model.active).reshape(-1, design.n_atoms)
        best = seek(found.classes, outside, problem.order)
        best = best._replace(entering=best.entering + (0 if problem.share else best.outputs * design.n_atoms))
    rows = []
    for i, entering, S, Q, ratio in zip(best.leaving, best.entering, best.S, best.Q, best.ratio, strict=True):
        if problem.share:
            if ratio > 0.0:
                gain, alpha = shared_optimum(S[:, None], Q[:, None])
                a = float(alpha[0]) if np.isfinite(alpha[0]) else 1e3 * float(S.mean())
                rows.append((i, entering, lost[i] + gain[0], a, Q / (a + S)))
            continue
        # where the entering atom alone would not stay, start it in the prior's reach and let Newton decide
        s, q = (S[0] if ratio > 0.0 else 1.0), Q[0]
        a = s * s / max(q * q - s, 1e-3 * s)
        rows.append((i, entering, lost[i] + float(gain_add(s, q)) if ratio > 0.0 else -np.inf, a, Q / (a + s)))
    if not rows:
        return Swaps(np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0), [])
    leaving, entering, gains, alphas, weight = zip(*rows)
    return Swaps(np.array(leaving), np.array(entering), np.array(gains), np.array(alphas), list(weight))


class Best(NamedTuple):
    """For units of a model (places ``leaving``, their outputs) the atom of the largest Q^2 / S in exchange.

    S and Q are (u, 1), or (u, K) where the classes share their precisions.
    """

    leaving: np.ndarray
    outputs: np.ndarray
    entering: np.ndarray
    ratio: np.ndarray
    S: np.ndarray
    Q: np.ndarray


@dataclass(frozen=True, eq=False)
class Exchange:
    """The search for the best exchanges among some atoms, given variance and mean (k,) of the model's weights."""

    share: bool
    variance: np.ndarray
    mean: np.ndarray

    def __call__(self, classes: list[ClassScan], outside: np.ndarray, order: np.ndarray) -> Best:
        """Among L atoms with ranks ``order`` (L,), of which those marked ``outside``, (1, L) or (K, L), may enter."""
        tables = [exchange_statistics(s.S, s.Q, s.root @ s.T, self.variance[s.own], self.mean[s.own]) for s in classes]
        if self.share:
            ratio = sum(Q * Q / np.where(S > 0.0, S, np.inf) for S, Q in tables)
            j = _first_of_equals(np.where(outside, ratio, 0.0), order)
            at = np.arange(len(j))
            S, Q = (np.stack([table[k][at, j] for table in tables], axis=1) for k in (0, 1))
            return Best(at, np.zeros(len(j), dtype=np.intp), j, np.where(outside[0, j], ratio[at, j], 0.0), S, Q)
        parts = []
        for c, (s, (S, Q)) in enumerate(zip(classes, tables, strict=True)):
            ratio = np.where(outside[c] & (s.S > 0.0), Q * Q / np.where(S > 0.0, S, 1.0), 0.0)
            j = _first_of_equals(ratio, order)
            at = np.arange(len(j))
            parts.append(Best(s.own, np.full(len(j), c), j, ratio[at, j], S[at, j][:, None], Q[at, j][:, None]))
        return Best(*(np.concatenate(column) for column in zip(*parts, strict=True)))


# ---------------------------------------------------------------- rows that are elsewhere


@dataclass(frozen=True, eq=False)
class _OwnGrams:
    """For each class the Gram matrix of `_own_columns`."""

    own: list[np.ndarray]
    spreads: list[np.ndarray]

    def __call__(self, p: LaplacePosterior, weights: np.ndarray) -> list[np.ndarray]:
        parts = (_own_columns(p, weights, c, *each) for c, each in enumerate(zip(self.own, self.spreads, strict=True)))
        return [X.T @ X for X in parts]


@dataclass(frozen=True, eq=False)
class _View:
    """How a piece of the dictionary looks to a scan.

    ``taken`` are the contents, scattered, of the atoms that each class has in the model (one list where classes share
    them): what is like them on another row may not enter beside them, since equal rows are not merged there.
    """

    sides: Sides
    share: bool
    n_atoms: int
    taken: list[np.ndarray]
    closed: np.ndarray
    error: float

    def sums(self, p: LaplacePosterior, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Y (n, J) of all classes and the diagonal of B (n, K), of some rows."""
        sides = self.sides
        return np.hstack([sides(p, weights, c) for c in range(sides.K)]), sides.curvature(p, weights)

    def classes(self, piece: Piece) -> list[ClassScan]:
        """The statistics of its atoms."""
        ends = np.cumsum([root.shape[1] + 1 for root in self.sides.roots])[:-1]
        return self.sides.classes(np.split(piece.projected, ends), piece.squares, self.error)

    def units(self, atoms: np.ndarray) -> np.ndarray:
        """Numbers (K, L) of the units of atoms, (1, L) where classes share them."""
        return atoms + self.n_atoms * np.arange(len(self.taken))[:, None]

    def outside(self, piece: Piece) -> np.ndarray:
        """Which of those may enter."""
        hashed = _contents(piece.keys)
        return np.stack([~np.isin(hashed, own) for own in self.taken]) & ~np.isin(piece.atoms, self.closed)


def _contents(keys: np.ndarray) -> np.ndarray:
    """What atoms are (L,), whatever their numbers."""
    return row_hash64(keys[:, :-1])


@dataclass(frozen=True, eq=False)
class _Promising:
    """The pieces of a dictionary, with no more than ``most`` atoms: those of the largest gains, none twice."""

    view: _View
    most: int

    def __call__(self, piece: Piece) -> Piece:
        by_number = np.argsort(piece.atoms)
        first = by_number[np.unique(_contents(piece.keys)[by_number], return_index=True)[1]]
        piece = piece.only(np.sort(first))
        gains, _ = _gains(self.view.classes(piece), self.view.share)
        outside = self.view.outside(piece)
        best = np.where(outside, gains.reshape(outside.shape), 0.0).max(axis=0)
        return piece.only(np.argsort(-best, kind="stable")[: self.most])

    def joined(self, a: Piece, b: Piece) -> Piece:
        """Both as one."""
        return self(Piece(*(np.concatenate(pair, axis=-1 if i > 1 else 0) for i, pair in enumerate(zip(a, b)))))


def _scan_there(model: LaplaceModel, design: RemoteDesign, sides: Sides) -> Scan:
    problem, M = model.problem, design.n_atoms
    output, contents = model.active // M, _contents(design.keys(model.active % M))
    taken = [contents[output == c] for c in range(1 if problem.share else problem.K)]
    view = _View(sides, problem.share, M, taken, np.array(problem.closed, dtype=np.intp), design.error)
    sums = design.weigh(model.posterior, problem.weights, view.sums)
    promising = _Promising(view, _PROMISING)
    piece = design.look(sums, promising, promising.joined)
    classes, outside = view.classes(piece), view.outside(piece)
    gains, alpha = _gains(classes, problem.share)
    gains[~outside.ravel()] = 0.0
    order, units = _ranks(piece.keys), view.units(piece.atoms).ravel()
    return Scan(classes, sides.exact, piece.atoms, order, units, gains, alpha, (view, sums))


def _ranks(keys: np.ndarray) -> np.ndarray:
    """Ranks (L,) of atoms by content, keys (L, q)."""
    ranks = np.empty(len(keys), dtype=np.intp)
    ranks[np.lexsort(keys.T[::-1])] = np.arange(len(keys))
    return ranks


@dataclass(frozen=True, eq=False)
class _Exchanging:
    """The best exchanges among the atoms of a piece, whose contents (u, q) go with them."""

    view: _View
    seek: Exchange

    def __call__(self, piece: Piece) -> tuple[Best, np.ndarray]:
        best = self.seek(self.view.classes(piece), self.view.outside(piece), _ranks(piece.keys))
        entering = self.view.units(piece.atoms)[best.outputs, best.entering]
        return best._replace(entering=entering), piece.keys[best.entering]

    @staticmethod
    def joined(a: tuple[Best, np.ndarray], b: tuple[Best, np.ndarray]) -> tuple[Best, np.ndarray]:
        """The better of both for each unit."""
        both = np.stack([a[0].ratio, b[0].ratio], axis=1)
        order = np.array([_ranks(np.stack(pair)) for pair in zip(a[1], b[1], strict=True)]).reshape(-1, 2)
        second = _first_of_equals(both, order).astype(bool)

        def better(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            return np.where(second if one.ndim == 1 else second[:, None], other, one)

        return Best(*(better(*pair) for pair in zip(a[0], b[0], strict=True))), better(a[1], b[1])


def _exchange_there(model: LaplaceModel, design: RemoteDesign, found: Scan, seek: Exchange) -> Best:
    view, sums = found.looked
    exchanging = _Exchanging(view, seek)
    return design.look(sums, exchanging, exchanging.joined)[0]
