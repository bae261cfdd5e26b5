"""Searches under Gaussian noise: the problem of each output, its search, the exact refit of the model found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from relvec.basis import Basis, content_ranks, even_draw, input_columns, is_inputs, kernels_of
from relvec.design import ROUGH_TOLERANCE, TOLERANCE, DenseDesign, DesignRows, centre_columns, max_columns
from relvec.estimators.assemble import linear_predictor, tabulate_history
from relvec.estimators.options import MachineOptions
from relvec.estimators.pipeline import Found, MachineSearch
from relvec.estimators.sources import MemorySource, Sample, Source
from relvec.estimators.sources.base import scaled_precisions, scaled_rates
from relvec.hyperparameters.targets import GaussianTarget
from relvec.hyperparameters.widths import TunedBasis
from relvec.inference.evidence import Posterior
from relvec.inference.hyperpriors import FLAT, GammaPrior
from relvec.inference.predictive import Augmented, AugmentedPredictor, LinearPredictor, RescaledPredictor
from relvec.kernels import Kernel
from relvec.runtime.machine import one_thread
from relvec.runtime.progress import share_of_work, stage
from relvec.solvers import Sequential, Status, Stepwise
from relvec.solvers.active_set import solve
from relvec.solvers.gaussian.model import begin_gaussian, model_of
from relvec.solvers.joint import solve_joint
from relvec.solvers.loop import Problem, Result, Start, State, Step
from relvec.sparse.lines import AS_IT_IS, SEARCHED_NUMBERS, Verdict, judge

# A model of more functions than this share of the samples, with a noise variance smaller by this factor than that of
# shared precisions, passes through the targets.
INTERPOLATING_SHARE, INTERPOLATING_NOISE_RATIO = 0.25, 4.0
# A learned noise variance starts at a tenth of the target's variance (TF03 section 4, step 1) and stays above this
# fraction of it: a standard deviation of 1e-4 of the target's.
NOISE_START, NOISE_FLOOR = 0.1, 1e-8
# A fixed one may be smaller, but not below the square of the targets' own rounding errors.
MIN_NOISE = float(np.finfo(float).eps) ** 2
MAX_ROUNDING_NATS = 1.0  # that rounding may move the evidence of a fit with a certificate by
ROUNDINGS_OF_EVIDENCE = 16.0  # units in the last place by which the evidence, a sum over the rows, may be off
MAX_TARGET_RMS = 1e153  # the noise variance of more has no double
MAX_COMPRESSION_NATS = 0.01  # by which the compression of the rows may be off in an evidence
_NO_DESIGN = DenseDesign(np.zeros((1, 0)))
POLISH_STEPS = 50  # Newton steps on precisions and noise of the exact refit


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """One output's fit: what the solver returned, in scaled units, and the units."""

    result: Result
    unit: float
    prior: GammaPrior
    scale: np.ndarray
    n_samples: float
    offset: np.ndarray | None = None  # (M,) see `relvec.design.base.Dictionary`
    n_functions: int = 1
    verdict: Verdict = AS_IT_IS  # of rows that took no part, on a linear model
    compression_nats: float = 0.0  # by which the compression of the rows was off in the evidence of the model

    @property
    def model(self) -> Start:
        """Atoms, their precisions and the noise precision, in scaled units, to start another search from.

        With 30 bits: the last ones are rounding, and centres that move make much of that.
        """
        posterior = self.result.state.posterior
        mantissa, exponent = np.frexp([posterior.beta, *posterior.alpha])
        beta, *alpha = np.ldexp(np.round(mantissa * 2**30), exponent - 30)
        return Start(self.result.state.active, np.array(alpha), float(beta))

    @property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Function (always the only one) and atom of each weight (k,)."""
        active = self.result.state.active
        return np.zeros(len(active), dtype=np.intp), active

    @property
    def log_evidence(self) -> float:
        """Log evidence in the target's own units."""
        return self.result.state.posterior.log_evidence - self.n_samples * np.log(self.unit)

    def history(self, rows: np.ndarray) -> np.ndarray:
        """Return the history (structured array) in the target's own units; rows (M,) are the atoms' training rows."""
        state = self.result.state
        shift = -self.n_samples * np.log(self.unit) - 2.0 * self.prior.c * np.log(self.unit)
        if self.prior.b > 0:  # nothing is pruned then, so the support never changes
            shift += 2.0 * self.prior.a * np.sum(np.log(self.scale[state.active] / self.unit))
        return tabulate_history(self.result.history, rows, shift, self.unit)


