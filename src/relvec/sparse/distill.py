"""A process imitated by the few functions that a sparse search finds in its own mean and variance: `distill`.

The mean of a process and its variance are known at every row one likes, without noise. Both are searched for in the
process's own kernel functions as the weights of sparse models, down a ladder of prices until rows that took no part
lose no more of the density than is allowed,

    KL = 1/2 (log v'/v + (v + (m - m')^2) / v' - 1)    nats a row,

of m and v the process's mean and variance of new targets on the scale of the target, m' and v' those of the functions.

The functions predict with

    mean(x) = w'phi(x),    variance(x) = exp(h(x) + min(max(u'phi(x), a), b)) + share(x) v

on the scale of the target, of new targets. h is that of the process (`relvec.gaussian_process.predictor`), a and b are
the least and the largest value at the rows that were imitated, and away from these a share of the process's variance v
is added (`relvec.inference.error_bars`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relvec.basis import Basis, Concat, centres_of, kernels_of
from relvec.gaussian_process import ProcessPredictor
from relvec.gaussian_process.rows import Rows
from relvec.inference import tails
from relvec.inference.error_bars import Reach, learn_reach
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive.expansion import Expansion, LinearExpansion, ReachExpansion
from relvec.inference.predictive.linear import BLOCK_NUMBERS
from relvec.inference.predictive.scaled import ScaledPredictor
from relvec.inference.scale import Scale
from relvec.runtime.arrays import row_slices
from relvec.solvers.gaussian.model import GaussianModel
from relvec.solvers.price import PRICES_NATS, Ladder
from relvec.sparse.held_out import make_problem

_ONE_AT_A_TIME = (
    "a distilled model predicts rows one at a time: covariances and draws of functions are those of the process that "
    "it was made from"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class DistilledPredictor(ScaledPredictor):
    """A process imitated by few functions.

    Attributes
    ----------
    basis : bound basis of the m functions phi.
    weights, log_variance : (m,) w and u.
    log_limits : (2,) a and b.
    noise : the share of the variance that is noise, at most: its variance where h is zero.
    tail : one over the degrees of freedom of new targets.
    varying : h, as a function of the columns of X and the mean; None where it is zero.
    reach, scale : see above.
    loss : nats a row that the process is ahead by, at rows that neither learned from.
    """

    SHAPES: ClassVar[dict[str, str]] = {"weights": "m", "log_variance": "m", "log_limits": "."}
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("noise", "tail")

    basis: Basis
    weights: np.ndarray
    log_variance: np.ndarray
    log_limits: np.ndarray
    noise: float
    tail: float
    varying: LogNoise | None
    reach: Reach
    scale: Scale
    loss: float

    def moments(self, X: np.ndarray, variance: bool, noise: bool) -> tuple[np.ndarray, np.ndarray | None]:
        mean, spread, added = self._on_scale(X, variance or self.scale.sign != 0)
        if spread is None or added is None:
            return mean, None
        mean, spread = self.scale.moments(mean, spread - added, added, noise)
        return mean, spread if variance else None

    def location(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        mean, spread, added = self._on_scale(X, True)
        assert spread is not None and added is not None
        return mean, np.sqrt(spread if noise else spread - added)

    def tail_and_noise(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, _, added = self._on_scale(X, True)
        assert added is not None
        spread = 0.0 if self.varying is None else self.varying.moments(np.column_stack([X, mean]))[1]
        return np.broadcast_to(tails.join(self.tail, spread), len(X)), added

    def log_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        (mean, deviation), (tail, _) = self.location(X, True), self.tail_and_noise(X)
        squares = (self.scale.forward(y) - mean) ** 2
        return tails.log_density(squares, deviation**2, tail) + self.scale.log_slope(y)

    def covariance(self, X: np.ndarray, noise: bool) -> np.ndarray:
        raise NotImplementedError(_ONE_AT_A_TIME)

    def samples(self, X: np.ndarray, n_samples: int, rng: np.random.RandomState, noise: bool) -> np.ndarray:
        raise NotImplementedError(_ONE_AT_A_TIME)

    @property
    def noise_columns(self) -> np.ndarray:
        """Columns of X that error bars depend on, the number of columns for the mean; empty where they do not."""
        return np.zeros(0, dtype=int) if self.varying is None else np.unique(self.varying.columns)

    def expand(self, n_features: int, basis: Basis | None) -> Expansion:
        own = self.basis if basis is None else basis
        none = np.zeros((own.n_atoms, 0))
        low, high = self.log_limits.tolist()
        part = LinearExpansion(own, self.weights, none, none, 0.0, 0.0, self.varying, self.log_variance, (low, high))
        return Expansion((part,), scale=self.scale, reach=ReachExpansion.of(self.reach))

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        ordered = self.log_limits.shape == (2,) and self.log_limits[0] <= self.log_limits[1]
        return self.basis.is_bound and self.basis.n_atoms == sizes["m"] and bool(ordered) and self.tail < 0.5

    def _on_scale(self, X: np.ndarray, variance: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Mean and, if asked, variance of new targets at X and the noise in it, (n,) each, on the scale."""
        found = [self._block(X[rows], variance) for rows in row_slices(len(X), self.basis.n_atoms, BLOCK_NUMBERS)]
        mean, spread, added = (None if part[0] is None else np.concatenate(part) for part in zip(*found, strict=True))
        assert mean is not None
        return mean, spread, added

    def _block(self, X: np.ndarray, variance: bool) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        Phi = self.basis(X)
        mean = Phi @ self.weights
        if not variance:
            return mean, None, None
        h = 1.0 if self.varying is None else self.varying.variance(np.column_stack([X, mean]))
        spread = h * np.exp(np.clip(Phi @ self.log_variance, *self.log_limits))
        added = np.minimum(h * self.noise, spread)
        return mean, spread + self.reach.variance * self.reach.share(X), added


