"""A process fitted to a table in its own units: `fit_process`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.bound import Bounds, bounds
from relvec.gaussian_process.component import Component, exact_component, sparse_component
from relvec.gaussian_process.evidence import evidence, losses
from relvec.gaussian_process.held_out import Target, measure_spread, prediction_error, raise_to_floor, vary_error_bars
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.learn import Floors, climb, default_prior, log_posterior
from relvec.gaussian_process.predictor import Compared, ProcessPredictor
from relvec.gaussian_process.rows import (
    Rows,
    Units,
    far_exponent,
    find_categories,
    join_near_rows,
    merge_rows,
    neighbour_distance,
    put_groups_last,
    rounding_step,
    standardise,
    without_copies,
)
from relvec.gaussian_process.selection import STAGES, Candidate, compare, default_candidates, follow
from relvec.gaussian_process.target import choose_scale
from relvec.gaussian_process.vectors import GAIN_NATS, Pivots, all_rows, likely_gain, pivots
from relvec.inference import tails
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.runtime.arrays import Array, like
from relvec.runtime.clock import Clock

MAX_VECTORS = 1000  # distinct rows kept, where max_vectors is not given
_SHARE_NATS = 3.0  # a difference in merit of so many nats is a factor of e in the shares
_LEAST_SHARE = 0.1  # of the largest share: candidates below it do not predict
_COMPONENTS = ((600, 4), (1000, 1))  # up to so many distinct rows, so many candidates are averaged at most
_ALL_ROWS = 300  # so few distinct rows are all kept
_FEWER = 0.7  # of the vectors allowed, from which on fewer of them are not tried
_LAST_SHARE = 0.2  # of the rows, in whole groups: what is held out at most where one part of them is
_LEARNING_SHARE = 0.6  # of the seconds of a limit: for learning kernels
_VECTORS_SHARE = 0.6  # of the seconds left then: for vectors; error bars and the comparison with a line have the rest
_SECONDS = 1e-9  # of choosing and factoring vectors, for each of N m^2
LADDER = (64, 128, 256, 512)  # numbers of vectors tried
_BYTES_OF_A_PAIR = 130.0  # of rows, in the matrices of an evidence with its gradient
_COARSE = 10.0  # standard deviations: coarser steps of rounding have the largest floor too


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows to learn from: as given on the scale of the target (`raw`), and standardised (`rows`).

    `log_slope` (n,) is that of the standardised target by the target itself.
    """

    raw: Rows
    rows: Rows
    units: Units
    scale: Scale
    floors: Floors
    log_slope: np.ndarray


@dataclass(frozen=True, eq=False)
class LastStage:
    """The last stage of learning: the most rows, and evaluations (half on at most 1,000 rows).

    `place` is an array on the device where the evidence is to be computed; None for the host.
    """

    n_rows: int = 2000
    steps: int = 24
    place: Array | None = None


@dataclass(frozen=True, eq=False)
class Learned:
    """All candidates, best first; those that predict with their shares (k,) and their theta of the last stage."""

    found: list[Candidate]
    chosen: list[Candidate]
    shares: np.ndarray
    thetas: list[np.ndarray]

    def record(self) -> tuple[Compared, ...]:
        """Return the candidates that were compared, best first."""
        of = {c.structure: share for c, share in zip(self.chosen, self.shares)}
        return tuple(
            Compared(
                c.structure.name, c.merit.value, c.merit.several_modes, c.n_rows, c.held_out,
                float(of.get(c.structure, 0.0)), c.refused,
            )
            for c in self.found
        )  # fmt: skip


