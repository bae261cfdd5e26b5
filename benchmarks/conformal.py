"""How often intervals and sets of coverage 90% hold a new target, before and after calibration.

Made data whose noise grows and has heavy tails, whatever the model assumes: 200 draws of 200 calibration rows and 1,000
new rows, with a new fit to 100 rows after every tenth draw. "before" is the model's own interval or set, "after" the
calibrated one, with the mean length of intervals (in standard deviations of the target) or size of sets. The last lines
are cross-conformal: calibrated on the 100 training rows in five folds, 40 draws with a fit to each.

    python benchmarks/conformal.py [--draws 200] [--models rvm,counts] [--exports]

`--exports` compares the intervals or sets of the last fit in ONNX Runtime and in C, compiled by gcc, with Python's: the
largest difference of an end over the length of the interval, or the share of members that differ. "-" marks
distributions that need the training rows and are not exported.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import relvec
from relvec import RVC, RVR

TRAIN, CALIBRATION, NEW = 100, 200, 1000
DRAWS_PER_FIT = 10
CROSS_DRAWS = 40
COVERAGE = 0.9


def wild(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + (0.1 + 0.4 * X[:, 1] ** 2) * rng.standard_t(3, n)


def skewed(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = wild(rng, n)
    return X, np.exp(0.7 * y)


def counts(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2.0, 2.0, (n, 2))
    rate = np.exp(1.0 + np.sin(2.0 * X[:, 0])) * rng.gamma(2.0, 0.5, n)  # overdispersed
    return X, rng.poisson(rate)


def classes(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    y = rng.integers(0, 4, n)
    X = rng.normal(size=(n, 2)) + 1.5 * np.column_stack([np.cos(1.5 * y), np.sin(1.5 * y)])
    return X, np.where(rng.uniform(size=n) < 0.1, rng.integers(0, 4, n), y)  # a tenth of the labels are noise


def two(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = classes(rng, n)
    return X, y % 2


MODELS: dict[str, tuple[Any, Callable]] = {
    "process": (RVR(), wild),
    "process, logarithm": (RVR(), skewed),
    "rvm": (RVR(predictive="rvm", width=1.0), wild),
    "augmented": (RVR(predictive="augmented", width=1.0), wild),
    "process of the rvm": (RVR(predictive="process", width=1.0), wild),
    "student-t": (RVR(predictive="rvm", width=1.0, likelihood="student-t"), wild),
    "heteroscedastic": (RVR(predictive="rvm", width=1.0, noise="heteroscedastic"), wild),
    "a straight line": (RVR(kernel=None, basis="linear"), wild),
    "counts": (RVR(likelihood="poisson", width=1.0), counts),
    "two classes": (RVC(), two),
    "four classes": (RVC(), classes),
    "four, rvm": (RVC(width=2.0), classes),
    "four, one against rest": (RVC(width=2.0, multi_class="ovr"), classes),
    "four, overconfident": (RVC(width=0.2, averaging="mode"), classes),
}


def measure(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Share of targets held, and mean size, of the intervals or sets of a model."""
    if hasattr(model, "classes_"):
        members = model.predict_set(X, COVERAGE)
        return np.array([members[np.arange(len(y)), np.searchsorted(model.classes_, y)].mean(), members.sum(1).mean()])
    low, high = model.predict_interval(X, COVERAGE).T
    whole = model.likelihood == "poisson"
    size = np.mean(high - low) + 1.0 if whole else np.mean(high - low) / y.std()
    return np.array([np.mean((low <= y) & (y <= high)), size])


def run(model: Any, draw: Callable, draws: int) -> tuple[np.ndarray, Any]:
    """Coverage and size before and after calibration, for each draw: (draws, 4); and the last model."""
    rows, fitted = [], None
    for i in range(draws):
        rng = np.random.default_rng(i)
        if i % DRAWS_PER_FIT == 0:
            fitted = clone(model).fit(*draw(np.random.default_rng(10**6 + i), TRAIN))
            own = measure(fitted, *draw(rng, NEW))
        assert fitted is not None
        fitted.calibrate(*draw(rng, CALIBRATION))
        rows.append(np.concatenate([own, measure(fitted, *draw(rng, NEW))]))
    return np.array(rows), fitted