_HELD = 5  # a fifth of the rows took no part
_LEAST_ROWS, _MAX_ROWS = 20, 4000
_MEAN_SHARE = 0.5  # of the loss allowed, that the mean may use
_MAX_CANDIDATES = 3000  # kernel functions: those of the first vectors
_MAX_FOUND = 500  # functions of a search
_MAX_CENTRES = 100  # of the reach of error bars


def distill(
    process: ProcessPredictor, X: np.ndarray, max_loss_nats: float = 0.02, numbers: np.ndarray | None = None
) -> DistilledPredictor:
    """Return few functions that predict as a process does.

    Parameters
    ----------
    X : (n, d) rows like those to predict, such as the training rows.
    max_loss_nats : nats a row of the density that may be lost.
    numbers : (m,) of the vectors among the training rows.

    Raises
    ------
    ValueError : where no functions that were found lose as little.

    Examples
    --------
    >>> from relvec.gaussian_process import fit_process
    >>> X = np.linspace(0.0, 10.0, 200)[:, None]
    >>> process = fit_process(X, np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(200))
    >>> small = distill(process, X)
    >>> small.basis.n_atoms < 30, small.loss <= 0.02
    (True, True)
    """
    functions = _functions_of(process, numbers)
    rows, mean, deviation = _moments_of_new_rows(process, X)
    h = 0.0 if functions.varying is None else np.log(functions.varying.variance(np.column_stack([rows, mean])))
    search = _Search(functions.basis.take(functions.candidates)(rows))
    weights, error = _search_mean(search, mean, deviation, max_loss_nats)
    logs = 2.0 * np.log(deviation) - h
    limits = np.array([logs.min(), logs.max()])
    log_variance, loss = _search_variance(search, logs, limits, error, max_loss_nats)
    if loss > max_loss_nats:
        raise ValueError(
            f"no functions were found that lose no more than max_loss_nats={max_loss_nats:g} of the process's density: "
            f"the best lose {loss:.2g} nats a row. Allow as much, or give more rows X like those to predict"
        )
    found = np.zeros((2, len(functions.weights)))
    found[:, functions.candidates] = [log_variance if weights is None else weights, log_variance]
    if weights is None:
        found[0] = functions.weights
    kept = np.flatnonzero(found.any(axis=0))
    return _predictor(process, functions, rows, kept, found[:, kept], limits, loss)


