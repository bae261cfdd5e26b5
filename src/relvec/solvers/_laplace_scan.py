"""Scans of the dictionary under a Laplace posterior: what each unit outside the model, or in exchange, would gain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec._linalg import factor_ridge, inverse_triangular
from relvec._xp import is_foreign, like, namespace, take, to_host
from relvec.evidence import exchange_statistics, gain_add, optimal_alpha
from relvec.likelihoods import others
from relvec.posterior import ridge_on_device
from relvec.solvers._laplace import LaplaceModel, deletion_gains
from relvec.solvers._moves import _first_of_equals

# Scans of K classes take all pairs of the model into account up to this many products, its own class's beyond.
_EXACT = 2e9
_GRID = np.exp(np.linspace(-9.0, 9.0, 37))  # shared precisions are proposed on this grid, relative to the mean s


@dataclass(frozen=True, eq=False)
class ClassScan:
    """S, Q (M,) of every atom for one class, TF03 eq. (24)-(25), and what exchanges need.

    ``T`` (j, M) has S = diagonal - |T|^2, and ``root[i] @ T`` is the row of Sigma Phi_a' B Phi of the i-th weight of
    this class; ``own`` are the places of its weights in the model.
    """

    S: np.ndarray
    Q: np.ndarray
    T: np.ndarray
    root: np.ndarray
    own: np.ndarray


@dataclass(frozen=True, eq=False)
class Scan:
    """Statistics (K, M) of the dictionary, and for each unit the gain of adding it and the precision for it."""

    classes: list[ClassScan]
    exact: bool
    gains: np.ndarray
    alpha: np.ndarray

    def start(self, model: LaplaceModel, units: np.ndarray) -> np.ndarray:
        """Weights of the units, pair by pair, in the linearised problem: Q / (alpha + S)."""
        outputs, atoms = model.problem.pairs(units)
        alpha = np.repeat(self.alpha[units], model.problem.per_unit)
        S, Q = np.array([(self.classes[c].S[m], self.classes[c].Q[m]) for c, m in zip(outputs, atoms)]).T
        return Q / (alpha + S)


def scan(model: LaplaceModel) -> Scan:
    """Gains of all additions, exact for the linearised problem (for K classes: see `_class_scan`)."""
    problem, p = model.problem, model.posterior
    size = problem.design.n_rows * problem.design.n_atoms * max(1, len(p.alpha))
    exact = problem.K == 1 or problem.K * size <= _EXACT
    if problem.K == 1:
        diagonal = problem.design.diagonal(p.W)[None, :]
    else:
        diagonal = problem.design.diagonal(problem.weights[:, None] * p.W * others(p.W))
    rows = 1.0 + len(p.alpha) / (1 if exact else problem.K)
    problem.meter.spent += problem.K * problem.design.scan_size * (0.3 + 0.1 * rows)
    classes = [_class_scan(model, c, diagonal[c], exact) for c in range(problem.K)]
    S, Q = np.stack([s.S for s in classes]), np.stack([s.Q for s in classes])
    if problem.share:
        gains, alpha = shared_optimum(S, Q)
    else:
        gains, alpha = gain_add(S, Q).ravel(), optimal_alpha(S, Q).ravel()
    gains[~problem.outside(model.active)] = 0.0
    return Scan(classes, exact, gains, alpha)


def _class_scan(model: LaplaceModel, c: int, diagonal: np.ndarray, exact: bool) -> ClassScan:
    """One class. Where K classes are dear (``exact`` False) only the model's own weights of the class count.

    That takes B for block-diagonal over the classes, which is used to propose moves only: they are kept or not by
    the evidence of the joint model.
    """
    problem, p = model.problem, model.posterior
    own = np.flatnonzero(p.outputs == c)
    if problem.K == 1:
        root = p.root
        Y = p.Phi @ like(p.Phi, np.column_stack([root, np.zeros(len(root))]))  # the last column is for r
        Y *= p.W[:, None]
        Y[:, -1] = p.r
    else:
        w, r = problem.weights * p.W[:, c], p.r[:, c]
        if exact:
            # column of Phi_a'B for class c: weight p_c' (delta - p_c) phi
            factor = w[:, None] * (like(w, p.outputs == c) - take(p.W, p.outputs, 1))
            Y, root = (p.Phi * factor) @ like(p.Phi, p.root), p.root[own]
        else:
            w = w * others(p.W)[:, c]
            spread, Phi = 1.0 / np.sqrt(p.alpha[own]), take(p.Phi, own, 1)
            X = namespace(w).sqrt(w)[:, None] * Phi * like(Phi, spread)
            root = spread[:, None] * inverse_triangular(ridge_on_device(X) if is_foreign(X) else factor_ridge(X))
            Y = (Phi @ like(Phi, root)) * w[:, None]
        Y = namespace(Y).concat([Y, r[:, None]], axis=1)
    together = problem.design.project(Y)
    T, Q = together[:-1], together[-1]
    S = diagonal - np.einsum("ij,ij->j", T, T)
    S[S < problem.design.error * diagonal] = 0.0
    return ClassScan(S, Q, T, root, own)


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


def overlaps(model: LaplaceModel, found: Scan, units: np.ndarray) -> np.ndarray:
    """Correlation (u, u) of candidate units in the metric C^-1 of the linearised problem, absolute."""
    problem, p = model.problem, model.posterior
    outputs, atoms = problem.pairs(units)
    if problem.share:
        columns = problem.design.approximate(units)
        return np.abs(to_host(columns.T @ columns))
    columns = problem.design.approximate(atoms)
    if problem.K == 1:
        inner = to_host(columns.T @ (columns * p.W[:, None]))
    else:
        root = namespace(p.W).sqrt(problem.weights)[:, None]
        P = take(p.W, outputs, 1) * root
        inner = -to_host((columns * P).T @ (columns * P))
        inner += (outputs[:, None] == outputs) * to_host(columns.T @ (columns * (P * root)))
    S = np.array([found.classes[c].S[m] for c, m in zip(outputs, atoms)])
    if found.exact:
        T = np.column_stack([found.classes[c].T[:, m] for c, m in zip(outputs, atoms)])
        inner -= T.T @ T
    else:
        for c in np.unique(outputs):
            i = np.flatnonzero(outputs == c)
            T = found.classes[c].T[:, atoms[i]]
            inner[np.ix_(i, i)] -= T.T @ T
    size = np.sqrt(np.maximum(S, 1e-300))
    return np.abs(inner) / np.outer(size, size)


def alike(model: LaplaceModel, found: Scan, first: int, others: np.ndarray) -> np.ndarray:
    """Correlation (u,) of one candidate with others: a row of `overlaps`, without the columns of the others."""
    problem, p = model.problem, model.posterior
    if problem.K > 1 or problem.share:
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
    problem, p = model.problem, model.posterior
    lost, _ = deletion_gains(model)
    outside = problem.outside(model.active)
    rows = []
    if problem.share:
        tables = [exchange_statistics(s.S, s.Q, s.root @ s.T, p.variance[s.own], p.mean[s.own]) for s in found.classes]
        ratio = sum(Q * Q / np.where(S > 0.0, S, np.inf) for S, Q in tables)
        j = _first_of_equals(np.where(outside, ratio, 0.0), problem.order)
        for i, m in enumerate(j):
            if not (outside[m] and ratio[i, m] > 0.0):
                continue
            S, Q = (np.array([table[k][i, m] for table in tables]) for k in (0, 1))
            gain, alpha = shared_optimum(S[:, None], Q[:, None])
            a = float(alpha[0]) if np.isfinite(alpha[0]) else 1e3 * float(S.mean())
            rows.append((i, int(m), lost[i] + gain[0], a, Q / (a + S)))
    else:
        M = problem.design.n_atoms
        for c, s in enumerate(found.classes):
            if not s.own.size:
                continue
            S, Q = exchange_statistics(s.S, s.Q, s.root @ s.T, p.variance[s.own], p.mean[s.own])
            free = outside[c * M : (c + 1) * M] & (s.S > 0.0)
            ratio = np.where(free, Q * Q / np.where(S > 0.0, S, 1.0), 0.0)
            j = _first_of_equals(ratio, problem.order)
            at = np.arange(len(j))
            S, Q = np.where(ratio[at, j] > 0.0, S[at, j], 1.0), Q[at, j]
            gain = np.where(ratio[at, j] > 0.0, lost[s.own] + gain_add(S, Q), -np.inf)
            # where the entering atom alone would not stay, start it in the prior's reach and let Newton decide
            alpha = S * S / np.maximum(Q * Q - S, 1e-3 * S)
            rows += [
                (i, c * M + m, g, a, np.array([q / (a + v)])) for i, m, g, a, q, v in zip(s.own, j, gain, alpha, Q, S)
            ]
    if not rows:
        return Swaps(np.zeros(0, int), np.zeros(0, int), np.zeros(0), np.zeros(0), [])
    leaving, entering, gains, alphas, weight = zip(*rows)
    return Swaps(np.array(leaving), np.array(entering), np.array(gains), np.array(alphas), list(weight))
