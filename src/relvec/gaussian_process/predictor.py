"""The fitted process: everything a prediction needs, in frozen arrays.

A component is a process on m vectors Z with weights a (m,) and a matrix R (r, m), r <= m:

    mean(x)     = k(Z, x)'a
    variance(x) = f exp(h(x)) (k(x, x) - |R k(Z, x)|^2 + s)

in the units of the process (`rows.Units`). f is at least one: the mean square of the residuals of rows left out one at
a time, in their standard deviations, times what fitting hyperparameters to the same rows hides; h is zero unless rows
left out say that errors depend on the inputs, and the distribution is a Student t where they ask for it
(`held_out`). Several components are averaged: the mean of their mixture and its variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from relvec.gaussian_process.bound import Bounds, Sums, Vectors, sum_rows
from relvec.gaussian_process.evidence import posterior
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.rows import Rows, Units
from relvec.gaussian_process.selection import Merit
from relvec.inference import tails
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.linalg import covariance_root, factor_lower, invert, solve_lower
from relvec.inference.predictive.scaled import ScaledPredictor
from relvec.inference.scale import Scale
from relvec.runtime.arrays import Array, add_diagonal, like, namespace, row_slices, squares, to_host
from relvec.runtime.record import Brief, Record, is_index

_BLOCK = 2048
_SMALL = 1e-3  # of the noise: directions that add less to a variance are left out of R
_MAX_EIGEN_VECTORS = 1024  # more have a root R of full rank from Cholesky factors, a tenth of the work
_ROUNDING = 1e-11  # added to I - (I + G/s)^-1 so that it can be factored: a share of k(x, x)


@dataclass(frozen=True, eq=False)
class Component(Record):
    """One process: structure, theta (p,), vectors Z (m, d) in its units, weights a (m,), R (r, m), noise s, f and h.

    `varying` is h as a function of the standardised inputs and the mean (d + 1,), None where it is zero; exp(h) is one
    on average over the training rows.
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


@dataclass(frozen=True, eq=False)
class Compared:
    """One candidate of the comparison: its name, merit, rows learned on, NLL held out, share, refusal.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GPRegressor().fit(X, np.sin(3.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0]))
    >>> best = model.selection_[0]
    >>> best.share > 0.0
    True
    """

    name: str
    merit: float
    several_modes: bool
    n_rows: int
    held_out: float
    share: float
    refused: str


