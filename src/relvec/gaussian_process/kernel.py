"""Composite kernels: sums of stationary parts, a linear part and a constant, and their derivatives.

A kernel here is a *structure* (which parts there are) and a vector theta of logarithms:

    k(x, z) = c + a_0 x'z / d + sum_j a_j k_j(r_j),    r_j^2 = sum_i (x_i - z_i)^2 / l_ji^2.

The inputs are those of `rows.standardise`: about zero, of unit variance. Amplitudes a are prior variances of the
target in its standard deviations, l are lengths of the process's kernel. c is not learned: it is the prior variance of
the constant that standardising the target leaves open.

Derivatives are vector-Jacobian products: for a matrix bar (n, m) the derivative of sum(bar * k(X, Z)) with respect to
theta, which costs what k(X, Z) costs. The squared differences are never formed:
sum_ij W_ij (x_i - z_j)^2 = sum_i W_i. x_i^2 + sum_j W_.j z_j^2 - 2 x' W z for each input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.linalg.blas import daxpy

from relvec.runtime.arrays import (
    Array,
    Scratch,
    add_diagonal,
    device_of,
    dots,
    like,
    namespace,
    overwrite,
    squares,
    to_host,
)
from relvec.runtime.record import Record

CONSTANT = 1.0  # prior variance of the constant, in variances of the target
_ROOT3, _ROOT5 = np.sqrt(3.0), np.sqrt(5.0)


class Shape:
    """The forms of a stationary part, as functions of the distance r in lengths."""

    GAUSSIAN = "gaussian"
    MATERN32 = "matern32"
    MATERN52 = "matern52"


def profile(
    shape: str, r2: Array, scratch: Scratch | None = None, overwrites: bool = False
) -> tuple[Array, Array, float]:
    """k, and g and c with dk/d(r^2) = c g, at the squared distances r2; Rasmussen and Williams eqs. (4.9), (4.17).

    They are written to the arrays of `scratch` where it is given; k to that of r2 if it ``overwrites``.

    >>> k, g, c = profile(Shape.GAUSSIAN, np.array([[0.0, 2.0]]))
    >>> np.round(k, 3).tolist(), np.round(c * g, 3).tolist()
    ([[1.0, 0.368]], [[-0.5, -0.184]])
    """
    scratch = scratch or Scratch()
    r = r2 if overwrites else scratch.copy(r2)
    if shape == Shape.GAUSSIAN:
        r *= -0.5
        k = overwrite("exp", r)
        return k, k, -0.5
    r = overwrite("sqrt", r)
    r *= float(_ROOT3 if shape == Shape.MATERN32 else _ROOT5)
    e = scratch.copy(r)
    e *= -1.0
    e = overwrite("exp", e)
    if shape == Shape.MATERN32:
        r += 1.0
        r *= e
        return r, e, -1.5
    g = scratch.copy(r)
    g += 1.0
    g *= e
    r *= r
    r *= e
    r /= 3.0
    r += g
    return r, g, -5.0 / 6.0


@dataclass(frozen=True)
class Part:
    """A stationary part: its shape, and whether every input has a width of its own.

    Inputs with equal numbers in `groups` (d,), the levels of a category, share a width and count as one: the lengths of
    k levels are sqrt(k) times it. There are no groups where `groups` is ().
    Where one width is learned for all, that of input i is exp(log_ratios[i]) times it; None makes them equal.
    """

    shape: str
    per_input: bool = False
    log_ratios: tuple[float, ...] | None = None
    groups: tuple[int, ...] = ()

    def log_lengths(self, log_widths: np.ndarray) -> np.ndarray:
        """Logarithms of the widths of the inputs, (d,) or (1,), from those in theta."""
        if self.groups:
            return (log_widths + 0.5 * np.log(np.bincount(self.groups)))[list(self.groups)]
        return log_widths if self.log_ratios is None else log_widths + np.array(self.log_ratios)

    def n_widths(self, n_inputs: int) -> int:
        """How many widths the part has."""
        return self.n_terms(n_inputs) if self.per_input else 1

    def n_terms(self, n_inputs: int) -> int:
        """Return the inputs that distances are summed over, a category one of them."""
        return len(set(self.groups)) or n_inputs


@dataclass(frozen=True)
class Structure(Record):
    """Which parts a kernel has, over n_inputs inputs.

    theta is [log a_j, log widths of part j] for each part, then log a_0 if there is a linear part, then the log of the
    noise variance: `n_theta` numbers.

    >>> s = Structure((Part(Shape.GAUSSIAN, True), Part(Shape.MATERN32)), linear=True, n_inputs=3)
    >>> s.n_theta, s.name
    (8, 'gaussian[3] + matern32 + linear')
    """

    FINITE: ClassVar[bool] = False

    parts: tuple[Part, ...]
    linear: bool
    n_inputs: int

    @property
    def name(self) -> str:
        """The structure in words: [k] marks k widths, that of each input, [ranges] one in ratios of their ranges."""
        d = self.n_inputs
        widths = [f"[{p.n_widths(d)}]" if p.per_input else "[ranges]" if p.log_ratios else "" for p in self.parts]
        names = [part.shape + width for part, width in zip(self.parts, widths)]
        return " + ".join([*names, "linear"] if self.linear else names) or "constant"

    @cached_property
    def amplitudes(self) -> tuple[int, ...]:
        """Where theta holds the log-amplitudes of the parts."""
        at, found = 0, []
        for part in self.parts:
            found.append(at)
            at += 1 + part.n_widths(self.n_inputs)
        return tuple(found)

    @cached_property
    def widths(self) -> tuple[slice, ...]:
        """Where theta holds the log-widths of each part."""
        return tuple(slice(i + 1, i + 1 + part.n_widths(self.n_inputs)) for i, part in zip(self.amplitudes, self.parts))

    @property
    def linear_at(self) -> int:
        """Where theta holds the log-amplitude of the linear part."""
        return self.n_theta - 2

    @cached_property
    def n_theta(self) -> int:
        """The number of hyperparameters, the noise among them."""
        widths = sum(part.n_widths(self.n_inputs) for part in self.parts)
        return len(self.parts) + widths + int(self.linear) + 1

    def noise(self, theta: np.ndarray) -> float:
        """Return the noise variance of a row of weight one."""
        return float(np.exp(theta[-1]))

    def prior_variance(self, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """k(x, x) (n,) at the rows of X (n, d)."""
        level = CONSTANT + float(sum(np.exp(theta[i]) for i in self.amplitudes))
        if not self.linear:
            return like(X, np.full(X.shape[0], level))
        return level + float(np.exp(theta[self.linear_at])) / max(self.n_inputs, 1) * squares(X, 1)

    def slopes(self, theta: np.ndarray, X: np.ndarray, Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the derivatives (n, d) of sum_j w_j k(x, z_j) by x at the rows of X (n, d), for weights w (m,)."""
        out = np.zeros_like(X)
        if self.linear:
            out += np.exp(theta[self.linear_at]) / max(self.n_inputs, 1) * (weights @ Z)
        for part, i, at in zip(self.parts, self.amplitudes, self.widths):
            inverse = np.exp(-part.log_lengths(theta[at]))
            _, slope, factor = profile(part.shape, squared_distances(X * inverse, Z * inverse))
            G = 2.0 * factor * np.exp(theta[i]) * slope * weights  # d r^2 / dx = 2 (x - z) / l^2
            out += (G.sum(1)[:, None] * X - G @ Z) * inverse**2
        return out

    def __call__(self, theta: np.ndarray, X: Array, Z: Array | None = None) -> Array:
        """Return the matrix k(x_i, z_j) (n, m), on the device of X; Z (m, d) is X itself where it is not given."""
        return Evaluated(self, theta, X, Z).K

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        grouped = [part.groups for part in self.parts if part.groups]
        return all(len(g) == self.n_inputs and set(g) == set(range(len(set(g)))) for g in grouped)


