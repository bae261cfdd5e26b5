"""Time and memory of predicting a million rows with standard deviations: 50 relevance vectors, 8 features.

python benchmarks/prediction.py [--rows 1000000]
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import numpy as np
from relvec.inference.process import Process
from threadpoolctl import threadpool_limits

from relvec import RVR
from relvec.basis import KernelBasis
from relvec.kernels import Gaussian
from reproduction.rq05 import as_fitted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 8))
    centres = rng.standard_normal((50, 8))
    y = Gaussian(3.0)(X, centres) @ rng.standard_normal(50) + 0.05 * rng.standard_normal(1000)
    basis = KernelBasis(Gaussian(3.0), centres=centres)
    rvm = RVR(kernel=None, basis=basis, solver="em", hyperprior={"a": 1e-6, "b": 1e-6}, max_iter=50).fit(X, y)
    process = as_fitted(rvm, Process(), X, y)
    new = rng.standard_normal((options.rows, 8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{options.rows} rows, 8 features; {before:.0f} MB before predicting, the rows themselves among them")
    for name, model in (("rvm", rvm), ("process", process)):
        start, wall = time.process_time(), time.perf_counter()
        with threadpool_limits(1):
            model.predict(new, return_std=True)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        functions = len(model.weights_)
        print(f"{name:8} {functions} functions: {time.process_time() - start:6.2f} s CPU, one thread "
              f"({time.perf_counter() - wall:.2f} s wall), peak {peak:.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
