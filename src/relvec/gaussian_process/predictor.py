"""The fitted process: everything a prediction needs, in frozen arrays.

The components (`component`) are averaged: a prediction is the mean of their mixture and its variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from relvec.basis import Basis
from relvec.gaussian_process.bound import Bounds
from relvec.gaussian_process.component import Component
from relvec.gaussian_process.expansion import expand_component
from relvec.gaussian_process.rows import Units
from relvec.gaussian_process.selection import Merit
from relvec.inference import tails
from relvec.inference.linalg import covariance_root
from relvec.inference.predictive.expansion import Expansion, LinearExpansion
from relvec.inference.predictive.scaled import ScaledPredictor
from relvec.inference.scale import Scale
from relvec.runtime.arrays import Array, like, namespace, row_slices, to_host
from relvec.runtime.record import Brief, is_index

_BLOCK = 2048


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

    def expand_components(
        self, n_features: int, rows: np.ndarray | None = None, variance: bool = True
    ) -> tuple[LinearExpansion, ...]:
        """Return each component as an expansion over its own functions, in the units of X and y.

        ``n_features`` counts the columns of X, ``rows`` (m,) are the training rows of the vectors; ``variance``
        tells whether the roots of variances, much larger than the means, are to be computed.
        """
        at = self.units, self.vectors, n_features, rows, variance
        return tuple(expand_component(component, *at) for component in self.components)

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        return Expansion(self.expand_components(n_features), self.shares, self.scale)

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