class Evaluated:
    """k(X, Z) and what its derivatives need, so that a value and a gradient share the exponentials.

    The matrices are those of `scratch` where it is given, and last until its next round.
    """

    def __init__(
        self, structure: Structure, theta: np.ndarray, X: Array, Z: Array | None = None, scratch: Scratch | None = None
    ):  # fmt: skip
        self.structure, self.theta, self.X, self.Z = structure, theta, X, Z
        self.scratch = scratch = scratch or Scratch()
        other = X if Z is None else Z
        shape = X.shape[0], other.shape[0]
        if isinstance(X, np.ndarray):
            K = scratch.empty(*shape)
            K.fill(CONSTANT)
        else:
            K = device_of(X).zeros(*shape) + CONSTANT
        if structure.linear:
            amplitude = float(np.exp(theta[structure.linear_at])) / max(structure.n_inputs, 1)
            K = _add_scaled(K, amplitude, _products(X, other, scratch))
        self.terms = []
        for part, i, at in zip(structure.parts, structure.amplitudes, structure.widths):
            inverse = like(X, np.exp(-part.log_lengths(theta[at])))
            r2 = squared_distances(X * inverse, None if Z is None else Z * inverse, scratch)
            k, slope, factor = profile(part.shape, r2, scratch, part.per_input)  # whose derivatives need no r2
            K = _add_scaled(K, float(np.exp(theta[i])), k)
            self.terms.append((k, slope, factor, r2, inverse))
        self.K = K

    def vjp(self, bar: Array) -> np.ndarray:
        """Return the derivative of sum(bar * K) with respect to theta, for bar (n, m); that of the noise is zero."""
        s, theta = self.structure, self.theta
        X, Z = self.X, self.X if self.Z is None else self.Z
        out = np.zeros(s.n_theta)
        for part, i, at, (k, slope, factor, r2, inverse) in zip(s.parts, s.amplitudes, s.widths, self.terms):
            a = np.exp(theta[i])
            W = self.scratch.copy(bar)
            W *= slope
            out[i] = a * (float(namespace(W).sum(W)) if slope is k else _vdot(bar, k))
            if part.per_input:  # d r^2 / d log l = -2 (x - z)^2 / l^2
                squared = _weighted_squares(W, X * inverse, Z * inverse)
                out[at] = -2.0 * factor * a * (np.bincount(part.groups, squared) if part.groups else squared)
            else:
                out[at] = -2.0 * factor * a * _vdot(W, r2)
        if s.linear:
            out[s.linear_at] = np.exp(theta[s.linear_at]) / max(s.n_inputs, 1) * _vdot(bar @ Z, X)
        return out


