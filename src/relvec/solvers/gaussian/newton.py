"""The inner problem: alpha and beta of a fixed support, by Newton steps in their logarithms."""

from __future__ import annotations

import numpy as np

from relvec.inference.evidence import gain_delete, gradient, prior_unit_hessian
from relvec.inference.gaussian import Posterior
from relvec.inference.linalg import solve_symmetric
from relvec.solvers.gaussian.frame import Frame
from relvec.solvers.loop import Problem

_LONGEST = 3.0  # step cap in log units: one step changes a precision by a factor of 20 at most
_LEAST_DAMPING = 3e-3  # a refused factorisation is cheap, so damping starts low: valleys are left in few steps
_SLACK = 1e-13  # relative: an objective that is equal but for rounding has not fallen


def not_lower(new: float, old: float) -> bool:
    """Whether an objective has not fallen, rounding apart."""
    return new >= old - _SLACK * max(1.0, abs(old))


def coarse(x, bits: int = 13):
    """Positive numbers rounded to a few bits.

    A search takes hundreds of steps from one another's results, and the order of the rows or of a sum would decide
    where it ends if their last digits were carried along. What rounding does to the evidence is far below tol.
    """
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


def relax(
    problem: Problem,
    frame: Frame,
    active: np.ndarray,
    posterior: Posterior,
    steps: int,
    hold_noise: bool = False,
    min_gain_nats: float = 0.0,
    ceiling: float = np.inf,
) -> tuple[np.ndarray, Posterior]:
    """Raise the objective over (log alpha, log beta) by at most ``steps`` Newton steps; delete on the way.

    Ends early when the quadratic model expects less than ``min_gain_nats``, or rounding, from the next step; where that
    is positive the results are `coarse`. The noise variance does not rise above ``ceiling``.

    Atoms whose optimal precision is infinite (q^2 <= s) leave the model. The Hessian is damped towards the
    expectation-maximisation step until it is definite and the objective rises, so no step lowers it.
    """
    hold = hold_noise or problem.fixed_noise
    damping = 0.0
    for _ in range(steps):
        active, posterior = prune(problem, frame, active, posterior)
        k, alpha, beta, v = len(active), posterior.alpha, posterior.beta, posterior.v
        # in units of the prior every alpha is 1 and mu is v
        g_alpha, g_beta = gradient(1.0, v, posterior.gamma, beta, posterior.residual, problem.n_samples)
        g_beta += problem.prior.c - problem.prior_d * beta
        free = not hold and (beta < 1.0 / problem.noise_floor if g_beta > 0.0 else beta * ceiling > 1.0)
        if not (k or free):
            break
        n = k + free
        g, minus_H, em = np.empty(n), np.empty((n, n)), np.empty(n)
        g[:k], em[:k] = g_alpha, 0.5 * (v * v + posterior.shrinkage)
        H, border, corner = prior_unit_hessian(v, posterior.V @ posterior.V.T, beta, posterior.residual)
        np.negative(H, out=minus_H[:k, :k])
        if free:
            g[k], em[k] = g_beta, 0.5 * problem.n_samples
            minus_H[k, :k] = minus_H[:k, k] = -border
            minus_H[k, k] = problem.prior_d * beta - corner
        old = problem.objective(active, posterior)
        moved = None
        for _ in range(40):
            step = solve_symmetric(minus_H if not damping else minus_H + np.diag(damping * em), g)
            if step is not None:
                longest = np.abs(step).max()
                if longest > _LONGEST:
                    step *= _LONGEST / longest
                new_beta = beta
                if free:
                    new_beta = min(max(beta * np.exp(step[k]), 1.0 / ceiling), 1.0 / problem.noise_floor)
                new_alpha = alpha * np.exp(step[:k])
                if min_gain_nats:
                    new_alpha, new_beta = coarse(new_alpha), coarse(new_beta, 20)
                trial = frame.posterior(active, new_alpha, new_beta, problem.n_samples)
                if not_lower(problem.objective(active, trial), old):
                    moved = trial
                    break
            damping = max(_LEAST_DAMPING, 2.0 * damping)
        if moved is None:
            break
        damping = 0.5 * damping if damping > _LEAST_DAMPING else 0.0
        posterior = moved
        if step is not None and 0.5 * (g @ step) < max(min_gain_nats, _SLACK * max(1.0, abs(old))):
            break
    return prune(problem, frame, active, posterior)


def prune(problem: Problem, frame: Frame, active: np.ndarray, posterior: Posterior) -> tuple[np.ndarray, Posterior]:
    """Delete the atoms whose optimal precision is infinite (TF03 eq. (21)), while the objective does not fall."""
    while len(active):
        # q^2 <= s in units of the prior
        dead = posterior.v * posterior.v <= posterior.gamma * posterior.shrinkage
        if not dead.any():
            break
        gains = gain_delete(posterior.alpha, posterior.gamma, posterior.mean, posterior.variance)
        old = problem.objective(active, posterior)
        worst = np.arange(len(active)) == np.argmax(np.where(dead, gains, -np.inf))
        for leave in (dead, worst):
            keep = ~leave
            trial = frame.posterior(active[keep], posterior.alpha[keep], posterior.beta, problem.n_samples)
            if not_lower(problem.objective(active[keep], trial), old):
                active, posterior = active[keep], trial
                break
        else:
            break
    return active, posterior
