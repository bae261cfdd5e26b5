"""RVM* (RQ05): the model of each point predicted has one more basis function, centred on that point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relvec.inference.evidence import gaussian, optimal_alpha
from relvec.inference.predictive.contract import Predictor
from relvec.inference.predictive.linear import BLOCK_NUMBERS, LatentPredictor, LinearPredictor
from relvec.kernels import Kernel
from relvec.runtime.record import Record


@dataclass(frozen=True)
class Augmented:
    """RVM* (RQ05 section 2): at each point predicted, one more basis function, centred there.

    Parameters
    ----------
    alpha : None, positive number or "evidence", default None
        Prior precision alpha_* of the weight of that function. None is one over the variance of the training targets,
        as RQ05 has it. "evidence" is the choice RQ05 rejects, shown for comparison: the precision of highest evidence
        (TF03 eq. (20)-(21)) is infinite where the function explains nothing, above all far from the data, and the
        error bars stay small.
    targets : {"all", "vectors"}, default "all"
        The targets that the model of each point is given. "vectors" are those of the relevance vectors alone, for
        regression (RQ05 footnote 3): a prediction no longer needs the training rows, and variances are too large near
        rows that are no vectors. The weights are then fitted to these targets anew, at the same precisions.

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
    targets: str = "all"

    def __post_init__(self) -> None:
        if self.targets not in ("all", "vectors"):
            raise ValueError(f"targets must be 'all' or 'vectors', got {self.targets!r}")
        given = self.alpha
        number = isinstance(given, int | float | np.number) and 0.0 < float(given) < np.inf
        if not (given is None or number or given == "evidence"):
            raise ValueError(
                "alpha must be None (one over the variance of the targets), a positive number or 'evidence', "
                f"got {given!r}"
            )


