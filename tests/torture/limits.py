"""Random estimators on random tables with a limit of seconds or bytes, and what their fits took.

Seconds are CPU time: the clock of a fit is that of the process, so that what else the machine does is not counted.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

import relvec

MOST_SECONDS_OVER, SECONDS_OVER = 1.2, 0.2  # times a limit, and besides
MOST_BYTES_OVER = 1.1  # times a limit
_ROWS = 300, 20_000
_LIMITS_S, _LIMITS_BYTES = (1.0, 5.0), (5e7, 5e8)

Make = Callable[..., object]
REGRESSORS: dict[str, Make] = {
    "RVR()": relvec.RVR,
    "RVR(width=1)": lambda **limit: relvec.RVR(kernel="gaussian", width=1.0, **limit),
    "RVR(width='learn')": lambda **limit: relvec.RVR(kernel="gaussian", width="learn", **limit),
    "RVR(likelihood='student-t')": lambda **limit: relvec.RVR(likelihood="student-t", **limit),
    "GPRegressor()": relvec.GPRegressor,
    "SparseBayesianRegressor()": relvec.SparseBayesianRegressor,
}
COUNTS: dict[str, Make] = {"RVR(likelihood='poisson')": lambda **limit: relvec.RVR(likelihood="poisson", **limit)}
CLASSIFIERS: dict[str, Make] = {
    "RVC()": relvec.RVC,
    "RVC(width=1)": lambda **limit: relvec.RVC(kernel="gaussian", width=1.0, **limit),
    "GPClassifier()": relvec.GPClassifier,
    "SparseBayesianClassifier()": relvec.SparseBayesianClassifier,
}


def import_all() -> None:
    """Fit each family once, so that no case pays for imports."""
    rng = np.random.default_rng(0)
    X, limit = rng.normal(size=(40, 2)), {"time_limit": 0.5}
    for makes, y in ((REGRESSORS, X[:, 0]), (COUNTS, rng.poisson(1.0, 40)), (CLASSIFIERS, X[:, 0] > 0)):
        for make in makes.values():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                make(**limit).fit(X, y)


def draw_case(seed: int, number: int) -> tuple[str, Make, np.ndarray, np.ndarray, np.random.Generator]:
    """Return an estimator by its name, how it is made, its rows and targets, and the generator for its limit."""
    rng = np.random.default_rng([seed, number])
    n, d = int(np.exp(rng.uniform(*np.log(_ROWS)))), int(rng.integers(1, 9))
    X = rng.normal(size=(n, d))
    f = np.sin(2.0 * X[:, 0]) * X[:, -1] + 0.5 * X[:, d // 2] + 0.3 * rng.normal(size=n)
    cuts = [0.0] if rng.random() < 0.5 else [-0.8, -0.2, 0.3, 0.9]
    targets = {**dict.fromkeys(REGRESSORS, f), **dict.fromkeys(COUNTS, rng.poisson(np.exp(f)))}
    names = [*REGRESSORS, *COUNTS, *CLASSIFIERS]
    name = names[int(rng.integers(len(names)))]
    return name, {**REGRESSORS, **COUNTS, **CLASSIFIERS}[name], X, targets.get(name, np.digitize(f, cuts)), rng


def check_time(seed: int, number: int) -> str:
    """Fit with a limit of seconds; an AssertionError where that is not kept."""
    name, make, X, y, rng = draw_case(seed, number)
    limit = float(rng.uniform(*_LIMITS_S))
    with mock.patch("time.monotonic", time.process_time):
        began = time.process_time()
        model = make(time_limit=limit).fit(X, y)
        taken = time.process_time() - began
    words = f"{name} on {X.shape[0]} x {X.shape[1]}, {len(np.unique(y))} targets: {taken:.1f} s of {limit:.1f}"
    assert taken <= MOST_SECONDS_OVER * limit + SECONDS_OVER, f"{words} ({model.status_})"
    return str(model.status_)


def check_memory(seed: int, number: int) -> str:
    """Fit with a limit of bytes; an AssertionError where the process had more of them at its peak."""
    name, make, X, y, rng = draw_case(seed, number)
    limit = float(np.exp(rng.uniform(*np.log(_LIMITS_BYTES))))
    model = make(memory_limit=limit, time_limit=_LIMITS_S[1])
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is resident now
    except OSError:
        return "no peak known here"
    before = _resident("VmRSS")
    model.fit(X, y)
    taken = _resident("VmHWM") - before
    words = f"{name} on {X.shape[0]} x {X.shape[1]}: {taken / 1e6:.0f} MB of {limit / 1e6:.0f}"
    assert taken <= MOST_BYTES_OVER * limit, f"{words} ({model.status_})"
    return str(model.status_)


def _resident(field: str) -> float:
    """Return bytes of this process that Linux tells of."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * float(next(line for line in lines if line.startswith(field)).split()[1])
