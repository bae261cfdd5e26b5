"""Student-t and heteroscedastic noise beside constant normal noise, and censored targets, on made data and on tables.

    python benchmarks/noise.py outliers [--models process --rows 200]   a tenth of the targets is wrong, or none
    python benchmarks/noise.py degrees                                  degrees of freedom found at N = 2,000
    python benchmarks/noise.py censored [--rows 200]                    targets above a limit are not seen
    python benchmarks/noise.py varying [--tables FOLDER --names servo,forest --folds 0,1]

Each takes `--draws` of made data and `--jobs`, the number of processes. "error" is the root mean square error at 2,000
clean new rows (for tables at the rows of the fold), "density" the mean log density there, in units of standardised
targets for tables (`benchmarks/tables.py` says what FOLDER holds); seconds are CPU seconds of the fit. "error / clean"
divides by the error of the normal model fitted to the same rows without the gross errors: of the means over draws, then
the largest of a draw; "function" is the same ratio of errors at the function, without the noise of new targets, and
"to normal" the density less that of normal noise on the same rows. Censored targets are compared with leaving their
rows out, with the limit taken for the target, and with targets that were all seen; "coverage" is that of 90 % intervals
at new targets, "noise" the deviation found over the true one.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from harness.parallel import measure_groups

from relvec import RVR, GPRegressor

MODELS: dict[str, Callable[..., Any]] = {
    "process": GPRegressor,
    "rvm": partial(RVR, width="learn"),
    "width 2": partial(RVR, width=2.0),
}
LEVELS = {
    "constant": lambda X, f: np.full(len(f), 0.3),
    "along an input": lambda X, f: np.exp(-1.5 + 0.5 * X[:, 0]),
    "in a band": lambda X, f: 0.1 + 0.6 * np.exp(-(X[:, 1] ** 2)),
    "with the mean": lambda X, f: 0.05 + 0.2 * np.abs(f),
}
VARYING_SIZES = (150, 500)  # rows of made data whose noise varies
HIDDEN = (0.3, 0.6)  # shares of censored targets
DEGREES, DEGREES_ROWS, DEGREES_DRAWS = (3.0, 5.0, 10.0), 2000, 10


def draw(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Inputs, a function of them, and a generator for noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1], rng


def measure(model: Any, X: np.ndarray, y: np.ndarray, new: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Error, density and CPU seconds of a fit."""
    clock = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - clock
    error = np.sqrt(np.mean((model.predict(new[0]) - new[1]) ** 2))
    return np.array([error, model.log_predictive_density(*new).mean(), seconds])


def measure_outliers(case: tuple[str, int, float, str, int]) -> np.ndarray:
    """Error, density, CPU seconds and error at the function of one draw."""
    name, n, share, noise, seed = case
    X, f, rng = draw(seed, n)
    y = f + 0.2 * rng.standard_normal(n)
    bad = np.flatnonzero(rng.uniform(size=n) < share)
    y[bad] += rng.choice([-1.0, 1.0], len(bad)) * rng.uniform(2.0, 10.0, len(bad))
    Xn, fn, rng = draw(10**6 + seed, 2000)
    model = MODELS[name](likelihood=noise)
    found = measure(model, X, y, (Xn, fn + 0.2 * rng.standard_normal(2000)))
    return np.append(found, np.sqrt(np.mean((model.predict(Xn) - fn) ** 2)))


def outliers(models: list[str], sizes: list[int], draws: int, jobs: int) -> None:
    print(f"{'model':12}{'rows':>6}{'errors':>8}  {'noise':12}{'error':>8}{'error / clean':>15}{'worst':>7}"
          f"{'function':>10}{'density':>9}{'to normal':>11}{'CPU s':>8}")  # fmt: skip
    cases = list(product(models, sizes, (0.0, 0.1), ("gaussian", "student-t"), range(draws)))
    for (name, n, share, noise), rows in measure_groups(measure_outliers, cases, jobs):
        error, density, seconds, at_function = np.transpose(rows)
        if noise == "gaussian":
            normal = density.mean()
            if share == 0.0:
                clean, clean_at_function = error, at_function
        print(f"{name:12}{n:6}{share:8.0%}  {noise:12}{error.mean():8.3f}{error.mean() / clean.mean():15.2f}"
              f"{np.max(error / clean):7.2f}{at_function.mean() / clean_at_function.mean():10.2f}{density.mean():9.3f}"
              f"{density.mean() - normal:11.3f}{seconds.mean():8.1f}", flush=True)  # fmt: skip


def measure_degrees(case: tuple[float, int]) -> float:
    nu, seed = case
    X, _, rng = draw(seed, DEGREES_ROWS)
    y = X @ [1.0, -0.5] + 0.3 * rng.standard_t(nu, DEGREES_ROWS)
    return RVR(kernel=None, basis="linear", likelihood="student-t").fit(X, y).degrees_of_freedom_


def degrees(jobs: int) -> None:
    print(f"{'true':>6}{'found, ten draws':>20}")
    for (nu,), found in measure_groups(measure_degrees, list(product(DEGREES, range(DEGREES_DRAWS))), jobs):
        print(f"{nu:6.0f}{min(found):12.2f} to{max(found):6.2f}", flush=True)