@dataclass(frozen=True, eq=False)
class AugmentedPredictor(Predictor):
    """RVM*, RQ05 eq. (5)-(7): the model of each point has one more basis function, centred on it.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X, far = np.linspace(0.0, 6.0, 20)[:, None], np.array([[20.0]])
    >>> model = RVR(width=2.0, noise_variance=0.01, predictive="augmented").fit(X, np.sin(X[:, 0]))
    >>> augmented = model.fitted_.predictors[0]
    >>> for predictor in (augmented.model, augmented):  # far from the data the function's variance comes back
    ...     print(predictor.moments(far, variance=True, noise=False)[1].round(1))
    [0.]
    [0.5]
    """

    SHAPES: ClassVar[dict[str, str]] = {"X": "nd", "root": "n", "remainder": "n", "precision": "m"}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("root", "precision", "alpha")

    model: LinearPredictor  # the RVM
    kernel: Kernel  # of the function added
    X: np.ndarray  # (n, d) training rows
    root: np.ndarray  # (n,) square roots of their sample weights
    remainder: np.ndarray  # (n,) residuals of the targets, times root, in the model's unit
    precision: np.ndarray  # (k,) of the model's scaled weights, 0 for those of other outputs
    # precision of the weight added, for targets in the model's unit; None for that of highest evidence
    alpha: float | None

    def refitted(self, rows: np.ndarray, target: np.ndarray) -> AugmentedPredictor:
        """Return RVM* given the targets (n,), in the model's unit, of some rows (r,) alone (RQ05 footnote 3)."""
        model, root, own = self.model, self.root[rows], self.precision > 0.0
        Phi, t = model.columns(self.X[rows])[:, own] * root[:, None], root * target[rows]
        p = gaussian(Phi, t, 0.0, float(root @ root), self.precision[own], 1.0 / model.noise)
        mean, spread = np.zeros(len(own)), np.zeros((len(own), len(p.mean)))
        mean[own], spread[own] = p.mean, p.root
        few = replace(model, mean=mean, root=spread)
        return replace(self, model=few, X=self.X[rows], root=root, remainder=t - Phi @ p.mean)

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean and, if asked, variance (n,) at X; each point by itself."""
        mean, spread = self.model.moments(X, variance, noise)
        unit, R, beta = self.model.unit, self.model.root, 1.0 / self.model.noise
        Phi = self.model.columns(self.X) * self.root[:, None]
        rows = max(16, BLOCK_NUMBERS // len(self.X))
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            added = self.kernel(self.X, X[part]) * self.root[:, None]  # phi_* at the training rows
            a = beta * (R @ (R.T @ (Phi.T @ added)))  # the fit of the model to phi_* as a target
            left = added - Phi @ a
            # RQ05 eq. (7); with a the ridge solution, phi_*'C^-1 phi_* is a sum of squares and loses no digits
            s = beta * np.einsum("ij,ij->j", left, left) + self.precision @ a**2
            q = beta * (self.remainder @ added)
            e = self.kernel.diag(X[part]) - np.einsum("ij,ji->i", self.model.columns(X[part]), a)
            alpha = optimal_alpha(s, q) if self.alpha is None else self.alpha
            mean[part] += unit * (e * q / (alpha + s))  # RQ05 eq. (6)
            if spread is not None:
                spread[part] += unit**2 * (e**2 / (alpha + s))
        return mean, spread

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        """Raise ValueError: each point has a model of its own."""
        raise ValueError(
            "predictive='augmented' has no covariance between points: each point predicted has a model of its own, "
            "with a basis function there (RQ05); ask for return_std, or use GPRegressor"
        )

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        """Raise ValueError: each point has a model of its own."""
        raise ValueError(
            "predictive='augmented' has no functions to draw: each point predicted has a model of its own, with a "
            "basis function there (RQ05); use predictive='rvm', or GPRegressor"
        )


@dataclass(frozen=True, eq=False)
class AugmentedLatentPredictor(Record):
    """RVM* for classes: one more basis function for every latent function, centred on the point predicted.

    RQ05 eq. (6)-(7) with the likelihood's curvature B at the mode in place of the noise precision, as T01 eq. (25) has
    it, and the residual t - p in place of the target's. The model itself, its mode and B, stays as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVC
    >>> X, far = np.linspace(0.0, 6.0, 20)[:, None], np.array([[20.0]])
    >>> model = RVC(width=2.0, predictive="augmented").fit(X, X[:, 0] > 3.0)
    >>> augmented = model.fitted_.classifier.latents[0]
    >>> before, after = (latent.moments(far)[1][0, 0, 0] for latent in (augmented.latent, augmented))
    >>> bool(before < 0.01), bool(after > 1.0)
    (True, True)
    """

    SHAPES: ClassVar[dict[str, str]] = {"X": "nd", "residual": "nK", "curvature": "nKK"}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("alpha",)

    latent: LatentPredictor  # the posterior over the K latent functions
    kernel: Kernel  # of the functions added
    X: np.ndarray  # (n, d) training rows
    residual: np.ndarray  # (n, K) derivative of the log-likelihood at the mode
    curvature: np.ndarray  # (n, K, K) minus its second derivative, B
    alpha: float  # precision of the weights added

    @property
    def n_outputs(self) -> int:
        """K."""
        return self.latent.n_outputs

    def moments(self, X: np.ndarray, spread: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Mean (n, K) and, if asked, covariance (n, K, K) of the latent functions at X; each point by itself."""
        mean, covariance = self.latent.moments(X, spread)
        K, root, trained = self.n_outputs, self.latent.root, self.latent.functions(self.X)
        rows = max(16, BLOCK_NUMBERS // (len(self.X) * K))
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            added = self.kernel(self.X, X[part])  # phi_* at the training rows, (n, b)
            # weights of output a against the function added to output c: (b, k, K)
            cross = np.stack([self._inner_products(trained, added, c) for c in range(K)], axis=-1)
            A = root @ (root.T @ cross)
            S = np.einsum("nac,nb->bac", self.curvature, added**2) - cross.transpose(0, 2, 1) @ A
            S.reshape(len(S), -1)[:, :: K + 1] += self.alpha
            own = np.stack(self.latent.multiply(X[part], A), axis=1)  # (b, K, K)
            E = self.kernel.diag(X[part])[:, None, None] * np.eye(K) - own
            gain = np.linalg.solve(S, np.concatenate([E.transpose(0, 2, 1), (added.T @ self.residual)[..., None]], 2))
            mean[part] += (E @ gain[..., K:])[..., 0]
            if covariance is not None:
                covariance[part] += E @ gain[..., :K]
        return mean, covariance

    def dense_weights(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Refuse exports, as the function added has no place of its own."""
        raise NotImplementedError(f"exports cannot translate the predictive distribution {type(self).__name__}")

    def _inner_products(self, trained: list[np.ndarray], added: np.ndarray, output: int) -> np.ndarray:
        """Inner products (b, k) of the model's functions with those added (n, b) to one output, B the weight."""
        found = np.zeros((added.shape[1], len(self.latent.mean)))
        for a, Phi in enumerate(trained):
            found[:, self.latent.outputs == a] = (added * self.curvature[:, a, output, None]).T @ Phi
        return found
