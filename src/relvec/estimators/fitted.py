"""A fitted model as one frozen record, from which estimators copy their attributes and exports read."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from relvec.basis import Basis, Bias, Concat, KernelBasis, Linear, centres_of, input_columns, is_inputs
from relvec.design import Compression
from relvec.estimators.noise.predictor import NoiseFit
from relvec.estimators.options import EarlierModel, FitOptions
from relvec.estimators.sources import Source
from relvec.hyperparameters.grvm import Placement
from relvec.inference.conformal import ConformalScores
from relvec.inference.evidence import gain_delete
from relvec.inference.predictive import LatentPredictor, LinearPredictor, WeightPredictor
from relvec.kernels import Kernel
from relvec.kernels import Linear as LinearKernel
from relvec.solvers import Result, Step

if TYPE_CHECKING:
    from relvec.estimators.pipeline import Found, Search

HISTORY = np.dtype(
    [("action", "U10"), ("atom", np.int64), ("row", np.int64), ("gain", float), ("objective", float),
     ("size", np.int64), ("noise_variance", float)]
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A fitted model of F searches with R functions in all: one of each output, or K of the classes of a softmax.

    Attributes
    ----------
    basis : bound basis of the m functions kept: kernels first, then the further basis, then the constant.
    functions : (F) the posteriors over functions that were found (`relvec.inference.predictive`).
    predictors : (F) what predictions are made by: the functions, or RVM* or processes in their place.
    weights, alpha, gamma : (R, m) posterior mean, precision (inf where a function is not in the model of the output)
        and how well the data determine each weight, in the units of X and y.
    intercept : (R,) weight of the constant.
    coef : (R, d) slopes of a purely linear model, or None.
    noise_variance : (F,) nan for classes and counts.
    log_evidence, certificate, n_iter : (F,).
    status, history : (F) how each search ended, and its steps.
    relevance_vectors : (r, d) the training rows that kernels are centred on; None where X holds kernel values.
    processes : (F) processes or None, where they are the predictive distribution; else None.
    n_candidates, n_subsets, compression : see the estimators.
    placement : how well the data place moved centres, or None.
    kernel, width, feature_relevance, tuning : see the estimators; None where the estimators have no such attribute.
    width_rule : the rule that gave the width; see `FitOptions.width_rule`.
    theta : (p,) logarithms of the parameters of all kernels of the dictionary; None for processes.
    selection, merit : (F) kernels compared, and the merit of the one chosen, where it was chosen by merit; else None.
    single : whether the targets are one column that was given as (n,).
    calibration : scores of rows that took no part in the fit, where the model is calibrated; else None.
    noise : the noise that was learned, where it is not normal with one variance; else None.
    """

    basis: Basis
    functions: list
    predictors: list
    weights: np.ndarray
    alpha: np.ndarray
    gamma: np.ndarray
    intercept: np.ndarray
    coef: np.ndarray | None
    noise_variance: np.ndarray
    log_evidence: np.ndarray
    certificate: np.ndarray
    n_iter: np.ndarray
    status: list
    history: list
    relevance_vectors: np.ndarray | None
    processes: list | None = None
    n_candidates: int = 0
    n_subsets: int = 1
    compression: Compression | None = None
    placement: Placement | None = None
    kernel: Any = None
    width: Any = None
    feature_relevance: np.ndarray | None = None
    tuning: Any = None
    width_rule: str | None = None
    theta: np.ndarray | None = None
    selection: list | None = None
    merit: np.ndarray | None = None
    single: bool = True
    calibration: ConformalScores | None = None
    noise: NoiseFit | None = None

    @property
    def relevance(self) -> np.ndarray:
        """Training rows (r,) that kernels are centred on, ascending."""
        found = self.basis.rows[self.basis.rows >= 0]
        return found if self.processes is None else np.unique(found)

    @property
    def centres(self) -> np.ndarray:
        """Centres (p, d) of the kernels, in the order of the basis."""
        return centres_of(self.basis)

    @property
    def noise_columns(self) -> list[np.ndarray] | None:
        """Columns of X that the error bars of each output depend on, None where they do not."""
        if self.noise is not None:
            return [self.noise.columns] if self.noise.columns is not None else None
        found = [p.noise_columns for p in self.processes or []] if self.selection is not None else []
        return found if any(len(columns) for columns in found) else None

    @property
    def earlier(self) -> EarlierModel:
        """The model for a warm start."""
        return EarlierModel(self.basis, self.alpha, self.noise_variance, self.theta, self.processes)

    def covariances(self) -> list[np.ndarray]:
        """Posterior covariance of the weights of each search: (m, m), or (K m, K m) for K functions."""
        found, m = [], self.basis.n_atoms
        for model in self.functions:
            root = scaled_root(model)
            if isinstance(model, LinearPredictor):
                found.append(root @ root.T)
                continue
            place = model.outputs * m + model.places
            full = np.zeros((model.n_outputs * m, model.n_outputs * m))
            full[np.ix_(place, place)] = root @ root.T
            found.append(full)
        return found


