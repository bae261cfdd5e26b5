"""Exchanges under a Laplace posterior: the best unit to take the place of each of the model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from relvec.design import Piece
from relvec.inference.evidence import exchange_statistics, first_of_equals, gain_add
from relvec.solvers.laplace.precisions import deletion_gains
from relvec.solvers.laplace.problem import LaplaceModel
from relvec.solvers.laplace.scan import ClassScan, Scan, ScanTask, content_order, shared_optimum


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
    lost, _ = deletion_gains(model)
    task = ExchangeTask(found.task, p.variance, p.mean, problem.share)
    if found.task is None:
        best = task.best(found.classes, found.outside, found.order)
    else:
        best, _ = problem.design.scan_weighted(found.moments, task, task.combine)
    some, Q = best.ratio > 0.0, best.Q
    S = np.where(some[:, None], best.S, 1.0)  # no exchange of the others: nothing to divide by
    if problem.share:
        gain, alpha = shared_optimum(S.T, Q.T)
        alpha = np.where(np.isfinite(alpha), alpha, 1e3 * S.mean(axis=1))
    else:
        # where the entering atom alone would not stay, start it in the prior's reach and let Newton decide
        s, q = S[:, 0], Q[:, 0]
        gain, alpha = gain_add(s, q), s * s / np.maximum(q * q - s, 1e-3 * s)
    gain = np.where(some, lost[best.leaving] + gain, -np.inf)
    return Swaps(best.leaving, best.entering, gain, alpha, Q / (alpha[:, None] + S))


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
class ExchangeTask:
    """A look at pieces of the dictionary for the best exchanges, given variance and mean (k,) of the model."""

    scan: ScanTask | None  # None where all atoms are here
    variance: np.ndarray
    mean: np.ndarray
    share: bool

    def __call__(self, piece: Piece) -> tuple[Best, np.ndarray]:
        """Return the best exchanges with atoms of the piece, and the keys of these."""
        assert self.scan is not None
        classes, outside = self.scan.statistics(piece), self.scan.outside(piece)
        best = self.best(classes, outside, content_order(piece.keys))
        entering = self.scan.units(piece.atoms)[best.outputs, best.entering]
        return best._replace(entering=entering), piece.keys[best.entering]

    def best(self, classes: list[ClassScan], outside: np.ndarray, order: np.ndarray) -> Best:
        """Find the best exchanges with L atoms of ranks ``order``; those ``outside``, (1, L) or (K, L), may enter."""
        tables = [exchange_statistics(s.S, s.Q, s.root @ s.T, self.variance[s.own], self.mean[s.own]) for s in classes]
        if self.share:
            ratio = sum(Q * Q / np.where(S > 0.0, S, np.inf) for S, Q in tables)
            j = first_of_equals(np.where(outside, ratio, 0.0), order)
            at = np.arange(len(j))
            S, Q = (np.stack([table[k][at, j] for table in tables], axis=1) for k in (0, 1))
            return Best(at, np.zeros(len(j), dtype=np.intp), j, np.where(outside[0, j], ratio[at, j], 0.0), S, Q)
        parts = []
        for c, (s, (S, Q)) in enumerate(zip(classes, tables, strict=True)):
            ratio = np.where(outside[c] & (s.S > 0.0), Q * Q / np.where(S > 0.0, S, 1.0), 0.0)
            j = first_of_equals(ratio, order)
            at = np.arange(len(j))
            parts.append(Best(s.own, np.full(len(j), c), j, ratio[at, j], S[at, j][:, None], Q[at, j][:, None]))
        return Best(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    @staticmethod
    def combine(a: tuple[Best, np.ndarray], b: tuple[Best, np.ndarray]) -> tuple[Best, np.ndarray]:
        """Return the better of both for each unit."""
        both = np.stack([a[0].ratio, b[0].ratio], axis=1)
        order = np.array([content_order(np.stack(pair)) for pair in zip(a[1], b[1], strict=True)]).reshape(-1, 2)
        second = first_of_equals(both, order).astype(bool)

        def better(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            return np.where(second if one.ndim == 1 else second[:, None], other, one)

        return Best(*(better(*pair) for pair in zip(a[0], b[0], strict=True))), better(a[1], b[1])
