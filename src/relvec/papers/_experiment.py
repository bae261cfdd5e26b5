"""An experiment: published numbers with their source, and a short function that measures ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from relvec.papers import _data

WARNED = "share of draws with a warning"

Draw = Callable[[np.random.Generator], Mapping[str, float]]


class Verdict(Enum):
    """How our number compares with the published one."""

    BETTER = "better"
    EQUAL = "equal"
    WITHIN = "within two standard errors"
    SPREAD = "within the spread of draws"
    WORSE = "worse"
    ALONE = ""  # nothing was published


@dataclass(frozen=True)
class Published:
    """A number as a paper prints it.

    `best` says what better means: "low", "high", or the true value that the number estimates. `draws` is how many
    repetitions the paper averaged over; 1 is a single picture or split.
    """

    value: str
    where: str
    best: str | float = "low"
    draws: int = 1

    @property
    def number(self) -> float:
        return float(self.value)

    @property
    def decimals(self) -> int:
        """Digits after the point, as printed."""
        return len(self.value.partition(".")[2])

    def verdict(self, ours: np.ndarray) -> Verdict:
        """Compare with our draws (n,): two standard errors of the difference decide.

        The paper's mean of K draws is as uncertain as K of ours, so the difference has the variance
        s^2 (1/n + 1/K), with s the standard deviation of our draws: for a single published draw this is the spread
        of ours. What rounds to the published digits is never called different.
        """
        n, mean = len(ours), float(np.mean(ours))
        spread = float(np.std(ours, ddof=1)) if n > 1 else 0.0
        tolerance = 2.0 * spread * np.sqrt(1.0 / n + 1.0 / self.draws)
        if spread == 0.0 and round(mean, self.decimals) == self.number:
            return Verdict.EQUAL
        if abs(mean - self.number) <= max(tolerance, 0.5 * 10.0**-self.decimals):
            return Verdict.SPREAD if self.draws == 1 else Verdict.WITHIN
        return Verdict.BETTER if self._loss(mean) < self._loss(self.number) else Verdict.WORSE

    def _loss(self, value: float) -> float:
        if isinstance(self.best, str):
            return {"low": value, "high": -value}[self.best]
        return abs(value - self.best)


@dataclass(frozen=True)
class Context:
    """What a run may use: its draws, cores and data.

    Draw i has its own random numbers, whatever the number of draws and cores: a quick run is the beginning of a
    full one.
    """

    name: str
    draws: int
    jobs: int = 1
    seed: int = 0
    data_dir: Path | None = None
    progress: Callable[[int, int], None] | None = None

    def rng(self, draw: int = 0) -> np.random.Generator:
        """The random numbers of a draw."""
        return np.random.default_rng([self.seed, crc32(self.name.encode()), draw])

    def data(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a data set; MissingData where it is not there."""
        return _data.load(name, self.data_dir)

    def repeat(self, function: Draw) -> dict[str, np.ndarray]:
        """What function(rng) measures on every draw: name -> (draws,). The function must be picklable."""
        tasks = (delayed(_measure)(function, self.rng(i)) for i in range(self.draws))
        rows = []
        for row in Parallel(n_jobs=self.jobs, return_as="generator")(tasks):
            rows.append(row)
            if self.progress is not None:
                self.progress(len(rows), self.draws)
        values = {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}
        if not values[WARNED].any():
            del values[WARNED]
        return values


def _measure(function: Draw, rng: np.random.Generator) -> dict[str, float]:
    """One draw, on one thread also where it is another process than the caller's."""
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = dict(function(rng))
    return values | {WARNED: float(any(issubclass(w.category, ConvergenceWarning) for w in caught))}


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    `values` has a number or an array of draws (n,) for every published name, and for others worth showing.
    `figures` are functions that return a matplotlib figure, called only if pictures are wanted. `notes` explain
    what was found, above all a number worse than the published one.
    """

    values: Mapping[str, Any]
    figures: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def draws(self, name: str) -> np.ndarray:
        """The draws (n,) of one measured number."""
        return np.atleast_1d(np.asarray(self.values[name], dtype=float))


@dataclass(frozen=True)
class Experiment:
    """A table, figure or sentence of a paper. `assumptions` fill in what the paper leaves open."""

    name: str
    title: str
    source: str
    published: Mapping[str, Published]
    run: Callable[[Context], Outcome]
    quick: int = 1
    full: int = 1
    assumptions: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
