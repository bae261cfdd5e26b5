"""The fit of ``RVR()`` as it comes: a sparse model of each output, as the record of a relevance vector machine."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.basis import Concat, KernelBasis, Linear, kernels_of, leaves
from relvec.estimators.assemble import HISTORY, caller_level, check_representable, describe_widths, is_linear, slopes
from relvec.estimators.gaussian import scale_noise
from relvec.estimators.options import MachineOptions
from relvec.estimators.records import FittedRVM
from relvec.estimators.sources import MemorySource
from relvec.inference.predictive import LinearPredictor
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import share_of_work, stage
from relvec.runtime.record import Brief
from relvec.solvers import Status
from relvec.sparse.dictionary import LearnedWidths
from relvec.sparse.fit import SparseFit, fit_sparse


def fit_sparse_model(options: MachineOptions, source: MemorySource) -> FittedRVM:
    """Fit a model to each output whose widths a process learns and whose size held-out rows choose."""
    q = source.n_targets
    fits, earlier = [], _earlier(options, q)
    for unit in source.target_units()[0]:
        scale_noise(options.noise_variance, unit)
    with one_thread():
        for output, y in enumerate(source.targets.T):
            with share_of_work(output, q), stage("search"):
                fit = fit_sparse(
                    source.X, y, source.weights, source.groups, learned=earlier[output],
                    max_functions=options.max_functions, noise_variance=options.noise_variance,
                    clock=options.clock.part(1.0 / (q - output)),
                )  # fmt: skip
            fits.append(fit)
    for output, fit in enumerate(fits):
        _warn(fit, "" if source.single else f"output {output}: ")
    return _assemble(options, source, fits)


@dataclass(frozen=True, eq=False, repr=False)
class SparseChoice(Brief):
    """How the dictionary and the number of functions of an output were chosen.

    Attributes
    ----------
    kernel : the kernel that a process learned, in words.
    prices : nats a function that were tried, from above; inf is the constant alone.
    sizes, losses : functions in the mean over the folds, and mean negative log density of held-out rows, at each price.
    price : the one that was taken.
    learned : the widths (`relvec.sparse.dictionary.LearnedWidths`), those of most merit first.
    dictionary : the functions that were candidates, besides the constant, as a basis that knows no rows.
    """

    kernel: str
    prices: np.ndarray
    sizes: np.ndarray
    losses: np.ndarray
    price: float
    learned: tuple[LearnedWidths, ...] | None
    dictionary: Concat

    @classmethod
    def of(cls, fit: SparseFit) -> SparseChoice:
        """The choice of a fit."""
        prices, sizes, losses = np.array([(level.price, level.n_functions, level.loss) for level in fit.levels]).T
        name = fit.learned[0].name if fit.learned else ""
        kernels = [KernelBasis(kernel) for kernel in kernels_of(fit.basis)]
        columns = [replace(part, terms=(), n_features=None) for part in leaves(fit.basis) if isinstance(part, Linear)]
        return cls(name, prices, sizes, losses, fit.price, fit.learned, Concat((*kernels, *columns)))


def _earlier(options: MachineOptions, q: int) -> list[tuple[LearnedWidths, ...] | None]:
    """Return the widths that a warm start of so many outputs begins with."""
    found = None if options.earlier is None else options.earlier.choices
    return [None] * q if found is None or len(found) != q else [choice.learned for choice in found]


def _status(fit: SparseFit) -> Status:
    """How a fit ended."""
    if fit.cut or fit.stopped:
        return Status.INTERRUPTED if fit.stopped else Status.TIME_LIMIT
    p = fit.posterior
    if not fit.problem.fixed_noise and p.beta * fit.problem.noise_floor > 1.0 - 1e-6:
        return Status.CONSTANT_TARGET if not fit.n_functions else Status.NOISE_FLOOR
    return Status.HELD_OUT


def _warn(fit: SparseFit, label: str) -> None:
    status = _status(fit)
    if not status.success:
        cut = f" (cut short: {', '.join(fit.cut)})" if fit.cut else ""
        warnings.warn(f"{label}{status.name}: {status.value}{cut}.", ConvergenceWarning, stacklevel=caller_level())


def _assemble(options: MachineOptions, source: MemorySource, fits: list[SparseFit]) -> FittedRVM:
    """The models of all outputs over the functions that any of them keeps."""
    kept = [fit.basis.take(fit.active) for fit in fits]
    whole = Concat(tuple(kept), n_features=source.n_features)
    order = np.lexsort((whole.rows, whole.rows < 0))  # functions on training rows first
    basis, ends = whole.take(order), np.cumsum([0, *(part.n_atoms for part in kept)])
    shape = len(fits), whole.n_atoms
    weights, alpha, gamma = np.zeros(shape), np.full(shape, np.inf), np.zeros(shape)
    for i, fit in enumerate(fits):
        own, scale = slice(ends[i], ends[i + 1]), fit.problem.design.scale[fit.active] / fit.unit
        with np.errstate(all="ignore"):  # refused below, in words
            weights[i, own], alpha[i, own] = fit.posterior.mean / scale, fit.posterior.alpha * scale**2
        gamma[i, own] = fit.posterior.gamma
    check_representable(weights, alpha[np.isfinite(alpha)])
    constant = np.array([name == "bias" for name in whole.labels()])
    functions = [
        _over(
            fit.predictor.function, basis, np.flatnonzero((ends[i] <= order) & (order < ends[i + 1])), order - ends[i]
        )
        for i, fit in enumerate(fits)
    ]
    honest = options.predictive is None and options.honest
    widths, linear = describe_widths(basis, source.feature_variances()), is_linear(basis)
    at_origin = basis(np.zeros((1, source.n_features)))[0] if linear else constant[order]
    return FittedRVM(
        basis=basis,
        functions=functions,
        predictors=[
            replace(fit.predictor, function=function) if honest else function
            for fit, function in zip(fits, functions, strict=True)
        ],
        weights=weights[:, order],
        alpha=alpha[:, order],
        gamma=gamma[:, order],
        intercept=weights[:, order] @ at_origin,
        coef=slopes(basis, weights[:, order], source.n_features) if linear else None,
        noise_variance=np.array([fit.unit**2 / fit.posterior.beta for fit in fits]),
        log_evidence=np.array([fit.log_evidence for fit in fits]),
        certificate=np.array([fit.largest_gain for fit in fits]),
        n_iter=np.array([fit.n_steps for fit in fits]),
        status=[_status(fit).name.lower() for fit in fits],
        history=[np.zeros(0, dtype=HISTORY) for _ in fits],
        relevance_vectors=source.given[np.unique(basis.rows[basis.rows >= 0])],
        n_candidates=max(fit.basis.n_atoms for fit in fits),
        choices=[SparseChoice.of(fit) for fit in fits],
        width_rule="process" if widths else None,
        single=source.single,
        **widths,
    )


def _over(function: LinearPredictor, basis: Any, places: np.ndarray, own: np.ndarray) -> LinearPredictor:
    """A function over some of the functions of a basis as one over all of them."""
    scale, mean = np.ones(basis.n_atoms), np.zeros(basis.n_atoms)
    root = np.zeros((basis.n_atoms, function.root.shape[1]))
    at = own[places]
    scale[places], mean[places], root[places] = function.scale[at], function.mean[at], function.root[at]
    return LinearPredictor(basis=basis, scale=scale, unit=function.unit, mean=mean, root=root, noise=function.noise)
