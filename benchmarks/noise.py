"""Student-t and heteroscedastic noise beside constant normal noise, and censored targets, on made data and on tables.

    python benchmarks/noise.py outliers [--models process --rows 200]   a tenth of the targets is wrong, or none
    python benchmarks/noise.py degrees                                  degrees of freedom found at N = 2,000
    python benchmarks/noise.py censored [--models process --rows 200]   targets above a limit are not seen
    python benchmarks/noise.py varying [--models rvm --tables FOLDER --names servo,forest --folds 0,1]

"error" is the root mean square error at 2,000 clean new rows (for tables at the rows of the fold), "density" the mean
log density there, in units of standardised targets for tables (`benchmarks/tables.py` says what FOLDER holds); seconds
are CPU seconds of the fit. "error / clean" divides by the error of the normal model fitted to the same rows without
the gross errors. Censored targets are compared with leaving their rows out, with the limit taken for the target, and
with targets that were all seen; "coverage" is that of 90 % intervals at new targets, "noise" the deviation found over
the true one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from relvec import RVR

DRAWS = 5
MODELS: dict[str, dict[str, Any]] = {
    "process": {},
    "rvm": {"predictive": "rvm", "width": "learn"},
    "width 2": {"predictive": "rvm", "width": 2.0},
}
LEVELS = {
    "constant": lambda X, f: np.full(len(f), 0.3),
    "along an input": lambda X, f: np.exp(-1.5 + 0.5 * X[:, 0]),
    "in a band": lambda X, f: 0.1 + 0.6 * np.exp(-(X[:, 1] ** 2)),
    "with the mean": lambda X, f: 0.05 + 0.2 * np.abs(f),
}


def draw(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Inputs, a function of them, and a generator for noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1], rng


def measure(model: RVR, X: np.ndarray, y: np.ndarray, new: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Error, density and CPU seconds of a fit."""
    clock = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - clock
    error = np.sqrt(np.mean((model.predict(new[0]) - new[1]) ** 2))
    return np.array([error, model.log_predictive_density(*new).mean(), seconds])


def outliers(models: list[str], sizes: list[int]) -> None:
    print(
        f"{'model':10}{'rows':>6}{'errors':>8}  {'noise':12}{'error':>8}{'error / clean':>15}{'density':>9}{'CPU s':>8}"
    )
    for name in models:
        options = MODELS[name]
        for n in sizes:
            best = None
            for share in (0.0, 0.1):
                for noise in ("gaussian", "student-t"):
                    rows = []
                    for seed in range(DRAWS):
                        X, f, rng = draw(seed, n)
                        y = f + 0.2 * rng.standard_normal(n)
                        bad = np.flatnonzero(rng.uniform(size=n) < share)
                        y[bad] += rng.choice([-1.0, 1.0], len(bad)) * rng.uniform(2.0, 10.0, len(bad))
                        Xn, fn, rng = draw(10**6 + seed, 2000)
                        new = Xn, fn + 0.2 * rng.standard_normal(2000)
                        rows.append(measure(RVR(likelihood=noise, **options), X, y, new))
                    error, density, seconds = np.mean(rows, axis=0)
                    best = error if best is None else best
                    print(f"{name:10}{n:6}{share:8.0%}  {noise:12}{error:8.3f}{error / best:15.2f}{density:9.3f}"
                          f"{seconds:8.1f}", flush=True)  # fmt: skip


def degrees() -> None:
    print(f"{'true':>6}{'found, ten draws':>20}")
    for nu in (3.0, 5.0, 10.0):
        found = []
        for seed in range(10):
            X, _, rng = draw(seed, 2000)
            y = X @ [1.0, -0.5] + 0.3 * rng.standard_t(nu, 2000)
            model = RVR(kernel=None, basis="linear", likelihood="student-t").fit(X, y)
            found.append(model.degrees_of_freedom_)
        print(f"{nu:6.0f}{min(found):12.2f} to{max(found):6.2f}", flush=True)


