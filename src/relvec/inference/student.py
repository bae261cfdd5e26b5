"""Student-t noise as a mixture of normal noise: row i has the variance sigma^2 / lambda_i with a random lambda_i.

With lambda_i ~ Gamma(nu/2, nu/2) the noise is Student-t with nu degrees of freedom. The objective is the variational
bound with q(w) q(lambda) in place of the posterior. Given e_i = E (y_i - f_i)^2 under q(w), the best q(lambda_i) is
Gamma((nu + 1)/2, (nu + e_i / sigma^2)/2), and with it the bound is

    sum_i log t_nu(sqrt(e_i); sigma) - KL(q(w) || p(w)),                                                  (1)

the Student-t density at the expected squares, from which nu and sigma are learned (`learn_tails`). Given q(lambda),
q(w) is the posterior of a Gaussian model whose rows have the weights E lambda_i, and the bound is its evidence plus

    sum_i 1/2 E log lambda_i - KL(q(lambda_i) || p(lambda_i))                                             (2)

(`bound_of_scales`). Where sigma is at its maximum the mean of E lambda_i is one, so that N stays the number of rows.
Sample weights multiply every term of their row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, gammaln

from relvec.inference.heteroscedastic import mean_square

MIN_DEGREES = 2.1  # of freedom: the noise has a variance, 21 sigma^2
MAX_DEGREES = 200.0  # from here on the noise is normal to a thousandth of a nat
_START_DEGREES = 4.0
OUTLIER_WEIGHT = 0.25  # expected lambda below which a row is called an outlier: beyond sqrt(3 nu + 4) sigma


@dataclass(frozen=True)
class Tails:
    """Degrees of freedom nu and squared scale sigma^2 of Student-t noise."""

    degrees: float
    scale2: float

    @property
    def variance(self) -> float:
        """Variance of the noise."""
        return self.scale2 * self.degrees / (self.degrees - 2.0)

    def expected_scales(self, squares: np.ndarray) -> np.ndarray:
        """E lambda_i (n,) for expected squared residuals (n,)."""
        return (self.degrees + 1.0) / (self.degrees + squares / self.scale2)

    def log_density(self, squares: np.ndarray) -> np.ndarray:
        """Log t_nu(sqrt(e); sigma) (n,) at squared residuals e (n,).

        >>> from scipy.stats import t
        >>> bool(np.isclose(Tails(5.0, 4.0).log_density(np.array([9.0]))[0], t.logpdf(3.0, 5.0, scale=2.0)))
        True
        """
        nu = self.degrees
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu * self.scale2)
        return constant - 0.5 * (nu + 1.0) * np.log1p(squares / (nu * self.scale2))


def learn_tails(squares: np.ndarray, weights: np.ndarray) -> Tails:
    """Return the tails of most density (1) for expected squared residuals (n,) with weights (n,)."""
    unit = mean_square(squares, weights)
    e = squares / unit

    def objective(p: np.ndarray) -> tuple[float, np.ndarray]:
        nu, s2 = np.exp(p)
        d = e / s2
        value = weights @ Tails(nu, s2).log_density(e)
        scale = 0.5 * (nu + 1.0) * d / (nu + d) - 0.5  # with respect to log sigma^2
        tail = 0.5 * (digamma(0.5 * (nu + 1.0)) - digamma(0.5 * nu) - 1.0 / nu - np.log1p(d / nu))
        tail = nu * (tail + 0.5 * (nu + 1.0) * d / (nu * (nu + d)))  # with respect to log nu
        return -value, -np.array([weights @ tail, weights @ scale])

    start = np.log([_START_DEGREES, max(float(np.median(e)), 1e-12) / 0.55])  # 0.55: the median square of t_4
    bounds = [(np.log(MIN_DEGREES), np.log(MAX_DEGREES)), (-60.0, 10.0)]
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    nu, s2 = np.exp(found.x)
    return Tails(float(nu), float(s2) * unit)


def bound_of_scales(tails: Tails, squares: np.ndarray, weights: np.ndarray) -> float:
    """Return the term (2) of the scales lambda in the bound, for q(lambda) by expected squared residuals (n,)."""
    nu = tails.degrees
    a0, a, b = 0.5 * nu, 0.5 * (nu + 1.0), 0.5 * (nu + squares / tails.scale2)
    mean_log = digamma(a) - np.log(b)
    divergence = (a - a0) * digamma(a) - gammaln(a) + gammaln(a0) + a0 * (np.log(b) - np.log(a0)) + a * (a0 / b - 1.0)
    return float(weights @ (0.5 * mean_log - divergence))
