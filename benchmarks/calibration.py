"""Held-out log loss, Brier score and calibration error of RVC, averaged, at the mode and RVM*, beside SVC, sigmoid.

    python benchmarks/calibration.py --draws 10

Prints a Markdown table: means over draws of the training rows, with their standard errors. The calibration error is
the mean distance of the predicted probability from the share of the class, over ten bins of equal count. "Far" is the
tenth of the rows farthest from the centre (features of unit variance), none of which is trained on.
"""

from __future__ import annotations

import argparse

import numpy as np
from harness.problems import PROBLEMS
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from relvec import RVC
from reproduction import DATASETS, MissingData


def mixtures(name: str, n: int):
    """(X, y, X_test, y_test, width) of a draw of the peers' problem."""

    def draw(seed: int):
        problem = PROBLEMS[name]
        return *problem.train(n, seed), *problem.test(5000, seed), problem.width

    return draw


def tumours(seed: int):
    """Half of the Wisconsin breast cancer table, standardised, width 2 sqrt(d)."""
    X, y = load_breast_cancer(return_X_y=True)
    X, Z, y, z = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
    scale = StandardScaler().fit(X)
    return scale.transform(X), y, scale.transform(Z), z, 2.0 * X.shape[1] ** 0.5


def far(name: str, rows: int):
    """Rows drawn from the inner nine tenths of a table to learn from, the outer tenth to test on; width sqrt(d)."""

    def draw(seed: int):
        data = DATASETS[name].load()
        split = "X_train" in data
        X, y = (np.concatenate([data[f"{k}_train"], data[f"{k}_test"]]) if split else data[k] for k in "Xy")
        X = StandardScaler().fit_transform(X)
        order = np.argsort(np.linalg.norm(X, axis=1))
        inner, outer = np.array_split(order, [len(X) - len(X) // 10])
        chosen = np.random.default_rng(seed).choice(inner, rows, replace=False)
        positive = (y == y.max()).astype(int)
        return X[chosen], positive[chosen], X[outer], positive[outer], X.shape[1] ** 0.5

    return draw


TABLES = {
    "ripley, 100 rows": mixtures("ripley", 100),
    "ripley, 400 rows": mixtures("ripley", 400),
    "three-gaussians, 100 rows": mixtures("three-gaussians", 100),
    "breast cancer, 284 rows": tumours,
    "pima, far, 200 rows": far("pima_ripley", 200),
    "banana, far, 200 rows": far("banana", 200),
    "ripley, far, 200 rows": far("ripley", 200),
    "waveform, far, 200 rows": far("waveform", 200),
    "german, far, 200 rows": far("german", 200),
}


def calibration_error(z: np.ndarray, p: np.ndarray, bins: int = 10) -> float:
    """Mean over bins of equal count of |mean probability - share of the class|."""
    parts = np.array_split(np.argsort(p, kind="stable"), bins)
    return float(np.mean([abs(p[i].mean() - z[i].mean()) for i in parts]))


def measure(draw, seed: int) -> dict[str, list[float]]:
    """Log loss, Brier score, calibration error and error (%) of each model."""
    X, y, Z, z, width = draw(seed)
    model = RVC(width=width).fit(X, y)
    found = {"RVC, averaged": model.predict_proba(Z)[:, 1]}
    found["RVC, mode"] = RVC(width=width, averaging="mode").fit(X, y).predict_proba(Z)[:, 1]
    star = RVC(width=width, predictive="augmented").fit(X, y)
    found["RVC, RVM*"] = star.predict_proba(Z)[:, 1]
    machine = CalibratedClassifierCV(SVC(gamma=width**-2.0), method="sigmoid", ensemble=False, cv=5).fit(X, y)
    found["SVC, sigmoid"] = machine.predict_proba(Z)[:, 1]
    return {name: [log_loss(z, p), brier_score_loss(z, p), calibration_error(z, p), 100 * np.mean((p > 0.5) != z)]
            for name, p in found.items()}  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    print("| data | model | log loss | Brier | calibration error | error % |\n|---|---|---|---|---|---|")
    for name, draw in TABLES.items():
        try:
            rows = [measure(draw, seed) for seed in range(options.draws)]
        except MissingData as missing:
            print(f"| {name} | left out: {missing} | | | | |")
            continue
        for model in rows[0]:
            values = np.array([row[model] for row in rows])
            errors = values.std(axis=0, ddof=1) / len(values) ** 0.5
            cells = [
                f"{m:.{d}f} ± {e:.{d}f}" for m, e, d in zip(values.mean(axis=0), errors, (3, 4, 3, 2), strict=True)
            ]
            print(f"| {name} | {model} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
