"""Time of a prediction, one row and 10,000: relvec, its ONNX file, its C source, SVR, a Gaussian process, fastrvm.

python benchmarks/latency.py --samples 1000

Every model is fitted to the same data (Friedman #1, ten features). Times are processor seconds of one thread, the best
of some repetitions: what a call costs, not what else the machine does.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.svm import SVR

import relvec
from relvec.export.model_file import dumps

MANY = 10_000


def seconds(call, repeats: int) -> float:
    """Least processor time of a call; short ones are run several times at once."""
    call()
    count, best = 1, np.inf
    while True:  # how many calls take some 50 ms
        began = time.process_time()
        for _ in range(count):
            call()
        if time.process_time() - began > 0.05:
            break
        count *= 4
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(count):
            call()
        best = min(best, (time.process_time() - began) / count)
    return best


def onnx_call(model):
    """A prediction by ONNX Runtime on one thread, and the size of the file."""
    import onnxruntime

    data = relvec.to_onnx(model).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda X: session.run(None, {"X": X}), len(data)


def c_call(model, folder: Path):
    """A prediction by compiled C, row by row, and the size of the source."""
    source = relvec.to_c(model)
    loop = """
void many(const double *X, int n, double *mean, double *std);
void many(const double *X, int n, double *mean, double *std)
{
    int i;
    for (i = 0; i < n; i++) relvec_predict(X + i * relvec_FEATURES, mean + i, std + i);
}
"""
    (folder / "model.c").write_text(source + loop)
    command = ["gcc", "-std=c99", "-O2", "-shared", "-fPIC", "-o", folder / "model.so", folder / "model.c", "-lm"]
    subprocess.run(command, check=True)
    many = ctypes.CDLL(str(folder / "model.so")).many

    def call(X):
        mean, std = np.empty(len(X)), np.empty(len(X))
        pointers = [a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in (X, mean, std)]
        many(pointers[0], len(X), *pointers[1:])
        return mean, std

    return call, len(source)


def contestants(X, y, width, folder):
    """Yield (name, what a call gives, vectors kept, size in bytes or None, call)."""
    model = relvec.RVR(width=width).fit(X, y)
    kept = len(model.relevance_)
    size = len(dumps(model))
    yield "relvec", "mean", kept, size, model.predict
    yield "relvec", "mean, std", kept, size, lambda rows: model.predict(rows, return_std=True)
    try:
        call, size = onnx_call(model)
        yield "relvec, ONNX file", "mean, std", kept, size, call
    except ImportError as error:
        print(f"(no ONNX: {error})")
    if shutil.which("gcc"):
        call, size = c_call(model, folder)
        yield "relvec, C source", "mean, std", kept, size, call
    svr = SVR(gamma=width**-2.0, epsilon=1.0).fit(X, y)
    yield "SVR", "mean", len(svr.support_), None, svr.predict
    kernel = RBF(width) + WhiteKernel(1.0)
    gpr = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=None).fit(X, y)
    yield "GaussianProcessRegressor", "mean", len(X), None, gpr.predict
    yield "GaussianProcessRegressor", "mean, std", len(X), None, lambda rows: gpr.predict(rows, return_std=True)
    try:
        from fastrvm import RVR as FastRVR
    except ImportError as error:
        print(f"(no fastrvm: {error})")
        return
    fast = FastRVR(kernel="rbf", gamma=width**-2.0).fit(X, y)
    yield "fastrvm", "mean", len(fast.relevance_), None, fast.predict
    yield "fastrvm", "mean, std", len(fast.relevance_), None, lambda rows: fast.predict(rows, return_std=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--width", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    X, y = make_friedman1(chosen.samples, noise=1.0, random_state=0)
    many = np.random.default_rng(1).uniform(size=(MANY, X.shape[1]))
    print(f"{chosen.samples} samples of {X.shape[1]} features, width {chosen.width}\n")
    print(f"| model | gives | vectors | bytes | one row, µs | {MANY:,} rows, ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, what, kept, size, call in contestants(X, y, chosen.width, Path(folder)):
            one = seconds(lambda call=call: call(many[:1]), chosen.repeats)
            all_rows = seconds(lambda call=call: call(many), chosen.repeats)
            print(f"| {name} | {what} | {kept} | {size or ''} | {1e6 * one:.0f} | {1e3 * all_rows:.1f} |", flush=True)


if __name__ == "__main__":
    main()
