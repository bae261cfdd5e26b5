"""Models of a likelihood that is not Gaussian: a support with its Laplace posterior, and the inner problem.

A *unit* is what enters or leaves a model: a (class, atom) pair with its own precision, or, where the classes share
their precisions, an atom with the weights of all classes. With one output units are atoms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.linalg import block_diag, lapack

from relvec.design import LaplaceDesign, ModelOnRows, Observed
from relvec.inference.laplace_posterior import LaplacePosterior, PosteriorOnRows
from relvec.inference.likelihoods import Likelihood, Poisson
from relvec.inference.priors import FLAT, GammaPrior
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.solvers._native.laplace import Mode, NewtonSystem, Rows, evidence_system, moved_mode
from relvec.solvers.laplace.rows import pass_ns, posterior_of, rows_in_memory, shorten_start

TRUSTED = 0.5  # steps do not take `LaplacePosterior.trust` below this
_PASSES_A_MODE = 4.0  # over the rows
# Of few rows a function moves the curvature much, and the linearised problem tells little; for more rows moves that it
# does not propose cost more than they are worth.
_MAX_THOROUGH_ROWS = 2000


@dataclass(eq=False)
class WorkBudget:
    """The work of a search, in nanoseconds that it would take on one core of about 20 GFlop/s.

    Unlike a clock it is the same in every run; restarts are limited by it.
    """

    spent: float = 0.0
    first: float = 0.0  # on the way to the first maximum; 0 before it is reached
    crossings: int = 0  # trials that were refused because they left the region of trust


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
    trusted: float = TRUSTED  # steps do not take `LaplacePosterior.trust` below this
    price: float = 0.0  # nats that every unit costs
    # whether models are moved along the edge of the region of trust, or stay where they reach it
    patient: bool = False
    thorough: bool = False  # whether moves are tried that the linearised problem does not propose
    tol: float = 1e-3  # nats; a fit ends when no single move gains more
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    budget: WorkBudget = field(default_factory=WorkBudget)  # the work done so far
    clock: Clock = NO_LIMIT  # of the fit

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
    def rows(self) -> Rows | None:
        """The rows for compiled loops; None where there are several outputs, or the rows are elsewhere."""
        return rows_in_memory(self.target, self.weights, self.likelihood)

    @property
    def few_rows(self) -> bool:
        """Whether a search is `thorough` before it ends."""
        return self.rows is not None and self.design.n_rows <= _MAX_THOROUGH_ROWS

    def tolerance(self, size: int) -> float:
        """Nats that no single move may gain any more for a model of so many units to be done."""
        return self.tol

    def pairs(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output and atom of every weight of the units, unit by unit."""
        return pair_outputs(units, self.design.n_atoms, self.K if self.share else 1)

    def rank(self, units: np.ndarray) -> np.ndarray:
        """Rank of units by content."""
        return self.order[units % self.design.n_atoms] * self.K + units // self.design.n_atoms

    def gather(self, values: np.ndarray) -> np.ndarray:
        """Return the sums over the weights of each unit, along every axis."""
        if not self.share:
            return values
        u = len(values) // self.K
        if values.ndim == 1:
            return values.reshape(u, self.K).sum(axis=1)
        return values.reshape(u, self.K, u, self.K).sum(axis=(1, 3))

    def fit(self, units, alpha, start=None, near: LaplaceModel | None = None, guess=None) -> Mode | LaplacePosterior:
        """Laplace's approximation for the units at precisions alpha (u,); ``guess`` as in `laplace`.

        A model ``near`` may have many of the same columns.
        """
        known = None if near is None else near.on_rows
        if self.rows is not None:
            columns: Any = self.design.model_columns(units, known)
            mode = self.rows.fit(np.asfortranarray(columns), np.ascontiguousarray(alpha, dtype=float), start)
            if mode is not None:
                self.count_mode(len(alpha))
                return mode
        outputs, atoms = self.pairs(units)
        each = np.repeat(alpha, self.per_unit)
        self.count_mode(len(each))
        columns = self.design.model_columns(atoms, known)
        return self.design.mode(self.observed, atoms, columns, outputs, each, start, guess)

    def count_mode(self, n_weights: int) -> None:
        """Count the work of the mode of so many weights."""
        self.budget.spent += _PASSES_A_MODE * pass_ns(self.design.n_rows, self.K, n_weights)

    def posterior(self, units, alpha, start=None) -> LaplacePosterior:
        """`fit` as a posterior."""
        fit = self.fit(units, alpha, start)
        return posterior_of(fit) if isinstance(fit, Mode) else fit

    def objective(self, units: np.ndarray, posterior: Mode | LaplacePosterior) -> float:
        """Return the Laplace evidence less the price of the units, plus the hyperprior's terms, T01 eq. (36)."""
        value = posterior.log_evidence + self.shift - self.price * len(units)
        if self.prior_b is not None:
            b = self.prior_b[units % self.design.n_atoms]
            value += self.prior.log_density(posterior.alpha[:: self.per_unit], np.nan, b, 0.0)
        return value


