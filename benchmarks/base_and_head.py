"""Processor time of two installations of relvec, run in turns: a table of ratios, and exit code 1 where one is slower.

python benchmarks/base_and_head.py BASE/bin/python HEAD/bin/python

Each round starts a fresh process with either Python, so that whatever else the machine does slows both; the least time
of all rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

MAX_RATIO = 1.25  # of head to base; runners of continuous integration vary by a tenth
SHORTEST_SECONDS = 0.2  # of a problem whose ratio is judged: shorter ones vary too much

CHILD = """
import json, time, warnings
import numpy as np
from sklearn.datasets import make_classification, make_friedman1
from relvec import RVC, RVR, GPClassifier, GPRegressor

warnings.simplefilter("ignore")
X, y = make_friedman1(400, noise=1.0, random_state=0)
Xc, yc = make_classification(300, 8, n_informative=4, random_state=0)
many = np.tile(X, (50, 1))
seconds, models = {}, {}

def measure(name, call):
    began = time.process_time()
    models[name] = call()
    seconds[name] = time.process_time() - began

measure("GPRegressor(), 400 rows", lambda: GPRegressor().fit(X, y))
measure("RVR(), 400 rows", lambda: RVR().fit(X, y))
measure("RVR(width=2), 400 rows", lambda: RVR(width=2.0).fit(X, y))
measure("GPClassifier(), 300 rows", lambda: GPClassifier().fit(Xc, yc))
measure("RVC(width=2), 300 rows", lambda: RVC(width=2.0).fit(Xc, yc))
measure("predict with std, 20,000 rows", lambda: models["GPRegressor(), 400 rows"].predict(many, return_std=True))
print(json.dumps(seconds))
"""


def run(python: str) -> dict[str, float]:
    """Seconds of every problem, in a fresh process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([python, "-c", CHILD], capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base")
    parser.add_argument("head")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    base, head = [], []
    for _ in range(arguments.rounds):
        base.append(run(arguments.base))
        head.append(run(arguments.head))
    slower = []
    print("| problem | base, CPU s | head, CPU s | ratio |\n|---|---|---|---|")
    for name in head[0]:
        before, after = (min(found[name] for found in side) for side in (base, head))
        ratio = after / before
        print(f"| {name} | {before:.3f} | {after:.3f} | {ratio:.2f} |")
        if ratio > MAX_RATIO and max(before, after) > SHORTEST_SECONDS:
            slower.append(name)
    if slower:
        print(f"\nslower by more than {MAX_RATIO - 1:.0%}: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