def _moments_of_new_rows(process: ProcessPredictor, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (n, d) of X, the process's means there on its scale, and the deviations it has at new rows there.

    At a vector the process is surer than at any new row. Where every training row is one, deviations are those of rows
    left out one at a time; of others, vectors are left out.
    """
    place = {row.tobytes(): i for i, row in enumerate(process.vectors + 0.0)}
    own = np.array([place.get(row.tobytes(), -1) for row in X + 0.0], dtype=int)
    exact = process.bounds.upper == process.bounds.lower
    some = np.flatnonzero((own < 0) | exact)
    some = some[:: -(-len(some) // _MAX_ROWS)] if len(some) else some
    if len(some) < _LEAST_ROWS:
        raise ValueError(
            f"X has {len(some)} rows besides vectors of the process, at which it is surer than at any new row: give at "
            f"least {_LEAST_ROWS} others, such as all training rows"
        )
    mean, deviation = process.location(X[some], True)
    known = own[some] >= 0
    deviation[known] = _deviations_apart(process)[own[some][known]]
    return X[some], mean, deviation


def _deviations_apart(process: ProcessPredictor) -> np.ndarray:
    """Deviations (m,) at the vectors of exact processes, each from the others: 1 / [(K + s I)^-1]_ii with R'R that."""
    found = np.zeros(len(process.vectors))
    for share, c in zip(process.shares, process.components, strict=True):
        found += share * c.factor(c.Z, c.mean(c.Z)) * np.maximum(1.0 / np.einsum("ij,ij->j", c.R, c.R), c.noise)
    return process.units.y_scale * np.sqrt(found)


@dataclass(frozen=True, eq=False)
class _Functions:
    """All functions of a process, the constant last, the weights (M,) of its mean, and the numbers (p,) to search."""

    basis: Basis
    weights: np.ndarray
    candidates: np.ndarray
    varying: LogNoise | None


def _functions_of(process: ProcessPredictor, numbers: np.ndarray | None) -> _Functions:
    """Return the functions of all components; the columns of the linear part and the constant once."""
    d, m = process.vectors.shape[1], len(process.vectors)
    parts = process.expand_components(d, numbers, variance=False)
    n_kernels = [m * len(component.structure.parts) for component in process.components]
    ends = [part.basis.n_atoms - n for part, n in zip(parts, n_kernels, strict=True)]
    longest = int(np.argmax(ends))  # some components may have no linear part
    bases, weights, last = [], [], np.zeros(ends[longest])
    for share, part, n in zip(process.shares, parts, n_kernels, strict=True):
        own = share * part.weights
        bases.append(part.basis.take(np.arange(n)))
        weights.append(own[:n])
        last[: len(own) - n - 1] += own[n:-1]
        last[-1] += own[-1]
    bases.append(parts[longest].basis.take(np.arange(n_kernels[longest], parts[longest].basis.n_atoms)))
    first = max(_MAX_CANDIDATES * m // max(sum(n_kernels), 1), 1)  # vectors
    total = sum(n_kernels)
    kernels = np.flatnonzero(np.arange(total) % m < first)
    candidates = np.concatenate([kernels, np.arange(total, total + len(last))])
    return _Functions(
        Concat(tuple(bases), n_features=d), np.concatenate([*weights, last]), candidates, parts[0].varying
    )


class _Search:
    """Searches among functions with values Phi (n, M), the last of ones; a fifth of the rows is held out."""

    def __init__(self, Phi: np.ndarray):
        self.Phi, self.held = Phi, np.arange(len(Phi)) % _HELD == 0

    def fewest(
        self, target: np.ndarray, weights: np.ndarray, noise_variance: float,
        lost: Callable[[np.ndarray], np.ndarray], allowed: float,
    ) -> tuple[np.ndarray, float]:  # fmt: skip
        """Return weights (M,), most of them zero, for targets (n,), and what they lose in the mean at rows held out.

        lost : (n,) nats by function values (n,). The ladder of prices ends where no more than is allowed are lost.
        """
        seen = ~self.held
        rows = Rows(np.zeros((seen.sum(), 0)), target[seen], weights[seen], np.zeros(seen.sum()))
        problem, unit = make_problem(self.Phi[seen], rows, noise_variance)
        ladder = Ladder(problem, min(self.Phi.shape[1], _MAX_FOUND, int(seen.sum()) // 3))

        def judge(model: GaussianModel) -> tuple[np.ndarray, float]:
            found = np.zeros(self.Phi.shape[1])
            found[model.active] = model.full_posterior.mean * unit / problem.design.scale[model.active]
            values = self.Phi[:, model.active] @ found[model.active]
            return found, float(np.mean(lost(values)[self.held]))

        best = judge(ladder.model)
        for price in PRICES_NATS:
            if best[1] <= allowed or ladder.is_full:
                break
            best = min(best, judge(ladder.descend(price)), key=lambda each: each[1])
        fewer = judge(ladder.ascend(price)) if best[1] <= allowed and np.count_nonzero(best[0]) > 1 else best
        return fewer if fewer[1] <= allowed else best


def _search_mean(
    search: _Search, mean: np.ndarray, deviation: np.ndarray, max_loss_nats: float
) -> tuple[np.ndarray | None, np.ndarray]:
    """Weights (M,) of few functions for the mean, and their errors (n,) in standard deviations.

    None and zeros where no few functions lose as little: those of the process are the mean then.
    """
    precision, allowed = deviation**-2.0, _MEAN_SHARE * max_loss_nats
    unit = float(precision.mean())
    found, loss = search.fewest(
        mean, precision / unit, 2.0 * allowed / unit, lambda values: 0.5 * precision * (values - mean) ** 2, allowed
    )
    if loss > allowed:
        return None, np.zeros(len(mean))
    return found, (search.Phi @ found - mean) / deviation


def _search_variance(
    search: _Search, logs: np.ndarray, limits: np.ndarray, error: np.ndarray, max_loss_nats: float
) -> tuple[np.ndarray, float]:
    """Weights (M,) for logarithms of variances (n,), and what is lost with these errors (n,) of the mean."""

    def lost(values: np.ndarray) -> np.ndarray:
        gap = np.clip(values, *limits) - logs
        return 0.5 * (gap + (1.0 + error**2) * np.exp(-gap) - 1.0)

    left = max_loss_nats - 0.5 * float(np.mean(error[search.held] ** 2))
    return search.fewest(logs, np.ones(len(logs)), 4.0 * left, lost, max_loss_nats)  # a gap g loses g^2 / 4


def _predictor(
    process: ProcessPredictor, functions: _Functions, rows: np.ndarray, kept: np.ndarray, found: np.ndarray,
    limits: np.ndarray, loss: float,
) -> DistilledPredictor:  # fmt: skip
    basis = functions.basis.take(kept)
    widths = [1.0 / np.sqrt(k.inverse_square_widths(rows.shape[1])) for k in kernels_of(functions.basis)]
    parts, unit = process.components, process.units.y_scale**2
    prior = sum(s * c.spread * c.structure.prior_variance(c.theta, c.Z[:1])[0] for s, c in zip(process.shares, parts))
    centres = np.unique(centres_of(basis), axis=0)[:_MAX_CENTRES] if len(kept) else process.vectors[:1]
    return DistilledPredictor(
        basis=basis, weights=found[0], log_variance=found[1], log_limits=limits, noise=process.noise_variance,
        tail=parts[0].tail, varying=functions.varying,
        reach=learn_reach(centres, np.max(widths, axis=0), rows, np.ones(len(rows)), float(prior * unit)),
        scale=process.scale, loss=loss,
    )  # fmt: skip
