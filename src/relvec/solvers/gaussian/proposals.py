"""Atoms of a long dictionary that are worth a look: a scan of its pieces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from relvec.inference.evidence import (
    MAX_CORRELATION,
    Posterior,
    exchange_statistics,
    gain_add,
    gain_delete,
)
from relvec.runtime.machine import product
from relvec.solvers._native.gaussian import COLLINEAR

_MIN_EXCHANGE_GAIN_NATS = -1.0  # exchanges that lose more are not taken in
_MAX_EXCHANGE_NUMBERS = 2_000_000  # held at once while exchanges are compared


@dataclass(frozen=True, eq=False)
class ScanTask:
    """A look at pieces of the dictionary for a model of the atoms ``active``.

    Columns that vanish offer nothing: their projections are zero.
    """

    posterior: Posterior
    active: np.ndarray
    closed: np.ndarray  # atoms not to be proposed, in order, the active ones among them
    exchanging: bool
    max_additions: int
    max_exchanges: int  # for every atom of the model
    min_gain_nats: float  # additions that gain no more are not proposed
    bias: int = -1  # the constant, of which no atom is a near-copy
    near_price: float = 0.0  # nats that a near-copy has to gain

    def __call__(self, atoms: np.ndarray, projected: np.ndarray) -> Candidates:
        first, end = np.searchsorted(self.closed, (atoms.min(), atoms.max() + 1))
        outside = ~np.isin(atoms, self.closed[first:end])
        scan = S, Q, _ = self._statistics(projected, outside.astype(float))
        close = np.abs(product(self.units.T, projected[:-1])) > MAX_CORRELATION
        close[:, atoms == self.bias] = False
        crowd = close.sum(axis=0)
        gains = gain_add(S, Q)
        gains[(crowd > 0) & (gains <= self.near_price)] = 0.0
        named = np.flatnonzero(gains > self.min_gain_nats)
        found = Candidates(float(gains.max()), atoms[named], gains[named])
        if self.exchanging:
            refused = crowd - close > 0
            leaving, j, partner_gains = near_exchanges(
                self.posterior, self.max_exchanges, scan, _MIN_EXCHANGE_GAIN_NATS, (refused, self.near_price)
            )
            found = found.exchanging(leaving, atoms[j], partner_gains)
        return self.best(found)

    @cached_property
    def units(self) -> np.ndarray:
        """Columns (f, k) of the model but the constant, whose inner products with others are correlations."""
        X = self.posterior.scaled
        norm = np.sqrt(np.einsum("ij,ij->j", X, X))
        return X * np.divide(self.active != self.bias, norm, out=np.zeros(len(norm)), where=norm > 0.0)

    def _statistics(self, projected: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """S, Q (b,) of TF03 eq. (22) of atoms with squared norms (b,), and T (k, b) with S = beta (|phi|^2 - |T|^2)."""
        p = self.posterior
        T = product(p.leverage.T, projected[:-1])  # C^-1 = beta (I - leverage leverage') inside the frame
        S = unit - np.einsum("ij,ij->j", T, T)
        S[S < COLLINEAR] = 0.0
        return p.beta * S, p.beta * (projected[-1] + p.remainder @ projected[:-1]), T

    def best(self, found: Candidates) -> Candidates:
        """Return the best of them, as many as are proposed."""
        top = np.argsort(-found.gains, kind="stable")[: self.max_additions]
        exchanges = best_of_each(found.leaving, found.partners, found.partner_gains, self.max_exchanges)
        return Candidates(found.largest, found.atoms[top], found.gains[top], *exchanges)

    def combine(self, a: Candidates, b: Candidates) -> Candidates:
        """Return the best of two pieces."""
        columns = (np.concatenate(pair) for pair in zip(a.columns, b.columns, strict=True))
        return self.best(Candidates(max(a.largest, b.largest), *columns))


@dataclass(frozen=True)
class Candidates:
    """The largest gain of any atom looked at, atoms (m,) with the gains of their addition, and exchanges (n,): places
    of the atoms of the model that leave, their partners, and the gains.
    """

    largest: float
    atoms: np.ndarray
    gains: np.ndarray
    leaving: np.ndarray = field(default_factory=lambda: np.zeros(0, np.intp))
    partners: np.ndarray = field(default_factory=lambda: np.zeros(0, np.intp))
    partner_gains: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """All but the largest gain."""
        return self.atoms, self.gains, self.leaving, self.partners, self.partner_gains

    def exchanging(self, leaving: np.ndarray, partners: np.ndarray, gains: np.ndarray) -> Candidates:
        """With exchanges."""
        largest = max(self.largest, float(gains.max(initial=-np.inf)))
        return replace(self, largest=largest, leaving=leaving, partners=partners, partner_gains=gains)


def near_exchanges(
    p: Posterior,
    few: int,
    scan: tuple[np.ndarray, ...],
    least: float = -np.inf,
    near: tuple[np.ndarray, float] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exchanges that gain more than ``least``, the few best for each atom of the model: the places (m,) of those that
    leave among its own, the atoms (m,) that enter, and the gains (m,).

    ``scan`` holds S and Q (b,) of atoms outside, and T (k, b) with S = beta (|phi|^2 - |T|^2); ``near`` are the
    exchanges (k, b) that would leave two near-copies, and the nats that those that enter have to gain.
    """
    k = len(p.alpha)
    S, Q, T = scan
    lost = gain_delete(p.alpha, p.gamma, p.mean, p.variance)
    # of Q^2 / S: what an addition gains is below half of it
    min_ratio = np.maximum(2.0 * (least - lost) + 1.0, 1.0)[:, None]
    found = []
    width = max(few, _MAX_EXCHANGE_NUMBERS // k)
    for start in range(0, len(S), width):
        part = slice(start, start + width)
        # Sigma Phi_a' B Phi: Sigma Phi_a' beta = A^-1/2 V V' X' beta^1/2 = beta^1/2 root leverage'
        cross = product(np.sqrt(p.beta) * p.root, T[:, part])
        S_out, Q_out = exchange_statistics(S[part], Q[part], cross, p.variance, p.mean)
        S_out[:, S[part] <= 0.0] = np.inf
        leaving, entering = np.nonzero(Q_out * Q_out > min_ratio * S_out)
        added = gain_add(S_out[leaving, entering], Q_out[leaving, entering])
        gains = added + lost[leaving]
        good = gains > least
        if near is not None:
            good &= ~near[0][leaving, entering + start] | (added > near[1])
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
