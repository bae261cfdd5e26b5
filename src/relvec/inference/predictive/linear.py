"""Predictions by normal posteriors over weights: of targets, and of latent functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relvec.basis import Basis
from relvec.inference.predictive.contract import Predictor
from relvec.inference.predictive.expansion import Expansion, LinearExpansion
from relvec.runtime.arrays import Array, add_diagonal, array_slices, like, namespace, squares, take
from relvec.runtime.record import Record, is_index

BLOCK_NUMBERS = 100_000  # rows are predicted in blocks of this size: they stay in the cache, and memory does not grow


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearPredictor(Predictor):
    """A Gaussian posterior over functions w'phi(x), in the units of the target.

    The weights belong to columns divided by ``scale`` and a target divided by ``unit``; both are kept apart, so that
    inputs and targets of any magnitude pass without overflow.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> predictor = RVR(width=2.0, noise_variance=0.01).fit(X, np.sin(X[:, 0])).fitted_.predictors[0]
    >>> mean, _ = predictor.moments(X, variance=False, noise=False)
    >>> bool(np.allclose(mean, predictor.columns(X) @ predictor.mean * predictor.unit))
    True
    >>> len(predictor.mean) == predictor.basis.n_atoms, predictor.covariance(X, noise=False).shape
    (True, (20, 20))
    """

    SHAPES: ClassVar[dict[str, str]] = {"scale": "m", "mean": "m", "root": "m."}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("unit", "noise")
    MAY_BE_INFINITE: ClassVar[tuple[str, ...]] = ("noise",)

    on_device: ClassVar[bool] = True

    basis: Basis  # bound basis of the k atoms kept
    scale: np.ndarray  # (k,) norms of the basis functions over the training rows
    unit: float  # root mean square of the training target
    # (k,), (k, k) posterior N(mean, root root') of the scaled weights
    mean: np.ndarray
    root: np.ndarray
    noise: float  # noise variance divided by unit^2

    @property
    def weight_root(self) -> np.ndarray:
        """A root (k, j) of the posterior covariance of the weights, in the units of X and y."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self.root * (self.unit / self.scale)[:, None]

    @property
    def weight_covariance(self) -> np.ndarray:
        """Posterior covariance (k, k) of the weights, in the units of X and y."""
        return self.weight_root @ self.weight_root.T

    def columns(self, X: Array) -> Array:
        """Scaled basis functions at X: (n, k), in the array library of X."""
        return self.basis(X) / like(X, self.scale)

    def moments(self, X: Array, variance: bool, noise: bool) -> tuple[Array, Array | None]:
        """Mean and, if asked, variance (n,) at X (T01 eq. (21)-(22)), where X is; with the noise in it if asked."""
        xp, weights, root = namespace(X), like(X, self.mean), like(X, self.root)
        mean, spread = [], []
        for rows in array_slices(X, len(self.mean), BLOCK_NUMBERS):
            Phi = self.columns(X[rows, :])
            mean.append(Phi @ weights)
            if variance:
                spread.append(squares(Phi @ root, 1))
        found = xp.concat(mean) * float(self.unit)
        if not variance:
            return found, None
        return found, (xp.concat(spread) + (float(self.noise) if noise else 0.0)) * float(self.unit**2)

    def covariance(self, X: Array, noise: bool) -> Array:
        """Covariance (n, n) of the function, or of new targets, at X."""
        Phi = self.columns(X) @ like(X, self.root)
        C = Phi @ Phi.T
        return (add_diagonal(C, float(self.noise)) if noise else C) * float(self.unit**2)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Functions (n, n_samples) drawn from the posterior at X, with noise added if asked."""
        weights = self.mean[:, None] + self.root @ rng.standard_normal((self.root.shape[1], n_samples))
        drawn = self.columns(X) @ weights
        if noise:
            drawn += np.sqrt(self.noise) * rng.standard_normal(drawn.shape)
        drawn *= self.unit
        return drawn

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        with np.errstate(over="ignore"):  # refused where the numbers are written
            unit = self.unit / self.scale
            root, none = self.root * unit[:, None], np.zeros((len(unit), 0))
            noise = float(self.noise * self.unit**2)
            return Expansion((LinearExpansion(basis or self.basis, self.mean * unit, root, none, 0.0, noise),))

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return self.basis.is_bound and self.basis.n_atoms == sizes["m"] and bool((self.scale != 0.0).all())


@dataclass(frozen=True, eq=False)
class LatentPredictor(Record):
    """A posterior over K latent functions f_c(x) = sum_m w_cm phi_m(x), for classes and counts.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVC
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> latent = RVC(width=2.0).fit(X, X[:, 0] > 3.0).fitted_.functions[0]
    >>> mean, covariance = latent.moments(X)
    >>> mean.shape, covariance.shape
    ((20, 1), (20, 1, 1))
    """

    SHAPES: ClassVar[dict[str, str]] = {"scale": "m", "outputs": "k", "places": "k", "mean": "k", "root": "k."}

    basis: Basis  # bound basis of the m atoms kept
    scale: np.ndarray  # (m,) norms of the basis functions over the training rows
    n_outputs: int  # K
    # (k,) output and atom of each weight
    outputs: np.ndarray
    places: np.ndarray
    # (k,), (k, k) posterior N(mean, root root') of the scaled weights
    mean: np.ndarray
    root: np.ndarray

    @property
    def weight_root(self) -> np.ndarray:
        """A root (k, j) of the posterior covariance of the weights, in the units of the basis functions as given."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self.root / self.scale[self.places, None]

    @property
    def weight_covariance(self) -> np.ndarray:
        """Posterior covariance (K m, K m) of the weights of all functions; 0 where an atom is not in a function."""
        m, root = self.basis.n_atoms, self.weight_root
        place = self.outputs * m + self.places
        found = np.zeros((self.n_outputs * m, self.n_outputs * m))
        found[np.ix_(place, place)] = root @ root.T
        return found

    def functions(self, X: Array) -> list[Array]:
        """For each output its scaled basis functions at X, (n, k_c), where X is."""
        Phi = self.basis(X) / like(X, self.scale)
        return [take(Phi, self.places[i], 1) for i in self._weights_by_output()]

    def dense_weights(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return weights (m,) of each function and the root (m, k) of their covariance, in units of the basis."""
        found = []
        for own in self._weights_by_output():
            mean, root = np.zeros(len(self.scale)), np.zeros((len(self.scale), self.root.shape[1]))
            mean[self.places[own]] = self.mean[own] / self.scale[self.places[own]]
            root[self.places[own]] = self.weight_root[own]
            found.append((mean, root))
        return found

    def multiply(self, X: np.ndarray, A: np.ndarray) -> list[np.ndarray]:
        """For each output its functions at X times its rows of A (n, k, j), one matrix a point: (n, j)."""
        parts = zip(self.functions(X), self._weights_by_output(), strict=True)
        return [np.einsum("nk,nkj->nj", Phi, A[:, i]) for Phi, i in parts]

    def moments(self, X: Array, spread: bool = True) -> tuple[Array, Array | None]:
        """Mean (n, K) and, if asked, covariance (n, K, K) of the latent functions at X, where X is."""
        xp, own = namespace(X), [(like(X, self.mean[i]), like(X, self.root[i])) for i in self._weights_by_output()]
        numbers = len(self.mean) * (self.n_outputs if spread else 1)
        mean, covariance = [], []
        for rows in array_slices(X, numbers, BLOCK_NUMBERS):
            functions = self.functions(X[rows, :])
            mean.append(xp.stack([Phi @ w for Phi, (w, _) in zip(functions, own, strict=True)], axis=1))
            if spread:
                T = xp.stack([Phi @ R for Phi, (_, R) in zip(functions, own, strict=True)], axis=1)  # (rows, K, k)
                covariance.append(T @ xp.permute_dims(T, (0, 2, 1)))
        return xp.concat(mean), xp.concat(covariance) if spread else None

    def _weights_by_output(self) -> list[np.ndarray]:
        """Return the indices of the weights of each output."""
        return [np.flatnonzero(self.outputs == c) for c in range(self.n_outputs)]

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        indices = is_index(self.places, sizes["m"]) and is_index(self.outputs, self.n_outputs)
        return self.basis.is_bound and self.basis.n_atoms == sizes["m"] and indices
