"""The families of models: the estimator of each for a task, and their comparison by held-out rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold
from threadpoolctl import threadpool_limits

from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor
from relvec.app.tables.baselines import BASELINES, make_baseline
from relvec.app.tables.table import TableError
from relvec.app.tables.text import plural

__all__ = [
    "FAMILIES", "ComparedFamily", "compare_families", "default_family", "family_of", "folds_compared", "make_model",
]  # fmt: skip

FAMILIES = {"rvm": "relevance vector machine", "gp": "Gaussian process", "linear": "sparse linear model"}
UNITS = {"rvm": "function", "gp": "vector", "linear": "column"}  # what each keeps
FOLDS, MIN_ROWS_TO_COMPARE = 3, 20  # of the comparison, and the fewest rows that say anything
MAX_ROWS_OF_FOLDS = 2000  # of more rows, one fold alone is held out
LEAST_PROBABILITY = 1e-6  # of a class that no row fitted has


def make_model(family: str, task: str, censored: bool = False) -> Any:
    """Make the estimator of a family for a task, as it comes.

    >>> make_model("rvm", "count")
    RelevanceVectorRegressor(likelihood='poisson')
    """
    if censored and (family, task) != ("gp", "regression"):
        raise TableError("targets known by intervals (--upper) are for a Gaussian process: choose --model gp")
    if task == "classification":
        return {"rvm": RVC, "gp": GPClassifier, "linear": SparseBayesianClassifier}[family]()
    if task == "count":
        if family == "gp":
            raise TableError("a Gaussian process has no counts: choose --model rvm or linear, or --task regression")
        columns: dict[str, Any] = {} if family == "rvm" else {"kernel": None, "basis": "linear"}
        return RVR(likelihood="poisson", **columns)
    if family == "gp":
        return GPRegressor(likelihood="censored") if censored else GPRegressor()
    return {"rvm": RVR, "linear": SparseBayesianRegressor}[family]()


def family_of(model: Any) -> str:
    """Return the family of an estimator.

    >>> family_of(GPRegressor()), family_of(RVC())
    ('gp', 'rvm')
    """
    if isinstance(model, GPRegressor | GPClassifier):
        return "gp"
    linear = isinstance(model, SparseBayesianRegressor | SparseBayesianClassifier)
    return "linear" if linear or (model.kernel is None and model.basis == "linear") else "rvm"


def default_family(task: str) -> str:
    """Return the family that fits a task where nothing is compared.

    >>> default_family("regression"), default_family("count")
    ('gp', 'rvm')
    """
    return "rvm" if task == "count" else "gp"


@dataclass(frozen=True)
class ComparedFamily:
    """A family in a comparison.

    Attributes
    ----------
    family : "rvm", "gp" or "linear", or one of `BASELINES`, which is never chosen.
    size : functions, vectors or columns of the model, in the mean over the folds; nan for baselines.
    density : mean log density, or log probability, of held-out targets.
    rmse : root mean square error of these; of classes the share of rows that are taken for another.
    short : how far it is behind the best of the families, and the standard error of that difference; 0 and 0 for that.
    error : that standard error.
    seconds : of all fits.
    chosen : whether it is the smallest whose density is within a standard error of the best.

    Examples
    --------
    >>> ComparedFamily("rvm", 7.0, density=-0.31, rmse=0.32, short=0.05, error=0.02, seconds=0.4).cells()
    ('relevance vector machine', '7 functions', '-0.310', '-0.050 ± 0.020', '0.32', '0.4', '')
    """

    family: str
    size: float
    density: float
    rmse: float
    short: float
    error: float
    seconds: float
    chosen: bool = False

    def cells(self) -> tuple[str, ...]:
        """Return the comparison as a row of a table below `compared_header`."""
        behind = "best" if self.short == 0.0 else f"{-self.short:+.3f} ± {self.error:.3f}"
        size = plural(round(self.size), UNITS[self.family]) if self.family in UNITS else ""
        chosen = "chosen" if self.chosen else ""
        name = (FAMILIES | BASELINES)[self.family]
        return name, size, f"{self.density:.3f}", behind, f"{self.rmse:.4g}", f"{self.seconds:.1f}", chosen


def compared_header(task: str) -> tuple[str, ...]:
    """Return the header of a table of `ComparedFamily.cells`."""
    error = "errors" if task == "classification" else "RMSE"
    return ("model", "size", "held-out log density", "behind the best", error, "seconds", "")


def folds_compared(n: int) -> int:
    """Return how many folds of n rows are held out, one after the other.

    >>> folds_compared(500), folds_compared(5000)
    (3, 1)
    """
    return FOLDS if n <= MAX_ROWS_OF_FOLDS else 1


def compare_families(
    families: Sequence[str], make: Callable[[str], Any], X: np.ndarray, y: np.ndarray, task: str, seed: int = 0
) -> list[ComparedFamily]:
    """Compare families by the log density of rows held out, whole fits inside.

    Parameters
    ----------
    families : of those in `FAMILIES`, and of `BASELINES`, which are compared with them and not chosen.
    make : makes the estimator (or pipeline) of a family.
    X, y : (n, d) inputs, (n,) targets.
    task : "regression", "classification" or "count".
    seed : of the folds.

    Returns
    -------
    compared : the smallest whose density is within a standard error of the best is chosen.

    Examples
    --------
    >>> x = np.linspace(0.0, 1.0, 60)[:, None]
    >>> make = lambda family: make_model(family, "regression")
    >>> y = 2.0 * x[:, 0] + 0.1 * np.random.default_rng(0).standard_normal(60)
    >>> found = compare_families(["linear", "rvm"], make, x, y, "regression")
    >>> [compared.family for compared in found if compared.chosen]
    ['linear']
    """
    found = [_measure(family, make, X, y, task, seed) for family in families]
    best = max((logs for family, logs, *_ in found if family in FAMILIES), key=np.mean)
    compared = []
    for family, logs, size, rmse, seconds in found:
        behind = best - logs
        error = float(behind.std(ddof=1) / np.sqrt(len(behind))) if len(behind) > 1 else 0.0
        compared.append(ComparedFamily(family, size, float(logs.mean()), rmse, float(behind.mean()), error, seconds))
    close = [item for item in compared if item.short <= item.error and item.family in FAMILIES]
    smallest = min(close, key=lambda item: (item.size, item.short))
    return [replace(item, chosen=item is smallest) for item in compared]


def _measure(
    family: str, make: Callable[[str], Any], X: np.ndarray, y: np.ndarray, task: str, seed: int
) -> tuple[str, np.ndarray, float, float, float]:
    """Log densities of held-out rows, the mean size of the models, the error of their predictions, and seconds."""
    classes = task == "classification"
    splitter = StratifiedKFold if classes and np.unique(y, return_counts=True)[1].min() >= FOLDS else KFold
    folds = list(splitter(FOLDS, shuffle=True, random_state=seed).split(X, y))
    began, logs, sizes, errors = time.perf_counter(), [], [], []
    for train, test in folds[: folds_compared(len(X))]:
        model = make_baseline(family, task) if family in BASELINES else make(family)
        # threads of boosted trees wait for each other on a busy machine, a hundred times as long as one takes
        with threadpool_limits(1 if family in BASELINES else None):
            said = model.fit(X[train], y[train]).predict(X[test])
        errors.append(said != y[test] if classes else (said - y[test]) ** 2)
        if classes:
            place = {label: i for i, label in enumerate(model.classes_.tolist())}
            proba = np.column_stack([model.predict_proba(X[test]), np.full(len(test), LEAST_PROBABILITY)])
            own = [place.get(label, len(place)) for label in y[test].tolist()]
            logs.append(np.log(np.maximum(proba[np.arange(len(test)), own], LEAST_PROBABILITY)))
        else:
            logs.append(np.asarray(model.log_predictive_density(X[test], y[test])))
        sizes.append(np.nan if family in BASELINES else model.fitted_.n_kept)
    error = float(np.concatenate(errors).mean())
    seconds = time.perf_counter() - began
    return family, np.concatenate(logs), float(np.mean(sizes)), error if classes else error**0.5, seconds
