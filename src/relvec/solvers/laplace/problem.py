"""Models of a likelihood that is not Gaussian: a support with its Laplace posterior, and the inner problem.

A *unit* is what enters or leaves a model: a (class, atom) pair with its own precision, or, where the classes share
their precisions, an atom with the weights of all classes. With one output units are atoms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from relvec.design import LaplaceDesign, ModelOnRows, Observed
from relvec.inference.evidence import gain_delete, hessian
from relvec.inference.laplace import LaplacePosterior, PosteriorOnRows
from relvec.inference.likelihoods import Likelihood
from relvec.inference.linalg import solve_symmetric
from relvec.inference.priors import FLAT, GammaPrior
from relvec.solvers.laplace import compiled
from relvec.solvers.loop import not_lower

TRUSTED = 0.5  # steps do not take `LaplaceModel.trust` below this
_MEMORY = 10  # gradients of earlier steps that correct the curvature
_LONGEST = 3.0  # step cap in log units, as in regression


@dataclass
class WorkBudget:
    """Nanoseconds that the Newton steps of a search would take on one core of about 20 GFlop/s.

    What a clock would say, but the same in every run: restarts are cut short by it.
    """

    spent: float = 0.0


@dataclass(frozen=True, eq=False)
class LaplaceProblem:
    """A problem for a solver under the Laplace approximation, with columns of unit norm."""

    design: LaplaceDesign  # (n, M) the dictionary
    # see `relvec.design.Observed`; the likelihood has K outputs
    target: Any
    weights: Any
    likelihood: Likelihood
    order: np.ndarray  # (M,) rank of each atom by content, which decides between equally good ones
    share: bool = False  # whether the classes share one precision per atom
    bias: int = -1  # index of the bias atom, -1 if there is none
    closed: tuple[int, ...] = ()  # atoms that are not offered
    start: tuple[np.ndarray, np.ndarray] | None = None  # units and their precisions to start from
    shift: float = 0.0  # added to every evidence: what merging equal rows took from the constant of the likelihood
    # Gamma hyperprior and its rates (M,) in scaled units
    prior: GammaPrior = FLAT
    prior_b: np.ndarray | None = None
    trusted: float = TRUSTED  # steps do not take `LaplaceModel.trust` below this
    tol: float = 1e-3  # nats; a fit ends when no single move gains more
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    budget: WorkBudget = field(default_factory=WorkBudget)  # the work done so far

    @property
    def K(self) -> int:
        """Number of outputs."""
        return self.likelihood.n_outputs

    @property
    def n_units(self) -> int:
        """Number of units the dictionary offers."""
        return self.design.n_atoms * (1 if self.share else self.K)

    @property
    def per_unit(self) -> int:
        """Weights of a unit."""
        return self.K if self.share else 1

    @property
    def observed(self) -> Observed:
        """The targets of the rows, their weights and the likelihood."""
        return Observed(self.target, self.weights, self.likelihood)

    @cached_property
    def constant(self) -> float:
        """The part of the log-likelihood that does not depend on f."""
        return self.likelihood.constant(self.target, self.weights)

    def pairs(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output and atom of every weight of the units, unit by unit."""
        return paired(units, self.design.n_atoms, self.K if self.share else 1)

    def rank(self, units: np.ndarray) -> np.ndarray:
        """Rank of units by content."""
        return self.order[units % self.design.n_atoms] * self.K + units // self.design.n_atoms

    def gather(self, values: np.ndarray) -> np.ndarray:
        """Sums over the weights of each unit, along every axis."""
        if not self.share:
            return values
        u = len(values) // self.K
        if values.ndim == 1:
            return values.reshape(u, self.K).sum(axis=1)
        return values.reshape(u, self.K, u, self.K).sum(axis=(1, 3))

    def posterior(self, units, alpha, start=None, near: LaplaceModel | None = None, guess=None) -> LaplacePosterior:
        """The Laplace posterior of the units at precisions alpha (u,); ``guess`` as in `laplace`.

        A model ``near`` may have many of the same columns.
        """
        outputs, atoms = self.pairs(units)
        each = np.repeat(alpha, self.per_unit)
        columns = self.design.model_columns(atoms, None if near is None else near.on_rows)
        if compiled.in_use(self.likelihood, len(each), self.target):
            found = compiled.mode(self.likelihood, columns, self.target, self.weights, each, start, self.constant)
            if found is not None:
                self.budget.spent += found.spent
                return found.posterior
        self.budget.spent += 4.0 * self.design.n_rows * (25.0 * self.K + 0.5 * len(each) + 0.05 * len(each) ** 2)
        return self.design.mode(self.observed, atoms, columns, outputs, each, start, guess)

    def objective(self, units: np.ndarray, posterior: LaplacePosterior) -> float:
        """The Laplace evidence plus the hyperprior's terms, T01 eq. (36)."""
        value = posterior.log_evidence + self.shift
        if self.prior_b is not None:
            b = self.prior_b[units % self.design.n_atoms]
            value += self.prior.log_density(posterior.alpha[:: self.per_unit], np.nan, b, 0.0)
        return value


