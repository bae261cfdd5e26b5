"""The support vector machines of the papers' tables, by scikit-learn: C, epsilon and width by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import SVC, SVR

CS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
SPLINE_CS, SPLINE_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0), (0.02, 0.05, 0.1, 0.15, 0.2)
EPSILONS = (0.05, 0.1, 0.2, 0.4)  # in standard deviations of the targets
REGRESSION = (
    "the SVM is scikit-learn's; C, epsilon and width by 5-fold cross-validation of the squared error, C from "
    "1, 10, 100 and epsilon from " + ", ".join(f"{e:g}" for e in EPSILONS) + " standard deviations of the targets"
)
SPLINE = "the SVM's C and epsilon by 5-fold cross-validation from {} and {}".format(
    *(", ".join(f"{v:g}" for v in values) for values in (SPLINE_CS, SPLINE_EPSILONS))
)
CLASSES = "the SVM is scikit-learn's; C by 5-fold cross-validation of the error from " + ", ".join(f"{c:g}" for c in CS)


def gamma(width: float) -> float:
    """scikit-learn's gamma of a width: exp(-d^2 / width^2)."""
    return float(width) ** -2.0


def regressor(X: np.ndarray, t: np.ndarray, widths: Sequence[float], rng: np.random.Generator) -> Any:
    """Return the SVR of least squared error in five folds, refitted: for targets of any scale."""
    return regressors(X, t, widths, rng)[0]


def regressors(X: np.ndarray, t: np.ndarray, widths: Sequence[float], rng: np.random.Generator) -> tuple[Any, Any]:
    """Return that SVR, and the one of the largest epsilon whose error is within one standard error of the least."""
    mean, unit = float(t.mean()), float(t.std())
    grid = {"C": [1.0, 10.0, 100.0], "epsilon": list(EPSILONS), "gamma": [gamma(w) for w in widths]}
    search = GridSearchCV(SVR(), grid, cv=_folds(rng), scoring="neg_mean_squared_error").fit(X, (t - mean) / unit)
    score = search.cv_results_["mean_test_score"]
    epsilon = search.cv_results_["param_epsilon"].astype(float)
    sparser = max(_near(search), key=lambda i: (epsilon[i], score[i]))
    other = SVR(**search.cv_results_["params"][sparser]).fit(X, (t - mean) / unit)
    return Scaled(search.best_estimator_, mean, unit), Scaled(other, mean, unit)


def spline_regressor(kernel: Any, X: np.ndarray, t: np.ndarray, rng: np.random.Generator) -> SVR:
    """Return the same with another kernel, whose scale is left alone."""
    grid = {"C": list(SPLINE_CS), "epsilon": list(SPLINE_EPSILONS)}
    search = GridSearchCV(SVR(kernel=kernel, max_iter=200_000), grid, cv=_folds(rng), scoring="neg_mean_squared_error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the largest C ends at the limit
        return search.fit(X, t).best_estimator_


class Scaled:
    """An SVR of standardised targets, in the targets' units."""

    def __init__(self, model: SVR, mean: float, unit: float) -> None:
        self.model, self.mean, self.unit = model, mean, unit

    @property
    def support_(self) -> np.ndarray:
        return self.model.support_

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Targets (n,)."""
        return self.mean + self.unit * self.model.predict(X)


def choose_classifier(X: np.ndarray, y: np.ndarray, widths: Sequence[float], rng: np.random.Generator) -> dict:
    """C and gamma of least error in five folds; of equals the smoothest."""
    return _class_search(X, y, widths, rng).best_params_


def classifier(X: np.ndarray, y: np.ndarray, widths: Sequence[float], rng: np.random.Generator) -> SVC:
    """Return the SVC at the chosen C and width."""
    return SVC(**choose_classifier(X, y, widths, rng)).fit(X, y)


def classifiers(X: np.ndarray, y: np.ndarray, widths: Sequence[float], rng: np.random.Generator) -> tuple[SVC, SVC]:
    """Return that SVC, and the one of fewest vectors of those whose error is within one standard error of the least."""
    search = _class_search(X, y, widths, rng)
    near = [SVC(**search.cv_results_["params"][i]).fit(X, y) for i in _near(search)]
    return SVC(**search.best_params_).fit(X, y), min(near, key=lambda model: len(model.support_))


def _class_search(X: np.ndarray, y: np.ndarray, widths: Sequence[float], rng: np.random.Generator) -> GridSearchCV:
    split = StratifiedKFold(5, shuffle=True, random_state=int(rng.integers(2**31)))
    grid = {"C": list(CS), "gamma": sorted(gamma(w) for w in widths)}
    return GridSearchCV(SVC(), grid, cv=split, refit=False).fit(X, y)


def _near(search: GridSearchCV) -> np.ndarray:
    """Return settings whose score is within one standard error of the best one's."""
    score, spread = search.cv_results_["mean_test_score"], search.cv_results_["std_test_score"]
    return np.flatnonzero(score >= score.max() - spread[search.best_index_] / np.sqrt(5.0))


def _folds(rng: np.random.Generator) -> KFold:
    return KFold(5, shuffle=True, random_state=int(rng.integers(2**31)))
