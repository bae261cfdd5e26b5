"""Fits of classes and counts to rows that Dask holds: the same search, its rows on the workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from relvec.basis import Basis, Concat, KernelBasis
from relvec.design import (
    MIN_ROWS_TO_COMPRESS,
    Block,
    DaskSamples,
    DaskScanDesign,
    DenseDesign,
    DistributedKernelBasis,
    Lookup,
    aligned_labels,
    count_labels,
    gathered,
    label_weights,
    max_gram_atoms,
    memberships,
    scan_basis,
    scan_rows,
)
from relvec.design.order import content_ranks
from relvec.estimators.dask_regression import (
    FEW,
    check_dask,
    dictionary_of,
    kept_rows,
    lifted_atoms,
    renumbered_history,
)
from relvec.estimators.dictionary import learned_widths, store_centres, store_widths
from relvec.estimators.laplace_fit import LaplaceFit, laplace_fits, laplace_in_subsets, laplace_prior, merge_rows
from relvec.estimators.outcome import warn_unless_converged
from relvec.estimators.subsets import MANY_ROWS, Entries, stages, start_on_few, unhurried
from relvec.estimators.units import scaled_rates
from relvec.hyperparameters.targets import LaplaceTarget
from relvec.hyperparameters.widths import Learned
from relvec.inference.likelihoods import Bernoulli, Categorical, Likelihood, Poisson
from relvec.inference.process import as_predictive
from relvec.runtime.memory import memory_bytes
from relvec.runtime.progress import stage
from relvec.solvers import Sequential
from relvec.solvers.laplace.problem import LaplaceProblem

_PART = 2000  # atoms of a subset, which every scan evaluates on all rows


def fit_classes_on_workers(model: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit a classifier to collections of Dask."""
    check_dask(model)
    if as_predictive(model.predictive) is not None:
        raise ValueError("rows of Dask are fitted for predictive='rvm' only: RVM* keeps its training rows")
    model._check_numbers()
    labels = aligned_labels(X, y)
    classes, counts = count_labels(labels, check_classification_targets)
    if counts.sum() <= FEW:
        model._fit(*gathered(X, y, sample_weight))
        return
    model._check_choices()
    if len(classes) < 2:
        raise ValueError(f"a classifier needs at least 2 classes in y, got only one class: {classes.tolist()}")
    weights = sample_weight
    if model.class_weight is not None:
        factors = _class_factors(model.class_weight, classes, counts)
        weights = label_weights(labels, X, sample_weight, classes, factors)
    samples = DaskSamples(X, memberships(labels, classes), weights)
    if np.count_nonzero(samples.reduce(_present, np.logical_or)) < 2:
        raise ValueError("at least 2 classes need samples of positive weight: check sample_weight and class_weight")
    model._store_features(samples.n_features, samples.names)
    joint = len(classes) > 2 and model.multi_class == "multinomial"
    likelihood: Likelihood = Categorical(len(classes)) if joint else Bernoulli()
    found = _fitted(model, samples, likelihood, share=joint and bool(model.share_alpha))
    for i, fit in enumerate(found.fits):
        where = f"class {classes[i]!r} against the rest: " if len(found.fits) > 1 else ""
        warn_unless_converged(fit.result, model._tol, where)
    model.classes_ = classes
    model._store(found.basis, kept_rows(found.basis, samples), found.fits)
    found.store_rest(model, samples)