def fit_process(
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    *,
    candidates: tuple[Structure, ...] | None = None,
    max_vectors: int | None = None,
    average: bool = True,
    target: Scale | None = None,
    clock: Clock | None = None,
    earlier: ProcessPredictor | None = None,
    max_rows: int | None = None,
    noise_variance: float | None = None,
    vary: bool = True,
    floored: bool = True,
) -> ProcessPredictor:
    """Return a process with the composite kernel of most merit.

    Parameters
    ----------
    X : (n, d) finite numbers
    y : (n,) finite numbers
    weights : (n,) frequencies of the rows; one each where not given
    groups : (n,) numbers of the groups of rows that are left out together; each row is on its own where not given
    candidates : structures over the columns that vary; `default_candidates` where not given
    max_vectors : distinct rows kept at most; min(n, 1000) where not given
    average : whether candidates of nearly the same merit share the prediction (tables of few distinct rows only)
    target : the scale of the target; chosen by `choose_scale` where not given, `AS_IT_IS` for none
    clock : of all stages together, with a callback that is told (stage, fraction done)
    earlier : a process whose kernels, at their hyperparameters, are where learning begins; nothing else is compared
    max_rows : rows that hyperparameters are learned from at most (`rows_to_learn`); all that help where not given
    noise_variance : on the scale of the target, of a row of mean weight; learned where not given
    vary : whether error bars may depend on the inputs, where rows left out say that they do
    floored : whether a constant or a straight line takes the place of a process that predicts rows left out worse

    Examples
    --------
    >>> X = np.linspace(0.0, 6.0, 60)[:, None]
    >>> model = fit_process(X, np.sin(X[:, 0]))
    >>> mean, variance = model.predict(np.array([[1.5]]))
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01)
    True
    """
    clock = Clock() if clock is None else clock
    prepared = prepare(X, y, weights, target, clock, noise_variance, groups)
    learning = clock.part(_LEARNING_SHARE)  # a good kernel on few vectors predicts worse than a fair one on many
    learned = learn_kernels(prepared, candidates, earlier, average, learning, max_rows=max_rows)
    clock.take_over(learning)
    rows, chosen, thetas = prepared.rows, learned.chosen, learned.thetas
    most = min(len(rows), MAX_VECTORS if max_vectors is None else max_vectors, _affordable(len(rows), clock))
    kept = _choose(chosen[0].structure, thetas[0], rows, most, clock)
    parts = [_component(c, theta, rows, kept.index, max_rows) for c, theta in zip(chosen, thetas)]
    if vary and noise_variance is None and not clock.up("error bars that depend on the inputs"):
        parts = vary_error_bars(parts, learned.shares, rows.take(slice(0, max_rows)), prepared.units, prepared.scale)
        parts = [replace(part, tail=max(part.tail, tails.least_tail(len(rows)))) for part in parts]
    clock.report("vectors", 1.0)
    exact = len(kept) == len(rows)
    process = assemble(prepared, learned, parts, kept.index, _bounds(parts[0], rows, exact), clock)
    if not exact:
        full = process.status == "converged" and most < len(rows) and len(kept) > _FEWER * most
        process = replace(process, relevant=kept.relevant, status="max_vectors" if full else process.status)
    if not floored or (len(kept) > LADDER[0] and clock.up("the comparison with a straight line")):
        return process
    return raise_to_floor(process, *floor_targets(X, y, weights, prepared, noise_variance, groups), max_vectors)


def assemble(
    prepared: Prepared, learned: Learned, parts: list[Component], index: np.ndarray, bounds: Bounds, clock: Clock
) -> ProcessPredictor:
    """Return the process of some components whose vectors are the rows of these numbers (m,)."""
    floor = prepared.floors.noise
    return ProcessPredictor(
        units=prepared.units, scale=prepared.scale, components=tuple(parts), shares=learned.shares,
        selection=learned.record(), merit=learned.chosen[0].merit, bounds=bounds, vectors=prepared.raw.X[index],
        status=status(parts[0], floor, clock), messages=messages(parts[0], learned.found, floor, clock),
        evaluations=sum(c.mode.evaluations for c in learned.found),
    )  # fmt: skip


def floor_targets(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, prepared: Prepared,
    noise_variance: float | None = None, groups: np.ndarray | None = None,
) -> tuple[Target, list[Target]]:  # fmt: skip
    """Return the rows on the scale of the process, and on the target's own where that is another."""
    scales = [AS_IT_IS] if prepared.scale.sign else []
    others = [prepare(X, y, weights, scale, Clock(), noise_variance, groups) for scale in scales]
    own, *rest = (
        Target(p.rows, p.raw.X, p.units, p.scale, p.floors, p.log_slope) for p in (prepared, *others)
    )  # fmt: skip
    return own, rest


def prepare(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, target: Scale | None, clock: Clock,
    noise_variance: float | None = None, groups: np.ndarray | None = None,
) -> Prepared:  # fmt: skip
    """Return rows X (n, d), y (n,) merged and standardised, on the scale of the target, in the order of their hash.

    Where they have groups (n,), a share of them in whole groups is last.
    """
    X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
    if weights is not None:
        weights = np.asarray(weights, dtype=float)
        used = weights > 0
        X, y, weights, groups = X[used], y[used], weights[used], None if groups is None else groups[used]
    exponent = int(far_exponent(y))
    X, y = join_near_rows(X, y[:, None]), np.ldexp(y, -exponent)
    scale = choose_scale(X, y, weights, clock, groups) if target is None else target.in_units(exponent)
    u = scale.forward(y)
    raw = merge_rows(X, u, weights, groups)
    order = put_groups_last(raw, _LAST_SHARE)
    raw = raw.take(order)
    rows, units = standardise(without_copies(raw, X, u, weights))
    held = None if noise_variance is None else np.ldexp(noise_variance, -2 * exponent) / units.y_scale**2
    floors = Floors(noise_floor(y, scale, units.y_scale), 0.5 * neighbour_distance(rows.X), held)
    log_slope = merge_rows(X, scale.log_slope(y), weights).y[order] - np.log(units.y_scale) - exponent * np.log(2.0)
    if scale.sign == 0:
        units = units.stretch_target(exponent)
    return Prepared(raw, rows, units, scale.in_units(-exponent), floors, log_slope)


