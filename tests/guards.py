"""The standing guards in one command: `python tests/guards.py --seconds 60` (a minute in CI, an hour at night).

Mutated and forged model files, mutated tables, hostile problems, fits held against baselines, certificates computed
again and limits of time and memory take turns, each case within 20 s and 1 GB. The seed comes from the clock unless
given and is printed, so that a failure can be seen again. Cases that once failed, `CORPUS`, run first. `--only problems
--count 20000 --jobs 16` runs so many of a kind, in 16 processes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process has one core

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `reproduction`
sys.path.insert(0, str(Path(__file__).parent / "torture"))

import baselines
import cases
import certificates
import limits

import fuzz
import fuzz_tables

SECONDS, BYTES = 20.0, 10**9  # CPU time of a case, and memory of a process beyond what it begins with
TURN = 20  # cases
JUDGED_FITS, MOST_BEHIND = 200, 0.02  # fits from which on their share behind a baseline is judged, and that share
# Kind, seed and number of cases that a guard found and that were mended.
CORPUS = [
    ("certificates", 0, 22),  # an addition of 87 nats counted as none: its column was nearly collinear
    ("certificates", 2301, 325),  # one of 23 nats: the part of its column outside the model was 4e-12 of its length
    ("certificates", 2301, 1490),  # an exchange for a column whose correlation with the one that left is 1 - 1e-13
    ("certificates of classes", 0, 34),  # a precision that gained .2 nats inside the trusted region
    ("certificates of classes", 0, 32),  # an addition that gained .03 nats there
    ("certificates of counts", 2002, 719),  # an addition that gained at ten times the precision proposed for it
    ("certificates of classes", 2001, 691),  # one that the linearised problem gave no ratio of .7
    ("certificates of classes", 2002, 823),  # a precision beyond one at which the approximation is not trusted
    ("certificates of classes", 28, 51),  # additions at a third and at thirty times the precision tried
    ("certificates of counts", 28, 1459),
    ("certificates of counts", 31, 800),  # a precision of 4e5, where the evidence is flat, that gained .25 nats at 1
    ("certificates of counts", 29, 1573),  # an addition whose gain begins with the motion of B, at a ratio of .07
    ("certificates of counts", 29, 1120),  # a mode that the check itself did not find
    ("certificates of counts", 2003, 1004),  # steps on the precisions that had become short, and promised too little
    ("certificates of hard rows", 2, 1176),  # an exchange for a column whose Q^2 / S is larger by 1e-9 of it
    ("certificates of hard rows", 2, 3375),
    ("certificates of hard rows", 2, 1642),  # an evidence of -9e13 nats, of which doubles tell a hundredth
    ("certificates of hard rows", 3, 1623),
    ("certificates of weighted rows", 5, 111),  # an addition between the precisions tried
    ("certificates of weighted rows", 77124, 873),  # an S that is a difference of nearly equal numbers, for counts
    (
        "certificates of classes",
        909,
        931,
    ),  # an addition between the last precision tried and the edge of trust
    ("certificates of weighted rows", 911, 1),  # an addition of 2e-4 nats
    ("certificates of weighted rows", 909, 1044),  # steps along the edge that crawled
    ("certificates of weighted rows", 910, 596),  # a faint addition that gains more than the best of a scan
    ("certificates of weighted rows", 909, 83),  # an addition that loses at S, and gains at 50 S by the motion of B
    ("certificates of weighted rows", 77124, 943),  # ten times a precision, beyond a loss of .84 nats
    ("certificates of weighted rows", 5, 459),  # precisions of 1e-8 and weights of 1000: faint additions were not tried
    ("certificates of weighted rows", 5, 272),  # half a precision, beyond a loss and before a third
    ("problems", 1794844332, 46),  # a weight of 0 with a gamma of 0 in MacKay's update
    ("problems", 1794844332, 386),  # a precision that overflowed under a hyperprior whose rate underflowed
    ("problems", 77, 743),  # an objective that fell by 3e-7 with a given noise variance
    ("problems", 3001, 3160),  # a step of Newton's method for counts whose length overflowed
    ("problems", 3001, 4918),  # precisions shared by weights that are all 0
    ("problems", 3002, 2514),  # precisions of weights of 1e142 that underflowed to 0
    ("problems", 28, 1874),  # a given noise that overflowed in units of tiny targets
    ("problems", 28, 8730),  # products of inputs that overflowed in a linear kernel
    ("problems", 28, 12637),  # a rate of a hyperprior that underflowed, for classes
    ("problems", 29, 18252),  # an objective that fell by 1e-4 when a mode of counts was found once more
    ("problems", 20261118, 3089),  # a gain of classes with one precision that overflowed
    ("problems", 20261118, 12004),  # classes of weight 7e8, whose modes rounding of X'B X hid for 180 steps each
    ("defaults", 1, 87),  # noise by the inputs where one fold had all rows
    ("defaults", 1, 289),  # where the squares of residuals are subnormal
    ("defaults", 1, 763),  # Student-t noise of targets that are all equal
    ("defaults", 33, 1842),  # the noise of targets whose squares underflow
    ("defaults", 2, 97),  # censored targets without any residual
    ("defaults", 2, 1710),  # a centre that moved away from all rows
    ("defaults", 2, 3324),  # residuals of zero, for which the noise has no lower limit
    ("baselines of RVR", 44001, 8),  # a slope through one outlier that no model without this row had
    ("baselines of SparseBayesianRegressor", 3, 4),  # 1e5 nats a row behind: normal error bars of skewed targets
    ("baselines of SparseBayesianRegressor", 5, 50),  # of 7 rows other columns than those of the folds
    ("forged models", 1795135756, 3323),  # transformers of columns that are no triples
    ("problems", 0, 3169),  # evidence that the last digits of the functions move by more than a nat
]


GUARDS: dict[str, Callable[[], Callable[[int, int], list[str]]]] = {  # each makes a function of a seed and a number
    "models": fuzz.make_case,
    "forged models": fuzz.make_forger,
    "tables": fuzz_tables.make_case,
    "problems": lambda: lambda seed, number: [cases.attempt(cases.generated(seed, number))],
    "defaults": lambda: lambda seed, number: [cases.attempt_as_it_comes(cases.as_it_comes(seed, number))],
    **{
        f"baselines of {name}": lambda name=name: lambda seed, number: [baselines.check(name, seed, number)]
        for name in ("RVR", "GPRegressor", "SparseBayesianRegressor", "RVC", "GPClassifier", "SparseBayesianClassifier")
    },
    "certificates": lambda: lambda seed, number: [certificates.check("regression", seed, number)],
    "certificates of hard rows": lambda: lambda seed, number: [certificates.check("hard regression", seed, number)],
    "certificates of classes": lambda: lambda seed, number: [certificates.check("classes", seed, number)],
    "certificates of counts": lambda: lambda seed, number: [certificates.check("counts", seed, number)],
    "certificates of weighted rows": lambda: (
        lambda seed, number: [certificates.check(f"weighted {('classes', 'counts')[number % 2]}", seed, number)]
    ),
    "limits of time": lambda: limits.import_all() or (lambda seed, number: [limits.check_time(seed, number)]),
    "limits of memory": lambda: limits.import_all() or (lambda seed, number: [limits.check_memory(seed, number)]),
}
made = functools.cache(lambda name: GUARDS[name]())


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise a TimeoutError after so many seconds of CPU time."""

    def stop(*_) -> None:
        raise TimeoutError(f"more than {seconds:g} s of CPU time")

    if not hasattr(signal, "SIGPROF"):
        yield
        return
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def run(name: str, seed: int, numbers: range) -> tuple[str, Counter, list[str]]:
    """Run some cases of a guard: its name, how they ended, and the failures in words."""
    ends, failures, case = Counter(), [], made(name)
    for number in numbers:
        try:
            with limited(SECONDS), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ends.update(case(seed, number))
        except Exception as error:
            ends["failed"] += 1
            failures.append(f"{name}, seed {seed}, case {number}: {type(error).__name__}: {error}")
    return name, ends, failures


