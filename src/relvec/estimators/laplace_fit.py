"""Fits of classes and counts under the Laplace approximation: all outputs side by side, whole or in subsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from relvec.basis import Basis
from relvec.design import (
    MODEL_BYTES_PER_ROW,
    DenseDesign,
    LaplaceDesign,
    device_scan_design,
    max_scan_atoms,
    scan_design,
)
from relvec.design.order import content_ranks
from relvec.estimators.dictionary import learned_widths, moved_centres, row_copies
from relvec.estimators.outcome import history_table
from relvec.estimators.subsets import cut_short, in_subsets, of_some, thinned_start, unhurried
from relvec.estimators.units import scaled_rates
from relvec.estimators.warm_start import laplace_start, last_fit
from relvec.hyperparameters.targets import LaplaceTarget
from relvec.hyperparameters.widths import Learned
from relvec.inference.likelihoods import Likelihood
from relvec.inference.predictive import LatentPredictor
from relvec.inference.priors import GammaPrior
from relvec.runtime import checkpoint
from relvec.runtime.arrays import Device, unique_rows
from relvec.runtime.memory import memory_left, release_memory
from relvec.runtime.progress import run_in_current_context, stage
from relvec.runtime.threads import one_thread
from relvec.solvers import Result, Sequential, as_solver
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.search import solve_laplace

_MODEL_ATOMS = 500  # atoms whose scans take as long as the models of a subset


@dataclass(frozen=True, eq=False)
class LaplaceFit:
    """A fit of classes or counts, on scaled columns."""

    result: Result
    problem: LaplaceProblem

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Output and atom of each weight (k,)."""
        return self.problem.pairs(self.result.state.active)

    @property
    def model(self) -> tuple[np.ndarray, np.ndarray]:
        """Units and their precisions."""
        return self.result.state.active, self.result.state.posterior.alpha[:: self.problem.per_unit]

    @property
    def unit(self) -> float:
        """Unit of the target: classes and counts are not scaled."""
        return 1.0

    @property
    def scale(self) -> np.ndarray:
        """Norms of the basis functions (M,)."""
        return self.problem.design.scale

    @property
    def log_evidence(self) -> float:
        """Laplace evidence, complete."""
        return self.result.state.posterior.log_evidence + self.problem.shift

    def history(self, rows: np.ndarray) -> np.ndarray:
        """The history (structured array); rows (M,) are the atoms' training rows."""
        return history_table(self.result.history, rows, 0.0, np.nan)

    def latent(self, basis: Basis, atoms: np.ndarray) -> LatentPredictor:
        """The fitted latent functions over the given atoms, a superset of the fit's own."""
        outputs, own = self.pairs
        rank = np.argsort(atoms)
        places = rank[np.searchsorted(atoms, own, sorter=rank)]
        p = self.result.state.posterior
        scale = self.problem.design.scale[atoms]
        return LatentPredictor(basis, scale, self.problem.K, outputs, places, p.mean, p.root)


