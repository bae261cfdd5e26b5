"""Kernels on training rows against kernels whose centres move, at the same width.

    python benchmarks/centres.py                              # ten tables, one draw each
    python benchmarks/centres.py --only sinc ripley --draws 5

The tables are those of `widths.py` (from files: RELVEC_DATA), inputs and the targets of regression standardised, at
most `--rows` rows to learn from. The width is GRVM's: the one of most evidence over weights and centres
(``width="grvm"``), the same for all. The ways are those of the parameter ``centres``: "data" has its kernels on
training rows, "grvm" moves them by GRVM's section 4, "move" by shifts, mergers, splits and additions that raise the
evidence. The error is the mean square in units of the target's variance, or the share of rows classified wrongly;
evidence is that of the weights, log E that over weights and centres. CPU seconds are for the fit at the given width,
on one thread.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from widths import CLASSES, classes, quality, regression, standardised

from relvec import RVC, RVR
from relvec.solvers import Sequential

TABLES = ("sinc", "friedman1", "friedman2", "diabetes", "boston", "ripley", "pima_ripley", "breast-cancer", "bupa",
          "banana")  # fmt: skip
WAYS = ("data", "grvm", "move")


def table(name: str, draw: int, most: int) -> tuple:
    """X, y, X_test, y_test of one draw, with at most so many rows to learn from."""
    if name in CLASSES:
        X, y, *test = classes(name, draw)
    else:
        X, y, *test = next(rows for other, *rows in regression(draw) if other == name)
    few = np.random.default_rng(draw).permutation(len(X))[:most]
    return standardised(X[few], y[few], *test, targets=name not in CLASSES)


def measure(name: str, way: str, width, data: tuple) -> dict:
    """Fit one way and return what it cost and what it is worth."""
    X, y, X_test, y_test = data
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = (RVC if name in CLASSES else RVR)(width=width, centres=way).fit(X, y)
    spent = time.process_time() - began
    error, density = quality(model, X_test, y_test)
    over = model.placement_.log_evidence if hasattr(model, "placement_") else np.nan
    return {"vectors": len(model.centres_), "error": error, "density": density, "over": over, "seconds": spent,
            "evidence": model.log_marginal_likelihood_}  # fmt: skip


def chosen(name: str, data: tuple) -> float:
    """GRVM's width."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = (RVC if name in CLASSES else RVR)(width="grvm", solver=Sequential(restarts=0)).fit(*data[:2])
    return model.width_


def compare(names: list[str], draws: int, most: int) -> None:
    """Print the table, a row as soon as it is there."""
    print("| table | centres | vectors | error | log density | evidence | log E | CPU s | width | draws |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        data = [table(name, draw, most) for draw in range(draws)]
        widths = [chosen(name, each) for each in data]
        for way in WAYS:
            rows = [measure(name, way, width, each) for width, each in zip(widths, data, strict=True)]
            mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            over = "" if np.isnan(mean["over"]) else f"{mean['over']:.1f}"
            print(
                f"| {name} | {way} | {mean['vectors']:.1f} | {mean['error']:.4f} | {mean['density']:.3f} "
                f"| {mean['evidence']:.1f} | {over} | {mean['seconds']:.1f} | {np.mean(widths):.2f} | {draws} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--only", nargs="*", default=TABLES, choices=TABLES)
    args = parser.parse_args()
    compare(args.only, args.draws, args.rows)


if __name__ == "__main__":
    main()
