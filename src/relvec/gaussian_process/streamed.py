"""The fit of a process to rows that are read in blocks, wherever they are: `fit_in_passes`.

Kernel and hyperparameters are learned on a draw of rows by content, as everywhere; the vectors are rows of that draw,
and grow in number while the density of rows held out gains; then one pass over all rows forms the sums that the
posterior needs. Whatever the source, the draw is the same, and with it the model, to the rounding of those sums.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import minimize

from relvec.design import Block, Draw, Samples
from relvec.gaussian_process.bound import Bounds, SparsePosterior, Sums, Vectors, bounds_of, rows_sums, sum_rows
from relvec.gaussian_process.component import Component, component_of
from relvec.gaussian_process.fit import (
    LastStage,
    Prepared,
    assemble,
    floor_targets,
    learn_kernels,
    prepare,
    rows_to_learn,
    status,
)
from relvec.gaussian_process.held_out import choose_better, follow_inputs
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.predictor import ProcessPredictor
from relvec.gaussian_process.rows import MOST_HELD_ROWS, Units
from relvec.gaussian_process.vectors import LEAST_TRIED, Growth, grow_vectors
from relvec.inference import tails
from relvec.inference.scale import Scale
from relvec.runtime.arrays import Array, like
from relvec.runtime.clock import Clock
from relvec.runtime.machine import most_vectors, release_memory, room_for_vectors
from relvec.runtime.progress import report

_LEARNING_SHARE = 0.6  # of a time limit: the rest is for vectors and the pass over all rows
_DEVICE_LAST_STAGE = (5000, 50)  # rows and evaluations of the last stage of learning on a device
_PRIOR_DEVIATION = 1.0  # of the logarithms of both factors of `calibrate_variance`
_BLOCK_NUMBERS = 4_000_000  # of the features of a block, at most: 32 MB
_BLOCK_ROWS = 1000  # of a block on the host, or a million numbers: more of them only take memory on every thread
_BLOCK_BYTES = 400  # of the memory limit for each of these numbers: several arrays of them, on several threads

# How many vectors a fit may have where `max_vectors` is not given: at most so many, and so many products N m^2.
_HOST_WORK = 4096, 1e12  # about a minute on two cores
_DEVICE_WORK = 8192, 2e13  # a few seconds on a large GPU
_MATRICES = 14  # of m x m numbers that a fit on the host holds at its end
_DEVICE_MATRICES = 5  # that come to the host where the others are on a device
_FEATURE_BYTES, _GROWTH_BYTES = 16, 40  # of a vector at a drawn row, and of a pair of vectors, while they grow
_COPIES = 8  # of the drawn rows
LEAST_VECTORS = 16  # however little memory there is


@dataclass(frozen=True, eq=False)
class DrawnSamples:
    """All rows in blocks, and a draw of them.

    memory : bytes that a fit may use besides.
    place : an array on the device where kernels and products are to be computed; None for the host.
    groups : (n,) numbers of the groups of the rows drawn, which then are all rows; None where each is on its own.
    """

    samples: Samples
    draw: Draw
    memory: float
    place: Array | None = None
    groups: np.ndarray | None = None

    def max_vectors(self, asked: int | None) -> tuple[int, str]:
        """Return the most vectors that a fit may have, and the status of a fit that would need more."""
        vectors, products = _HOST_WORK if self.place is None else _DEVICE_WORK
        wanted = min(vectors, int(np.sqrt(products / self.draw.seen))) if asked is None else asked
        n, d = self.draw.X.shape
        room = room_for_vectors(self.memory, n, _COPIES * (d + 2), LEAST_VECTORS * _FEATURE_BYTES)
        if self.place is None:
            within = min(most_vectors(room, 0.0, 8 * _MATRICES), most_vectors(room, _FEATURE_BYTES * n, _GROWTH_BYTES))
        else:
            within = most_vectors(room, 0.0, 8 * _DEVICE_MATRICES)
        within = max(within, LEAST_VECTORS)
        return (wanted, "max_vectors") if min(wanted, n) <= within else (within, "memory_limit")


def fit_in_passes(
    table: DrawnSamples,
    output: int = 0,
    *,
    candidates: tuple[Structure, ...] | None = None,
    max_vectors: int | None = None,
    target: Scale | None = None,
    clock: Clock | None = None,
    earlier: ProcessPredictor | None = None,
    vary: bool = True,
) -> ProcessPredictor:
    """Return a process with the composite kernel of most merit, to rows in blocks.

    Parameters
    ----------
    table : the rows.
    output : which column of the targets.
    candidates, target, clock, earlier, vary : as in `relvec.gaussian_process.fit_process`.
    max_vectors : rows kept at most; without it 4,096 (8,192 on a device), fewer for more than 60,000 rows.

    Examples
    --------
    >>> from relvec.design import LocalSamples, draw_rows
    >>> X = np.random.default_rng(0).uniform(0.0, 6.0, (3000, 1))
    >>> samples = LocalSamples(X, np.sin(X))
    >>> model = fit_in_passes(DrawnSamples(samples, draw_rows(samples, 2000), 1e9))
    >>> mean, variance = model.predict(np.array([[1.5]]))
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01)
    True
    """
    clock = Clock() if clock is None else clock
    learning = clock.part(_LEARNING_SHARE)
    drawn = table.draw
    prepared = prepare(drawn.X, drawn.targets[:, output], drawn.weights, target, learning, groups=table.groups)
    last = LastStage() if table.place is None else LastStage(*_DEVICE_LAST_STAGE, table.place)
    learned = learn_kernels(prepared, candidates, earlier, False, learning, last, rows_to_learn(table.memory))
    clock.take_over(learning)
    grown = _grow(table, output, prepared, learned.chosen[0].structure, learned.thetas[0], max_vectors, clock, vary)
    process = assemble(prepared, learned, [grown.part], grown.index, grown.bounds, clock)
    return _raise_to_floor(mark_limit(process, grown.limit), grown, prepared, table, output, max_vectors)


def grow_further(
    process: ProcessPredictor, table: DrawnSamples, output: int, max_vectors: int | None,
    clock: Clock,
) -> ProcessPredictor:  # fmt: skip
    """Repair a process with too few vectors: more of them, or as many with variances that suit rows held out.

    table : all rows, of which the draw has all.
    """
    drawn, own = table.draw, process.components[0]
    prepared = prepare(drawn.X, drawn.targets[:, output], drawn.weights, process.scale, clock, groups=table.groups)
    grown = _grow(table, output, prepared, own.structure, own.theta, max_vectors, clock, least=len(own.Z))
    process = replace(
        process, components=(grown.part,), shares=np.ones(1), bounds=grown.bounds, vectors=prepared.raw.X[grown.index],
        status=status(grown.part, prepared.floors.noise, clock), relevant=None,
    )  # fmt: skip
    return _raise_to_floor(mark_limit(process, grown.limit), grown, prepared, table, output, max_vectors)


@dataclass(frozen=True, eq=False)
class Scaling:
    """How a block of rows becomes rows of the process: its units, scale and output, and a factor for all weights."""

    units: Units
    scale: Scale
    output: int
    weight_factor: float

    def rows(self, block: Block) -> tuple[Array, np.ndarray, np.ndarray]:
        """Standardised inputs (b, d), targets (b,) and weights (b,)."""
        u = self.units
        y = (self.scale.forward(block.targets[:, self.output]) - u.y_mean) / u.y_scale
        return u.inputs(block.X), y, self.weight_factor * block.weights


def _sum_block(vectors: Vectors, target: Scaling, block: Block) -> Sums:
    return sum_rows(vectors, *target.rows(block))


def sum_all(vectors: Vectors, samples: Samples, target: Scaling, memory: float, tell: Callable[[float], None]) -> Sums:
    """Return the sums over all rows, in one pass within so many bytes; `tell` is called with the share that is done."""
    m = vectors.Z.shape[0]
    numbers = min(_BLOCK_NUMBERS, int(memory / _BLOCK_BYTES))
    if isinstance(vectors.Z, np.ndarray):
        numbers = min(numbers, max(1_000_000, _BLOCK_ROWS * m))
    samples = samples.blocked(max(numbers // m, 64))
    block_sums = partial(_sum_block, vectors, target)
    if not samples.n_blocks:
        return samples.reduce(block_sums, Sums.add)
    done = 1

    def add(a: Sums, b: Sums) -> Sums:
        nonlocal done
        done += 1
        tell(done / samples.n_blocks)
        return a.add(b)

    return samples.reduce(block_sums, add)


@dataclass(frozen=True, eq=False)
class _Grown:
    """The posterior process on the rows (m,) that were chosen; `limit` names the limit that was reached, if any.

    `density` (h,) is that of the last rows of the draw, which took no part, in the units of the target.
    """

    index: np.ndarray
    part: Component
    bounds: Bounds
    limit: str
    density: np.ndarray


def _raise_to_floor(
    process: ProcessPredictor, grown: _Grown, prepared: Prepared, table: DrawnSamples, output: int,
    max_vectors: int | None,
) -> ProcessPredictor:  # fmt: skip
    """Return the process, or a constant or straight line that is ahead of it at the rows held out."""
    drawn = table.draw
    own, others = floor_targets(drawn.X, drawn.targets[:, output], drawn.weights, prepared, groups=table.groups)
    n = len(own.rows)
    held = np.arange(n - len(grown.density), n)
    if not len(held):
        return process
    return choose_better(process, grown.density, [held], [own, *others], own.rows.group, max_vectors)


def mark_limit(process: ProcessPredictor, limit: str) -> ProcessPredictor:
    """Return the process with a status and a message that tell which limit its vectors reached, "" for none."""
    if not limit:
        return process
    how = limit if process.status in ("converged", "max_vectors") else process.status
    told = f"more than {len(process.vectors)} vectors would still gain: the limit is {limit}"
    return replace(process, status=how, messages=(*process.messages, told))


def _grow(
    table: DrawnSamples, output: int, prepared: Prepared, structure: Structure, theta: np.ndarray,
    max_vectors: int | None, clock: Clock, vary: bool = True, least: int = LEAST_TRIED,
) -> _Grown:  # fmt: skip
    """As many vectors as rows held out ask for, and the posterior of all rows on them."""
    rows = prepared.rows
    n_held = rows.n_last(min(MOST_HELD_ROWS, len(rows) // 5))
    most, ended = table.max_vectors(max_vectors)
    if most >= len(rows) - n_held:  # all that there are
        most, ended = len(rows) - n_held, ""
    budget = _Budget(clock, len(rows), table.draw.seen, most)
    release_memory()
    growth = grow_vectors(structure, theta, rows, n_held, most, table.place, budget.tell, least)
    Z = np.ascontiguousarray(rows.X[growth.index])
    vectors = Vectors.at(structure, theta, Z if table.place is None else like(table.place, Z))
    rule = Scaling(prepared.units, prepared.scale, output, rows.total / prepared.raw.total)
    sums = sum_all(vectors, table.samples, rule, table.memory, partial(budget.tell_pass, growth))
    part, density = _calibrate(vectors, sums, prepared, n_held, vary)
    clock.report("vectors", 1.0)
    limit = ended if growth.gains and len(growth.index) >= most else ""  # a clock that ended it tells so itself
    return _Grown(growth.index, part, bounds_of(vectors, sums), limit, density)


def _calibrate(
    vectors: Vectors, sums: Sums, prepared: Prepared, n_held: int, vary: bool
) -> tuple[Component, np.ndarray]:
    """Return the process on the vectors with variances that suit rows held out, and the log densities of those."""
    held = prepared.rows.take(slice(len(prepared.rows) - n_held, None))
    apart = SparsePosterior.of(vectors, sums.without(rows_sums(vectors, held)))
    mean, latent = apart.predict(like(vectors.Z, held.X))
    error = (held.y - mean) ** 2 + held.scatter / held.weight
    part = component_of(vectors, sums)
    f, noise = calibrate_variance(error, latent, part.noise, prepared.floors.noise)
    part = replace(part, spread=f, noise=noise)
    if vary:
        part = follow_inputs([part], held, mean, f * (latent + noise), prepared.units, prepared.scale)[0]
    variance = part.factor(held.X, mean) * (latent + noise)
    density = tails.log_density(error, variance, part.tails(held.X, mean))
    return part, density + prepared.log_slope[len(prepared.rows) - n_held :]


def calibrate_variance(error: np.ndarray, latent: np.ndarray, noise: float, floor: float) -> tuple[float, float]:
    """Factor f of all variances and noise s with most density for squared errors (h,) of rows that took no part.

    The variance of a target is f (latent + s). Vectors that leave a part of the process unexplained count all of it as
    uncertain, though neighbouring rows tell much of it: f is then below one. Both logarithms have normal priors about
    the model's own values with standard deviation one.

    >>> f, s = calibrate_variance(np.full(1000, 0.5), np.full(1000, 0.8), 0.2, 1e-6)
    >>> bool(abs(f * (0.8 + s) - 0.5) < 0.01)
    True
    """

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        f, s = np.exp(logs[0]), max(noise * np.exp(logs[1]), floor)
        variance = f * (latent + s)
        slope = 0.5 * (1.0 - error / variance)  # with respect to the logarithm of the variance
        gradient = np.array([slope.sum(), (slope * f * s / variance).sum() if s > floor else 0.0])
        value = 0.5 * np.sum(np.log(variance) + error / variance)
        return float(value + 0.5 * logs @ logs / _PRIOR_DEVIATION**2), gradient + logs / _PRIOR_DEVIATION**2

    options = {"ftol": 1e-15, "gtol": 1e-9}
    logs = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-4.0, 4.0)] * 2, options=options).x
    return float(np.exp(logs[0])), float(max(noise * np.exp(logs[1]), floor))


class _Budget:
    """Tells how far a fit is, and whether the time that is left is enough for twice as many vectors."""

    _SAFETY = 1.3

    def __init__(self, clock: Clock, n_drawn: int, n_rows: int, most: int):
        self._clock, self._n_drawn, self._n_rows, self._most = clock, n_drawn, n_rows, most
        self._last, self._done = time.monotonic(), 0.0

    def tell(self, n_vectors: int, density: float) -> bool:
        """After a stage with so many vectors; whether the fit has to stop there."""
        clock, now = self._clock, time.monotonic()
        work = self._grow_work(n_vectors)
        rate = (now - self._last) / max(work - self._done, 1.0)
        self._last, self._done = now, work
        clock.report("vectors", 0.0)
        report(n_vectors, fraction=0.3 + 0.1 * min(n_vectors / self._most, 1.0), rows=self._n_rows, density=density)
        more = self._grow_work(2 * n_vectors) - work + 2.0 * self._n_rows * (2.0 * n_vectors) ** 2
        if clock.left() < self._SAFETY * rate * more:
            clock.cut.append("the number of vectors")
            return True
        return clock.stopped

    def tell_pass(self, growth: Growth, share: float) -> None:
        """After a share of the last pass."""
        m, density = len(growth.index), dict(growth.densities).get(len(growth.index), np.nan)
        report(m, fraction=0.4 + 0.55 * share, rows=self._n_rows, density=density)

    def _grow_work(self, m: int) -> float:
        return 1.5 * self._n_drawn * float(m) ** 2 + float(m) ** 3