def compare_exports(model: Any, X: np.ndarray) -> str:
    """Largest differences of ONNX Runtime and of C from Python at X, as text."""
    if hasattr(model, "classes_"):
        expected = model.predict_set(X, COVERAGE).astype(float)
        unit, names, function, size = 1.0, ["members"], "predict_set", expected.shape[1]
    else:
        expected = model.predict_interval(X, COVERAGE)
        unit, names, function, size = np.diff(expected).max(), ["lower", "upper"], "predict_interval", 1
    try:
        graph, source = relvec.to_onnx(model, coverage=COVERAGE), relvec.to_c(model, coverage=COVERAGE)
    except NotImplementedError:
        return f"{'-':>10}{'-':>10}"
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    by_onnx = np.column_stack([np.asarray(part, float).reshape(len(X), -1) for part in session.run(names, {"X": X})])
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "model.c").write_text(source)
        subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", path.with_suffix(".so"), path, "-lm"], check=True)
        call = getattr(ctypes.CDLL(str(path.with_suffix(".so"))), f"relvec_{function}")
    by_c = np.empty_like(expected)
    for row, found in zip(X, by_c):
        parts = [np.zeros(size, np.intc if size > 1 else float) for _ in names]
        call(*(np.ctypeslib.as_ctypes(part) for part in (np.ascontiguousarray(row), *parts)))
        found[:] = np.concatenate(parts)
    mean = np.mean if size > 1 else np.max
    return "".join(f"{mean(np.abs(found - expected)) / unit:10.0e}" for found in (by_onnx, by_c))


def run_folds(model: Any, draw: Callable, draws: int) -> np.ndarray:
    """The same, calibrated on the training rows in five folds."""
    rows = []
    for i in range(draws):
        rng = np.random.default_rng(i)
        X, y = draw(rng, TRAIN)
        fitted, new = clone(model).fit(X, y), draw(rng, NEW)
        own = measure(fitted, *new)
        rows.append(np.concatenate([own, measure(fitted.calibrate(X, y, cv=5), *new)]))
    return np.array(rows)


def line(name: str, found: np.ndarray, seconds: float) -> str:
    before, size, after, calibrated = found.mean(axis=0)
    error = found[:, 2].std(ddof=1) / np.sqrt(len(found))
    return (
        f"{name:26}{100 * before:7.1f}{size:8.2f}   |{100 * after:7.1f} ±{100 * error:4.1f}{calibrated:8.2f}"
        f"   |{seconds:7.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--models", default=",".join(name.replace(",", ";") for name in MODELS))
    parser.add_argument("--exports", action="store_true")
    options = parser.parse_args()
    names, draws = [name.replace(";", ",") for name in options.models.split(",")], options.draws
    warnings.simplefilter("ignore")
    exports = f"{'ONNX':>10}{'C':>10}" if options.exports else ""
    print(f"{'model':26}{'before':>7}{'size':>8}   |{'after':>7}{'':6}{'size':>8}   |  CPU s{exports}")
    with threadpool_limits(1):
        for name in names:
            (model, draw), clock = MODELS[name], time.process_time()
            found, fitted = run(model, draw, draws)
            shown = line(name, found, time.process_time() - clock)
            if options.exports:
                shown += compare_exports(fitted, draw(np.random.default_rng(2 * 10**6), NEW)[0])
            print(shown, flush=True)
        for name in [name for name in ("rvm", "a straight line", "counts") if name in names]:
            clock = time.process_time()
            found = run_folds(*MODELS[name], min(CROSS_DRAWS, draws))
            print(line(f"{name}, folds", found, time.process_time() - clock), flush=True)


if __name__ == "__main__":
    main()
