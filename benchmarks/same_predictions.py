"""Predictions of two installations on the same splits: the largest difference of each table and each set of classes.

    PYTHONPATH=BASE/src python benchmarks/same_predictions.py write base.npz --models RVR,RVC
    python benchmarks/same_predictions.py compare base.npz

`write` fits the regressor and the classifier named, as they come, to fold 0 of five tables and of five sets of
classes (RELVEC_DATA), and stores means, standard deviations and probabilities of the test rows. `compare` does the
same here and prints the largest differences, relative to the standard deviation of the training targets; exit code 1
where one is above 1e-10.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from classes import load  # noqa: E402
from sklearn.model_selection import StratifiedKFold  # noqa: E402

import relvec  # noqa: E402

TABLES = ("servo", "machine", "autompg", "stock", "pendulum")
CLASSES = ("ripley", "hepatitis", "australian", "iris", "wine")
MOST = 1e-10


def predict_table(name: str, regressor: str) -> np.ndarray:
    """Mean and standard deviation (n, 2) of the test rows of fold 0, in standard deviations of the training targets."""
    with np.load(Path(os.environ["RELVEC_DATA"]) / "tables" / f"{name}.npz") as file:
        X, y, fold = file["X"], file["y"], file["fold"]
    model = getattr(relvec, regressor)().fit(X[fold != 0], y[fold != 0])
    return np.column_stack(model.predict(X[fold == 0], return_std=True)) / y[fold != 0].std()


def predict_classes(name: str, classifier: str) -> np.ndarray:
    """Probabilities (n, K) of the test rows of the first split."""
    X, y, splits = load(name)
    train, test = splits[0] if splits else next(StratifiedKFold(10, shuffle=True, random_state=0).split(X, y))
    X = np.where(np.isnan(X), np.nanmedian(X[train], axis=0), X)
    return getattr(relvec, classifier)().fit(X[train], y[train]).predict_proba(X[test])


def predict_all(models: str) -> dict[str, np.ndarray]:
    """Predictions of all tables and sets by name."""
    regressor, classifier = models.split(",")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {name: predict_table(name, regressor) for name in TABLES}
        return found | {name: predict_classes(name, classifier) for name in CLASSES}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file")
    parser.add_argument("--models", default="GPRegressor,GPClassifier", help="regressor and classifier")
    arguments = parser.parse_args()
    found = predict_all(arguments.models)
    if arguments.action == "write":
        np.savez(arguments.file, **found)
        return 0
    with np.load(arguments.file) as base:
        differences = {name: float(np.abs(values - base[name]).max()) for name, values in found.items()}
    for name, difference in differences.items():
        print(f"{name:12s} {difference:.1e}")
    return int(max(differences.values()) > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
