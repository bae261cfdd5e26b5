"""The one training loop, its problem and its result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import numpy as np

from relvec.design import Design
from relvec.inference.evidence import Posterior
from relvec.inference.hyperpriors import FLAT, GammaPrior
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.runtime.progress import is_watched, report, send_log_to_terminal

logger = logging.getLogger("relvec")

TOL, TOL_OF_MANY = 1e-4, 0.3  # nats, where no tol is given: of a model, and of one of more than LARGE_MODEL atoms
LARGE_MODEL = 300  # atoms: the search of a larger model for ever smaller gains is long

OBJECTIVE_SLACK = 1e-13  # relative: an objective that is equal but for rounding has not fallen
_PROGRESS_STEPS, _MAX_PROGRESS = 5, 0.95  # steps whose gains tell how far a search is, and the most they can tell


class Status(Enum):
    """How a fit ended. The value is the message a user sees.

    Examples
    --------
    >>> Status.CONVERGED.success, Status.TIME_LIMIT.success
    (True, False)
    """

    CONVERGED = "no single move gains more than tol; another local maximum may have more evidence"
    STOPPED = "TF03's stopping rule was met; a move that gains more than tol may remain"
    NOISE_FLOOR = (
        "the noise variance ran to its floor: the targets carry no visible noise or the basis can interpolate them. "
        "Fix noise_variance at a plausible value, widen the kernel or remove basis functions"
    )
    HELD_OUT = "held-out rows chose the number of functions; at its price a move that gains `certificate_` may remain"
    DISTILLED = "the functions tell the mean and variance of a process again, within the loss of density allowed"
    FIXED_POINT = "the fixed point was reached; under the Laplace approximation it is near the maximum, not at it"
    CONSTANT_TARGET = "the target is constant: the model is the constant alone"
    MAX_ITER = "max_iter steps were not enough; raise max_iter, or raise tol if the remaining gain is small enough"
    BASELINE = (
        "a constant or a straight line predicts rows that were left out better than the model found, and is returned"
    )
    TIME_LIMIT = "the time limit was reached; raise time_limit to search on, the model is the best found so far"
    MAX_VECTORS = "more vectors than max_vectors would still gain; the model is the best with so many"
    MEMORY_LIMIT = "more vectors than memory_limit allows would still gain; raise memory_limit to keep more"
    INTERRUPTED = "a progress callback requested a stop; the model is the best found so far"
    STALLED = (
        "rounding errors hide the remaining gains: the basis is numerically dependent. Remove near-copies among the "
        "basis functions, widen or narrow the kernel, or raise tol"
    )

    @property
    def success(self) -> bool:
        """Whether the certificate was met without reservation."""
        return self in (
            Status.CONVERGED, Status.HELD_OUT, Status.DISTILLED, Status.FIXED_POINT, Status.MAX_VECTORS,
            Status.BASELINE,
        )  # fmt: skip


def changed(record: Any, changes: dict) -> Any:
    """Return a copy of a frozen record with some fields changed, in a sixth of the time of dataclasses.replace."""
    other = object.__new__(type(record))
    other.__dict__.update(record.__dict__)
    other.__dict__.update(changes)
    return other


@dataclass(frozen=True, eq=False)
class Start:
    """A model to start from: atoms (k,), their precisions (k,) and the noise precision."""

    active: np.ndarray
    alpha: np.ndarray
    beta: float


@dataclass(frozen=True, eq=False)
class Problem:
    """A Gaussian problem for a solver, in scaled units (unit-norm columns, target of unit root mean square)."""

    design: Design  # the dictionary on the training rows (rows multiplied by the root of their sample weight)
    target: np.ndarray  # (n,) t, likewise
    # squared length of the target outside the design's rows (0 unless the rows were compressed)
    target_norm2_outside: float
    n_samples: float  # N, the sum of the sample weights
    noise_variance: float | None  # fixed noise variance, or None to learn it
    noise_start: float  # where a learned noise variance starts
    noise_floor: float  # the smallest noise variance allowed
    order: np.ndarray  # (M,) rank of each atom by content, which decides between equally good ones
    bias: int = -1  # index of the bias atom, -1 if there is none
    # atoms to keep among the candidates where a long dictionary is searched in parts
    essential: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    # gives as many atoms of such a dictionary as it is asked for, evenly; None draws them by their order
    draw: Callable[[int], np.ndarray] | None = None
    start: Start | None = None  # a model to start from
    # Gamma hyperprior as the user gave it; prior_b (M,) and prior_d are its rates in scaled units
    prior: GammaPrior = FLAT
    prior_b: np.ndarray | None = None
    prior_d: float = 0.0
    tol: float = 1e-3  # nats; a fit ends when no single move gains more
    tol_of_many: float | None = None  # the same for models of more than `LARGE_MODEL` atoms; None for tol
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    clock: Clock = NO_LIMIT  # of the fit

    @property
    def n_units(self) -> int:
        """Number of atoms that may enter a model."""
        return self.design.n_atoms

    @property
    def fixed_noise(self) -> bool:
        """Whether the noise variance is given rather than learned."""
        return self.noise_variance is not None

    def tolerance(self, size: int) -> float:
        """Nats that no single move may gain any more for a model of so many atoms to be done."""
        return self.tol if self.tol_of_many is None or size <= LARGE_MODEL else max(self.tol, self.tol_of_many)

    def objective(self, active: np.ndarray, posterior: Posterior) -> float:
        """T01 eq. (36): the log evidence plus the hyperprior's terms."""
        if self.prior is FLAT:
            return posterior.log_evidence
        b = 0.0 if self.prior_b is None else self.prior_b[active]
        return posterior.log_evidence + self.prior.log_density(posterior.alpha, posterior.beta, b, self.prior_d)


