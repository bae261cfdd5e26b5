"""Noise whose variance depends on the inputs: its logarithm is a sparse sum of functions of single columns.

    y_i = f(x_i) + noise of variance exp(g(x_i)),    g(x) = b + sum_j u_j psi_j(x),    u_j ~ N(0, 1 / alpha_j)

The columns are the inputs and the predicted mean, in standard deviations, cut off at three; each has a straight line
and four bumps. The objective is the variational bound with q(w) q(u), q(u) = N(mu, S). Given e_i = E (y_i - f_i)^2
under q(w) its part with u is

    sum_i -1/2 (b + psi_i'mu) - 1/2 e_i exp(-b - psi_i'mu + psi_i'S psi_i / 2) - KL(q(u) || p(u)),           (1)

which is concave in b and mu; S^-1 = A + Psi' C Psi / 2 with C = diag(e_i exp(...)) at its maximum, and the precisions
are alpha_j = 1 / (mu_j^2 + S_jj) there. Functions whose precision diverges are left out. Given q(u), q(w) is the
posterior of a Gaussian model whose rows have the weights E exp(-psi_i'u). Sample weights multiply the terms of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relvec.inference.linalg import factor_ridge, inverse_triangular
from relvec.runtime.record import Record, is_index

CUT_OFF = 3.0  # standard deviations beyond which a column has no further effect
BUMPS = (-1.5, -0.5, 0.5, 1.5)  # where bumps sit, in standard deviations
BUMP_WIDTH = 0.75
MAX_COLUMNS = 64  # of more, those that tell most are looked at: the work grows with the third power
_PER_COLUMN = 1 + len(BUMPS)
_LEAST_OF_LOGS = 1e-3  # added to squares of mean one, so that their logarithms say little of squares near zero
_STRAIGHT = np.inf  # the place of a straight line among the bumps
_MAX_ALPHA = 1e3  # precision from which on a function is left out: it moves the noise by less than 3 %
_MIN_ALPHA = 1e-4  # residuals of zero would otherwise call for a function without bound
_ROUNDS, _NEWTON_STEPS = 100, 20
_SETTLED_NATS = 1e-3
_MAX_LOG_VARIANCE = 700.0
_MAX_EXPONENT = 600.0  # of what is multiplied by weights
LEAST_SQUARE = 1e-280  # mean of squared residuals: a smaller one counts as this, and can be divided by


@dataclass(frozen=True, eq=False)
class LogNoise(Record):
    """The logarithm of the noise variance as a function of columns Z (n, p): the inputs and the predicted mean.

    Attributes
    ----------
    centre, scale : (p,) means and standard deviations of the columns over the training rows.
    columns, places : (k,) the column of each function kept, and where its bump sits; inf for a straight line.
    level : b, the logarithm of the variance where all functions are zero.
    mean, covariance : (k,), (k, k) posterior over the weights of the functions.
    least : the smallest expected variance; 0.0 for none.
    """

    SHAPES: ClassVar[dict[str, str]] = {
        "centre": "p",
        "scale": "p",
        "columns": "k",
        "places": "k",
        "mean": "k",
        "covariance": "kk",
    }
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("least",)
    MAY_BE_INFINITE: ClassVar[tuple[str, ...]] = ("places",)

    centre: np.ndarray
    scale: np.ndarray
    columns: np.ndarray
    places: np.ndarray
    level: float
    mean: np.ndarray
    covariance: np.ndarray
    least: float = 0.0

    def features(self, Z: np.ndarray) -> np.ndarray:
        """Return the functions (n, k) at columns Z (n, p)."""
        t = np.clip((Z[:, self.columns] - self.centre[self.columns]) / self.scale[self.columns], -CUT_OFF, CUT_OFF)
        straight = np.isinf(self.places)
        return np.where(straight, t, np.exp(-0.5 * ((t - np.where(straight, 0.0, self.places)) / BUMP_WIDTH) ** 2))

    def moments(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (n,) of psi'u, the logarithm of the variance above its level."""
        Psi = self.features(Z)
        return Psi @ self.mean, _quadratic(Psi, self.covariance)

    def variance(self, Z: np.ndarray) -> np.ndarray:
        """Return the expected noise variance (n,) at columns Z."""
        mean, spread = self.moments(Z)
        logs = np.clip(self.level + mean + 0.5 * spread, -_MAX_LOG_VARIANCE, _MAX_LOG_VARIANCE)
        return np.maximum(np.exp(logs), self.least)

    def weights(self, Z: np.ndarray) -> np.ndarray:
        """E exp(-psi'u) (n,): how much rows count."""
        mean, spread = self.moments(Z)
        return _exp(-mean + 0.5 * spread)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        numbers_only = not np.isnan(self.places).any()
        return numbers_only and is_index(self.columns, sizes["p"]) and bool((self.scale > 0.0).all())