def begin_process(names: list[str]) -> None:
    """Make the guards, then allow for so much more memory."""
    for name in names:
        made(name)
    if sys.platform == "linux":
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))


def list_turns(chosen: argparse.Namespace) -> Iterator[tuple[str, int, range]]:
    """Yield what once failed, and then the cases of each guard in turns, until there are enough or the time is over."""
    begin = time.monotonic()
    yield from [(name, seed, range(number, number + 1)) for name, seed, number in CORPUS if name in chosen.only]
    for first in itertools.count(0, TURN):
        for name in chosen.only:
            if first >= chosen.count or time.monotonic() - begin > chosen.seconds:
                return
            yield name, chosen.seed, range(first, min(first + TURN, chosen.count))


def main() -> int:
    """Run the guards in turns; the exit status is 1 where one found something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, help="cases of each guard, however long they take")
    parser.add_argument("--seconds", type=float, help="begin nothing after so many; default: 60 without a count")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--only", nargs="+", choices=GUARDS, default=list(GUARDS))
    chosen, begin = parser.parse_args(), time.monotonic()
    chosen.seconds = chosen.seconds or (60.0 if chosen.count is None else float("inf"))
    chosen.count = sys.maxsize if chosen.count is None else chosen.count
    ends: dict[str, Counter] = {name: Counter() for name in chosen.only}
    failures: list[str] = []

    with ProcessPoolExecutor(chosen.jobs, initializer=begin_process, initargs=(chosen.only,)) as pool:
        waiting: dict[Future, tuple] = {}

        def collect(done: Iterable[Future]) -> None:
            for future in done:
                turn = waiting.pop(future)
                failed = [f"a process died while this and others ran: {turn}"]
                with contextlib.suppress(BrokenProcessPool):
                    name, counted, failed = future.result()
                    ends[name] += counted
                failures.extend(failed)
                print(*failed, sep="\n", end="\n" if failed else "", flush=True)

        with contextlib.suppress(BrokenProcessPool):
            for turn in list_turns(chosen):
                waiting[pool.submit(run, *turn)] = turn
                if len(waiting) > chosen.jobs:
                    collect(wait(waiting, return_when=FIRST_COMPLETED).done)
        collect(list(waiting))
    for name, counted in ends.items():
        print(f"{name}: {dict(counted)}")
        if name.startswith("baselines") and counted.total() >= JUDGED_FITS:
            behind = sum(number for end, number in counted.items() if end.startswith("behind")) / counted.total()
            if behind > MOST_BEHIND:
                failures.append(f"{name}: {behind:.1%} are behind by more than {baselines.BEHIND:g} nats a row")
                print(failures[-1])
    print(f"seed {chosen.seed}, {time.monotonic() - begin:.0f} s in {chosen.jobs} processes, {len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
