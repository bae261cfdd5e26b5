"""Orthonormal coordinates in which every model of a fit is small, and the inner problem in them: alpha and beta of a
fixed support, by Newton steps in their logarithms.
"""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from relvec.design import Design
from relvec.inference.evidence import Posterior, gain_delete, gaussian, gradient, prior_unit_hessian
from relvec.inference.linalg import solve_symmetric
from relvec.runtime.machine import product
from relvec.solvers.loop import OBJECTIVE_SLACK, Problem, not_lower

# A column whose part outside the frame is smaller than this (relative) lies inside it for all a double can tell.
_DEPENDENT = 1e-11

# S / beta of an atom below this is rounding: the atom is a combination of the model's.
COLLINEAR = 1e-14

_LONGEST = 3.0  # step cap in log units: one step changes a precision by a factor of 20 at most
_LEAST_DAMPING = 3e-3  # a refused factorisation is cheap, so damping starts low: valleys are left in few steps


class Frame:
    """An orthonormal basis Q (n, f) of the columns met so far, with P = Q'Phi (f, M) for the whole dictionary.

    Any model whose atoms are in the frame is then a problem of f rows, whatever its alpha and beta: its columns
    are ``P[:, active]``. One new atom costs one product with Phi; changing alpha, beta or leaving atoms out costs
    none. A workspace: it grows, and is made anew by `trimmed` when it holds far more than the model needs.
    """

    def __init__(self, design: Design, target: np.ndarray, rest: float):
        self.design, self.target, self._outside = design, target, rest
        self.size = 0
        self._Q = np.empty((design.n_rows, 32), order="F")
        self._P = np.empty((32, design.n_atoms))
        self._z = np.empty(32)
        self._left = target.copy()  # the part of t outside the frame
        self.rest = float(target @ target) + rest
        self._unit = (design.scale > 0.0).astype(float)  # squared norms of the columns: 1, or 0 where they vanish
        self._Q_left = design.project(target[:, None])[0]  # Phi' (t - Q Q't)
        self._held = np.zeros(design.n_atoms, bool)
        self._last: tuple[np.ndarray, int] | None = None  # support and size of the frame that _R and _gram belong to

    @classmethod
    def adopted(cls, design: Design, target: np.ndarray, rest: float, parts: tuple) -> Frame:
        """The frame a search in C ended with: its size, Q, P, z, left, Q_left, rest and held as bytes."""
        size, Q, P, z, left, Q_left, frame_rest, held = parts
        frame = object.__new__(cls)
        frame.design, frame.target, frame._outside = design, target, rest
        frame.size, frame.rest = size, frame_rest
        frame._Q = np.frombuffer(Q).reshape(size, design.n_rows).T
        frame._P = np.frombuffer(P).reshape(size, design.n_atoms)
        frame._z = np.frombuffer(z)
        frame._left, frame._Q_left = np.frombuffer(left).copy(), np.frombuffer(Q_left).copy()
        frame._unit = (design.scale > 0.0).astype(float)
        frame._held = np.frombuffer(held, dtype=bool).copy()
        frame._last = None
        return frame

    @property
    def directions(self) -> np.ndarray:
        """Q, and the part of t outside the frame (n, f + 1)."""
        return np.column_stack([self._Q[:, : self.size], self._left])

    def beside(self, projected: np.ndarray, unit: np.ndarray) -> Frame:
        """The frame with more atoms behind its own: [Q, t - Q Q't]'Phi (f + 1, m), squared norms (m,); only to scan."""
        known = self._P[: self.size]
        frame = copy(self)
        frame._P = np.hstack([known, projected[:-1]])
        frame._unit = np.append(self._unit, unit)
        frame._Q_left = np.append(self._Q_left, projected[-1])
        return frame

    def span(self, atoms) -> None:
        """Take the given atoms into the frame (Gram-Schmidt, repeated where digits cancel)."""
        new = [a for a in atoms if not self._held[a]]
        if not new:
            return
        self._reserve(self.size + len(new))
        self._held[new] = True
        first = self.size
        old = self._Q[:, :first]
        V = self.design.columns(new)
        if first:
            V = V - old @ self._P[:first, new]
            V -= old @ (old.T @ V)
        for v in V.T:
            Q = self._Q[:, first : self.size]
            if self.size > first:
                v = v - Q @ (Q.T @ v)
                v -= Q @ (Q.T @ v)
            length = math.sqrt(v @ v)
            if length < _DEPENDENT:
                continue
            v = v / length
            if length < 1e-5:
                Q = self._Q[:, : self.size]
                v -= Q @ (Q.T @ v)
                v /= math.sqrt(v @ v)
            self._Q[:, self.size] = v
            self._z[self.size] = v @ self._left
            self._left -= self._z[self.size] * v
            self.size += 1
        if self.size > first:
            P = self._P[first : self.size]
            P[:] = self.design.project(self._Q[:, first : self.size])
            self._Q_left -= self._z[first : self.size] @ P
            self.rest = float(self._left @ self._left) + self._outside

    def coordinates(self, active: np.ndarray) -> np.ndarray:
        """Columns of the given atoms, which must be in the frame, in its coordinates (f, k)."""
        return self._P[: self.size, active]

    def posterior(self, active: np.ndarray, alpha: np.ndarray, beta: float, n_samples: float) -> Posterior:
        """The posterior of the model with the given atoms, which must be in the frame."""
        if self._last is None or self._last[0] is not active or self._last[1] != self.size:
            self._last = active, self.size
            self._R = self.coordinates(active)
            self._gram = self._R.T @ self._R
        return gaussian(self._R, self._z[: self.size], self.rest, n_samples, alpha, beta, self._gram)

    def scan(self, posterior: Posterior) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """S, Q (M,) of TF03 eq. (22) for the whole dictionary, and T (k, M) with S = beta (|phi|^2 - |T|^2)."""
        known = len(posterior.remainder)  # the frame may have grown since: there the model has no part
        T = product(posterior.leverage.T, self._P[:known])  # C^-1 = beta (I - leverage leverage') inside the frame
        S = self._unit - np.einsum("ij,ij->j", T, T)
        S[S < COLLINEAR] = 0.0
        S *= posterior.beta
        Q = self._Q_left + posterior.remainder @ self._P[:known]
        if known < self.size:
            Q += self._z[known : self.size] @ self._P[known : self.size]
        Q *= posterior.beta
        return S, Q, T

    def cross(self, posterior: Posterior, T: np.ndarray) -> np.ndarray:
        """Sigma Phi_a' B Phi (k, M), what a deletion moves (TF03 A.4)."""
        # Sigma Phi_a' beta = A^-1/2 V V' X' beta^1/2 = beta^1/2 root leverage'
        return product(np.sqrt(posterior.beta) * posterior.root, T)

    def trim(self, active: np.ndarray) -> Frame:
        """The same frame, or a fresh one of the given atoms if it holds many more."""
        if self.size <= 1.5 * len(active) + 48:
            return self
        fresh = Frame(self.design, self.target, self._outside)
        fresh.span(active)
        return fresh

    def _reserve(self, size: int) -> None:
        capacity = len(self._z)
        if size <= capacity:
            return
        capacity = max(size, 2 * capacity)
        Q, P, z = self._Q, self._P, self._z
        self._Q = np.empty((self.design.n_rows, capacity), order="F")
        self._P = np.empty((capacity, self.design.n_atoms))
        self._z = np.empty(capacity)
        self._Q[:, : self.size], self._P[: self.size], self._z[: self.size] = (
            Q[:, : self.size], P[: self.size], z[: self.size])  # fmt: skip