def scaled_root(model: LinearPredictor | LatentPredictor) -> np.ndarray:
    """A root of the posterior covariance of the weights of a model, in the units of X and y."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if isinstance(model, LinearPredictor):
            return model.root * (model.unit / model.scale)[:, None]
        return model.root / model.scale[model.places, None]


def assemble(
    options: FitOptions, source: Source, search: Search, found: Found, placement: Placement | None
) -> FittedModel:
    """The fits over one dictionary as a model in the units of X and y."""
    fits, basis = found.fits, found.basis
    constant = [basis.n_atoms - 1] if any(fit.offset is not None for fit in fits) else []  # it takes up the means
    union = np.unique(np.concatenate([*(fit.pairs[1] for fit in fits), constant])).astype(np.intp)
    atoms = union[np.lexsort((basis.rows[union], basis.rows[union] < 0))]  # training rows ascending, then the rest
    kept = basis.take(atoms)
    weights, alpha, gamma = tabulate_weights(fits, atoms)
    functions = [search.predictor(fit, kept, atoms) for fit in fits]
    predictors, processes = search.predictive(functions, alpha, kept, basis)
    has_bias = options.fit_intercept and basis.n_atoms - 1 in atoms
    coef = None
    if is_linear(basis):  # slopes: a linear function at the unit vectors, less its value at the origin
        coef = slopes(kept, weights, source.n_features)
    model = FittedModel(
        basis=kept,
        functions=functions,
        predictors=predictors,
        weights=weights,
        alpha=alpha,
        gamma=gamma,
        intercept=weights[:, -1] if has_bias else np.zeros(len(weights)),
        coef=coef,
        noise_variance=_noise_variances(options, functions if processes is None else predictors),
        log_evidence=np.array([float(fit.log_evidence) for fit in fits]),
        certificate=np.array([float(fit.result.state.largest_gain) for fit in fits]),
        n_iter=np.array([fit.result.n_iter for fit in fits]),
        status=[fit.result.status.name.lower() for fit in fits],
        history=[fit.history(basis.rows) for fit in fits],
        relevance_vectors=None if options.precomputed else source.take(basis, kept.rows[kept.rows >= 0]),
        processes=processes,
        n_candidates=found.n_candidates,
        n_subsets=found.n_subsets,
        compression=found.compression,
        placement=placement,
        single=source.single,
    )
    with np.errstate(over="ignore", under="ignore"):
        check_representable(*(np.sum(scaled_root(function) ** 2, axis=1) for function in functions))
    return model


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
    """The fitted function over the given atoms, a superset of the fit's own in a fixed order."""
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
    return LinearPredictor(basis, fit.scale[atoms], unit=fit.unit, mean=mean, root=root, noise=noise)


def _noise_variances(options: FitOptions, functions: list) -> np.ndarray:
    """Noise variances (F,) in the units of y, nan where there is none; one that was given is kept to its last digit."""
    given = options.noise_variance
    found = np.array([f.noise * f.unit**2 if isinstance(f, WeightPredictor) else np.nan for f in functions])
    return found if given is None else np.where(np.isclose(found, given, rtol=1e-12), given, found)


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


