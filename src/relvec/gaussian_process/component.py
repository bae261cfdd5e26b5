"""One process of a fitted mixture, in the units of processes, and how it is made.

A component is a process on m vectors Z with weights a (m,) and a matrix R (r, m), r <= m:

    mean(x)     = k(Z, x)'a
    variance(x) = f exp(h(x)) (k(x, x) - |R k(Z, x)|^2 + s)

in the units of the process (`rows.Units`). f is at least one: the mean square of the residuals of rows left out one at
a time, in their standard deviations, times what fitting hyperparameters to the same rows hides; h is zero unless rows
left out say that errors depend on the inputs, and the distribution is a Student t where they ask for it
(`held_out`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from relvec.gaussian_process.bound import Sums, Vectors, sum_rows
from relvec.gaussian_process.evidence import posterior
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows
from relvec.inference import tails
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.linalg import factor_lower, invert, solve_lower
from relvec.runtime.arrays import Array, add_diagonal, like, namespace, squares, to_host
from relvec.runtime.record import Record

_SMALL = 1e-3  # of the noise: directions that add less to a variance are left out of R
_MAX_EIGEN_VECTORS = 1024  # more have a root R of full rank from Cholesky factors, a tenth of the work
_ROUNDING = 1e-11  # added to I - (I + G/s)^-1 so that it can be factored: a share of k(x, x)


@dataclass(frozen=True, eq=False)
class Component(Record):
    """One process: structure, theta (p,), vectors Z (m, d) in its units, weights a (m,), R (r, m), noise s, f and h.

    `varying` is h as a function of the standardised inputs and the mean (d + 1,), None where it is zero; exp(h) is one
    on average over the training rows.

    Examples
    --------
    >>> from relvec.gaussian_process import default_candidates
    >>> structure, Z, y, noise = default_candidates(1)[0], np.array([[0.0], [1.0]]), np.array([1.0, -1.0]), 0.01
    >>> theta = np.zeros(structure.n_theta)
    >>> C = structure(theta, Z) + noise * np.eye(2)
    >>> component = Component(structure, theta, Z, np.linalg.solve(C, y), np.linalg.inv(np.linalg.cholesky(C)), noise)
    >>> mean, variance = component.predict(Z, noise=False)
    >>> mean.round(1), variance.round(1)
    (array([ 1., -1.]), array([0., 0.]))
    """

    SHAPES: ClassVar[dict[str, str]] = {"theta": "p", "Z": "md", "weights": "m", "R": "rm"}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("noise", "spread", "tail")

    structure: Structure
    theta: np.ndarray
    Z: np.ndarray
    weights: np.ndarray
    R: np.ndarray
    noise: float
    spread: float = 1.0
    varying: LogNoise | None = None
    tail: float = 0.0

    def __post_init__(self) -> None:
        for array in (self.theta, self.Z, self.weights, self.R):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def beside(self, X: Array) -> Component:
        """Return the same process with its arrays on the device of X."""
        if isinstance(X, np.ndarray):
            return self
        Z, weights, R = (like(X, array) for array in (self.Z, self.weights, self.R))
        return replace(self, Z=Z, weights=weights, R=R)

    @property
    def noise_variance(self) -> float:
        """Noise variance f s of predictions, on average over the training rows."""
        return self.spread * self.noise

    def factor(self, X: Array, mean: Array) -> Array:
        """F exp(h) (q,) of variances at standardised X (q, d), where the means are (q,); f alone where h is zero."""
        if self.varying is None:
            return self.spread
        return like(X, self.spread * self.varying.variance(np.column_stack([to_host(X), to_host(mean)])))

    def tails(self, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Tails (q,) of targets at standardised X (q, d), where the means are (q,)."""
        if self.varying is None:
            return np.full(len(mean), self.tail)
        return tails.join(self.tail, self.varying.moments(np.column_stack([X, mean]))[1])

    def mean(self, X: Array) -> Array:
        """Mean (q,) at standardised X (q, d), on the device of both."""
        return self.structure(self.theta, X, self.Z) @ self.weights

    def predict(self, X: Array, noise: bool = True) -> tuple[Array, Array]:
        """Mean and variance (q,) of targets, or without noise of the function, at standardised X (q, d)."""
        K = self.structure(self.theta, self.Z, X)
        variance = self.structure.prior_variance(self.theta, X) - squares(self.R @ K, 0)
        variance = np.maximum(variance, 0.0) if isinstance(X, np.ndarray) else namespace(X).clip(variance, min=0.0)
        mean = K.T @ self.weights
        return mean, self.factor(X, mean) * (variance + (self.noise if noise else 0.0))

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (q, q) of targets, or without noise of the function, at standardised X (q, d)."""
        half = self.R @ self.structure(self.theta, self.Z, X)
        C = self.structure(self.theta, X) - half.T @ half
        C.flat[:: len(C) + 1] = np.maximum(C.diagonal(), 0.0) + (self.noise if noise else 0.0)
        root = np.sqrt(np.broadcast_to(self.factor(X, self.mean(X)), len(C)))
        return root[:, None] * C * root

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        fits = self.varying is None or len(self.varying.centre) == sizes["d"] + 1
        sized = self.structure.n_theta == sizes["p"] and self.structure.n_inputs == sizes["d"]
        return fits and sized and self.tail < 0.5


def exact_component(structure: Structure, theta: np.ndarray, rows: Rows) -> Component:
    """Return the exact process: every row a vector, R = L^-1."""
    fitted = posterior(structure, theta, rows)
    R = solve_triangular(fitted.L, np.eye(len(rows)), lower=True, check_finite=False)
    return Component(structure, theta, rows.X, fitted.weights, R, structure.noise(theta))


def sparse_component(structure: Structure, theta: np.ndarray, rows: Rows, Z: np.ndarray) -> Component:
    """Return the process on the vectors Z (m, d), Titsias 2009 eq. (6)."""
    vectors = Vectors.at(structure, theta, Z)
    return component_of(vectors, sum_rows(vectors, rows.X, rows.y, rows.weight))


def component_of(vectors: Vectors, sums: Sums) -> Component:
    """Form the process on vectors from sums over rows of their features A: G = A A', b = A y; in arrays of the host.

    With G = U diag(g) U' the posterior precision of the features is I + G/s: the variance is
    k(x, x) - |L^-1 k|^2 + |(I + G/s)^-1/2 L^-1 k|^2, so that R = diag(sqrt(g / (g + s))) U' L^-1. Directions the rows
    say almost nothing about are left out. Of many vectors R is C' L^-1 with C C' = I - (I + G/s)^-1.
    """
    structure, theta = vectors.structure, vectors.theta
    s = structure.noise(theta)
    if vectors.Z.shape[0] > _MAX_EIGEN_VECTORS:
        inverse = invert(factor_lower(add_diagonal(sums.gram / s, 1.0)))
        weights = solve_lower(vectors.L, inverse @ (sums.cross / s), trans=True)
        C = factor_lower(add_diagonal(-inverse, 1.0 + _ROUNDING))
        Z, weights, R = map(to_host, (vectors.Z, weights, solve_lower(vectors.L, C, trans=True).T))
        return Component(structure, theta, Z, weights, np.ascontiguousarray(R), s)
    Z, L, G, b = map(to_host, (vectors.Z, vectors.L, sums.gram, sums.cross))
    g, U = np.linalg.eigh(G)
    g = np.maximum(g, 0.0)
    weights = solve_triangular(L, U @ ((U.T @ b) / (g + s)), lower=True, trans=1, check_finite=False)
    top = structure.prior_variance(theta, Z).max()
    kept = g / (g + s) > _SMALL * s / top
    half = U[:, kept] * np.sqrt(g[kept] / (g[kept] + s))
    R = solve_triangular(L, half, lower=True, trans=1, check_finite=False).T
    return Component(structure, theta, Z, weights, np.ascontiguousarray(R), s)
