"""Fits over one dictionary as the record of a relevance vector machine, in the units of X and y."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.basis import Basis, Bias, Concat, KernelBasis, Linear, input_columns, is_inputs, leaves
from relvec.estimators.options import MachineOptions
from relvec.estimators.records import FittedRVM
from relvec.estimators.sources import Source
from relvec.hyperparameters.grvm import Placement
from relvec.inference.evidence import gain_delete
from relvec.inference.predictive import LinearPredictor
from relvec.kernels import Kernel
from relvec.kernels import Linear as LinearKernel
from relvec.solvers.loop import Result, Status, Step

if TYPE_CHECKING:
    from relvec.estimators.pipeline import Found, MachineSearch

HISTORY = np.dtype(
    [("action", "U10"), ("atom", np.int64), ("row", np.int64), ("gain", float), ("objective", float),
     ("size", np.int64), ("noise_variance", float)]
)  # fmt: skip


def assemble(
    options: MachineOptions,
    source: Source,
    search: MachineSearch,
    found: Found,
    placement: Placement | None,
    **learned: Any,
) -> FittedRVM:
    """Return the fits over one dictionary as a record; ``learned`` are its fields that tell of learned widths."""
    fits, basis = found.fits, found.basis
    constant = [basis.n_atoms - 1] if any(fit.offset is not None for fit in fits) else []  # it takes up the means
    union = np.unique(np.concatenate([*(fit.pairs[1] for fit in fits), constant])).astype(np.intp)
    atoms = union[np.lexsort((basis.rows[union], basis.rows[union] < 0))]  # training rows ascending, then the rest
    kept = basis.take(atoms)
    weights, alpha, gamma = tabulate_weights(fits, atoms)
    functions = [search.predictor(fit, kept, atoms) for fit in fits]
    model = make_record(
        source,
        kept,
        weights,
        [fit.result.status for fit in fits],
        functions=functions,
        **search.predictive(fits, functions, alpha, basis),
        alpha=alpha,
        gamma=gamma,
        noise_variance=search.noise_variances(functions),
        log_evidence=np.array([float(fit.log_evidence) for fit in fits]),
        certificate=np.array([float(fit.result.state.largest_gain) for fit in fits]),
        n_iter=np.array([fit.result.n_iter for fit in fits]),
        history=[fit.history(basis.rows) for fit in fits],
        precomputed=options.precomputed,
        linear=is_linear(basis),
        n_candidates=basis.n_atoms,
        compression=found.compression,
        placement=placement,
        **learned,
    )
    with np.errstate(over="ignore", under="ignore"):
        check_representable(*(np.sum(function.weight_root**2, axis=1) for function in functions))
    return model


def make_record(
    source: Source, basis: Basis, weights: np.ndarray, status: list[Status], *, history: list[np.ndarray] | None = None,
    precomputed: bool = False, linear: bool | None = None, **fields: Any,
) -> FittedRVM:  # fmt: skip
    """Return the record of a model, with what follows from the functions kept and their weights (R, m).

    history : the steps of each search; None where there was no single one.
    precomputed : whether X holds kernel values, so that its rows are no points.
    linear : whether the dictionary is linear in the inputs; None asks that of the functions kept.
    fields : the other fields of the record.
    """
    linear, rows = is_linear(basis) if linear is None else linear, np.unique(basis.rows[basis.rows >= 0])
    constant = np.array([name == "bias" for name in basis.labels()], dtype=float)
    at_origin = basis(np.zeros((1, source.n_features)))[0] if linear else constant
    return FittedRVM(
        basis=basis,
        weights=weights,
        intercept=weights @ at_origin,
        coef=slopes(basis, weights, source.n_features) if linear else None,
        status=[end.name.lower() for end in status],
        history=no_history(len(status)) if history is None else history,
        relevance_vectors=None if precomputed else source.take(rows),
        single=source.single,
        **fields,
    )


def no_history(n_searches: int) -> list[np.ndarray]:
    """Return the steps of models that no single search found."""
    return [np.zeros(0, dtype=HISTORY) for _ in range(n_searches)]


def tabulate_weights(fits: list, atoms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, precisions and gammas (R, m) of the weights of atoms (m,) that all fits keep, in the units of X and y."""
    R = sum(fit.n_functions for fit in fits)
    weights, alpha, gamma = np.zeros((R, len(atoms))), np.full((R, len(atoms)), np.inf), np.zeros((R, len(atoms)))
    rank, first = np.argsort(atoms), 0
    for fit in fits:
        p, (functions, own) = fit.result.state.posterior, fit.pairs
        at = first + functions, rank[np.searchsorted(atoms, own, sorter=rank)]
        with np.errstate(all="ignore"):  # refused below, in words
            weights[at] = p.mean * (fit.unit / fit.scale[own])
            alpha[at] = p.alpha * (fit.scale[own] / fit.unit) ** 2
            prior_variance = 1.0 / alpha[at]
        check_representable(weights[at], alpha[at], prior_variance)
        gamma[at] = p.gamma
        if fit.offset is not None:  # w (x - m) = w x - w m
            own = slice(first, first + fit.n_functions)
            weights[own, -1] -= weights[own, :-1] @ fit.offset[atoms[:-1]]
        first += fit.n_functions
    return weights, alpha, gamma


