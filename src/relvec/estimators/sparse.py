"""The fits of `RVR()` and `RVC()` as they come: what `relvec.sparse` finds, as records of relevance vector machines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis, Linear, kernels_of, leaves
from relvec.estimators.assemble import check_representable, describe_widths, make_record, warn_unless_success
from relvec.estimators.gaussian import scale_noise
from relvec.estimators.options import MachineOptions
from relvec.estimators.records import FittedRVM
from relvec.estimators.sources import MemorySource
from relvec.inference.predictive import LatentClasses, LatentPredictor, LinearPredictor
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import share_of_work, stage
from relvec.runtime.record import Brief
from relvec.solvers import Status
from relvec.sparse.classes import ClassMember, SparseClasses, fit_sparse_classes
from relvec.sparse.dictionary import LearnedWidths
from relvec.sparse.fit import SparseFit, fit_sparse


def fit_sparse_model(options: MachineOptions, source: MemorySource) -> FittedRVM:
    """Fit a model to each output whose widths a process learns and whose size held-out rows choose."""
    q = source.n_targets
    fits, earlier, own_scale = [], _earlier(options, q), None if options.honest else AS_IT_IS
    for unit in source.target_units()[0]:
        scale_noise(options.noise_variance, unit)
    with one_thread():
        for output, y in enumerate(source.targets.T):
            with share_of_work(output, q), stage("search"):
                fit = fit_sparse(
                    source.X, y, source.weights, source.groups, learned=earlier[output][0],
                    target=own_scale or earlier[output][1], max_functions=options.max_functions,
                    noise_variance=options.noise_variance, clock=options.clock.part(1.0 / (q - output)),
                    memory=options.memory,
                )  # fmt: skip
            fits.append(fit)
    status = [_status(fit) for fit in fits]
    for output, (fit, end) in enumerate(zip(fits, status, strict=True)):
        warn_unless_success(end, "" if source.single else f"output {output}: ", _what_was_cut(fit))
    return _assemble(options, source, fits, status)


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
    scale : of the target: as it is, or a logarithm on which held-out rows lose less.
    """

    kernel: str
    prices: np.ndarray
    sizes: np.ndarray
    losses: np.ndarray
    price: float
    learned: tuple[LearnedWidths, ...] | None
    dictionary: Concat
    scale: Scale

    @classmethod
    def of(cls, fit: SparseFit) -> SparseChoice:
        """The choice of a fit."""
        prices, sizes, losses = np.array([(level.price, level.n_functions, level.loss) for level in fit.levels]).T
        name = fit.learned[0].name if fit.learned else ""
        kernels = [KernelBasis(kernel) for kernel in kernels_of(fit.basis)]
        columns = [replace(part, terms=(), n_features=None) for part in leaves(fit.basis) if isinstance(part, Linear)]
        return cls(name, prices, sizes, losses, fit.price, fit.learned, Concat((*kernels, *columns)), fit.scale)


def _earlier(options: MachineOptions, q: int) -> list[tuple[tuple[LearnedWidths, ...] | None, Scale | None]]:
    """Return the widths, and the scales of the target, that a warm start of so many outputs begins with."""
    found = None if options.earlier is None else options.earlier.choices
    if found is None or len(found) != q:
        return [(None, None)] * q
    return [(choice.learned, choice.scale) for choice in found]


def _status(fit: SparseFit) -> Status:
    """How a fit ended."""
    if fit.cut or fit.stopped:
        return _end_early(fit)
    p = fit.posterior
    if not fit.problem.fixed_noise and p.beta * fit.problem.noise_floor > 1.0 - 1e-6:
        return Status.CONSTANT_TARGET if not fit.n_functions else Status.NOISE_FLOOR
    return Status.HELD_OUT


def _end_early(fit: SparseFit | SparseClasses) -> Status:
    """How a fit ended that had not the time it needs."""
    return Status.INTERRUPTED if fit.stopped else Status.TIME_LIMIT


def _what_was_cut(fit: SparseFit | SparseClasses) -> str:
    """Name the stages that were cut short, if there are any."""
    return f" (cut short: {', '.join(fit.cut)})" if fit.cut else ""


