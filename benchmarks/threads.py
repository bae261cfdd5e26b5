"""Time of a product of matrices on one thread of BLAS and on two, by its size.

    python benchmarks/threads.py

On busy cores a product on two threads waits for a slice of time of both, whatever its size. `relvec.runtime.machine`
gives a product more threads from a size on where that is a small share.
"""

from __future__ import annotations

import os
import time

import numpy as np
from threadpoolctl import threadpool_limits

MULTIPLICATIONS = (1e7, 1e8, 3e8, 1e9, 3e9)
SECONDS = 1.0  # for each row and number of threads


def measure(A: np.ndarray, threads: int) -> tuple[float, float]:
    """Return the median of the milliseconds that a product takes, and of processor time."""
    taken: list[tuple[float, float]] = []
    with threadpool_limits(threads, "blas"):
        began = time.perf_counter()
        while time.perf_counter() < began + SECONDS:
            wall, cpu = time.perf_counter(), time.process_time()
            A @ A
            taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = 1e3 * np.median(taken, axis=0)
    return float(wall), float(cpu)


def main() -> None:
    """Print the table."""
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    print("| multiplications | one thread: ms | CPU ms | two: ms | CPU ms |\n|---|---|---|---|---|")
    for count in MULTIPLICATIONS:
        A = np.random.default_rng(0).normal(size=(round(count ** (1 / 3)),) * 2)
        cells = " | ".join(f"{value:.1f}" for threads in (1, 2) for value in measure(A, threads))
        print(f"| {count:.0e} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
