"""Shapley values: how much each input moves a prediction away from the mean over background rows.

The value of a set of inputs is the mean of f over rows that have these inputs of x and the others of a background row
(the interventional game). f is a sum of functions. Of one that is a product over the inputs, prod_j a_j for x and
prod_j c_j for the background row, input i has

    (a_i - c_i) int_0^1 prod_{j != i} (t a_j + (1 - t) c_j) dt,

a polynomial in t, which Gauss-Legendre nodes integrate without error: Gaussian kernels and monomials are exact at the
cost of a few evaluations, however many inputs there are. Functions of another kind are exact by all sets of up to
`MAX_ENUMERATED_INPUTS` inputs, and beyond that estimated from random orders of the inputs, or by shapiq from random
sets of them, with standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import factorial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from relvec.basis import Basis, Concat, KernelBasis, Monomials
from relvec.estimators.base import BaseRelevanceVector
from relvec.inference.predictive import AugmentedPredictor
from relvec.inference.process import ProcessPredictor, expand_process
from relvec.kernels import Gaussian, Kernel, Product, Sum
from relvec.kernels import Linear as LinearKernel
from relvec.kernels.dot_product import products_of_others

MAX_BACKGROUND_ROWS = 100  # of relevance vectors, where no background is given: values change little with more
MAX_ENUMERATED_INPUTS = 10  # all sets of more inputs are too many
MAX_BLOCK_NUMBERS = 2_000_000  # factors held at once
SHAPIQ_RUNS = 8  # independent estimates, whose spread is the error
SHAPIQ_SETS_PER_INPUT = 10  # at least, in a run: of 2 the regression is singular
Part = tuple[Basis, np.ndarray]  # a dictionary without parts, and the weights (R, m) of its functions


@dataclass(frozen=True, eq=False)
class ShapleyValues:
    """What `shapley_values` found, for n rows of d inputs.

    Attributes
    ----------
    values : (n, d), or (n, R, d) for R outputs or classes. They sum to the prediction less the baseline.
    baseline : the mean prediction over the background rows, a float or (R,).
    std_error : standard errors in the shape of values; 0 where they are exact.
    """

    values: np.ndarray
    baseline: Any
    std_error: np.ndarray

    @property
    def mean_absolute(self) -> np.ndarray:
        """Mean size of the values of each input, over rows: (d,) or (R, d)."""
        return np.abs(self.values).mean(axis=0)


def shapley_values(
    model: Any, X: Any, background: Any = None, *, n_permutations: int = 200, random_state: int = 0,
    approximation: str = "orders",
) -> ShapleyValues:  # fmt: skip
    """Shapley values of the predictions of a fitted model.

    Exact for Gaussian kernels, linear parts and monomials, and for all kernels of up to ten inputs. They are those of
    `predict`; for classes of the log-odds (the latent functions, before the variance moderates them), for counts of the
    logarithm of the rate, and where a process has a logarithmic scale of the target on that scale.

    Parameters
    ----------
    model : fitted RelevanceVectorRegressor or RelevanceVectorClassifier
    X : array-like (n, n_features)
        Rows to explain.
    background : array-like (b, n_features), optional
        Rows that stand for inputs that are not known; by default the relevance vectors, up to 100 of them. A linear
        model has none: give its training rows, or their mean as one row.
    n_permutations : int, default 200
        Random orders of the inputs for kernels that are not exact, rounded up to a multiple of the background rows.
    random_state : int, default 0
        Of these orders.
    approximation : {"orders", "shapiq"}, default "orders"
        How kernels that are not exact are estimated: from random orders, or by KernelSHAP of the package shapiq
        (a weighted regression over random sets of inputs) with about as many evaluations, in eight independent
        runs whose spread gives the standard errors.

    Returns
    -------
    shapley : ShapleyValues

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR, shapley_values
    >>> X = np.random.default_rng(0).uniform(-2, 2, (60, 2))
    >>> model = RVR(width=2.0).fit(X, np.sin(X[:, 0]) + 0.1 * X[:, 1])
    >>> found = shapley_values(model, X[:3])
    >>> bool(np.allclose(found.values.sum(axis=1) + found.baseline, model.predict(X[:3]), atol=1e-9))
    True
    """
    if not isinstance(model, BaseRelevanceVector):
        raise TypeError(f"shapley_values takes a fitted estimator of relvec, got {type(model).__name__}")
    if approximation not in ESTIMATES:
        raise ValueError(f"approximation must be 'orders' or 'shapiq', got {approximation!r}")
    check_is_fitted(model)
    estimate = partial(ESTIMATES[approximation], n_permutations=n_permutations, rng=np.random.default_rng(random_state))
    rows = model._check_rows(X)
    behind = _background(model, background)
    parts = _parts(model)
    shape = len(rows), len(parts[0][1]), rows.shape[1]
    values, variance, baseline = np.zeros(shape), np.zeros(shape), np.zeros(shape[1])
    for part, weights in parts:
        found, spread = _of_part(part, weights, rows, behind, estimate)
        values += found
        variance += spread
        baseline += (part(behind) @ weights.T).mean(axis=0)
    error = np.sqrt(variance)
    if shape[1] == 1 and model.fitted_.single:
        return ShapleyValues(values[:, 0], float(baseline[0]), error[:, 0])
    return ShapleyValues(values, baseline, error)


def _background(model: BaseRelevanceVector, background: Any) -> np.ndarray:
    if background is not None:
        return model._check_rows(background)
    vectors = getattr(model, "relevance_vectors_", np.zeros((0, 0)))
    vectors = vectors if len(vectors) else model.centres_
    if not len(vectors):
        raise ValueError("the model has no relevance vectors to take as background: give background=, such as X_train")
    few = np.linspace(0, len(vectors) - 1, min(len(vectors), MAX_BACKGROUND_ROWS)).round().astype(int)
    return vectors[few]


def _parts(model: BaseRelevanceVector) -> list[Part]:
    """The functions whose weighted sums are predicted, part by part, with weights (R, m)."""
    fitted = model.fitted_
    if any(isinstance(predictor, AugmentedPredictor) for predictor in fitted.predictors):
        raise ValueError("predictive='augmented' adds a function at every row that is predicted: explain the model of "
                         "predictive='rvm'")  # fmt: skip
    if any(isinstance(predictor, ProcessPredictor) for predictor in fitted.predictors):
        if len(fitted.predictors) > 1:
            raise ValueError("explain the outputs of predictive='process' one by one: fit a model to each")
        expanded = expand_process(fitted.predictors[0])
        return list(_leaves(expanded.basis, expanded.weights[None, :]))
    return list(_leaves(fitted.basis, np.atleast_2d(fitted.weights)))


def _leaves(basis: Basis, weights: np.ndarray) -> Iterator[Part]:
    """Parts of one kind each; a sum of kernels is that of its parts."""
    if isinstance(basis, Concat):
        for part, columns in zip(basis.parts, basis.part_columns(), strict=True):
            yield from _leaves(part, weights[:, columns])
    elif isinstance(basis, KernelBasis) and isinstance(basis.kernel, Sum):
        for kernel in basis.kernel.parts:
            yield from _leaves(replace(basis, kernel=kernel), weights)
    else:
        yield basis, weights


def _of_part(
    part: Basis, weights: np.ndarray, X: np.ndarray, behind: np.ndarray, estimate: Callable[..., Any]
) -> tuple[np.ndarray, np.ndarray | float]:
    """Values (n, R, d) of one part and the squares of their standard errors."""
    slopes = _slopes(part, weights, X.shape[1])
    if slopes is not None:
        return (X - behind.mean(axis=0))[:, None, :] * slopes, 0.0
    factors = _factors(part)
    if factors is not None:
        return _of_products(factors, weights, X, behind), 0.0

    def f(rows: np.ndarray) -> np.ndarray:
        return part(rows) @ weights.T

    if X.shape[1] <= MAX_ENUMERATED_INPUTS:
        return np.stack([_by_sets(f, x, behind) for x in X]), 0.0
    found = [estimate(f, x, behind) for x in X]
    return np.stack([values for values, _ in found]), np.stack([variance for _, variance in found])


def _slopes(part: Basis, weights: np.ndarray, d: int) -> np.ndarray | None:
    """Slopes (R, d) of a part that is linear in the inputs; None for others."""
    if isinstance(part, KernelBasis) and isinstance(part.kernel, LinearKernel):
        return weights @ part.bound_centres()
    if not isinstance(part, Monomials) or any(len(term) > 1 for term in part.terms):
        return None
    slopes = np.zeros((len(weights), d))
    for m, term in enumerate(part.terms):
        slopes[:, list(term)] += weights[:, [m]]
    return slopes


def _factors(part: Basis) -> Callable[[np.ndarray], np.ndarray] | None:
    """For functions that are products over the inputs: their factors (n, m, d) at rows X (n, d); None for others."""
    if isinstance(part, Monomials):
        powers = np.array([[term.count(j) for j in range(part.n_features or 0)] for term in part.terms])
        return lambda X: X[:, None, :] ** powers
    if isinstance(part, KernelBasis) and _is_gaussian(part.kernel):
        Z = part.bound_centres()
        eta = part.kernel.inverse_square_widths(Z.shape[1])  # of a product of Gaussians their sum
        return lambda X: np.exp(-eta * (X[:, None, :] - Z) ** 2)  # T01 eq. (31)
    return None


def _is_gaussian(kernel: Kernel) -> bool:
    return isinstance(kernel, Gaussian) or (isinstance(kernel, Product) and all(map(_is_gaussian, kernel.parts)))


def _of_products(
    factors: Callable[[np.ndarray], np.ndarray], weights: np.ndarray, X: np.ndarray, behind: np.ndarray
) -> np.ndarray:
    """Values (n, R, d) of weighted sums of products over the inputs."""
    d = X.shape[1]
    nodes, shares = np.polynomial.legendre.leggauss((d + 1) // 2)  # exact for polynomials of degree d - 1
    nodes, shares = 0.5 * (nodes + 1.0), 0.5 * shares
    C = factors(behind)
    block = max(1, MAX_BLOCK_NUMBERS // max(C[0].size, 1))
    values = np.zeros((len(X), len(weights), d))
    for i, x in enumerate(X):
        a = factors(x[None, :])[0]
        for start in range(0, len(C), block):
            c = C[start : start + block]
            others = np.zeros(c.shape)
            for t, share in zip(nodes, shares, strict=True):
                others += share * products_of_others(t * a + (1.0 - t) * c)
            values[i] += np.einsum("rm,bmj->rj", weights, (a - c) * others)
    return values / len(behind)


def _by_sets(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Values (R, d) of one row, from the mean of f over the background for every set of inputs."""
    d, sets = len(x), np.arange(2 ** len(x))
    inside = (sets[:, None] >> np.arange(d)) & 1 == 1
    mean = np.stack([f(np.where(known, x, behind)).mean(axis=0) for known in inside])
    size = inside.sum(axis=1)
    values = np.zeros((mean.shape[1], d))
    for j in range(d):
        without = sets[~inside[:, j]]
        share = np.array([factorial(k) * factorial(d - k - 1) / factorial(d) for k in size[without]])
        values[:, j] = share @ (mean[without | (1 << j)] - mean[without])
    return values