def _assemble(options: MachineOptions, source: MemorySource, fits: list[SparseFit], status: list[Status]) -> FittedRVM:
    """The models of all outputs over the functions that any of them keeps."""
    kept = [fit.basis.take(fit.active) for fit in fits]
    whole = Concat(tuple(kept), n_features=source.n_features)
    order = np.lexsort((whole.rows, whole.rows < 0))  # functions on training rows first
    basis, ends = whole.take(order), np.cumsum([0, *(part.n_atoms for part in kept)])
    weights, alpha, gamma = _tabulate_weights(fits, ends)
    functions = [
        _over(
            fit.predictor.function, basis, np.flatnonzero((ends[i] <= order) & (order < ends[i + 1])), order - ends[i]
        )
        for i, fit in enumerate(fits)
    ]
    honest = options.predictive is None and options.honest
    widths = describe_widths(basis, source.feature_variances())
    return make_record(
        source,
        basis,
        weights[:, order],
        status,
        functions=functions,
        predictors=[
            replace(fit.predictor, function=function) if honest else function
            for fit, function in zip(fits, functions, strict=True)
        ],
        alpha=alpha[:, order],
        gamma=gamma[:, order],
        noise_variance=np.array([fit.unit**2 / fit.posterior.beta for fit in fits]),
        log_evidence=np.array([fit.log_evidence for fit in fits]),
        certificate=np.array([fit.largest_gain for fit in fits]),
        n_iter=np.array([fit.n_steps for fit in fits]),
        n_candidates=max(fit.basis.n_atoms for fit in fits),
        choices=[SparseChoice.of(fit) for fit in fits],
        width_rule="process" if widths else None,
        **widths,
    )


