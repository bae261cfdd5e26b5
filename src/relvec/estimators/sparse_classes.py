"""The fit of ``RVC()`` as it comes: sparse models of classes, averaged, as the record of a relevance vector machine."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.basis import Basis, Concat
from relvec.estimators.assemble import HISTORY, caller_level, check_representable, describe_widths, is_linear, slopes
from relvec.estimators.options import MachineOptions
from relvec.estimators.records import FittedRVM
from relvec.estimators.sources import MemorySource
from relvec.inference.predictive import LatentClasses, LatentPredictor
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import stage
from relvec.runtime.record import Brief
from relvec.solvers import Status
from relvec.sparse.classes import ClassMember, SparseClasses, fit_sparse_classes
from relvec.sparse.dictionary import LearnedWidths


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
            clock=options.clock,
        )  # fmt: skip
    status = _status(fit)
    if not status.success:
        cut = f" (cut short: {', '.join(fit.cut)})" if fit.cut else ""
        warnings.warn(f"{status.name}: {status.value}{cut}.", ConvergenceWarning, stacklevel=caller_level())
    return _assemble(source, fit, status, averaged)


def _status(fit: SparseClasses) -> Status:
    if fit.cut or fit.stopped:
        return Status.INTERRUPTED if fit.stopped else Status.TIME_LIMIT
    return Status.HELD_OUT if fit.settings[0].levels else fit.members[0].found.status


def _assemble(source: MemorySource, fit: SparseClasses, status: Status, averaged: bool) -> FittedRVM:
    basis, sums = add_members(fit.members, source.n_features)
    outputs, places, mean, root, prior = sums
    K, m = fit.members[0].problem.K, basis.n_atoms
    weights, alpha, gamma = np.zeros((K, m)), np.full((K, m), np.inf), np.zeros((K, m))
    weights[outputs, places], alpha[outputs, places] = mean, 1.0 / prior
    gamma[outputs, places] = 1.0 - np.einsum("ij,ij->i", root, root) / prior
    check_representable(mean, root, prior, 1.0 / prior)
    function = LatentPredictor(basis, np.ones(m), K, outputs, places, mean, root)
    widths, linear = describe_widths(basis, source.feature_variances()), is_linear(basis)
    constant = np.array([name == "bias" for name in basis.labels()], dtype=float)
    results = [member.found for member in fit.members]
    most = max(fit.members, key=lambda member: member.setting.share)
    return FittedRVM(
        basis=basis,
        functions=[function],
        predictors=[],
        classifier=LatentClasses((function,), averaged, fit.slope),
        weights=weights,
        alpha=alpha,
        gamma=gamma,
        intercept=weights @ (basis(np.zeros((1, source.n_features)))[0] if linear else constant),
        coef=slopes(basis, weights, source.n_features) if linear else None,
        noise_variance=np.array([np.nan]),
        log_evidence=np.array([most.found.state.posterior.log_evidence]),
        certificate=np.array([max(float(found.state.largest_gain) for found in results)]),
        n_iter=np.array([fit.n_steps]),
        status=[status.name.lower()],
        history=[np.zeros(0, dtype=HISTORY)],
        relevance_vectors=source.given[np.unique(basis.rows[basis.rows >= 0])],
        n_candidates=max(setting.basis.n_atoms for setting in fit.settings),
        choices=[ClassChoice.of(fit)],
        width_rule="process" if widths else None,
        single=source.single,
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
