"""How often intervals and sets of coverage 90% hold a new target, before and after calibration.

Made data whose noise grows and has heavy tails, whatever the model assumes: 200 draws of 200 calibration rows and 1,000
new rows, with a new fit to 100 rows after every tenth draw. "before" is the model's own interval or set, "after" the
calibrated one, with the mean length of intervals (in standard deviations of the target) or size of sets. The last lines
are cross-conformal: calibrated on the 100 training rows in five folds, 40 draws with a fit to each.

    python benchmarks/conformal.py [--draws 200] [--models rvm,counts] [--exports] [--jobs 8]

`--exports` compares the intervals or sets of every fit in ONNX Runtime and in C, compiled by gcc, with Python's at
1,000 rows: the largest difference of an end over the length of the interval, or the share of members that differ, the
largest of the fits. "-" marks what is not exported: processes to C, distributions that need the training rows.
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
from typing import Any, NamedTuple

import numpy as np
from harness.parallel import measure_groups
from sklearn.base import clone

import relvec
from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianRegressor

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
    "process": (GPRegressor(), wild),
    "process, logarithm": (GPRegressor(), skewed),
    "process, heteroscedastic": (GPRegressor(noise="heteroscedastic"), wild),
    "rvm": (RVR(width=1.0), wild),
    "augmented": (RVR(predictive="augmented", width=1.0), wild),
    "student-t": (RVR(width=1.0, likelihood="student-t"), wild),
    "a straight line": (SparseBayesianRegressor(), wild),
    "counts": (RVR(likelihood="poisson", width=1.0), counts),
    "two classes": (GPClassifier(), two),
    "four classes": (GPClassifier(), classes),
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
    whole = model.get_params().get("likelihood") == "poisson"
    size = np.mean(high - low) + 1.0 if whole else np.mean(high - low) / y.std()
    return np.array([np.mean((low <= y) & (y <= high)), size])


class Found(NamedTuple):
    """Of one fit: coverage and size before and after calibration for each draw (k, 4), seconds, errors of exports."""

    shares: np.ndarray
    seconds: float
    exports: tuple[float, ...] = ()


def measure_fit(case: tuple[str, bool, int]) -> Found:
    """A fit and its draws of calibration rows; the exports are compared where asked."""
    name, exports, first = case
    (model, draw), began, rows = MODELS[name], time.process_time(), []
    fitted = clone(model).fit(*draw(np.random.default_rng(10**6 + first), TRAIN))
    for i in range(first, first + DRAWS_PER_FIT):
        rng = np.random.default_rng(i)
        if i == first:
            own = measure(fitted, *draw(rng, NEW))
        fitted.calibrate(*draw(rng, CALIBRATION))
        rows.append(np.concatenate([own, measure(fitted, *draw(rng, NEW))]))
    spent = time.process_time() - began
    new = draw(np.random.default_rng(2 * 10**6), NEW)[0]
    return Found(np.array(rows), spent, compare_exports(fitted, new) if exports else ())


def compare_exports(model: Any, X: np.ndarray) -> tuple[float, ...]:
    """Largest differences of ONNX Runtime and of C from Python at X; nan where the model is not exported to it."""
    classes = hasattr(model, "classes_")
    expected = model.predict_set(X, COVERAGE).astype(float) if classes else model.predict_interval(X, COVERAGE)
    mean, unit = (np.mean, 1.0) if classes else (np.max, np.diff(expected).max())
    differences = []
    for run in (run_onnx, run_c):
        try:
            differences.append(float(mean(np.abs(run(model, X, expected.shape[1], classes) - expected)) / unit))
        except NotImplementedError:
            differences.append(np.nan)
    return tuple(differences)


def run_onnx(model: Any, X: np.ndarray, n_columns: int, classes: bool) -> np.ndarray:
    """Ends of intervals or members of sets (n, n_columns) by ONNX Runtime."""
    import onnxruntime

    graph, names = relvec.to_onnx(model, coverage=COVERAGE), ["members"] if classes else ["lower", "upper"]
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.column_stack([np.asarray(part, float).reshape(len(X), -1) for part in session.run(names, {"X": X})])


def run_c(model: Any, X: np.ndarray, n_columns: int, classes: bool) -> np.ndarray:
    """Ends of intervals or members of sets (n, n_columns) by compiled C."""
    source, found = relvec.to_c(model, coverage=COVERAGE), np.empty((len(X), n_columns))
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "model.c").write_text(source)
        subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", path.with_suffix(".so"), path, "-lm"], check=True)
        call = getattr(ctypes.CDLL(str(path.with_suffix(".so"))), f"relvec_predict_{'set' if classes else 'interval'}")
    for row, own in zip(X, found):
        parts = [np.zeros(n_columns, np.intc)] if classes else [np.zeros(1), np.zeros(1)]
        call(*(np.ctypeslib.as_ctypes(part) for part in (np.ascontiguousarray(row), *parts)))
        own[:] = np.concatenate(parts)
    return found


def measure_folds(case: tuple[str, int]) -> Found:
    """The same for one draw, calibrated on the training rows in five folds."""
    name, i = case
    (model, draw), began, rng = MODELS[name], time.process_time(), np.random.default_rng(i)
    X, y = draw(rng, TRAIN)
    fitted, new = clone(model).fit(X, y), draw(rng, NEW)
    own = measure(fitted, *new)
    shares = np.concatenate([own, measure(fitted.calibrate(X, y, cv=5), *new)])
    return Found(shares[None], time.process_time() - began)


def line(name: str, found: list[Found]) -> str:
    shares = np.vstack([one.shares for one in found])
    before, size, after, calibrated = shares.mean(axis=0)
    error = shares[:, 2].std(ddof=1) / np.sqrt(len(shares))
    errors = np.max([one.exports for one in found], axis=0)
    exports = "".join(f"{'-' if np.isnan(own) else f'{own:.0e}':>10}" for own in errors)
    return (
        f"{name:26}{100 * before:7.1f}{size:8.2f}   |{100 * after:7.1f} ±{100 * error:4.1f}{calibrated:8.2f}"
        f"   |{sum(one.seconds for one in found):7.1f}{exports}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--models", default=",".join(name.replace(",", ";") for name in MODELS))
    parser.add_argument("--exports", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="processes; default 1")
    options = parser.parse_args()
    names, draws = [name.replace(";", ",") for name in options.models.split(",")], options.draws
    warnings.simplefilter("ignore")
    exports = f"{'ONNX':>10}{'C':>10}" if options.exports else ""
    print(f"{'model':26}{'before':>7}{'size':>8}   |{'after':>7}{'':6}{'size':>8}   |  CPU s{exports}")
    cases = [(name, options.exports, i) for name in names for i in range(0, draws, DRAWS_PER_FIT)]
    for (name, _), found in measure_groups(measure_fit, cases, options.jobs):
        print(line(name, found), flush=True)
    folded = [name for name in ("rvm", "a straight line", "counts") if name in names]
    cases = [(name, i) for name in folded for i in range(min(CROSS_DRAWS, draws))]
    for (name,), found in measure_groups(measure_folds, cases, options.jobs):
        print(line(f"{name}, folds", found), flush=True)


if __name__ == "__main__":
    main()
