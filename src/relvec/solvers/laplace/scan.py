"""Looks at the whole dictionary under a Laplace posterior: the gains of additions and of exchanges.

Both are those of the problem linearised at the mode. They choose moves; whether one is kept the refitted evidence says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.inference.evidence import exchange_statistics, first_of_equals, gain_add, near_copy_price, optimal_alpha
from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.inference.likelihoods import complement
from relvec.inference.linalg import factor_ridge, factor_ridge_and_basis, inverse_triangular
from relvec.solvers._native.laplace import Mode, scan_gains
from relvec.solvers.laplace.precisions import deletion_gains
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem


@dataclass(frozen=True)
class ScanSettings:
    """Limits and costs of a scan."""

    # Scans of K classes take all pairs of the model into account up to this many products, its own class's beyond.
    max_exact_products: float = 2e9
    fixed_ns: float = 0.3  # of a number that a scan reads, and for each weight of the model besides
    weight_ns: float = 0.1
    # Of the log-odds or log rate of any row by an addition, as far as the linearised problem is believed; beyond, the
    # addition has a larger precision. A row far on the wrong side would move by hundreds by its own function. Chosen
    # by `benchmarks/classes.py`.
    max_motion: float = 4.0
    least_share_of_tol: float = 0.1  # that additions with shared precisions must gain beyond their price to count
    min_share_of_digits: float = 1e-6  # of phi' B phi: an S below this has lost too many digits


SCANS = ScanSettings()
_LOG_GRID = np.linspace(-9.0, 9.0, 37)  # shared precisions are proposed on this grid, relative to the mean s


@dataclass(frozen=True, eq=False)
class ClassScan:
    """S, Q (M,) of all atoms for one class, TF03 eq. (24)-(25), and what exchanges need.

    ``T`` (j, M) has S = phi' B phi - |T|^2, and ``root[i] @ T`` is the row of Sigma Phi_a' B Phi of the i-th weight of
    this class; ``own`` are the places of its weights in the model.
    """

    S: np.ndarray
    Q: np.ndarray
    T: np.ndarray
    root: np.ndarray
    own: np.ndarray


@dataclass(frozen=True, eq=False)
class Scan:
    """Statistics of the dictionary for each class; the gain of adding each unit (U,) and the precision (U,) for it.

    Where K classes cost too much (``exact`` False) only the model's own weights of a class count for it: B is taken for
    block-diagonal over the classes.
    """

    classes: list[ClassScan]
    exact: bool
    gains: np.ndarray
    alpha: np.ndarray
    outside: np.ndarray  # (1, M) or (K, M) whether units may enter
    crowd: np.ndarray  # likewise: how many units of the model each is a near-copy of

    def start(self, model: LaplaceModel, units: np.ndarray) -> np.ndarray:
        """Weights of units, pair by pair, in the linearised problem: Q / (alpha + S)."""
        outputs, atoms = model.problem.pairs(units)
        S, Q = self._of(outputs, atoms)
        return Q / (np.repeat(self.alpha[units], model.problem.per_unit) + S)

    def correlations(self, model: LaplaceModel, units: np.ndarray) -> np.ndarray:
        """Return the absolute correlations (u, u) of candidates in the metric C^-1 of the linearised problem.

        Where classes share precisions they are those of the columns.
        """
        problem, p = model.problem, model.posterior
        if problem.share:
            columns = problem.design.columns(units)
            return np.abs(columns.T @ columns)
        outputs, atoms = problem.pairs(units)
        inner = _curved_products(p, problem.weights, outputs, problem.design.columns(atoms))
        for own in [np.arange(len(units))] if self.exact else [np.flatnonzero(outputs == c) for c in set(outputs)]:
            T = np.column_stack([self.classes[outputs[i]].T[:, atoms[i]] for i in own])
            inner[np.ix_(own, own)] -= T.T @ T
        size = np.sqrt(np.maximum(self._of(outputs, atoms)[0], 1e-300))
        return np.abs(inner) / np.outer(size, size)

    def correlations_with(self, model: LaplaceModel, first: int, others: np.ndarray) -> np.ndarray:
        """Return the row (u,) of `correlations` of one candidate, without the columns of the others."""
        problem = model.problem
        if problem.K > 1:
            return self.correlations(model, np.append(first, others))[0, 1:]
        (found,), design = self.classes, problem.design
        inner = design.project(design.columns([first]) * model.posterior.W[:, None])[0, others]
        inner = inner - found.T[:, first] @ found.T[:, others]
        return np.abs(inner) / np.sqrt(np.maximum(found.S[first] * found.S[others], 1e-300))

    def _of(self, outputs: np.ndarray, atoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """S and Q (k,) of pairs of a class and an atom."""
        S, Q = np.array([(self.classes[c].S[m], self.classes[c].Q[m]) for c, m in zip(outputs, atoms)]).reshape(-1, 2).T
        return S, Q


def scan(model: LaplaceModel) -> Scan:
    """Return the gains of all additions, exact for the linearised problem (for K classes: see `Scan`).

    In a thorough search of one output the motion of B counts too, to first order in 1/alpha. Near-copies of units of
    the model that gain no more than `near_copy_price` gain nothing.
    """
    problem, fit, design = model.problem, model.fit, model.problem.design
    K, k = problem.K, len(fit.alpha)
    exact = K == 1 or K * design.n_rows * design.n_atoms * max(1, k) <= SCANS.max_exact_products
    weights = 1.0 + k / (1 if exact else K)
    problem.budget.spent += K * design.scan_size * (SCANS.fixed_ns + SCANS.weight_ns * weights)
    outside = np.ones((problem.n_units // design.n_atoms, design.n_atoms), dtype=bool)
    outside.ravel()[model.active] = False
    crowd = np.zeros(outside.shape, dtype=np.intp)
    for unit in model.active.tolist():
        crowd[unit // design.n_atoms, problem.near_copies(unit)] += 1
    if isinstance(fit, Mode):
        projected = np.ascontiguousarray(design.project(_directions_in_memory(model)))
        diagonal = design.diagonal(fit.state[2])
        S, Q, gains, alpha = scan_gains(projected, diagonal, outside[0].view(np.uint8), k, design.scan_error)
        if not problem.thorough:  # at the end of a search every proposal is refitted
            gains, alpha = _limit_motion(gains, alpha, S[None], Q[None], design.peaks)
        classes = [ClassScan(S, Q, projected[:k], fit.root, np.arange(k))]
        return Scan(classes, True, _without_copies(gains, crowd, problem), alpha, outside, crowd)
    classes = _scan_classes(model, exact)
    S, Q = np.stack([s.S for s in classes]), np.stack([s.Q for s in classes])
    if problem.share:
        least = problem.prices(np.arange(design.n_atoms)) + SCANS.least_share_of_tol * problem.tol
        gains, alpha = _limit_motion(*shared_optimum(S, Q, least), S, Q, design.peaks)
    else:
        gains, alpha = _limit_motion(
            gain_add(S, Q).ravel(), optimal_alpha(S, Q).ravel(), S.reshape(1, -1), Q.reshape(1, -1),
            np.tile(design.peaks, problem.K),
        )  # fmt: skip
    gains[~outside.ravel()] = 0.0
    return Scan(classes, exact, _without_copies(gains, crowd, problem), alpha, outside, crowd)


def _limit_motion(
    gains: np.ndarray, alpha: np.ndarray, S: np.ndarray, Q: np.ndarray, peaks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return gains and precisions (M,) of additions that move no row by more than `ScanSettings.max_motion`.

    An atom of K classes with S and Q (K, M) begins at weights Q / (alpha + S).
    """
    least = (np.abs(Q) * (peaks / SCANS.max_motion) - S).max(axis=0)
    far = np.flatnonzero((alpha < least) & (gains > 0.0))
    if len(far):
        gains, alpha, least = gains.copy(), alpha.copy(), least[far]
        value = 0.5 * np.sum(np.log(least / (least + S[:, far])) + Q[:, far] ** 2 / (least + S[:, far]), axis=0)
        gains[far], alpha[far] = np.clip(value, 0.0, gains[far]), least
    return gains, alpha