def coarse(x, bits: int = 13):
    """Positive numbers rounded to a few bits.

    A search takes hundreds of steps from one another's results, and the order of the rows or of a sum would decide
    where it ends if their last digits were carried along. What rounding does to the evidence is far below tol.
    """
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


def relax(
    problem: Problem, frame: Frame, active: np.ndarray, posterior: Posterior, steps: int,
    hold_noise: bool = False, min_gain_nats: float = 0.0, ceiling: float = np.inf,
) -> tuple[np.ndarray, Posterior]:  # fmt: skip
    """Raise the objective over (log alpha, log beta) by at most ``steps`` Newton steps; delete on the way.

    Ends early when the quadratic model expects less than ``min_gain_nats``, or rounding, from the next step; where that
    is positive the results are `coarse`. The noise variance does not rise above ``ceiling``.

    Atoms whose optimal precision is infinite (q^2 <= s) leave the model. The Hessian is damped towards the
    expectation-maximisation step until it is definite and the objective rises, so no step lowers it.
    """
    hold = hold_noise or problem.fixed_noise
    damping = 0.0
    for _ in range(steps):
        active, posterior = prune(problem, frame, active, posterior)
        k, alpha, beta, v = len(active), posterior.alpha, posterior.beta, posterior.v
        # in units of the prior every alpha is 1 and mu is v
        g_alpha, g_beta = gradient(1.0, v, posterior.gamma, beta, posterior.residual, problem.n_samples)
        g_beta += problem.prior.c - problem.prior_d * beta
        free = not hold and (beta < 1.0 / problem.noise_floor if g_beta > 0.0 else beta * ceiling > 1.0)
        if not (k or free):
            break
        n = k + free
        g, minus_H, em = np.empty(n), np.empty((n, n)), np.empty(n)
        g[:k], em[:k] = g_alpha, 0.5 * (v * v + posterior.shrinkage)
        H, border, corner = prior_unit_hessian(v, posterior.V @ posterior.V.T, beta, posterior.residual)
        np.negative(H, out=minus_H[:k, :k])
        if free:
            g[k], em[k] = g_beta, 0.5 * problem.n_samples
            minus_H[k, :k] = minus_H[:k, k] = -border
            minus_H[k, k] = problem.prior_d * beta - corner
        old = problem.objective(active, posterior)
        moved = None
        for _ in range(40):
            step = solve_symmetric(minus_H if not damping else minus_H + np.diag(damping * em), g)
            if step is not None:
                longest = np.abs(step).max()
                if longest > _LONGEST:
                    step *= _LONGEST / longest
                new_beta = beta
                if free:
                    new_beta = min(max(beta * np.exp(step[k]), 1.0 / ceiling), 1.0 / problem.noise_floor)
                new_alpha = alpha * np.exp(step[:k])
                if min_gain_nats:
                    new_alpha, new_beta = coarse(new_alpha), coarse(new_beta, 20)
                trial = frame.posterior(active, new_alpha, new_beta, problem.n_samples)
                if not_lower(problem.objective(active, trial), old):
                    moved = trial
                    break
            damping = max(_LEAST_DAMPING, 2.0 * damping)
        if moved is None:
            break
        damping = 0.5 * damping if damping > _LEAST_DAMPING else 0.0
        posterior = moved
        if step is not None and 0.5 * (g @ step) < max(min_gain_nats, OBJECTIVE_SLACK * max(1.0, abs(old))):
            break
    return prune(problem, frame, active, posterior)


def prune(problem: Problem, frame: Frame, active: np.ndarray, posterior: Posterior) -> tuple[np.ndarray, Posterior]:
    """Delete the atoms whose optimal precision is infinite (TF03 eq. (21)), while the objective does not fall."""
    while len(active):
        # q^2 <= s in units of the prior
        dead = posterior.v * posterior.v <= posterior.gamma * posterior.shrinkage
        if not dead.any():
            break
        gains = gain_delete(posterior.alpha, posterior.gamma, posterior.mean, posterior.variance)
        old = problem.objective(active, posterior)
        worst = np.arange(len(active)) == np.argmax(np.where(dead, gains, -np.inf))
        for leave in (dead, worst):
            keep = ~leave
            trial = frame.posterior(active[keep], posterior.alpha[keep], posterior.beta, problem.n_samples)
            if not_lower(problem.objective(active[keep], trial), old):
                active, posterior = active[keep], trial
                break
        else:
            break
    return active, posterior
