"""Where the processor time of a small fit goes: the moves alone, their order, restarts, and what surrounds them.

    python benchmarks/floor.py --rows 100 --repeats 30

The median CPU milliseconds of each part on the 2-D sinc with its width given, and fastrvm's whole fit where it is
installed. A line contains the one before it: the differences are the cost of a part. ``--profile`` prints the stages
of the whole fit by cProfile instead, which slows Python by a factor of two and compiled code hardly.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.utils.validation import check_X_y

from relvec import RVR
from relvec.design import DenseDesign
from relvec.kernels import Gaussian
from relvec.solvers import Sequential
from relvec.solvers.active_set import solve
from relvec.solvers.gaussian.model import model_of
from relvec.solvers.loop import Problem, Start

WIDTH, TOL_NATS = 2.5, 1e-4


def sinc(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-10.0, 10.0, (n, 2))
    distance = np.linalg.norm(X, axis=1)
    return X, np.sin(distance) / distance + 0.1 * rng.normal(size=n)


def problem_of(X: np.ndarray, y: np.ndarray) -> Problem:
    t, n = y / np.sqrt(np.mean(y**2)), len(y)
    design = DenseDesign(np.column_stack([Gaussian(WIDTH)(X, X), np.ones(n)]))
    start = 0.1 * float(t.var())
    return Problem(design, t, 0.0, float(n), None, start, 1e-6 * start, np.arange(n + 1), tol=TOL_NATS)


def moves_alone(problem: Problem) -> None:
    """Additions until none gains, Newton steps, exchanges: a path of the search without its bookkeeping."""
    nothing = Start(np.zeros(0, dtype=np.intp), np.zeros(0), 1.0 / problem.noise_start)
    core = model_of(problem, nothing).core
    while (grown := core.grow(4, TOL_NATS)) is not None:
        core = grown
    core = core.relax(100, min_gain_nats=TOL_NATS)
    while (swapped := core.exchange(TOL_NATS)) is not None:
        core = swapped


def parts(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, Callable[[], object]]]:
    problem, once = problem_of(X, y), Sequential(restarts=0)
    yield "validation by scikit-learn", lambda: check_X_y(X, y)
    yield "moves, compiled", lambda: moves_alone(problem)
    yield "search: moves, their order, certificate", lambda: solve(once, problem, 10_000)
    yield "search with restarts", lambda: solve(Sequential(), problem, 10_000)
    yield "fit without restarts", lambda: RVR(width=WIDTH, solver=once).fit(X, y)
    yield "fit", lambda: RVR(width=WIDTH).fit(X, y)
    try:
        from fastrvm import RVR as Fast
    except ImportError:
        return
    yield "fastrvm", lambda: Fast(gamma=WIDTH**-2).fit(X, y)


# Stages of a fit by the function that is one, those of the search indented: file, function, label.
STAGES = (
    ("estimators/base.py", "fit", "fit"),
    ("sources/regression.py", "_regression_source", "rows and targets validated"),
    ("sources/memory.py", "bind", "dictionary bound to the rows"),
    ("sources/memory.py", "rows", "its matrix"),
    ("design/low_rank.py", "compress", "  compression to its rank"),
    ("design/cholesky.py", "partial_cholesky", "    partial Cholesky factor"),
    ("design/low_rank.py", "span_coordinates", "    orthonormal coordinates of its columns"),
    ("design/low_rank.py", "_times_transposed", "    the dictionary in them"),
    ("sources/base.py", "ordering", "its order by content"),
    ("solvers/active_set.py", "_propose", "scans of all functions of a long dictionary"),
    ("gaussian/search.py", "search", "search: one call of the engine, and more digits where it has too few"),
    ("estimators/assemble.py", "assemble", "fitted model"),
    ("estimators/machine.py", "_set_fitted", "attributes"),
)


def profile(X: np.ndarray, y: np.ndarray, repeats: int) -> None:
    """Print the calls and milliseconds of each stage of a fit."""
    RVR(width=WIDTH).fit(X, y)
    profiler = cProfile.Profile(time.process_time)
    with profiler:
        for _ in range(repeats):
            RVR(width=WIDTH).fit(X, y)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for file, function, label in STAGES:
        found = [entry for (path, _, name), entry in stats.items() if path.endswith(file) and name == function]
        calls, taken = (sum(entry[i] for entry in found) / repeats for i in (1, 3))
        print(f"{label:70} {calls:7.1f} calls {1e3 * taken:9.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--profile", action="store_true", help="print the stages of the whole fit by cProfile")
    options = parser.parse_args()
    if options.profile:
        profile(*sinc(options.rows), options.repeats)
        return
    for name, run in parts(*sinc(options.rows)):
        run()
        taken = []
        for _ in range(options.repeats):
            began = time.process_time()
            run()
            taken.append(time.process_time() - began)
        print(f"{name:42} {1e3 * float(np.median(taken)):9.3f} ms")


if __name__ == "__main__":
    main()
