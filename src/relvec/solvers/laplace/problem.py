"""Models of a likelihood that is not Gaussian: a support with its Laplace posterior, and the inner problem.

A *unit* is what enters or leaves a model: a (class, atom) pair with its own precision, or, where the classes share
their precisions, an atom with the weights of all classes. With one output units are atoms.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag, lapack

from relvec.design import LaplaceDesign
from relvec.inference.hyperpriors import FLAT, GammaPrior
from relvec.inference.laplace import NEWTON, laplace
from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.inference.likelihoods import MAX_LOG_RATE, Bernoulli, Likelihood, Poisson
from relvec.inference.linalg import NORMAL_EQUATIONS_LIMIT
from relvec.inference.prior_rows import NO_PRIOR_ROWS, PriorRows
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.runtime.machine import n_threads
from relvec.solvers._native.laplace import Mode, NewtonSystem, Rows, evidence_system, moved_mode

TRUSTED = 0.5  # steps do not take `LaplacePosterior.trust` below this
MIN_PIVOT_SHARE = 1e-8  # of its diagonal: a larger pivot shows that normal equations beyond their limit lost few digits
_MAX_EXCESS = 20.0  # of the logarithm of a rate where Newton's steps start, above that of the largest count
_PASSES_A_MODE = 4.0  # over the rows
# Of a row in a pass, on one core of about 20 GFlop/s.
_PER_SAMPLE_NS, _PER_COLUMN_NS, _PER_PAIR_NS = 25.0, 0.5, 0.05
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
    target: Any  # (n,), or (n, K) where the likelihood has K outputs; with the part of ``prior_rows``
    weights: Any  # (n,) sample weights
    likelihood: Likelihood
    order: np.ndarray  # (M,) rank of each atom by content, which decides between equally good ones
    share: bool = False  # whether the classes share one precision per atom
    bias: int = -1  # index of the bias atom, -1 if there is none
    start: tuple[np.ndarray, np.ndarray] | None = None  # units and their precisions to start from
    shift: float = 0.0  # added to every evidence: what merging equal rows took from the constant of the likelihood
    # Gamma hyperprior and its rates (M,) in scaled units
    prior: GammaPrior = FLAT
    prior_b: np.ndarray | None = None
    prior_rows: PriorRows = NO_PRIOR_ROWS  # what is in the targets besides the data
    trusted: float = TRUSTED  # steps do not take `LaplacePosterior.trust` below this
    price: float = 0.0  # nats that every unit costs but the constant; inf is the constant alone
    most_functions: int | None = None  # that a model may have, the constant not counted
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

    @cached_property
    def rows(self) -> Rows | None:
        """The rows for compiled loops; None where there are several outputs."""
        return rows_for_loops(self.target, self.weights, self.likelihood)

    @property
    def few_rows(self) -> bool:
        """Whether a search is `thorough` before it ends."""
        return self.rows is not None and self.design.n_rows <= _MAX_THOROUGH_ROWS

    def open_to(self, work: float) -> bool:
        """Whether there is time left, and less work done than ``work``."""
        return self.budget.spent < work and self.clock.left() > 0.0

    def tolerance(self, size: int) -> float:
        """Nats that no single move may gain any more for a model of so many units to be done."""
        return self.tol

    def pairs(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Output and atom of every weight of the units, unit by unit."""
        if self.per_unit > 1:
            return np.tile(np.arange(self.K), len(units)), np.repeat(units, self.K)
        return units // self.design.n_atoms, units % self.design.n_atoms

    def count_functions(self, units: np.ndarray) -> int:
        """Return the number of functions that units (u,) have, the constant not counted."""
        atoms = np.unique(units % self.design.n_atoms)
        return int(np.count_nonzero(atoms != self.bias))

    def room_beside(self, units: np.ndarray, batch: int) -> int:
        """Return how many of a batch of units may be added to a model of these units (u,)."""
        return batch if self.most_functions is None else min(batch, self.most_functions - self.count_functions(units))

    def near_copies(self, unit: int) -> np.ndarray:
        """Return the atoms, the constant excepted, that are near-copies of that of a unit."""
        atom = unit % self.design.n_atoms
        close = self.design.near_copies(atom, self.weights)
        return close[:0] if atom == self.bias else close[close != self.bias]

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

    def columns(self, units: np.ndarray) -> np.ndarray:
        """Return the columns (n, k) of every weight of the units, one after the other in memory."""
        return np.asfortranarray(self.design.columns(self.pairs(units)[1]))

    def fit(
        self, units: np.ndarray, alpha: np.ndarray, start: np.ndarray | None = None, Phi: np.ndarray | None = None,
        guess: np.ndarray | None = None,
    ) -> Mode | PosteriorOnRows:  # fmt: skip
        """Laplace's approximation for the units at precisions alpha (u,), the mode looked for from weights ``start``.

        ``Phi`` are their `columns` where they are known, ``guess`` is as in `laplace`.
        """
        Phi, outputs = self.columns(units) if Phi is None else Phi, self.pairs(units)[0]
        self.budget.spent += self.mode_ns(len(outputs))
        if self.rows is not None:
            if start is not None and isinstance(self.likelihood, Poisson):
                start = shorten_start(start, Phi, self.target)
            mode = self.rows.fit(Phi, np.ascontiguousarray(alpha, dtype=float), start)
            if mode is not None:
                return mode
        each = np.repeat(alpha, self.per_unit)
        return laplace(Phi, self.target, self.weights, each, self.likelihood, start, outputs, guess, self.share)

    def mode_ns(self, n_weights: int) -> float:
        """Return the work of the mode of so many weights."""
        a_row = _PER_SAMPLE_NS * self.K + _PER_COLUMN_NS * n_weights + _PER_PAIR_NS * n_weights**2
        return _PASSES_A_MODE * self.design.n_rows * a_row

    def posterior(self, units, alpha, start=None) -> PosteriorOnRows:
        """`fit` as a posterior."""
        fit = self.fit(units, alpha, start)
        return posterior_of(fit) if isinstance(fit, Mode) else fit

    def prices(self, units: np.ndarray) -> np.ndarray:
        """Nats (u,) that each unit costs."""
        return np.where(units % self.design.n_atoms == self.bias, 0.0, self.price)

    def objective(self, units: np.ndarray, posterior: Any) -> float:
        """Return the Laplace evidence less the price of the units, plus the hyperprior's terms, T01 eq. (36)."""
        value = posterior.log_evidence + self.shift - float(self.prices(units).sum())
        if self.prior_b is not None:
            b = self.prior_b[units % self.design.n_atoms]
            value += self.prior.log_density(posterior.alpha[:: self.per_unit], np.nan, b, 0.0)
        return value


