"""Precisions of a fixed support under the Laplace approximation: Newton-like steps, deletions on the way, and the edge
of the region where the approximation is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from relvec.inference.evidence import gain_delete, gain_reestimate, mackay_alpha, optimal_alpha
from relvec.solvers._native.laplace import NewtonSystem
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem
from relvec.solvers.loop import not_lower


@dataclass(frozen=True)
class PrecisionSettings:
    """Limits of the steps on the precisions."""

    max_step: float = 3.0  # in log units, as in regression
    max_predicted_step: float = 1.0  # in log units: the mode of a longer step is not where the linearised problem says
    max_trials: int = 30  # of a step, each more damped than the last
    min_damping: float = 0.1  # of the expectation-maximisation step; where it is needed at all
    damping_growth: float = 4.0
    edge_factor: float = 1.001  # of the least trust: below, a step is planned along the edge
    edge_recoil: float = 1.2  # times as far as a trial crossed the edge the next is aimed inside of it
    max_crossings: int = 4  # of the edge, before the step is damped
    path_length: int = 10  # gradients of earlier steps that correct the curvature
    min_curvature_ratio: float = 1e-2  # of that on the path to the linearised one, for such a correction
    # of single precisions and their inverses, at the end: beyond where Newton's steps see, until one loses more
    long_factors: tuple[float, ...] = (1.25, 2.0, 3.0, 10.0, 30.0)
    short_factors: tuple[float, ...] = (1.05,)  # and of those at the edge, where Newton's steps may crawl
    max_long_loss_nats: float = 1.0  # on the way to a gain: of 2,600 random fits of weighted rows one lost .84
    max_long_units: int = 50  # of a model: the modes of larger ones, two to six a unit, take longer than the search
    # Damping, and how many times the quadratic model's gain steps may bring: measured on a thousand exchanges.
    reach: tuple[tuple[float, float], ...] = ((0.0, 2.0), (0.1, 10.0), (1.0, 10.0))
    accuracy_share: float = 1e-3  # of tol: steps that promise less end the search for precisions
    evidence_rounding: float = 1e-14  # of an evidence: gains below it are rounding


PRECISIONS = PrecisionSettings()


@dataclass
class _Edge:
    """The limit on `LaplacePosterior.trust` that a step may not cross, linearised at the model."""

    model: LaplaceModel
    least: float  # trust that the step has to keep
    margin: float = 0.0  # logarithm by which earlier trials crossed it
    price: float = 0.0  # Lagrange's multiplier of the last step: nats for log trust

    @cached_property
    def normal(self) -> np.ndarray:
        """Derivative of log trust over log alpha (u,)."""
        p = self.model.posterior
        return self.model.problem.gather(p.trust_gradient(self.model.slopes(p.tempered_root)))

    @property
    def near(self) -> bool:
        """Whether the model lies at it, and is to be moved along it."""
        return self.model.problem.patient and self.model.trust < PRECISIONS.edge_factor * self.least

    def is_crossed_by(self, trial: LaplaceModel) -> bool:
        """Whether a trial is beyond it; the next step is then aimed short of where this one ended."""
        if trial.trust >= self.least:
            return False
        self.model.problem.budget.crossings += 1
        with np.errstate(divide="ignore"):
            self.margin += max(
                PRECISIONS.edge_recoil * float(np.log(self.least / max(trial.trust, np.finfo(float).tiny))), 1e-15
            )
        return True

    def keep(self, system: NewtonSystem, step: np.ndarray, damping: float) -> np.ndarray:
        """Return the step to the maximum of the quadratic model on this side."""
        room = float(np.log(self.model.trust / self.least)) - self.margin
        beyond = -(room + float(self.normal @ step))
        along = system.step(damping, self.normal)
        self.price = 0.0
        if beyond <= 0.0 or along is None:
            return step
        self.price = beyond / float(self.normal @ along)
        return step + self.price * along


@dataclass
class _Path:
    """Log alpha, gradient and `_Edge.normal` (or None off the edge) at the last models of a support."""

    points: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = field(default_factory=list)
    price: float = 0.0  # of the edge in the last step

    def append(self, model: LaplaceModel, system: NewtonSystem, edge: _Edge) -> None:
        """Append a model, and correct its curvature by the change of the gradient on the way.

        The linearised problem holds B fixed. Where all precisions move together, as in separable classes, B moves with
        them and the true curvature is a fraction of the linearised one. At the edge the curvature is that of Lagrange's
        function.
        """
        normal = edge.normal if edge.near else None
        self.points = [*self.points[-PRECISIONS.path_length :], (np.log(model.alpha), system.gradient, normal)]
        if normal is None:
            self.price = 0.0
        for (x_old, g_old, old), (x_new, g_new, new) in pairwise(self.points):
            if self.price and old is not None and new is not None:
                g_old, g_new = g_old + self.price * old, g_new + self.price * new
            elif self.price:
                continue
            correct_curvature(system.minus_hessian, x_new - x_old, g_old - g_new)


def correct_curvature(H: np.ndarray, s: np.ndarray, y: np.ndarray) -> None:
    """Correct minus a Hessian (u, u) by the fall y of the gradient in a step s (BFGS), unless that is too flat."""
    Hs = H @ s
    sHs, sy = s @ Hs, s @ y
    if sHs > 0.0 and sy > PRECISIONS.min_curvature_ratio * sHs:
        H += np.outer(y, y / sy) - np.outer(Hs, Hs / sHs)


def relax(model: LaplaceModel, steps: int, accuracy: float | None = None) -> tuple[LaplaceModel, float]:
    """Raise the Laplace evidence over log alpha by at most ``steps`` steps; delete on the way.

    The gradient is exact; the curvature is that of the linearised problem, damped towards the
    expectation-maximisation step until the refitted evidence does not fall. A step that would leave the region of trust
    is the last; where the problem is ``patient`` it ends at the edge, and others follow along it. Ends where the
    quadratic model expects less than ``accuracy`` (nats; a thousandth of tol by default); returns that expectation too.
    """
    accuracy = PRECISIONS.accuracy_share * model.problem.tol if accuracy is None else accuracy
    damping, expected, path = 0.0, 0.0, _Path()
    for _ in range(steps):
        before = len(model.active)
        model = prune(model)
        if not len(model.active):
            return model, 0.0
        if len(model.active) < before:
            path = _Path()
        system, old = model.system(), model.objective
        edge = _Edge(model, min(model.problem.trusted, model.trust))
        path.append(model, system, edge)
        moved, expected, damping = _try_steps(model, system, edge, damping, expected)
        path.price = edge.price
        if moved is None:
            break
        model = moved
        little = max(accuracy, PRECISIONS.evidence_rounding * abs(old))
        # a step back to the edge loses; a much damped one expects little anywhere
        if abs(expected) < little and damping <= PRECISIONS.min_damping:
            break
    return prune(model), expected


def _try_steps(
    model: LaplaceModel, system: NewtonSystem, edge: _Edge, damping: float, expected: float
) -> tuple[LaplaceModel | None, float, float]:
    """Take a step: the model, the gain that was expected, and the damping of the next; None where none rises."""
    along, old, crossings = edge.near, model.objective, 0
    for _ in range(PRECISIONS.max_trials):
        step = system.step(damping)
        if step is not None:
            if along:
                step = edge.keep(system, step, damping)
            trial = step_to(model, step)
            if edge.is_crossed_by(trial):
                if not model.problem.patient:
                    return None, 0.0, damping
                along, crossings = True, crossings + 1
                if crossings % PRECISIONS.max_crossings:
                    continue
            elif not_lower(trial.objective, old):
                eased = damping / PRECISIONS.damping_growth if damping > PRECISIONS.min_damping else 0.0
                return trial, float(step @ (system.gradient - 0.5 * (system.minus_hessian @ step))), eased
        damping, edge.margin = max(PRECISIONS.min_damping, PRECISIONS.damping_growth * damping), 0.0
    return None, expected, damping


def try_long_steps(model: LaplaceModel) -> LaplaceModel:
    """Return the model with the precision of one unit far from where it was, where that gains.

    The evidence over a single precision may have two maxima, and is flat far out: there the linearised problem knows
    its optimum (TF03 eq. (20)).
    """
    if not model.problem.thorough or len(model.active) > PRECISIONS.max_long_units:
        return model
    best, tol, least = model, model.problem.tol, min(model.problem.trusted, model.trust)
    s, q = model.posterior.sparsity_quality()
    optimum, promised = optimal_alpha(s, q), gain_reestimate(model.alpha, s, q)
    at_edge = model.trust < PRECISIONS.edge_factor * least
    units = np.eye(len(model.active))
    sizes = np.log([*(PRECISIONS.short_factors if at_edge else ()), *PRECISIONS.long_factors])
    ways = [*((unit, sizes) for unit in units), *((unit, -sizes) for unit in units)]
    for i in np.flatnonzero((promised > tol) & np.isfinite(optimum)):
        ways.append((units[i], np.log(optimum[[i]] / model.alpha[i])))
    for unit, steps in ways:
        for step in steps:
            trial = model.step_to(step * unit, False)
            if trial.objective > best.objective + tol and trial.trust >= least:
                best = trial
            if trial.objective < model.objective - PRECISIONS.max_long_loss_nats:
                break
    return best


def step_to(model: LaplaceModel, step: np.ndarray) -> LaplaceModel:
    """Return the model at log alpha + step (u,), shortened to `PrecisionSettings.max_step`."""
    longest = max(map(abs, step.tolist()))
    if longest > PRECISIONS.max_step:
        step *= PRECISIONS.max_step / longest
    return model.step_to(step, longest < PRECISIONS.max_predicted_step)


def within_reach(model: LaplaceModel, objective: float) -> bool:
    """Whether further steps on the precisions may lead to ``objective``, by the quadratic model."""
    missing = objective - model.objective
    if missing <= 0.0 or not len(model.active):
        return missing <= 0.0
    system = model.system()
    for damping, generous in PRECISIONS.reach:
        step = system.step(damping)
        if step is not None:
            return generous * 0.5 * float(system.gradient @ step) > missing
    return True


def prune(model: LaplaceModel) -> LaplaceModel:
    """Delete units whose optimal precision is infinite (TF03 eq. (21)), while the refitted objective does not fall.

    Units whose deletion gained nothing are remembered and not tried again.
    """
    while model.fit.any_infinite:
        gains, dead = deletion_gains(model)
        if model.refused:
            dead &= ~np.isin(model.active, list(model.refused))
        if not dead.any():
            break
        worst = np.arange(len(dead)) == np.argmax(np.where(dead, gains, -np.inf))
        for leave in (dead, worst) if dead.sum() > 1 else (worst,):
            trial = model.drop(leave)
            if not_lower(trial.objective, model.objective):
                model = trial
                break
        else:
            model = replace(model, refused=model.refused.union(model.active[dead].tolist()))
    return model


def deletion_gains(model: LaplaceModel) -> tuple[np.ndarray, np.ndarray]:
    """Linearised gain (u,) of deleting each unit, and whether its optimal precision is infinite."""
    p, problem = model.fit, model.problem
    gain, square, least = gain_delete(p.alpha, p.gamma, p.mean, p.variance), p.mean**2, p.gamma * p.variance
    if not problem.share:
        return gain, square <= least
    gain = problem.gather(gain)
    return gain, (problem.gather((square - least) / p.variance**2) <= 0.0) & (gain >= 0.0)


# ---------------------------------------------------------------- fixed points, T01 section 3


def every_unit(problem: LaplaceProblem) -> np.ndarray:
    """Return all units whose columns do not vanish."""
    return np.flatnonzero(np.tile(problem.design.scale > 0.0, problem.n_units // problem.design.n_atoms))


def begin_with(problem: LaplaceProblem, units: np.ndarray) -> LaplaceModel:
    """Return the model of some units with precisions so small that the data decide."""
    alpha = np.full(len(units), 1.0 / problem.weights.sum())
    if problem.prior_b is not None:
        b = problem.prior_b[units % problem.design.n_atoms]
        with np.errstate(divide="ignore", over="ignore"):  # a rate too small for a double bounds nothing
            alpha = np.minimum(alpha, (1.0 + 2.0 * problem.prior.a) / (2.0 * b))
    return LaplaceModel(problem, units, problem.fit(units, alpha))


def update_precisions(model: LaplaceModel, expectation: bool = False) -> np.ndarray:
    """Return the precisions (u,) of T01 eq. (16), or of eq. (48) for ``expectation``.

    Where k weights share a precision, sums over them take the place of single values.
    """
    problem, p = model.problem, model.fit
    a, k = problem.prior.a, problem.per_unit
    b = 0.0 if problem.prior_b is None else problem.prior_b[model.active % problem.design.n_atoms]
    squares, gamma, variance = (problem.gather(v) for v in (p.mean**2, p.gamma, p.variance))
    if expectation:
        new = (k + 2.0 * a) / (squares + variance + 2.0 * b)
    else:
        new = mackay_alpha(gamma, np.sqrt(squares), a, b)
    return np.where(new > 0.0, new, model.alpha)