def measure_censored(case: tuple[int, float, int]) -> dict[str, np.ndarray]:
    """Error, density, coverage, noise and CPU seconds of the ways to treat hidden targets, for one draw."""
    n, share, seed = case
    X, f, rng = draw(seed, n)
    y = f + 0.3 * rng.standard_normal(n)
    limit = float(np.quantile(y, 1.0 - share))
    seen = y < limit
    ends = np.column_stack([np.minimum(y, limit), np.where(seen, y, np.inf)])
    Xn, fn, other = draw(10**6 + seed, 2000)
    new = Xn, fn + 0.3 * other.standard_normal(2000)
    fits = {"all seen": (X, y), "limit as seen": (X, ends[:, 0]), "hidden left out": (X[seen], y[seen]),
            "censored": (X, ends)}  # fmt: skip
    found = {}
    for kind, rows in fits.items():
        model = GPRegressor(likelihood="censored" if kind == "censored" else "gaussian")
        error, density, seconds = measure(model, *rows, new)
        low, high = model.predict_interval(Xn).T
        inside = np.mean((low <= new[1]) & (new[1] <= high))
        found[kind] = np.array([error, density, inside, np.sqrt(model.noise_variance_) / 0.3, seconds])
    return found


def censored(sizes: list[int], draws: int, jobs: int) -> None:
    print(f"{'rows':>6}{'hidden':>8}  {'rows fitted':17}{'error':>8}{'density':>9}{'coverage':>10}"
          f"{'noise':>7}{'CPU s':>8}")  # fmt: skip
    cases = list(product(sizes, HIDDEN, range(draws)))
    for (n, share), found in measure_groups(measure_censored, cases, jobs):
        for kind in found[0]:
            error, density, inside, noise, seconds = np.mean([own[kind] for own in found], axis=0)
            print(f"{n:6}{share:8.0%}  {kind:17}{error:8.3f}{density:9.3f}{inside:10.1%}{noise:7.2f}"
                  f"{seconds:8.1f}", flush=True)  # fmt: skip


def measure_varying(case: tuple[str, int, int]) -> np.ndarray:
    """Densities and seconds with constant and with varying noise, for one draw of made data."""
    level, n, seed = case
    (X, f, rng), (Xn, fn, other), spread = draw(seed, n), draw(10**6 + seed, 2000), LEVELS[level]
    new = Xn, fn + spread(Xn, fn) * other.standard_normal(2000)
    return compare(X, f + spread(X, f) * rng.standard_normal(n), new)


def measure_table(case: tuple[str, str, int]) -> tuple[int, np.ndarray]:
    """Rows, and the same as of made data, for one fold of a table."""
    folder, name, i = case
    data = np.load(Path(folder) / f"{name}.npz")
    X, y, test = data["X"].astype(float), data["y"].astype(float), data["fold"] == i
    mean, std = X[~test].mean(axis=0), X[~test].std(axis=0)
    T = (X - mean) / np.where(std > 0.0, std, 1.0)
    t = (y - y[~test].mean()) / y[~test].std()
    return int(np.sum(~test)), compare(T[~test], t[~test], (T[test], t[test]))


def varying(tables: list[tuple[str, str]], folds: list[int], draws: int, jobs: int) -> None:
    print(f"{'data':18}{'rows':>6}{'constant':>10}{'varying':>9}{'gain':>7}{'CPU s':>8}{'CPU s':>8}")
    made = list(product(LEVELS, VARYING_SIZES, range(draws)))
    for (level, n), rows in measure_groups(measure_varying, made, jobs):
        print_gain(level, n, np.mean(rows, axis=0))
    real = [(*table, i) for table, i in product(tables, folds)]
    for (_, name), found in measure_groups(measure_table, real, jobs):
        print_gain(name, found[0][0], np.mean([row for _, row in found], axis=0))


def compare(X: np.ndarray, y: np.ndarray, new: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Densities and seconds with constant and with varying noise."""
    plain, own = (measure(GPRegressor(noise=noise), X, y, new) for noise in ("constant", "heteroscedastic"))
    return np.array([plain[1], own[1], plain[2], own[2]])


def print_gain(data: str, n: int, found: np.ndarray) -> None:
    plain, own, seconds, more = found
    print(f"{data:18}{n:6}{plain:10.3f}{own:9.3f}{own - plain:7.3f}{seconds:8.1f}{more:8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("outliers", "degrees", "varying", "censored"))
    parser.add_argument("--models", default="process,rvm", help=f"for outliers: of {'; '.join(MODELS)}")
    parser.add_argument("--rows", default="200,600")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--tables")
    parser.add_argument("--names", default="")
    parser.add_argument("--folds", default="0,1")
    parser.add_argument("--jobs", type=int, default=1, help="processes; default 1")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    models, sizes = options.models.split(","), [int(n) for n in options.rows.split(",")]
    if options.what == "varying":
        tables = [(options.tables, name) for name in options.names.split(",") if name]
        varying(tables, [int(i) for i in options.folds.split(",")], options.draws, options.jobs)
    elif options.what == "outliers":
        outliers(models, sizes, options.draws, options.jobs)
    elif options.what == "censored":
        censored(sizes, options.draws, options.jobs)
    else:
        degrees(options.jobs)


if __name__ == "__main__":
    main()