@dataclass(frozen=True)
class Step:
    """One row of the history."""

    action: str
    atom: int
    gain: float
    objective: float
    size: int
    noise_variance: float


@dataclass(frozen=True, eq=False)
class State:
    """Where a solver stands: the model, how it got there in the last step, and the solver's own notes."""

    active: np.ndarray
    posterior: Any  # Posterior or LaplacePosterior
    objective: float
    action: str = "start"
    atom: int = -1
    done: bool = False
    largest_gain: float = np.inf
    notes: Any = None

    def stepped(self, **changes) -> State:
        """Return a copy with some fields changed."""
        return changed(self, changes)


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a search, in scaled units: the last state, how it ended, and the way there."""

    state: State
    status: Status
    history: list[Step]
    n_iter: int


class Solver(Protocol):
    """init makes the first state, step makes the next, and a state that is done ends the loop."""

    def init(self, problem: Problem) -> State:
        """Return the state to start from."""

    def step(self, problem: Problem, state: State) -> State:
        """Return the next state; its objective is never lower."""

    def status(self, problem: Problem, state: State) -> Status:
        """How a state that is done ended."""

    def finishing(self, state: State) -> bool:
        """Whether the solver may go on past its time limit because only the certificate is left."""


def not_lower(new: float, old: float) -> bool:
    """Whether an objective has not fallen, rounding apart."""
    return new >= old - OBJECTIVE_SLACK * max(1.0, abs(old))


def at_noise_floor(problem: Problem, beta: float) -> bool:
    """Whether a learned noise variance ended at the smallest value allowed."""
    return not problem.fixed_noise and beta >= (1.0 - 1e-6) / problem.noise_floor


def iterate(solver: Solver, problem: Problem, max_iter: int, verbose: int = 0) -> Result:
    """Run a solver until it is done, max_iter steps have passed, or its time limit."""
    if verbose:
        send_log_to_terminal()
    state, history, n_iter = solver.init(problem), list[Step](), 0
    _note_step(state, history, n_iter if verbose else None)
    while True:
        stop = False
        if is_watched():
            fraction = progress_fraction([step.gain for step in history], problem.tol, state.done)
            stop = report(len(state.active), state.posterior.log_evidence, fraction)
        late = problem.clock.left() <= 0.0
        status = _end(solver, problem, state, stop, n_iter >= max_iter, late)
        if status is not None:
            return Result(state, status, history, n_iter)
        state = solver.step(problem, state)
        n_iter += 1
        _note_step(state, history, n_iter if verbose else None)


def _note_step(state: State, history: list[Step], n_iter: int | None) -> None:
    """Append the last step to the history, and log it where its number is given."""
    if history and not state.action:
        return
    size, noise = len(state.active), 1.0 / state.posterior.beta
    gain = state.objective - history[-1].objective if history else 0.0
    history.append(Step(state.action, state.atom, gain, state.objective, size, noise))
    if n_iter is not None:
        _log(history[-1], n_iter)


def _end(solver: Solver, problem: Problem, state: State, stop: bool, many: bool, late: bool) -> Status | None:
    """How a search ends in this state; None where it goes on."""
    if state.done:
        return solver.status(problem, state)
    if stop:
        return Status.INTERRUPTED
    if many:
        return Status.MAX_ITER
    return Status.TIME_LIMIT if late and not solver.finishing(state) else None


def log_steps(history: list[Step]) -> None:
    """Log the steps of a search that was made at once."""
    send_log_to_terminal()
    for number, step in enumerate(history):
        _log(step, number)


def _log(step: Step, number: int) -> None:
    action, size, noise = step.action, step.size, step.noise_variance
    logger.info("%5d %-10s size %4d objective %.6f noise %.4g", number, action, size, step.objective, noise)


def progress_fraction(gains: list[float], tol: float, done: bool) -> float:
    """Estimated share of a search that is done: how far the gains have come on their way down to the tolerance."""
    gains = [gain for gain in gains if gain > 0.0]
    if done or len(gains) < _PROGRESS_STEPS:
        return 1.0 if done else np.nan
    way = np.log(max(gains) / tol)
    done_share = 1.0 - np.log(max(gains[-_PROGRESS_STEPS:]) / tol) / way if way > 0.0 else _MAX_PROGRESS
    return float(np.clip(done_share, 0.0, _MAX_PROGRESS))
