"""Other local maxima of the evidence: the noise held low, another start, atoms left out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from relvec.inference.evidence import best

if TYPE_CHECKING:
    from relvec.solvers.gaussian.model import GaussianModel


@dataclass(frozen=True)
class RestartSettings:
    """How a search is started again, chosen on the evidences that the data sets of the papers reach.

    That numbered ``scratch_turn`` begins anew in another way where that is promising; the next hold the noise at
    ``low_noise_fractions`` of the one found, in turn; those after are random.
    """

    batch: int = 4  # atoms added a scan
    scratch_turn: int = 0
    low_noise_fractions: tuple[float, ...] = (0.5, 0.2, 0.3)
    max_atoms: int = 600  # of a model: a restart of more takes longer than all before it, and gains little,
    usual: int = 3  # unless more than these are asked for; up to these, so many in a row that gain little end the
    max_failures: int = 2  # search: one says little, a lower noise may gain tens of nats where a higher gains none
    max_shortfall_nats: float = 5.0  # a restart that falls short by no more is settled to the end before it is judged
    rough_tol_nats: float = 0.05  # smaller gains are left at first, and while the noise is held
    min_distance2: float = 1e-8  # atoms nearer to the model do not enter: their gains have few digits
    # While the noise is held: atoms added, at least and as a share of those of the model, and at most
    min_added_atoms: int = 10
    added_share: float = 0.5
    max_added_atoms: int = 100
    # Start from scratch: a noise above so many times its start may hide signal, a lower one in a model of few atoms
    max_noise_rise: float = 5.0
    few_noise_rise: float = 1.0
    few_atoms_share: float = 0.15  # of the samples
    capped_atoms: int = 30  # and capped_share of the samples: the size at which the cap of the noise is lifted
    capped_share: float = 0.1
    max_backward_atoms: int = 256  # dictionaries up to this length may be searched from the full model too,
    quick_backward_atoms: int = 128  # and up to this, where that is quick, whatever the noise
    backward_updates: int = 12
    backward_alphas: tuple[float, float] = (1e-12, 1e3)  # least precision, and that at which an atom leaves
    # A path of several atoms at a time, from none: where there are many local maxima and scans are short
    min_path_atoms: int = 15
    max_path_columns: int = 512
    min_pair_correlation: float = 0.9  # of two weights in the posterior: the data tell little but a combination
    equal_correlations: float = 1e-6  # those that differ by less are equal: further digits are rounding
    max_pairs: int = 5
    dropped_share: float = 0.2  # of the atoms, in a random restart
    newton_steps: int = 5  # after the noise was held, and after it was released
    # Models that explain the noise too: a noise near its floor by this factor, more atoms than this share.
    noiseless_factor: float = 0.01
    crowded_share: float = 0.5


RESTART = RestartSettings()


def may_restart(model: GaussianModel, turn: int, failed: int, restarts: int) -> bool:
    """Whether a search goes on after so many restarts in a row that gained little."""
    few = restarts <= RESTART.usual
    if few and model.size > RESTART.max_atoms:
        return False
    return turn <= restarts and failed < (min(restarts, RESTART.max_failures) if few else restarts)


def is_noiseless(model: GaussianModel) -> bool:
    """Whether the noise is near its floor."""
    problem = model.problem
    return not problem.fixed_noise and model.core.beta * problem.noise_floor > RESTART.noiseless_factor


def is_crowded(model: GaussianModel) -> bool:
    """Whether there are nearly as many atoms as samples."""
    return model.size > RESTART.crowded_share * model.problem.n_samples


def restart(model: GaussianModel, turn: int, batch: int, deadline: float) -> GaussianModel | None:
    """Another local maximum, or the same; None where nothing suggests that this kind of restart would help."""
    other: GaussianModel | None
    fractions = RESTART.low_noise_fractions
    if turn == RESTART.scratch_turn:
        other = _restart_from_scratch(model, batch, deadline)
    elif turn <= len(fractions):
        other = perturb_low_noise(model, fractions[turn - 1], batch, deadline)
    elif turn % 2:
        other = drop_atoms(model)
    else:
        other = perturb_low_noise(drop_random_atoms(model), fractions[0], batch, deadline)
    return None if other is None else _finish(model, _settle(other, batch, deadline), batch, deadline)


def _finish(model: GaussianModel, other: GaussianModel, batch: int, deadline: float) -> GaussianModel:
    """Return the other model, roughly settled, at its maximum where it may be better than the first."""
    tol = model.problem.tolerance(model.size)
    if other.objective > model.objective - RESTART.max_shortfall_nats and model.admits(other):
        if _support(other) != _support(model):
            other = _settle(other, batch, deadline, 0.0)
        if _support(other) == _support(model):
            return other  # whose exchanges were tried
        while other.objective <= model.objective + tol and (swapped := other.exchange(tol)) is not None:
            other = _settle(swapped, batch, deadline, 0.0)
    return other


def _support(model: GaussianModel) -> frozenset[int]:
    return frozenset(model.active.tolist())


def _settle(model: GaussianModel, batch: int, deadline: float, tol: float = RESTART.rough_tol_nats) -> GaussianModel:
    """Additions and re-estimation until none gains more than a tolerance."""
    settled = False
    while time.monotonic() < deadline:
        tol_now = max(model.problem.tolerance(model.size), tol)
        grown = model.grow(batch, tol_now, apart=RESTART.min_distance2)
        if grown is not None:
            model, settled = grown, False
        elif not settled:
            model, settled = model.settle(tol_now), True
        else:
            break
    return model


def _add_atoms(
    model: GaussianModel, most: float, batch: int, deadline: float, hold_noise: bool, ceiling: float = np.inf
) -> GaussianModel:
    """Rough additions up to a number of atoms."""
    while model.size < most and time.monotonic() < deadline:
        tol = max(model.problem.tolerance(model.size), RESTART.rough_tol_nats)
        grown = model.grow(batch, tol, hold_noise, ceiling, RESTART.min_distance2)
        if grown is None:
            break
        model = grown
    return model


def perturb_low_noise(model: GaussianModel, fraction: float, batch: int, deadline: float) -> GaussianModel:
    """Hold the noise at a fraction of its value, let atoms enter, and release it.

    With less noise the model explains more and passes through richer supports, from which deletion reaches better
    maxima than addition alone. A fixed noise variance dips too and returns to its value.
    """
    beta = model.core.beta
    low = max(fraction / beta, model.problem.noise_floor)
    added = max(RESTART.min_added_atoms, RESTART.added_share * model.size)
    most = model.size + min(added, RESTART.max_added_atoms)
    held = model.at(model.active, model.core.precisions, 1.0 / low)
    held = _add_atoms(held, most, batch, deadline, hold_noise=True)
    held = held.relax(RESTART.newton_steps, hold_noise=True, min_gain_nats=RESTART.rough_tol_nats)
    released = held.at(held.active, held.core.precisions, beta)
    return released.relax(RESTART.newton_steps, min_gain_nats=RESTART.rough_tol_nats)


def _restart_from_scratch(model: GaussianModel, batch: int, deadline: float) -> GaussianModel | None:
    """From the other end: every atom of a short dictionary, or nothing and a ceiling over the noise, or nothing alone.

    A noise that is free while atoms enter for the first time may explain what later atoms would, and then the
    search ends tens of nats short, most of all with kernels that do not decay.
    """
    problem = model.problem
    with np.errstate(over="ignore", divide="ignore"):
        risen = np.float64(1.0) / (model.core.beta * problem.noise_start)  # the noise, of where it started
    n_atoms, few = problem.design.n_atoms, model.size <= RESTART.few_atoms_share * problem.n_samples
    likely = few and (risen > RESTART.few_noise_rise or n_atoms <= RESTART.quick_backward_atoms)
    if n_atoms <= RESTART.max_backward_atoms and (problem.fixed_noise or likely):
        other = restart_from_full(model)
    elif not problem.fixed_noise and risen > RESTART.max_noise_rise:
        other = restart_capped_noise(model, batch, deadline)
    elif model.size > RESTART.min_path_atoms and n_atoms <= RESTART.max_path_columns:
        return model.at(model.active[:0], np.zeros(0), 1.0 / (problem.noise_variance or problem.noise_start))
    else:
        return None
    other = _settle(other, batch, deadline)
    if other.objective > model.objective:
        low = _settle(perturb_low_noise(other, RESTART.low_noise_fractions[1], batch, deadline), batch, deadline)
        return low if low.objective > other.objective else other
    return other


def restart_capped_noise(model: GaussianModel, batch: int, deadline: float) -> GaussianModel:
    """Atoms enter an empty model while the noise may fall but not rise."""
    problem = model.problem
    other = model.at(model.active[:0], np.zeros(0), 1.0 / problem.noise_start)
    most = RESTART.capped_atoms + RESTART.capped_share * problem.n_samples
    other = _add_atoms(other, most, batch, deadline, hold_noise=False, ceiling=problem.noise_start)
    return other.relax(RESTART.newton_steps, min_gain_nats=RESTART.rough_tol_nats)


def exchange_pairs(model: GaussianModel, batch: int, deadline: float) -> GaussianModel | None:
    """Without two atoms whose weights are hardly told apart, with exchanges of the others: the best of some pairs.

    Of such atoms one may do, or another two, and no exchange of one alone gets there. None where there are no such.
    """
    root, order = model.full_posterior.root, model.problem.order[model.active]
    root = root / np.sqrt(np.sum(root**2, axis=1))[:, None]
    correlation = np.abs(root @ root.T)
    i, j = np.nonzero(np.triu(correlation > RESTART.min_pair_correlation, 1))
    place = np.lexsort((np.maximum(order[i], order[j]), np.minimum(order[i], order[j]))).argsort()
    correlation, found, seen, tol = correlation[i, j], None, {_support(model)}, RESTART.rough_tol_nats
    for _ in range(min(len(i), RESTART.max_pairs) if model.size <= RESTART.max_atoms else 0):
        pair = best(correlation, place, RESTART.equal_correlations)
        correlation[pair] = -np.inf
        other = model.keep(np.delete(np.arange(model.size), [i[pair], j[pair]])).settle(tol)
        while time.monotonic() < deadline and (swapped := other.exchange(tol)) is not None:
            other = swapped
        other = _settle(other, batch, deadline)
        near = other.objective > model.objective - RESTART.max_shortfall_nats
        while near and _support(other) not in seen and (swapped := other.exchange(tol)) is not None:
            seen.add(_support(other))
            other = _settle(swapped, batch, deadline)
        seen.add(_support(other))
        if found is None or other.objective > found.objective + model.problem.tol:  # of equals the first
            found = other
    return None if found is None else _finish(model, found, batch, deadline)


def restart_from_full(model: GaussianModel) -> GaussianModel:
    """Start from every atom and prune (T01): another basin."""
    problem, (least, most) = model.problem, RESTART.backward_alphas
    active, beta = np.flatnonzero(problem.design.scale > 0.0), 1.0 / (problem.noise_variance or problem.noise_start)
    # not quite equal, so that on symmetric data the atoms' content and not rounding decides which of two stays
    alpha = (1.0 + 1e-3 * problem.order[active] / len(problem.order)) / problem.n_samples
    apart = without_near_copies(model, active)
    active, alpha = active[apart], alpha[apart]
    for _ in range(RESTART.backward_updates):
        p = model.at(active, alpha, beta).full_posterior
        with np.errstate(all="ignore"):
            alpha = p.gamma / p.mean**2  # T01 eq. (16); a start needs no step that is safe
        keep = alpha < most  # not where it is not a number
        free = problem.n_samples - p.gamma.sum()
        if not problem.fixed_noise and free > 0.0:
            beta = 1.0 / max(p.residual / free, problem.noise_floor)  # T01 eq. (18)
        active, alpha = active[keep], np.maximum(alpha[keep], least)
    return model.at(active, alpha, beta)


def without_near_copies(model: GaussianModel, active: np.ndarray) -> np.ndarray:
    """Return the places of those atoms (k,) that are no near-copies of others before them in order."""
    return model.core.frame.apart(active)


def drop_atoms(model: GaussianModel) -> GaussianModel:
    """Remove a random atom with a few of its nearest, so that others may take their place."""
    rng, k = model.problem.rng, model.size
    if k < 2:
        return model
    similar = np.abs(model.core.gram()[:, rng.integers(k)])
    gone = np.argsort(-similar)[: rng.integers(1, min(4, k))]
    return model.keep(np.setdiff1d(np.arange(k), gone))


def drop_random_atoms(model: GaussianModel) -> GaussianModel:
    """Remove a random share of the atoms."""
    k = model.size
    return model.keep(np.sort(model.problem.rng.permutation(k)[: k - int(RESTART.dropped_share * k)]))