def _with_given_noise(start: Start | None, problem: Problem) -> Start | None:
    """Return a start whose noise is the one that was given, to the last digit."""
    return (
        start if start is None or problem.noise_variance is None else replace(start, beta=1.0 / problem.noise_variance)
    )


def scale_noise(given: float | None, unit: float) -> float | None:
    """Return a noise variance that is given for a target in units of ``unit``; ValueError where no fit can have it."""
    with np.errstate(over="ignore"):
        noise = None if given is None else float(np.float64(given) / unit / unit)
    if noise is not None and not MIN_NOISE <= noise < np.inf:
        low = noise < MIN_NOISE
        reason, change = ("below the rounding errors of", "larger") if low else ("too large for", "smaller")
        raise ValueError(
            f"noise_variance={given!r} is {reason} targets of size {unit:.3g}: give a {change} one, or None to learn it"
        )
    return noise


def gaussian_problem(options: MachineOptions, unit: float, variance: float, n_samples: float, seed: int = 0) -> Problem:
    """Return the problem of a solver for a target in units of ``unit``, all but the design."""
    prior, noise = options.prior, scale_noise(options.noise_variance, unit)
    check_size(unit)
    constant = variance == 0.0
    return Problem(
        design=_NO_DESIGN,
        target=np.zeros(1),
        target_norm2_outside=0.0,
        n_samples=n_samples,
        noise_variance=noise,
        noise_start=NOISE_START * (1.0 if constant else variance),
        noise_floor=NOISE_FLOOR**2 if constant else NOISE_FLOOR * variance,
        order=np.zeros(0, dtype=np.intp),
        prior=prior,
        prior_d=prior.d / unit / unit,
        tol=options.tol,
        tol_of_many=options.tol_of_many,
        rng=np.random.default_rng(seed),
        clock=options.clock,
    )


def check_size(largest: float) -> None:
    """Refuse targets whose squares overflow, given the largest of them."""
    if largest > MAX_TARGET_RMS:
        raise ValueError(
            f"y has values of size {largest:.3g}, whose squares overflow: divide y by its standard deviation"
        )


