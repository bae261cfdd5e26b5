"""Time and memory of predicting a million rows with standard deviations: 50 functions or vectors, 8 features.

python benchmarks/prediction.py [--rows 1000000]
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from relvec import RVR, GPRegressor
from relvec.basis import KernelBasis
from relvec.kernels import Gaussian
from relvec.solvers import EM

FUNCTIONS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 8))
    basis = KernelBasis(Gaussian(3.0), centres=rng.standard_normal((FUNCTIONS, 8)))
    y = basis.bind(X)(X) @ rng.standard_normal(FUNCTIONS) + 0.05 * rng.standard_normal(1000)
    rvm = RVR(kernel=None, basis=basis, solver=EM(max_iter=50)).fit(X, y)
    process = GPRegressor(max_vectors=FUNCTIONS).fit(X, y)
    new = rng.standard_normal((options.rows, 8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{options.rows} rows, 8 features; {before:.0f} MB before predicting, the rows themselves among them")
    for name, model in (("RVR", rvm), ("GPRegressor", process)):
        start, wall = time.process_time(), time.perf_counter()
        with threadpool_limits(1):
            model.predict(new, return_std=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{name:12} {model.fitted_.size}: {time.process_time() - start:6.2f} s CPU, one thread "
              f"({time.perf_counter() - wall:.2f} s wall), peak {peak:.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
