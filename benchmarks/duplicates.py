"""Repeated rows: the density at fresh rows of fits whose training rows are partly copies, beside the fit without them.

    python benchmarks/duplicates.py --rows 1000,12000 --shares 0,0.03,0.2,0.6 --kinds exact,rounded,mixed
    python benchmarks/duplicates.py --tables FOLDER --names skillcraft --shares 0,0.6

A share of the rows of a training table are copies of the others: `exact`, `rounded` (inputs off by 1e-12 standard
deviations), or `mixed`: exact, and one row in a hundred measured a second time with another target. Made tables have a
rough function of nine inputs and as much noise; those of `tables.py` are drawn with replacement to reach --rows, or
taken as they are without it. Density is in nats a row at 2,000 fresh rows, or the rows of split 0.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from tables import split

from relvec import GPRegressor

FRESH_ROWS = 2000
ROUNDING = 1e-12
SECOND_SHARE = 0.01


def made(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a rough function of nine inputs; half of the target's variance is noise."""
    X = rng.normal(size=(n, 9))
    f = np.sin(2.0 * X[:, 0] * X[:, 1]) + np.abs(X[:, 2] + X[:, 3]) - 1.0 + 0.5 * np.sign(X[:, 4])
    return X, f + rng.normal(size=n)


def repeat(X: np.ndarray, y: np.ndarray, n: int, share: float, kind: str, rng: np.random.Generator):
    """N rows of X, y, of which a share are copies of others."""
    n_own = min(n - int(share * n), len(y))
    copies = rng.integers(0, n_own, n - n_own)
    index = np.concatenate([np.arange(n_own), copies])
    X_many, y_many = X[index], y[index]
    if kind == "rounded":
        X_many[n_own:] += ROUNDING * rng.normal(size=(n - n_own, X.shape[1]))
    if kind == "mixed":
        again = rng.integers(0, n_own, int(SECOND_SHARE * n))
        second = y[again] + y.std() * rng.normal(size=len(again))
        X_many, y_many = np.vstack([X_many, X[again]]), np.append(y_many, second)
    order = rng.permutation(len(y_many))
    return X_many[order], y_many[order]


def measure(X: np.ndarray, y: np.ndarray, X_new: np.ndarray, y_new: np.ndarray) -> tuple[float, str]:
    """Mean log density at new rows, and the status with the seconds of the fit."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPRegressor().fit(X, y)
    taken = time.process_time() - begun
    density = float(np.mean(model.log_predictive_density(X_new, y_new)))
    return density, f"{model.process_.status:<12}{np.sqrt(model.process_.noise_variance):>8.3f}{taken:>8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", type=Path, help="folder of .npz tables; made rows without it")
    parser.add_argument("--names", default="skillcraft", help="tables of the folder")
    parser.add_argument("--rows", default="", help="rows of a training table; default 1000,12000,40000, or the table's")
    parser.add_argument("--shares", default="0,0.03,0.2,0.6", help="shares of copies among the rows")
    parser.add_argument("--kinds", default="exact", help="of exact, rounded, mixed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'table':<12}{'rows':>6} {'copies':<8}{'share':>6}{'density':>9}{'without':>9}  status"
          f"{'noise':>14}{'CPU s':>8}")  # fmt: skip
    for name in options.names.split(",") if options.tables else ["made"]:
        for n in [int(n) for n in (options.rows or ("0" if options.tables else "1000,12000,40000")).split(",")]:
            rng = np.random.default_rng(options.seed)
            if options.tables:
                X, y, X_new, y_new = split(options.tables, name, 0)
            else:
                (X, y), (X_new, y_new) = made(n, rng), made(FRESH_ROWS, rng)
            size = n or len(y)
            for share in [float(share) for share in options.shares.split(",")]:
                kept = slice(0, size - int(share * size))
                alone = measure(X[kept], y[kept], X_new, y_new)[0]
                for kind in options.kinds.split(","):
                    density, told = measure(*repeat(X, y, size, share, kind, rng), X_new, y_new)
                    print(f"{name:<12}{size:>6} {kind:<8}{share:>6.2f}{density:>9.3f}{alone:>9.3f}  {told}", flush=True)


if __name__ == "__main__":
    main()
