"""Moves of the sequential method on a model: proposed by their gain, kept only if the exact objective rises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relvec.inference.evidence import (
    Posterior,
    exchange_statistics,
    gain_add,
    gain_delete,
    gain_reestimate,
    optimal_alpha,
)
from relvec.solvers.gaussian.frame import Frame, coarse, relax
from relvec.solvers.loop import Problem, not_lower

TIE_NATS = 1e-9  # gains closer than this are equal, and the atom's content decides
_MIN_NEWTON_GAIN_NATS = 0.01  # Newton steps that promise less wait
_BATCH_GAIN_SHARE = 0.3  # of the best gain, for further atoms of a batch
_MAX_BATCH_CORRELATION = 0.3  # of those with the atoms before them, in the metric C^-1
_MAX_EXCHANGES = 4  # tried with re-estimation before giving up
_MIN_EXCHANGE_GAIN_NATS = -1.0  # before re-estimation: an exchange that loses more is not tried
_MAX_EXCHANGE_NUMBERS = 2_000_000  # held at once while exchanges are compared
_MAX_REFUTED = 16  # candidates whose predicted gain may turn out to be rounding before the search ends


@dataclass(frozen=True, eq=False)
class Model:
    """A support with its posterior, in a frame that holds it; ``atom`` is the last one moved."""

    problem: Problem
    frame: Frame
    active: np.ndarray
    posterior: Posterior
    atom: int = -1

    @property
    def objective(self) -> float:
        """T01 eq. (36)."""
        return self.problem.objective(self.active, self.posterior)

    def at(self, active: np.ndarray, alpha: np.ndarray, beta: float, atom: int = -1) -> Model:
        """The model with other atoms and precisions."""
        self.frame.span(active)
        posterior = self.frame.posterior(active, alpha, beta, self.problem.n_samples)
        return Model(self.problem, self.frame, active, posterior, atom)

    def relax(self, steps: int, hold_noise: bool = False, min_gain_nats: float = 0.0, ceiling: float = np.inf) -> Model:
        """The model after Newton steps on its precisions and the noise."""
        active, posterior = relax(
            self.problem, self.frame, self.active, self.posterior, steps, hold_noise, min_gain_nats, ceiling
        )
        return Model(self.problem, self.frame, active, posterior, self.atom)

    def grow(
        self, batch: int, tol: float, hold_noise: bool, ceiling: float = np.inf, apart: float = 0.0
    ) -> Model | None:
        """The model with a few more atoms, None where none is worth it."""
        return grow(self, batch, tol, hold_noise, ceiling, apart)

    def exchange(self, tol: float) -> Model | None:
        """The model with one atom for another, None where no exchange is worth it."""
        return exchange(self, tol)

    def exact(self) -> Model:
        """The model itself; one that lives in C gives its counterpart."""
        return self

    def sharpen(self, steps: int) -> Model:
        """The model after Newton steps, then the best single precision at a time where those crawl.

        Far out the objective is flat and convex in log alpha; there the optimum of one precision is known (TF03 (20)).
        """
        model = self.relax(steps)
        for _ in range(len(self.active) + 10):
            p = model.posterior
            s, q = p.sparsity_quality()
            gains = gain_reestimate(p.alpha, s, q)
            if not len(gains) or gains.max() <= 0.1 * self.problem.tolerance(len(gains)):
                break
            i = int(np.argmax(gains))
            best_alpha = float(optimal_alpha(s[i], q[i]))
            keep = np.ones(len(gains), bool)
            keep[i] = np.isfinite(best_alpha)
            alpha = np.where(np.arange(len(gains)) == i, best_alpha, p.alpha)[keep]
            moved = model.at(model.active[keep], alpha, p.beta, model.atom)
            if moved.objective <= model.objective:
                break
            model = moved.relax(10)
        return model

    def merge_copies(self) -> Model:
        """The model with one atom in place of several equal ones."""
        keep, alpha = merge_copies(
            self.frame.coordinates(self.active), self.posterior.alpha, self.problem.order[self.active]
        )
        if len(keep) == len(self.active):
            return self
        fewer = self.at(self.active[keep], alpha, self.posterior.beta, self.atom)
        return fewer if not_lower(fewer.objective, self.objective) else self

    def trim(self) -> Model:
        """The model in a frame without what it no longer needs."""
        frame = self.frame.trim(self.active)
        return self if frame is self.frame else Model(self.problem, frame, self.active, self.posterior, self.atom).at(
            self.active, self.posterior.alpha, self.posterior.beta, self.atom)  # fmt: skip


def merge_copies(columns: np.ndarray, alpha: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the columns (n, k) of unit norm to keep, and their precisions, where some are copies or negations.

    The evidence depends on copies only through the sum of 1 / alpha (T01 section 2.2), so the first in order takes it
    all and nothing changes.
    """
    if len(alpha) < 2:
        return np.arange(len(alpha)), alpha
    G = columns.T @ columns
    norm = np.sqrt(np.diag(G))  # not quite one where columns are held in single precision
    equal = np.abs(G) > (1.0 - 1e-12) * np.outer(norm, norm)
    np.fill_diagonal(equal, True)
    if np.count_nonzero(equal) == len(alpha):
        return np.arange(len(alpha)), alpha
    first = np.array([np.flatnonzero(row)[np.argmin(order[row])] for row in equal])
    keep = np.flatnonzero(first == np.arange(len(alpha)))
    return keep, np.array([1.0 / np.sum(1.0 / alpha[first == i]) for i in keep])


