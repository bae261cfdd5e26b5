"""An experiment: published numbers with their source, and a short function that measures ours."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import t as student_t
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from reproduction import _data
from reproduction._store import Part, Store

TWO_ERRORS = 0.97725  # probability below two standard errors
WARNED = "share of draws with a warning"

Draw = Callable[[np.random.Generator], Mapping[str, Any]]
Progress = Callable[[int, int, int], None]  # parts done, of how many, kept from an earlier run


class NothingKept(Exception):
    """Only kept parts were asked for, and some that are needed are not there."""


class Verdict(Enum):
    """How our number compares with the published one."""

    BETTER = "better"
    EQUAL = "equal"
    WITHIN = "within two standard errors"
    SPREAD = "within the spread of draws"
    WORSE = "worse"
    TIMING = "a timing"  # of another machine: not compared
    ALONE = ""  # nothing was published

    @property
    def group(self) -> str:
        """What the verdict comes to: better, within two standard errors, worse, or nothing."""
        within = (Verdict.EQUAL, Verdict.SPREAD)
        return Verdict.WITHIN.value if self in within else "" if self is Verdict.TIMING else self.value


@dataclass(frozen=True)
class Published:
    """A number as a paper prints it.

    `best` says what better means: "low", "high", or the true value that the number estimates. `draws` is how many
    repetitions the paper averaged over; 1 is a single picture or split. `cases` is the size of the test set of a
    single split where the number is a share of it, in percent or in units of which `whole` make it up: its binomial
    error then stands for the spread of draws. `timing` marks seconds of another machine, which are shown and not
    compared.
    """

    value: str
    where: str
    best: str | float = "low"
    draws: int = 1
    cases: int = 0
    whole: float = 100.0
    timing: bool = False

    @property
    def number(self) -> float:
        return float(self.value)

    @property
    def decimals(self) -> int:
        """Digits after the point, as printed."""
        return len(self.value.partition(".")[2])

    def verdict(self, ours: np.ndarray) -> Verdict:
        """Compare with our draws (n,): two standard errors of the difference decide, by Student's t where n is small.

        The paper's mean of K draws is as uncertain as K of ours, and it is rounded to a unit u, so the difference has
        the variance s^2 (1/n + 1/K) + u^2/12, with s the standard deviation of our draws: for a single published draw
        this is about the spread of ours. What rounds to the published digits is never called different.
        """
        if self.timing:
            return Verdict.TIMING
        n, mean = len(ours), float(np.mean(ours))
        spread = float(np.std(ours, ddof=1)) if n > 1 else 0.0
        errors = 2.0 if n == 1 else float(student_t.ppf(TWO_ERRORS, n - 1))
        unit = 10.0**-self.decimals
        deviation = np.sqrt(spread**2 * (1.0 / n + 1.0 / self.draws) + unit**2 / 12.0)
        tolerance = max(errors * deviation, 2.0 * self.binomial)
        if spread == 0.0 and round(mean, self.decimals) == self.number:
            return Verdict.EQUAL
        if abs(mean - self.number) <= max(tolerance, 0.5 * unit):
            return Verdict.SPREAD if self.draws == 1 and n > 1 else Verdict.WITHIN
        return Verdict.BETTER if self._loss(mean) < self._loss(self.number) else Verdict.WORSE

    @property
    def binomial(self) -> float:
        """Standard error of a share of `cases`; 0 for other numbers."""
        return float(np.sqrt(self.number * (self.whole - self.number) / self.cases)) if self.cases else 0.0

    def _loss(self, value: float) -> float:
        if isinstance(self.best, str):
            return {"low": value, "high": -value}[self.best]
        return abs(value - self.best)


@dataclass(frozen=True)
class Context:
    """What a run may use: its draws, cores and data, and the parts that are finished already.

    Draw i has its own random numbers, whatever the number of draws and cores: a quick run is the beginning of a
    full one.
    """

    name: str
    draws: int
    jobs: int = 1
    seed: int = 0
    data_dir: Path | None = None
    progress: Progress | None = None
    store: Store = field(default_factory=Store)
    count: Callable[[Experiment], int] | None = None  # draws of another experiment; its quick ones by default
    used: list[Part] = field(default_factory=list)  # every part this run rests on
    shared: list[Part] = field(default_factory=list)  # those of other experiments that it rests on too

    def rng(self, draw: int = 0) -> np.random.Generator:
        """Return the random numbers of a draw."""
        return np.random.default_rng([self.seed, crc32(self.name.encode()), draw])

    def data(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of a data set; MissingData where it is not there."""
        return _data.load(name, self.data_dir)

    def named(self, name: str) -> Context:
        """Return the same draws under another experiment's name, whose random numbers and parts are shared."""
        return replace(self, name=name)

    def outcome_of(self, experiment: Experiment) -> Outcome:
        """Return what another experiment finds with its own number of draws; nothing is measured twice."""
        draws = experiment.quick if self.count is None else self.count(experiment)
        return experiment.run(replace(self, name=experiment.name, draws=draws, used=self.shared))

    def repeat(self, function: Draw, label: str = "draw") -> dict[str, np.ndarray]:
        """Return what function(rng) measures on every draw: name -> (draws,). The function must be picklable."""
        tasks = {f"{label} {i}": partial(function, self.rng(i)) for i in range(self.draws)}
        return stacked(self.parts(tasks))

    def one(self, key: str, function: Callable[[], Any]) -> Any:
        """Return what function() measures, once."""
        return self.parts({key: function}, all_needed=True)[0].value

    def parts(self, tasks: Mapping[str, Callable[[], Any]], *, all_needed: bool = False) -> list[Part]:
        """Return what every task() returns (numbers, texts, lists, dictionaries of them), in their order.

        Tasks finished in an earlier run are not run again. Where nothing is to be measured, those up to the first
        that is missing are taken, or `NothingKept` is raised if all are needed.
        """
        keys = {key: f"{key}, seed {self.seed}" if self.seed else key for key in tasks}
        found = {key: self.store.find(self.name, keys[key]) for key in tasks}
        missing = [key for key, part in found.items() if part is None]
        if self.store.only_kept and missing:
            first = list(found).index(missing[0])
            if all_needed or first == 0:
                raise NothingKept(f"{len(missing)} of {len(tasks)} parts are not measured yet")
            found, missing = dict(list(found.items())[:first]), []
        kept = sum(part is not None for part in found.values())
        self._tell(kept, len(tasks), kept)
        work = Parallel(n_jobs=self.jobs if len(missing) > 1 else 1, return_as="generator_unordered")(
            delayed(_measure)(key, tasks[key]) for key in missing
        )
        for done, (key, part) in enumerate(work, start=1):
            found[key] = self.store.keep(self.name, keys[key], part)
            self._tell(kept + done, len(tasks), kept)
        parts = [part for part in found.values() if part is not None]
        self.used.extend(parts)
        return parts

    def _tell(self, done: int, of: int, kept: int) -> None:
        if self.progress is not None:
            self.progress(done, of, kept)


