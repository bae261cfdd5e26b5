"""The dictionary of an estimator: its candidates, their widths learned and centres moved, and what is told of them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.utils import check_random_state

from relvec.basis import Basis, Bias, Concat, KernelBasis, Linear, Precomputed, as_basis, centres_of, leaves
from relvec.hyperparameters import centres, grvm, grvm_widths
from relvec.hyperparameters.widths import Learned, Setting, learn
from relvec.kernels import Linear as LinearKernel
from relvec.kernels import as_kernel, has_width
from relvec.runtime.arrays import Array, to_host, unique_rows
from relvec.solvers import as_solver

MOST_WIDTHS = 32  # width="auto" learns one width per feature up to so many
GRVM_WIDTHS = {"grvm": "learn", "grvm-per-feature": "learn-per-feature"}  # and what the kernel starts from
TUNING_SHARE = 0.7  # of a time limit, for learning widths


def dictionary(
    estimator, X: np.ndarray, weights: np.ndarray, on_device: Array | None = None
) -> tuple[Basis, np.ndarray]:
    """The dictionary of candidate atoms on the training rows X, bound.

    Also which entries of its theta (p,) are to be learned. Rows on a device are sorted there.
    """
    given = None if on_device is None or not np.all(weights > 0.0) else on_device
    unbound = candidates(estimator, X.shape[1], given)
    return unbound.bind(X, weights, generator(estimator)), unbound.learned_mask(X.shape[1])


def generator(estimator) -> np.random.Generator:
    """What is drawn from where centres are, by ``random_state``."""
    return np.random.default_rng(check_random_state(estimator.random_state).randint(2**31))


def candidates(estimator, n_features: int, on_device: Array | None = None) -> Concat:
    """The dictionary before it knows its rows, but for those on a device: kernel, basis, bias in this order."""
    parts: list[Basis] = []
    precomputed = isinstance(estimator.kernel, str) and estimator.kernel == "precomputed"
    if estimator.centres not in ("data", "move", "grvm"):
        raise ValueError(f"centres must be 'data', 'move' or 'grvm', got {estimator.centres!r}")
    if estimator.centres != "data" and precomputed:
        raise ValueError("centres that move need the kernel as a function of them, not kernel='precomputed'")
    unsaid = isinstance(estimator.width, str) and estimator.width in ("auto", "scale")
    if (precomputed or estimator.kernel is None) and not unsaid:
        raise ValueError(
            f"width belongs to a kernel given by name; with kernel={estimator.kernel!r} leave it at 'auto'"
        )
    if precomputed and estimator.basis is not None:
        raise ValueError(
            "with kernel='precomputed' X holds kernel values, on which other basis functions make no sense; "
            "pass the inputs themselves with the kernel as a callable, or append columns to X"
        )
    if precomputed:
        parts.append(Precomputed())
    elif estimator.kernel is not None:
        kernel = as_kernel(estimator.kernel, _width(estimator, n_features))
        if on_device is not None:
            centres, first, _ = map(to_host, unique_rows(on_device))
            parts.append(KernelBasis(kernel, centres.astype(np.float64, copy=False), centre_rows=first))
        else:
            parts.append(KernelBasis(kernel))
    if estimator.basis is not None:
        parts.append(as_basis(estimator.basis))
    if estimator.fit_intercept:
        parts.append(Bias())
    if not parts:
        raise ValueError("the model is empty: give a kernel, a basis, or fit_intercept=True")
    return Concat(tuple(parts))


def _width(estimator, n_features: int) -> Any:
    """What ``width`` means: "auto" learns the widths of a kernel given by name where evidence can be trusted."""
    if isinstance(estimator.width, str) and estimator.width in GRVM_WIDTHS:
        return GRVM_WIDTHS[estimator.width]  # by another evidence: see `learned_widths`
    if not (isinstance(estimator.width, str) and estimator.width == "auto"):
        return estimator.width
    named = isinstance(estimator.kernel, str) and has_width(estimator.kernel)
    return "learn-per-feature" if named and estimator._trusts_evidence and n_features <= MOST_WIDTHS else "scale"


def learned_widths(estimator, basis: Basis, free: np.ndarray, X: np.ndarray, targets: list) -> Learned:
    """The basis with its free parameters learned on the rows X (n, d), and a model of each target."""
    limit = as_solver(estimator.solver).time_limit
    deadline = np.inf if limit is None else time.monotonic() + TUNING_SHARE * limit
    seed = 0 if estimator.random_state is None else check_random_state(estimator.random_state).randint(2**31)
    setting = Setting.of(basis, X, targets, free, deadline)
    if isinstance(estimator.width, str) and estimator.width in GRVM_WIDTHS:
        choose = grvm_widths.choose_width if estimator.width == "grvm" else grvm_widths.choose_widths
        chosen = choose(basis, setting, seed)
        return Learned(chosen.basis, [None] * len(targets), chosen.tuning)
    return learn(basis, setting, seed, estimator._logs)


def moved_centres(estimator, basis: Basis, X: np.ndarray, targets: list, models: list) -> tuple[Basis, list, list]:
    """The dictionary with its centres moved from where models (one a target) have them; models, and the moves."""
    limit = as_solver(estimator.solver).time_limit
    deadline = np.inf if limit is None else time.monotonic() + TUNING_SHARE * limit
    space = centres.Space.of(basis, X, targets, deadline)
    placed = centres.start(basis, space, models)
    placed, moves = centres.move(placed) if estimator.centres == "move" else grvm.train(placed)
    return (placed.basis, placed.models, moves) if len(placed.Z) else (basis, models, [])


def store_widths(estimator, basis: Basis, variances: np.ndarray, learned: Learned | None) -> None:
    """Attributes that tell of the kernels: widths, feature relevance, how widths were learned.

    The features have variances in these proportions (d,).
    """
    for name in ("kernel_", "width_", "feature_relevance_", "tuning_"):
        estimator.__dict__.pop(name, None)
    parts = basis.parts if isinstance(basis, Concat) else ()
    kernels = [part.kernel for part in parts if isinstance(part, KernelBasis)]
    if learned is not None:
        estimator.tuning_ = learned.tuning
    if not kernels:
        return
    estimator.kernel_ = kernels[0]
    width = getattr(estimator.kernel_, "width", None)
    if width is not None:
        estimator.width_ = np.array(width) if isinstance(width, tuple) else width
    scales = np.sum([kernel.inverse_square_widths(len(variances)) for kernel in kernels], axis=0)
    with np.errstate(divide="ignore"):
        relevance = np.log(scales) + np.log(variances)  # the products themselves may overflow
    if np.any(relevance > -np.inf):
        estimator.feature_relevance_ = softmax(relevance)


def store_centres(estimator, basis: Basis, X: Any, targets: list, models: list, moves: list) -> None:
    """What movable centres add to the attributes: how well the data place them, and the way there."""
    estimator.__dict__.pop("placement_", None)
    if moves:
        space = centres.Space.of(basis, X, targets)
        estimator.placement_ = grvm.placement(centres.start(basis, space, models, settle=False), moves)
        own = np.sum(estimator.log_marginal_likelihood_)  # in the units of the targets as given
        estimator.placement_ = replace(estimator.placement_, log_evidence=own + estimator.placement_.log_share)


def renumbered(basis: Basis, rows: np.ndarray) -> Basis:
    """A dictionary bound to some training rows (m,), with the numbers these have among all."""
    if isinstance(basis, Concat):
        return replace(basis, parts=tuple(renumbered(part, rows) for part in basis.parts))
    if isinstance(basis, KernelBasis) and basis.centre_rows is not None:
        return replace(basis, centre_rows=rows[basis.centre_rows])
    return basis


def kept_centres(basis: Basis) -> np.ndarray:
    """Centres (p, d) of the kernels of a fitted basis, in its order."""
    found = centres_of(basis)
    return found[~np.isnan(found).any(axis=1)]


def row_copies(basis: Basis) -> int:
    """Numbers that a row takes where it is a centre of a bound dictionary: two copies, while they are sorted."""
    centred = any(isinstance(leaf, KernelBasis) and leaf.centre_rows is not None for leaf in leaves(basis))
    return 2 * (basis.n_features or 0) if centred else 0


def is_linear(basis: Basis) -> bool:
    """Whether every atom of a dictionary is a linear function of the inputs, or constant."""
    if isinstance(basis, Concat):
        return all(is_linear(part) for part in basis.parts)
    return isinstance(basis, Bias | Linear) or (
        isinstance(basis, KernelBasis) and isinstance(basis.kernel, LinearKernel)
    )