def _tabulate_weights(fits: list[SparseFit], ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, precisions and gammas (q, m) of the weights of outputs, whose functions follow each other to ``ends``."""
    shape = len(fits), int(ends[-1])
    weights, alpha, gamma = np.zeros(shape), np.full(shape, np.inf), np.zeros(shape)
    for i, fit in enumerate(fits):
        own, scale = slice(ends[i], ends[i + 1]), fit.problem.design.scale[fit.active] / fit.unit
        with np.errstate(all="ignore"):  # refused below, in words
            weights[i, own], alpha[i, own] = fit.posterior.mean / scale, fit.posterior.alpha * scale**2
        gamma[i, own] = fit.posterior.gamma
    check_representable(weights, alpha[np.isfinite(alpha)])
    return weights, alpha, gamma


def _over(function: LinearPredictor, basis: Any, places: np.ndarray, own: np.ndarray) -> LinearPredictor:
    """A function over some of the functions of a basis as one over all of them."""
    scale, mean = np.ones(basis.n_atoms), np.zeros(basis.n_atoms)
    root = np.zeros((basis.n_atoms, function.root.shape[1]))
    at = own[places]
    scale[places], mean[places], root[places] = function.scale[at], function.mean[at], function.root[at]
    return LinearPredictor(basis=basis, scale=scale, unit=function.unit, mean=mean, root=root, noise=function.noise)


@dataclass(frozen=True, eq=False, repr=False)
class ClassChoice(Brief):
    """How the functions of a model of classes were chosen.

    Attributes
    ----------
    settings : (s,) the dictionaries that were compared, in words.
    prices, sizes, losses : (s,) nats a function that was taken for each, and there the mean number of functions and the
        log loss at rows held out; empty where no rows could be held out.
    shares : (s,) of each in the sum that is the model.
    slope : the factor of its log-odds that rows held out ask for.
    learned : the widths that a process learned, one for all inputs first.
    """

    settings: tuple[str, ...]
    prices: np.ndarray
    sizes: np.ndarray
    losses: np.ndarray
    shares: np.ndarray
    slope: float
    learned: tuple[LearnedWidths, ...]

    @classmethod
    def of(cls, fit: SparseClasses) -> ClassChoice:
        """The choice of a fit."""
        names = tuple(setting.name for setting in fit.settings)
        levels = [setting.level for setting in fit.settings if setting.levels]
        prices, sizes, losses = np.array([(x.price, x.n_functions, x.loss) for x in levels]).reshape(-1, 3).T
        shares = np.array([setting.share for setting in fit.settings])
        return cls(names, prices, sizes, losses, shares, fit.slope, fit.learned)


def fit_sparse_class_model(options: MachineOptions, source: MemorySource, averaged: bool) -> FittedRVM:
    """Fit a model of classes whose widths a process learns, and whose functions rows held out choose."""
    targets = source.targets
    two = targets.shape[1] == 1
    labels = targets[:, 0].astype(int) if two else targets.argmax(axis=1)
    earlier = None if options.earlier is None or options.earlier.choices is None else options.earlier.choices[0].learned
    with one_thread(), stage("search"):
        fit = fit_sparse_classes(
            source.X, labels, 2 if two else targets.shape[1], source.weights, source.groups, learned=earlier,
            max_functions=options.max_functions, clock=options.clock, memory=options.memory,
        )  # fmt: skip
    if fit.cut or fit.stopped:
        status = _end_early(fit)
    else:
        end = fit.members[0].found.status
        status = Status.HELD_OUT if fit.settings[0].levels and end is not Status.BASELINE else end
    warn_unless_success(status, detail=_what_was_cut(fit))
    return _assemble_classes(source, fit, status, averaged)


def _assemble_classes(source: MemorySource, fit: SparseClasses, status: Status, averaged: bool) -> FittedRVM:
    basis, sums = add_members(fit.members, source.n_features)
    outputs, places, mean, root, prior = sums
    K, m = fit.members[0].problem.K, basis.n_atoms
    weights, alpha, gamma = np.zeros((K, m)), np.full((K, m), np.inf), np.zeros((K, m))
    weights[outputs, places], alpha[outputs, places] = mean, 1.0 / prior
    gamma[outputs, places] = 1.0 - np.einsum("ij,ij->i", root, root) / prior
    check_representable(mean, root, prior, 1.0 / prior)
    function = LatentPredictor(basis, np.ones(m), K, outputs, places, mean, root)
    widths = describe_widths(basis, source.feature_variances())
    results = [member.found for member in fit.members]
    most = max(fit.members, key=lambda member: member.setting.share)
    return make_record(
        source,
        basis,
        weights,
        [status],
        functions=[function],
        predictors=[],
        classifier=LatentClasses((function,), averaged, fit.slope),
        alpha=alpha,
        gamma=gamma,
        noise_variance=np.array([np.nan]),
        log_evidence=np.array([most.found.state.posterior.log_evidence]),
        certificate=np.array([max(float(found.state.largest_gain) for found in results)]),
        n_iter=np.array([fit.n_steps]),
        n_candidates=max(setting.basis.n_atoms for setting in fit.settings),
        choices=[ClassChoice.of(fit)],
        width_rule="process" if fit.learned else None,
        **widths,
    )


def add_members(members: tuple[ClassMember, ...], n_features: int) -> tuple[Basis, tuple[np.ndarray, ...]]:
    """Return the functions of all members, and the posterior of the weights of their sum times shares.

    That is the output and function of each weight (k,), its mean (k,), the root (k, j) of the covariance, and the prior
    variance (k,). Members are independent, so that variances of the weights of a column that several have add up.
    """
    kept = [np.unique(member.problem.pairs(member.found.state.active)[1]) for member in members]
    whole = Concat(tuple(m.setting.basis.take(own) for m, own in zip(members, kept)), n_features=n_features)
    kernels, labels = whole.rows >= 0, np.array(whole.labels())
    names = np.where(kernels, [f"{i:09d}" for i in range(len(labels))], labels)
    _, first, place = np.unique(names, return_index=True, return_inverse=True)
    order = np.lexsort((first, whole.rows[first], ~kernels[first], labels[first] == "bias"))
    rank = np.argsort(order)[place]  # of each function of the members, its place in the sum
    m, K = len(first), members[0].problem.K
    size = [len(member.found.state.posterior.mean) for member in members]
    mean, prior, root = np.zeros(K * m), np.zeros(K * m), np.zeros((K * m, sum(size)))
    begin = 0
    for i, (member, own) in enumerate(zip(members, kept)):
        p, (outputs, atoms) = member.found.state.posterior, member.problem.pairs(member.found.state.active)
        before, unit = sum(map(len, kept[:i])), member.setting.share / member.problem.design.scale[atoms]
        at = outputs * m + rank[before + np.searchsorted(own, atoms)]
        mean[at] += unit * p.mean
        prior[at] += unit**2 / p.alpha
        root[at, begin : begin + size[i]] = unit[:, None] * p.root
        begin += size[i]
    there = np.flatnonzero(prior)
    return whole.take(first[order]), (there // m, there % m, mean[there], root[there], prior[there])