@dataclass(frozen=True, eq=False, repr=False)
class ProcessPredictor(Brief, ScaledPredictor):
    """A process fitted to a table.

    Attributes
    ----------
    units : from the user's units to the process's (of the target on its scale)
    scale : the scale of the target: as it is, or a logarithm
    components, shares : the processes, and their shares (k,) in the prediction
    selection : the candidates that were compared, best first
    merit : that of the first component
    bounds : on log p(t | theta) of the first component; `gap` is their distance, in nats a row
    vectors : (m, d) inputs of the rows kept, in the user's units
    status : how the fit ended: "converged", "noise_floor", "time_limit" or "interrupted"
    messages : for the user: noise at its floor, candidates refused, stages cut short
    evaluations : of evidences with their gradients
    relevant : (m,) which vectors were chosen by relevance to the target, the others cover what the kernel allows; None
        where all rows are kept, or all were chosen for coverage

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GPRegressor().fit(X, np.sin(3.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0]))
    >>> mean, variance = model.process_.predict(X[:2])
    >>> mean.shape, bool(np.all(variance > 0.0))
    ((2,), True)
    """

    SHAPES: ClassVar[dict[str, str]] = {"shares": "k", "vectors": "mD", "relevant": "m"}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("shares",)

    on_device: ClassVar[bool] = True

    units: Units
    scale: Scale
    components: tuple[Component, ...]
    shares: np.ndarray
    selection: tuple[Compared, ...]
    merit: Merit
    bounds: Bounds
    vectors: np.ndarray
    status: str
    messages: tuple[str, ...]
    evaluations: int = 0
    relevant: np.ndarray | None = None

    @property
    def why(self) -> np.ndarray:
        """Why each vector (m,) was kept: "relevance" to the target, "coverage" of what the kernel allows, or "all"."""
        if self.relevant is None:
            return np.full(len(self.vectors), "coverage" if self.bounds.upper > self.bounds.lower else "all")
        return np.where(self.relevant, "relevance", "coverage")

    @property
    def noise_columns(self) -> np.ndarray:
        """Columns of X that error bars depend on, the number of columns for the mean; empty where they do not."""
        varying, place = self.components[0].varying, np.append(self.units.columns, self.vectors.shape[1])
        return np.unique(place[varying.columns]) if varying is not None else np.zeros(0, dtype=int)

    @property
    def gap(self) -> float:
        """(upper - lower) / N of the bounds on the evidence."""
        return self.bounds.gap

    @property
    def noise_variance(self) -> float:
        """The noise variance of the target on its scale, averaged over the components."""
        return float(self.shares @ [c.noise_variance for c in self.components]) * self.units.y_scale**2

    @property
    def score(self) -> str:
        """The share of the noise in the variance of the target, in words; rows held out are predicted less well."""
        return f"noise is {min(self.noise_variance / self.units.y_scale**2, 1.0):.1%} of the target's variance"

    def predict(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (q,) of targets at X (q, d), in the user's units; the variance includes the noise."""
        mean, variance = self.moments(np.asarray(X, dtype=float), True, True)
        assert variance is not None
        return mean, variance

    def moments(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Array | None]:
        """Mean and, if asked, variance (q,) at X (q, d), on its device; the noise counts in the variance if asked."""
        simple = not variance and self.scale.sign == 0  # the mean alone, which does not depend on variances
        components = [c.beside(X) for c in self.components]
        found = []
        for part in row_slices(X.shape[0], 1, _BLOCK):
            rows = self.units.inputs(X[part, :])
            found.append(self._simple_mean(components, rows) if simple else self._mix(components, rows, noise))
        join = np.concatenate if isinstance(X, np.ndarray) else namespace(X).concat
        if simple:
            return join(found), None
        return join([mean for mean, _ in found]), join([v for _, v in found]) if variance else None

    def _simple_mean(self, components: list[Component], rows: Array) -> Array:
        mean = sum((float(s) * c.mean(rows) for s, c in zip(self.shares, components)), 0.0)
        return self.units.y_mean + self.units.y_scale * mean

    def _mix(self, components: list[Component], rows: Array, noise: bool) -> tuple[Array, Array]:
        """Mean and variance of the mixture at standardised rows; the few numbers of each row are mixed on the host."""
        mean, variance = mix(self.shares, *zip(*(self._component_moments(c, rows, noise) for c in components)))
        return like(rows, mean), like(rows, variance)

    def slopes(self, X: np.ndarray) -> np.ndarray:
        """Derive the mean on its scale by the p columns that vary, all in standard deviations: (q, p)."""
        rows = self.units.inputs(X)
        found = [s * c.structure.slopes(c.theta, rows, c.Z, c.weights) for s, c in zip(self.shares, self.components)]
        return np.sum(found, axis=0)

    def _component_moments(self, c: Component, rows: Array, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        u, (mean, variance) = self.units, map(to_host, c.predict(rows, False))
        added = u.y_scale**2 * c.noise * c.factor(to_host(rows), mean)
        return self.scale.moments(u.y_mean + u.y_scale * mean, u.y_scale**2 * variance, added, noise)

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (q, q) of the function, or of new targets, at X."""
        u, rows = self.units, self.units.inputs(X)
        means, C = [], np.zeros((len(X), len(X)))
        for share, c in zip(self.shares, self.components):
            mean = c.mean(rows)
            added = u.y_scale**2 * c.noise * c.factor(rows, mean)
            latent = u.y_scale**2 * c.covariance(rows, False)
            mean, own = self.scale.joint_moments(u.y_mean + u.y_scale * mean, latent, added, noise)
            means.append(mean)
            C += share * own
        apart = np.array(means) - self.shares @ np.array(means)
        return C + (self.shares * apart.T) @ apart

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (q, n_samples) drawn from the posterior at X, with noise added if asked."""
        u, rows, drawn = self.units, self.units.inputs(X), np.empty((len(X), n_samples))
        which = rng.choice(len(self.shares), size=n_samples, p=self.shares)
        for i in np.unique(which):
            c, mine = self.components[i], which == i
            standard = covariance_root(c.covariance(rows, noise)) @ rng.standard_normal((len(rows), mine.sum()))
            mean = c.mean(rows)[:, None]
            if noise:
                standard *= np.sqrt(tails.draw_factors(c.tails(rows, mean[:, 0]), mine.sum(), rng))
            added = 0.0 if noise else u.y_scale**2 * c.noise * np.reshape(c.factor(rows, mean[:, 0]), (-1, 1))
            drawn[:, mine] = self.scale.inverse(u.y_mean + u.y_scale * (mean + standard), added)
        return drawn

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (n,) of a new target, or of the function, at X on the scale of the target."""
        u, rows = self.units, self.units.inputs(X)
        mean, variance = mix(self.shares, *zip(*(c.predict(rows, noise) for c in self.components)))
        return u.y_mean + u.y_scale * mean, u.y_scale * np.sqrt(variance)

    def tail_and_noise(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tails and noise variances (n,) of new targets at X (n, d) on the scale: those of the mixture."""
        rows = self.units.inputs(X)
        means = [c.mean(rows) for c in self.components]
        tail = [c.tails(rows, mean) for c, mean in zip(self.components, means)]
        noise = [c.noise * np.broadcast_to(c.factor(rows, mean), len(X)) for c, mean in zip(self.components, means)]
        return self.shares @ np.array(tail), self.units.y_scale**2 * (self.shares @ np.array(noise))

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log density (n,) of targets y (n,) at X: of the mixture, on the scale of the target."""
        u, rows = self.units, self.units.inputs(X)
        t = (self.scale.forward(y) - u.y_mean) / u.y_scale
        means, variances = map(np.array, zip(*(c.predict(rows) for c in self.components)))
        tail = np.array([c.tails(rows, mean) for c, mean in zip(self.components, means)])
        logs = tails.log_density((t - means) ** 2, variances, tail)
        mixed = logsumexp(logs, axis=0, b=self.shares[:, None])
        return mixed - np.log(u.y_scale) + self.scale.log_slope(y)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        Z = [component.Z.shape for component in self.components]
        return bool(
            Z == [(sizes["m"], len(self.units.columns))] * sizes["k"]
            and np.isclose(self.shares.sum(), 1.0)
            and is_index(self.units.columns, sizes["D"])
        )


def mix(
    shares: np.ndarray, means: Sequence[np.ndarray], variances: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of a mixture with these shares (k,), from means and variances (n,) of its parts."""
    mean = shares @ np.array(means)
    return mean, shares @ (np.array(variances) + (np.array(means) - mean) ** 2)


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
