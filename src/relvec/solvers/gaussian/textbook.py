"""TF03 section 4 to the letter: one action at a time, statistics kept by the formulas of its appendix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.inference.evidence import best, gain_add, gain_reestimate, mackay_noise, optimal_alpha, without_self
from relvec.solvers._native.gaussian import COLLINEAR
from relvec.solvers.gaussian.model import GaussianModel
from relvec.solvers.loop import Problem, State, not_lower
from relvec.solvers.sequential import Sequential

SMALL = 1e-6  # TF03 4.4: changes of log alpha (and of log beta) below this end the search
_REFRESH = 20  # steps between full recomputations of the rank-one updates


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sigma (k, k), mu (k,), S and Q (M,), and cross = beta Phi_a' Phi (k, M) of the current model."""

    Sigma: np.ndarray
    mu: np.ndarray
    S: np.ndarray
    Q: np.ndarray
    cross: np.ndarray
    age: int = 0
    position: int = 0  # where select="order" continues


def textbook_step(problem: Problem, state: State, settings: Sequential) -> State:
    """TF03 steps 4-11: choose an atom, act on it, now and then the noise, update the statistics."""
    notes = state.notes
    model, steps = notes.model, notes.steps + 1
    stats: Statistics = notes.statistics or _recompute(problem, model)
    s, q = _sparsity_quality(model, stats)
    i = _choose(problem, model, stats, s, q, settings.select)
    moved, action = model, ""
    if i is not None:
        action, active, alpha, stats = _act(problem, model, stats, i, float(optimal_alpha(s[i], q[i])))
        moved = model.at(active, alpha, model.core.beta, i)
        if not not_lower(moved.objective, model.objective):
            # the rank-one updates have drifted: choose again from fresh ones, or stop if they were fresh
            fresh = None if stats.age == 1 else _recompute(problem, model)
            return state.stepped(action="", notes=notes.but(statistics=fresh, polishing=fresh is None))
    if i is None or steps % settings.noise_every == 0:
        moved = _update_noise(problem, moved)
    beta, before = moved.core.beta, model.core.beta
    done = i is None and abs(np.log(beta / before)) < SMALL
    if beta != before or stats.age >= _REFRESH:
        stats = replace(_recompute(problem, moved), position=stats.position)
    notes = notes.but(steps=steps, model=moved, statistics=None if done else stats, polishing=done)
    return State(moved.active, moved.posterior, moved.objective, action or ("" if done else "noise"), moved.atom,
                 notes=notes)  # fmt: skip


