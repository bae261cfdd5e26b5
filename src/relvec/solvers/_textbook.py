"""TF03 section 4 to the letter: one action at a time, statistics kept by the formulas of its appendix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from relvec.evidence import (
    gain_add,
    gain_reestimate,
    mackay_noise,
    optimal_alpha,
    update_add,
    update_delete,
    update_reestimate,
    without_self,
)
from relvec.solvers._iterate import Problem, State
from relvec.solvers._moves import best
from relvec.solvers._newton import not_lower

_SMALL = 1e-6  # TF03 4.4: changes of log alpha below this end the search
_REFRESH = 20  # steps between full recomputations of the rank-one updates


class Textbook(Enum):
    """Marks a search whose one-at-a-time part has ended."""

    DONE = 1


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sigma (k, k), mu (k,), S and Q (M,), and cross = beta Phi_a' Phi (k, M) of the current model."""

    Sigma: np.ndarray
    mu: np.ndarray
    S: np.ndarray
    Q: np.ndarray
    cross: np.ndarray
    age: int = 0
    idle: int = 0
    position: int = 0


def textbook_step(problem: Problem, state: State, select: str, noise_every: int) -> State:
    """TF03 steps 4-11: choose an atom, act on it, now and then the noise, update the statistics."""
    notes = state.notes
    stats = notes.textbook or _recompute(problem, state)
    active, alpha = state.active, state.posterior.alpha
    s, q = stats.S.copy(), stats.Q.copy()
    s[active], q[active] = without_self(alpha, stats.S[active], stats.Q[active])  # TF03 eq. (23)
    inside = np.full(len(s), -1)
    inside[active] = np.arange(len(active))

    i = _choose(problem, state, stats, s, q, select, inside)
    new_alpha = float(optimal_alpha(s[i], q[i]))  # TF03 eq. (20)-(21)
    j = inside[i]
    action = "add" if j < 0 else "delete" if np.isinf(new_alpha) else "reestimate"
    small = (j < 0 and np.isinf(new_alpha)) or (j >= 0 and abs(np.log(new_alpha / alpha[j])) < _SMALL)
    idle = stats.idle + 1 if small else 0
    beta = state.posterior.beta
    if not small:
        if action == "add":
            own = beta * problem.design.project(problem.design.columns([i]))[0]
            moved = update_add(stats.Sigma, stats.mu, stats.S, stats.Q, stats.cross, own, i, new_alpha)
            cross = np.vstack([stats.cross, own])
            active, alpha = np.append(active, i), np.append(alpha, new_alpha)
        elif action == "delete":
            moved = update_delete(stats.Sigma, stats.mu, stats.S, stats.Q, stats.cross, j)
            cross, active, alpha = np.delete(stats.cross, j, 0), np.delete(active, j), np.delete(alpha, j)
        else:
            moved = update_reestimate(stats.Sigma, stats.mu, stats.S, stats.Q, stats.cross, j, alpha[j], new_alpha)
            cross, alpha = stats.cross, alpha.copy()
            alpha[j] = new_alpha
        stats = Statistics(*moved, cross)
    notes.frame.span(active)
    posterior = notes.frame.posterior(active, alpha, beta, problem.n_samples)
    objective = problem.objective(active, posterior)
    if not not_lower(objective, state.objective):
        # the updates have drifted: compute afresh and choose again, or stop if they were fresh
        if notes.textbook is None or notes.textbook.age == 0:
            return state.stepped(action="", notes=replace(notes, textbook=Textbook.DONE))
        return state.stepped(action="", notes=replace(notes, textbook=_recompute(problem, state)))
    steps = notes.steps + 1
    if not problem.fixed_noise and steps % noise_every == 0:  # TF03 step 9
        noise = mackay_noise(posterior.residual, problem.n_samples, posterior.gamma.sum(), problem.prior.c,
                             problem.prior_d)  # fmt: skip
        trial = notes.frame.posterior(active, alpha, 1.0 / max(noise, problem.noise_floor), problem.n_samples)
        if problem.objective(active, trial) > objective:
            if abs(np.log(trial.beta / beta)) > _SMALL:
                idle = 0
            posterior, objective = trial, problem.objective(active, trial)
    moved_state = state.stepped(active=active, posterior=posterior, objective=objective, action=action, atom=int(i))
    stale = posterior.beta != beta or stats.age + 1 >= _REFRESH
    fresh = _recompute(problem, moved_state) if stale else replace(stats, age=stats.age + 1)
    done = idle >= (1 if select == "gain" else problem.design.n_atoms)
    fresh = replace(fresh, idle=idle, position=(stats.position + 1) % problem.design.n_atoms)
    notes = replace(notes, steps=steps, textbook=Textbook.DONE if done else fresh)
    return moved_state.stepped(notes=notes, action="" if small and posterior.beta == beta else action)


def _recompute(problem: Problem, state: State) -> Statistics:
    """Everything from its definition, through the frame."""
    frame, p = state.notes.frame, state.posterior
    S, Q, _ = frame.scan(p)
    cross = p.beta * problem.design.project(problem.design.columns(state.active))
    return Statistics(p.covariance, p.mean, S, Q, cross)


def _choose(problem: Problem, state: State, stats: Statistics, s, q, select: str, inside) -> int:
    """TF03 4.2: the atom of largest gain, a random one, or the next in order."""
    if select == "random":
        return int(problem.rng.integers(len(s)))
    if select == "order":
        return int(np.argsort(problem.order)[stats.position])
    gains = gain_add(s, q)
    active = state.active
    gains[active] = gain_reestimate(state.posterior.alpha, s[active], q[active])
    return best(gains, problem.order)
