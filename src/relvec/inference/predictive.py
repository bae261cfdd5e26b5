"""Predictive distributions of a fitted model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp, ndtri, pdtr

from relvec.basis import Basis
from relvec.kernels import Kernel
from relvec.runtime.arrays import Array, device_of, is_device_array, like, namespace, row_slices, squares

_LARGEST = 700.0  # exp of more has no double
_WIDEST = 1e150  # nor has the square of more

# Rows are predicted in blocks of about this many numbers: they stay in the cache, and memory does not grow with n.
BLOCK = 100_000


class WeightPredictor(ABC):
    """A Gaussian posterior over the weights of some functions, in the units of the target.

    What the functions leave out of the prior, `left_out`, is uncertain besides; nothing by default.

    Attributes
    ----------
    unit : root mean square of the training target.
    mean, root : (k,), (k, k) posterior N(mean, root root') of the scaled weights.
    noise : noise variance divided by unit^2.
    """

    unit: float
    mean: np.ndarray
    root: np.ndarray
    noise: float

    @abstractmethod
    def columns(self, X: np.ndarray) -> np.ndarray:
        """Scaled functions at X: (n, k)."""

    @abstractmethod
    def left_out(self, X: np.ndarray, Phi: np.ndarray, joint: bool) -> np.ndarray | None:
        """Variance (n,) at X, or covariance (n, n) if ``joint``, that the functions Phi (n, k) leave out; or None."""

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) at X (T01 eq. (21)-(22)); the noise is added to the variance if asked."""
        n, k = len(X), len(self.mean)
        mean = np.empty(n)
        spread = np.empty(n) if variance else None
        rows = max(1, BLOCK // max(k, 1))
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            Phi = self.columns(X[part])
            mean[part] = Phi @ self.mean
            if spread is not None:
                left = self.left_out(X[part], Phi, False)
                Phi = Phi @ self.root
                spread[part] = np.einsum("ij,ij->i", Phi, Phi)
                if left is not None:
                    spread[part] += left
        if spread is not None:
            spread += self.noise if noise else 0.0
            spread *= self.unit**2
        mean *= self.unit
        return mean, spread

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets, at X."""
        Phi = self.columns(X)
        left, Phi = self.left_out(X, Phi, True), Phi @ self.root
        C = Phi @ Phi.T
        if left is not None:
            C += left
        if noise:
            C.flat[:: len(C) + 1] += self.noise
        C *= self.unit**2
        return C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        weights = self.mean[:, None] + self.root @ rng.standard_normal((self.root.shape[1], n_samples))
        Phi = self.columns(X)
        drawn, left = Phi @ weights, self.left_out(X, Phi, True)
        if left is not None:
            size, axes = np.linalg.eigh(left)
            drawn += axes @ (np.sqrt(np.maximum(size, 0.0))[:, None] * rng.standard_normal(drawn.shape))
        if noise:
            drawn += np.sqrt(self.noise) * rng.standard_normal(drawn.shape)
        drawn *= self.unit
        return drawn


@dataclass(frozen=True, eq=False)
class LinearPredictor(WeightPredictor):
    """A posterior over functions w'phi(x), in the units of the target.

    The weights belong to columns divided by ``scale`` and a target divided by ``unit``; keeping both apart is what
    lets inputs and targets of any magnitude pass without overflow.

    Attributes
    ----------
    basis : bound basis of the k atoms kept.
    scale : (k,) norms of the basis functions over the training rows.
    unit : root mean square of the training target.
    mean, root : (k,), (k, k) posterior N(mean, root root') of the scaled weights.
    noise : noise variance divided by unit^2.
    """

    basis: Basis
    scale: np.ndarray
    unit: float
    mean: np.ndarray
    root: np.ndarray
    noise: float

    def columns(self, X: np.ndarray) -> np.ndarray:
        """Scaled basis functions at X: (n, k), in the array library of X."""
        return self.basis(X) / like(X, self.scale)

    def _moments_on_device(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Array | None]:
        xp, weights, root = namespace(X), like(X, self.unit * self.mean), like(X, self.unit * self.root)
        added = float(self.noise * self.unit**2) if noise else 0.0
        mean, spread = [X[:0, 0]], [X[:0, 0]]
        for rows in row_slices(X.shape[0], len(self.mean)):
            Phi = self.columns(X[rows, :])
            mean.append(Phi @ weights)
            if variance:
                spread.append(squares(Phi @ root, 1) + added)
        return xp.concat(mean), xp.concat(spread) if variance else None

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) at X, where X is; the noise is added to the variance if asked."""
        return (
            self._moments_on_device(X, variance, noise) if is_device_array(X) else super().moments(X, variance, noise)
        )

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the function, or of new targets, at X."""
        if not is_device_array(X):
            return super().covariance(X, noise)
        Phi = self.columns(X) @ like(X, self.root)
        C = Phi @ Phi.T
        if noise:
            C += float(self.noise) * like(X, np.eye(C.shape[0]))
        return C * float(self.unit**2)

    def left_out(self, X: np.ndarray, Phi: np.ndarray, joint: bool) -> None:
        """Nothing: the basis functions are the whole model."""


@dataclass(frozen=True)
class Augmented:
    """RVM* (RQ05 section 2): at each point predicted, one more basis function, centred there.

    Parameters
    ----------
    alpha : None, positive number or "evidence", default None
        Prior precision alpha_* of the weight of that function. None is one over the variance of the training targets,
        as RQ05 has it. "evidence" is the choice RQ05 rejects, shown for comparison: the precision of highest evidence
        (TF03 eq. (20)-(21)) is infinite where the data do not ask for the function, far from them above all, and the
        error bars stay small.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> from relvec.inference.predictive import Augmented
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    >>> for predictive in ("rvm", Augmented(alpha=4.0)):
    ...     _, std = RVR(width=1.5, predictive=predictive).fit(X, y).predict([[20.0]], return_std=True)
    ...     print(std.round(1))
    [0.1]
    [0.5]
    """

    alpha: float | str | None = None

    def __post_init__(self) -> None:
        given = self.alpha
        number = isinstance(given, int | float | np.number) and 0.0 < float(given) < np.inf
        if not (given is None or number or given == "evidence"):
            raise ValueError(
                "alpha must be None (one over the variance of the targets), a positive number or 'evidence', "
                f"got {given!r}"
            )


@dataclass(frozen=True, eq=False)
class AugmentedPredictor:
    """RVM*, RQ05 eq. (5)-(7): the model of each point has one more basis function, centred on it.

    Attributes
    ----------
    model : the RVM.
    kernel : of the function added.
    X : (n, d) training rows.
    root : (n,) square roots of their sample weights.
    remainder : (n,) residuals of the targets, times root, in the model's unit.
    precision : (k,) of the model's scaled weights, 0 for those of other outputs.
    alpha : precision of the weight added, for targets in the model's unit; None for that of highest evidence.
    """

    model: LinearPredictor
    kernel: Kernel
    X: np.ndarray
    root: np.ndarray
    remainder: np.ndarray
    precision: np.ndarray
    alpha: float | None

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) at X; each point by itself."""
        mean, spread = self.model.moments(X, variance, noise)
        unit, R, beta = self.model.unit, self.model.root, 1.0 / self.model.noise
        Phi = self.model.columns(self.X) * self.root[:, None]
        rows = max(16, BLOCK // len(self.X))
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            added = self.kernel(self.X, X[part]) * self.root[:, None]  # phi_* at the training rows
            a = beta * (R @ (R.T @ (Phi.T @ added)))  # what the model would make of phi_* as a target
            left = added - Phi @ a
            # RQ05 eq. (7); with a the ridge solution, phi_*'C^-1 phi_* is a sum of squares and loses no digits
            s = beta * np.einsum("ij,ij->j", left, left) + self.precision @ a**2
            q = beta * (self.remainder @ added)
            e = self.kernel.diag(X[part]) - np.einsum("ij,ji->i", self.model.columns(X[part]), a)
            alpha = _best_precision(s, q) if self.alpha is None else self.alpha
            mean[part] += unit * (e * q / (alpha + s))  # RQ05 eq. (6)
            if spread is not None:
                spread[part] += unit**2 * (e**2 / (alpha + s))
        return mean, spread

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Refused: each point has a model of its own."""
        raise ValueError(
            "predictive='augmented' has no covariance between points: each point predicted has a model of its own, "
            "with a basis function there (RQ05); ask for return_std, or use predictive='process'"
        )

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Refused: each point has a model of its own."""
        raise ValueError(
            "predictive='augmented' has no functions to draw: each point predicted has a model of its own, with a "
            "basis function there (RQ05); use predictive='process', or predictive='rvm'"
        )


def _best_precision(s: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The precision of highest evidence of one more function, TF03 eq. (20)-(21); infinite where it is not wanted."""
    gain = q**2 - s
    return np.divide(s**2, gain, out=np.full(len(s), np.inf), where=gain > 0.0)


@dataclass(frozen=True, eq=False)
class LatentPredictor:
    """A posterior over K latent functions f_c(x) = sum_m w_cm phi_m(x), for classes and counts.

    Attributes
    ----------
    basis : bound basis of the m atoms kept.
    scale : (m,) norms of the basis functions over the training rows.
    n_outputs : K.
    outputs, places : (k,) output and atom of each weight.
    mean, root : (k,), (k, k) posterior N(mean, root root') of the scaled weights.
    """

    basis: Basis
    scale: np.ndarray
    n_outputs: int
    outputs: np.ndarray
    places: np.ndarray
    mean: np.ndarray
    root: np.ndarray

    def functions(self, X: np.ndarray) -> list[np.ndarray]:
        """For each output its scaled basis functions at X, (n, k_c)."""
        Phi = self.basis(X) / self.scale
        return [Phi[:, self.places[i]] for i in self._own()]

    def spread(self, X: np.ndarray, A: np.ndarray) -> list[np.ndarray]:
        """For each output its functions at X times its rows of A (n, k, j), one matrix a point: (n, j)."""
        parts = zip(self.functions(X), self._own(), strict=True)
        return [np.einsum("nk,nkj->nj", Phi, A[:, i]) for Phi, i in parts]

    def moments(self, X: np.ndarray, spread: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean (n, K) and, if asked, covariance (n, K, K) of the latent functions at X."""
        if is_device_array(X):
            return self._moments_on_device(X, spread)
        n, K, k = len(X), self.n_outputs, len(self.mean)
        mean, covariance = np.zeros((n, K)), np.zeros((n, K, K)) if spread else None
        own = self._own()
        rows = max(1, BLOCK // max(k * (K if spread else 1), 1))
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            Phi = self.functions(X[part])
            for c, i in enumerate(own):
                mean[part, c] = Phi[c] @ self.mean[i]
            if covariance is not None and k:
                T = np.stack([Phi[c] @ self.root[i] for c, i in enumerate(own)], axis=1)  # (rows, K, k)
                covariance[part] = T @ T.transpose(0, 2, 1)
        return mean, covariance

    def _own(self) -> list[np.ndarray]:
        """Which weights belong to each output."""
        return [np.flatnonzero(self.outputs == c) for c in range(self.n_outputs)]

    def _moments_on_device(self, X: Array, spread: bool) -> tuple[Array, Array | None]:
        xp, K, k = namespace(X), self.n_outputs, len(self.mean)
        weights = np.zeros((len(self.scale), K))
        weights[self.places, self.outputs] = self.mean
        roots = np.zeros((K, len(self.scale), k))
        for c, i in enumerate(self._own()):
            roots[c, self.places[i]] = self.root[i]
        scale, weights, roots = like(X, self.scale), like(X, weights), like(X, roots)
        mean, covariance = [device_of(X).zeros(0, K)], [device_of(X).zeros(0, K, K)]
        for rows in row_slices(X.shape[0], (k + len(self.scale)) * (K if spread else 1)):
            Phi = self.basis(X[rows, :]) / scale
            mean.append(Phi @ weights)
            if spread:
                T = xp.permute_dims(Phi @ roots, (1, 0, 2))  # (rows, K, k)
                covariance.append(T @ xp.permute_dims(T, (0, 2, 1)))
        return xp.concat(mean), xp.concat(covariance) if spread else None


@dataclass(frozen=True, eq=False)
class AugmentedLatentPredictor:
    """RVM* for classes: one more basis function for every latent function, centred on the point predicted.

    RQ05 eq. (6)-(7) with the likelihood's curvature B at the mode in place of the noise precision, as T01 eq. (25) has
    it, and the residual t - p in place of the target's. The model itself, its mode and B, stays as it is.

    Attributes
    ----------
    latent : the posterior over the K latent functions.
    kernel : of the functions added.
    X : (n, d) training rows.
    residual : (n, K) derivative of the log-likelihood at the mode.
    curvature : (n, K, K) minus its second derivative, B.
    alpha : precision of the weights added.
    """

    latent: LatentPredictor
    kernel: Kernel
    X: np.ndarray
    residual: np.ndarray
    curvature: np.ndarray
    alpha: float

    @property
    def n_outputs(self) -> int:
        """K."""
        return self.latent.n_outputs

    def moments(self, X: np.ndarray, spread: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean (n, K) and, if asked, covariance (n, K, K) of the latent functions at X; each point by itself."""
        mean, covariance = self.latent.moments(X, spread)
        K, root, trained = self.n_outputs, self.latent.root, self.latent.functions(self.X)
        rows = max(16, BLOCK // (len(self.X) * K))
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            added = self.kernel(self.X, X[part])  # phi_* at the training rows, (n, b)
            # weights of output a against the function added to output c: (b, k, K)
            cross = np.stack([self._against(trained, added, c) for c in range(K)], axis=-1)
            A = root @ (root.T @ cross)
            S = np.einsum("nac,nb->bac", self.curvature, added**2) - cross.transpose(0, 2, 1) @ A
            S.reshape(len(S), -1)[:, :: K + 1] += self.alpha
            own = np.stack(self.latent.spread(X[part], A), axis=1)  # (b, K, K)
            E = self.kernel.diag(X[part])[:, None, None] * np.eye(K) - own
            gain = np.linalg.solve(S, np.concatenate([E.transpose(0, 2, 1), (added.T @ self.residual)[..., None]], 2))
            mean[part] += (E @ gain[..., K:])[..., 0]
            if covariance is not None:
                covariance[part] += E @ gain[..., :K]
        return mean, covariance

    def _against(self, trained: list[np.ndarray], added: np.ndarray, output: int) -> np.ndarray:
        """Inner products (b, k) of the model's functions with those added (n, b) to one output, B the weight."""
        found = np.zeros((added.shape[1], len(self.latent.mean)))
        for a, Phi in enumerate(trained):
            found[:, self.latent.outputs == a] = (added * self.curvature[:, a, output, None]).T @ Phi
        return found


@dataclass(frozen=True, eq=False)
class CountPredictor:
    """Counts with the rate exp(f(x)) for a Gaussian posterior over f: averages over f are exact or by quadrature.

    Attributes
    ----------
    latent : the posterior over f.
    """

    latent: LinearPredictor

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and variance (n,) of the rate, or of a new count if ``noise``: those of a log-normal variable."""
        f, spread = self._latent(X)
        mean = _rate(f + 0.5 * spread)
        if not variance:
            return mean, None
        with np.errstate(over="ignore"):
            deviation = np.minimum(mean * np.sqrt(np.expm1(np.minimum(spread, _LARGEST))), _WIDEST)
        return mean, deviation**2 + (mean if noise else 0.0)

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Covariance (n, n) of the rates, or of new counts."""
        mean, _ = self.moments(X, False, False)
        C = np.outer(mean, mean) * np.expm1(self.latent.covariance(X, False))
        return C + np.diag(mean) if noise else C

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Rates (n, n_samples) drawn from the posterior, or counts."""
        rate = _rate(self.latent.samples(X, n_samples, rng, False))
        return rng.poisson(rate).astype(float) if noise else rate

    def quantiles(self, X: np.ndarray, q: np.ndarray, noise: bool) -> np.ndarray:
        """Quantiles (n, n_q) of the rate, or of a new count: the least one with P(not more) >= q."""
        f, spread = self._latent(X)
        if not noise:
            return _rate(f[:, None] + np.sqrt(spread)[:, None] * ndtri(q))
        low, high = np.full((len(f), len(q)), -1.0), np.ones((len(f), len(q)))
        while np.any(short := self._not_more(high, f, spread) < q):
            low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
        while np.any(high - low > 1.0):
            middle = np.floor(0.5 * (low + high))
            reached = self._not_more(middle, f, spread) >= q
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return high

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Log probability (n,) of counts y (n,), averaged over the posterior."""
        f, spread = self._latent(X)
        z, log_weight = _normal_nodes()
        rates = f[:, None] + np.sqrt(spread)[:, None] * z
        return logsumexp(y[:, None] * rates - _rate(rates) - gammaln(y + 1.0)[:, None] + log_weight, axis=1)

    def _latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, spread = self.latent.moments(X, True, False)
        assert spread is not None
        return mean, spread

    def _not_more(self, count: np.ndarray, f: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """P(t <= count) for counts (n, n_q)."""
        z, log_weight = _normal_nodes()
        total = np.zeros(count.shape)
        for node, weight in zip(z, np.exp(log_weight), strict=True):
            total += weight * pdtr(count, _rate(f + np.sqrt(spread) * node)[:, None])
        return total


def _rate(f: np.ndarray) -> np.ndarray:
    """exp(f), or the largest rate that a double takes with some room."""
    return np.exp(np.minimum(f, _LARGEST))


def _normal_nodes() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and logarithms of weights of the trapezoidal rule for a standard normal variable."""
    z = np.linspace(-8.0, 8.0, 65)
    return z, -0.5 * z * z - 0.5 * np.log(2.0 * np.pi) + np.log(z[1] - z[0])
