"""Gamma hyperpriors over the weight precisions and the noise precision (T01 eq. (5)-(6), (35)-(36))."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class GammaPrior:
    """Gamma(alpha_i | a, b) over every weight precision and Gamma(beta | c, d) over the noise precision.

    The objective gains ``sum_i (a log alpha_i - b alpha_i) + c log beta - d beta`` (T01 eq. (36)). All zero, the
    default, is the flat prior over log alpha and log beta of the relevance vector machine.

    Parameters
    ----------
    a, b : float, default 0
        Shape and rate for the weight precisions, in the units of the basis functions as given. With ``b > 0`` no
        precision becomes infinite, so nothing is pruned exactly. ``a > 0`` with ``b = 0`` has no maximum and is
        refused.
    c, d : float, default 0
        Shape and rate for the noise precision, in the units of the target.

    Examples
    --------
    >>> GammaPrior(c=1e-4, d=1e-4).on_noise
    True
    """

    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, (int, float, np.floating, np.integer)) and math.isfinite(value) and value >= 0):
                raise ValueError(f"hyperprior {field.name} must be a finite number >= 0, got {value!r}")
        if self.a > 0 and self.b == 0:
            raise ValueError(
                "a hyperprior with a > 0 and b = 0 makes the objective unbounded (every precision runs to infinity); "
                "give b > 0 as well, or leave both at 0"
            )

    @property
    def on_weights(self) -> bool:
        """Whether the weight precisions have a prior that is not flat."""
        return self.a > 0 or self.b > 0

    @property
    def on_noise(self) -> bool:
        """Whether the noise precision has a prior that is not flat."""
        return self.c > 0 or self.d > 0

    def log_density(self, alpha: np.ndarray, beta: float, b: np.ndarray | float, d: float) -> float:
        """The prior's terms of T01 eq. (36), given the rates b and d in the units of alpha (k,) and beta.

        The solver works on scaled columns and targets, where alpha and beta have other units than the user's b and
        d: the caller passes the rates in the solver's units. Constants are left out, as in the paper.
        """
        value = 0.0
        if self.on_weights:
            value += float(np.sum(self.a * np.log(alpha) - b * alpha))
        if self.on_noise:
            value += self.c * math.log(beta) - d * beta
        return value


FLAT = GammaPrior()


def weight_log_density(w: np.ndarray, a: float, b: float) -> np.ndarray:
    """Log density of a weight with its precision integrated out over Gamma(alpha | a, b): a Student t, T01 eq. (32).

    As a and b go to 0 it goes to a multiple of 1/|w|, the prior that makes the models sparse.

    Parameters
    ----------
    w : (...) weights.
    a, b : shape and rate of the Gamma distribution, both positive.

    Examples
    --------
    >>> weight_log_density(np.array([0.0, 1.0]), 2.0, 3.0).round(4)
    array([-1.1836, -1.5689])
    """
    if not (a > 0 and b > 0):
        raise ValueError(f"a and b must be positive for a proper density, got {a!r} and {b!r}")
    constant = a * math.log(b) + math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(2.0 * math.pi)
    return constant - (a + 0.5) * np.log(b + 0.5 * np.asarray(w) ** 2)


def prior_covariance(
    Phi: np.ndarray, Phi_z: np.ndarray, alpha: np.ndarray, added: tuple[np.ndarray, np.ndarray, float] | None = None
) -> np.ndarray:
    """Covariance (n, m) of the model's functions a priori, T01 eq. (59) and RQ05 eq. (8): Phi A^-1 Phi_z'.

    Parameters
    ----------
    Phi, Phi_z : (n, k), (m, k) basis functions at two sets of points.
    alpha : (k,) weight precisions.
    added : optional (phi, phi_z, alpha_*) of one more function, (n,), (m,) and its precision: RVM*, RQ05 eq. (9).

    Examples
    --------
    >>> prior_covariance(np.ones((2, 1)), np.ones((1, 1)), np.array([4.0]))
    array([[0.25],
           [0.25]])
    """
    C = (Phi / alpha) @ Phi_z.T
    return C if added is None else C + np.outer(added[0], added[1]) / added[2]


def sample_functions(Phi: np.ndarray, alpha: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Functions (n, n_samples) drawn from the prior w ~ N(0, A^-1), at the points of Phi (n, k).

    Those of the posterior are drawn by `RelevanceVectorRegressor.sample_y`.

    Examples
    --------
    >>> sample_functions(np.ones((3, 2)), np.array([1.0, 2.0]), 5, np.random.default_rng(0)).shape
    (3, 5)
    """
    return Phi @ (rng.standard_normal((Phi.shape[1], n_samples)) / np.sqrt(alpha)[:, None])