def learn_kernels(
    prepared: Prepared, candidates: tuple[Structure, ...] | None, earlier: ProcessPredictor | None, average: bool,
    clock: Clock, last: LastStage | None = None, max_rows: int | None = None,
) -> Learned:  # fmt: skip
    """Return the candidates compared, and those that predict learned on as many rows as the exact evidence can take."""
    last = LastStage() if last is None else last
    rows, floors = prepared.rows.take(slice(0, max_rows)), prepared.floors
    if earlier is not None and all(c.structure.n_inputs == rows.X.shape[1] for c in earlier.components):
        found = follow([(c.structure, c.theta) for c in earlier.components], rows, floors, clock)
    else:
        structures = default_candidates(*_layout(prepared.rows)) if candidates is None else candidates
        found = compare(structures, rows, floors, clock)
    most = next((most for n, most in _COMPONENTS if len(rows) <= n), 1) if average else 1
    chosen, shares = average_by_merit(found, most)
    return Learned(found, chosen, shares, [_refine(c, rows, floors, last, clock) for c in chosen])


def rows_to_learn(memory: float) -> int:
    """Rows whose exact evidence and gradient fit into so many bytes."""
    return max(int(np.sqrt(memory / _BYTES_OF_A_PAIR)), STAGES[0][0])


def compare_structures(
    X: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, clock: Clock | None = None
) -> Structure:
    """Return the structure of most merit for all targets (n, q) together, each in its own units.

    They are compared on up to 1,000 rows, the same of every target; those that did not reach as many rows as the best
    of each target are left out.
    """
    rows, _ = standardise(merge_rows(X, np.zeros(len(X)), weights))
    candidates, clock = default_candidates(*_layout(rows)), Clock() if clock is None else clock
    X = join_near_rows(X, targets)
    merits = [_merits(candidates, X, y, weights, clock) for y in targets.T]
    whole = set.intersection(*map(set, merits)) or set.union(*map(set, merits))
    return max((s for s in candidates if s in whole), key=lambda s: sum(merit.get(s, 0.0) for merit in merits))


def _merits(
    candidates: tuple[Structure, ...], X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, clock: Clock
) -> dict[Structure, float]:
    """Return the merits of the candidates that reached most rows of X (n, d), with targets y (n,)."""
    t = np.ldexp(y, -int(far_exponent(y)))
    raw = merge_rows(X, t, weights)
    rows, units = standardise(without_copies(raw, X, t, weights))
    floors = Floors(noise_floor(raw.y, AS_IT_IS, units.y_scale), 0.5 * neighbour_distance(rows.X))
    found = [c for c in compare(candidates, rows.take(slice(0, STAGES[-1][0])), floors, clock) if not c.refused]
    n = max(c.n_rows for c in found)
    return {c.structure: c.merit.value for c in found if c.n_rows == n}


def _layout(rows: Rows) -> tuple[int, tuple[int, ...]]:
    """Return the number of inputs of standardised rows, and the groups of them that are categories."""
    return rows.X.shape[1], find_categories(rows.X)


def noise_floor(y: np.ndarray, scale: Scale, u_scale: float) -> float:
    """Return the least noise variance of standardised targets: that of their rounding, h^2 / 12 for steps of h.

    Of fewer than 20 levels they are rather classes than rounded numbers, and a tenth of it is enough.
    """
    levels = np.unique(y)
    step = rounding_step(levels) * np.exp(np.median(scale.log_slope(levels))) / u_scale
    share = 1.0 if len(levels) >= 20 else 0.1
    return min(max(Floors.noise, share * min(step, _COARSE) ** 2 / 12.0), 0.5)


def average_by_merit(found: list[Candidate], most: int) -> tuple[list[Candidate], np.ndarray]:
    """Return the candidates that predict, and their shares (k,): exp(merit / 3 nats), normalised.

    Merits are known to a few nats (Laplace's approximation, the priors), so that their differences count a third. Mean
    test NLL of ten tables: 0.274 for the candidate of most merit, 0.252 for shares exp(merit), 0.237 for these, 0.216
    for the best candidate of each table in hindsight, 0.336 for one Gaussian part with a width for each input.
    """
    pool = [c for c in found if c.n_rows == found[0].n_rows and not c.refused] or found[:1]
    share = np.exp((np.array([c.merit.value for c in pool]) - pool[0].merit.value) / _SHARE_NATS)
    share /= share.sum()
    kept = np.flatnonzero(share >= _LEAST_SHARE * share.max())[:most]
    return [pool[i] for i in kept], share[kept] / share[kept].sum()


