"""Gamma hyperpriors over the weight precisions and the noise precision (T01 eq. (5)-(6), (35)-(36)).

The prior over sets of functions belongs to the search that uses it, `relvec.solvers.stepwise`.
"""

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
    def on_noise(self) -> bool:
        """Whether the noise precision has a prior that is not flat."""
        return self.c > 0 or self.d > 0

    def log_density(self, alpha: np.ndarray, beta: float, b: np.ndarray | float, d: float) -> float:
        """Return the prior's terms of T01 eq. (36), given the rates b and d in the units of alpha (k,) and beta.

        The solver works on scaled columns and targets, where alpha and beta have other units than the user's b and
        d: the caller passes the rates in the solver's units. Constants are left out, as in the paper.

        >>> GammaPrior(c=2.0, d=1.0).log_density(np.ones(3), beta=1.0, b=0.0, d=1.0)
        -1.0
        """
        value = 0.0
        if self.b > 0:  # and so where a > 0
            if np.isinf(alpha).any():
                return -math.inf
            value += float(np.sum(self.a * np.log(alpha) - b * alpha))
        if self.on_noise:
            value += self.c * math.log(beta) - d * beta
        return value


FLAT = GammaPrior()
