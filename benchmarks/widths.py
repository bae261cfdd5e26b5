"""Widths by evidence against one width by cross-validation and the width of the data's own scale.

    python benchmarks/widths.py                              # every table, one draw each
    python benchmarks/widths.py --only friedman1 boston --draws 5
    python benchmarks/widths.py --interleaving               # T01 C's interleaving by itself, on Friedman #1
    python benchmarks/widths.py --speed 240 2000 10000       # learn-per-feature: Friedman #1 (240 rows), KIN40K (more)

Regression tables are those of `search.py` and T01's sinc; the classes are Ripley's, the IDA benchmarks' and BUPA.
Inputs, and the targets of regression, are standardised; tables from files need RELVEC_DATA. "5-fold" fits one width
of `FACTORS` times the scale to every fold by a single path of the search, takes the best log density of the rows left
out, and fits once more with the default search. The error is the mean square in units of the target's variance, or the
share of rows classified wrongly; agreement is the share of starts that end within one nat of the best. CPU seconds
include everything up to the final model, on one thread.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from search import _split, tables
from sklearn.datasets import make_friedman1
from sklearn.model_selection import KFold, StratifiedKFold

from relvec import RVC, RVR
from relvec.hyperparameters.interleaving import Interleaved
from relvec.solvers import Sequential

FACTORS = (0.25, 0.5, 1.0, 1.5, 2.5, 4.0)  # of the scale, tried by cross-validation
WORDS = ("scale", "5-fold", "learn", "learn-per-feature")
REGRESSION = ("sinc", "friedman1", "friedman2", "friedman3", "diabetes", "boston", "kin40k-500")
CLASSES = ("titanic", "ripley", "pima_ripley", "breast-cancer", "bupa", "banana")


def folder() -> Path:
    """Where the tables are."""
    return Path(os.environ.get("RELVEC_DATA", "nowhere"))


def regression(draw: int) -> Iterator[tuple]:
    """Yield (name, X, y, X_test, y_test) of one draw."""
    rng = np.random.default_rng(draw)
    X, test = np.linspace(-10.0, 10.0, 100)[:, None], rng.uniform(-10.0, 10.0, (1000, 1))
    y, y_test = (np.sinc(Z[:, 0] / np.pi) + rng.normal(0.0, 0.1, len(Z)) for Z in (X, test))
    yield "sinc", X, y, test, y_test
    for name, number, *data in tables(draw + 1):
        if number == draw:
            yield (name, *data)


def classes(name: str, draw: int) -> tuple:
    """X, y, X_test, y_test of one draw: a stored split, or seven of ten rows where there is none."""
    with np.load(folder() / f"{name}.npz") as file:
        data = dict(file)
    if "X_train" in data:
        return data["X_train"], data["y_train"], data["X_test"], data["y_test"]
    X, y = data["X"], data["y"]
    if "train_splits" in data:
        train, test = data["train_splits"][draw], data["test_splits"][draw]
        return X[train], y[train], X[test], y[test]
    return _split(X, y, int(0.7 * len(X)), np.random.default_rng(draw))


def quality(model, X, y) -> tuple[float, float]:
    """Error and mean log density of a fitted model on new rows."""
    if isinstance(model, RVC):
        p = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
        return 1.0 - model.score(X, y), float(np.mean(np.log(np.maximum(p, 1e-12))))
    return float(np.mean((model.predict(X) - y) ** 2)), float(np.mean(model.log_predictive_density(X, y)))


def cross_validated(estimator, X, y) -> float:
    """The width of the best log density in five folds."""
    split = StratifiedKFold if estimator is RVC else KFold
    folds = list(split(5, shuffle=True, random_state=0).split(X, y))
    widths = [float(factor * np.sqrt(X.shape[1])) for factor in FACTORS]
    options = {"solver": Sequential(restarts=0), "tol": 1e-2}
    found = [
        np.mean([quality(estimator(width=width, **options).fit(X[a], y[a]), X[b], y[b])[1] for a, b in folds])
        for width in widths
    ]
    return widths[int(np.argmax(found))]


def measure(estimator, word: str, X, y, X_test, y_test) -> dict:
    """Fit one way and return what it cost and what it is worth."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        width = cross_validated(estimator, X, y) if word == "5-fold" else word
        model = estimator(width=width).fit(X, y)
    spent = time.process_time() - began
    error, density = quality(model, X_test, y_test)
    agreement = model.tuning_.agreement if hasattr(model, "tuning_") else np.nan
    return {"error": error, "density": density, "vectors": len(model.relevance_), "seconds": spent,
            "agreement": agreement}  # fmt: skip


