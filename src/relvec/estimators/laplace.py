"""Searches of classes and counts under the Laplace approximation: all outputs side by side, whole or in subsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from relvec.basis import Basis, content_ranks, is_inputs, kernels_of
from relvec.design import (
    MAX_PASS_MULTIPLICATIONS,
    MODEL_BYTES_PER_ROW,
    DenseDesign,
    LaplaceDesign,
    centre_columns,
    scan_design,
)
from relvec.estimators.assemble import linear_predictor, offset_shares, tabulate_history
from relvec.estimators.options import MachineOptions
from relvec.estimators.pipeline import Found, Search, Task
from relvec.estimators.sources import LaplaceSource, MemorySource, Sample, Subsample
from relvec.estimators.sources.base import output_target, scaled_precisions, scaled_rates
from relvec.hyperparameters.targets import LaplaceTarget
from relvec.inference.likelihoods import Likelihood, Poisson
from relvec.inference.predictive import (
    Augmented,
    AugmentedLatentPredictor,
    CountPredictor,
    LatentClasses,
    LatentPredictor,
)
from relvec.kernels import Kernel
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import share_of_work, stage
from relvec.solvers import Result, Sequential
from relvec.solvers.laplace.outlook import most_promising
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem
from relvec.solvers.laplace.solve import solve_laplace
from relvec.solvers.subsets import without_restarts

MODEL_ATOMS = 500  # atoms whose scans take as long as the models of a subset
SCANS_A_SEARCH = 2000.0  # passes over the rows that the search of a subset is taken to need
LOOK_MULTIPLICATIONS = (
    60.0  # for a row and an atom: a kernel value, and its products with a model of some forty weights
)
# From so many rows on a search begins on a few of them, and then on more in steps of this factor: the search costs as
# many passes over the rows as it has steps, and a good start leaves a few additions.
MIN_ROWS_TO_SUBSAMPLE, SUBSAMPLE_ROWS, SUBSAMPLE_GROWTH = 20_000, 4000, 5

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # outputs, atoms and precisions in the units of the basis, (u,)


@dataclass(frozen=True, eq=False)
class LaplaceFit:
    """A fit of classes or counts, on scaled columns."""

    result: Result
    problem: LaplaceProblem

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
        """The history (structured array); rows (M,) are the atoms' training rows."""
        return tabulate_history(self.result.history, rows, 0.0, np.nan)

    def with_atoms(self, atoms: np.ndarray, result: Result) -> LaplaceFit:
        """The fit over a dictionary of some of its atoms; the result counts those."""
        design = DenseDesign.of(np.zeros((0, len(atoms))), self.scale[atoms])
        design.offset = None if self.offset is None else self.offset[atoms]
        return replace(self, result=result, problem=replace(self.problem, design=design))

    def latent(self, basis: Basis, atoms: np.ndarray) -> LatentPredictor:
        """The fitted latent functions over the given atoms, a superset of the fit's own."""
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
        """The weights (k,) of centred columns as those of the columns as given: the constant of every output, the last
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
class LaplaceSearch(Search):
    """The search for models of classes or counts."""

    options: MachineOptions
    source: LaplaceSource  # the rows, equal ones merged; ``given`` has them as given
    given: LaplaceSource
    likelihood: Likelihood  # of each of the problems
    problems: list[LaplaceProblem]  # the problem of each output, without its design
    labels: tuple[str, ...]  # the names of the outputs in front of warnings
    averaged: bool  # whether probabilities are averaged over the posterior
    memory: float  # bytes for the dictionary

    @classmethod
    def of(
        cls, options: MachineOptions, source: LaplaceSource, basis: Basis, likelihood: Likelihood, share: bool = False,
        labels: tuple[str, ...] = (), averaged: bool = True,
    ) -> LaplaceSearch:  # fmt: skip
        """The search for the models of a source; ``share`` is for classes that share their precisions."""
        check_prior(options)
        merged, K = source.merged(), likelihood.n_outputs
        problems = []
        for output, seed in enumerate(options.seeds(source.n_targets // K)):
            target, weights = merged.columns(output, K)
            shift = 0.0
            if isinstance(target, np.ndarray):
                shift = likelihood.constant(*source.columns(output, K)) - likelihood.constant(target, weights)
            problem = LaplaceProblem(
                DenseDesign(np.zeros((1, 0))),
                target,
                weights,
                likelihood,
                np.zeros(0, dtype=np.intp),
                share=share,
                shift=shift,
                tol=options.tol,
                price=options.price_among(basis.n_atoms),
                bias=basis.n_atoms - 1 if options.fit_intercept else -1,
                rng=np.random.default_rng(seed),
                clock=options.clock,
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
        """A problem on some rows (n,) with targets (n, q)."""
        return replace(problem, target=output_target(targets, output, self.likelihood.n_outputs), weights=weights)

    def run(self, dictionary: Any, starts: list | None = None) -> Found:
        with stage("kernel"):
            dictionary, design = self.source.scan(dictionary, self.memory)
        if design is None:
            size = self.source.subset_atoms(self.memory)
            looked_at = LOOK_MULTIPLICATIONS * self.atoms_looked_at(dictionary)
            work = self.source.n_rows * (SCANS_A_SEARCH * (size + MODEL_ATOMS) + looked_at)
            restarts = self.source.restarts_in_subsets(self.memory)
            return self.in_subsets(dictionary, starts, size, work, restarts)
        if self.options.fit_intercept and isinstance(design, DenseDesign) and is_inputs(dictionary):
            design = centre_columns(design, dictionary.n_atoms - 1, self.problems[0].weights)
        with one_thread():
            fits = [task() for task in self.tasks(dictionary, design, starts)]
        return Found(fits, dictionary, dictionary.n_atoms)

    def atoms_looked_at(self, dictionary: Any) -> int:
        most = MAX_PASS_MULTIPLICATIONS / (LOOK_MULTIPLICATIONS * self.source.n_rows)
        return min(dictionary.n_atoms, int(most)) if isinstance(self.source, MemorySource) else 0

    def promising(self, fits: list, own: np.ndarray, dictionary: Any, atoms: np.ndarray, room: int) -> np.ndarray:
        assert isinstance(self.source, MemorySource)
        each, products = max(room // len(fits), 1), partial(self.source.products, dictionary)
        models = [LaplaceModel(fit.problem, fit.result.state.active, fit.result.state.posterior) for fit in fits]
        found = [most_promising(model, own, atoms, dictionary.n_atoms, products, each) for model in models]
        return np.unique(np.concatenate(found))

    def part_rows(self, part: Basis) -> LaplaceDesign:
        return self.source.scan_part(part, self.memory)

    def tasks(
        self, part: Any, rows: LaplaceDesign, starts: list | None, first: bool = True, restarts: bool = True,
        whole: bool = True,
    ) -> list[Task]:  # fmt: skip
        options, source, prior = self.options, self.source, self.options.prior
        order = source.ordering(part, rows.scale)[0]
        b = scaled_rates(prior, rows.scale)
        bias = part.n_atoms - 1 if options.fit_intercept else -1
        solver = options.solver if first and restarts else without_restarts(options.solver)
        earlier = options.earlier if starts is None and first and whole and isinstance(part, Basis) else None
        found = None if earlier is None else earlier.find_in(part, source.n_targets)
        tasks: list[Task] = []
        K = self.likelihood.n_outputs
        for output, problem in enumerate(self.problems):
            problem = replace(
                problem, design=rows, order=order, prior=prior, prior_b=b,
                bias=bias, start=None if starts is None else starts[output],
                target=source.move_to_device(problem.target), weights=source.move_to_device(problem.weights),
            )  # fmt: skip
            if found is not None:
                start = _start_from(problem, found[0], found[1][output * K : (output + 1) * K])
                problem = replace(problem, start=start)
            tasks.append(partial(self._fit_output, output, solver, problem, part if first else None, whole))
        return tasks

    def _fit_output(
        self, output: int, solver: Any, problem: LaplaceProblem, part: Any | None, whole: bool
    ) -> LaplaceFit:
        share = share_of_work(output, len(self.problems))
        with one_thread(), share, stage("search", shift=problem.shift):
            if part is not None and problem.start is None:
                start = self._coarse_to_fine_start(output, problem, part, whole)
                problem = problem if start is None else replace(problem, start=start)
            result = solve_laplace(solver, problem, self.options.max_iter, int(self.options.logs_steps))
        return LaplaceFit(result, problem)

    def renumber(self, model: tuple, to: np.ndarray, n_atoms: int, n_new: int) -> tuple:
        return model[0] // n_atoms * n_new + to[model[0] % n_atoms], model[1]

    def atoms(self, model: tuple, n_atoms: int) -> np.ndarray:
        return model[0] % n_atoms

    def predictor(self, fit: LaplaceFit, basis: Basis, atoms: np.ndarray) -> Any:
        return (linear_predictor if self.of_counts else LaplaceFit.latent)(fit, basis, atoms)

    def predictive(self, functions: Sequence, alpha: np.ndarray, basis: Basis) -> dict[str, Any]:
        if self.of_counts:
            return {"predictors": [CountPredictor(function) for function in functions]}
        spec, found = self.options.predictive, list(functions)
        if spec is not None:
            assert isinstance(self.given, MemorySource)
            K, X, kernel = self.likelihood.n_outputs, self.given.X, kernels_of(basis)[0]
            columns = [self.given.columns(output, K) for output in range(len(found))]
            found = [
                augment_latent(spec, model, kernel, X, target, weights, self.likelihood)
                for model, (target, weights) in zip(found, columns, strict=True)
            ]
        return {"predictors": [], "classifier": LatentClasses(tuple(found), self.averaged)}

    # A search on few rows first, then on more -----------------------------------------------------------------------

    def _coarse_to_fine_start(self, output: int, problem: LaplaceProblem, part: Any, whole: bool) -> tuple | None:
        """A model to start from (units, precisions), found on a few of many rows; None for few rows."""
        solver, n_rows, M = self.options.solver, self.source.n_rows, part.n_atoms
        if n_rows <= MIN_ROWS_TO_SUBSAMPLE or not isinstance(solver, Sequential):
            return None
        start: Entries | None = None
        for size in subsample_sizes(n_rows):
            few = self.source.subsample(part, size, whole)
            found = None if few is None else self._fit_subsample(output, problem, few, start, solver)
            if few is None or found is None:
                break
            start, solver = (found[0], few.atoms[found[1]], found[2]), without_restarts(solver)
        if start is None:
            return None
        scale = problem.design.scale[start[1]]
        kept = scale > 0.0
        return (start[0] * M + start[1])[kept], (start[2] / np.where(kept, scale, 1.0) ** 2)[kept]

    def _fit_subsample(
        self, output: int, problem: LaplaceProblem, few: Subsample, start: Entries | None, solver: Sequential
    ) -> Entries | None:
        """A model found on a few rows, which may begin with one found on fewer.

        It is found in the memory of the models of all rows, which come later: None where the dictionary does not fit.
        """
        n_atoms = few.basis.n_atoms
        least = 0.0 if len(few.X) > SUBSAMPLE_ROWS else 7.0 * SUBSAMPLE_ROWS * n_atoms
        design = scan_design(few.basis, few.X, memory=max(MODEL_BYTES_PER_ROW * self.source.n_rows, least))
        if design is None:
            return None
        given = None
        if start is not None:
            outputs, atoms, alpha = _among(few.atoms, start)
            given = outputs * n_atoms + atoms, alpha / design.scale[atoms] ** 2
        fewer = self._on_rows(problem, output, few.targets, few.weights)
        bias = n_atoms - 1 if self.options.fit_intercept else -1
        order = content_ranks(few.basis, design.scale)
        fewer = replace(fewer, design=design, shift=0.0, order=order, start=given, bias=bias)
        state = solve_laplace(solver, fewer, self.options.max_iter).state
        outputs, own = state.active // n_atoms, state.active % n_atoms
        return outputs, own, state.posterior.alpha[:: problem.per_unit] * design.scale[own] ** 2


def subsample_sizes(n_rows: int) -> list[int]:
    """How many rows the searches before that of all have.

    >>> subsample_sizes(30_000), subsample_sizes(100_000)
    ([4000], [4000, 20000])
    """
    sizes = [SUBSAMPLE_ROWS]
    while sizes[-1] * SUBSAMPLE_GROWTH**2 <= n_rows:
        sizes.append(sizes[-1] * SUBSAMPLE_GROWTH)
    return sizes


def _among(atoms: np.ndarray, start: Entries) -> Entries:
    """A model with its atoms as places among those given (M,), without those that are not there."""
    order = np.argsort(atoms)
    place = order[np.minimum(np.searchsorted(atoms, start[1], sorter=order), len(atoms) - 1)]
    there = atoms[place] == start[1]
    return start[0][there], place[there], start[2][there]


def _start_from(problem: LaplaceProblem, atoms: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Units and their precisions to start from, for atoms (k,) and the precisions (K, k) each output had for them."""
    found = [scaled_precisions(problem.design.scale, atoms, row) for row in (alpha[:1] if problem.share else alpha)]
    units = [own + c * problem.design.n_atoms for c, (own, _) in enumerate(found)]
    return np.concatenate(units), np.concatenate([precisions for _, precisions in found])


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