def fit_counts_on_workers(model: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit a regressor with likelihood="poisson" to collections of Dask."""
    samples = DaskSamples(X, y, sample_weight)
    if samples.n_rows <= FEW:
        model._fit(*gathered(X, y, sample_weight))
        return
    model._check_counts(samples.reduce(_whole_numbers, _both))
    model._forget_parts()
    model._store_features(samples.n_features, samples.names)
    model._of_counts, model._single = True, samples.single
    found = _fitted(model, samples, Poisson())
    for i, fit in enumerate(found.fits):
        warn_unless_converged(fit.result, model._tol, "" if samples.single else f"output {i}: ")
    model._store_counts(found.basis, kept_rows(found.basis, samples), found.fits, samples.single)
    found.store_rest(model, samples)


def _present(block: Block) -> np.ndarray:
    """Which classes some rows have."""
    members = block.targets if block.targets.shape[1] > 1 else np.column_stack([1.0 - block.targets, block.targets])
    return np.asarray(members.any(axis=0))


def _whole_numbers(block: Block) -> bool:
    return bool(np.all(block.targets >= 0.0) and np.all(block.targets == np.floor(block.targets)))


def _both(a: bool, b: bool) -> bool:
    return a and b


def _class_factors(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """What class_weight multiplies the weights of each class (K,) with."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(classes) * counts)
    return compute_class_weight(class_weight, classes=classes, y=classes)


@dataclass(frozen=True, eq=False)
class _Found:
    """Fits over a small dictionary, of the ``seen`` candidates that were looked at."""

    fits: list[LaplaceFit]
    basis: Basis
    learned: Learned | None
    seen: int

    def store_rest(self, model: Any, samples: DaskSamples) -> None:
        """The attributes that tell of candidates, widths and centres."""
        model.n_candidates_ = self.seen
        d, statistics = samples.n_features, samples.statistics
        store_widths(model, self.basis, statistics.spread[:d] ** 2 / statistics.weight, self.learned)
        store_centres(model, self.basis, None, [], [], [])


def _fitted(model: Any, samples: DaskSamples, likelihood: Likelihood, share: bool = False) -> _Found:
    """Maximise the Laplace evidence for each target of the samples, over one dictionary."""
    prior, solver = laplace_prior(model)
    samples, K = samples.persisted(), likelihood.n_outputs
    n_targets, memory = samples.n_targets // K, memory_bytes(model.memory_limit)
    seeds = check_random_state(model.random_state).randint(2**31, size=n_targets)
    blank = DenseDesign(np.zeros((1, 0)))
    problems = [
        LaplaceProblem(
            design=blank, target=slice(i * K, i * K + K), weights=1.0, likelihood=likelihood,
            order=np.zeros(0, dtype=np.intp), share=share, tol=float(model._tol), rng=np.random.default_rng(seed),
        )
        for i, seed in enumerate(seeds)
    ]  # fmt: skip
    few = _Few(problems, K, bool(model.fit_intercept))

    def learn(basis: Basis, free: np.ndarray, drawn: Any) -> tuple[Learned, list[Entries | None]]:
        rows, own = few.of(drawn)
        learned = learned_widths(model, basis, free, rows, [LaplaceTarget(p, basis.n_atoms) for p in own])
        starts = [None if m is None else _entries(learned.basis, rows, m, drawn, samples) for m in learned.models]
        return learned, starts

    basis, on_rows, learned, starts = dictionary_of(model, samples, learn)
    starts = [None] * n_targets if learned is None else starts
    if on_rows and not isinstance(solver, Sequential):
        raise ValueError(
            "with Dask and a kernel on every row the solver must be 'sequential'; over given centres "
            "(relvec.basis.KernelBasis(kernel, centres=Z)) any will do"
        )

    def searched(
        part: Basis | DistributedKernelBasis, design: DaskScanDesign, starts: list, first: bool
    ) -> list[LaplaceFit]:
        whole = isinstance(part, DistributedKernelBasis)
        order: Any = Lookup(part.n_atoms, part.order) if whole else content_ranks(part, design.scale)  # type: ignore[arg-type, union-attr]
        b = None if whole else scaled_rates(prior, design.scale)
        own = [
            replace(problem, design=design, order=order, start=start, prior=prior, prior_b=b,
                    bias=part.n_atoms - 1 if model.fit_intercept else -1)
            for i, (problem, start) in enumerate(zip(problems, starts, strict=True))
        ]  # fmt: skip
        return laplace_fits(model, solver if first else unhurried(solver), own)

    dictionary: Any = DistributedKernelBasis(basis, on_rows[0], samples) if on_rows else basis
    model.n_subsets_ = 1
    with stage("kernel"):
        dictionary, design = _designed(dictionary, samples, memory)
    if on_rows and not isinstance(dictionary, DistributedKernelBasis):
        starts = [None] * n_targets  # they are numbered by rows
    if samples.n_rows > MANY_ROWS and isinstance(solver, Sequential) and not any(starts):
        starts = few.starts(solver, dictionary, samples, int(model.max_iter))
    if design is not None:
        scale = design.scale
        fits = searched(dictionary, design, [_as_units(s, scale, dictionary.n_atoms) for s in starts], True)
        if isinstance(dictionary, DistributedKernelBasis):
            small, fits = _small(dictionary, fits, model.fit_intercept)
            return _Found(fits, small, learned, dictionary.n_atoms)
        return _Found(fits, dictionary, learned, dictionary.n_atoms)
    size = int(np.clip(max_gram_atoms(samples.n_rows, memory), 64, _PART))
    fits, part = laplace_in_subsets(
        model, dictionary, samples.n_rows, [None] * n_targets, size, lambda part: scan_basis(part, samples), searched
    )
    return _Found(fits, part, learned, model.n_candidates_)


def _designed(dictionary: Any, samples: DaskSamples, memory: float) -> tuple[Any, DaskScanDesign | None]:
    """The design of a dictionary, None where it neither is short nor has a low rank.

    A kernel on rows of which few are distinct becomes one on those.
    """
    if not isinstance(dictionary, DistributedKernelBasis):
        return dictionary, scan_basis(dictionary, samples)
    rows = samples.distinct(_PART)
    design = scan_rows(dictionary, memory) if rows is None or len(rows) >= MIN_ROWS_TO_COMPRESS else None
    if design is None and rows is not None:
        few = dictionary.take(np.append(rows, samples.n_rows + np.arange(dictionary.n_others)))
        return few, scan_basis(few, samples)
    return dictionary, design


def _as_units(start: Entries | None, scale: Any, n_atoms: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Units and their precisions for columns divided by scale (M,)."""
    if start is None or not len(start[1]):
        return None
    outputs, atoms, alpha = start
    norms = scale[atoms]
    kept = norms > 0.0
    return (outputs * n_atoms + atoms)[kept], (alpha / np.where(kept, norms, 1.0) ** 2)[kept]


@dataclass(frozen=True, eq=False)
class _Few:
    """The same problems on a few rows that are brought here."""

    problems: list[LaplaceProblem]
    K: int
    intercept: bool

    def of(self, drawn: Any) -> tuple[np.ndarray, list[LaplaceProblem]]:
        """Distinct rows of a draw, and the problems there."""
        rows, mean, size = merge_rows(drawn.X, drawn.targets, drawn.weights)
        targets = [mean[:, i * self.K : i * self.K + self.K] for i in range(len(self.problems))]
        targets = [np.ascontiguousarray(t[:, 0]) if self.K == 1 else t for t in targets]
        return rows, [replace(p, target=t, weights=size) for p, t in zip(self.problems, targets, strict=True)]

    def starts(self, solver: Any, dictionary: Any, samples: DaskSamples, max_iter: int) -> list[Entries | None]:
        """Models of a few rows to start from."""
        starts: list[Entries | None] = [None] * len(self.problems)
        for size in stages(samples.n_rows):
            drawn = samples.draw(size)
            rows, problems = self.of(drawn)
            basis: Basis = dictionary
            if isinstance(dictionary, DistributedKernelBasis):
                own = KernelBasis(dictionary.kernel).bind(drawn.X)
                parts = [own if i == dictionary.part else q for i, q in enumerate(dictionary.basis.parts)]
                basis = Concat(tuple(parts), n_features=samples.n_features)
            atoms = np.arange(basis.n_atoms)
            if isinstance(dictionary, DistributedKernelBasis):
                atoms = lifted_atoms(basis, atoms, drawn.rows, samples.n_rows)
            bias = basis.n_atoms - 1 if self.intercept else -1
            found: list[Entries | None] = []
            for problem, start in zip(problems, starts, strict=True):
                with stage("search"):
                    few = start_on_few(solver, replace(problem, bias=bias), basis, rows, max_iter, samples.n_rows,
                                       None if start is None else _among(atoms, start))  # fmt: skip
                if few is None:
                    return starts
                found.append((few[0], atoms[few[1]], few[2]))
            starts, solver = found, unhurried(solver)
        return starts


def _among(atoms: np.ndarray, start: Entries) -> Entries:
    """A model with its atoms as places among those given (M,), without those that are not there."""
    order = np.argsort(atoms)
    place = order[np.minimum(np.searchsorted(atoms, start[1], sorter=order), len(atoms) - 1)]
    there = atoms[place] == start[1]
    return start[0][there], place[there], start[2][there]


def _entries(basis: Basis, rows: np.ndarray, model: tuple, drawn: Any, samples: DaskSamples) -> Entries:
    """A model of a draw (units, precisions for columns of unit norm on its rows) as one of all rows."""
    outputs, atoms = model[0] // basis.n_atoms, model[0] % basis.n_atoms
    columns = basis.take(atoms)(rows)
    alpha = model[1] * np.einsum("ij,ij->j", columns, columns)
    return outputs, lifted_atoms(basis, atoms, drawn.rows, samples.n_rows), alpha


def _small(
    dictionary: DistributedKernelBasis, fits: list[LaplaceFit], intercept: bool
) -> tuple[Basis, list[LaplaceFit]]:
    """The atoms that the fits came by as a dictionary, and the fits over that."""
    M = dictionary.n_atoms
    units = [np.array([step.atom for step in fit.result.history if step.atom >= 0], dtype=np.intp) for fit in fits]
    met = np.concatenate([*units, *(fit.result.state.active for fit in fits)]) % M
    visited = np.union1d(met, [M - 1] if intercept else []).astype(np.intp)

    def renumber(units: np.ndarray) -> np.ndarray:
        return units // M * len(visited) + np.searchsorted(visited, units % M)

    found = []
    for fit in fits:
        result, design = fit.result, DenseDesign.of(np.zeros((0, len(visited))), fit.problem.design.scale[visited])
        state = replace(result.state, active=renumber(result.state.active))
        result = replace(result, state=state, history=renumbered_history(result.history, renumber))
        found.append(LaplaceFit(result, replace(fit.problem, design=design)))
    return dictionary.take(visited), found
