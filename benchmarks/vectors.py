"""How many vectors, and which: density against their number, and what the certificate promises.

    python benchmarks/vectors.py --tables FOLDER --names autompg,stock,patients,mixtures --folds 0,1

Kernel and hyperparameters are those of `GPRegressor()`, for the candidate of most merit on tables of up to 2,000
training rows. For each number of vectors the mean negative log density of test targets (standardised) is printed with
vectors chosen for coverage alone and half of them by relevance. Then two promises: the bounds enclose the exact
evidence, computed densely; and the density of `GPRegressor()` is that of the exact process with the same parts (in
nats, less is better; 0.00 where every row is kept).
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import warnings  # noqa: E402 (after the number of threads)
from dataclasses import replace  # noqa: E402

import numpy as np  # noqa: E402
from tables import by_table, parse, split  # noqa: E402

from relvec.gaussian_process import ProcessPredictor, fit_process  # noqa: E402
from relvec.gaussian_process.bound import bounds  # noqa: E402
from relvec.gaussian_process.component import exact_component, sparse_component  # noqa: E402
from relvec.gaussian_process.evidence import evidence  # noqa: E402
from relvec.gaussian_process.fit import prepare  # noqa: E402
from relvec.gaussian_process.vectors import pivots  # noqa: E402
from relvec.runtime.clock import Clock  # noqa: E402

NUMBERS = (32, 64, 128, 256, 512)
MOST_ROWS = 2000


def loss(process: ProcessPredictor, X: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log density of a normal distribution with the moments of the prediction."""
    mean, variance = process.predict(X)
    return float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * (y - mean) ** 2 / variance))


def measure(case) -> tuple[list[tuple[float, float]], list[bool], float] | None:
    """NLL for each number of vectors (coverage, relevance), whether bounds hold, the default's NLL lost."""
    folder, name, fold = case
    X, y, X_test, y_test = split(folder, name, fold)
    if len(y) > MOST_ROWS:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit_process(X, y)
    rows = prepare(X, y, None, model.scale, Clock()).rows

    def with_parts(make) -> ProcessPredictor:
        parts = (replace(make(c.structure, c.theta), spread=c.spread, varying=c.varying) for c in model.components)
        return replace(model, components=tuple(parts))

    exact = with_parts(lambda s, theta: exact_component(s, theta, rows))
    first = model.components[0]
    value, inside, losses = evidence(first.structure, first.theta, rows)[0], [], []
    for m in NUMBERS:
        pair = []
        for share in (0.0, 0.5):
            Z = rows.X[pivots(first.structure, first.theta, rows, min(m, len(rows)), share).index]
            pair.append(loss(with_parts(lambda s, theta, Z=Z: sparse_component(s, theta, rows, Z)), X_test, y_test))
            found = bounds(first.structure, first.theta, rows, Z)
            slack = 1e-6 * abs(value)
            inside.append(found.lower - slack <= value <= found.upper + slack)
        losses.append((pair[0], pair[1]))
    return losses, inside, loss(model, X_test, y_test) - loss(exact, X_test, y_test)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    found = by_table(measure, options)
    print(f"{'table':<16}" + "".join(f"{f'{m} vectors':>16}" for m in NUMBERS) + f"{'bounds hold':>13}{'lost':>8}")
    everything = [result for results in found.values() for result in results]
    for name, results in (found | {"mean": everything}).items():
        cells = np.mean([losses for losses, _, _ in results], axis=0)
        held = np.concatenate([inside for _, inside, _ in results])
        lost = np.mean([less for _, _, less in results])
        pairs = "".join(f"{f'{a:.2f} / {b:.2f}':>16}" for a, b in cells)
        print(f"{name:<16}{pairs}{f'{held.sum()} of {held.size}':>13}{lost:>8.3f}")


if __name__ == "__main__":
    main()