def _without_copies(gains: np.ndarray, crowd: np.ndarray, problem: LaplaceProblem) -> np.ndarray:
    """Return gains (U,), none for near-copies that do not gain enough."""
    return np.where((crowd.ravel() > 0) & ~(gains > near_copy_price(problem.n_units)), 0.0, gains)


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


def _scan_classes(model: LaplaceModel, exact: bool) -> list[ClassScan]:
    """Return the statistics of every class by NumPy."""
    problem, p, design = model.problem, model.posterior, model.problem.design
    B = p.W[:, None] if problem.K == 1 else problem.weights[:, None] * p.W * complement(p.W)  # its diagonal (n, K)
    diagonal, found = design.diagonal(B), []
    for c in range(problem.K):
        own = np.flatnonzero(p.outputs == c)
        if exact:
            root = p.root
            Y = _curved_columns(p, problem.weights, c) @ root
        else:
            spread, Phi = 1.0 / np.sqrt(p.alpha[own]), p.Phi[:, own]
            U = factor_ridge(np.sqrt(B[:, [c]]) * Phi * spread)
            root = spread[:, None] * inverse_triangular(U)
            Y = (Phi @ root) * B[:, [c]]
        projected = design.project(np.column_stack([Y, p.r.reshape(len(Y), -1)[:, c]]))
        T, Q = projected[:-1], projected[-1]
        S = diagonal[c] - np.einsum("ij,ij->j", T, T)
        S[S < design.scan_error * diagonal[c]] = 0.0
        found.append(ClassScan(S, Q, T, root[own] if exact else root, own))
    if problem.K == 1 and problem.thorough:
        _refine(model, diagonal[0], found[0].S)
    return found