def linear_predictor(fit: Any, basis: Basis, atoms: np.ndarray) -> LinearPredictor:
    """Return the fitted function over the given atoms, a superset of the fit's own in a fixed order."""
    state = fit.result.state
    place = {atom: i for i, atom in enumerate(state.active.tolist())}
    own = np.array([i for i, atom in enumerate(atoms.tolist()) if atom in place], dtype=np.intp)
    source = np.array([place[atoms[i]] for i in own], dtype=np.intp)
    mean, root = np.zeros(len(atoms)), np.zeros((len(atoms), len(place)))
    mean[own] = state.posterior.mean[source]
    root[own] = state.posterior.root[source]
    if fit.offset is not None:
        share = offset_shares(fit, atoms)
        mean[-1] -= share @ mean[:-1]
        root[-1] -= share @ root[:-1]
    noise = 1.0 / state.posterior.beta
    return LinearPredictor(basis=basis, scale=fit.scale[atoms], unit=fit.unit, mean=mean, root=root, noise=noise)


def offset_shares(fit: Any, atoms: np.ndarray) -> np.ndarray:
    """Shares offset_j scale_c / scale_j of the scaled weights of atoms (m,), the constant last, in the constant's."""
    scale = fit.scale[atoms]
    return fit.offset[atoms[:-1]] / scale[:-1] * scale[-1]


def slopes(basis: Basis, weights: np.ndarray, n_features: int) -> np.ndarray:
    """Slopes (R, d) of functions with weights (R, m) over atoms that are linear in the inputs."""
    if is_inputs(basis):
        columns, found = input_columns(basis), np.zeros((len(weights), n_features))
        found[:, columns[columns >= 0]] = weights[:, columns >= 0]
        return found
    # a linear function at the unit vectors, less its value at the origin
    return weights @ (basis(np.eye(n_features)) - basis(np.zeros((1, n_features)))).T


@dataclass(frozen=True)
class Inclusion:
    """Columns of X that are in a linear model, for each of R functions of d inputs."""

    coef_std: np.ndarray  # (R, d) posterior standard deviations of the slopes, 0 for columns that are not in the model
    selected: np.ndarray  # (R, d) which columns are in the model
    gain: np.ndarray  # (R, d) nats of log evidence that each column is worth, the other precisions as they are


