"""How many targets lie in nominal 50, 80, 90 and 95% intervals, on ten data sets.

The tenth of the inputs farthest from the centre (features of unit variance) is never trained on. "inside" is measured
on cases drawn like the training cases, "far" on that tenth. "sparse" is `RVR()`, "rvm" `RVR(kernel="gaussian")`,
"augmented" the same with RVM* (RQ05), "process" `GPRegressor()`, "exact GP" an exact process with one Gaussian kernel.

    python benchmarks/coverage.py [--rows 200] [--only sinc,diabetes]

boston and kin40k need RELVEC_DATA; without it they are left out.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import ndtri
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from threadpoolctl import threadpool_limits

from relvec import RVR, GPRegressor
from reproduction import DATASETS, MissingData
from reproduction._gp import fit_gp

LEVELS = (0.5, 0.8, 0.9, 0.95)
N = 2000


def sinc(rng: np.random.Generator, d: int, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(0.0, 4.0, (N, d))
    return X, np.sinc(np.linalg.norm(X, axis=1) / np.pi) + noise * rng.standard_normal(N)


def friedman(make: Callable, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return make(N, noise=noise, random_state=int(rng.integers(2**31)))


def trend(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_normal((N, 5))
    return X, X @ np.array([2.0, -1.0, 0.5, 0.0, 0.0]) + rng.standard_normal(N)


def steps(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_normal((N, 2))
    return X, np.sign(X[:, 0]) + 0.5 * np.sign(X[:, 1] - 0.5) + 0.2 * rng.standard_normal(N)


def stored(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    data = DATASETS[name].load()
    if "X" in data:
        return data["X"], data["y"]
    chosen = rng.choice(len(data["X_train"]), N, replace=False)
    return data["X_train"][chosen], data["y_train"][chosen]


SETS: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
    "sinc": lambda rng: sinc(rng, 1),
    "sinc of 2": lambda rng: sinc(rng, 2),
    "Friedman 1": lambda rng: friedman(make_friedman1, 1.0, rng),
    "Friedman 2": lambda rng: friedman(make_friedman2, 125.0, rng),
    "Friedman 3": lambda rng: friedman(make_friedman3, 0.1, rng),
    "trend": trend,
    "steps": steps,
    "diabetes": lambda rng: load_diabetes(return_X_y=True),
    "boston": lambda rng: stored("boston", rng),
    "kin40k": lambda rng: stored("kin40k", rng),
}


def distributions(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, Callable]]:
    """Functions of X that give mean and standard deviation, each fitted when it is asked for."""
    yield "sparse", RVR().fit(X, y).predict
    rvm = RVR(kernel="gaussian").fit(X, y)
    yield "rvm", rvm.predict
    yield "augmented", RVR(width=rvm.width_, predictive="augmented").fit(X, y).predict
    yield "process", GPRegressor().fit(X, y).predict
    gp = fit_gp(X, y, np.sqrt(X.shape[1]) * X.std(axis=0))
    yield "exact GP", lambda new, return_std: gp.predict(new)


def measure(X: np.ndarray, y: np.ndarray, rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """For each of the models: coverage (4,), log density and error inside, the same far out, seconds it takes more."""
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    order = np.argsort(np.linalg.norm(X, axis=1))
    far, near = order[-(len(X) // 10) :], rng.permutation(order[: -(len(X) // 10)])
    train, test = near[:rows], near[rows:]
    clock, found = time.process_time(), {}
    for name, predict in distributions(X[train], y[train]):
        parts, seconds = [], time.process_time() - clock
        for where in (test, far):
            mean, std = predict(X[where], return_std=True)
            error = y[where] - mean
            inside = np.abs(error / std)[:, None] < ndtri(0.5 + 0.5 * np.array(LEVELS))
            density = np.mean(-0.5 * (np.log(2.0 * np.pi) + (error / std) ** 2) - np.log(std))
            parts += [np.mean(inside, axis=0), [density, np.sqrt(np.mean(error**2))]]
        found[name] = np.concatenate([*parts, [seconds]])
        clock = time.process_time()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--only", default=",".join(SETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    header = "".join(f"{100 * level:5.0f}%" for level in LEVELS) + "  log dens.   RMSE"
    print(f"{'data set':16}{'predictive':11}{'inside':>8}{header[6:]}  |{'far':>6}{header[6:]}  |  CPU s")
    totals: dict[str, list[np.ndarray]] = {}
    for name in options.only.split(","):
        rng = np.random.default_rng(0)
        try:
            X, y = SETS[name](rng)
        except MissingData as missing:
            print(f"{name:16}left out: {missing}")
            continue
        with threadpool_limits(1):
            found = measure(X, y, options.rows, rng)
        for predictive, row in found.items():
            totals.setdefault(predictive, []).append(row)
            print(line(name, predictive, row), flush=True)
    for predictive, table in totals.items():
        print(line(f"mean of {len(table)}", predictive, np.mean(table, axis=0)))


def line(name: str, predictive: str, row: np.ndarray) -> str:
    inside, far = (
        "".join(f"{100 * share:6.1f}" for share in part[:4]) + f"{part[4]:11.3f}{part[5]:7.3f}"
        for part in np.split(row[:-1], 2)
    )
    return f"{name:16}{predictive:11}{inside}  |{far}  |{row[-1]:7.2f}"


if __name__ == "__main__":
    main()