def inclusion(model: FittedModel, n_features: int) -> Inclusion | None:
    """The columns in a model of inputs and a constant alone; None for any other model.

    Of columns that share a precision each has its own gain, as if it alone were left out.
    """
    if model.coef is None or not is_inputs(model.basis) or not model.functions:
        return None
    columns = input_columns(model.basis)
    at = columns >= 0
    R, shape = len(model.weights), (len(model.weights), n_features)
    with np.errstate(over="ignore", under="ignore"):
        covariances = [np.diagonal(covariance) for covariance in model.covariances()]
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
    """The first kernel of a dictionary, its width, and the relevance of features with variances (d,)."""
    kernels: list[Kernel] = [part.kernel for part in getattr(basis, "parts", ()) if isinstance(part, KernelBasis)]
    if not kernels:
        return {}
    width: Any = getattr(kernels[0], "width", None)
    found = {"kernel": kernels[0], "width": np.array(width) if isinstance(width, tuple) else width}
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        scales = np.sum([kernel.inverse_square_widths(len(variances)) for kernel in kernels], axis=0)
        relevance = np.log(scales) + np.log(variances)  # the products themselves may overflow
    # squares of inputs below 1e-154 have no double, and then nothing is known of the relevance
    known = np.any(relevance > -np.inf) and np.all(relevance < np.inf)
    return found | ({"feature_relevance": softmax(relevance)} if known else {})


def is_linear(basis: Basis) -> bool:
    """Whether every atom of a dictionary is a linear function of the inputs, or constant."""
    if isinstance(basis, Concat):
        return all(is_linear(part) for part in basis.parts)
    return isinstance(basis, Bias | Linear) or (
        isinstance(basis, KernelBasis) and isinstance(basis.kernel, LinearKernel)
    )


def tabulate_history(steps: list[Step], rows: np.ndarray, shift: float, unit: float) -> np.ndarray:
    """Steps as a structured array. An atom of a model with several outputs counts on beyond M, output by output."""
    table = [
        (h.action, h.atom, rows[h.atom % len(rows)] if h.atom >= 0 else -1, h.gain, h.objective + shift, h.size,
         h.noise_variance * unit**2)
        for h in steps
    ]  # fmt: skip
    return np.array(table, dtype=HISTORY)


def warn_unless_converged(result: Result, tol: float, label: str = "") -> None:
    """Warn, with advice, of a fit that ended without a certificate."""
    status = result.status
    if not status.success:
        gain = result.state.largest_gain
        offer = f" (the best single move still gains {gain:.2g} nats, tol is {tol:g})" if tol < gain < np.inf else ""
        warnings.warn(f"{label}{status.name}: {status.value}{offer}.", ConvergenceWarning, stacklevel=caller_level())


def caller_level() -> int:
    """The stacklevel, for a warning of the function that asks, of the first caller outside of relvec."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("relvec."):
        frame, level = frame.f_back, level + 1
    return level


def describe_as_html(attributes: dict[str, Any]) -> str:
    """A line on the fitted model, below scikit-learn's diagram in a notebook; nothing before the fit."""
    fitted: FittedModel | None = attributes.get("fitted_")
    if fitted is None:
        return ""
    d = attributes["n_features_in_"]
    scores = (p.score for p in fitted.processes or () if hasattr(p, "score"))
    facts = [f"{len(fitted.relevance):,} rows kept, {d} inputs", *scores]
    if np.isfinite(fitted.noise_variance).all():
        noise = ", ".join(f"{value:.3g}" for value in np.sqrt(fitted.noise_variance))
        facts.append(f"noise {noise} (standard deviation)")
    if fitted.feature_relevance is not None and (fitted.processes or np.ndim(fitted.width) > 0):
        names = attributes.get("feature_names_in_", [f"x{i + 1}" for i in range(d)])
        first = [
            i for i in np.argsort(-fitted.feature_relevance, kind="stable")[:5] if fitted.feature_relevance[i] > 0.01
        ]
        facts.append(f"inputs by relevance: {', '.join(str(names[i]) for i in first)}")
    return f"<pre>{escape('; '.join([*facts, *dict.fromkeys(fitted.status)]))}</pre>"


def check_representable(*values: np.ndarray) -> None:
    """An error where weights, precisions or variances of a model, in the units of X and y, have no double."""
    if not all(np.all(np.isfinite(value)) for value in values):
        raise ValueError(
            "the weights of this model, their precisions or their variances are beyond the range of floating-point "
            "numbers: the basis functions are far too small or too large for the target. Standardise X and y, or give "
            "a kernel with values nearer to 1"
        )