def _sparsity_quality(model: GaussianModel, stats: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """s, q (M,): S, Q outside the model; inside, the form that keeps its digits (TF03 eq. (19), (23))."""
    s, q = stats.S.copy(), stats.Q.copy()
    a, alpha = model.active, model.core.precisions
    Sigma_diag = np.diagonal(stats.Sigma)
    weak = alpha * Sigma_diag > 0.5  # gamma < 1/2
    strong_s, strong_q = 1.0 / Sigma_diag - alpha, stats.mu / Sigma_diag
    weak_s, weak_q = without_self(np.where(weak, alpha, 2.0), np.where(weak, s[a], 1.0), q[a])
    s[a], q[a] = np.where(weak, weak_s, strong_s), np.where(weak, weak_q, strong_q)
    return np.maximum(s, COLLINEAR * model.core.beta), q


def _choose(problem: Problem, model: GaussianModel, stats: Statistics, s, q, select: str) -> int | None:
    """TF03 4.2: the atom of largest gain, a random one, or the next in order, among those with something to do."""
    a, alpha = model.active, model.core.precisions
    target = optimal_alpha(s, q)
    useful = np.isfinite(target) & (stats.S > COLLINEAR * model.core.beta)
    with np.errstate(divide="ignore"):
        useful[a] = ~(np.abs(np.log(target[a] / alpha)) < SMALL)
    gains = gain_add(s, q)
    gains[a] = gain_reestimate(alpha, s[a], q[a])
    return choose_move(useful, gains, problem.order, stats.position, problem.rng, select)


def choose_move(
    useful: np.ndarray, gains: np.ndarray, ranks: np.ndarray, position: int, rng: np.random.Generator, select: str
) -> int | None:
    """One of the actions that change something (M,): of largest gain, a random one, or the next in order."""
    if not useful.any():
        return None
    if select == "random":
        return int(rng.choice(np.flatnonzero(useful)))
    if select == "order":
        ahead = np.where(ranks >= position, ranks, ranks + ranks.max() + 1)[useful]
        return int(np.flatnonzero(useful)[np.argmin(ahead)])
    return best(np.where(useful, gains, -np.inf), ranks)


def _act(problem: Problem, model: GaussianModel, stats: Statistics, i: int, new_alpha: float):
    """Add, delete or re-estimate atom i: the action, the model and its statistics by TF03 A.2-A.4."""
    active, alpha, beta = model.active, model.core.precisions, model.core.beta
    inside = np.flatnonzero(active == i)
    now = (stats.Sigma, stats.mu, stats.S, stats.Q, stats.cross)
    if not inside.size:
        action = "add"
        own = beta * problem.design.project(problem.design.columns([i]))[0]
        moved, cross = update_add(*now, own, i, new_alpha), np.vstack([stats.cross, own])
        active, alpha = np.append(active, i), np.append(alpha, new_alpha)
    else:
        j = int(inside[0])
        if np.isinf(new_alpha):
            action = "delete"
            moved, cross = update_delete(*now, j), np.delete(stats.cross, j, 0)
            active, alpha = np.delete(active, j), np.delete(alpha, j)
        else:
            action = "reestimate"
            moved, cross = update_reestimate(*now, j, alpha[j], new_alpha), stats.cross
            alpha = np.where(np.arange(len(alpha)) == j, new_alpha, alpha)
    Sigma, mu, S, Q = moved
    stats = Statistics(Sigma, mu, S, Q, cross, stats.age + 1, int(problem.order[i]) + 1)
    return action, active, alpha, stats


def _update_noise(problem: Problem, model: GaussianModel) -> GaussianModel:
    """TF03 step 9, where the noise is learned and the objective does not fall."""
    if problem.fixed_noise:
        return model
    p, prior = model.full_posterior, problem.prior
    noise = mackay_noise(p.residual, problem.n_samples, p.gamma.sum(), prior.c, problem.prior_d)
    trial = model.at(model.active, p.alpha, 1.0 / max(noise, problem.noise_floor), model.atom)
    return trial if trial.objective > model.objective else model


def _recompute(problem: Problem, model: GaussianModel) -> Statistics:
    """Everything from its definition, through the frame."""
    p = model.full_posterior
    S, Q, _ = model.core.scan()
    cross = p.beta * problem.design.project(problem.design.columns(model.active))
    return Statistics(p.covariance, p.mean, S, Q, cross)


# ---------------------------------------------------------------- TF03's appendix: rank-one updates
# S, Q (M,) belong to every atom of the dictionary; ``cross`` (k, M) is beta Phi_a' Phi. The defaults of relvec
# recompute through orthogonal factors instead: repeated rank-one updates drift (TF03 A refreshes them too).


def update_add(Sigma, mu, S, Q, cross, own, i, alpha_i):
    """TF03 A.2: add atom i with precision alpha_i. ``own`` (M,) is beta phi_i' Phi."""
    Sigma_ii = 1.0 / (alpha_i + S[i])
    mu_i = Sigma_ii * Q[i]
    v = Sigma @ cross[:, i]  # beta Sigma Phi' phi_i
    projected = own - v @ cross  # beta phi_m' e_i
    k = len(mu)
    bigger = np.empty((k + 1, k + 1))
    bigger[:k, :k] = Sigma + Sigma_ii * np.outer(v, v)
    bigger[:k, k] = bigger[k, :k] = -Sigma_ii * v
    bigger[k, k] = Sigma_ii
    return bigger, np.append(mu - mu_i * v, mu_i), S - Sigma_ii * projected**2, Q - mu_i * projected


def update_reestimate(Sigma, mu, S, Q, cross, j, alpha_old, alpha_new):
    """TF03 A.3: move the precision of the j-th atom of the model."""
    change = alpha_new - alpha_old
    kappa = change / (1.0 + Sigma[j, j] * change)  # (Sigma_jj + 1 / change)^-1, and 0 for no change
    column = Sigma[:, j].copy()
    projected = column @ cross
    return (Sigma - kappa * np.outer(column, column), mu - kappa * mu[j] * column, S + kappa * projected**2,
            Q + kappa * mu[j] * projected)  # fmt: skip


def update_delete(Sigma, mu, S, Q, cross, j):
    """TF03 A.4: delete the j-th atom of the model."""
    column = Sigma[:, j].copy()
    projected = column @ cross
    keep = np.arange(len(mu)) != j
    smaller = Sigma - np.outer(column, column) / column[j]
    return (smaller[np.ix_(keep, keep)], (mu - (mu[j] / column[j]) * column)[keep], S + projected**2 / column[j],
            Q + (mu[j] / column[j]) * projected)  # fmt: skip