@dataclass(frozen=True, eq=False)
class LaplaceModel:
    """Units with Laplace's approximation to the posterior of their weights.

    ``atom`` is the unit last moved; ``refused`` are units whose deletion gained nothing on the way here. The algebra of
    one output is done by compiled loops (`Mode`), that of several, and of columns that these leave, by NumPy.
    """

    problem: LaplaceProblem
    active: np.ndarray
    fit: Any  # Mode or PosteriorOnRows
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
    def posterior(self) -> PosteriorOnRows:
        """The posterior of the weights."""
        return posterior_of(self.fit) if isinstance(self.fit, Mode) else self.fit

    @property
    def trust(self) -> float:
        """Self-consistency of the approximation."""
        return self.fit.trust

    def at(self, alpha: np.ndarray, start: np.ndarray) -> LaplaceModel:
        """Return the same units at other precisions."""
        return self._with(self.active, alpha, start, self.fit.Phi, self.fit.root)

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
        return self._with(self.active[keep], self.alpha[keep], start, p.Phi.T[each].T, p.root[each])

    def keep(self, keep: np.ndarray, alpha: np.ndarray) -> LaplaceModel:
        """Return the model with some of its units (mask), at other precisions (u,)."""
        each = np.repeat(keep, self.problem.per_unit)
        return self._with(self.active[keep], alpha[keep], self.fit.mean[each], self.fit.Phi.T[each].T)

    def add(self, units: np.ndarray, alpha: np.ndarray, start: np.ndarray) -> LaplaceModel:
        """Return the model with further units, whose weights (pair by pair) begin at ``start``."""
        p, problem = self.fit, self.problem
        Phi = np.concatenate([p.Phi.T, problem.columns(units).T]).T
        guess = None
        if problem.K > 1:
            guess = block_diag(p.root, np.diag(1.0 / np.sqrt(np.repeat(alpha, problem.per_unit))))
        alpha, start = np.append(self.alpha, alpha), np.append(p.mean, start)
        return self._with(np.append(self.active, units), alpha, start, Phi, guess, int(units[0]))

    def swap(self, place: int, unit: int, alpha: float, weights: np.ndarray) -> LaplaceModel:
        """Return the model with another unit, its precision and weights, in place of one."""
        own = slice(place * self.problem.per_unit, (place + 1) * self.problem.per_unit)
        active, precisions = self.active.copy(), self.alpha.copy()
        start, Phi = self.fit.mean.copy(), self.fit.Phi.copy(order="F")
        active[place], precisions[place], start[own] = unit, alpha, weights
        Phi[:, own] = self.problem.columns(np.array([unit]))
        return self._with(active, precisions, start, Phi, atom=unit)

    def _with(
        self, active: np.ndarray, alpha: np.ndarray, start: np.ndarray, Phi: np.ndarray, guess: Any = None,
        atom: int | None = None,
    ) -> LaplaceModel:  # fmt: skip
        """Units with their columns and their mode, from a start; ``guess`` as in `laplace`."""
        fit = self.problem.fit(active, alpha, start, Phi, guess)
        return LaplaceModel(self.problem, active, fit, self.atom if atom is None else atom, self.refused)

    def slopes(self, root: np.ndarray | None = None) -> np.ndarray:
        """`PosteriorOnRows.slopes` summed over all rows."""
        if isinstance(self.fit, Mode):
            return self.fit.slopes(root)
        return self.fit.slopes(self.problem.likelihood, self.problem.weights, root)

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


