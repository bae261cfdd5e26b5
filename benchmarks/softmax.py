"""What one Newton step of the softmax model costs: forming the joint Hessian and factoring it, without approximation.

    python benchmarks/softmax.py --rows 7291 --classes 10 --functions 30,100,300
    RELVEC_DATA=FOLDER python benchmarks/softmax.py --digits 8 --vectors 800

Prints a Markdown table; one step is one evaluation of the likelihood, one Hessian and one factorisation. With
``--digits`` it fits a process with kernels of these widths to FOLDER/usps.npz instead.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from relvec import GPClassifier
from relvec.inference.laplace import laplace
from relvec.inference.likelihoods import Categorical


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=7291)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--functions", default="30,100,300", help="basis functions of each class")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--digits", help="widths of the Gaussian kernel of a process for U.S.P.S. digits")
    parser.add_argument("--vectors", type=int, default=800, help="most vectors of that process")
    options = parser.parse_args()
    if options.digits:
        fit_digits([float(width) for width in options.digits.split(",")], options.vectors)
        return
    n, K = options.rows, options.classes
    rng = np.random.default_rng(0)
    t = np.eye(K)[np.arange(n) % K]
    print("| functions a class | weights | CPU s a step | wall s a step | peak GB |\n|---|---|---|---|---|")
    for m in map(int, options.functions.split(",")):
        Phi = np.asfortranarray(rng.standard_normal((n, m * K)) / n**0.5)
        likelihood = Counted(K)
        with threadpool_limits(options.threads):
            cpu, wall = time.process_time(), time.perf_counter()
            laplace(Phi, t, np.ones(n), np.full(m * K, 1e-2), likelihood, outputs=np.repeat(np.arange(K), m))
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        steps = likelihood.calls
        print(f"| {m} | {m * K} | {cpu / steps:.2f} | {wall / steps:.2f} | {peak:.2f} |", flush=True)


def fit_digits(widths: list[float], most: int) -> None:
    """Error, log loss and CPU seconds of a process of ten classes with a kernel of each width."""
    with np.load(Path(os.environ["RELVEC_DATA"]) / "usps.npz") as file:
        X, y, Z, z = (file[name] for name in ("X_train", "y_train", "X_test", "y_test"))
    print(
        "| width | vectors | log loss, held out | log loss, test | error %, test | CPU s |\n|---|---|---|---|---|---|"
    )
    for width in widths:
        begin = time.process_time()
        model = GPClassifier(kernel="gaussian", width=width, max_vectors=most).fit(X, y)
        spent, P = time.process_time() - begin, model.predict_proba(Z)
        loss, error = -np.log(P[np.arange(len(z)), z]).mean(), 100 * np.mean(P.argmax(axis=1) != z)
        held = model.selection_.log_loss
        print(
            f"| {width:g} | {len(model.vectors_)} | {held:.3f} | {loss:.3f} | {error:.2f} | {spent:.0f} |", flush=True
        )


class Counted(Categorical):
    """A softmax likelihood that counts its evaluations, one a step."""

    def __init__(self, K: int):
        super().__init__(K)
        object.__setattr__(self, "calls", 0)

    def evaluate(self, t, f, weights):
        object.__setattr__(self, "calls", self.calls + 1)
        return super().evaluate(t, f, weights)


if __name__ == "__main__":
    main()
