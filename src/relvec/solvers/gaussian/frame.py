"""Orthonormal coordinates in which every model of a fit is small."""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from relvec.design import Design
from relvec.inference.gaussian import Posterior, gaussian
from relvec.runtime.threads import product

# A column whose part outside the frame is smaller than this (relative) lies inside it for all a double can tell.
_DEPENDENT = 1e-11

# S / beta of an atom below this is rounding: the atom is a combination of the model's.
COLLINEAR = 1e-14


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
