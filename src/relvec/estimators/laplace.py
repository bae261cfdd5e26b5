"""Searches of classes and counts under the Laplace approximation: all outputs side by side, whole or in subsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec.basis import Basis, content_ranks, is_inputs, kernels_of
from relvec.design import (
    DenseDesign,
    LaplaceDesign,
    Samples,
    centre_columns,
)
from relvec.estimators.assemble import linear_predictor, offset_shares, tabulate_history
from relvec.estimators.options import MachineOptions
from relvec.estimators.pipeline import Found, MachineSearch
from relvec.estimators.refit import refit, replace_posterior
from relvec.estimators.sources import MemorySource, Sample, Source
from relvec.estimators.sources.base import output_target, scaled_precisions, scaled_rates
from relvec.gaussian_process.classes.rows import DistinctRows
from relvec.hyperparameters.targets import LaplaceTarget
from relvec.inference.error_bars import FOLDS
from relvec.inference.likelihoods import Likelihood, Poisson
from relvec.inference.predictive import (
    Augmented,
    AugmentedLatentPredictor,
    CountPredictor,
    LatentClasses,
    LatentPredictor,
)
from relvec.inference.prior_rows import NO_PRIOR_ROWS, PriorRows
from relvec.kernels import Kernel
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import share_of_work, stage
from relvec.solvers import Sequential
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.laplace.solve import solve_laplace
from relvec.solvers.loop import Result, Solver, Status
from relvec.sparse.class_levels import make_class_problem, search_at
from relvec.sparse.class_shares import as_result, count_copies_once, judge_classes
from relvec.sparse.classes import order_rows
from relvec.sparse.lines import SEARCHED_NUMBERS

_SEARCH_SHARE = 0.6  # of the time that is left, where weights by all rows follow a search on a draw
MODEL_BYTES_PER_ROW = 3200  # in the models of a search: eight arrays of fifty columns


@dataclass(frozen=True, eq=False)
class LaplaceFit:
    """A fit of classes or counts, on scaled columns."""

    result: Result
    problem: LaplaceProblem
    slope: float = 1.0  # of the log-odds of classes, as rows that took no part ask for

    @property
    def n_functions(self) -> int:
        """Number of latent functions."""
        return self.problem.K

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Function and atom of each weight (k,)."""
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
    def offset(self) -> np.ndarray | None:
        """Multiples of the constant that were taken from the columns (M,), or None."""
        return self.problem.design.offset

    @property
    def log_evidence(self) -> float:
        """Laplace evidence, complete."""
        return self.result.state.posterior.log_evidence + self.problem.shift

    def history(self, rows: np.ndarray) -> np.ndarray:
        """Return the history (structured array); rows (M,) are the atoms' training rows."""
        return tabulate_history(self.result.history, rows, 0.0, np.nan)

    def latent(self, basis: Basis, atoms: np.ndarray) -> LatentPredictor:
        """Return the fitted latent functions over the given atoms, a superset of the fit's own."""
        outputs, own = self.pairs
        rank = np.argsort(atoms)
        places = rank[np.searchsorted(atoms, own, sorter=rank)]
        p, K = self.result.state.posterior, self.problem.K
        mean, root = p.mean, p.root
        if self.offset is not None:
            outputs, places, mean, root = self._at_origin(atoms, outputs, places, mean, root)
        return LatentPredictor(basis, self.scale[atoms], K, outputs, places, mean, root)

    def _at_origin(
        self, atoms: np.ndarray, outputs: np.ndarray, places: np.ndarray, mean: np.ndarray, root: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Return weights (k,) of centred columns as those of columns as given: the constant of every output, the last
        atom, takes up the means.
        """
        last, share = len(atoms) - 1, np.append(offset_shares(self, atoms), 0.0)
        without = np.setdiff1d(np.arange(self.problem.K), outputs[places == last])
        outputs, places = np.append(outputs, without), np.append(places, np.full(len(without), last))
        mean, root = np.append(mean, np.zeros(len(without))), np.vstack([root, np.zeros((len(without), root.shape[1]))])
        for i in np.flatnonzero(places == last):
            own = share[places] * (outputs == outputs[i])
            mean[i], root[i] = mean[i] - own @ mean, root[i] - own @ root
        return outputs, places, mean, root


@dataclass(frozen=True, eq=False)
class LaplaceSearch(MachineSearch):
    """The search for models of classes or counts."""

    options: MachineOptions
    source: Source  # the rows, equal ones merged; ``given`` has them as given
    given: Source
    likelihood: Likelihood  # of each of the problems
    problems: list[LaplaceProblem]  # the problem of each output, without its design
    labels: tuple[str, ...]  # the names of the outputs in front of warnings
    averaged: bool  # whether probabilities are averaged over the posterior
    memory: float  # bytes for the dictionary

    @classmethod
    def of(
        cls, options: MachineOptions, source: Source, basis: Basis, likelihood: Likelihood, share: bool = False,
        labels: tuple[str, ...] = (), averaged: bool = True,
    ) -> LaplaceSearch:  # fmt: skip
        """Return the search for the models of a source; ``share`` is for classes that share their precisions."""
        check_prior(options)
        merged, K = source.merged(), likelihood.n_outputs
        whole = merged if source.all_samples is None else source
        means = whole.mean_targets()
        problems = []
        for output, seed in enumerate(options.seeds(source.n_targets // K)):
            target, weights = merged.columns(output, K)
            own = means[output * K : (output + 1) * K]
            prior = replace(_prior_rows(options.solver, own, whole.weight, likelihood), weight=merged.weight)
            shift = 0.0
            if isinstance(target, np.ndarray):
                shift = likelihood.constant(*source.columns(output, K)) - likelihood.constant(target, weights)
            problem = LaplaceProblem(
                DenseDesign(np.zeros((1, 0))),
                prior.shrink(target),
                weights,
                likelihood,
                np.zeros(0, dtype=np.intp),
                share=share,
                prior_rows=prior,
                shift=shift,
                tol=options.tol,
                price=options.price_among(basis.n_atoms),
                most_functions=options.max_functions,
                bias=basis.n_atoms - 1 if options.fit_intercept else -1,
                rng=np.random.default_rng(seed),
                clock=options.clock if source.all_samples is None else options.clock.part(_SEARCH_SHARE),
            )
            problems.append(problem)
        memory = merged.memory_left(options, basis, 3 * source.n_targets + 8, MODEL_BYTES_PER_ROW)
        return cls(options, merged, source, likelihood, problems, labels, averaged, memory)

    @property
    def of_counts(self) -> bool:
        """Whether the targets are counts."""
        return isinstance(self.likelihood, Poisson)

    @property
    def varies(self) -> bool:
        return True

    @property
    def can_move_centres(self) -> bool:
        return True

    def label(self, output: int) -> str:
        return self.labels[output] if self.labels else ""

    def targets_on(self, sample: Sample, n_atoms: int) -> list:
        problems = [self._on_rows(p, i, sample.targets, sample.weights) for i, p in enumerate(self.problems)]
        return [LaplaceTarget(problem, n_atoms) for problem in problems]

    def _on_rows(
        self, problem: LaplaceProblem, output: int, targets: np.ndarray, weights: np.ndarray
    ) -> LaplaceProblem:
        """Return a problem on some rows (n,) with targets (n, q)."""
        target = problem.prior_rows.shrink(output_target(targets, output, self.likelihood.n_outputs))
        return replace(problem, target=target, weights=weights)

    def run(self, dictionary: Basis, starts: list | None = None) -> Found:
        with stage("kernel"):
            atoms, design = self.source.scan(dictionary, self.memory, self.atoms_of(starts, dictionary.n_atoms))
        part, starts = self.begin(dictionary, starts, atoms)
        if self.options.fit_intercept and isinstance(design, DenseDesign) and is_inputs(part):
            design = centre_columns(design, part.n_atoms - 1, self.problems[0].weights)
        with one_thread():
            begin = self.options.clock.left()
            fits = [self._fit_output(*each, part) for each in enumerate(self.problems_on(part, design, starts))]
            if self.options.floored and not self.of_counts:
                seconds = (begin - self.options.clock.left()) / len(fits) if begin < np.inf else 0.0
                fits = [self._hold_against_shares(*each, seconds) for each in enumerate(fits)]
        samples = self.given.all_samples
        return Found(fits if samples is None else self._refit(fits, part, samples), part)

    def problems_on(self, part: Basis, design: LaplaceDesign, starts: list | None = None) -> list[LaplaceProblem]:
        """Return the problem of each output over a dictionary."""
        options, prior = self.options, self.options.prior
        order, b = content_ranks(part, design.scale), scaled_rates(prior, design.scale)
        bias = part.n_atoms - 1 if options.fit_intercept else -1
        earlier = options.earlier if starts is None else None
        found = None if earlier is None else earlier.find_in(part, self.source.n_targets)
        problems, K = [], self.likelihood.n_outputs
        for output, problem in enumerate(self.problems):
            start = None if starts is None else starts[output]
            problem = replace(problem, design=design, order=order, prior=prior, prior_b=b, bias=bias, start=start)
            if found is not None:
                start = _start_from(problem, found[0], found[1][output * K : (output + 1) * K])
                problem = replace(problem, start=start)
            problems.append(problem)
        return problems

    def _fit_output(self, output: int, problem: LaplaceProblem, part: Basis) -> LaplaceFit:
        share = share_of_work(output, len(self.problems))
        with one_thread(), share, stage("search", shift=problem.shift):
            result = solve_laplace(self.options.solver, problem, self.options.max_iter, int(self.options.logs_steps))
        return LaplaceFit(result, problem)

    def _hold_against_shares(self, output: int, fit: LaplaceFit, seconds: float) -> LaplaceFit:
        """Return the fit of an output, or that of the shares of its classes where these predict rows left out better.

        ``seconds`` were those of its search.
        """
        found, problem = self.source.dense(SEARCHED_NUMBERS), fit.problem
        late = self.options.clock.left() < (FOLDS + 1) * seconds
        if found is None or found[0].size > SEARCHED_NUMBERS or late or fit.result.status is not Status.CONVERGED:
            return fit
        target, weights = self.source.columns(output, problem.K)
        target = target if problem.K > 1 else np.column_stack([1.0 - target, target])
        rows = order_rows(DistinctRows(found[0], target * weights[:, None], found[3]))[0]
        centre = np.append(rows.weight @ rows.X / rows.weight.sum(), 0.0)
        Phi = np.column_stack([rows.X, np.ones(len(rows))]) - centre

        def problem_of(few: DistinctRows, kept: np.ndarray) -> LaplaceProblem:
            fold = make_class_problem(Phi[kept], few, clock=self.options.clock)
            return replace(fold, price=problem.price, share=problem.share, most_functions=problem.most_functions)

        verdict = judge_classes(rows, problem_of, Phi, lambda fold: search_at(fold, problem.price))
        slope = verdict.slope if len(self.problems) == 1 and self.averaged else 1.0
        if verdict.baseline is None:
            return replace(fit, slope=slope)
        whole = problem_of(count_copies_once(rows), np.arange(len(rows)))
        result = as_result(verdict.baseline(whole))
        whole.design.offset = centre
        return LaplaceFit(result, whole, slope)

    def _refit(self, fits: list[LaplaceFit], part: Basis, samples: Samples) -> list[LaplaceFit]:
        """Return the fits to a draw with precisions, weights and evidence of all rows."""
        K, clock, weight = self.likelihood.n_outputs, self.options.clock, self.given.weight
        return [
            replace_posterior(fit, refit(fit, part, samples, output, K, weight, clock))
            for output, fit in enumerate(fits)
        ]

    def renumber(self, model: tuple, to: np.ndarray, n_atoms: int, n_new: int) -> tuple:
        return model[0] // n_atoms * n_new + to[model[0] % n_atoms], model[1]

    def atoms(self, model: tuple, n_atoms: int) -> np.ndarray:
        return model[0] % n_atoms

    def predictor(self, fit: LaplaceFit, basis: Basis, atoms: np.ndarray) -> Any:
        return (linear_predictor if self.of_counts else LaplaceFit.latent)(fit, basis, atoms)

    def predictive(self, fits: list, functions: Sequence, alpha: np.ndarray, basis: Basis) -> dict[str, Any]:
        if self.of_counts:
            return {"predictors": [CountPredictor(function) for function in functions]}
        spec, found = self.options.predictive, list(functions)
        if spec is not None:
            assert isinstance(self.given, MemorySource)
            X, kernel, problems = self.given.X, kernels_of(basis)[0], enumerate(self.problems)
            given = [self._on_rows(p, i, self.given.targets, self.given.weights) for i, p in problems]
            found = [
                augment_latent(spec, model, kernel, X, problem.target, problem.weights, self.likelihood)
                for model, problem in zip(found, given, strict=True)
            ]
        return {"predictors": [], "classifier": LatentClasses(tuple(found), self.averaged, fits[0].slope)}


def _start_from(problem: LaplaceProblem, atoms: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Units and their precisions to start from, for atoms (k,) and the precisions (K, k) each output had for them."""
    found = [scaled_precisions(problem.design.scale, atoms, row) for row in (alpha[:1] if problem.share else alpha)]
    units = [own + c * problem.design.n_atoms for c, (own, _) in enumerate(found)]
    return np.concatenate(units), np.concatenate([precisions for _, precisions in found])


def _prior_rows(solver: Solver, means: np.ndarray, weight: float, likelihood: Likelihood) -> PriorRows:
    """Return the rows of base rates that a search of classes with targets of such means (K,) has besides the data."""
    if isinstance(solver, Sequential) and not isinstance(likelihood, Poisson):
        return PriorRows.of(means if len(means) > 1 else means[0], weight, solver.prior_rows)
    return NO_PRIOR_ROWS


def check_prior(options: MachineOptions) -> None:
    """Refuse a hyperprior that classes and counts cannot have."""
    if options.prior.on_noise:
        raise ValueError("classes and counts have no noise variance: leave c and d of the hyperprior at 0")


def augment_latent(
    spec: Augmented, latent: LatentPredictor, kernel: Kernel, X: np.ndarray, target: np.ndarray, weights: np.ndarray,
    likelihood: Likelihood,
) -> LatentPredictor | AugmentedLatentPredictor:  # fmt: skip
    """RVM* of one model on its training rows X (n, d); the model itself where its functions are constant."""
    f, K = latent.moments(X, False)[0], latent.n_outputs
    share = weights / weights.sum()
    variance = float(np.mean(share @ (f - share @ f) ** 2)) if spec.alpha is None else 1.0 / float(spec.alpha)
    if variance == 0.0:
        return latent
    r, W = likelihood.working(target, f[:, 0] if K == 1 else f, weights)
    if K == 1:
        r, curvature = r[:, None], W[:, None, None]
    else:
        curvature = weights[:, None, None] * (W[:, :, None] * np.eye(K) - W[:, :, None] * W[:, None, :])
    return AugmentedLatentPredictor(latent, kernel, X, r, curvature, 1.0 / variance)