def _curved_columns(p: PosteriorOnRows, weights: np.ndarray, c: int) -> np.ndarray:
    """Return the rows of class c of B Phi_a (n, k), T01 eq. (28): weight p_c (delta - p) phi."""
    if p.W.ndim == 1:
        return p.W[:, None] * p.Phi
    return p.Phi * ((weights * p.W[:, c])[:, None] * ((p.outputs == c) - p.W[:, p.outputs]))


def _curved_products(p: PosteriorOnRows, weights: np.ndarray, outputs: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the inner products (u, u) of columns (n, u) of outputs (u,) under B."""
    if p.W.ndim == 1:
        return columns.T @ (columns * p.W[:, None])
    root = np.sqrt(weights)[:, None]
    P = p.W[:, outputs] * root
    inner = -((columns * P).T @ (columns * P))
    return inner + (outputs[:, None] == outputs) * (columns.T @ (columns * (P * root)))


def _refine(model: LaplaceModel, diagonal: np.ndarray, S: np.ndarray) -> None:
    """Compute S (M,) of one output again, by projection, where it is a difference of nearly equal numbers."""
    p = model.posterior
    root = np.sqrt(p.W)
    _, basis = factor_ridge_and_basis(root[:, None] * p.Phi / np.sqrt(p.alpha))
    if basis is None:
        return
    for j in np.flatnonzero(S < SCANS.min_share_of_digits * diagonal):
        z = root * model.problem.design.columns([j])[:, 0]
        S[j] = max(float(z @ basis.split(z)[1]), 0.0)


def shared_optimum(S: np.ndarray, Q: np.ndarray, least: float | np.ndarray = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Gain (M,) and precision (M,) of adding atoms whose K classes share one precision, for S, Q (K, M).

    TF03 eq. (18) summed over the classes has no closed maximum; a grid is enough for a proposal. Atoms that could not
    gain more than ``least`` () or (M,) with a precision for each class gain nothing.
    """
    gains, best = np.zeros(S.shape[1]), np.full(S.shape[1], np.inf)
    some = np.flatnonzero(gain_add(S, Q).sum(axis=0) > least)
    S, squares = S[:, some], Q[:, some] ** 2
    a = np.exp(_LOG_GRID)[:, None] * np.maximum(S.mean(axis=0), 1e-300)
    value = np.zeros(a.shape)
    with np.errstate(over="ignore"):
        for s, q2 in zip(S, squares, strict=True):
            value += 0.5 * (np.log(a / (a + s)) + q2 / (a + s))
    value[~np.isfinite(value)] = 0.0
    place, columns = value.argmax(axis=0), np.arange(len(some))
    useful = value[place, columns] > 0.0
    gains[some[useful]] = value[place, columns][useful]
    best[some[useful]] = a[place, columns][useful]
    return gains, best


# ---------------------------------------------------------------- exchanges


@dataclass(frozen=True, eq=False)
class Swaps:
    """For units of the model (places ``leaving``) the best unit to take its place, the linearised gain, its start."""

    leaving: np.ndarray
    entering: np.ndarray
    gain: np.ndarray
    alpha: np.ndarray
    weight: np.ndarray  # (u, 1), or (u, K) where the classes share their precisions


def find_exchanges(model: LaplaceModel, found: Scan) -> Swaps:
    """Return the best exchange of every unit by another of the same class (TF03 6.2), before re-estimation."""
    problem, p = model.problem, model.fit
    tables = [
        exchange_statistics(s.S, s.Q, s.root @ s.T, p.variance[s.own], p.mean[s.own]) for s in found.classes
    ]  # of each class S and Q (u, M) once a unit has left
    lost, _ = deletion_gains(model)
    if problem.share:
        ratio = sum(Q * Q / np.where(S > 0.0, S, np.inf) for S, Q in tables)
        ratio = np.where(found.outside, ratio, 0.0)
        _refuse_copies(model, np.arange(len(ratio)), found.crowd[0], tables, ratio)
        units = first_of_equals(ratio, problem.order)
        leaving = np.arange(len(units))
        some = ratio[leaving, units] > 0.0
        S, Q = (np.stack([table[k][leaving, units] for table in tables], axis=1) for k in (0, 1))
        S = np.where(some[:, None], S, 1.0)  # no exchange of the others: nothing to divide by
        gain, alpha = shared_optimum(S.T, Q.T)
        alpha = np.where(np.isfinite(alpha), alpha, 1e3 * S.mean(axis=1))
    else:
        parts = []
        for c, (s, (S, Q)) in enumerate(zip(found.classes, tables, strict=True)):
            ratio = np.where(found.outside[c] & (s.S > 0.0), Q * Q / np.where(S > 0.0, S, 1.0), 0.0)
            _refuse_copies(model, s.own, found.crowd[c], [(S, Q)], ratio)
            j = first_of_equals(ratio, problem.order)
            at = np.arange(len(j))
            parts.append((s.own, j + c * problem.design.n_atoms, ratio[at, j] > 0.0, S[at, j], Q[at, j]))
        leaving, units, some, S, Q = (np.concatenate(column) for column in zip(*parts, strict=True))
        S = np.where(some, S, 1.0)
        # where the entering atom alone would not stay, start it in the prior's reach and let Newton decide
        gain, alpha = gain_add(S, Q), S * S / np.maximum(Q * Q - S, 1e-3 * S)
        S, Q = S[:, None], Q[:, None]
    gain = np.where(some, lost[leaving] + gain, -np.inf)
    return Swaps(leaving, units, gain, alpha, Q / (alpha[:, None] + S))


def _refuse_copies(
    model: LaplaceModel, leaving: np.ndarray, crowd: np.ndarray, tables: list[tuple[np.ndarray, np.ndarray]],
    ratio: np.ndarray,
) -> None:  # fmt: skip
    """Set the ratios (u, M) of units to 0 that would enter beside a near-copy other than the unit that leaves.

    ``crowd`` (M,) counts the near-copies in the model, ``tables`` has S and Q (u, M) of each class that shares the
    precision. Those that gain more than `near_copy_price` may enter.
    """
    beside = np.repeat(crowd[None], len(leaving), axis=0)
    for row, place in zip(beside, leaving, strict=True):
        row[model.problem.near_copies(int(model.active[place]))] -= 1
    i, j = np.nonzero((beside > 0) & (ratio > 0.0))
    S, Q = (np.stack([table[k][i, j] for table in tables]) for k in (0, 1))
    gains = shared_optimum(S, Q)[0] if model.problem.share else gain_add(S, Q)[0]
    small = gains <= near_copy_price(model.problem.n_units)
    ratio[i[small], j[small]] = 0.0