@dataclass(frozen=True, eq=False)
class GaussianSearch(MachineSearch):
    """The search for models of targets under Gaussian noise."""

    options: MachineOptions
    source: Source  # the rows, their targets in the units
    # (q,) root mean square of each target, and its variance in that unit
    units: np.ndarray
    variances: np.ndarray
    problems: list[Problem]  # for each output what its solver is asked, all but the design
    memory: float  # bytes for the dictionary

    @classmethod
    def of(cls, options: MachineOptions, source: Source, basis: Basis) -> GaussianSearch:
        """Return the search for the models of a source."""
        units, variances = source.target_units()
        problems = [
            gaussian_problem(options, unit, variance, source.weight, seed)
            for unit, variance, seed in zip(units, variances, options.seeds(len(units)), strict=True)
        ]
        memory = source.memory_left(options, basis, 2 * len(units) + 10)
        return cls(options, source.in_units(units), units, variances, problems, memory)

    @property
    def varies(self) -> bool:
        return bool(self.variances.any())

    @property
    def can_move_centres(self) -> bool:
        return bool(self.variances.all())

    def label(self, output: int) -> str:
        return "" if self.source.single else f"output {output}: "

    def targets_on(self, sample: Sample, n_atoms: int) -> list:
        flat = [replace(problem, prior=FLAT, prior_d=0.0) for problem in self.problems]
        return [
            GaussianTarget(np.ascontiguousarray(t), sample.weights, problem, within)
            for problem, t, within in zip(flat, sample.targets.T, sample.within.T, strict=True)
        ]

    def run(self, dictionary: Basis, starts: list | None = None) -> Found:
        if self.options.shares_precisions:
            return self._run_compressed(dictionary, starts, TOLERANCE)
        found = self._run_compressed(dictionary, starts, ROUGH_TOLERANCE)
        rough = found.compression is not None and found.compression.tolerance > TOLERANCE
        off = max((fit.compression_nats for fit in found.fits), default=0.0)
        if not rough or off <= MAX_COMPRESSION_NATS or self.options.clock.left() <= 0.0:
            return found
        return self._run_compressed(dictionary, found.models, TOLERANCE)

    def _run_compressed(self, dictionary: Basis, starts: list | None, tolerance: float) -> Found:
        """Search with an error of kernel values within a tolerance, where the rows are compressed."""
        with one_thread(), stage("kernel"):
            needed, clock = self.atoms_of(starts, dictionary.n_atoms), self.options.clock
            atoms, rows = self.source.rows(dictionary, self.memory, needed, clock.left(), tolerance)
        if atoms is not None and clock.left() < np.inf and len(atoms) < max_columns(self.source.n_rows, self.memory):
            clock.cut.append(f"functions beyond {len(atoms)}")
        part, starts = self.begin(dictionary, starts, atoms)
        if self.options.fit_intercept and is_inputs(part):
            rows = centred(rows, part.n_atoms - 1)
        if self.options.shares_precisions:
            return Found(self._fit_jointly(part, rows), part, rows.compression)
        compressed = rows.compression is not None
        problems = enumerate(self.problems_on(part, rows, starts))
        begin = self.options.clock.left()
        fits = [self._fit_output(output, problem, part, compressed) for output, problem in problems]
        if self.options.floored:
            seconds = (begin - self.options.clock.left()) / len(fits) if begin < np.inf else 0.0
            fits = [self._hold_against_baselines(*each, seconds) for each in enumerate(fits)]
        return Found(fits, part, rows.compression)

    def problems_on(self, part: Basis, rows: DesignRows, starts: list | None = None) -> list[Problem]:
        """Return the problem of each output over a dictionary on its rows."""
        scale = rows.design.scale
        order, draw, essential = content_ranks(part, scale), even_draw(part), np.flatnonzero(part.rows < 0)
        bias = part.n_atoms - 1 if self.options.fit_intercept else -1
        if starts is None:
            starts = self._warm_starts(part, scale)
        return [
            replace(
                problem, design=rows.design, target=np.ascontiguousarray(rows.targets[:, output]),
                target_norm2_outside=float(rows.target_norm2_outside[output]), order=order, draw=draw,
                essential=essential, bias=bias, start=_with_given_noise(start, problem),
                prior_b=scaled_rates(problem.prior, scale, unit),
            )
            for output, (problem, start, unit) in enumerate(zip(self.problems, starts, self.units, strict=True))
        ]  # fmt: skip

    def _fit_jointly(self, dictionary: Any, rows: DesignRows) -> list[GaussianFit]:
        """Fits of all outputs where groups of columns, or the outputs, share precisions."""
        options, problems, scale = self.options, self.problems_on(dictionary, rows), rows.design.scale
        prior = options.solver if isinstance(options.solver, Stepwise) else Stepwise("flat")
        labels = np.arange(dictionary.n_atoms)
        if options.groups is not None:
            if len(options.groups) != self.source.n_features:
                raise ValueError(f"groups has {len(options.groups)} labels and X {self.source.n_features} columns")
            columns = input_columns(dictionary)
            labels = np.where(columns >= 0, options.groups[columns], len(options.groups) + labels)
        together = [problems] if options.share_alpha else [[problem] for problem in problems]
        with one_thread(), stage("search"):
            results = [r for own in together for r in solve_joint(own, labels, prior, options.max_iter)]
        parts = zip(results, self.units, problems, strict=True)
        offset = rows.design.offset
        return [GaussianFit(r, unit, p.prior, scale, p.n_samples, offset) for r, unit, p in parts]

    def _fit_output(self, output: int, problem: Problem, part: Basis, compressed: bool) -> GaussianFit:
        """Maximise the evidence for one output, in scaled units."""
        unit, variance, scale = self.units[output], self.variances[output], problem.design.scale
        solver: Any = self.options.solver
        offset = problem.design.offset
        if variance == 0.0 and _is_constant(problem):
            return GaussianFit(_constant(problem), unit, problem.prior, scale, problem.n_samples, offset)
        shift = -problem.n_samples * np.log(unit)
        share = share_of_work(output, len(self.units))
        off = 0.0
        with one_thread(), share, stage("search", shift=shift):
            if isinstance(solver, Stepwise) and solver.support_prior == "flat":
                problem = self._from_any_number(problem)
            result = solve(solver, problem, self.options.max_iter, int(self.options.logs_steps))
            if compressed:
                result, off = polish(problem, result, *self._exact(problem, part, result.state.active, output))
        if result.status is Status.CONVERGED and self.options.clock.cut:
            result = replace(result, status=Status.TIME_LIMIT)
        if result.status is Status.CONVERGED and is_evidence_lost_in_rounding(result.state, problem):
            result = replace(result, status=Status.STALLED)
        return GaussianFit(result, unit, problem.prior, scale, problem.n_samples, offset, compression_nats=off)

    def _hold_against_baselines(self, output: int, fit: GaussianFit, seconds: float) -> GaussianFit:
        """Return the fit of an output, or that of a constant or a ridge that predicts rows left out better.

        ``seconds`` were those of its search.
        """
        options, rows, solver = self.options, self.source.dense(SEARCHED_NUMBERS), cast(Any, self.options.solver)
        if rows is None or fit.result.status not in (Status.CONVERGED, Status.NOISE_FLOOR, Status.STALLED):
            return fit
        X, targets, weights, groups = rows
        found, noise = fit.result.state.active, 1.0 / fit.result.state.posterior.beta

        def search(problem: Problem) -> State:
            return solve(solver, problem, options.max_iter).state

        with one_thread():
            verdict = judge(
                X,
                targets[:, output],
                weights,
                groups,
                search,
                found,
                noise,
                options.max_functions,
                seconds,
                options.clock,
            )
        base = verdict.baseline
        if base is None:
            return replace(fit, verdict=verdict)
        state = State(base.atoms, base.posterior, base.posterior.log_evidence, done=True, largest_gain=0.0)
        result = Result(state, Status.BASELINE, [], fit.result.n_iter)
        return GaussianFit(
            result, fit.unit * base.unit, fit.prior, base.scale, base.n_samples, base.offset, verdict=verdict
        )

    def _from_any_number(self, problem: Problem) -> Problem:
        """Return the problem of a few functions at most, to start from the model of any number."""
        if problem.start is not None:
            return problem
        plain = Sequential()
        state = solve(plain, problem, self.options.max_iter, int(self.options.logs_steps)).state
        return replace(problem, start=Start(state.active, state.posterior.alpha, state.posterior.beta))

    def _exact(self, problem: Problem, part: Any, active: np.ndarray, output: int) -> tuple:
        """Uncompressed columns of some atoms, scaled and centred as in the problem, and the target."""
        scale, offset = problem.design.scale, problem.design.offset
        if offset is None:
            return self.source.exact(part, scale, active, output)
        with_constant = np.append(active, problem.bias)
        columns, target = self.source.exact(part, scale, with_constant, output)
        share = offset[active] / scale[active] * scale[problem.bias]
        return columns[:, :-1] - np.outer(columns[:, -1], share), target

    def _warm_starts(self, part: Any, scale: np.ndarray) -> list[Start | None]:
        """Models of the earlier fit, one for each problem, for columns divided by scale (M,); None for none."""
        earlier = self.options.earlier
        found = None if earlier is None else earlier.find_in(part, len(self.problems))
        if earlier is None or found is None:
            return [None] * len(self.problems)
        starts: list[Start | None] = []
        for problem, unit, alpha, noise in zip(
            self.problems, self.units, found[1], earlier.noise_variance, strict=True
        ):
            active, precisions = scaled_precisions(scale / unit, found[0], alpha)
            learned = noise / unit / unit if np.isfinite(noise) else problem.noise_start
            beta = 1.0 / (problem.noise_variance or max(learned, problem.noise_floor))
            starts.append(Start(active, precisions, beta) if active.size else None)
        return starts

    def renumber(self, model: Start, to: np.ndarray, n_atoms: int, n_new: int) -> Start:
        return Start(to[model.active], model.alpha, model.beta)

    def atoms(self, model: Start, n_atoms: int) -> np.ndarray:
        return model.active

    def without_interpolation(self, found: Found, learned: TunedBasis) -> GaussianSearch | None:
        problems = refit_if_interpolating(found.fits, self.problems, learned.noises)
        return None if problems is None else replace(self, problems=problems)

    def predictor(self, fit: GaussianFit, basis: Basis, atoms: np.ndarray) -> LinearPredictor:
        return linear_predictor(fit, basis, atoms)

    def predictive(self, fits: list, functions: Sequence, alpha: np.ndarray, basis: Basis) -> dict[str, Any]:
        spec = self.options.predictive
        if spec is None:
            return {"predictors": [_rescale(*each) for each in zip(functions, fits, strict=True)]}
        assert isinstance(self.source, MemorySource)
        X, weights, targets = self.source.X, self.source.weights, self.source.targets.T
        kernel = kernels_of(basis)[0]
        numbers = self.source.numbers
        return {"predictors": augment(spec, functions, alpha, kernel, X, weights, targets, self.variances, numbers)}

    def noise_variances(self, functions: Sequence) -> np.ndarray:
        """Noise variances (F,) in the units of y; one that was given is kept to its last digit."""
        given = self.options.noise_variance
        found = np.array([function.noise * function.unit**2 for function in functions])
        return found if given is None else np.where(np.isclose(found, given, rtol=1e-12), given, found)


