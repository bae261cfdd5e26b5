"""A model under Gaussian noise for the sequential search; its moves are made in `relvec.solvers._native.gaussian`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relvec.inference.evidence import Posterior, best, gain_delete, gain_reestimate, merge_copies, optimal_alpha
from relvec.runtime.machine import all_threads
from relvec.solvers._native import gaussian as native
from relvec.solvers.gaussian import restarts
from relvec.solvers.loop import Problem, Start, Status, at_noise_floor, not_lower

_SETTLING_STEPS = 100  # Newton steps at most before the search goes on
# A model of fewer atoms grows by one at a time: scans of few are quick, and no search ends below the greedy path.
_SINGLE_ATOMS = 100
_SINGLE_STEPS = 10  # and after a single precision was moved
_MORE_MOVES = 10  # of single precisions than there are, at most
_MAX_REFUTED = 16  # promises of a scan that the exact evidence may refute before the rest is believed


@dataclass(frozen=True, eq=False)
class Precisions:
    """The part of a posterior that a search needs: alpha (k,), beta, and the objective in place of the evidence."""

    alpha: np.ndarray
    beta: float
    log_evidence: float


@dataclass(frozen=True, eq=False)
class GaussianModel:
    """A support with its posterior: the model of the engine, and the decisions about it that need no engine."""

    problem: Problem
    core: native.Model

    @property
    def active(self) -> np.ndarray:
        """Atoms (k,)."""
        return self.core.atoms

    @property
    def size(self) -> int:
        """Number of atoms k."""
        return self.core.size

    @property
    def posterior(self) -> Precisions:
        """Precisions of the model."""
        return Precisions(self.core.precisions, self.core.beta, self.core.objective)

    @cached_property
    def full_posterior(self) -> Posterior:
        """The posterior, in the coordinates of the frame."""
        p = self.core.posterior()
        return p if self.size else replace(p, v=p.alpha, remainder=p.remainder[: len(p.scaled)])  # no spare memory

    @property
    def objective(self) -> float:
        """T01 eq. (36)."""
        return self.core.objective

    @property
    def atom(self) -> int:
        """The atom last moved."""
        return self.core.atom

    def at(self, active: np.ndarray, alpha: np.ndarray, beta: float, atom: int = -1) -> GaussianModel:
        """Return the model with other atoms and precisions."""
        return GaussianModel(self.problem, self.core.frame.model(active, alpha, beta, atom))

    def keep(self, places: np.ndarray) -> GaussianModel:
        """Return the model of some of its atoms."""
        return self.at(self.active[places], self.core.precisions[places], self.core.beta)

    def grow(
        self, batch: int | None, tol: float, hold_noise: bool = False, ceiling: float = np.inf, apart: float = 0.0
    ) -> GaussianModel | None:
        """With the most useful atoms, in a frame without what it no longer needs."""
        batch = batch or (1 if self.size < _SINGLE_ATOMS else restarts.RESTART.batch)
        with all_threads(self._scan_work):
            grown = self.core.grow(min(batch, self.problem.design.n_atoms), tol, hold_noise, ceiling, apart)
            return None if grown is None else GaussianModel(self.problem, grown.trim())

    def relax(
        self, steps: int, hold_noise: bool = False, min_gain_nats: float = 0.0, ceiling: float = np.inf
    ) -> GaussianModel:
        """With precisions and noise after Newton steps."""
        with all_threads(float(self.size) ** 3):
            return GaussianModel(self.problem, self.core.relax(steps, hold_noise, min_gain_nats, ceiling))

    def merge_copies(self) -> GaussianModel:
        """With one atom in place of several equal ones."""
        if self.size < 2:
            return self
        active, alpha = self.active, self.core.precisions
        keep, alpha = merge_copies(self.core.gram(), alpha, self.problem.order[active])
        if len(keep) == len(active):
            return self
        fewer = self.at(active[keep], alpha, self.core.beta, self.atom)
        return fewer if not_lower(fewer.objective, self.objective) else self

    def settle(self, tol: float) -> GaussianModel:
        """Without copies, and with precisions near their optimum."""
        return self.merge_copies().relax(_SETTLING_STEPS, min_gain_nats=tol)

    def shrink(self, tol: float) -> None:
        """None: atoms leave in `settle`."""

    def exchange(self, tol: float) -> GaussianModel | None:
        """With one atom for another."""
        with all_threads(self._scan_work):
            swapped = self.core.exchange(tol)
            return None if swapped is None else GaussianModel(self.problem, swapped.trim())

    def release(self) -> None:
        """None: nothing is held back."""

    def may_restart(self, turn: int, failed: int, restarts_wanted: int) -> bool:
        """While restarts gain, or some more where many are asked for."""
        return restarts.may_restart(self, turn, failed, restarts_wanted)

    def repeats(self, turn: int) -> bool:
        """All but that which does not depend on the model."""
        return turn != restarts.RESTART.scratch_turn

    def restart(self, turn: int, batch: int | None, exchanging: bool, deadline: float) -> GaussianModel | None:
        """Another local maximum."""
        return restarts.restart(self, turn, batch or restarts.RESTART.batch, deadline)

    def exchange_pairs(self, batch: int | None, deadline: float) -> GaussianModel | None:
        """Another local maximum, without some pair of atoms."""
        return restarts.exchange_pairs(self, batch or restarts.RESTART.batch, deadline)

    def admits(self, other: GaussianModel) -> bool:
        """Whether the other explains the noise no more than this one: there it would have no honest error bars."""
        return not any(sign(other) and not sign(self) for sign in (restarts.is_noiseless, restarts.is_crowded))

    def sharpen(self) -> GaussianModel:
        """After Newton steps, then the best single precision at a time where those crawl.

        Far out the objective is flat and convex in log alpha; there the optimum of one precision is known (TF03 (20)).
        """
        model = self.relax(_SETTLING_STEPS)
        for _ in range(self.size + _MORE_MOVES):
            p = model.full_posterior
            s, q = p.sparsity_quality()
            gains = gain_reestimate(p.alpha, s, q)
            if not len(gains) or gains.max() <= 0.1 * self.problem.tolerance(len(gains)):
                break
            i = int(np.argmax(gains))
            alpha = p.alpha.copy()
            alpha[i] = optimal_alpha(s[i], q[i])
            keep = np.isfinite(alpha)
            moved = model.at(model.active[keep], alpha[keep], p.beta, model.atom)
            if moved.objective <= model.objective:
                break
            model = moved.relax(_SINGLE_STEPS)
        return model

    def largest_gain(self, exchanging: bool) -> float:
        """Return the certificate: the largest gain (nats) that any single move still offers.

        What the scan promises of additions and exchanges is verified, as the search does: a promise may be rounding.
        """
        core, p, order = self.core, self.full_posterior, self.problem.order
        with all_threads(self._scan_work):
            S, Q, gains = core.scan()

            def add(j: int) -> float:
                alpha = np.append(core.precisions, optimal_alpha(S[j], Q[j]))
                return self.at(np.append(self.active, j), alpha, core.beta).objective

            left = [self._verify(gains, order, add)]
            if self.size:
                left.append(float(gain_reestimate(p.alpha, *p.sparsity_quality()).max()))
                left.append(float(gain_delete(p.alpha, p.gamma, p.mean, p.variance).max()))
            if self.size and exchanging:
                pair_gains, make = core.exchanges()
                left.append(self._verify(pair_gains, order[self.active], lambda i: make(i).objective))
        return max(left) if not np.any(np.isnan(left)) else np.inf

    def _verify(self, gains: np.ndarray, order: np.ndarray, objective: Callable[[int], float]) -> float:
        """Return the largest of the gains, where those above tol are replaced by what the model made gains in truth."""
        tol = self.problem.tolerance(self.size)
        for _ in range(_MAX_REFUTED):
            i = best(gains, order)
            if not gains[i] > tol:
                break
            gains[i] = max(0.0, objective(i) - self.objective)
            if gains[i] > tol:
                break
        return float(gains.max())

    def ended(self) -> Status | None:
        """At the noise floor, where the noise is learned."""
        return Status.NOISE_FLOOR if at_noise_floor(self.problem, self.core.beta) else None

    @property
    def _scan_work(self) -> float:
        """Multiplications of a scan of the dictionary."""
        return float(self.size) ** 2 * self.problem.design.n_atoms


def model_of(problem: Problem, start: Start) -> GaussianModel:
    """Return the model of some atoms of a problem, in a frame of its own."""
    return GaussianModel(problem, native.Frame(problem).model(start.active, start.alpha, start.beta))


def begin_gaussian(problem: Problem, bias_first: bool) -> GaussianModel:
    """Return the model a search starts with: the one given, the bias alone (TF03 4.1), or none of the atoms."""
    if problem.prior.b > 0:
        raise ValueError(
            "the sequential solver has no closed form for a hyperprior on the weight precisions (a, b); "
            "use solver='mackay' or solver='em', or leave a and b at 0"
        )
    if problem.start is not None:
        return model_of(problem, problem.start)
    beta = 1.0 / (problem.noise_variance or problem.noise_start)
    empty = model_of(problem, Start(np.zeros(0, dtype=np.intp), np.zeros(0), beta))
    if bias_first and problem.bias >= 0:
        S, Q, _ = empty.core.scan()
        alpha = optimal_alpha(S[[problem.bias]], Q[[problem.bias]])  # TF03 eq. (26)
        if np.isfinite(alpha[0]):
            return empty.at(np.array([problem.bias]), alpha, beta)
    return empty