def squared_distances(X: Array, Z: Array | None = None, scratch: Scratch | None = None) -> Array:
    """|x_i - z_j|^2 (n, m) by one matrix product; exactly zero between a row and itself where Z is not given.

    >>> squared_distances(np.array([[0.0], [3.0]]), np.array([[1.0]])).tolist()
    [[1.0], [4.0]]
    """
    other = X if Z is None else Z
    if not isinstance(X, np.ndarray):
        D = squares(X, 1)[:, None] + squares(other, 1)[None, :] - 2.0 * (X @ other.T)
        D = namespace(D).clip(D, min=0.0)
        return add_diagonal(D, -to_host(namespace(D).linalg.diagonal(D))) if Z is None else D
    D = _products(X, other, scratch or Scratch())
    D *= -2.0
    D += squares(X, 1)[:, None]
    D += squares(other, 1)[None, :]
    np.maximum(D, 0.0, out=D)
    if Z is None:
        np.fill_diagonal(D, 0.0)
    return D


def _products(X: Array, Z: Array, scratch: Scratch) -> Array:
    """X Z' (n, m)."""
    return np.matmul(X, Z.T, out=scratch.empty(len(X), len(Z))) if isinstance(X, np.ndarray) else X @ Z.T


def _add_scaled(x: Array, factor: float, y: Array) -> Array:
    """X + factor y, written over x in NumPy."""
    if not isinstance(x, np.ndarray):
        return x + factor * y
    if x.size:
        daxpy(y.reshape(-1), x.reshape(-1), a=factor)  # both in C order: views
    return x


def _vdot(A: Array, B: Array) -> float:
    """Return the sum of the products of two arrays."""
    return float(np.vdot(A, B)) if isinstance(A, np.ndarray) else float(namespace(A).sum(A * B))


def _weighted_squares(W: Array, X: Array, Z: Array) -> np.ndarray:
    """sum_ij W_ij (x_ik - z_jk)^2 for every input k (d,)."""
    xp = namespace(W)
    return to_host(xp.sum(W, axis=1) @ (X * X) + xp.sum(W, axis=0) @ (Z * Z) - 2.0 * dots(X, W @ Z, 0))
