"""Two numbers of the process that no data set can tell by itself, chosen on data sets of their own.

The prior standard deviation of the RVM's weights in the process, in root mean squares of those weights
(`_WEIGHT_DEVIATION_SHARES` of `relvec.inference.process`: fixed, or 0.3 and 1 where the evidence says so), and the
degrees of freedom that each
relevance vector and each width costs in the factor of all variances. The fourteen data sets
are formulas of the literature on computer experiments, draws from rough random functions, and columns of tables of
scikit-learn predicted from the others: none of them is in `coverage.py`, nor in a table of the papers.

    python benchmarks/choices.py [--rows 150] [--draws 1] [--only ishigami,wine]

pima needs RELVEC_DATA; without it it is left out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from unittest.mock import patch

import numpy as np
from coverage import N, line, measure
from relvec.inference.process import Process, predictor
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from threadpoolctl import threadpool_limits

from relvec import RVR
from reproduction import DATASETS, MissingData
from reproduction.rq05 import as_fitted

SHARES = ((0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (0.5, 0.5), (1.0, 1.0), (0.3, 1.0), (0.2, 1.0))
COSTS = (0, 1, 2)
Set = tuple[np.ndarray, np.ndarray]


def noisy(f: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    return f + ratio * f.std() * rng.standard_normal(len(f))


def box(rng: np.random.Generator, low: list[float], high: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs in the unit cube, and the same (d, N) between bounds."""
    U = rng.uniform(size=(N, len(low)))
    return U, (np.array(low) + U * (np.array(high) - np.array(low))).T


def ishigami(rng: np.random.Generator) -> Set:
    X = rng.uniform(-np.pi, np.pi, (N, 3))
    return X, noisy(np.sin(X[:, 0]) * (1.0 + 0.1 * X[:, 2] ** 4) + 7.0 * np.sin(X[:, 1]) ** 2, 0.1, rng)


def branin(rng: np.random.Generator) -> Set:
    U, (x, z) = box(rng, [-5.0, 0.0], [10.0, 15.0])
    f = (z - 5.1 / (4.0 * np.pi**2) * x**2 + 5.0 / np.pi * x - 6.0) ** 2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(
        x
    )
    return U, noisy(f, 0.2, rng)


def borehole(rng: np.random.Generator) -> Set:
    U, (rw, r, Tu, Hu, Tl, Hl, L, Kw) = box(
        rng, [0.05, 100, 63070, 990, 63.1, 700, 1120, 9855], [0.15, 50000, 115600, 1110, 116, 820, 1680, 12045]
    )
    log = np.log(r / rw)
    return U, noisy(
        2.0 * np.pi * Tu * (Hu - Hl) / (log * (1.0 + 2.0 * L * Tu / (log * rw**2 * Kw) + Tu / Tl)), 0.1, rng
    )


def piston(rng: np.random.Generator) -> Set:
    U, (M, S, V0, k, P0, Ta, T0) = box(
        rng, [30, 0.005, 0.002, 1000, 90000, 290, 340], [60, 0.02, 0.01, 5000, 110000, 296, 360]
    )
    A = P0 * S + 19.62 * M - k * V0 / S
    V = S / (2.0 * k) * (np.sqrt(A**2 + 4.0 * k * P0 * V0 / T0 * Ta) - A)
    return U, noisy(2.0 * np.pi * np.sqrt(M / (k + S**2 * P0 * V0 / T0 * Ta / V**2)), 0.1, rng)


def products(rng: np.random.Generator) -> Set:
    U, a = rng.uniform(size=(N, 5)), np.array([0.0, 1.0, 4.5, 9.0, 99.0])
    return U, noisy(np.prod((np.abs(4.0 * U - 2.0) + a) / (1.0 + a), axis=1), 0.3, rng)


def wave(rng: np.random.Generator) -> Set:
    x = rng.normal(0.0, 2.0, (N, 1))
    return x, noisy(0.5 * x[:, 0] + np.sin(3.0 * x[:, 0]) * np.exp(-0.1 * x[:, 0] ** 2), 0.3, rng)


def rough(rng: np.random.Generator, d: int, frequency: float, noise: float) -> Set:
    """A sum of random waves whose frequencies have heavy tails."""
    X, W = rng.standard_normal((N, d)), frequency * rng.standard_t(3, (400, d))
    return X, noisy(np.cos(X @ W.T + rng.uniform(0.0, 2.0 * np.pi, 400)) @ rng.standard_normal(400), noise, rng)


def heavy(rng: np.random.Generator) -> Set:
    X = rng.uniform(-1.0, 1.0, (N, 4))
    return X, np.tanh(4.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_t(4, N)


def plane(rng: np.random.Generator) -> Set:
    X = rng.standard_normal((N, 8))
    return X, noisy(X @ np.arange(8.0) + 0.5 * X[:, 0] * X[:, 7], 0.5, rng)


def column(X: np.ndarray, j: int) -> Set:
    """One column of a table as the target."""
    return np.delete(X, j, axis=1), X[:, j]


def glucose(rng: np.random.Generator) -> Set:
    data = DATASETS["pima_ripley"].load()
    return column(np.vstack([data["X_train"], data["X_test"]]), 1)


SETS: dict[str, Callable[[np.random.Generator], Set]] = {
    "ishigami": ishigami, "branin": branin, "borehole": borehole, "piston": piston, "products": products, "wave": wave,
    "rough of 3": lambda rng: rough(rng, 3, 0.75, 0.3), "rough of 6": lambda rng: rough(rng, 6, 0.375, 0.05),
    "heavy": heavy, "plane": plane, "wine": lambda rng: column(load_wine().data, 0),
    "cancer": lambda rng: column(load_breast_cancer().data[:, :10], 4),
    "iris": lambda rng: column(load_iris().data, 0), "pima": glucose,
}  # fmt: skip


def models(rvm: RVR, X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, Callable]]:
    """The process with every share and every cost of a choice."""
    selection_factor = predictor.selection_factor
    for share in SHARES:
        words = "/".join(f"{s:g}" for s in dict.fromkeys(share))
        for cost in COSTS:

            def factor(n: float, chosen: int, cost: int = cost) -> float:
                return selection_factor(n, cost * chosen)

            with (
                patch.object(predictor, "_WEIGHT_DEVIATION_SHARES", share),
                patch.object(predictor, "selection_factor", factor),
            ):
                model = as_fitted(rvm, Process(), X, y)
            yield f"{words}, {cost}", partial(model.predict, return_std=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--only", default=",".join(SETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, list[np.ndarray]] = {}
    for name in options.only.split(","):
        for draw in range(options.draws):
            rng = np.random.default_rng([7, draw])
            try:
                X, y = SETS[name](rng)
            except MissingData as missing:
                print(f"{name:16}left out: {missing}")
                break
            with threadpool_limits(1):
                for words, row in measure(
                    X, y, min(options.rows, len(X) // 2), "learn-per-feature", rng, models
                ).items():
                    found.setdefault(words, []).append(row)
    print(f"{'':16}{'share, cost':11}  50, 80, 90 and 95% intervals, log density, RMSE: inside | far")
    for words, rows in found.items():
        print(line(f"mean of {len(rows)}", words, np.mean(rows, axis=0)))


if __name__ == "__main__":
    main()
