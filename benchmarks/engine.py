"""CPU time and evidence of whole regressions against fastrvm with its intercept, means over draws of the data.

    OPENBLAS_NUM_THREADS=1 python benchmarks/engine.py sinc2d:100 friedman1:500 --draws 12

Times are processor time of one thread, the median of the draws; evidences of both are computed alike, and given as the
difference in nats with its standard error.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from harness.competitors import _fastrvm_model
from harness.evidence import log_evidence
from harness.problems import PROBLEMS

from relvec import RVR
from relvec.solvers import Sequential

REPEATED_MS, REPEATS = 50.0, 5  # shorter fits are repeated, and the quickest counts


def timed(fit):
    """Return what a function gives, and its processor time in milliseconds."""
    best = np.inf
    for _ in range(REPEATS):
        began = time.process_time()
        found = fit()
        best = min(best, 1e3 * (time.process_time() - began))
        if best > REPEATED_MS:
            break
    return found, best


def compare(name: str, n: int, draws: int) -> str:
    """Return a row of the table."""
    from fastrvm import RVR as Peer

    problem, rows = PROBLEMS[name], []
    for seed in range(draws):
        X, y = problem.train(n, seed)
        test, truth = problem.test(2000, seed)
        peer, peer_ms = timed(lambda X=X, y=y: Peer(gamma=float(problem.width) ** -2, fit_intercept=True).fit(X, y))
        base, _ = log_evidence(_fastrvm_model(peer, X, problem), X, y, problem.width)
        error = np.sqrt(np.mean((peer.predict(test) - truth) ** 2))
        for restarts in (3, 0):
            solver = Sequential(restarts=restarts)
            model, ms = timed(lambda X=X, y=y, s=solver: RVR(width=problem.width, solver=s).fit(X, y))
            own = np.sqrt(np.mean((model.predict(test) - truth) ** 2))
            nats = model.log_marginal_likelihood_ - base
            rows.append((restarts, peer_ms, ms, nats, own / error, len(model.weights_), len(peer.relevance_)))
    cells = []
    for restarts in (3, 0):
        own = np.array([row[1:] for row in rows if row[0] == restarts])
        mean, spread = own[:, 2].mean(), own[:, 2].std(ddof=1) / np.sqrt(draws)
        cells.append(
            f"{np.median(own[:, 1]):.3g} | {np.median(own[:, 0] / own[:, 1]):.2f} | {mean:+.2f} +- {spread:.2f} | "
            f"{own[:, 3].mean():.3f} | {own[:, 4].mean():.0f}"
        )
    return f"| {name} {n} | {np.median([row[1] for row in rows]):.3g} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=["sinc2d:100", "sinc2d:1000", "friedman1:500"])
    parser.add_argument("--draws", type=int, default=12)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = "ms | its time over ours | nats | error over its | functions"
    print(f"| problem | fastrvm ms | {cells} | path: {cells} |\n|{'---|' * 12}")
    for each in options.problems:
        name, n = each.split(":")
        print(compare(name, int(n), options.draws), flush=True)


if __name__ == "__main__":
    main()