def standardised(X, y, X_test, y_test, targets: bool) -> tuple:
    """The same with inputs, and perhaps targets, of mean 0 and variance 1."""
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    deviation[deviation == 0.0] = 1.0
    X, X_test = (X - mean) / deviation, (X_test - mean) / deviation
    if targets:
        y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
    return X, y, X_test, y_test


def compare(names: list[str], draws: int, words: list[str]) -> None:
    """Print the table, a row as soon as it is there."""
    print("| table | width | error | log density | vectors | CPU s | agreement | draws |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        data = []
        for draw in range(draws):
            if name in CLASSES:
                data.append(standardised(*classes(name, draw), targets=False))
            else:
                own = next(rows for other, *rows in regression(draw) if other == name)
                data.append(standardised(*own, targets=True))
        estimator = RVC if name in CLASSES else RVR
        for word in words:
            rows = [measure(estimator, word, *each) for each in data]
            mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            agreement = "" if np.isnan(mean["agreement"]) else f"{mean['agreement']:.0%}"
            print(
                f"| {name} | {word} | {mean['error']:.4f} | {mean['density']:.3f} | {mean['vectors']:.1f} "
                f"| {mean['seconds']:.1f} | {agreement} | {len(rows)} |",
                flush=True,
            )


def interleaved(X, y, eta_steps: int) -> np.ndarray:
    """Widths (d,) where T01 C's interleaving ends, from the scale's."""
    return RVR(width=Interleaved(eta_steps), solver="mackay").fit(X, y).width_


def baseline(draws: int) -> None:
    """T01 C by itself against `learn`, on Friedman #1: the error is against the function without noise."""
    print("| widths | mean squared error | vectors | distractors' share | CPU s | draws |")
    print("|---|---|---|---|---|---|", flush=True)
    test, truth = make_friedman1(1000, noise=0.0, random_state=10_000)
    ways = {"scale": 0, "T01 C, 1 step an update": 1, "T01 C, 5 steps an update": 5, "learn-per-feature": 0}
    for way, steps in ways.items():
        rows = []
        for draw in range(draws):
            X, y = make_friedman1(240, noise=1.0, random_state=draw)
            began = time.process_time()
            model = RVR(width=interleaved(X, y, steps) if steps else way).fit(X, y)
            spent = time.process_time() - began
            error = np.mean((model.predict(test) - truth) ** 2)
            rows.append((error, len(model.relevance_), model.feature_relevance_[5:].sum(), spent))
        error, vectors, share, spent = np.mean(rows, axis=0)
        print(f"| {way} | {error:.2f} | {vectors:.1f} | {share:.3f} | {spent:.1f} | {draws} |", flush=True)


def speed(sizes: list[int]) -> None:
    """Time of learn-per-feature: Friedman #1 (10 inputs) at 240 rows, KIN40K (8 inputs) at others."""
    print("| table | N | CPU s | wall s | vectors | error |\n|---|---|---|---|---|---|", flush=True)
    for n in sizes:
        if n == 240:
            name, rows = "friedman1", make_friedman1(1240, noise=1.0, random_state=0)
            data = rows[0][:n], rows[1][:n], rows[0][n:], rows[1][n:]
        else:
            name = "kin40k"
            with np.load(folder() / "kin40k.npz") as file:
                chosen = np.random.default_rng(0).choice(len(file["X_train"]), n, replace=False)
                data = file["X_train"][chosen], file["y_train"][chosen], file["X_test"], file["y_test"]
        began, row = time.perf_counter(), measure(RVR, "learn-per-feature", *standardised(*data, targets=True))
        wall = time.perf_counter() - began
        print(
            f"| {name} | {n} | {row['seconds']:.1f} | {wall:.1f} | {row['vectors']} | {row['error']:.4f} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[*REGRESSION, *CLASSES], choices=[*REGRESSION, *CLASSES])
    parser.add_argument("--widths", nargs="*", default=WORDS, choices=WORDS)
    parser.add_argument("--interleaving", action="store_true")
    parser.add_argument("--speed", nargs="*", type=int, metavar="N")
    args = parser.parse_args()
    if args.interleaving:
        baseline(args.draws)
    elif args.speed is not None:
        speed(args.speed or [240, 2000, 10_000])
    else:
        compare(args.only, args.draws, args.widths)


if __name__ == "__main__":
    main()