def mean_square(squares: np.ndarray, weights: np.ndarray) -> float:
    """Mean of squared residuals (n,) under weights (n,), at least `LEAST_SQUARE`."""
    return max(float(weights / weights.sum() @ squares), LEAST_SQUARE)


def constant_noise(Z: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> LogNoise:
    """Return the noise of one variance that fits expected squared residuals (n,) best, with no function yet."""
    share = weights / weights.sum()
    centre = share @ Z
    largest = np.abs(Z - centre).max(axis=0, initial=0.0)
    unit = np.where(largest > 0.0, largest, 1.0)  # squares of columns in other units may overflow
    scale = unit * np.sqrt(share @ ((Z - centre) / unit) ** 2)
    none = np.zeros(0)
    level = float(np.log(mean_square(squares, weights)))
    return LogNoise(
        centre, np.where(scale > 0.0, scale, 1.0), np.zeros(0, dtype=np.intp), none, level, none, np.zeros((0, 0))
    )


def learn_log_noise(Z: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> tuple[LogNoise, float]:
    """Learn the noise of most bound (1) for expected squared residuals (n,) at columns Z (n, p); also its part of it.

    The second value is sum_i -1/2 psi_i'mu - KL, the term that the functions add to the evidence of the model
    with weighted rows, but for the mean of the weights.
    """
    start = constant_noise(Z, squares, weights)
    squares = squares / mean_square(squares, weights)
    noise = _all_functions(start, np.flatnonzero(np.ptp(Z, axis=0) > 0.0))
    if len(noise.columns) > _PER_COLUMN * MAX_COLUMNS:
        noise = _all_functions(start, _most_telling(noise, Z, squares, weights))
    k = len(noise.columns)
    Psi, alpha, b, last = noise.features(Z), np.full(k, 10.0), 0.0, -np.inf
    mu, S = np.zeros(k), np.eye(k) / 10.0
    for _ in range(_ROUNDS):
        b, mu, S = _climb(Psi, squares, weights, alpha, b, mu, S)
        value = _bound(Psi, squares, weights, alpha, b, mu, S)
        gamma = 1.0 - alpha * S.diagonal()
        mackay, em = gamma / np.maximum(mu**2, 1e-12), 1.0 / (mu**2 + S.diagonal())  # T01 eq. (16) and (17)
        alpha = np.maximum(
            np.where(gamma > 0.0, mackay, em), _MIN_ALPHA
        )  # an S of a step cut short may exceed the prior
        kept = alpha < _MAX_ALPHA
        if not kept.all():
            noise = replace(noise, columns=noise.columns[kept], places=noise.places[kept])
            Psi, alpha, mu, S = Psi[:, kept], alpha[kept], mu[kept], S[np.ix_(kept, kept)]
        elif abs(value - last) < _SETTLED_NATS:
            break
        last = value
    found = replace(noise, level=start.level + float(b), mean=mu, covariance=S)
    return found, float(-0.5 * weights @ (Psi @ mu)) - _divergence(alpha, mu, S)


def _all_functions(noise: LogNoise, columns: np.ndarray) -> LogNoise:
    """Return the noise with every function of some columns."""
    places = np.tile(np.array([_STRAIGHT, *BUMPS]), len(columns))
    return replace(noise, columns=np.repeat(columns, _PER_COLUMN).astype(np.intp), places=places)


def _most_telling(noise: LogNoise, Z: np.ndarray, squares: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Find the columns, at most `MAX_COLUMNS`, of which a function goes most with the log of squares of mean one."""
    share, logs = weights / weights.sum(), np.log(squares + _LEAST_OF_LOGS)
    Psi = noise.features(Z)
    Psi -= share @ Psi
    along = np.abs((share * (logs - share @ logs)) @ Psi) / np.sqrt(np.maximum(share @ Psi**2, np.finfo(float).tiny))
    best = along.reshape(-1, _PER_COLUMN).max(axis=1)
    return np.sort(noise.columns[::_PER_COLUMN][np.argsort(-best, kind="stable")[:MAX_COLUMNS]])


def held_out_logs(
    Z: np.ndarray, squares: np.ndarray, weights: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Log variances (n,) of varying and of constant noise, learned without the rows of the same fold (n,).

    A fold with all of the weight says nothing about other rows: both are the logarithm of the mean square there.
    """
    varying = np.full(len(Z), np.log(mean_square(squares, weights)))
    plain = varying.copy()
    for i in np.unique(fold):
        own = fold == i
        if not weights[~own].any():
            continue
        rest = Z[~own], squares[~own], weights[~own]
        varying[own], plain[own] = np.log(learn_log_noise(*rest)[0].variance(Z[own])), constant_noise(*rest).level
    return varying, plain


def density_gains(varying: np.ndarray, plain: np.ndarray | float, squares: np.ndarray) -> np.ndarray:
    """Nats (n,) by which squared residuals have more density under the first log variances than under the second."""
    with np.errstate(divide="ignore"):
        logs = np.log(squares)
    return 0.5 * (plain + _exp(logs - plain) - varying - _exp(logs - varying))


def _climb(
    Psi: np.ndarray, squares: np.ndarray, weights: np.ndarray, alpha: np.ndarray, b: float, mu: np.ndarray,
    S: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray]:  # fmt: skip
    """Find the level b and the posterior (mu, S) of most bound at fixed precisions, by Newton steps cut short."""
    value = _bound(Psi, squares, weights, alpha, b, mu, S)
    for _ in range(_NEWTON_STEPS):
        spread = 0.5 * _quadratic(Psi, S)
        rate = squares * _exp(spread - Psi @ mu)
        b = float(np.log(mean_square(rate, weights)))  # its maximum
        c = weights * rate * np.exp(-b)
        root = (
            inverse_triangular(factor_ridge(np.sqrt(0.5 * c)[:, None] * Psi / np.sqrt(alpha))) / np.sqrt(alpha)[:, None]
        )
        new = root @ root.T  # (A + Psi' C Psi / 2)^-1
        step = new @ (0.5 * Psi.T @ (c - weights) - alpha * mu)
        for _ in range(12):
            tried = _bound(Psi, squares, weights, alpha, b, mu + step, new)
            if tried >= value - 1e-9:
                break
            step *= 0.5
            new = 0.5 * (new + S)
        else:
            return b, mu, S
        mu, S, gained, value = mu + step, new, tried - value, tried
        if gained < _SETTLED_NATS:
            break
    return b, mu, S


def _bound(
    Psi: np.ndarray, squares: np.ndarray, weights: np.ndarray, alpha: np.ndarray, b: float, mu: np.ndarray,
    S: np.ndarray,
) -> float:  # fmt: skip
    """Return the part (1) of the bound."""
    mean, spread = Psi @ mu, _quadratic(Psi, S)
    rows = -0.5 * (b + mean) - 0.5 * squares * _exp(-b - mean + 0.5 * spread)
    return float(weights @ rows) - _divergence(alpha, mu, S)


def _exp(logs: np.ndarray) -> np.ndarray:
    """Numbers (n,) of these logarithms, cut off where their products with weights would overflow."""
    return np.exp(np.minimum(logs, _MAX_EXPONENT))


def _quadratic(Psi: np.ndarray, S: np.ndarray) -> np.ndarray:
    """psi_i'S psi_i (n,)."""
    return np.einsum("ij,ij->i", Psi @ S, Psi)


def _divergence(alpha: np.ndarray, mu: np.ndarray, S: np.ndarray) -> float:
    """KL(N(mu, S) || N(0, diag(1 / alpha)))."""
    log_det = np.linalg.slogdet(S)[1] if len(S) else 0.0
    return float(0.5 * (alpha @ (S.diagonal() + mu**2) - len(mu) - np.log(alpha).sum() - log_det))
