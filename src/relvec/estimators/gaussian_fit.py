"""Fits of Gaussian targets: what a solver is asked for each output, its search, the exact refit of what it found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from relvec.basis import Basis
from relvec.design import Block, DenseDesign, Rows, Samples, gram_rows, max_gram_atoms, tall_qr
from relvec.design.order import content_ranks, even_draw
from relvec.estimators.outcome import history_table
from relvec.estimators.subsets import cut_short, in_subsets, of_some, unhurried
from relvec.estimators.units import scaled_rates
from relvec.estimators.warm_start import gaussian_starts
from relvec.hyperparameters.targets import GaussianTarget
from relvec.inference.gaussian import Posterior
from relvec.inference.priors import FLAT, GammaPrior
from relvec.runtime import checkpoint
from relvec.runtime.memory import release_memory
from relvec.runtime.progress import run_in_current_context, stage
from relvec.runtime.threads import one_thread
from relvec.solvers import Problem, Result, Sequential, Start, Status, Step, as_solver, solve
from relvec.solvers.gaussian.frame import Frame
from relvec.solvers.gaussian.moves import Model
from relvec.solvers.loop import TOL_OF_MANY

# A model of more functions than this share of the samples, with a noise variance smaller by this factor than that of
# tied precisions, passes through the targets.
CROWDED, THROUGH = 0.25, 4.0
# A learned noise variance starts at a tenth of the target's variance (TF03 section 4, step 1) and stays above this
# fraction of it: a standard deviation of 1e-4 of the target's.
NOISE_START, NOISE_FLOOR = 0.1, 1e-8
# A fixed one may be smaller, but not below the square of the targets' own rounding errors.
LEAST_NOISE = float(np.finfo(float).eps) ** 2
_HIDDEN = 1.0  # nats that rounding may move the evidence of a fit with a certificate by
LARGEST_TARGET = 1e153  # root mean square: the noise variance of more has no double


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """One output's fit: what the solver returned, in scaled units, and the units."""

    result: Result
    unit: float
    prior: GammaPrior
    scale: np.ndarray
    n_samples: float

    @property
    def model(self) -> Start:
        """Atoms, their precisions and the noise precision, in scaled units."""
        posterior = self.result.state.posterior
        return Start(self.result.state.active, posterior.alpha, posterior.beta)

    @property
    def log_evidence(self) -> float:
        """Log evidence in the target's own units."""
        return self.result.state.posterior.log_evidence - self.n_samples * np.log(self.unit)

    def history(self, rows: np.ndarray) -> np.ndarray:
        """The history (structured array) in the target's own units; rows (M,) are the atoms' training rows."""
        state = self.result.state
        shift = -self.n_samples * np.log(self.unit) - 2.0 * self.prior.c * np.log(self.unit)
        if self.prior.on_weights:  # nothing is pruned then, so the support never changes
            shift += 2.0 * self.prior.a * np.sum(np.log(self.scale[state.active] / self.unit))
        return history_table(self.result.history, rows, shift, self.unit)


def gaussian_problem(estimator, unit: float, variance: float, n: float, seed: int) -> Problem:
    """What a solver is asked to do for a target in units of ``unit``, all but the design; n sums the sample weights."""
    prior, given = estimator._hyperprior(), estimator.noise_variance
    if given is not None and given / unit / unit < LEAST_NOISE:
        raise ValueError(
            f"noise_variance={given!r} is below the rounding errors of targets of size {unit:.3g}: "
            "give a larger one, or None to learn it"
        )
    if unit > LARGEST_TARGET:
        raise ValueError(f"y has values of size {unit:.3g}, whose squares overflow: divide y by its standard deviation")
    constant = variance == 0.0
    return Problem(
        design=DenseDesign(np.zeros((1, 0))),
        target=np.zeros(1),
        target_norm2_outside=0.0,
        n_samples=n,
        noise_variance=None if given is None else given / unit / unit,
        noise_start=NOISE_START * (1.0 if constant else variance),
        noise_floor=NOISE_FLOOR**2 if constant else NOISE_FLOOR * variance,
        order=np.zeros(0, dtype=np.intp),
        prior=prior,
        prior_d=prior.d / unit / unit,
        tol=float(estimator._tol),
        tol_of_many=TOL_OF_MANY if estimator.tol is None else None,
        rng=np.random.default_rng(seed),
    )


