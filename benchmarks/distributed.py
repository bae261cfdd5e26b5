"""Fits on Dask's workers: the same model as in one process, with a worker killed, and on rows nobody holds.

    python benchmarks/distributed.py          # two workers; 100,000 rows, then ten million, then classes
    python benchmarks/distributed.py --rows 50000 --long 0 --classes 0
    python benchmarks/distributed.py --rows 0 --classes 100000

The two-dimensional sinc, x uniform in [-5, 5]^2, noise 0.1, width 5, every row a candidate centre. Rows are generated
chunk by chunk on the workers, anew at every pass. A worker is a process with one thread and a memory limit. CPU seconds
are those of all processes together; the peak is the largest resident memory of a worker, and of this process.

Classes are Ripley's mixture, two Gaussians a class, width 0.5, without restarts: as they come, which brings so few rows
here, and with their chunks in the memory of the workers during the fit. Looks are reductions over all rows. The share
of errors is that on 20,000 further rows.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 250_000
# This file has the name of the package it measures, which must be found first, here and in the workers.
sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]


def rows_of_chunk(seed: int, n: int) -> np.ndarray:
    """Inputs and target (n, 3) of a chunk."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5.0, 5.0, size=(n, 2))
    return np.column_stack([X, np.sinc(np.hypot(X[:, 0], X[:, 1]) / np.pi) + 0.1 * rng.standard_normal(n)])


def lazy_rows(n: int, chunk: int, made: Any = rows_of_chunk) -> Any:
    """An array (n, 3) of Dask whose chunks are generated where they are needed."""
    import dask
    import dask.array as da

    sizes = [min(chunk, n - first) for first in range(0, n, chunk)]
    parts = [
        da.from_delayed(dask.delayed(made)(i, size), (size, 3), float) for i, size in enumerate(sizes)
    ]  # fmt: skip
    return da.concatenate(parts)


def classes_of_chunk(seed: int, n: int) -> np.ndarray:
    """Inputs and class (n, 3) of a chunk of Ripley's mixture."""
    rng = np.random.default_rng(seed)
    which = rng.integers(4, size=n)
    centres = np.array([[-0.7, 0.3], [0.3, 0.3], [-0.3, 0.7], [0.4, 0.7]])
    return np.column_stack([centres[which] + np.sqrt(0.03) * rng.standard_normal((n, 2)), which > 1])