def _refine(chosen: Candidate, rows: Rows, floors: Floors, last: LastStage, clock: Clock) -> np.ndarray:
    """Return the candidate's theta learned on as many rows as the exact evidence can take."""
    few = rows.take(slice(0, last.n_rows))
    if chosen.n_rows >= len(few) or clock.up(f"{chosen.structure.name} on {len(few)} rows"):
        return chosen.mode.theta
    prior = default_prior(chosen.structure, floors)
    steps = last.steps if len(few) > 1000 else last.steps // 2
    placed = few if last.place is None else replace(few, X=like(last.place, few.X))
    objective = log_posterior(chosen.structure, prior, placed)
    mode = climb(objective, chosen.mode.theta, prior, steps, clock, chosen.curvature)
    clock.report("all rows", 1.0)
    return mode.theta


def _affordable(n_rows: int, clock: Clock) -> int:
    """How many vectors the time that is left is enough for: choosing and factoring m take O(N m^2)."""
    if clock.left() == float("inf"):
        return n_rows
    m = int(np.sqrt(_VECTORS_SHARE * max(clock.left(), 0.0) / (_SECONDS * n_rows)))
    if m < min(n_rows, MAX_VECTORS):
        clock.cut.append("the number of vectors")
    return max(m, LADDER[0])


def _choose(structure: Structure, theta: np.ndarray, rows: Rows, most: int, clock: Clock) -> Pivots:
    """Which rows to keep: as few as lose almost nothing of the density at rows held out, `most` at most.

    The bound would ask for more: where a rough part takes the place of noise it is loose, though the predictions are
    as good as they can be.
    """
    if len(rows) <= _ALL_ROWS:
        return pivots(structure, theta, rows, most)
    held = rows.take(slice(-rows.n_last(min(len(rows) // 5, 500)), None))
    rest = rows.take(slice(0, len(rows) - len(held)))
    if most >= len(rows):
        order = pivots(structure, theta, rows, min(most, LADDER[-1]))
        full = exact_component(structure, theta, rest)
    else:  # no row held out is a vector: where one is, the process is sure of what it has not seen
        order = pivots(structure, theta, rest, min(most, len(rest)))
        full = sparse_component(structure, theta, rest, rows.X[order.index])
    best = losses(held, *full.predict(held.X))
    for m in LADDER:
        if m > _FEWER * most or clock.up("fewer vectors"):
            break
        fewer = sparse_component(structure, theta, rest, rows.X[order.index[:m]])
        if likely_gain(losses(held, *fewer.predict(held.X)), best, held.weight / held.total) < GAIN_NATS:
            return order.first(m)
    return order if most < len(rows) else all_rows(len(rows))


def _component(chosen: Candidate, theta: np.ndarray, rows: Rows, index: np.ndarray, max_rows: int | None) -> Component:
    """Return the process on the chosen rows, at the theta of the exact evidence.

    A noise of greatest lower bound instead would count twice what the vectors cannot represent.
    """
    structure, exact = chosen.structure, len(index) == len(rows)
    part = exact_component(structure, theta, rows) if exact else sparse_component(structure, theta, rows, rows.X[index])
    wide = measure_spread(structure, theta, rows.take(slice(0, max_rows)))
    return replace(part, spread=wide * prediction_error(chosen.merit, rows.total))


def _bounds(part: Component, rows: Rows, exact: bool) -> Bounds:
    if exact:
        value = evidence(part.structure, part.theta, rows)[0]
        return Bounds(value, value, rows.total)
    return bounds(part.structure, part.theta, rows, part.Z)


def status(part: Component, floor: float, clock: Clock) -> str:
    """How a fit ended."""
    if clock.stopped:
        return "interrupted"
    return "time_limit" if clock.cut else "noise_floor" if part.noise < 1.05 * floor else "converged"


def messages(part: Component, found: list[Candidate], floor: float, clock: Clock) -> tuple[str, ...]:
    """Facts about a fit that the user should know."""
    out = [f"{c.structure.name} was refused: {c.refused}" for c in found if c.refused]
    if part.noise < 1.05 * floor:
        out.append(
            f"the noise variance is at its floor, {floor:.2g} of the target's variance: the rows look noiseless, "
            "and the error bars rest on that floor"
        )
    return (*out, *(f"cut short by the time limit: {stage}" for stage in clock.cut))
