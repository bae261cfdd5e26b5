"""What each device of the search adds to the evidence, and whether a higher evidence predicts better.

    python benchmarks/search.py                    # all tables, a few draws, default effort levels
    python benchmarks/search.py --long 600         # also a search of ten minutes a table (first draw only)

Tables: Boston and KIN40K (500 rows) where RELVEC_DATA has them, Friedman #1-3, diabetes. Inputs and target
standardised, Gaussian kernel of width sqrt(d). Each row is one level of effort; evidence is given relative to a
single greedy path (TF03: the one action of largest gain at a time, no exchange, no restart), averaged over draws.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3

from relvec import RVR
from relvec.solvers import Sequential

LEVELS = {
    "greedy path (TF03)": {"select": "gain", "noise_every": 5, "stop": "tf03"},
    "batched path": {"exchange": False, "restarts": 0},
    "+ exchange": {"restarts": 0},
    "+ 1 restart": {"restarts": 1},
    "+ 2 restarts": {"restarts": 2},
    "+ 3 restarts (default)": {},
    "+ 10 restarts": {"restarts": 10},
}


def tables(draws: int):
    """Yield (name, draw, X_train, y_train, X_test, y_test)."""
    folder = Path(os.environ.get("RELVEC_DATA", "nowhere"))
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        for name, make in (("friedman1", make_friedman1), ("friedman2", make_friedman2), ("friedman3", make_friedman3)):
            X, y = make(1240, random_state=draw)
            noise = {"friedman1": 1.0, "friedman2": 125.0, "friedman3": 0.1}[name]
            y_noisy = y + noise * rng.standard_normal(len(y))
            yield name, draw, X[:240], y_noisy[:240], X[240:], y_noisy[240:]
        X, y = load_diabetes(return_X_y=True)
        yield ("diabetes", draw, *_split(X, y, 342, rng))
        if (folder / "boston.npz").exists():
            data = np.load(folder / "boston.npz", allow_pickle=False)
            yield ("boston", draw, *_split(data["X"], data["y"], 455, rng))
        if (folder / "kin40k.npz").exists():
            data = np.load(folder / "kin40k.npz", allow_pickle=False)
            rows = rng.permutation(len(data["X_train"]))[:500]
            yield (
                "kin40k-500",
                draw,
                data["X_train"][rows],
                data["y_train"][rows],
                data["X_test"][:2000],
                data["y_test"][:2000],
            )


def _split(X, y, n, rng):
    rows = rng.permutation(len(X))
    return X[rows[:n]], y[rows[:n]], X[rows[n:]], y[rows[n:]]


def measure(options: dict, X, y, X_test, y_test, seconds: float | None = None) -> dict:
    """Fit one level and return evidence, test error and log density (standardised target), vectors, seconds."""
    Xm, Xs, ym, ys = X.mean(0), X.std(0), y.mean(), y.std()
    X, X_test, y, y_test = (X - Xm) / Xs, (X_test - Xm) / Xs, (y - ym) / ys, (y_test - ym) / ys
    solver = Sequential(**options)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RVR(kernel="gaussian", width=np.sqrt(X.shape[1]), solver=solver, time_limit=seconds, random_state=0)
        model.fit(X, y)
    spent = time.process_time() - began
    return {
        "evidence": model.log_marginal_likelihood_,
        "rmse": float(np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))),
        "density": float(np.mean(model.log_predictive_density(X_test, y_test))),
        "vectors": len(model.relevance_),
        "seconds": spent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--long", type=float, default=0.0, help="seconds of a long search, first draw of each table")
    parser.add_argument("--only", nargs="*", help="tables to run")
    args = parser.parse_args()
    results: dict[str, dict[str, list[dict]]] = {}
    for name, draw, *data in tables(args.draws):
        if args.only and name not in args.only:
            continue
        rows = {level: measure(options, *data) for level, options in LEVELS.items()}
        if args.long and draw == 0:
            rows[f"search of {args.long:.0f} s"] = measure({"restarts": 10**6}, *data, seconds=args.long)
        for level, row in rows.items():
            row["gain"] = row["evidence"] - rows["greedy path (TF03)"]["evidence"]
            results.setdefault(name, {}).setdefault(level, []).append(row)
    print("| table | effort | evidence over the greedy path (nats) | test RMSE | test log density | vectors | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name, levels in results.items():
        for level, rows in levels.items():
            mean = {key: np.mean([row[key] for row in rows]) for key in rows[0]}
            print(
                f"| {name} | {level} | {mean['gain']:+.2f} | {mean['rmse']:.4f} | {mean['density']:+.4f} "
                f"| {mean['vectors']:.1f} | {mean['seconds']:.2f} |"
            )


if __name__ == "__main__":
    main()