def peak() -> float:
    """Largest resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu(client: Any) -> float:
    """CPU seconds of this process and the workers."""
    there = client.run(time.process_time).values() if client is not None else ()
    return time.process_time() + sum(there)


def measured(name: str, X: Any, y: Any, width: float, client: Any = None, watcher: Any = None, **options: Any) -> Any:
    """Fit, print a row of the table, and return the model."""
    from relvec import RVR
    from relvec.runtime.progress import watch

    began, spent = time.perf_counter(), cpu(client)
    with watch(watcher or (lambda progress: None)):
        model = RVR(width=width, **options).fit(X, y)
    seconds, spent = time.perf_counter() - began, cpu(client) - spent
    rng = np.random.default_rng(10**9)
    Z = rng.uniform(-5.0, 5.0, size=(5000, 2))
    error = np.sqrt(np.mean((model.predict(Z) - np.sinc(np.hypot(Z[:, 0], Z[:, 1]) / np.pi)) ** 2))
    workers = max(client.run(peak).values()) if client is not None else np.nan
    spent = f"{spent:.1f}" if watcher is None else ""  # what a killed worker had spent went with it
    print(
        f"| {name} | {X.shape[0]:,} | {seconds:.1f} | {spent} | {model.compression_.rank} | {len(model.relevance_)} | "
        f"{model.log_marginal_likelihood_:.6f} | {error:.5f} | {peak():.0f} | "
        f"{'' if np.isnan(workers) else f'{workers:.0f}'} | {model.status_} |",
        flush=True,
    )
    return model


def classified(name: str, X: Any, y: Any, client: Any = None) -> Any:
    """Fit two classes, print a row of the table, and return the model."""
    from relvec import RVC
    from relvec.design import DaskSamples
    from relvec.solvers import Sequential

    looks, reduce = [0], DaskSamples.reduce

    def counted(*arguments: Any) -> Any:
        looks[0] += 1
        return reduce(*arguments)

    DaskSamples.reduce = counted
    began, spent = time.perf_counter(), cpu(client)
    model = RVC(width=0.5, solver=Sequential(restarts=0)).fit(X, y)
    seconds, spent = time.perf_counter() - began, cpu(client) - spent
    DaskSamples.reduce = reduce
    test = classes_of_chunk(10**9, 20_000)
    wrong = np.mean(model.predict(test[:, :2]) != test[:, 2])
    workers = max(client.run(peak).values()) if client is not None else np.nan
    print(
        f"| {name} | {X.shape[0]:,} | {seconds:.1f} | {spent:.1f} | {looks[0]:,} | {len(model.relevance_)} | "
        f"{model.log_marginal_likelihood_:.6f} | {wrong:.4f} | {peak():.0f} | "
        f"{'' if np.isnan(workers) else f'{workers:.0f}'} | {model.status_} |",
        flush=True,
    )
    return model


def apart(name: str, alone: Any, other: Any) -> None:
    """Print whether two models have one support, and how far their evidence is apart."""
    same = np.array_equal(alone.relevance_, other.relevance_)
    distance = abs(alone.log_marginal_likelihood_ - other.log_marginal_likelihood_)
    print(f"\n{name}: {'the same' if same else 'another'} support, evidence {distance:.1e} nats apart", flush=True)


def regression(args: argparse.Namespace, cluster: Any) -> None:
    """The table of regressions."""
    names = "rows of", "N", "fit s", "CPU s", "rank", "vectors", "log evidence", "RMSE", "peak MB here", "on a worker"
    print(f"| {' | '.join(names)} | status |\n|{'---|' * (len(names) + 1)}", flush=True)
    lazy = lazy_rows(args.rows, max(args.rows // 8, 1))
    table = lazy.compute(scheduler="synchronous")
    alone = measured("one process", table[:, :2], table[:, 2], args.width)
    with cluster() as client:
        both = measured(f"{args.workers} workers", lazy[:, :2], lazy[:, 2], args.width, client)
        killed: list[int] = []

        def kill(progress: Any) -> None:
            if progress.stage == "search" and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        left = measured(f"{args.workers} workers, one killed", lazy[:, :2], lazy[:, 2], args.width, client, kill)
        assert killed, "the fit ended before a worker could be killed"
        client.wait_for_workers(args.workers)
        if args.long:
            long = lazy_rows(args.long, CHUNK)
            measured(
                f"{args.workers} workers, tol={args.tol:g}", long[:, :2], long[:, 2], args.width, client, tol=args.tol
            )
    apart("workers", alone, both)
    apart("workers, one killed", alone, left)


def classes(args: argparse.Namespace, cluster: Any) -> None:
    """The table of classes: as they come, which is brought here, and with rows that stay with the workers."""
    from relvec.estimators.sources import rows

    names = "classes of", "N", "fit s", "CPU s", "looks", "vectors", "log evidence", "errors", "peak MB here"
    names = *names, "on a worker"
    print(f"\n| {' | '.join(names)} | status |\n|{'---|' * (len(names) + 1)}", flush=True)
    lazy = lazy_rows(args.classes, -(-args.classes // args.workers), classes_of_chunk)
    table = lazy.compute(scheduler="synchronous")
    alone = classified("one process", table[:, :2], table[:, 2])
    with cluster() as client:
        both = classified(f"{args.workers} workers", lazy[:, :2], lazy[:, 2], client)
        rows.GATHERED_BYTES_PER_ROW = np.inf
        stayed = classified(f"{args.workers} workers, rows stay there", lazy[:, :2], lazy[:, 2], client)
    apart("workers", alone, both)
    apart("workers, rows stay there", alone, stayed)


def main() -> None:
    """Run the comparisons and print them."""
    import distributed

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="0 leaves regression out")
    parser.add_argument("--classes", type=int, default=30_000, help="rows of two classes; 0 leaves them out")
    parser.add_argument("--long", type=int, default=10_000_000, help="rows of the last fit; 0 leaves it out")
    parser.add_argument("--width", type=float, default=5.0)
    parser.add_argument("--tol", type=float, default=0.1, help="tolerance of the last fit, nats")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="1GB", help="limit of a worker")
    args = parser.parse_args()

    @contextmanager
    def cluster() -> Iterator[Any]:
        with (
            distributed.LocalCluster(
                n_workers=args.workers, threads_per_worker=1, memory_limit=args.memory, dashboard_address=":0"
            ) as workers,
            distributed.Client(workers) as client,
        ):
            yield client

    if args.rows:
        regression(args, cluster)
    if args.classes:
        classes(args, cluster)


if __name__ == "__main__":
    main()
