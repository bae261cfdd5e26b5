"""The standing guards in one command: `python tests/guards.py --seconds 60` (a minute in CI, an hour at night).

Mutated model files, mutated tables, hostile problems and certificates computed again take turns. The seed comes from
the clock unless given and is printed, so that a failure can be seen again. Cases that once failed, `CORPUS`, run first.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "torture"))

import cases
import certificates

import fuzz
import fuzz_tables

# Kind, seed and number of cases that a guard found and that were mended.
CORPUS = [
    ("certificates", 0, 22),  # an addition of 87 nats counted as none: its column was nearly collinear
    ("certificates of classes", 0, 34),  # a precision that gained .2 nats inside the trusted region
    ("certificates of classes", 0, 32),  # an addition that gained .03 nats there
    ("certificates of counts", 2002, 719),  # an addition that gained at ten times the precision proposed for it
    ("certificates of classes", 2001, 691),  # one that the linearised problem gave no ratio of .7
    ("certificates of classes", 2002, 823),  # a precision beyond one at which the approximation is not trusted
    ("certificates of counts", 2003, 1004),  # steps on the precisions that had become short, and promised too little
    ("problems", 1794844332, 46),  # a weight of 0 with a gamma of 0 in MacKay's update
    ("problems", 1794844332, 386),  # a precision that overflowed under a hyperprior whose rate underflowed
    ("problems", 77, 743),  # an objective that fell by 3e-7 with a given noise variance
    ("problems", 3001, 3160),  # a step of Newton's method for counts whose length overflowed
    ("problems", 3001, 4918),  # precisions shared by weights that are all 0
    ("problems", 3002, 2514),  # precisions of weights of 1e142 that underflowed to 0
    ("problems", 0, 3169),  # evidence that the last digits of the functions move by more than a nat
]


def check_certificates(kind: str) -> Callable[[int, int, int], Counter]:
    """A guard of the certificates of one kind of problem."""

    def run(count: int, seed: int, first: int) -> Counter:
        ends: Counter = Counter()
        for number in range(first, first + count):
            end, told = certificates.check(kind, seed, number)
            if told:
                raise AssertionError(told)
            ends[end] += 1
        return ends

    return run


def fit_problems(count: int, seed: int, first: int) -> Counter:
    """A guard of fits of hostile data."""
    ends, failures = cases.run(range(first, first + count), seed)
    if failures:
        raise AssertionError("; ".join(failures))
    return ends


GUARDS: dict[str, tuple[Callable[[int, int, int], Counter], int]] = {  # and cases of a turn
    "models": (lambda count, seed, first: fuzz.run(count, seed, first), 200),
    "tables": (lambda count, seed, first: fuzz_tables.run(count, seed, first=first), 50),
    "problems": (fit_problems, 50),
    "certificates": (check_certificates("regression"), 20),
    "certificates of classes": (check_certificates("classes"), 10),
    "certificates of counts": (check_certificates("counts"), 10),
}


def main() -> int:
    """Run the guards in turns; the exit status is 1 where one found something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--only", nargs="+", choices=GUARDS, default=list(GUARDS))
    chosen, begin = parser.parse_args(), time.monotonic()
    ends: dict[str, Counter] = {name: Counter() for name in chosen.only}
    failures = []
    turns = [(name, seed, number, 1) for name, seed, number in CORPUS if name in chosen.only]
    turn = 0
    while turns or time.monotonic() - begin < chosen.seconds:
        if not turns:
            turns = [(name, chosen.seed, turn * GUARDS[name][1], GUARDS[name][1]) for name in chosen.only]
            turn += 1
        name, seed, first, count = turns.pop(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ends[name] += GUARDS[name][0](count, seed, first)
        except AssertionError as error:
            failures.append(f"{name}, seed {seed}, from case {first} on: {error}")
            print(failures[-1], flush=True)
    for name, counted in ends.items():
        print(f"{name}: {sum(counted.values())} cases, {dict(counted)}")
    print(f"seed {chosen.seed}, {time.monotonic() - begin:.0f} s, {len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