@dataclass(frozen=True)
class Slopes:
    """`PosteriorOnRows.slopes` of some rows."""

    likelihood: Likelihood

    def __call__(self, p: PosteriorOnRows, weights: np.ndarray) -> np.ndarray:
        return p.slopes(self.likelihood, weights)


def paired(units: np.ndarray, n_atoms: int, shared: int) -> tuple[np.ndarray, np.ndarray]:
    """Output and atom of every weight of the units of a dictionary, unit by unit, where so many outputs share each."""
    if shared > 1:
        return np.tile(np.arange(shared), len(units)), np.repeat(units, shared)
    return units // n_atoms, units % n_atoms


@dataclass(frozen=True, eq=False)
class LaplaceModel:
    """Units with their posterior.

    ``atom`` is the unit last moved; ``refused`` are units whose deletion was tried in vain on the way here.
    """

    problem: LaplaceProblem
    active: np.ndarray
    posterior: Any  # LaplacePosterior; PosteriorOnRows where the rows are here
    atom: int = -1
    refused: frozenset[int] = frozenset()

    @property
    def objective(self) -> float:
        """The Laplace evidence plus the terms of the hyperprior."""
        return self.problem.objective(self.active, self.posterior)

    @property
    def alpha(self) -> np.ndarray:
        """Precision of each unit."""
        return self.posterior.alpha[:: self.problem.per_unit]

    @property
    def on_rows(self) -> ModelOnRows:
        """The model as designs know it."""
        return ModelOnRows(self.problem.observed, self.problem.pairs(self.active)[1], self.posterior)

    @property
    def trust(self) -> float:
        """Ratio of w'Aw to the number sum gamma of well-determined weights: 1 at the fixed point of T01 eq. (16).

        Near 1 the Laplace approximation is self-consistent. On separable classes the Laplace evidence has a second,
        spurious maximum at alpha -> 0, where the latent function runs to +-infinity, B vanishes and this ratio too.
        """
        p = self.posterior
        total = float(p.gamma.sum())
        return float(np.sum(p.alpha * p.mean**2)) / total if total > 0.0 else 1.0

    def at(self, alpha: np.ndarray, start: np.ndarray) -> LaplaceModel:
        """The same units at other precisions."""
        p = self.posterior
        posterior = self.problem.posterior(self.active, alpha, start, self, p.root)
        return LaplaceModel(self.problem, self.active, posterior, self.atom, self.refused)

    def drop(self, leave: np.ndarray) -> LaplaceModel:
        """The model without some of its units (mask)."""
        keep = ~leave
        each = np.repeat(keep, self.problem.per_unit)
        p = self.posterior
        # the others move to where the linearised problem puts them: mu_keep - Sigma_kl Sigma_ll^-1 mu_l (TF03 A.4)
        gone = p.root[~each]
        start = p.mean[each] - p.root[each] @ np.linalg.lstsq(gone, p.mean[~each], rcond=None)[0]
        posterior = self.problem.posterior(self.active[keep], self.alpha[keep], start, self, p.root[each])
        return LaplaceModel(self.problem, self.active[keep], posterior, self.atom, self.refused)

    def add(self, units: np.ndarray, alpha: np.ndarray, start: np.ndarray) -> LaplaceModel:
        """The model with further units, whose weights (pair by pair) begin at ``start``."""
        p = self.posterior
        active = np.append(self.active, units)
        spread = 1.0 / np.sqrt(np.repeat(alpha, self.problem.per_unit))
        guess = block_diag(p.root, np.diag(spread))
        posterior = self.problem.posterior(active, np.append(self.alpha, alpha), np.append(p.mean, start), self, guess)
        return LaplaceModel(self.problem, active, posterior, int(units[0]), self.refused)

    def gradient(self) -> np.ndarray:
        """Exact dL/dlog alpha of every unit: T01 eq. (42) and the implicit term."""
        p = self.posterior
        explicit = 0.5 * (p.gamma - p.alpha * p.mean**2)
        slopes = self.problem.design.reduce(self.on_rows, Slopes(self.problem.likelihood))
        return self.problem.gather(explicit + p.implicit_gradient(slopes))

    def relax(self, steps: int) -> LaplaceModel:
        """The model after Newton-like steps on its precisions."""
        return relax(self, steps)[0]


def empty_model(problem: LaplaceProblem) -> LaplaceModel:
    """The model without units."""
    none = np.zeros(0, dtype=np.intp)
    return LaplaceModel(problem, none, problem.posterior(none, np.zeros(0)))


