"""Predictive distributions as sums of basis functions: what exports write down of every predictor of a regression."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import solve_triangular

from relvec.basis import Basis, KernelBasis
from relvec.inference.error_bars import Reach
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.kernels import Gaussian


@dataclass(frozen=True, eq=False)
class LinearExpansion:
    """Mean w'phi(x) and variance max(prior + |root'phi(x)|^2 - |represented'phi(x)|^2, 0) + noise of new targets.

    A variance whose logarithm is a sum of functions is exp(log_variance'phi(x)), within limits, instead.
    Where error bars depend on the inputs, exp(h) of `varying`, a function of the inputs and the mean, multiplies them.
    """

    basis: Basis  # bound basis of the k functions phi
    # (k,), (k, j), (k, m)
    weights: np.ndarray
    root: np.ndarray
    represented: np.ndarray
    # variances
    prior: float
    noise: float
    varying: LogNoise | None = None
    log_variance: np.ndarray | None = None  # (k,)
    log_limits: tuple[float, float] = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class ReachExpansion:
    """What is added to variances away from the data: max(1 - |represented'psi(x)|^2, 0) variance (`Reach.share`)."""

    basis: Basis  # bound basis of the p functions psi
    represented: np.ndarray  # (p, p)
    variance: float

    @classmethod
    def of(cls, reach: Reach) -> ReachExpansion:
        """Write down how far functions reach."""
        inverse = solve_triangular(reach.root, np.eye(len(reach.centres)), lower=True)
        basis = KernelBasis(Gaussian(tuple(reach.widths.tolist())), reach.centres)
        return cls(basis, inverse.T / np.sqrt(reach.least), reach.variance)


@dataclass(frozen=True, eq=False)
class Expansion:
    """The distribution of new targets of one output: a mixture of normal distributions on a scale of the target."""

    parts: tuple[LinearExpansion, ...]
    shares: np.ndarray = field(default_factory=lambda: np.ones(1))  # (k,) of the parts
    scale: Scale = AS_IT_IS
    noise: LogNoise | None = None  # that depends on the inputs, beside that of the parts
    reach: ReachExpansion | None = None
    counts: bool = False  # whether targets are counts with exp of this as their rate

    def with_noise(self, variance: float, varying: LogNoise | None = None) -> Expansion:
        """Return the same with another noise in place of that of the parts."""
        return replace(self, parts=tuple(replace(part, noise=variance) for part in self.parts), noise=varying)

    @property
    def bases(self) -> list[Basis]:
        """The bases of all functions."""
        return [part.basis for part in self.parts] + ([] if self.reach is None else [self.reach.basis])