def _rescale(function: LinearPredictor, fit: GaussianFit) -> LinearPredictor | RescaledPredictor:
    """Return the function of a fit with error bars as rows that took no part ask for."""
    factor, tail = fit.verdict.factor, fit.verdict.tail
    return function if (factor, tail) == (1.0, 0.0) else RescaledPredictor(function=function, factor=factor, tail=tail)


def augment(
    spec: Augmented, functions: Sequence[LinearPredictor], alphas: np.ndarray, kernel: Kernel, X: np.ndarray,
    weights: np.ndarray, targets: np.ndarray, variances: np.ndarray, numbers: np.ndarray,
) -> list[AugmentedPredictor]:  # fmt: skip
    """RVM* (RQ05) of the model of each output, with precisions alphas (q, m), on targets (q, n) in their units.

    The rows X (n, d) have the ``numbers`` (n,) that the dictionary knows them by.
    """
    root, found = np.sqrt(weights), []
    for model, t, variance, alpha in zip(functions, targets, variances, alphas, strict=True):
        if spec.alpha is None:
            star = 1.0 / variance if variance > 0.0 else np.inf
        else:
            star = None if isinstance(spec.alpha, str) else float(spec.alpha) * model.unit**2
        with np.errstate(over="ignore", under="ignore"):
            precision = np.where(np.isfinite(alpha), alpha, 0.0) * (model.unit / model.scale) ** 2
        remainder = root * (t - model.columns(X) @ model.mean)
        predictor = AugmentedPredictor(model, kernel, X, root, remainder, precision, star)
        vectors = np.flatnonzero(np.isin(numbers, model.basis.rows[np.isfinite(alpha)]))
        few = spec.targets == "vectors" and vectors.size
        found.append(predictor.refitted(vectors, t) if few else predictor)
    return found