def relax(model: LaplaceModel, steps: int, accuracy: float | None = None) -> tuple[LaplaceModel, float]:
    """Raise the Laplace evidence over log alpha by at most ``steps`` steps; delete on the way.

    The gradient is exact; the curvature is that of the linearised problem, damped towards the
    expectation-maximisation step until the refitted evidence does not fall. Ends where the quadratic model expects
    less than ``accuracy`` (nats; a thousandth of tol by default), and returns that expectation too.
    """
    accuracy = 1e-3 * model.problem.tol if accuracy is None else accuracy
    found = _relax_compiled(model, steps, accuracy)
    if found is not None:
        return found
    damping, expected = 0.0, 0.0
    path: list[tuple[np.ndarray, np.ndarray]] = []  # log alpha and gradient at the last models of this support
    for _ in range(steps):
        before = len(model.active)
        model = prune(model)
        if len(model.active) < before:
            path = []
        p, problem = model.posterior, model.problem
        if not len(model.active):
            return model, 0.0
        alpha, (g, minus_H, em) = model.alpha, _slopes(model)
        path = [*path[-_MEMORY:], (np.log(alpha), g)]
        minus_H = _with_secants(minus_H, path)
        old, moved = model.objective, None
        for _ in range(30):
            step = solve_symmetric(minus_H if not damping else minus_H + np.diag(damping * em), g)
            if step is not None:
                longest = np.abs(step).max()
                if longest > _LONGEST:
                    step *= _LONGEST / longest
                # dw/dlog alpha_j = -Sigma_j alpha_j w_j tells where the mode goes
                shift = p.root @ (p.root.T @ (p.alpha * p.mean * np.repeat(step, problem.per_unit)))
                trial = model.at(alpha * np.exp(step), p.mean - (shift if longest < 1.0 else 0.0))
                if not_lower(trial.objective, old):
                    if trial.trust < min(
                        problem.trusted, model.trust
                    ):  # the edge of where the approximation means something
                        return model, 0.0
                    moved = trial
                    break
            damping = max(0.1, 4.0 * damping)
        if moved is None:
            break
        expected = 0.5 * float(g @ step)
        damping = 0.25 * damping if damping > 0.1 else 0.0
        model = moved
        if expected < max(accuracy, 1e-14 * abs(old)):
            break
    return prune(model), expected


def _relax_compiled(model: LaplaceModel, steps: int, accuracy: float) -> tuple[LaplaceModel, float] | None:
    """`relax` in C; None where it is not to be had."""
    problem, active = model.problem, model.active
    if problem.prior_b is not None or not compiled.in_use(problem.likelihood, len(active), problem.target):
        return None
    refused = np.isin(active, list(model.refused)) if model.refused else np.zeros(len(active), bool)
    found = compiled.relax(
        problem.likelihood, model.posterior, problem.target, problem.weights, refused, steps, accuracy,
        problem.trusted, problem.shift, problem.constant,
    )  # fmt: skip
    if found is None:
        return None
    problem.budget.spent += found.spent
    kept = active[found.places]
    never = model.refused.union(kept[found.refused].tolist()) if found.refused.any() else model.refused
    return LaplaceModel(problem, kept, found.posterior, model.atom, never), found.expected


def _slopes(model: LaplaceModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradient over log alpha, minus the linearised Hessian, and the diagonal it is damped towards."""
    p, problem = model.posterior, model.problem
    minus_H = problem.gather(-hessian(p.alpha, p.mean, p.covariance, 1.0, 0.0)[0])
    return model.gradient(), minus_H, problem.gather(0.5 * p.alpha * (p.mean**2 + p.variance))


def within_reach(model: LaplaceModel, objective: float) -> bool:
    """Whether further steps on the precisions may lead to ``objective``, by what the quadratic model expects.

    Twice that, or ten times where the curvature has to be damped: measured on a thousand exchanges.
    """
    missing = objective - model.objective
    if missing <= 0.0 or not len(model.active):
        return missing <= 0.0
    g, minus_H, em = _slopes(model)
    for damping, generous in ((0.0, 2.0), (0.1, 10.0), (1.0, 10.0)):
        step = solve_symmetric(minus_H + np.diag(damping * em), g)
        if step is not None:
            return generous * 0.5 * float(g @ step) > missing
    return True


def _with_secants(minus_H: np.ndarray, path: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The curvature corrected by what the gradient did on the way here (BFGS).

    The linearised problem holds B fixed. Where all precisions move together, as in separable classes, B moves with
    them and the true curvature is a fraction of the linearised one.
    """
    for (x_old, g_old), (x_new, g_new) in pairwise(path):
        s, y = x_new - x_old, g_old - g_new
        Hs = minus_H @ s
        sHs, sy = float(s @ Hs), float(s @ y)
        if sHs > 0.0 and sy > 1e-2 * sHs:
            Hs, y = Hs / np.sqrt(sHs), y / np.sqrt(sy)
            minus_H = minus_H - np.outer(Hs, Hs) + np.outer(y, y)
    return minus_H


def prune(model: LaplaceModel) -> LaplaceModel:
    """Delete units whose optimal precision is infinite (TF03 eq. (21)), while the refitted objective does not fall.

    Units whose deletion was tried in vain are remembered and not tried again.
    """
    while len(model.active):
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
    p, problem = model.posterior, model.problem
    each = gain_delete(p.alpha, p.gamma, p.mean, p.variance)
    s, q = p.sparsity_quality()
    if not problem.share:
        with np.errstate(over="ignore"):
            return each, q * q <= s
    total = problem.gather(each)
    return total, (problem.gather(q * q - s) <= 0.0) & (total >= 0.0)
