"""Progress of a fit: callbacks (`watch`), the bar that tqdm draws of a long fit, and the log of ``verbose=1``.

Code that makes steps calls `report` within a `stage`. The callbacks belong to the context (`contextvars`) that fits, so
that they need not be passed down to where the steps are made.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

__all__ = ["Progress", "watch"]

logger = logging.getLogger("relvec")

_SECONDS_BEFORE_SHOWN = 3.0  # shorter fits show no bar
_SECONDS_BETWEEN_LINES = 1.0  # of the log, within a stage
_WORDS = {"widths": "learning widths", "kernel": "factorising the kernel", "search": "searching",
          "process": "fitting the process"}  # fmt: skip
# Share of the work that is left when a stage begins: rough guesses, for the time left alone. A stage that is not
# named, such as the search of the last output, takes most.
_STAGE_SHARES = {"widths": 0.7, "kernel": 0.1, "process": 1.0}
_USUAL_SHARE = 0.9


@dataclass(frozen=True)
class Progress:
    """The state of a fit at one step.

    Attributes
    ----------
    stage : "widths" (being learned), "kernel" (being factorised), "search" (for the model) or "process" (a Gaussian
        process is fitted to the vectors).
    step : number of reports of this stage so far.
    size : basis functions in the model, 0 where there is none yet; for "kernel" the rank of the factor.
    evidence : log evidence of the model so far, in the units of y; for "widths" that of the scaled targets on the
        rows they are learned from, for "process" that of the process; nan where there is none.
    elapsed : seconds since the fit began.
    fraction : estimated share of this stage that is done, from 0 to 1; nan where unknown.
    remaining : estimated seconds until all stages, outputs and folds are done; nan where unknown.
    rows : rows that the fit is to, 0 where that is not told.
    density : mean log density of rows held out under the model so far, in units of the standardised target; nan where
        there is none.
    overall : estimated share of all stages, outputs and folds that is done, from 0 to 1; nan where unknown.

    Examples
    --------
    >>> print(Progress("search", step=12, size=8, evidence=41.5, elapsed=4.2, fraction=0.5, remaining=4.0))
    searching: step 12, 8 functions, evidence 41.5, 4 s elapsed, about 4 s left
    """

    stage: str
    step: int
    size: int
    evidence: float
    elapsed: float
    fraction: float
    remaining: float
    rows: int = 0
    density: float = math.nan
    overall: float = math.nan

    def __str__(self) -> str:
        parts = [f"{_WORDS.get(self.stage, self.stage)}: step {self.step}"]
        if self.rows:
            parts.append(f"{self.rows:,} rows")
        if self.size:  # none while widths are learned
            kept = f"{self.size:,} {'vectors' if self.rows else 'functions'}"
            parts.append(f"rank {self.size:,}" if self.stage == "kernel" else kept)
        if math.isfinite(self.density):
            parts.append(f"held-out density {self.density:.3f}")
        if math.isfinite(self.evidence):
            parts.append(f"evidence {self.evidence:.6g}")
        parts.append(f"{format_duration(self.elapsed)} elapsed")
        if math.isfinite(self.remaining):
            parts.append(f"about {format_duration(self.remaining)} left")
        return ", ".join(parts)


Watcher = Callable[[Progress], object]


@dataclass
class _Part:
    """A part of the work, as shares of the whole: where it ends, and how much is done."""

    end: float = 1.0
    done: float = 0.0


@dataclass
class _Stage:
    """The current stage: its name, the offset from its objectives to evidences, and how many of its parts are done."""

    name: str
    begin: float  # shares of the whole work
    end: float
    shift: float = 0.0
    total: int = 0  # parts, where their number is known
    done: int = 0
    step: int = 0
    fraction: float = math.nan


_watchers: ContextVar[tuple[tuple[Watcher, float], ...]] = ContextVar("watchers", default=())
_stage: ContextVar[_Stage | None] = ContextVar("stage", default=None)
_part: ContextVar[_Part | None] = ContextVar("part", default=None)
_shown: ContextVar[bool] = ContextVar("shown", default=False)  # a bar or a log, of this fit or one around it


@contextmanager
def watch(function: Watcher) -> Iterator[None]:
    """Call a function with a `Progress` at every step of the fits within.

    If it returns True the search ends with the best model so far and a ConvergenceWarning. Fits in other processes are
    not reported.

    Parameters
    ----------
    function : callable(Progress)

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> from relvec.runtime.progress import watch
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(-10.0, 10.0, 100)[:, None]
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.standard_normal(100)
    >>> seen = []
    >>> with watch(seen.append):
    ...     model = RVR(width=3.0).fit(X, y)
    >>> seen[-1].stage, seen[-1].size == len(model.weights_)
    ('search', True)
    >>> bool(np.isclose(seen[-1].evidence, model.log_marginal_likelihood_))
    True
    """
    token = _watchers.set((*_watchers.get(), (function, time.monotonic())))
    try:
        yield
    finally:
        _watchers.reset(token)


@contextmanager
def stage(name: str, total: int = 0, shift: float = 0.0) -> Iterator[None]:
    """Name a part of a fit, for the reports made within. A stage inside another belongs to the outer one."""
    if _stage.get() is not None:
        yield
        return
    whole = _part.get() or _Part()
    end = whole.done + _STAGE_SHARES.get(name, _USUAL_SHARE) * (whole.end - whole.done)
    token = _stage.set(_Stage(name, whole.done, end, shift, total))
    try:
        yield
    finally:
        _stage.reset(token)
        whole.done = max(whole.done, end)


@contextmanager
def share_of_work(index: int = 0, count: int = 1) -> Iterator[None]:
    """Tell that the work within is one of ``count`` equal parts: folds, outputs, or a whole fit."""
    whole = _part.get() or _Part()
    end = whole.done + (whole.end - whole.done) / (count - index)
    token = _part.set(_Part(end, whole.done))
    try:
        yield
    finally:
        _part.reset(token)
        whole.done = max(whole.done, end)


def advance(more: int = 0) -> None:
    """Count one part of the current stage as done, and add ``more`` parts to its total."""
    if (here := _stage.get()) is not None:
        here.done += 1
        here.total += more


def is_watched() -> bool:
    """Tell whether anybody is told how far a fit is."""
    return bool(_watchers.get())


def report(
    size: int = 0, evidence: float = math.nan, fraction: float = math.nan, rows: int = 0, density: float = math.nan
) -> bool:
    """Call the callbacks; whether one of them asks to stop. ``fraction`` is for an unknown number of parts."""
    watchers, now = _watchers.get(), time.monotonic()
    if not watchers:
        return False
    here = _stage.get() or _Stage("search", 0.0, 1.0)
    here.step += 1
    if here.total:
        fraction = min(here.done / here.total, 1.0)
    here.fraction = max(here.fraction, fraction) if math.isfinite(here.fraction) else fraction
    overall = here.begin + (here.end - here.begin) * here.fraction
    stop = False
    for function, began in watchers:
        remaining = (now - began) * (1.0 - overall) / overall if overall > 0.0 else math.nan
        progress = Progress(
            here.name, here.step, size, float(evidence + here.shift), now - began, here.fraction, remaining, rows,
            density, overall,
        )  # fmt: skip
        stop |= bool(function(progress) is True)
    return stop


@contextmanager
def show_progress(verbose: object) -> Iterator[None]:
    """Show the progress of what runs within: a bar for None, lines in the log for True, nothing for False.

    What a fit around this one shows already is not shown twice.
    """
    if _shown.get() or not (verbose or verbose is None):
        yield
        return
    token = _shown.set(True)
    try:
        with _log() if verbose else _draw_bar():
            yield
    finally:
        _shown.reset(token)


@contextmanager
def _log() -> Iterator[None]:
    """Write a line to the logger "relvec" as a stage begins, and every second."""
    send_log_to_terminal()
    last: Progress | None = None

    def write(progress: Progress) -> None:
        nonlocal last
        new_stage = last is None or last.stage != progress.stage
        if last is None or new_stage or progress.elapsed - last.elapsed >= _SECONDS_BETWEEN_LINES:
            logger.info("%s", progress)
            last = progress

    began = time.monotonic()
    with watch(write):
        yield
    logger.info("fitted in %s", format_duration(time.monotonic() - began))


def send_log_to_terminal() -> None:
    """Send the log to the terminal where nobody has set up logging."""
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)


@cache
def _find_tqdm() -> Any:
    """Return the bar of tqdm, None where it is not installed: to look again takes a tenth of a short fit."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm


@contextmanager
def _draw_bar() -> Iterator[None]:
    """Draw a bar over all stages of a long fit on a terminal or in a notebook, where tqdm is installed."""
    main = multiprocessing.current_process().name == "MainProcess"
    tqdm = _find_tqdm()
    if tqdm is None or not main or threading.current_thread() is not threading.main_thread():
        yield
        return
    with tqdm(total=1.0, delay=_SECONDS_BEFORE_SHOWN, disable=None, leave=False, bar_format="|{bar:16}| {desc}") as bar:
        if bar.disable:  # no terminal: no step is told to anybody
            yield
            return

        def draw(progress: Progress) -> None:
            if progress.elapsed < _SECONDS_BEFORE_SHOWN:
                return
            bar.set_description_str(str(progress), refresh=False)
            bar.update(max(progress.overall - bar.n, 0.0) if math.isfinite(progress.overall) else 0.0)

        with watch(draw):
            yield


def format_duration(seconds: float) -> str:
    """Write the seconds in words.

    >>> format_duration(7.2), format_duration(75), format_duration(3700)
    ('7 s', '1 min 15 s', '1 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