def merge_rows(X: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows of X in lexicographic order, with the mean of their targets (n, K) and the sum of their weights.

    Exact for likelihoods whose logarithm is linear in t, but for a constant.
    """
    rows, _, row_of = unique_rows(X)
    size = np.bincount(row_of, weights)
    mean = np.stack([np.bincount(row_of, weights * t) for t in targets.T], axis=1) / size[:, None]
    return rows, mean, size


def laplace_prior(estimator) -> tuple[GammaPrior, Any]:
    """The hyperprior and the solver of a fit of classes or counts."""
    prior, solver = estimator._hyperprior(), as_solver(estimator.solver)
    if prior.on_noise:
        raise ValueError("classes and counts have no noise variance: leave c and d of the hyperprior at 0")
    if prior.on_weights and isinstance(solver, Sequential):
        raise ValueError(
            "the sequential solver has no closed form for a hyperprior on the weight precisions (a, b); "
            "use solver='mackay' or solver='em', or leave a and b at 0"
        )
    return prior, solver


def fit_laplace(
    estimator, basis: Basis, free: np.ndarray, X: np.ndarray, targets: list[np.ndarray], weights: np.ndarray,
    likelihood: Likelihood, share: bool = False, place: Device | None = None,
) -> tuple[list[LaplaceFit], Basis, Learned | None, tuple | None]:  # fmt: skip
    """Maximise the Laplace evidence for each target, (N,) or (N, K), over one dictionary on the rows X (N, d).

    What is as long as the rows lives at ``place``, a device, where one is given. Also returns the dictionary with the
    parameters marked in ``free`` (p,) learned, and how; and, where centres have moved, what `store_centres` asks for.
    """
    prior, solver = laplace_prior(estimator)
    width = targets[0].shape[1] if targets[0].ndim == 2 else 1
    raw = np.column_stack(targets)
    if isinstance(estimator.kernel, str) and estimator.kernel == "precomputed":
        rows, mean, size = X, raw, weights
    else:
        rows, mean, size = merge_rows(X, raw, weights)
    merged = [mean[:, i * width : (i + 1) * width] for i in range(len(targets))]
    seeds = check_random_state(estimator.random_state).randint(2**31, size=len(targets))
    problems = [
        LaplaceProblem(
            design=DenseDesign(np.zeros((1, 0))),
            target=t if target.ndim == 2 else np.ascontiguousarray(t[:, 0]),
            weights=size,
            likelihood=likelihood,
            order=np.zeros(0, dtype=np.intp),
            share=share,
            bias=basis.n_atoms - 1 if estimator.fit_intercept else -1,
            shift=likelihood.constant(target, weights) - likelihood.constant(t if target.ndim == 2 else t[:, 0], size),
            tol=float(estimator._tol),
            rng=np.random.default_rng(seed),
        )
        for t, target, seed in zip(merged, targets, seeds, strict=True)
    ]
    learned, starts = None, [None] * len(problems)
    if free.any():
        learned = learned_widths(estimator, basis, free, rows, [LaplaceTarget(p, basis.n_atoms) for p in problems])
        basis, starts = learned.basis, learned.models
    earlier = None if learned is not None else last_fit(estimator, basis, raw.shape[1])

    def searched(
        part: Basis, design: LaplaceDesign, starts: list, first: bool, restarting: bool = True
    ) -> list[LaplaceFit]:
        order, b = content_ranks(part, design.scale), scaled_rates(prior, design.scale)
        own = [
            replace(problem, design=design, order=order, start=start, prior=prior, prior_b=b,
                    bias=part.n_atoms - 1 if estimator.fit_intercept else -1)
            for problem, start in zip(placed, starts, strict=True)
        ]  # fmt: skip
        if first and earlier is not None and part is basis:
            rows_of = [earlier[1][i * width : (i + 1) * width] for i in range(len(own))]
            own = [replace(p, start=laplace_start(p, earlier[0], a)) for p, a in zip(own, rows_of, strict=True)]
        on_few = (solver, part, rows) if first and place is None else None
        return laplace_fits(estimator, solver if first and restarting else unhurried(solver), own, on_few)

    placed = problems
    memory = memory_left(
        estimator.memory_limit, len(rows), row_copies(basis) + 3 * raw.shape[1] + 8, MODEL_BYTES_PER_ROW
    )
    if place is not None:
        placed = [replace(p, target=place.to_device(p.target), weights=place.to_device(p.weights)) for p in problems]

    def over(basis: Basis, starts: list) -> tuple[list[LaplaceFit], Basis]:
        design: LaplaceDesign | None
        with stage("kernel"):
            if place is not None:
                design = device_scan_design(basis, place.to_device(rows))
            else:
                design = scan_design(basis, rows, memory=memory)
        estimator.n_candidates_, estimator.n_subsets_ = basis.n_atoms, 1
        if design is not None:
            return searched(basis, design, starts, True), basis
        restarting = memory > 4 * MODEL_BYTES_PER_ROW * len(rows)  # the models of a restart are twice as large
        return laplace_in_subsets(
            estimator, basis, len(rows), starts, max_scan_atoms(len(rows), memory),
            lambda part: scan_design(part, rows, compression=False, memory=memory),
            partial(searched, restarting=restarting),
        )  # fmt: skip

    fits, basis = over(basis, starts)
    moved = None
    if estimator.centres != "data":
        targets_of = [LaplaceTarget(p, basis.n_atoms) for p in problems]
        basis, starts, moves = moved_centres(estimator, basis, rows, targets_of, [fit.model for fit in fits])
        if moves:
            earlier = None
            fits, basis = over(basis, starts)
        moved = rows, [LaplaceTarget(p, basis.n_atoms) for p in problems], [fit.model for fit in fits], moves
    return fits, basis, learned, moved


def laplace_in_subsets(
    estimator, basis: Any, n_rows: int, starts: list, size: int, designed: Callable, searched: Callable
) -> tuple[list[LaplaceFit], Basis]:
    """Fit over a dictionary in subsets of ``size`` atoms; also the part of it that came last.

    ``designed(part)`` is the design of a part, ``searched(part, design, starts, first)`` fits over it.
    """
    M, part = basis.n_atoms, basis
    fits: list[LaplaceFit] = []
    given = [np.zeros(0, dtype=np.intp), *(s[0] % M for s in starts if s is not None)]

    def run(atoms: np.ndarray, first: bool) -> tuple[np.ndarray, bool, bool]:
        nonlocal fits, part, starts
        place = np.full(M, -1)
        place[atoms] = np.arange(len(atoms))
        part = basis.take(atoms)
        local = [None if s is None else (s[0] // M * len(atoms) + place[s[0] % M], s[1]) for s in starts]
        before = [f.result.state.objective for f in fits] or [-np.inf] * len(starts)
        fits = []  # their dictionary goes before the next one comes
        release_memory()
        fits = searched(part, designed(part), local, first)
        states = [f.result.state for f in fits]
        gained = any(s.objective > b + estimator._tol for s, b in zip(states, before, strict=True))
        units = [s.active // len(atoms) * M + atoms[s.active % len(atoms)] for s in states]
        starts = [(u, s.posterior.alpha[:: f.problem.per_unit]) for u, s, f in zip(units, states, fits, strict=True)]
        return np.concatenate(units) % M, gained, any(cut_short(f.result) for f in fits)

    work = 2000.0 * n_rows * (size + _MODEL_ATOMS)
    estimator.n_candidates_, estimator.n_subsets_, complete = in_subsets(basis, size, np.concatenate(given), work, run)
    return fits if complete else [replace(f, result=of_some(f.result)) for f in fits], part


def laplace_fits(estimator, solver, problems: list[LaplaceProblem], on_few: tuple | None = None) -> list[LaplaceFit]:
    """Search each of the problems, side by side; ``on_few`` is what `thinned_start` asks for."""
    run, max_iter, logs = (
        delayed(run_in_current_context(_search_laplace)),
        int(estimator.max_iter),
        int(estimator._logs),
    )
    with one_thread():
        results = Parallel(n_jobs=estimator.n_jobs, prefer="threads")(
            run(i, solver, problem, max_iter, logs, on_few) for i, problem in enumerate(problems)
        )
    return [LaplaceFit(result, problem) for result, problem in zip(results, problems, strict=True)]


def _search_laplace(
    output: int, solver, problem: LaplaceProblem, max_iter: int, verbose: int, on_few: tuple | None
) -> Result:
    with stage("search", shift=problem.shift), checkpoint.section(f"output {output}"):
        start = None if on_few is None else thinned_start(on_few[0], problem, on_few[1], on_few[2], max_iter)
        if start is not None:
            problem = replace(problem, start=start)
        return solve_laplace(solver, problem, max_iter, verbose)