def centred(rows: DesignRows, constant: int) -> DesignRows:
    """Rows with their columns centred on the means, where they are not yet and lie in memory."""
    design = rows.design
    if design.offset is not None or not isinstance(design, DenseDesign):
        return rows
    return replace(rows, design=centre_columns(design, constant))


def is_evidence_lost_in_rounding(state: State, problem: Problem) -> bool:
    """Whether rounding hides what a single move gains: under little given noise the evidence may be 1e14 nats."""
    own = ROUNDINGS_OF_EVIDENCE * np.finfo(float).eps * abs(state.objective)
    moved = evidence_moved_by_rounding(state.posterior)
    return bool(moved > MAX_ROUNDING_NATS or own > problem.tolerance(len(state.active)))


def evidence_moved_by_rounding(p: Posterior) -> float:
    """How far the evidence (nats) may move when every basis function, of unit norm, is rounded in its last place."""
    moved = np.finfo(float).eps * float(np.abs(p.mean).sum())
    return float(p.beta) * moved * (2.0 * np.sqrt(p.residual) + moved)


def refit_if_interpolating(
    fits: list[GaussianFit], problems: list[Problem], noises: np.ndarray | None
) -> list[Problem] | None:
    """Fix the noise (K,) of learned widths in problems where a fit passes through its targets; None if none does.

    Narrow functions, each with a precision of its own, can explain targets that are noise to all of them together.
    """

    def interpolates(fit: GaussianFit, problem: Problem, noise: float) -> bool:
        state = fit.result.state
        many = len(state.active) > INTERPOLATING_SHARE * fit.n_samples
        return many and not problem.fixed_noise and noise * state.posterior.beta > INTERPOLATING_NOISE_RATIO

    if noises is None:
        return None
    through = [interpolates(*each) for each in zip(fits, problems, noises, strict=True)]
    pairs = zip(problems, noises, through, strict=True)
    return [replace(p, noise_variance=float(noise)) if so else p for p, noise, so in pairs] if any(through) else None