def gaussian_problems(estimator, units: np.ndarray, variances: np.ndarray, n_samples: float) -> list[Problem]:
    """What each output's solver is asked, all but the design."""
    seeds = check_random_state(estimator.random_state).randint(2**31, size=len(units))
    return [
        gaussian_problem(estimator, unit, variance, n_samples, seed)
        for unit, variance, seed in zip(units, variances, seeds, strict=True)
    ]


def gaussian_target(problem: Problem, target: np.ndarray, weights: np.ndarray) -> GaussianTarget:
    """A target (n,) to learn widths from, under a flat hyperprior."""
    return GaussianTarget(target, weights, replace(problem, prior=FLAT, prior_d=0.0))


def gaussian_fits(
    estimator, basis: Basis, rows: Rows, problems: list[Problem], units: np.ndarray, variances: np.ndarray,
    starts: list[Any] | None, exact: Any, restarting: bool = True,
) -> list[GaussianFit]:  # fmt: skip
    """Fit each output on its rows."""
    order = content_ranks(basis, rows.design.scale)
    problems = [replace(problem, draw=even_draw(basis)) for problem in problems]
    if starts is None:
        starts = gaussian_starts(estimator, basis, problems, rows.design.scale, units)
    bias = basis.n_atoms - 1 if estimator.fit_intercept else -1
    essential = np.flatnonzero(basis.rows < 0)
    solver = as_solver(estimator.solver) if restarting else unhurried(as_solver(estimator.solver))
    return Parallel(n_jobs=estimator.n_jobs, prefer="threads")(
        delayed(run_in_current_context(fit_gaussian))(
            estimator, problems[i], rows, i, exact, order, essential, bias, units[i], variances[i], starts[i], solver
        )
        for i in range(len(units))
    )


def fit_gaussian(
    estimator, problem: Problem, rows: Rows, output: int, exact, order: np.ndarray, essential: np.ndarray, bias: int,
    unit: float, variance: float, start: Start | None = None, solver: Any = None,
) -> GaussianFit:  # fmt: skip
    """Maximise the evidence for one output, in scaled units.

    ``exact(active, output)`` gives the uncompressed columns of some atoms, scaled like the design's, and the target,
    both as the k + 1 rows of their QR factorisation; it is used to polish a fit on compressed rows.
    """
    prior, design = problem.prior, rows.design
    problem = replace(
        problem,
        design=design,
        target=np.ascontiguousarray(rows.targets[:, output]),
        target_norm2_outside=float(rows.target_norm2_outside[output]),
        order=order,
        essential=essential,
        bias=bias,
        start=start,
        prior_b=scaled_rates(prior, design.scale, unit),
    )
    solver = as_solver(estimator.solver) if solver is None else solver
    nothing = float(problem.target @ problem.target) + problem.target_norm2_outside == 0.0
    if variance == 0.0 and not problem.fixed_noise and (bias >= 0 or nothing) and not prior.on_weights:
        result = _constant(problem)
    else:
        named = checkpoint.section(f"output {output}")
        with one_thread(), named, stage("search", shift=-problem.n_samples * np.log(unit)):
            result = solve(solver, problem, int(estimator.max_iter), int(estimator._logs))
            if rows.compression is not None:
                result = polish(problem, result, *exact(result.state.active, output))
        if result.status is Status.CONVERGED and moved_by_rounding(result.state.posterior) > _HIDDEN:
            result = replace(result, status=Status.STALLED)
    return GaussianFit(result, unit, prior, design.scale, problem.n_samples)


def moved_by_rounding(p: Posterior) -> float:
    """How far the evidence (nats) may move when every basis function, of unit norm, is rounded in its last place."""
    moved = np.finfo(float).eps * float(np.abs(p.mean).sum())
    return float(p.beta) * moved * (2.0 * np.sqrt(p.residual) + moved)