def stacked(parts: Sequence[Part]) -> dict[str, np.ndarray]:
    """Parts that are dictionaries with the same names, as arrays: name -> (parts,)."""
    values = {name: np.array([part.value[name] for part in parts], dtype=float) for name in parts[0].value}
    warned = np.array([part.warned for part in parts], dtype=float)
    return values | ({WARNED: warned} if warned.any() else {})


def _measure(key: str, task: Callable[[], Any]) -> tuple[str, Part]:
    """One part, on one thread also where it is another process than the caller's."""
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.process_time()
        value = task()
        seconds = time.process_time() - start
    return key, Part(value, seconds, any(issubclass(w.category, ConvergenceWarning) for w in caught))


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    `values` has a number or an array of draws (n,) for every published name, and for others worth showing.
    `figures` are functions that return a matplotlib figure, called only if pictures are wanted. `notes` say what was
    found, and `explained` has a reason for a number that may come out worse than the published one, by its name: one
    that was tested.
    """

    values: Mapping[str, Any]
    figures: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    explained: Mapping[str, str] = field(default_factory=dict)

    def draws(self, name: str) -> np.ndarray:
        """Return the draws (n,) of one measured number."""
        return np.atleast_1d(np.asarray(self.values[name], dtype=float))


@dataclass(frozen=True)
class Experiment:
    """A table, figure or sentence of a paper. `assumptions` fill in what the paper leaves open.

    `quick` and `full` are how many repetitions the two kinds of runs make; with 0 the experiment is left out.
    `seconds` is about what one repetition takes of a core, for the time left.
    """

    name: str
    title: str
    source: str
    published: Mapping[str, Published]
    run: Callable[[Context], Outcome]
    quick: int = 1
    full: int = 1
    seconds: float = 1.0
    assumptions: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