def inclusion(model: FittedRVM, n_features: int) -> Inclusion | None:
    """Return the columns in a model of inputs and a constant alone; None for any other model.

    Of columns that share a precision each has its own gain, as if it alone were left out.
    """
    if model.coef is None or not is_inputs(model.basis) or not model.functions:
        return None
    columns = input_columns(model.basis)
    at = columns >= 0
    R, shape = len(model.weights), (len(model.weights), n_features)
    with np.errstate(over="ignore", under="ignore"):
        covariances = [np.diagonal(covariance) for covariance in model.covariances]
    variance = np.concatenate(covariances).reshape(R, -1)[:, at]
    alpha, gamma, weights = model.alpha[:, at], model.gamma[:, at], model.weights[:, at]
    inside = np.isfinite(alpha)
    std, selected, gain = np.zeros(shape), np.zeros(shape, dtype=bool), np.zeros(shape)
    std[:, columns[at]], selected[:, columns[at]] = np.sqrt(variance), inside
    own, safe = np.zeros(inside.shape), np.where(inside, variance, 1.0)
    own[inside] = -gain_delete(np.where(inside, alpha, 1.0), gamma, weights, safe)[inside]
    gain[:, columns[at]] = own
    return Inclusion(std, selected, gain)


def describe_widths(basis: Basis, variances: np.ndarray) -> dict[str, Any]:
    """Return the first kernel of a dictionary, its width, and the relevance of features with variances (d,)."""
    kernels: list[Kernel] = [part.kernel for part in leaves(basis) if isinstance(part, KernelBasis)]
    if not kernels:
        return {}
    width: Any = getattr(kernels[0], "width", None)
    found = {"kernel": kernels[0], "width": np.array(width) if isinstance(width, tuple) else width}
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        scales = sum(kernel.inverse_square_widths(len(variances)) for kernel in kernels)
        relevance = np.log(scales) + np.log(variances)  # the products themselves may overflow
    # squares of inputs below 1e-154 have no double, and then nothing is known of the relevance
    known = np.any(relevance > -np.inf) and np.all(relevance < np.inf)
    share = np.exp(relevance - relevance.max()) if known else relevance
    return found | ({"feature_relevance": share / share.sum()} if known else {})


def is_linear(basis: Basis) -> bool:
    """Whether every atom of a dictionary is a linear function of the inputs, or constant."""
    if isinstance(basis, Concat):
        return all(is_linear(part) for part in basis.parts)
    return isinstance(basis, Bias | Linear) or (
        isinstance(basis, KernelBasis) and isinstance(basis.kernel, LinearKernel)
    )


def tabulate_history(steps: list[Step], rows: np.ndarray, shift: float, unit: float) -> np.ndarray:
    """Return steps as a structured array. Atoms of a model of several outputs count on beyond M, output by output."""
    table = [
        (h.action, h.atom, rows[h.atom % len(rows)] if h.atom >= 0 else -1, h.gain, h.objective + shift, h.size,
         h.noise_variance * unit**2)
        for h in steps
    ]  # fmt: skip
    return np.array(table, dtype=HISTORY)


def warn_unless_success(status: Status, label: str = "", detail: str = "", instead: str = "") -> None:
    """Tell how a fit ended that did not converge, with ``detail`` behind the advice of the status or ``instead`` of it.

    ``label`` names the output in front.
    """
    if not status.success:
        told = f"{label}{status.name}: {instead or status.value}{detail}."
        warnings.warn(told, ConvergenceWarning, stacklevel=caller_level())


def offered(result: Result, tol: float) -> str:
    """Return in words what the best single move still offers after a search, where that is more than tol (nats)."""
    gain = result.state.largest_gain
    return f" (the best single move still gains {gain:.2g} nats, tol is {tol:g})" if tol < gain < np.inf else ""


def caller_level() -> int:
    """Return the stacklevel, for a warning of the function that asks, of the first caller outside of relvec."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("relvec."):
        frame, level = frame.f_back, level + 1
    return level


def check_representable(*values: np.ndarray) -> None:
    """Raise an error where weights, precisions or variances of a model, in the units of X and y, have no double."""
    if not all(np.all(np.isfinite(value)) for value in values):
        raise ValueError(
            "the weights of this model, their precisions or their variances are beyond the range of floating-point "
            "numbers: the basis functions are far too small or too large for the target. Standardise X and y, or give "
            "a kernel with values nearer to 1"
        )