def _by_orders(
    f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, behind: np.ndarray, n_permutations: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Estimates (R, d) of one row and their variances, from random orders and their reverses, over each background row.

    Every background row has as many orders, so that the values sum to f(x) less its mean over the background.
    """
    d, rounds = len(x), max(1, -(-n_permutations // (2 * len(behind))))
    pairs = []
    for b in np.repeat(np.arange(len(behind)), rounds):
        order = rng.permutation(d)
        pair: Any = 0.0
        for way in (order, order[::-1]):
            rows = np.repeat(behind[b][None, :], d + 1, axis=0)
            for step, j in enumerate(way):
                rows[step + 1 :, j] = x[j]
            moved = np.zeros((d, f(rows[:1]).shape[1]))
            moved[way] = np.diff(f(rows), axis=0)
            pair = pair + 0.5 * moved.T
        pairs.append(pair)
    drawn = np.stack(pairs)
    # the background rows are not drawn: where each has several orders, only those differ by chance
    groups = drawn.reshape(-1, rounds if rounds > 1 else len(drawn), *drawn.shape[1:])
    if groups.shape[1] == 1:
        return drawn.mean(axis=0), np.zeros(drawn.shape[1:])
    return drawn.mean(axis=0), groups.var(axis=1, ddof=1).mean(axis=0) / len(drawn)


def _by_shapiq(
    f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, behind: np.ndarray, n_permutations: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Estimates (R, d) of one row and their variances, from independent runs of shapiq's KernelSHAP."""
    try:
        from shapiq.approximator import KernelSHAP
    except ImportError as error:
        raise ImportError("approximation='shapiq' needs the package shapiq: pip install shapiq") from error
    d, R = len(x), f(x[None, :]).shape[1]
    budget = max(n_permutations * (d + 1) // len(behind) // SHAPIQ_RUNS, SHAPIQ_SETS_PER_INPUT * d)
    drawn = np.empty((SHAPIQ_RUNS, R, d))
    for own in drawn:
        seed = int(rng.integers(2**31))
        for r in range(R):

            def play(sets: np.ndarray, r: int = r) -> np.ndarray:
                rows = np.where(sets[:, None, :], x, behind)
                return f(rows.reshape(-1, d))[:, r].reshape(len(sets), -1).mean(axis=1)

            found = KernelSHAP(d, random_state=seed, pairing_trick=True).approximate(budget, play)
            own[r] = found.get_n_order_values(1)
    return drawn.mean(axis=0), drawn.var(axis=0, ddof=1) / SHAPIQ_RUNS


ESTIMATES: dict[str, Callable[..., Any]] = {"orders": _by_orders, "shapiq": _by_shapiq}