def censored(models: list[str], sizes: list[int]) -> None:
    print(f"{'model':10}{'rows':>6}{'hidden':>8}  {'rows fitted':17}{'error':>8}{'density':>9}{'coverage':>10}"
          f"{'noise':>7}{'CPU s':>8}")  # fmt: skip
    for name in models:
        for n in sizes:
            for share in (0.3, 0.6):
                found: dict[str, list[np.ndarray]] = {}
                for seed in range(DRAWS):
                    X, f, rng = draw(seed, n)
                    y = f + 0.3 * rng.standard_normal(n)
                    limit = float(np.quantile(y, 1.0 - share))
                    seen = y < limit
                    ends = np.column_stack([np.minimum(y, limit), np.where(seen, y, np.inf)])
                    Xn, fn, other = draw(10**6 + seed, 2000)
                    new = Xn, fn + 0.3 * other.standard_normal(2000)
                    fits = {"all seen": (X, y), "limit as seen": (X, ends[:, 0]), "hidden left out": (X[seen], y[seen]),
                            "censored": (X, ends)}  # fmt: skip
                    for kind, rows in fits.items():
                        model = RVR(likelihood="censored" if kind == "censored" else "gaussian", **MODELS[name])
                        error, density, seconds = measure(model, *rows, new)
                        low, high = model.predict_interval(Xn).T
                        inside = np.mean((low <= new[1]) & (new[1] <= high))
                        own = [error, density, inside, np.sqrt(model.noise_variance_) / 0.3, seconds]
                        found.setdefault(kind, []).append(np.array(own))
                for kind, rows in found.items():
                    error, density, inside, noise, seconds = np.mean(rows, axis=0)
                    print(f"{name:10}{n:6}{share:8.0%}  {kind:17}{error:8.3f}{density:9.3f}{inside:10.1%}{noise:7.2f}"
                          f"{seconds:8.1f}", flush=True)  # fmt: skip


def varying(models: list[str], folder: str | None, names: list[str], folds: list[int]) -> None:
    print(f"{'data':18}{'model':10}{'rows':>6}{'constant':>10}{'varying':>9}{'gain':>7}{'CPU s':>8}{'CPU s':>8}")
    for model in models:
        options = MODELS[model]
        for level, spread in LEVELS.items():
            for n in (150, 500):
                rows = []
                for seed in range(DRAWS):
                    X, f, rng = draw(seed, n)
                    Xn, fn, other = draw(10**6 + seed, 2000)
                    new = Xn, fn + spread(Xn, fn) * other.standard_normal(2000)
                    rows.append(compare(options, X, f + spread(X, f) * rng.standard_normal(n), new))
                print_gain(level, model, n, np.mean(rows, axis=0))
    for name in names:
        data = np.load(Path(str(folder)) / f"{name}.npz")
        X, y, fold = data["X"].astype(float), data["y"].astype(float), data["fold"]
        rows = []
        for i in folds:
            test = fold == i
            mean, std = X[~test].mean(axis=0), X[~test].std(axis=0)
            T = (X - mean) / np.where(std > 0.0, std, 1.0)
            t = (y - y[~test].mean()) / y[~test].std()
            rows.append(compare({}, T[~test], t[~test], (T[test], t[test])))
        print_gain(name, "process", int(np.sum(fold != folds[0])), np.mean(rows, axis=0))


def compare(options: dict[str, Any], X: np.ndarray, y: np.ndarray, new: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Densities and seconds with constant and with varying noise."""
    plain, own = (measure(RVR(noise=noise, **options), X, y, new) for noise in ("constant", "heteroscedastic"))
    return np.array([plain[1], own[1], plain[2], own[2]])


def print_gain(data: str, model: str, n: int, found: np.ndarray) -> None:
    plain, own, seconds, more = found
    print(f"{data:18}{model:10}{n:6}{plain:10.3f}{own:9.3f}{own - plain:7.3f}{seconds:8.1f}{more:8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("outliers", "degrees", "varying", "censored"))
    parser.add_argument("--models", default="process,rvm")
    parser.add_argument("--rows", default="200,600")
    parser.add_argument("--tables")
    parser.add_argument("--names", default="")
    parser.add_argument("--folds", default="0,1")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        models = [name for name in options.models.split(",") if name]
        if options.what == "varying":
            names = [name for name in options.names.split(",") if name]
            varying(models, options.tables, names, [int(i) for i in options.folds.split(",")])
        elif options.what in ("outliers", "censored"):
            run = outliers if options.what == "outliers" else censored
            run(models, [int(n) for n in options.rows.split(",")])
        else:
            degrees()


if __name__ == "__main__":
    main()
