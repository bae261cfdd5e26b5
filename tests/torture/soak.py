"""Hostile data, thousands of sets: `python tests/torture/soak.py 10000` fits models to so many and reports."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from cases import run

BATCH = 10


def main() -> int:
    """Run the cases asked for; the exit status is 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many")
    chosen = parser.parse_args()
    begin, total, failures = time.monotonic(), Counter(), []
    last = chosen.first + chosen.count
    for first in range(chosen.first, last, BATCH):
        if time.monotonic() - begin > chosen.seconds:
            break
        results, failed = run(range(first, min(first + BATCH, last)), chosen.seed)
        total += results
        failures += failed
        for words in failed:
            print(words, flush=True)
    done = sum(total.values()) + len(failures)
    print(f"{done} cases of seed {chosen.seed} in {time.monotonic() - begin:.0f} s: {dict(total)}, "
          f"{len(failures)} failures")  # fmt: skip
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
