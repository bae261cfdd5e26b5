"""Moves of the sequential method under the Laplace approximation: chosen by linearised gains, kept by refitted ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.inference.evidence import best
from relvec.solvers._native.laplace import Mode
from relvec.solvers.laplace.precisions import (
    begin_with,
    deletion_gains,
    every_unit,
    relax,
    update_precisions,
    within_reach,
)
from relvec.solvers.laplace.problem import LaplaceModel
from relvec.solvers.laplace.scan import Scan, find_exchanges, scan


@dataclass(frozen=True)
class LaplaceSettings:
    """Limits of the search, chosen on the evidences that the data sets of the papers reach."""

    batch: int = 4  # units added a scan, where no number is given
    batch_gain_share: float = 0.3  # of the best gain, for further units of a batch
    max_batch_correlation: float = 0.3  # of those with the units before them
    max_refuted: int = 6  # additions that lose when refitted, before the search for additions ends
    # Units with Q^2 / S of at least this, which the linearised problem would not add or not at its own precision, are
    # added at these precisions, times S, before a search ends: all in small tables, and never less than three. One that
    # loses as much at the first, and that the scan would not add, is not tried at the others: of 126 that gained at the
    # second none lost more than .13.
    min_faint_ratio: float = 0.1
    faint_precisions: tuple[float, ...] = (1.0, 0.3, 0.05, 0.01, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    max_faint_loss_nats: float = 0.2
    small_gain_nats: float = 0.1  # of an addition: a faint one may gain more
    edge_halvings: int = 4  # of the way to the edge of trust
    faint_additions_times_rows: int = 2500
    max_exchanges: int = 8  # refitted before the search for exchanges ends
    # Before re-estimation: an exchange that loses more is not tried. Of 197 that lost more than 2 nats one led up.
    max_exchange_loss_nats: float = 2.0
    exchange_steps: tuple[int, ...] = (2, 6)  # on the precisions, while more may lead up
    # The way to the first maximum keeps `LaplaceModel.trust` above this, as regression holds the noise, and is then let
    # go where that cut moves short.
    held_trust: float = 0.7
    heat: float = 4.0  # times the likelihood's weight in a restart
    heat_tol_nats: float = 0.05  # smaller additions are not worth making in a heated model
    # The first restart: so many updates of MacKay, in which units of less gamma leave. Both chosen
    # by the mean evidence of 60 random classifications of 40 to 100 rows, at no more CPU time.
    mackay_updates: int = 12
    min_mackay_gamma: float = 0.02
    mackay_share: float = 0.5  # of the work of a restart, for them all
    mackay_modes: float = 3.0  # of the first size, that they all cost
    max_update: float = 1e3  # times, of a precision by T01 eq. (16)
    min_restart_ns: float = 1e7  # work of a restart, or if more this share of the way to the first maximum
    restart_share: float = 0.08
    min_shares: int = 3  # of that work for the first restarts together
    settling_steps: int = 60  # of the precisions to their optimum
    max_settlings: int = 3  # while they are slow: more than this share of tol is gained and expected
    slow_share: float = 0.1
    sharp_share: float = 1e-11  # of an evidence: gains to which precisions are found in the end
    min_gamma: float = 0.01  # of a unit that is kept: below, the data determine next to nothing of its weights
    max_restart_shortfall_nats: float = 1.5  # a restart further behind without exchanges is given up
    max_restart_moves: int = 50  # and two for each unit: with weights of 1e10 moves gain by rounding for minutes


SETTINGS = LaplaceSettings()


def is_trusted(new: LaplaceModel, old: LaplaceModel) -> bool:
    """Whether a move stays where the Laplace approximation is self-consistent, or comes nearer to it."""
    inside = new.trust >= min(new.problem.trusted, old.trust)
    new.problem.budget.crossings += not inside
    return inside


def temper(new: LaplaceModel, old: LaplaceModel) -> LaplaceModel:
    """Return the model after updates of T01 eq. (16), which lead to a trust of 1, until it may be trusted."""
    for _ in range(4):
        if is_trusted(new, old):
            break
        new = new.at(np.clip(update_precisions(new), new.alpha, SETTINGS.max_update * new.alpha), new.fit.mean)
    return new


def grow(model: LaplaceModel, found: Scan, batch: int, tol: float) -> tuple[LaplaceModel | None, float]:
    """Add the most useful units, then two Newton steps; None and the largest refitted gain where none exceeds tol."""
    batch = model.problem.room_beside(model.active, batch)
    if batch <= 0:
        return None, 0.0
    grown, most = _grow_best(model, found, batch, tol)
    if model.problem.thorough and model.problem.K == 1 and most < SETTINGS.small_gain_nats:
        faint, gain = _grow_faint(model, found, max(tol, most))
        grown, most = (grown, most) if faint is None else (faint, gain)
    return grown, most


def _grow_faint(model: LaplaceModel, found: Scan, tol: float) -> tuple[LaplaceModel | None, float]:
    """Add a unit that the linearised problem is nearly indifferent to, where the refitted evidence gains by it.

    At rows without counts, say, Q^2 = S: the evidence is flat at 1/alpha = 0 and rises beyond it.
    """
    S, Q = found.classes[0].S, found.classes[0].Q
    apart = (found.crowd[0] == 0) | (found.gains > 0.0)
    ratio = np.where(found.outside[0] & apart & (S > 0.0), Q * Q / np.where(S > 0.0, S, 1.0), 0.0)
    ratio[found.gains > 0.0] += 1.0  # whose gain begins with the motion of B
    chosen, most = None, 0.0
    count = max(3, SETTINGS.faint_additions_times_rows // model.problem.design.n_rows)
    for i in np.lexsort((model.problem.order, -np.round(ratio, 9)))[:count]:
        if ratio[i] < SETTINGS.min_faint_ratio:
            break
        for grown in _add_at_precisions(model, found, i):
            gain = grown.objective - model.objective
            if gain > max(tol, most) and is_trusted(grown, model):
                chosen, most = grown, gain
    return (None, 0.0) if chosen is None else (relax(chosen, 2)[0], most)


def _add_at_precisions(model: LaplaceModel, found: Scan, i: int) -> list[LaplaceModel]:
    """Add unit ``i`` of a scan at each of `LaplaceSettings.faint_precisions`, and near the tops between these."""
    S, Q = found.classes[0].S[[i]], found.classes[0].Q[[i]]
    trials: dict[float, LaplaceModel] = {}
    # gains of a scan in memory begin with the motion of B; without it nothing tells which units to leave out
    doubtful = isinstance(model.fit, Mode) and not found.gains[i] > 0.0

    def attempt(x: float) -> float:
        alpha = np.exp(x) * S
        trials[x] = model.add(np.array([i]), alpha, Q / (alpha + S))
        return trials[x].objective - model.objective

    for factor in SETTINGS.faint_precisions:
        gain = attempt(float(np.log(factor)))
        if len(trials) == 1 and gain <= -SETTINGS.max_faint_loss_nats and doubtful:
            return list(trials.values())
    x = np.sort(list(trials))
    gains = np.array([trials[v].objective for v in x]) - model.objective
    least = min(model.problem.trusted, model.trust)
    inside = np.array([trials[v].trust >= least for v in x])
    for j in range(1, len(x) - 1):
        if gains[j] > -SETTINGS.max_faint_loss_nats and gains[j] >= max(gains[j - 1], gains[j + 1]):
            attempt(_top_of_parabola(x[j - 1 : j + 2], gains[j - 1 : j + 2]))
    for j in np.flatnonzero(inside[:-1] != inside[1:]).tolist():
        near, far = (x[j], x[j + 1]) if inside[j] else (x[j + 1], x[j])
        if max(gains[j : j + 2]) > 0.0:
            for _ in range(SETTINGS.edge_halvings):  # a gain may lie between the last precision inside and the edge
                attempt(middle := 0.5 * (near + far))
                near, far = (middle, far) if trials[middle].trust >= least else (near, middle)
    return list(trials.values())


def _top_of_parabola(x: np.ndarray, y: np.ndarray) -> float:
    """Where the parabola through three points (3,), of which the second is the highest, has its top."""
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[1] - y[2]) / (x[2] - x[1])  # both at least zero
    weight = left / max(left + right, 1e-300)
    return float(0.5 * ((1.0 - weight) * (x[0] + x[1]) + weight * (x[1] + x[2])))


def _grow_best(model: LaplaceModel, found: Scan, batch: int, tol: float) -> tuple[LaplaceModel | None, float]:
    units = np.arange(len(found.gains))
    gains, most, ranks = found.gains - model.problem.prices(units), 0.0, model.problem.rank(units)
    for _ in range(SETTINGS.max_refuted):
        first = best(gains, ranks)
        if gains[first] <= tol:
            return None, max(most, float(gains[first]))
        chosen = _batch(model, found, gains, first, batch)
        while len(chosen):
            grown = model.add(chosen, found.alpha[chosen], found.start(model, chosen))
            if grown.objective > model.objective - 0.5 * gains[first]:
                grown = temper(relax(grown, 2)[0], model)
                gain = grown.objective - model.objective if is_trusted(grown, model) else 0.0
                if gain > 0.1 * tol:
                    return grown, gain
                most = max(most, gain)
            chosen = chosen[: len(chosen) // 2]
        # the refitted evidence refutes what the scan promised, for this unit and its near-copies
        gains[first] = 0.0
        near = np.flatnonzero(gains > tol)
        if near.size:
            near = near[np.argsort(-gains[near])][:256]
            gains[near[found.correlations_with(model, first, near) > 0.99]] = 0.0
    return None, most


def _batch(model: LaplaceModel, found: Scan, gains: np.ndarray, first: int, batch: int) -> np.ndarray:
    """Return the best unit and further good ones that hardly overlap with it or each other."""
    if batch == 1:
        return np.array([first])
    near = np.flatnonzero(gains >= SETTINGS.batch_gain_share * gains[first])
    near = near[np.lexsort((model.problem.rank(near), -np.round(gains[near] / gains[first], 9)))][: 8 * batch]
    near = np.concatenate([[first], near[near != first]])
    close = found.correlations(model, near) > SETTINGS.max_batch_correlation
    chosen: list[int] = []
    free = np.ones(len(near), dtype=bool)
    while len(chosen) < batch and free.any():
        chosen.append(int(free.argmax()))
        free[chosen[-1]] = False
        free &= ~close[chosen[-1]]
    return near[chosen]


def shrink(model: LaplaceModel, tol: float) -> tuple[LaplaceModel | None, float]:
    """Delete a unit if that, refitted, gains; None and the largest refitted gain otherwise."""
    if not len(model.active):
        return None, 0.0
    gains, most = deletion_gains(model)[0] + model.problem.prices(model.active), 0.0
    for i in np.argsort(-gains)[:4]:
        if gains[i] < -1.0:
            break
        fewer = model.drop(np.arange(len(gains)) == i)
        if not within_reach(fewer, model.objective):
            continue
        fewer = relax(fewer, 3)[0]
        gain = fewer.objective - model.objective if is_trusted(fewer, model) else 0.0
        if gain > tol:
            return fewer, gain
        most = max(most, gain)
    return None, most


def exchange(model: LaplaceModel, found: Scan, tol: float) -> tuple[LaplaceModel | None, float]:
    """Exchange one unit for another; None and the largest refitted gain where none exceeds tol."""
    if not len(model.active):
        return None, 0.0
    pairs, most, least = find_exchanges(model, found), 0.0, -SETTINGS.max_exchange_loss_nats
    order = np.lexsort((model.problem.rank(model.active[pairs.leaving]), -np.round(pairs.gain, 9)))
    for i in order[: SETTINGS.max_exchanges]:
        if pairs.gain[i] < least:
            break
        others = model.active[model.active != model.active[pairs.leaving[i]]]
        if model.problem.room_beside(others, 1) < 1:  # a function in place of the constant would be one too many
            continue
        swapped = model.swap(int(pairs.leaving[i]), int(pairs.entering[i]), float(pairs.alpha[i]), pairs.weight[i])
        for steps in SETTINGS.exchange_steps:
            if swapped.objective < model.objective + least or not within_reach(swapped, model.objective):
                break
            swapped = relax(swapped, steps)[0]
            gain = swapped.objective - model.objective if is_trusted(swapped, model) else 0.0
            if gain > tol:
                return swapped, gain
            most = max(most, gain)
    return None, most


def climb_by_moves(
    model: LaplaceModel, exchanging: bool, work: float, rival: LaplaceModel
) -> tuple[LaplaceModel | None, dict[str, float]]:
    """Single additions, re-estimation, deletions and exchanges until none helps, and the gains they would have had.

    No more than ``work`` is done. None where this leads to the rival, or ends far below it before exchanges.
    """
    tol, known, offers = model.problem.tol, sorted(rival.active.tolist()), {}
    for _ in range(SETTINGS.max_restart_moves + 2 * len(known)):
        if not model.problem.open_to(work):
            break
        if sorted(model.active.tolist()) == known:
            return None, {}
        found = scan(model)
        better, offers["add"] = grow(model, found, 1, tol)
        if better is None:
            relaxed = relax(replace(model, refused=frozenset()), SETTINGS.settling_steps)[0]
            if relaxed.objective > model.objective + 0.1 * tol:
                model = relaxed
                continue
            better, offers["delete"] = shrink(model, tol)
        if better is None and exchanging:
            if model.objective < rival.objective - SETTINGS.max_restart_shortfall_nats:
                return None, {}
            better, offers["exchange"] = exchange(model, found, tol)
        if better is None:
            return model, offers
        model = better
    return model, {}


def run_mackay(model: LaplaceModel, work: float) -> LaplaceModel:
    """Return what MacKay's updates leave of all units, or of those of a model and as many others as the work allows.

    From the whole dictionary the precisions move together, and lead where single moves seldom do.
    """
    problem = model.problem
    units, size = every_unit(problem), problem.n_units
    left = SETTINGS.mackay_share * (work - problem.budget.spent) / SETTINGS.mackay_modes
    while size > len(model.active) and problem.mode_ns(size * problem.per_unit) > left:
        size //= 2
    if size < problem.n_units:
        by_content = units[np.argsort(problem.rank(units))]
        # the same units whatever the seed, which is of restarts beyond the third alone
        drawn = np.random.default_rng(0).choice(len(units), min(size, len(units)), replace=False)
        units = np.union1d(model.active, by_content[drawn])
    found = begin_with(problem, units)
    for _ in range(SETTINGS.mackay_updates):
        gamma = problem.gather(found.fit.gamma) / problem.per_unit
        alpha = np.clip(update_precisions(found), found.alpha / SETTINGS.max_update, SETTINGS.max_update * found.alpha)
        found = found.keep(gamma > SETTINGS.min_mackay_gamma, alpha)
        if not problem.open_to(work):
            break
    return found


def anneal(model: LaplaceModel, batch: int, work: float) -> LaplaceModel:
    """Count every sample several times, let units enter, and return to the data as they are.

    As with a smaller noise in regression, the model passes through richer supports, from which deletion reaches
    better maxima than addition alone.
    """
    problem = model.problem
    hot = replace(problem, weights=SETTINGS.heat * problem.weights)
    held = LaplaceModel(hot, model.active, hot.fit(model.active, model.alpha, model.fit.mean, model.fit.Phi))
    most, tol = 2 * len(model.active) + 10 * problem.K, max(problem.tol, SETTINGS.heat_tol_nats)
    while len(held.active) < most and problem.open_to(work):
        grown, _ = grow(held, scan(held), batch, tol)
        if grown is None:
            break
        held = grown
    held = relax(held, 8)[0]
    cool = problem.fit(held.active, held.alpha, held.fit.mean, held.fit.Phi)
    return relax(LaplaceModel(problem, held.active, cool), 20)[0]


def drop_undetermined(model: LaplaceModel) -> LaplaceModel:
    """Delete units of less gamma than `LaplaceSettings.min_gamma`, all or the least, unless that loses more than tol.

    With precisions at their optimum such a unit gains about gamma^2 / 4 nats.
    """
    problem = model.problem
    while len(model.active):
        gamma = problem.gather(model.fit.gamma) / problem.per_unit
        for leave in (gamma < SETTINGS.min_gamma, (gamma < SETTINGS.min_gamma) & (gamma == gamma.min())):
            fewer = relax(model.drop(leave), SETTINGS.settling_steps)[0] if leave.any() else model
            if fewer is not model and model.objective - fewer.objective <= problem.tol:
                model = fewer
                break
        else:
            break
    return model


def drop_units(model: LaplaceModel) -> LaplaceModel:
    """Remove a random unit with a few of its nearest, so that others may take their place."""
    rng, u = model.problem.rng, len(model.active)
    if u < 2:
        return model
    columns = model.problem.design.columns(model.active % model.problem.design.n_atoms)
    similar = np.abs((columns.T @ columns)[int(rng.integers(u))])
    gone = np.argsort(-similar)[: rng.integers(1, min(4, u))]
    leave = np.zeros(u, bool)
    leave[gone] = True
    return model.drop(leave)