def sum_slopes(likelihood: Likelihood, root: np.ndarray | None, p: PosteriorOnRows, weights: np.ndarray) -> np.ndarray:
    """`PosteriorOnRows.slopes` of some rows."""
    return p.slopes(likelihood, weights, root)


def pair_outputs(units: np.ndarray, n_atoms: int, shared: int) -> tuple[np.ndarray, np.ndarray]:
    """Output and atom of every weight of the units of a dictionary, unit by unit, where so many outputs share each."""
    if shared > 1:
        return np.tile(np.arange(shared), len(units)), np.repeat(units, shared)
    return units // n_atoms, units % n_atoms


@dataclass(frozen=True, eq=False)
class LaplaceModel:
    """Units with Laplace's approximation to the posterior of their weights.

    ``atom`` is the unit last moved; ``refused`` are units whose deletion gained nothing on the way here. The rows in
    memory of one output have their algebra done by compiled loops (`Mode`), others by the design.
    """

    problem: LaplaceProblem
    active: np.ndarray
    fit: Any  # Mode or LaplacePosterior
    atom: int = -1
    refused: frozenset[int] = frozenset()
    objective: float = field(init=False)  # `LaplaceProblem.objective`

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", self.problem.objective(self.active, self.fit))

    @property
    def alpha(self) -> np.ndarray:
        """Precision of each unit."""
        return self.fit.alpha[:: self.problem.per_unit]

    @cached_property
    def posterior(self) -> Any:
        """The `LaplacePosterior` of the weights; `PosteriorOnRows` where the rows are here."""
        return posterior_of(self.fit) if isinstance(self.fit, Mode) else self.fit

    @property
    def on_rows(self) -> ModelOnRows:
        """The model as designs know it."""
        return ModelOnRows(self.problem.observed, self.problem.pairs(self.active)[1], self.posterior)

    @property
    def trust(self) -> float:
        """Self-consistency of the approximation."""
        return self.fit.trust

    def at(self, alpha: np.ndarray, start: np.ndarray) -> LaplaceModel:
        """Return the same units at other precisions."""
        return self._with(self.active, alpha, start, self.fit.root, Phi=self._Phi)

    def step_to(self, step: np.ndarray, predict: bool) -> LaplaceModel:
        """Return the units at log alpha + step (u,), from where the linearised problem has its mode if ``predict``."""
        p, each = self.fit, np.repeat(step, self.problem.per_unit)
        alpha, start = moved_mode(p.alpha, p.mean, np.ascontiguousarray(p.root), each, predict)
        return self.at(alpha[:: self.problem.per_unit], start)

    def drop(self, leave: np.ndarray) -> LaplaceModel:
        """Return the model without some of its units (mask)."""
        keep, p = ~leave, self.fit
        each = np.repeat(keep, self.problem.per_unit)
        # the others move to where the linearised problem puts them: mu_keep - Sigma_kl Sigma_ll^-1 mu_l (TF03 A.4)
        gone = p.root[~each]
        _, pull, failed = lapack.dposv(gone @ gone.T, p.mean[~each])
        start = p.mean[each] if failed else p.mean[each] - p.root[each] @ (gone.T @ pull)
        Phi = None if self._Phi is None else self._Phi.T[keep].T
        return self._with(self.active[keep], self.alpha[keep], start, p.root[each], Phi=Phi)

    def add(self, units: np.ndarray, alpha: np.ndarray, start: np.ndarray) -> LaplaceModel:
        """Return the model with further units, whose weights (pair by pair) begin at ``start``."""
        p, problem = self.fit, self.problem
        Phi = guess = None
        if self._Phi is not None:
            Phi = np.concatenate([self._Phi.T, self._columns(units).T]).T
        elif problem.K > 1:
            guess = block_diag(p.root, np.diag(1.0 / np.sqrt(np.repeat(alpha, problem.per_unit))))
        alpha, start = np.append(self.alpha, alpha), np.append(p.mean, start)
        return self._with(np.append(self.active, units), alpha, start, guess, int(units[0]), Phi)

    def swap(self, place: int, unit: int, alpha: float, weights: np.ndarray) -> LaplaceModel:
        """Return the model with another unit, its precision and weights, in place of one."""
        k, active, Phi = self.problem.per_unit, self.active.copy(), self._Phi
        precisions, start = self.alpha.copy(), self.fit.mean.copy()
        active[place], precisions[place], start[place * k : place * k + k] = unit, alpha, weights
        if Phi is not None:
            Phi = Phi.copy(order="F")
            Phi[:, place] = self._columns([unit])[:, 0]
        return self._with(active, precisions, start, atom=unit, Phi=Phi)

    @property
    def _Phi(self) -> np.ndarray | None:
        """The columns (n, k), column by column in memory, where compiled loops have the rows."""
        return self.fit.Phi if isinstance(self.fit, Mode) else None

    def _columns(self, units: Any) -> np.ndarray:
        design: Any = self.problem.design  # rows in memory are arrays
        return design.columns(units)

    def _with(
        self, active: np.ndarray, alpha: np.ndarray, start: np.ndarray, guess: Any = None, atom: int | None = None,
        Phi: np.ndarray | None = None,
    ) -> LaplaceModel:  # fmt: skip
        """Units with their mode, from a start; ``guess`` as in `laplace`, Phi their columns where they are known."""
        problem, fit = self.problem, None
        if Phi is not None:
            if isinstance(problem.likelihood, Poisson):
                start = shorten_start(start, Phi, problem.target)
            fit = self.fit.rows.fit(Phi, alpha, start)
            problem.count_mode(len(active))
        if fit is None:
            fit = problem.fit(active, alpha, start, self, guess)
        return LaplaceModel(problem, active, fit, self.atom if atom is None else atom, self.refused)

    def slopes(self, root: np.ndarray | None = None) -> np.ndarray:
        """`PosteriorOnRows.slopes` summed over all rows."""
        if isinstance(self.fit, Mode):
            return self.fit.slopes(root)
        return self.problem.design.reduce(self.on_rows, partial(sum_slopes, self.problem.likelihood, root))

    def system(self) -> NewtonSystem:
        """Return the Newton system over log alpha; its gradient is exact: T01 eq. (42) and the part of B's motion."""
        p = self.fit
        if isinstance(p, Mode):
            return p.system()
        parts = evidence_system(p.alpha, p.mean, np.ascontiguousarray(p.root), p.variance, self.slopes())
        return NewtonSystem(*(self.problem.gather(part) for part in parts) if self.problem.share else parts)


def empty_model(problem: LaplaceProblem) -> LaplaceModel:
    """Return the model without units."""
    none = np.zeros(0, dtype=np.intp)
    return LaplaceModel(problem, none, problem.fit(none, np.zeros(0)))
