"""The sequential method (TF03): add, delete, re-estimate and exchange atoms, with several starts of the search.

The order of moves is here, once for every likelihood; the moves are methods of a `SearchModel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relvec.inference.prior_rows import PRIOR_ROWS
from relvec.solvers.loop import State, Status, changed
from relvec.solvers.protocol import SearchModel

MIN_REPEAT_GAIN_NATS = 1.0  # a restart that gains as much is tried again
MIN_RESTART_GAIN_NATS = 0.1  # one that gains less has failed
_EVIDENCE_ROUNDING = 1e-9  # of an evidence: it may fall by as much when it is evaluated anew


@dataclass(frozen=True)
class Sequential:
    """Sequential maximisation of the evidence (TF03), the default solver.

    Atoms enter a few at a time, precisions and noise move by Newton steps in between, atoms whose optimal
    precision is infinite leave. When no addition helps, restarts are tried: the noise is held below the value found,
    so that more atoms enter, and released again. The best model is kept and polished, with exchanges of one atom for
    another, and in a regression of two whose weights the data hardly tell apart. A restart to a model of more than half
    as many functions as rows, or nearly without noise, is refused where the model is none: it would have more evidence
    and no honest error bars. An atom whose column correlates above .999 with one in the model of the same target or
    class, the constant excepted, enters only where it gains over 2 log M nats (M units that may enter), in additions,
    exchanges and the certificate alike.

    Parameters
    ----------
    start : {"projection", "bias"}
        First atom: the largest normalised projection of the target, or the bias (TF03 4.1).
    select : {"batch", "gain", "random", "order"}
        "batch" adds several nearly orthogonal atoms a scan and is the fastest. The others take one action at a time as
        in TF03 4.2, near-copies included: the one of largest gain, a random atom's, or the atoms in order. Unless
        ``stop="tf03"`` the moves of "batch" follow.
    batch : int, optional
        Maximum number of atoms added per scan. By default a regression adds one at a time at first, so that it does not
        end below the greedy path, and several in restarts and once it has many; classes and counts add four.
    exchange : bool
        Whether to try exchanges (TF03 6.2). The certificate covers them only if so.
    noise_every : int
        Steps between updates of the noise.
    restarts : int
        How many kinds of restart to try; one that gains a nat is repeated. In a regression each function that a restart
        adds has to gain half a nat besides: by less it would explain noise. If this is at most three, a regression ends
        after one that gains less than a tenth of a nat, and a model of more than 600 atoms is not restarted. Restarts
        after the third remove atoms at random. Classes and counts are restarted from what MacKay's updates of the whole
        dictionary leave, by single additions, and from samples that count four times.
    stop : {"certificate", "tf03"}
        "certificate": no single move gains more than `tol`. "tf03": the rule of TF03 4.4, all changes of log alpha
        below 1e-6 and no addition possible; no restart, no exchange. ``solver="tf03"`` is this with ``select="gain"``.
    support_prior : {"auto", "flat", "size"}
        The prior over sets of basis functions of a Gaussian model. "flat": all sets are alike, as in T01; restarts are
        judged by the evidence alone, and among up to 128 candidates others start from all of them by EM's updates, from
        none with less noise, and without some or one of the functions: more evidence, which does not always predict
        better. "size": all numbers of functions are alike, and so are all sets of one size among M candidates,
        p(S) ~ 1 / C(M, |S|): a further function has to gain log((M - k) / (k + 1)) nats, and no less than 1, which the
        best of many useless ones seldom does. "auto" is "size" where the candidates are the columns of X; else all sets
        are alike, and restarts are those that `restarts` describes.
    price : float, optional
        Nats that every function costs, of classes and counts every one but the constant: p(S) ~ exp(-price |S|).
        Functions that raise the evidence by less are not kept; the evidence that a model reports leaves the price out.
        None is 0, and for classes whose candidates are M columns of X log M, the information that names one of them.
    prior_rows : float
        Of classes: rows of the base rates that are spread over all rows, a proper prior. Where classes do not meet the
        evidence of T01 and TF03, ``prior_rows=0``, has maxima at log-odds of 1e10; ``solver="tf03"`` is without.
    max_iter : int
        Most steps.

    Examples
    --------
    >>> Sequential(select="gain", restarts=0).exchange
    True
    """

    start: str = "projection"
    select: str = "batch"
    batch: int | None = None
    exchange: bool = True
    noise_every: int = 1
    restarts: int = 3
    stop: str = "certificate"
    support_prior: str = "auto"
    price: float | None = None
    prior_rows: float = PRIOR_ROWS
    max_iter: int = 10000

    def __post_init__(self) -> None:
        for name, choices in (
            ("start", ("projection", "bias")),
            ("select", ("batch", "gain", "random", "order")),
            ("stop", ("certificate", "tf03")),
            ("support_prior", ("auto", "flat", "size")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name, least in (("batch", 1), ("noise_every", 1), ("restarts", 0), ("max_iter", 1)):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) or (name == "batch" and value is None)
            if not whole or (value is not None and value < least):
                raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
        price = self.price
        if price is not None and not _is_amount(price):
            raise ValueError(f"price must be None or a number of nats, 0 or more, got {price!r}")
        if not _is_amount(self.prior_rows):
            raise ValueError(f"prior_rows must be a number, 0 or more, got {self.prior_rows!r}")
        if price is not None and self.support_prior != "auto":
            raise ValueError(
                "price is a prior over sets of functions by itself: leave support_prior at 'auto' with it, got "
                f"{self.support_prior!r}"
            )


def _is_amount(value: Any) -> bool:
    """Whether a parameter is a number of 0 or more."""
    return isinstance(value, int | float | np.number) and bool(0.0 <= value < np.inf)


@dataclass(frozen=True, eq=False)
class Search:
    """The sequential search with given settings, of models of any kind: the order of moves, restarts, the certificate.

    ``begin(problem, bias_first)`` gives the model to start with; ``one_at_a_time(problem, state, settings)`` makes the
    steps of TF03 where those come first.
    """

    settings: Sequential
    begin: Callable[[Any, bool], SearchModel]
    one_at_a_time: Callable[[Any, State, Sequential], State] | None = None

    def init(self, problem: Any) -> State:
        """The model to start with."""
        model = self.begin(problem, self.settings.start == "bias")
        return State(model.active, model.posterior, model.objective, notes=Notes(model))

    def step(self, problem: Any, state: State) -> State:
        """One addition (of a batch), re-estimation, deletion, exchange or restart."""
        notes: Notes = state.notes
        if self.one_at_a_time is not None and not notes.polishing:
            return self._take_one(problem, state)
        notes = notes.but(steps=notes.steps + 1)
        settings, model = self.settings, notes.model
        tol = problem.tolerance(len(state.active))
        if not notes.grown:
            grown = model.grow(settings.batch, tol, notes.steps % settings.noise_every != 0)
            if grown is not None:
                return _advance(grown, "add", notes, settled=False)
            notes = notes.but(grown=True)
        if not notes.settled:
            return _advance(model.settle(tol), "reestimate", notes, settled=True)
        thorough = settings.stop != "tf03"
        if thorough and not notes.exhausted:
            for action, move in (("delete", model.shrink), ("exchange", model.exchange)):
                if action == "exchange" and not settings.exchange:
                    continue
                moved = move(tol)
                if moved is not None:
                    return _advance(moved, action, notes, settled=False)
            if (released := model.release()) is not None:
                return _advance(released, "", notes, settled=False)
            notes = notes.but(exhausted=True)
        while thorough and problem.clock.left() > 0.0:
            if not model.may_restart(notes.turn, notes.failed, settings.restarts):
                break
            other = model.restart(notes.turn, settings.batch, settings.exchange, problem.clock.end)
            if other is not None:
                return self._judge(state, notes, other, tol)
            notes = notes.but(turn=notes.turn + 1)
        last = settings.restarts and settings.exchange and not notes.paired
        if thorough and last and problem.clock.left() > 0.0:
            notes, other = notes.but(paired=True), model.exchange_pairs(settings.batch, problem.clock.end)
            if other is not None and model.admits(other) and (gain := other.objective - state.objective) > tol:
                return _advance(other, "restart", notes, settled=False, paired=gain < MIN_REPEAT_GAIN_NATS)
        return self._certify(state, notes, tol)

    def status(self, problem: Any, state: State) -> Status:
        """How the search ended."""
        ended = state.notes.model.ended()
        if ended is not None:
            return ended
        if state.largest_gain <= problem.tolerance(len(state.active)):
            return Status.CONVERGED
        return Status.STOPPED if self.settings.stop == "tf03" else Status.STALLED

    def finishing(self, state: State) -> bool:
        """Whether only the certificate is left to do, which is worth a moment past the time limit."""
        return state.notes.settled

    def _take_one(self, problem: Any, state: State) -> State:
        """A step of TF03; where there is none the search polishes what they found, or ends."""
        assert self.one_at_a_time is not None
        stepped = self.one_at_a_time(problem, state, self.settings)
        notes: Notes = stepped.notes
        if notes.polishing and self.settings.stop == "tf03":
            model = notes.model
            gain = model.largest_gain(self.settings.exchange)
            return stepped.stepped(done=True, largest_gain=gain, posterior=model.full_posterior)
        return stepped

    @staticmethod
    def _judge(state: State, notes: Notes, other: SearchModel, tol: float) -> State:
        """The better of the model and another local maximum."""
        model = notes.model
        gain = other.objective - state.objective if model.admits(other) else -np.inf
        repeats = model.repeats(notes.turn)
        again = repeats and gain >= MIN_REPEAT_GAIN_NATS
        failed = 0 if gain >= MIN_RESTART_GAIN_NATS else notes.failed + repeats
        notes = notes.but(turn=notes.turn + (not again), failed=failed)
        if gain > tol:
            return _advance(other, "restart", notes, settled=False)
        return state.stepped(action="", notes=notes)

    def _certify(self, state: State, notes: Notes, tol: float) -> State:
        """Precisions to their last digits, then what any single move still offers."""
        if not notes.sharp:
            sharp = notes.model.sharpen()
            fall = state.objective - sharp.objective
            lost = fall if fall > max(tol, _EVIDENCE_ROUNDING * abs(state.objective)) else 0.0
            return _advance(sharp, "reestimate", notes, grown=True, exhausted=True, sharp=True,
                            retried=notes.retried, lost=lost)  # fmt: skip
        model = notes.model
        offer = model.largest_gain(self.settings.exchange)
        if offer > tol and self.settings.stop != "tf03" and not notes.retried:
            return _advance(model, "", notes, settled=True, retried=True)  # the sharper model may have other moves
        # an evidence that is known to a few nats alone hides gains as large
        largest = max(offer, notes.lost)
        return state.stepped(action="", done=True, largest_gain=largest, posterior=model.full_posterior, notes=notes)


@dataclass(frozen=True, eq=False)
class Notes:
    """Notes of the search between steps."""

    model: SearchModel
    steps: int = 0
    grown: bool = False  # no addition gains
    settled: bool = False  # the precisions are at their optimum
    exhausted: bool = False  # nor does a deletion or an exchange
    sharp: bool = False  # to the last digits
    retried: bool = False  # the moves were tried once more where the certificate named one
    lost: float = 0.0  # nats by which an evaluation without the rounding of updates fell
    turn: int = 0
    failed: int = 0
    paired: bool = False  # pairs of atoms were exchanged, as far as that gains
    polishing: bool = False  # the steps of TF03, where they come first, have ended
    statistics: Any = None  # of those steps

    def but(self, **changes) -> Notes:
        """A copy with some fields changed."""
        return changed(self, changes)


_ANEW = {"grown": False, "exhausted": False, "sharp": False, "retried": False}


def _advance(model: SearchModel, action: str, notes: Notes, **changes) -> State:
    """The state after a move: what was tried before is tried again."""
    notes = notes.but(model=model, **(_ANEW | changes))
    return State(model.active, model.posterior, model.objective, action, model.atom, notes=notes)
