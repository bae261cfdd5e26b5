"""MacKay's and EM's fixed-point updates (T01 sections 2.3, A.2, A.3, B.1), starting from the whole dictionary."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.inference.evidence import (
    Posterior,
    best,
    em_alpha,
    em_noise,
    gain_add,
    gain_reestimate,
    gaussian,
    mackay_alpha,
    mackay_noise,
    merge_copies,
    optimal_alpha,
)
from relvec.inference.hyperpriors import FLAT, GammaPrior
from relvec.solvers.loop import Problem, State, Status, at_noise_floor, not_lower

_CHECK_EVERY = 25  # steps between checks of the whole dictionary


@dataclass(frozen=True)
class _FixedPoint:
    """Shared by MacKay and EM: every atom at first, one update of all precisions a step, pruning."""

    prune_gamma: float = float(np.finfo(float).eps)
    prune_alpha: float = 1e12
    hyperprior: GammaPrior = FLAT
    max_iter: int = 10000

    def __post_init__(self) -> None:
        if not isinstance(self.hyperprior, GammaPrior):
            raise ValueError(f"hyperprior must be a relvec.GammaPrior, got {self.hyperprior!r}")
        if not isinstance(self.max_iter, int | np.integer) or self.max_iter < 1:
            raise ValueError(f"max_iter must be an integer >= 1, got {self.max_iter!r}")

    def init(self, problem: Problem) -> State:
        """The model to start from, or every atom, with precisions so small that the data decide."""
        if problem.start is not None and problem.prior_b is None:  # under a prior with b > 0 no other would join
            active, alpha, beta = problem.start.active, problem.start.alpha, problem.start.beta
        else:
            active = np.flatnonzero(problem.design.scale > 0.0)
            beta = 1.0 / (problem.noise_variance or problem.noise_start)
            # not quite equal, so that on symmetric data the atoms' content and not rounding decides which of two stays
            alpha = (1.0 + 1e-3 * problem.order[active] / len(problem.order)) / problem.n_samples
        if problem.prior_b is not None:  # at most the prior's own scale
            with np.errstate(divide="ignore", over="ignore"):  # a rate that vanished in these units
                alpha = np.minimum(alpha, (1.0 + 2.0 * problem.prior.a) / (2.0 * problem.prior_b[active]))
        columns = problem.design.columns(active)
        posterior = _posterior(problem, columns, alpha, beta)
        return State(active, posterior, problem.objective(active, posterior), notes=_Notes(columns))

    def step(self, problem: Problem, state: State) -> State:
        """One update of every precision and the noise; at the fixed point, what B.1 asks of deleted atoms."""
        notes, p = state.notes, state.posterior
        b = 0.0 if problem.prior_b is None else problem.prior_b[state.active]
        columns = notes.columns
        updated = self._update(problem, columns, state, b)
        alive = (updated.gamma >= self.prune_gamma) & (updated.alpha <= self.prune_alpha)
        active = state.active
        if problem.prior_b is None and not alive.all():  # with b > 0 no optimum is infinite: nothing is pruned
            trial = _posterior(problem, columns[:, alive], updated.alpha[alive], updated.beta)
            if not_lower(problem.objective(active[alive], trial), state.objective):
                active, columns, updated = active[alive], columns[:, alive], trial
        objective = problem.objective(active, updated)
        notes = _Notes(columns, notes.steps + 1)
        moved = state.stepped(active=active, posterior=updated, objective=objective, action="reestimate", notes=notes)
        rise = objective - state.objective
        settled = len(active) == len(p.alpha) and rise < 1e-2 * problem.tol
        stuck = settled and rise <= 1e-13 * max(1.0, abs(objective))
        if not (settled or notes.steps % _CHECK_EVERY == 0):
            return moved
        return self._reconsider(problem, moved, settled, stuck)

    def status(self, problem: Problem, state: State) -> Status:
        """How the search ended."""
        if at_noise_floor(problem, state.posterior.beta):
            return Status.NOISE_FLOOR
        return Status.CONVERGED if state.largest_gain <= problem.tol else Status.STALLED

    def finishing(self, state: State) -> bool:
        """Never: every step is of the same kind."""
        return False

    def _update(self, problem: Problem, columns: np.ndarray, state: State, b) -> Posterior:
        raise NotImplementedError

    def _em(self, problem: Problem, columns: np.ndarray, state: State, b) -> Posterior:
        p, prior = state.posterior, problem.prior
        alpha = em_alpha(p.mean, p.variance, prior.a, b)
        noise = em_noise(p.residual, problem.n_samples, p.gamma.sum(), 1.0 / p.beta, prior.c, problem.prior_d)
        # both maximise the same lower bound, so together they cannot lower the objective; rounding can
        for fraction in (1.0, 0.5, 0.1):
            moved = np.exp((1 - fraction) * np.log(p.alpha) + fraction * np.log(alpha))
            beta = p.beta if problem.fixed_noise else (1.0 / max(noise, problem.noise_floor)) ** fraction * p.beta ** (
                1 - fraction)  # fmt: skip
            trial = _posterior(problem, columns, moved, beta)
            if not_lower(problem.objective(state.active, trial), state.objective):
                return trial
        return p

    def _reconsider(self, problem: Problem, state: State, settled: bool, stuck: bool) -> State:
        """Return the best single move: delete an atom whose optimum is infinite, or bring back a deleted one (B.1)."""
        p, active, columns = state.posterior, state.active, state.notes.columns
        if problem.prior_b is not None:
            largest = _largest_gradient(problem, p, problem.prior_b[active])
            return state.stepped(done=stuck or (settled and largest <= problem.tol), largest_gain=largest)
        keep, alpha = merge_copies(columns.T @ columns, p.alpha, problem.order[active])
        if len(keep) < len(active):
            trial = _posterior(problem, columns[:, keep], alpha, p.beta)
            if not_lower(problem.objective(active[keep], trial), state.objective):
                gone = int(np.setdiff1d(active, active[keep])[0])
                return _move(problem, state, active[keep], columns[:, keep], trial, "delete", gone)
        s, q = p.sparsity_quality()
        inside, dead = gain_reestimate(p.alpha, s, q), q * q <= s
        if dead.any():
            worst = np.arange(len(active)) == best(np.where(dead, inside, -np.inf), problem.order[active])
            for leave in (dead, worst):
                trial = _posterior(problem, columns[:, ~leave], p.alpha[~leave], p.beta)
                if not_lower(problem.objective(active[~leave], trial), state.objective):
                    atom = int(active[np.argmax(leave)])
                    return _move(problem, state, active[~leave], columns[:, ~leave], trial, "delete", atom)
        S, Q = _scan(problem, p)
        gains = gain_add(S, Q)
        gains[active] = 0.0
        j = best(gains, problem.order)
        if settled and gains[j] > problem.tol:
            joined = np.append(active, j)
            wider = np.hstack([columns, problem.design.columns([j])])
            trial = _posterior(problem, wider, np.append(p.alpha, optimal_alpha(S[j], Q[j])), p.beta)
            if problem.objective(joined, trial) > state.objective + 0.1 * problem.tol:
                return _move(problem, state, joined, wider, trial, "add", j)
            gains[j] = 0.0
        largest = max(float(gains.max()), float(inside.max(initial=0.0)))
        return state.stepped(done=stuck or (settled and largest <= problem.tol), largest_gain=largest)


@dataclass(frozen=True)
class MacKay(_FixedPoint):
    """MacKay's update, T01 eq. (44) and (46): fast, not monotone by itself.

    A step that would lower the objective is replaced by the EM step, so the history never falls.

    Parameters
    ----------
    prune_gamma : float
        Atoms whose well-determinedness gamma falls below this are removed (T01 B.1).
    prune_alpha : float
        So are atoms whose precision, for a column of unit norm and a target of unit mean square, exceeds this.
    hyperprior : GammaPrior
        Gamma hyperpriors over precisions (a, b) and noise precision (c, d), T01 eq. (5)-(6); flat by default.
    max_iter : int
        Most steps.

    Examples
    --------
    >>> MacKay(prune_alpha=1e9).prune_alpha
    1000000000.0
    """

    def _update(self, problem, columns, state, b):
        p, prior = state.posterior, problem.prior
        alpha = mackay_alpha(p.gamma, p.mean, prior.a, b)
        alpha = np.where(alpha > 0.0, alpha, p.alpha)
        finite = np.minimum(alpha, 10.0 * self.prune_alpha if problem.prior_b is None else np.inf)
        beta = p.beta
        if not problem.fixed_noise and problem.n_samples + 2.0 * prior.c > p.gamma.sum():
            noise = mackay_noise(p.residual, problem.n_samples, p.gamma.sum(), prior.c, problem.prior_d)
            beta = 1.0 / max(noise, problem.noise_floor)
        trial = _posterior(problem, columns, finite, beta)
        if not_lower(problem.objective(state.active, trial), state.objective):
            return trial
        return self._em(problem, columns, state, b)


@dataclass(frozen=True)
class EM(_FixedPoint):
    """Expectation maximisation, T01 eq. (48) and (50): never lowers the objective, converges slowly.

    Parameters
    ----------
    prune_gamma : float
        Atoms whose well-determinedness gamma falls below this are removed (T01 B.1).
    prune_alpha : float
        So are atoms whose precision, for a column of unit norm and a target of unit mean square, exceeds this.
    hyperprior : GammaPrior
        Gamma hyperpriors over precisions (a, b) and noise precision (c, d), T01 eq. (5)-(6); flat by default.
    max_iter : int
        Most steps.

    Examples
    --------
    >>> EM().max_iter
    10000
    """

    def _update(self, problem, columns, state, b):
        return self._em(problem, columns, state, b)


@dataclass(frozen=True, eq=False)
class _Notes:
    columns: np.ndarray
    steps: int = 0


def _posterior(problem: Problem, columns: np.ndarray, alpha: np.ndarray, beta: float) -> Posterior:
    return gaussian(columns, problem.target, problem.target_norm2_outside, problem.n_samples, alpha, beta)


def _scan(problem: Problem, p: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """S, Q (M,) of every atom, TF03 eq. (24)-(25) with C^-1 = beta (I - leverage leverage')."""
    T = problem.design.project(p.leverage)
    S = p.beta * np.maximum((problem.design.scale > 0.0) - np.einsum("ij,ij->j", T, T), 0.0)
    return S, p.beta * problem.design.project(p.remainder[:, None])[0]


def _move(problem, state, active, columns, posterior, action, atom) -> State:
    return state.stepped(active=active, posterior=posterior, objective=problem.objective(active, posterior),
                         action=action, atom=atom, notes=replace(state.notes, columns=columns))  # fmt: skip


def _largest_gradient(problem: Problem, p: Posterior, b: np.ndarray) -> float:
    """With a prior on the precisions: the Newton-like bound g^2 / curvature on what one precision still gains."""
    g = 0.5 * (p.gamma - p.alpha * p.mean**2) + problem.prior.a - b * p.alpha  # T01 eq. (42)
    curvature = 0.5 * p.alpha * (p.mean**2 + p.variance) + b * p.alpha
    return float((g * g / curvature).max())
