"""Which kernel: candidates compared by merit, on the same rows and in the same units.

The merit p(t | M) of a model is its evidence integrated over the hyperparameters by Laplace's approximation,

    log p(t | M) = log p(t | theta) + log p(theta) + p/2 log 2 pi - 1/2 log|H| + log k!,

at the maximum theta of the first two terms, with H minus their Hessian (MacKay 1992, eq. (6)). k parts that could
change places have k! equal maxima, and the integral is over all of them.

`compare` learns all candidates on a few hundred rows; those that are hopeless by merit are dropped, the others go on
with more rows, where their merit decides. Rows that took no part in learning check the choice: a candidate whose
density on them falls apart is refused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import lgamma

import numpy as np

from relvec.gaussian_process.evidence import losses, posterior, predict
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.learn import (
    LEAST_CURVATURE,
    Floors,
    Mode,
    Objective,
    Prior,
    climb,
    combine_starts,
    default_prior,
    learn,
    log_posterior,
)
from relvec.gaussian_process.rows import LEAST_HELD_ROWS, MOST_HELD_ROWS, Rows
from relvec.runtime.clock import Clock, TimeUp

_MOST_DIFFERENCES = 128  # rows of H that are measured: one evaluation each


@dataclass(frozen=True, eq=False)
class Merit:
    """log p(t | M), the eigenvalues (p,) of H as computed, how many had to be raised, and whether modes compete.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GPRegressor().fit(X, np.sin(3.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0]))
    >>> bool(model.selection_[0].merit == model.merit_)
    True
    """

    value: float
    eigenvalues: np.ndarray
    floored: int
    several_modes: bool


@dataclass(frozen=True, eq=False)
class Curvature:
    """Minus the second derivatives H at a mode: the eigenvalues (p,) that the merit needs, and the diagonal (p,)."""

    eigenvalues: np.ndarray
    diagonal: np.ndarray


def measure_curvature(
    objective: Objective, mode: Mode, prior: Prior, clock: Clock | None = None, most: int = _MOST_DIFFERENCES
) -> Curvature:
    """H at a mode by differences of gradients, for at most so many hyperparameters.

    Of more, all but the longest widths are measured. On a long width l the evidence depends through c / l^2, whose
    second derivative by log l is -2 times the first, and on two of them together hardly: H = [A B; B' D] with D
    diagonal, whose determinant is that of D times that of A - B D^-1 B'.

    Raises `TimeUp` where the clock's time is up.
    """
    if len(mode.theta) <= most:
        H = hessian(objective, mode, clock)
        return Curvature(np.linalg.eigvalsh(H), H.diagonal())
    slope, curvature = prior.derivatives(mode.theta)
    slope = mode.gradient - slope  # of the evidence alone
    order = np.argsort(np.where(prior.are_widths, mode.theta, -np.inf), kind="stable")
    measured, rest = np.sort(order[:most]), np.sort(order[most:])
    rows = difference_gradients(objective, mode, measured, clock)
    A, B = rows[:, measured], rows[:, rest]
    D = np.maximum(curvature[rest] + 2.0 * slope[rest], LEAST_CURVATURE)
    diagonal = np.empty(len(mode.theta))
    diagonal[measured], diagonal[rest] = A.diagonal(), D
    return Curvature(np.append(np.linalg.eigvalsh(0.5 * (A + A.T) - (B / D) @ B.T), D), diagonal)


def hessian(objective: Objective, mode: Mode, clock: Clock | None = None) -> np.ndarray:
    """H (p, p), all of it."""
    H = difference_gradients(objective, mode, np.arange(len(mode.theta)), clock)
    return 0.5 * (H + H.T)


def difference_gradients(
    objective: Objective, mode: Mode, which: np.ndarray, clock: Clock | None = None, step: float = 1e-3
) -> np.ndarray:
    """Return some rows (k, p) of H, by one-sided differences of gradients."""
    gradient = objective(mode.theta)[1]
    found = np.empty((len(which), len(mode.theta)))
    for row, i in zip(found, which):
        if clock is not None:
            clock.check()
        theta = mode.theta.copy()
        theta[i] += step
        row[:] = (gradient - objective(theta)[1]) / step
    return found


def laplace_merit(structure: Structure, mode: Mode, eigenvalues: np.ndarray) -> Merit:
    """Return the merit of a model with the log posterior of a mode, and the eigenvalues (p,) of H there."""
    kept = np.maximum(eigenvalues, LEAST_CURVATURE)
    exchange = sum(lgamma(k + 1) for k in Counter(structure.parts).values())
    p = len(eigenvalues)
    value = mode.value + 0.5 * p * np.log(2.0 * np.pi) - 0.5 * np.log(kept).sum() + exchange
    floored = int((eigenvalues < LEAST_CURVATURE).sum())
    return Merit(float(value), eigenvalues, floored, mode.rivals > 0)


STAGES = ((160, 99), (400, 4), (1000, 3))  # rows of each stage, and how many candidates reach it
_ONE_STAGE = 250  # tables of so few distinct rows need only the first stage, with all of them
_THREE_STAGES = 2000  # tables of so many have the third, unless curvatures of very many widths would take too long
_FIRST_STEPS, _NEXT_STEPS = 40, 20  # evaluations
BEHIND_NATS = 15.0  # nats of merit behind the best: not followed further
_MANY_INPUTS, _MANY_LEVELS = 32, 64  # of more inputs no sums of two, of more columns no width for each level
_REFUSED = 0.1  # nats a row behind the best, and three standard errors: the density has fallen apart


@dataclass(frozen=True, eq=False)
class Candidate:
    """A structure with its hyperparameters and merit on `n_rows` rows, its NLL on rows held out (nan where none are).

    `curvature` (p,) are minus the second derivatives at the mode, None where time was up; `refused` says why the
    candidate may not be chosen, and is empty where it may.
    """

    structure: Structure
    mode: Mode
    merit: Merit
    n_rows: int
    curvature: np.ndarray | None
    held_out: float = float("nan")
    refused: str = ""


def default_candidates(n_inputs: int, groups: tuple[int, ...] = ()) -> tuple[Structure, ...]:
    """From one Gaussian part to sums of two with a width for each input; fewer of the latter for many inputs.

    The levels of a category, inputs with equal numbers in `groups`, share a width; single parts are tried with a width
    for each level too, which pays where levels differ: one stands out, or some are rare.

    >>> [structure.name for structure in default_candidates(1)]
    ['gaussian', 'matern32', 'gaussian + linear', 'matern32 + linear', 'gaussian + matern32 + linear']
    >>> default_candidates(4)[5].name
    'gaussian[4]'
    """
    gauss, rough = Part(Shape.GAUSSIAN), Part(Shape.MATERN32)
    gauss_each, rough_each = (replace(part, per_input=True, groups=groups) for part in (gauss, rough))
    table = [
        ((gauss,), False), ((rough,), False), ((gauss,), True), ((rough,), True), ((gauss, rough), True),
    ]  # fmt: skip
    each = [(gauss_each, rough_each)] if n_inputs > 1 else []
    if groups and n_inputs <= _MANY_LEVELS:
        each.append((Part(Shape.GAUSSIAN, True), Part(Shape.MATERN32, True)))
    for smooth, sharp in each:
        table += [((smooth,), False), ((sharp,), False), ((sharp,), True), ((smooth, rough), True)]
    if 1 < gauss_each.n_widths(n_inputs) <= _MANY_INPUTS:
        table += [((gauss_each, rough_each), False), ((gauss_each, rough_each), True), ((gauss_each,) * 2, True)]
    return tuple(Structure(parts, linear, n_inputs) for parts, linear in table)


def compare(candidates: tuple[Structure, ...], rows: Rows, floors: Floors, clock: Clock) -> list[Candidate]:
    """Return the candidates, best first: by merit on at most 1,000 rows, refused ones last."""
    found = _learn_all(candidates, rows, floors, clock)
    widths = (part.n_widths(s.n_inputs) for s in candidates for part in s.parts if part.per_input)
    third = len(rows) >= _THREE_STAGES and min(widths, default=1) <= _MANY_INPUTS
    for n_rows, kept in STAGES[1 : 3 if third else 2]:
        found.sort(key=_order)
        if len(rows) > found[0].n_rows and not clock.up("candidates on more rows"):
            found = _on_more_rows(found, rows.take(slice(0, n_rows)), kept, floors, clock)
    return sorted(check(found, rows), key=_order)


def _learn_all(candidates: tuple[Structure, ...], rows: Rows, floors: Floors, clock: Clock) -> list[Candidate]:
    """Return the candidates learned on few rows, sums from what their parts learned too."""
    first = rows if len(rows) <= _ONE_STAGE else rows.take(slice(0, STAGES[0][0]))
    found: list[Candidate] = []
    known: dict[Part, np.ndarray] = {}
    for i, structure in enumerate(candidates):
        if found and clock.up(f"comparing candidate {structure.name}"):
            continue
        extra = combine_starts(structure, known, found[0].mode.theta[-1]) if found else ()
        found.append(learn_candidate(structure, first, floors, clock, extra))
        if len(structure.parts) == 1:
            known[structure.parts[0]] = found[-1].mode.theta[: 1 + structure.parts[0].n_widths(structure.n_inputs)]
        clock.report("candidates", (i + 1) / len(candidates))
    return found


def follow(known: list[tuple[Structure, np.ndarray]], rows: Rows, floors: Floors, clock: Clock) -> list[Candidate]:
    """Structures learned on at most 400 rows from hyperparameters known before, best first."""
    few, found = rows.take(slice(0, STAGES[1][0])), []
    for structure, theta in known:
        prior = default_prior(structure, floors)
        mode = climb(log_posterior(structure, prior, few), theta, prior, _FIRST_STEPS, clock)
        found.append(_with_merit(structure, mode, prior, few, clock))
    return sorted(found, key=_order)


def _order(candidate: Candidate) -> tuple[bool, int, float]:
    return bool(candidate.refused), -candidate.n_rows, -candidate.merit.value


def learn_candidate(
    structure: Structure, rows: Rows, floors: Floors, clock: Clock, extra: tuple[np.ndarray, ...] = ()
) -> Candidate:
    """Learn a candidate from all its starts."""
    prior = default_prior(structure, floors)
    mode = learn(structure, prior, rows, _FIRST_STEPS, clock, extra)
    return _with_merit(structure, mode, prior, rows, clock)


def _with_merit(structure: Structure, mode: Mode, prior: Prior, rows: Rows, clock: Clock) -> Candidate:
    """Return a candidate at its mode; its merit is the posterior density alone where time is up."""
    try:
        found = measure_curvature(log_posterior(structure, prior, rows), mode, prior, clock)
    except TimeUp:
        clock.up(f"merit of {structure.name}")
        merit = Merit(mode.value, np.full(structure.n_theta, np.nan), 0, False)
        return Candidate(structure, mode, merit, len(rows), None)
    return Candidate(structure, mode, laplace_merit(structure, mode, found.eigenvalues), len(rows), found.diagonal)


def _with_hope(found: list[Candidate], kept: int) -> list[Candidate]:
    """Keep the best of each kind (one width, one for each input or level, sums of such), and the next, `kept` in all.

    More rows pay for more widths, so that a kind behind on few rows is not out of the question.
    """
    best: dict[tuple[int, bool], Candidate] = {}
    for c in found:
        parts = c.structure.parts
        best.setdefault((sum(part.per_input for part in parts), any(part.groups for part in parts)), c)
    chosen = sorted(best.values(), key=_order)[:kept]
    near = [c for c in found if c.merit.value > found[0].merit.value - BEHIND_NATS and c not in chosen]
    return sorted([*chosen, *near[: kept - len(chosen)]], key=_order)


def _on_more_rows(found: list[Candidate], more: Rows, kept: int, floors: Floors, clock: Clock) -> list[Candidate]:
    """Return the candidates with hope learned on more rows; the others as they are."""
    hope = _with_hope([c for c in found if c.n_rows == found[0].n_rows], kept)
    grown = []
    for i, c in enumerate(hope):
        prior = default_prior(c.structure, floors)
        objective = log_posterior(c.structure, prior, more)
        try:
            mode = climb(objective, c.mode.theta, prior, _NEXT_STEPS, clock, c.curvature)
            curvature = measure_curvature(objective, mode, prior, clock)
        except TimeUp:
            clock.up(f"{c.structure.name} on {len(more)} rows")
            break
        merit = laplace_merit(c.structure, replace(mode, rivals=c.mode.rivals), curvature.eigenvalues)
        grown.append(Candidate(c.structure, mode, merit, len(more), curvature.diagonal))
        clock.report("more rows", (i + 1) / len(hope))
    done = {c.structure for c in grown}
    return grown + [c for c in found if c.structure not in done]


def check(found: list[Candidate], rows: Rows) -> list[Candidate]:
    """Return the candidates learned on most rows, with their NLL on rows after those; refused where it falls apart."""
    n = max(c.n_rows for c in found)
    rest, judged = _rows_after(rows, n), [c for c in found if c.n_rows == n]
    if len(rest) < LEAST_HELD_ROWS or len(judged) < 2:
        return found
    at = [(c.structure, c.mode.theta, rows.take(slice(0, n))) for c in judged]
    nll = [losses(rest, *predict(*each, posterior(*each), rest.X)) for each in at]
    weight = rest.weight / rest.total
    means = [float(weight @ loss) for loss in nll]
    best = nll[int(np.argmin(means))]
    checked = [
        replace(c, held_out=mean, refused=_why_refused(loss - best, weight))
        for c, loss, mean in zip(judged, nll, means)
    ]
    return checked + [c for c in found if c.n_rows < n]


def _rows_after(rows: Rows, n: int) -> Rows:
    """Return rows after the first n, none of a group of theirs."""
    rest = rows.take(slice(n, n + MOST_HELD_ROWS))
    if rows.group is None or rest.group is None:
        return rest
    return rest.take(~np.isin(rest.group, rows.group[:n]))


def _why_refused(behind: np.ndarray, weight: np.ndarray) -> str:
    """Say why a candidate is refused that is so many nats (n,) behind the best at rows of some weights; "" if not."""
    mean = weight @ behind
    error = np.sqrt(weight @ (behind - mean) ** 2 / len(behind))
    # a few rows far off are what falling apart looks like: a large error does not excuse a large loss
    if mean > _REFUSED and (mean > 3.0 * error or mean > 1.0):
        return f"density on {len(behind)} rows held out is {mean:.2f} nats a row behind the best"
    return ""