def at_noise_floor(problem: Problem, posterior: Posterior) -> bool:
    """Whether a learned noise variance ended at the smallest value allowed."""
    return not problem.fixed_noise and posterior.beta >= (1.0 - 1e-6) / problem.noise_floor


def best(gains: np.ndarray, order: np.ndarray) -> int:
    """Index of the largest gain; among equals the lowest in order."""
    largest = gains.max()
    equal = np.flatnonzero(gains >= largest - TIE_NATS * max(1.0, largest))
    return int(equal[0]) if equal.size == 1 else int(equal[np.argmin(order[equal])])


def grow(
    model: Model, batch: int, tol: float, hold_noise: bool, ceiling: float = np.inf, apart: float = 0.0
) -> Model | None:
    """Add the most useful atoms, then one Newton step; None where no addition gains more than tol.

    Atoms of which less than a part ``apart`` (squared) lies outside the model, in the metric C^-1, do not enter.
    """
    posterior, frame = model.posterior, model.frame
    S, Q, T = frame.scan(posterior)
    gains = gain_add(S, Q)
    gains[model.active] = 0.0
    if apart:
        gains[S < apart * posterior.beta] = 0.0
    for _ in range(_MAX_REFUTED):
        first = best(gains, model.problem.order)
        if gains[first] <= tol:
            return None
        most = max(batch, len(model.active) // 8) if batch > 1 else 1
        chosen = _batch(model, first, gains, S, T, most) if most > 1 else [first]
        while chosen:
            alpha = coarse(optimal_alpha(S[chosen], Q[chosen]))  # TF03 eq. (20)
            active = np.append(model.active, chosen)
            grown = model.at(active, np.append(posterior.alpha, alpha), posterior.beta, first)
            if grown.objective > model.objective:
                grown = grown.relax(1, hold_noise, _MIN_NEWTON_GAIN_NATS, ceiling)
                if len(grown.active) <= len(model.active):
                    # atoms took the place of others: such steps come in long chains
                    grown = grown.relax(10, hold_noise, _MIN_NEWTON_GAIN_NATS, ceiling)
                if grown.objective > model.objective + 0.1 * tol:
                    return grown
            chosen = chosen[: len(chosen) // 2]
        gains[first] = 0.0  # the exact evidence refutes what the scan promised
    return None


def _batch(model: Model, first: int, gains: np.ndarray, S: np.ndarray, T: np.ndarray, batch: int) -> list[int]:
    """The best atom and further good ones that hardly overlap with it or each other in the metric C^-1."""
    near = np.flatnonzero(gains >= _BATCH_GAIN_SHARE * gains[first])
    if near.size == 1:
        return [first]
    near = near[np.lexsort((model.problem.order[near], -np.round(gains[near] / gains[first], 9)))][: 4 * batch]
    near = np.concatenate([[first], near[near != first]])
    columns = model.problem.design.columns(near)
    overlap = columns.T @ columns - T[:, near].T @ T[:, near]  # phi_i' C^-1 phi_j / beta
    size = np.sqrt(S[near] / model.posterior.beta)
    overlap = np.abs(overlap) > _MAX_BATCH_CORRELATION * np.outer(size, size)
    chosen = [0]
    for j in range(1, len(near)):
        if len(chosen) == batch:
            break
        if not overlap[j, chosen].any():
            chosen.append(j)
    return near[chosen].tolist()


def exchange(model: Model, tol: float) -> Model | None:
    """Exchange one atom of the model for another outside (TF03 6.2), the precisions re-estimated after.

    The pairs of largest gain, at most one per leaving atom, are tried in turn; the first that raises the objective
    by more than tol is kept. A pair that loses a little before re-estimation may win after it.
    """
    if not len(model.active):
        return None
    pairs = best_exchanges(model)
    order = model.problem.order[model.active]
    for i in np.lexsort((order, -np.round(pairs.gain, 9)))[:_MAX_EXCHANGES]:
        if pairs.gain[i] < _MIN_EXCHANGE_GAIN_NATS:
            break
        swapped = pairs.made(model, i).relax(2, min_gain_nats=tol)
        if swapped.objective > model.objective + tol:
            return swapped.relax(30, min_gain_nats=tol)
    return None


@dataclass(frozen=True, eq=False)
class Exchanges:
    """For each atom i of the model the best atom to take its place, the gain, and S, Q of that one without i (k,)."""

    entering: np.ndarray
    gain: np.ndarray
    S: np.ndarray
    Q: np.ndarray

    def made(self, model: Model, i: int) -> Model:
        """The model after the exchange of its i-th atom."""
        S, Q, j = self.S[i], self.Q[i], int(self.entering[i])
        active, alpha = model.active.copy(), model.posterior.alpha.copy()
        # where the entering atom alone would not stay, start it in the prior's reach and let Newton decide
        active[i], alpha[i] = j, coarse(S * S / max(Q * Q - S, 1e-3 * S))
        return model.at(active, alpha, model.posterior.beta, j)


def best_exchanges(model: Model) -> Exchanges:
    """The best exchange of every atom of the model, before re-estimation."""
    S, Q, T = model.frame.scan(model.posterior)
    outside = S > 0.0
    outside[model.active] = False
    own = model.frame.coordinates(model.active)
    while True:
        pairs = _best_of(model, S, Q, T, outside)
        overlap = np.abs(np.einsum("ij,ij->j", own, model.frame.coordinates(pairs.entering)))
        twins = (overlap > 1.0 - 1e-12) & (pairs.gain > -np.inf)
        if not twins.any():
            return pairs
        outside[pairs.entering[twins]] = False  # a copy of the atom that leaves hides those that would gain


def _best_of(model: Model, S: np.ndarray, Q: np.ndarray, T: np.ndarray, outside: np.ndarray) -> Exchanges:
    """The best exchange of every atom with those outside. Memory is bounded by blocks of atoms."""
    p, k = model.posterior, len(model.active)
    found = []
    width = max(1, _MAX_EXCHANGE_NUMBERS // k)
    for start in range(0, len(S), width):
        part = slice(start, start + width)
        cross = model.frame.cross(p, T[:, part])
        S_out, Q_out = exchange_statistics(S[part], Q[part], cross, p.variance, p.mean)
        # the gain of adding rises with Q^2 / S, so the best pair needs no logarithms
        ratio = np.where(outside[part], Q_out * Q_out / np.where(S_out > 0.0, S_out, 1.0), 0.0)
        j = first_of_equals(ratio, model.problem.order[part])
        rows = np.arange(k)
        found.append((ratio[rows, j], model.problem.order[part][j], j + start, S_out[rows, j], Q_out[rows, j]))
    ratios, orders, atoms, S_best, Q_best = (np.array(column) for column in zip(*found, strict=True))
    block = first_of_equals(ratios.T, orders.T)
    rows = np.arange(k)
    S, Q = S_best[block, rows], Q_best[block, rows]
    gain = gain_add(S, Q) + gain_delete(p.alpha, p.gamma, p.mean, p.variance)
    return Exchanges(atoms[block, rows], np.where(ratios[block, rows] > 0.0, gain, -np.inf), S, Q)


def near_exchanges(
    model: Model, few: int, scan: tuple[np.ndarray, ...], least: float = -np.inf
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exchanges that gain more than ``least``, the few best for each atom of the model: the places (m,) of those that
    leave among its own, the atoms (m,) that enter, and the gains (m,).
    """
    p, k = model.posterior, len(model.active)
    S, Q, T = scan
    S[model.active] = 0.0
    lost = gain_delete(p.alpha, p.gamma, p.mean, p.variance)
    min_ratio = np.maximum(2.0 * (least - lost) + 1.0, 1.0)[
        :, None
    ]  # of Q^2 / S: what an addition gains is below half of it
    found = []
    width = max(few, _MAX_EXCHANGE_NUMBERS // k)
    for start in range(0, len(S), width):
        part = slice(start, start + width)
        S_out, Q_out = exchange_statistics(S[part], Q[part], model.frame.cross(p, T[:, part]), p.variance, p.mean)
        S_out[:, S[part] <= 0.0] = np.inf
        leaving, entering = np.nonzero(Q_out * Q_out > min_ratio * S_out)
        gains = gain_add(S_out[leaving, entering], Q_out[leaving, entering]) + lost[leaving]
        good = np.flatnonzero(gains > least)
        found.append((leaving[good], entering[good] + start, gains[good]))
    leaving, entering, gains = (np.concatenate(column) for column in zip(*found, strict=True))
    return best_of_each(leaving, entering, gains, few)


def best_of_each(
    leaving: np.ndarray, entering: np.ndarray, gains: np.ndarray, few: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of exchanges (m,), the few with the largest gains for each atom that leaves."""
    if np.bincount(leaving).max(initial=0) <= few:
        return leaving, entering, gains
    order = np.lexsort((-gains, leaving))
    leaving, entering, gains = leaving[order], entering[order], gains[order]
    keep = np.arange(len(leaving)) - np.searchsorted(leaving, leaving) < few
    return leaving[keep], entering[keep], gains[keep]


def first_of_equals(ratio: np.ndarray, order: np.ndarray) -> np.ndarray:
    """For each row (k, m) the column of its largest entry; among equals the lowest in order ((m,) or (k, m))."""
    top = ratio.max(axis=1)
    equal = ratio >= (top * (1.0 - TIE_NATS))[:, None]
    many = equal.sum(axis=1) > 1
    j = ratio.argmax(axis=1)
    if many.any():
        ranks = np.where(equal, order, np.iinfo(np.intp).max)
        j = np.where(many, ranks.argmin(axis=1), j)
    return j


def largest_gain(model: Model, exchanging: bool) -> float:
    """The certificate: the largest gain (nats) that any single move still offers.

    What the scan promises of additions and exchanges is verified, as the search does: a promise may be rounding.
    """
    p = model.posterior
    S, Q, _ = model.frame.scan(p)
    gains = gain_add(S, Q)
    gains[model.active] = 0.0

    def added(j: int) -> Model:
        return model.at(np.append(model.active, j), np.append(p.alpha, optimal_alpha(S[j], Q[j])), p.beta)

    gains_left = [_verified(model, gains, model.problem.order, added)]
    if len(model.active):
        s, q = p.sparsity_quality()
        gains_left.append(float(gain_reestimate(p.alpha, s, q).max()))
        gains_left.append(float(gain_delete(p.alpha, p.gamma, p.mean, p.variance).max()))
        if exchanging:
            pairs = best_exchanges(model)
            order = model.problem.order[model.active]
            gains_left.append(_verified(model, pairs.gain.copy(), order, lambda i: pairs.made(model, i)))
    return max(gains_left) if not np.any(np.isnan(gains_left)) else np.inf


def _verified(model: Model, gains: np.ndarray, order: np.ndarray, make: Callable[[int], Model]) -> float:
    """The largest of the gains, where those above tol are replaced by what the model made gains in truth."""
    tol = model.problem.tolerance(len(model.active))
    for _ in range(_MAX_REFUTED):
        i = best(gains, order)
        if not gains[i] > tol:
            break
        gains[i] = max(0.0, make(i).objective - model.objective)
        if gains[i] > tol:
            break
    return float(gains.max())
