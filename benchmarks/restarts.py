"""What restarts of the search gain and cost, over many small made problems.

    python benchmarks/restarts.py --draws 40 --out after.json
    python benchmarks/restarts.py --draws 40 --against before.json

A fit with the default search and one without restarts of every problem: evidence, and CPU time. ``--against`` compares
the evidence of the default with that of an earlier run, problem by problem, and so judges a change of the search.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from harness.problems import PROBLEMS

from relvec import RVC, RVR
from relvec.solvers import Sequential


def bumps(n: int, d: int, draw: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """A sum of random bumps of width 2 in a cube of side 10."""
    rng = np.random.default_rng([n, d, draw])
    X, centres = rng.uniform(-5.0, 5.0, (n, d)), rng.uniform(-5.0, 5.0, (10 * d, d))
    truth = np.exp(-((X[:, None] - centres) ** 2).sum(2) / 4.0) @ rng.normal(size=10 * d)
    return X, truth + noise * truth.std() * rng.normal(size=n)


def steps(n: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """A function of one input with three jumps, which no few bumps explain."""
    rng = np.random.default_rng([n, draw])
    x, jumps = rng.uniform(-5.0, 5.0, n), rng.uniform(-4.0, 4.0, 3)
    return x[:, None], (x[:, None] > jumps).sum(1) + 0.1 * rng.normal(size=n)


def waves(n: int, d: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function that wide kernels explain in many ways: nearly the same model has other vectors."""
    rng = np.random.default_rng([n, d, draw])
    X = rng.uniform(-3.0, 3.0, (n, d))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * (X[:, 1:] ** 2).sum(1) + 0.2 * rng.normal(size=n)


def peer_problem(name: str, n: int) -> Callable[[int], tuple]:
    problem = PROBLEMS[name]
    return lambda draw: (*problem.train(n, 1000 + draw), problem.width)


# X, y and the width of the kernel for each draw
KINDS: dict[str, Callable[[int], tuple]] = {
    "2-D sinc, 100 rows": peer_problem("sinc2d", 100),
    "2-D sinc, 300 rows": peer_problem("sinc2d", 300),
    "bumps, 100 x 1": lambda draw: (*bumps(100, 1, draw, 0.2), 2.0),
    "bumps, 300 x 2": lambda draw: (*bumps(300, 2, draw, 0.1), 2.0),
    "bumps, 300 x 3": lambda draw: (*bumps(300, 3, draw, 0.3), 2.0),
    "waves, 300 x 2": lambda draw: (*waves(300, 2, draw), 2.0),
    "waves, 300 x 3": lambda draw: (*waves(300, 3, draw), 2.0),
    "steps, 100 x 1": lambda draw: (*steps(100, draw), 1.0),
    "Friedman #1, 100 rows": peer_problem("friedman1", 100),
    "Friedman #1, 200 rows": peer_problem("friedman1", 200),
    "clusters, 100 rows": peer_problem("clusters256", 100),
    "Ripley's classes, 100 rows": peer_problem("ripley", 100),
    "three Gaussians, 100 rows": peer_problem("three-gaussians", 100),
}


def fit(solver: Sequential, X: np.ndarray, y: np.ndarray, width: float) -> tuple[float, float]:
    """Evidence and CPU milliseconds of a fit."""
    estimator = RVR if y.dtype.kind == "f" else RVC
    model = estimator(kernel="gaussian", width=width, solver=solver)
    began = time.process_time()
    model.fit(X, y)
    return float(np.sum(model.log_marginal_likelihood_)), 1e3 * (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="beginnings of the kinds to run")
    parser.add_argument("--out", type=Path, help="file for the evidences")
    parser.add_argument("--against", type=Path, help="file of an earlier run")
    options = parser.parse_args()
    earlier = json.loads(options.against.read_text()) if options.against else {}
    found: dict[str, list[float]] = {}
    warnings.simplefilter("ignore")
    print("| problems | gain of restarts: mean | largest | ms without | ms with | over the earlier run: mean | worst |"
          " best |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for kind, make in KINDS.items():
        if options.only and not kind.startswith(tuple(options.only)):
            continue
        problems = list(map(make, range(options.draws)))
        fits = [(fit(Sequential(restarts=0), *data), fit(Sequential(), *data)) for data in problems]
        (plain, _), (evidence, _) = both = np.array(fits).transpose(1, 2, 0)
        found[kind] = evidence.tolist()
        gain, (without, taken) = evidence - plain, np.median(both[:, 1], axis=1)
        over = evidence - np.array(earlier.get(kind, evidence))[: len(evidence)]
        print(
            f"| {kind} | {gain.mean():+.2f} | {gain.max():+.2f} | {without:.1f} | {taken:.1f} "
            f"| {over.mean():+.3f} | {over.min():+.2f} | {over.max():+.2f} |",
            flush=True,
        )
    if options.out:
        options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