def gaussian_in_subsets(
    estimator, basis: Any, samples: Samples, starts: list | None, memory: float, fitted: Any
) -> tuple[list[GaussianFit], Basis, Rows]:
    """Fit over a dictionary that neither fits in memory nor is of low rank; also the part of it that came last."""
    M, size = basis.n_atoms, max_gram_atoms(samples.n_rows, memory)
    fits: list[GaussianFit] = []
    part, rows = basis, None
    given = [np.zeros(0, dtype=np.intp), *(s.active for s in starts or [] if s is not None)]

    def run(atoms: np.ndarray, first: bool) -> tuple[np.ndarray, bool, bool]:
        nonlocal fits, part, rows, starts
        place = np.full(M, -1)
        place[atoms] = np.arange(len(atoms))
        part = basis.take(atoms)
        before = [f.result.state.objective for f in fits]
        fits, rows = [], None  # their dictionary goes before the next one comes
        release_memory()
        rows = gram_rows(part, samples, memory)
        local = starts and [s and Start(place[s.active], s.alpha, s.beta) for s in starts]
        fits = fitted(part, rows, local, first)
        states = [f.result.state for f in fits]
        gained = first or any(s.objective > b + estimator._tol for s, b in zip(states, before, strict=True))
        starts = [Start(atoms[s.active], s.posterior.alpha, s.posterior.beta) for s in states]
        return np.concatenate([s.active for s in starts]), gained, any(cut_short(f.result) for f in fits)

    work = samples.n_rows * float(size) ** 2
    estimator.n_candidates_, estimator.n_subsets_, complete = in_subsets(basis, size, np.concatenate(given), work, run)
    assert rows is not None
    return fits if complete else [replace(f, result=of_some(f.result)) for f in fits], part, rows


def held_noise(fits: list[GaussianFit], problems: list[Problem], noises: np.ndarray | None) -> list[Problem] | None:
    """The problems with the noise (K,) of learned widths, where a fit passes through its targets; None if none does.

    Narrow functions, each with a precision of its own, can explain targets that are noise to all of them together.
    """

    def passes(fit: GaussianFit, problem: Problem, noise: float) -> bool:
        state = fit.result.state
        many = len(state.active) > CROWDED * fit.n_samples
        return many and not problem.fixed_noise and noise * state.posterior.beta > THROUGH

    if noises is None:
        return None
    through = [passes(*each) for each in zip(fits, problems, noises, strict=True)]
    pairs = zip(problems, noises, through, strict=True)
    return [replace(p, noise_variance=float(noise)) if so else p for p, noise, so in pairs] if any(through) else None


def polish(problem: Problem, result: Result, columns: np.ndarray, target: np.ndarray) -> Result:
    """The same support on the uncompressed rows: precisions, noise and evidence exact, the history shifted to it."""
    state = result.state
    design = DenseDesign(columns)
    local = np.arange(design.n_atoms)
    prior_b = None if problem.prior_b is None else problem.prior_b[state.active] * design.scale**2
    order = problem.order[state.active]
    whole = replace(problem, design=design, target=target, target_norm2_outside=0.0, order=order, prior_b=prior_b)
    frame = Frame(design, target, 0.0)
    model = Model(whole, frame, local[:0], state.posterior).at(
        local, state.posterior.alpha * design.scale**-2.0, state.posterior.beta)  # fmt: skip
    if not problem.prior.on_weights:
        model = model.relaxed(50)
    p = model.posterior
    exact = replace(p, alpha=p.alpha * design.scale[model.active] ** 2)
    active = state.active[model.active]
    objective = problem.objective(active, exact)
    shift = objective - state.objective
    history = [replace(step, objective=step.objective + shift) for step in result.history]
    return replace(result, state=replace(state, active=active, posterior=exact, objective=objective), history=history)


def polished_by(samples: Samples, basis: Basis, rows: Rows) -> Any:
    """What gives `fit_gaussian` the exact columns of some atoms, and a target, in a pass over the samples."""

    def exact(active: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
        R = tall_qr(samples, ModelRows(basis.take(active), rows.design.scale[active], output))
        return R[:, :-1], R[:, -1]

    return exact


@dataclass(frozen=True, eq=False)
class ModelRows:
    """The columns of a model and its target on some rows."""

    basis: Basis
    scale: np.ndarray
    output: int

    def __call__(self, block: Block) -> np.ndarray:
        return np.column_stack([self.basis(block.X) / self.scale, block.targets[:, self.output]]) * block.root


def _constant(problem: Problem) -> Result:
    """The model of a target without variation: the bias at the noise floor, or nothing for a target of zeros."""
    fixed = replace(problem, noise_variance=problem.noise_floor)
    solver = Sequential(start="bias")
    state = solver.init(fixed)
    step = Step("start", problem.bias, 0.0, state.objective, len(state.active), problem.noise_floor)
    return Result(state.stepped(largest_gain=0.0, done=True), Status.CONSTANT_TARGET, [step], 0)
