"""Held-out log loss, Brier score and calibration error of RVC, averaged and at the mode, beside SVC with a sigmoid.

    python benchmarks/calibration.py --draws 10

Prints a Markdown table: means over draws of the training rows, with their standard errors. The calibration error is
the mean distance of the predicted probability from the share of the class, over ten bins of equal count.
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


TABLES = {
    "ripley, 100 rows": mixtures("ripley", 100),
    "ripley, 400 rows": mixtures("ripley", 400),
    "three-gaussians, 100 rows": mixtures("three-gaussians", 100),
    "breast cancer, 284 rows": tumours,
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
    found["RVC, mode"] = model.set_params(averaging="mode").predict_proba(Z)[:, 1]
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
        rows = [measure(draw, seed) for seed in range(options.draws)]
        for model in rows[0]:
            values = np.array([row[model] for row in rows])
            errors = values.std(axis=0, ddof=1) / len(values) ** 0.5
            cells = [
                f"{m:.{d}f} ± {e:.{d}f}" for m, e, d in zip(values.mean(axis=0), errors, (3, 4, 3, 2), strict=True)
            ]
            print(f"| {name} | {model} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