# ---------------------------------------------------------------- rows of one output, and what work costs


def rows_for_loops(target: Any, weights: Any, likelihood: Likelihood) -> Rows | None:
    """Hold targets and weights, both (n,), for compiled loops; None where there are several outputs."""
    if type(likelihood) not in (Bernoulli, Poisson):
        return None
    t, w = (np.ascontiguousarray(values, dtype=float) for values in (target, weights))
    constant = likelihood.constant(t, w)
    return Rows(
        t, w, type(likelihood) is Poisson, constant, MAX_LOG_RATE, run_parts, NEWTON.max_steps, NEWTON.max_idle_steps,
        NEWTON.rough_decrement, NEWTON.exact_decrement, NEWTON.still_nats, NORMAL_EQUATIONS_LIMIT, MIN_PIVOT_SHARE,
    )  # fmt: skip


def shorten_start(start: np.ndarray, Phi: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights (k,) to start from, scaled down where rates are far above all counts: there Newton's steps are slow."""
    highest, most = float((Phi @ start).max()), float(np.log1p(counts.max()))
    return start * (most / highest) if highest > most + _MAX_EXCESS else start


def posterior_of(mode: Mode) -> PosteriorOnRows:
    """Return a mode as a posterior."""
    f, r, W = mode.state
    outputs = np.zeros(len(mode.alpha), dtype=np.intp)
    return PosteriorOnRows(outputs, mode.alpha, mode.mean, mode.root, mode.log_evidence, mode.Phi, f, r, W)


def run_parts(part: Callable[[int], None], count: int) -> None:
    """Every part of a sum over many rows, in threads where there are some."""
    workers = min(n_threads(), count)
    if workers < 2:
        for i in range(count):
            part(i)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(part, range(count)):
            pass