def polish(problem: Problem, result: Result, columns: np.ndarray, target: np.ndarray) -> tuple[Result, float]:
    """Refit a support on the uncompressed rows: precisions, noise and evidence exact, the history shifted to it.

    Behind the result come the nats by which the evidence was off before.
    """
    state = result.state
    design = DenseDesign(columns)
    local = np.arange(design.n_atoms)
    prior_b = None if problem.prior_b is None else problem.prior_b[state.active] * design.scale**2
    order = problem.order[state.active]
    whole = replace(problem, design=design, target=target, target_norm2_outside=0.0, order=order, prior_b=prior_b)
    model = model_of(whole, Start(local, state.posterior.alpha * design.scale**-2.0, state.posterior.beta))
    off = abs(model.full_posterior.log_evidence - state.posterior.log_evidence)
    if problem.prior.b == 0:
        model = model.relax(POLISH_STEPS)
    p = model.full_posterior
    exact = replace(p, alpha=p.alpha * design.scale[model.active] ** 2)
    active = state.active[model.active]
    objective = problem.objective(active, exact)
    shift = objective - state.objective
    history = [replace(step, objective=step.objective + shift) for step in result.history]
    state = replace(state, active=active, posterior=exact, objective=objective)
    return replace(result, state=state, history=history), off


def _is_constant(problem: Problem) -> bool:
    """Whether a target without variance leaves nothing to learn but a constant: noise and precisions are free."""
    nothing = float(problem.target @ problem.target) + problem.target_norm2_outside == 0.0
    return not problem.fixed_noise and problem.prior.b == 0 and (problem.bias >= 0 or nothing)


def _constant(problem: Problem) -> Result:
    """Return the model of a target without variation: the bias at the noise floor, or nothing for a target of zeros."""
    fixed = replace(problem, noise_variance=problem.noise_floor)
    model = begin_gaussian(fixed, bias_first=True)
    step = Step("start", problem.bias, 0.0, model.objective, model.size, problem.noise_floor)
    state = State(model.active, model.full_posterior, model.objective, largest_gain=0.0, done=True)
    return Result(state, Status.CONSTANT_TARGET, [step], 0)
