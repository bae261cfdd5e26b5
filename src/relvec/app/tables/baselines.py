"""What scikit-learn fits to the same rows, to compare with: a constant, a line, and boosted trees."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.stats import norm, poisson
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

BASELINES = {"constant": "a constant", "line": "a line (scikit-learn)", "trees": "boosted trees (scikit-learn)"}
FOLDS = 3  # in which a regression is left out of rows to see how far it errs


class Normal:
    """A regression of scikit-learn with normal errors, as large as those at rows that were left out."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        errors = y - cross_val_predict(self.model, X, y, cv=KFold(FOLDS, shuffle=True, random_state=0))
        self.deviation_ = max(float(np.sqrt(np.mean(errors**2))), np.finfo(float).tiny)
        self.model.fit(X, y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(X))

    def log_predictive_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(norm.logpdf(y, self.predict(X), self.deviation_))


class Counts(Normal):
    """A regression of scikit-learn whose predictions are the rates of counts."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        self.model.fit(X, y)
        return self

    def log_predictive_density(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(poisson.logpmf(y, self.predict(X)))


def make_baseline(name: str, task: str) -> Any:
    """Make a baseline of `BASELINES` for a task, with scikit-learn's defaults.

    >>> make_baseline("trees", "classification")
    HistGradientBoostingClassifier(random_state=0)
    """
    if task == "classification":
        return {
            "constant": DummyClassifier(strategy="prior"),
            "line": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
            "trees": HistGradientBoostingClassifier(random_state=0),
        }[name]
    counts = task == "count"
    loss = "poisson" if counts else "squared_error"
    model: Any = {
        "constant": DummyRegressor(),
        "line": make_pipeline(StandardScaler(), PoissonRegressor() if counts else RidgeCV(np.logspace(-3, 3, 13))),
        "trees": HistGradientBoostingRegressor(loss=loss, random_state=0),
    }[name]
    return Counts(model) if counts else Normal(model)
