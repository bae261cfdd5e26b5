"""The sequential method (TF03): add, delete, re-estimate and exchange atoms, with several starts of the search."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec.inference.evidence import optimal_alpha
from relvec.solvers.fixed_point import MacKay
from relvec.solvers.gaussian.compiled import AnyModel, CompiledModel, compiled
from relvec.solvers.gaussian.frame import Frame
from relvec.solvers.gaussian.moves import Model, at_noise_floor, largest_gain
from relvec.solvers.loop import Problem, Start, State, Status, check_time_limit, iterate
from relvec.solvers.textbook import Textbook, textbook_step


@dataclass(frozen=True)
class RestartSettings:
    """How a search is started again, chosen on the evidences that the data sets of the papers reach.

    Restarts hold the noise at ``low_noise_fractions`` of the one found, in turn; the one numbered ``scratch_turn``
    begins anew. Those after ``scheduled`` are random, and taken only where as many are asked for.
    """

    low_noise_fractions: tuple[float, ...] = (0.5, 0.3, 0.2)
    lowest_noise_fraction: float = 0.1  # held where a start from scratch is not promising
    scratch_turn: int = 2
    max_atoms: int = 600  # of a model: a restart of more takes longer than all before it, and gains little
    min_gain_nats: float = 1.0  # a restart that gains as much is tried again
    max_shortfall_nats: float = 5.0  # a restart that falls short by no more is settled to the end before it is judged
    rough_tol_nats: float = 0.05  # smaller gains are left at first, and while the noise is held
    min_distance2: float = 1e-8  # atoms nearer to the model do not enter: their gains have few digits
    max_added_atoms: int = 100  # while the noise is held
    # Start from scratch: a noise above so many times its start may hide signal, and a model of fewer atoms than this
    # share of the samples has little to win from a very low noise, which costs the most.
    max_noise_rise: float = 5.0
    min_atoms_share: float = 0.05
    capped_atoms: int = 30  # and capped_share of the samples: the size at which the cap of the noise is lifted
    capped_share: float = 0.1
    max_backward_atoms: int = 256  # dictionaries up to this length may be searched from the full model too
    backward_updates: int = 20
    backward_alpha: float = 1e3  # precision at which an atom leaves the full model
    dropped_share: float = 0.2  # of the atoms, in a random restart
    # Models that explain the noise too: a noise near its floor by this factor, more atoms than this share.
    noiseless_factor: float = 0.01
    crowded_share: float = 0.5

    @property
    def scheduled(self) -> int:
        """Number of restarts that are not random."""
        return len(self.low_noise_fractions) + 1


RESTART = RestartSettings()
_EVIDENCE_ROUNDING = 1e-9  # of an evidence: it may fall by as much when it is evaluated anew


@dataclass(frozen=True)
class Sequential:
    """Sequential maximisation of the evidence (TF03), the default solver.

    Atoms enter a few at a time, precisions and noise move by Newton steps in between, atoms whose optimal
    precision is infinite leave. When no addition helps, restarts are tried: the noise is held below the value found,
    so that more atoms enter, and released again. The best model is kept and polished, with exchanges of one atom for
    another.

    Parameters
    ----------
    start : {"projection", "bias"}
        First atom: the largest normalised projection of the target, or the bias (TF03 4.1).
    select : {"batch", "gain", "random", "order"}
        "batch" adds several nearly orthogonal atoms a scan and is the fastest. The others take one action at a
        time as in TF03 4.2, with the update formulas of its appendix: the one of largest gain, a random atom's, or
        the atoms in order.
    batch : int
        Most atoms added a scan.
    exchange : bool
        Whether to try exchanges (TF03 6.2). The certificate covers them only if so.
    noise_every : int
        Steps between updates of the noise.
    restarts : int
        How many restarts in a row may gain less than a nat before the search ends. Models of more than 600 atoms are
        restarted only where more than 3 are asked for.
    stop : {"certificate", "tf03"}
        "certificate": no single move gains more than `tol`. "tf03": the rule of TF03 4.4, all changes of log alpha
        below 1e-6 and no addition possible; no restart, no exchange.
    time_limit : float, optional
        Seconds after which the best model so far is returned, with a warning.

    Examples
    --------
    >>> Sequential(select="gain", restarts=0).exchange
    True
    """

    start: str = "projection"
    select: str = "batch"
    batch: int = 4
    exchange: bool = True
    noise_every: int = 1
    restarts: int = 3
    stop: str = "certificate"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name, choices in (
            ("start", ("projection", "bias")),
            ("select", ("batch", "gain", "random", "order")),
            ("stop", ("certificate", "tf03")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name, least in (("batch", 1), ("noise_every", 1), ("restarts", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
        check_time_limit(self.time_limit)

    def init(self, problem: Problem) -> State:
        """An empty model, or the bias alone, at the noise the problem starts with."""
        if problem.prior.b > 0:
            raise ValueError(
                "the sequential solver has no closed form for a hyperprior on the weight precisions (a, b); "
                "use solver='mackay' or solver='em', or leave a and b at 0"
            )
        beta = 1.0 / (problem.noise_variance or problem.noise_start)
        deadline = np.inf if self.time_limit is None else time.monotonic() + self.time_limit
        if self.select == "batch" and (self.start == "projection" or problem.start is not None):
            model = compiled(problem, beta)
            if model is not None:
                return State(model.active, model.posterior, model.objective, notes=_Notes(deadline, model=model))
        frame = Frame(problem.design, problem.target, problem.target_norm2_outside)
        active = np.zeros(0, dtype=np.intp)
        posterior = frame.posterior(active, np.zeros(0), beta, problem.n_samples)
        if problem.start is not None:
            active, beta = problem.start.active, problem.start.beta
            frame.span(active)
            posterior = frame.posterior(active, problem.start.alpha, beta, problem.n_samples)
        elif self.start == "bias" and problem.bias >= 0:
            S, Q, _ = frame.scan(posterior)
            alpha = optimal_alpha(S[[problem.bias]], Q[[problem.bias]])  # TF03 eq. (26)
            if np.isfinite(alpha[0]):
                active = np.array([problem.bias], dtype=np.intp)
                frame.span(active)
                posterior = frame.posterior(active, alpha, beta, problem.n_samples)
        return State(active, posterior, problem.objective(active, posterior), notes=_Notes(deadline, frame=frame))

    def step(self, problem: Problem, state: State) -> State:
        """One addition (of a batch), re-estimation, exchange or restart."""
        notes: _Notes = state.notes
        if self.select != "batch" and notes.textbook is not Textbook.DONE:
            return self._textbook(problem, state)
        notes = notes.but(steps=notes.steps + 1)
        model: AnyModel = notes.model or Model(problem, notes.frame, state.active, state.posterior)
        tol = problem.tolerance(len(model.active))
        hold = notes.steps % self.noise_every != 0
        grown = model.grow(self.batch, tol, hold)
        if grown is not None:
            return _advance(grown, "add", notes, settled=False, exact=False)
        if not notes.settled:
            settled = model.merge_copies().relax(100, min_gain_nats=tol)
            return _advance(settled, "reestimate", notes, settled=True, swapping=True)
        search = self.stop != "tf03"
        if search and self.exchange and notes.swapping:
            if (swapped := model.exchange(tol)) is not None:
                return _advance(swapped, "exchange", notes, settled=False, exact=False)
            notes = notes.but(swapping=False)
        restarting = notes.failed < self.restarts and notes.turn < max(self.restarts, RESTART.scheduled)
        restarting = restarting and (len(model.active) <= RESTART.max_atoms or self.restarts >= RESTART.scheduled)
        if search and restarting and time.monotonic() < notes.deadline:
            return self._restarted(model, state, notes)
        if not notes.exact:
            sharp = model.sharpen(100)
            fall = state.objective - sharp.objective
            lost = fall if fall > max(tol, _EVIDENCE_ROUNDING * abs(state.objective)) else 0.0
            return _advance(sharp, "reestimate", notes, exact=True, lost=lost)
        offer = largest_gain(model.exact(), self.exchange)
        if offer > tol and search and self.exchange and (swapped := model.exchange(tol)) is not None:
            return _advance(swapped, "exchange", notes, settled=False, exact=False)
        # an evidence that is known to a few nats alone hides gains as large
        return state.stepped(action="", done=True, largest_gain=max(offer, notes.lost))

    def status(self, problem: Problem, state: State) -> Status:
        """How the search ended."""
        if at_noise_floor(problem, state.posterior):
            return Status.NOISE_FLOOR
        if state.largest_gain <= problem.tolerance(len(state.active)):
            return Status.CONVERGED
        return Status.STOPPED if self.stop == "tf03" else Status.STALLED

    def finishing(self, state: State) -> bool:
        """Whether only the certificate is left to do, which is worth a moment past the time limit."""
        return state.notes.settled

    def notes_of(self, problem: Problem, state: State) -> dict:
        """Where the search stands in its order of moves."""
        return {name: getattr(state.notes, name) for name in _REMEMBERED} | {
            "polishing": state.notes.textbook is Textbook.DONE
        }

    def resumed(self, problem: Problem, model: Start, notes: dict) -> State:
        """The search with that model, at that place."""
        state = self.init(replace(problem, start=model))
        remembered = {name: type(getattr(_Notes, name))(notes[name]) for name in _REMEMBERED}
        textbook = Textbook.DONE if notes["polishing"] else None
        return state.stepped(notes=state.notes.but(textbook=textbook, **remembered))

    def _textbook(self, problem: Problem, state: State) -> State:
        stepped = textbook_step(problem, state, self.select, self.noise_every)
        if stepped.notes.textbook is Textbook.DONE and self.stop == "tf03":
            model = Model(problem, stepped.notes.frame, stepped.active, stepped.posterior)
            return stepped.stepped(done=True, largest_gain=largest_gain(model, self.exchange))
        return stepped

    def _restarted(self, model: AnyModel, state: State, notes: _Notes) -> State:
        """The better of the model and another local maximum."""
        problem = model.problem
        other = self._restart(model, notes.turn, notes.deadline)
        if other.objective > state.objective - RESTART.max_shortfall_nats:
            other = _settle(other, self.batch, notes.deadline, 0.0)
        gain = other.objective - state.objective
        # a model that explains the noise too has no honest error bars: no restart leads there
        if any(sign(other) and not sign(model) for sign in (_noiseless, _crowded)):
            gain = -np.inf
        again = gain >= RESTART.min_gain_nats and notes.turn != RESTART.scratch_turn
        failed = 0 if gain >= RESTART.min_gain_nats else notes.failed + 1
        notes = notes.but(turn=notes.turn + (not again), failed=failed)
        if gain > problem.tolerance(len(model.active)):
            return _advance(other, "restart", notes, settled=False, exact=False)
        return state.stepped(action="", notes=notes)

    def _restart(self, model: AnyModel, turn: int, deadline: float) -> AnyModel:
        """Another local maximum: low noises and a start from scratch, then random removals."""
        if turn == RESTART.scratch_turn:
            return self._restart_from_scratch(model, deadline)
        fractions = RESTART.low_noise_fractions
        if turn < RESTART.scheduled:
            fraction = fractions[turn - (turn > RESTART.scratch_turn)]
            other = perturb_low_noise(model, fraction, self.batch, deadline)
        else:
            fewer = drop_atoms(model) if turn % 2 else drop_random_atoms(model)
            other = fewer if turn % 2 else perturb_low_noise(fewer, fractions[0], self.batch, deadline)
        return _settle(other, self.batch, deadline)

    def _restart_from_scratch(self, model: AnyModel, deadline: float) -> AnyModel:
        """From the other end: every atom of a short dictionary, else nothing and a ceiling over the noise.

        A noise that is free while atoms enter for the first time may explain what later atoms would, and then the
        search ends tens of nats short, most of all with kernels that do not decay.
        """
        problem = model.problem
        with np.errstate(over="ignore", divide="ignore"):
            risen = np.float64(1.0) / (model.posterior.beta * problem.noise_start)  # the noise, of where it started
        if problem.design.n_atoms <= RESTART.max_backward_atoms and (problem.fixed_noise or risen > 1.0):
            other = restart_from_full(model)
        elif not problem.fixed_noise and risen > RESTART.max_noise_rise:
            other = restart_capped_noise(model, self.batch, deadline)
        elif len(model.active) <= RESTART.min_atoms_share * problem.n_samples:
            return model
        else:  # nothing suggests that a fresh start would help
            other = perturb_low_noise(model, RESTART.lowest_noise_fraction, self.batch, deadline)
        other = _settle(other, self.batch, deadline)
        if other.objective > model.objective:
            low = perturb_low_noise(other, RESTART.low_noise_fractions[1], self.batch, deadline)
            low = _settle(low, self.batch, deadline)
            return low if low.objective > other.objective else other
        return other


@dataclass(frozen=True, eq=False)
class _Notes:
    """Notes of the search between steps."""

    deadline: float
    frame: Any = None  # where the search runs in Python
    steps: int = 0
    settled: bool = False
    swapping: bool = True
    exact: bool = False
    lost: float = 0.0  # nats by which an evaluation without the rounding of updates fell
    turn: int = 0
    failed: int = 0
    textbook: Any = None  # Statistics or Textbook.DONE
    model: AnyModel | None = None

    def but(self, **changes) -> _Notes:
        """A copy with some fields changed."""
        return _Notes(**(vars(self) | changes))


_REMEMBERED = ("steps", "settled", "swapping", "exact", "lost", "turn", "failed")


def _advance(model: AnyModel, action: str, notes: _Notes, **changes) -> State:
    model = model.trim()
    return State(
        model.active, model.posterior, model.objective, action, model.atom, notes=notes.but(model=model, **changes)
    )


def _noiseless(model: AnyModel) -> bool:
    problem = model.problem
    return not problem.fixed_noise and model.posterior.beta * problem.noise_floor > RESTART.noiseless_factor


def _crowded(model: AnyModel) -> bool:
    return len(model.active) > RESTART.crowded_share * model.problem.n_samples


def _settle(model: AnyModel, batch: int, deadline: float, tol: float = RESTART.rough_tol_nats) -> AnyModel:
    """Additions and re-estimation until none gains more than a tolerance."""
    settled = False
    while time.monotonic() < deadline:
        tol_now = max(model.problem.tolerance(len(model.active)), tol)
        grown = model.grow(batch, tol_now, hold_noise=False, apart=RESTART.min_distance2)
        if grown is not None:
            model, settled = grown.trim(), False
        elif not settled:
            model, settled = model.merge_copies().relax(100, min_gain_nats=tol_now), True
        else:
            break
    return model


def perturb_low_noise(model: AnyModel, fraction: float, batch: int, deadline: float) -> AnyModel:
    """Hold the noise at a fraction of its value, let atoms enter, and release it.

    With less noise the model explains more and passes through richer supports, from which deletion reaches better
    maxima than addition alone. A fixed noise variance dips too and returns to its value.
    """
    problem, noise = model.problem, 1.0 / model.posterior.beta
    low = max(fraction * noise, problem.noise_floor)
    held = model.at(model.active, model.posterior.alpha, 1.0 / low)
    most = len(model.active) + min(max(20, len(model.active)), RESTART.max_added_atoms)
    while len(held.active) < most and time.monotonic() < deadline:
        tol = max(problem.tolerance(len(held.active)), RESTART.rough_tol_nats)
        grown = held.grow(batch, tol, hold_noise=True, apart=RESTART.min_distance2)
        if grown is None:
            break
        held = grown.trim()
    held = held.relax(5, hold_noise=True, min_gain_nats=RESTART.rough_tol_nats)
    released = held.at(held.active, held.posterior.alpha, 1.0 / noise)
    return released.relax(5, min_gain_nats=RESTART.rough_tol_nats)


def restart_capped_noise(model: AnyModel, batch: int, deadline: float) -> AnyModel:
    """Atoms enter an empty model while the noise may fall but not rise."""
    problem = model.problem
    other = model.at(model.active[:0], np.zeros(0), 1.0 / problem.noise_start)
    most = RESTART.capped_atoms + RESTART.capped_share * problem.n_samples
    while len(other.active) < most and time.monotonic() < deadline:
        tol = max(problem.tolerance(len(other.active)), RESTART.rough_tol_nats)
        grown = other.grow(batch, tol, False, problem.noise_start, RESTART.min_distance2)
        if grown is None:
            break
        other = grown.trim()
    return other.relax(5, min_gain_nats=RESTART.rough_tol_nats)


def restart_from_full(model: AnyModel) -> AnyModel:
    """Start from every atom and prune (T01): another basin."""
    if isinstance(model, CompiledModel):
        return model.prune_from_full(RESTART.backward_updates, RESTART.backward_alpha)
    state = iterate(MacKay(prune_alpha=RESTART.backward_alpha), model.problem, RESTART.backward_updates).state
    return model.at(state.active, state.posterior.alpha, state.posterior.beta)


def drop_atoms(model: AnyModel) -> AnyModel:
    """Remove a random atom with a few of its nearest, so that others may take their place."""
    rng, k = model.problem.rng, len(model.active)
    if k < 2:
        return model
    columns = model.problem.design.columns(model.active)
    similar = np.abs(columns.T @ columns[:, rng.integers(k)])
    gone = np.argsort(-similar)[: rng.integers(1, min(4, k))]
    keep = np.setdiff1d(np.arange(k), gone)
    return model.at(model.active[keep], model.posterior.alpha[keep], model.posterior.beta)


def drop_random_atoms(model: AnyModel) -> AnyModel:
    """Remove a random share of the atoms."""
    k = len(model.active)
    keep = np.sort(model.problem.rng.permutation(k)[: k - int(RESTART.dropped_share * k)])
    return model.at(model.active[keep], model.posterior.alpha[keep], model.posterior.beta)
