"""Fit time, memory and error of regression against N, every training point a candidate centre.

    python benchmarks/growth.py --sizes 5000,20000,100000

TF03's two-dimensional sinc (x uniform in [-10, 10]^2, noise 0.1, width 2.5). Each fit runs in its own process with
all cores; the slope is that of log time against log N over the whole range.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np


def child(n: int) -> dict:
    """Fit once and report."""
    import resource

    from relvec import RVR

    rng = np.random.default_rng(0)
    X, X_test = rng.uniform(-10, 10, (n, 2)), rng.uniform(-10, 10, (5000, 2))
    f, f_test = (np.sinc(np.linalg.norm(Z, axis=1) / np.pi) for Z in (X, X_test))
    y = f + 0.1 * rng.standard_normal(n)
    RVR(width=2.5).fit(X[:200], y[:200])
    began, cpu = time.perf_counter(), time.process_time()
    model = RVR(width=2.5).fit(X, y)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "n": n,
        "seconds": seconds,
        "cpu": cpu,
        "vectors": len(model.relevance_),
        "rank": model.compression_.rank if model.compression_ else n,
        "rmse": float(np.sqrt(np.mean((model.predict(X_test) - f_test) ** 2))),
        "status": model.status_,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Run the sizes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5000,10000,20000,50000,100000,200000")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.child)))
        return
    print("| N | fit s | CPU s | rank | vectors | RMSE | peak MB | status |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for n in map(int, args.sizes.split(",")):
        done = subprocess.run(
            [sys.executable, __file__, "--child", str(n)],
            capture_output=True,
            text=True,
            check=True,
        )
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"| {n} | {row['seconds']:.2f} | {row['cpu']:.2f} | {row['rank']} | {row['vectors']} | {row['rmse']:.5f} "
            f"| {row['mb']:.0f} | {row['status']} |",
            flush=True,
        )
    if len(rows) > 1:
        for name, key in (("time", "seconds"), ("CPU time", "cpu")):
            slope = np.polyfit(np.log([r["n"] for r in rows]), np.log([r[key] for r in rows]), 1)[0]
            print(f"\nslope of log {name} against log N: {slope:.2f}")


if __name__ == "__main__":
    main()
