"""Scores of predictions, with their uncertainty by resampling the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import kl_div
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import Pipeline

from relvec.app.tables.pipelines import Prediction, predict_table, row_digests, transform_table
from relvec.app.tables.table import Table, TableError, TableLike, as_table
from relvec.app.tables.target import has_target, target_of
from relvec.app.tables.text import format_range, format_to_error, format_with_error, plural
from relvec.runtime.progress import share_of_work, show_progress

__all__ = ["BASELINE_MEANING", "Evaluation", "Score", "calibrate_table", "evaluate_table"]

RESAMPLES = 1000  # fewer for long tables: at most MOST_DRAWS rows are drawn in all
MOST_DRAWS = 20_000_000
COVERAGE = 0.9
LOG_2PI_E = 1.0 + float(np.log(2 * np.pi))
SCORE_HEADER = ("score", "value ± error", "95% interval", "baseline", "meaning")
BASELINE_MEANING = "baseline: the score of the best prediction that is the same for every row"


@dataclass(frozen=True)
class Score:
    """A score with its uncertainty.

    Attributes
    ----------
    name : the name of the score.
    value : on the rows given.
    error : its standard error, the standard deviation over resampled rows.
    low, high : central 95% of the resampled values.
    meaning : one sentence.
    baseline : the score of the best prediction that is the same for every row (for the coverage the nominal one).

    Examples
    --------
    >>> Score("RMSE", 2.345, 0.12, 2.1, 2.6, "root mean square error", 5.0).cells()[:4]
    ('RMSE', '2.35 ± 0.12', '2.10 to 2.60', '5.00')
    """

    name: str
    value: float
    error: float
    low: float
    high: float
    meaning: str
    baseline: float = np.nan

    def cells(self) -> tuple[str, ...]:
        """Return the score as a row of a table below `SCORE_HEADER`."""
        return (self.name, format_with_error(self.value, self.error), format_range(self.low, self.high, self.error),
                format_to_error(self.baseline, self.error), self.meaning)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions and observed targets.

    Attributes
    ----------
    scores : list of Score
    table : the rows, those without a target left out.
    observed : (n,) targets.
    prediction : Prediction for these rows.
    notes : what was left out and what to be careful about, in words.
    folds : number of folds of the cross-validation, 0 for the fitted model itself.
    models : the pipelines that predicted, each with the places (m,) of its rows: one for each fold.
    seen : whether rows that the model was fitted on are among these.

    Examples
    --------
    >>> from relvec import RVR
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "y", model=RVR(width=2.0)).pipeline
    >>> found = evaluate_table(pipeline, table, folds=2)
    >>> sorted(found.by_name)[:2], found.folds, len(found.models)
    (['MAE', 'R2'], 2, 2)
    """

    scores: list[Score]
    table: Table
    observed: np.ndarray
    prediction: Prediction
    notes: tuple[str, ...]
    folds: int
    models: tuple[tuple[Pipeline, np.ndarray], ...]
    seen: bool

    @property
    def by_name(self) -> dict[str, Score]:
        """The scores by their names."""
        return {score.name: score for score in self.scores}


def calibrate_table(pipeline: Pipeline, table: TableLike) -> int:
    """Calibrate a fitted pipeline on rows that took no part in its fit: its intervals or sets hold their coverage.

    Parameters
    ----------
    pipeline : as `relvec.app.tables.pipelines.fit_table` makes it; it is changed
    table : Table, data frame or mapping of columns, with the target; rows without a target are left out

    Returns
    -------
    n_rows : int
        Rows that it was calibrated on.

    Examples
    --------
    >>> from relvec.app.tables.pipelines import fit_table
    >>> fitted = fit_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}, "y")
    >>> calibrate_table(fitted.pipeline, {"x": [0.5, 1.5, 2.5], "y": [0.4, 1.6, 2.4]})
    3
    """
    table = as_table(table)
    table = table.take(has_target(table, pipeline["columns"].target, upper_of(pipeline)))
    if not len(table):
        raise TableError(f"{table.source}: no row has a target, so there is nothing to calibrate on")
    pipeline[-1].calibrate(transform_table(pipeline, table)[0], target_of(pipeline, table))
    return len(table)


def upper_of(pipeline: Pipeline) -> str | None:
    """Return the column of upper ends, where targets were known by intervals; None elsewhere."""
    return pipeline["columns"].record_.get("upper")


def evaluate_table(pipeline: Pipeline, table: TableLike, *, folds: int = 0, seed: int = 0) -> Evaluation:
    """Compare a fitted pipeline's predictions with the targets of a table.

    Parameters
    ----------
    pipeline : as `relvec.app.tables.pipelines.fit_table` makes it
    table : Table, data frame or mapping of columns, with the target
    folds : int, default 0
        0 evaluates the pipeline as it is. From 2 on, it is fitted again on all but one part of the table and evaluated
        on that part, for each of so many parts: for a table that the pipeline was fitted on.
    seed : int, default 0
        Of the resampling and of the folds.

    Returns
    -------
    evaluation : Evaluation

    Examples
    --------
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> found = evaluate_table(fit_table(table, "y").pipeline, table)
    >>> [score.name for score in found.scores][:3]
    ['RMSE', 'MAE', 'R2']
    >>> found.notes[0][:40]
    'the table holds rows that the model was '
    """
    table, step, notes, upper = as_table(table), pipeline["columns"], [], upper_of(pipeline)
    if upper is not None and folds:
        raise TableError("cross-validation would fit the folds without their censored targets: evaluate on other rows")
    known = has_target(table, step.target, upper)
    if not known.any():
        raise TableError(f"{table.source}, column {step.target.name!r}: every target is missing")
    if not known.all():
        notes.append(f"{plural(int((~known).sum()), 'row')} left out: {step.target.name!r} is missing there"
                     + ("" if upper is None else ", or known by an interval only"))  # fmt: skip
    table = table.take(known)
    observed = target_of(pipeline, table)
    seen = folds == 0 and holds_training_rows(pipeline, table)
    models: tuple[tuple[Pipeline, np.ndarray], ...] = ((pipeline, np.arange(len(table))),)
    if folds == 0:
        if seen:
            notes.append("the table holds rows that the model was fitted on: new rows are predicted less well; use "
                         "cross-validation (--cv 5) or other rows for an honest figure")  # fmt: skip
        prediction = predict_table(pipeline, table, COVERAGE, quantiles=True)
    else:
        tested = _rows_to_test(pipeline, table, observed, folds)
        if len(tested) < len(table):
            notes.append(
                f"{plural(len(table) - len(tested), 'row')} not evaluated: fewer rows of their class than folds"
            )
        prediction, models = _out_of_fold(pipeline, table, observed, tested, folds, seed)
        table, observed = table.take(tested), observed[tested]
    notes += prediction.notes or step.unseen(table)
    density = None
    if folds == 0 and prediction.mean is not None:
        density = pipeline[-1].log_predictive_density(transform_table(pipeline, table)[0], observed)
    scores = _bootstrap_scores(_measures(pipeline, observed, prediction, density), len(observed), seed)
    return Evaluation(scores, table, observed, prediction, tuple(notes), folds, models, seen)


def holds_training_rows(pipeline: Pipeline, table: Table) -> bool:
    """Tell whether at least half of some rows of the fit are among the rows of a table.

    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = as_table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]})
    >>> holds_training_rows(fit_table(table, "y").pipeline, table)
    True
    """
    kept = pipeline["columns"].record_.get("digests", {"columns": [], "rows": []})
    fitted = kept["rows"]
    if not fitted or not set(kept["columns"]) <= set(table.names):
        return False
    rows = set(row_digests(table, kept["columns"]))
    return sum(row in rows for row in fitted) >= len(fitted) / 2


def _rows_to_test(pipeline: Pipeline, table: Table, y: np.ndarray, folds: int) -> np.ndarray:
    """Return the indices (r,) of the rows that folds can be made of: each fold needs a row of every class."""
    if not 2 <= folds <= len(y):
        raise TableError(f"cross-validation needs between 2 and {len(y)} folds (the number of rows), got {folds}")
    if pipeline["columns"].task != "classification":
        return np.arange(len(y))
    _, place, rows = np.unique(y, return_inverse=True, return_counts=True)
    if np.sum(rows >= folds) < 2:
        raise TableError(
            f"{table.source}: only one class has as many rows as there are folds ({folds}); use fewer folds"
        )
    return np.flatnonzero(rows[place] >= folds)


def _out_of_fold(
    pipeline: Pipeline, table: Table, y: np.ndarray, tested: np.ndarray, folds: int, seed: int
) -> tuple[Prediction, tuple[tuple[Pipeline, np.ndarray], ...]]:
    """Predict the rows `tested` by models that were fitted without them; the other rows are in every fit.

    Also return the models, each with the places among `tested` of the rows that it predicted.
    """
    kind = StratifiedKFold if pipeline["columns"].task == "classification" else KFold
    parts, models = [], []
    with show_progress(None), share_of_work():
        for k, (_, chosen) in enumerate(kind(folds, shuffle=True, random_state=seed).split(tested, y[tested])):
            test = tested[chosen]
            train = np.setdiff1d(np.arange(len(y)), test)
            with warnings.catch_warnings(), share_of_work(k, folds):
                warnings.simplefilter("ignore")  # the fit on all rows has said it
                fitted = clone(pipeline).fit(table.take(train), y[train])
            parts.append(predict_table(fitted, table.take(test), COVERAGE, quantiles=True))
            if parts[-1].proba is not None:  # columns for all classes of the model; the table may lack some
                proba = np.zeros((len(test), len(classes := pipeline[-1].classes_)))
                proba[:, np.searchsorted(classes, fitted[-1].classes_)] = parts[-1].proba
                parts[-1] = replace(parts[-1], proba=proba)
            models.append((fitted, chosen))
    order = np.argsort(np.concatenate([places for _, places in models]))

    def join(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else np.concatenate(values)[order]

    names = ("mean", "std", "interval", "quantiles", "proba", "label")
    return Prediction(*(join(name) for name in names)), tuple(models)


# Scores ----------------------------------------------------------------------------------------------------------

Measure = tuple[str, Callable[[np.ndarray], float], str, float]  # name, score of the rows drawn, meaning, baseline


def _measures(pipeline: Pipeline, y: np.ndarray, p: Prediction, density: np.ndarray | None) -> list[Measure]:
    if p.proba is not None:
        return _class_measures(pipeline[-1].classes_, y, p)
    assert p.mean is not None and p.interval is not None
    error, mean = y - p.mean, p.mean
    held = (p.interval[:, 0] <= y) & (y <= p.interval[:, 1])
    width = p.interval[:, 1] - p.interval[:, 0]

    def r_squared(i: np.ndarray) -> float:
        spread = np.sum((y[i] - y[i].mean()) ** 2)
        return float(1 - np.sum(error[i] ** 2) / spread) if spread > 0 else np.nan

    found: list[Measure] = [
        ("RMSE", lambda i: float(np.sqrt(np.mean(error[i] ** 2))), "root mean square error, in the target's units",
         float(np.std(y))),
        ("MAE", lambda i: float(np.mean(np.abs(error[i]))), "mean absolute error, in the target's units",
         float(np.mean(np.abs(y - np.median(y))))),
        ("R2", r_squared, "share of the target's variance that is explained; 0 is a constant, 1 is perfect", 0.0),
        ("coverage", lambda i: float(np.mean(held[i])),
         f"share of targets inside the {COVERAGE:.0%} interval; the baseline is the nominal coverage", COVERAGE),
        ("interval width", lambda i: float(np.mean(width[i])), f"mean width of the {COVERAGE:.0%} interval",
         float(np.ptp(np.quantile(y, [0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2])))),
    ]  # fmt: skip
    if pipeline["columns"].task == "count":
        deviance, constant = 2.0 * kl_div(y, mean), float(2.0 * np.mean(kl_div(y, y.mean())))
        meaning = "mean Poisson deviance; smaller is better"
        found.insert(3, ("deviance", lambda i: float(np.mean(deviance[i])), meaning, constant))
    if density is not None:
        meaning = "mean log density of the targets under their predictions; larger is better"
        constant = np.nan  # that of a normal variable with the targets' mean and variance
        if pipeline["columns"].task == "regression" and np.var(y) > 0:
            constant = -0.5 * (LOG_2PI_E + float(np.log(np.var(y))))
        found.append(("log density", lambda i: float(np.mean(density[i])), meaning, constant))
    return found


def _class_measures(classes: np.ndarray, y: np.ndarray, p: Prediction) -> list[Measure]:
    assert p.proba is not None
    assert p.label is not None
    right = p.label == y
    place = np.searchsorted(classes, y)
    member = np.eye(len(classes))[place]
    own = np.log(np.maximum(p.proba[np.arange(len(y)), place], 1e-15))
    square = np.sum((p.proba - member) ** 2, axis=1)

    def balanced_accuracy(i: np.ndarray) -> float:
        return float(np.mean([np.mean(right[i][place[i] == k]) for k in np.unique(place[i])]))

    share = member.mean(axis=0)
    seen = share[share > 0]
    found: list[Measure] = [
        ("accuracy", lambda i: float(np.mean(right[i])), "share of rows whose most probable class is the observed one",
         float(share.max())),
        ("balanced accuracy", balanced_accuracy, "the same, averaged over the classes", 1.0 / len(seen)),
        ("log loss", lambda i: float(-np.mean(own[i])), "minus the mean log probability of the observed class",
         float(-np.sum(seen * np.log(seen)))),
        ("Brier score", lambda i: float(np.mean(square[i])), "mean squared error of the probabilities",
         float(1.0 - np.sum(share**2))),
    ]  # fmt: skip
    if p.members is not None:
        inside, size = p.members[np.arange(len(y)), place], p.members.sum(axis=1)
        found += [
            ("set coverage", lambda i: float(np.mean(inside[i])), f"share of {COVERAGE:.0%} sets that hold the class",
             COVERAGE),
            ("set size", lambda i: float(np.mean(size[i])), f"mean number of classes in the {COVERAGE:.0%} set",
             float(len(classes))),
        ]  # fmt: skip
    if len(classes) == 2:
        positive, score = place == 1, p.proba[:, 1]
        meaning = f"probability that a row of class {str(classes[1])!r} is ranked above one of {str(classes[0])!r}"
        found.append(("AUC", lambda i: _area(positive[i], score[i]), meaning, 0.5))
    return found


def _area(positive: np.ndarray, score: np.ndarray) -> float:
    """Return the area under the ROC curve, ties counted half; NaN without both classes."""
    n, m = int(positive.sum()), int((~positive).sum())
    return float((rankdata(score)[positive].sum() - n * (n + 1) / 2) / (n * m)) if n and m else np.nan


def _bootstrap_scores(measures: list[Measure], n: int, seed: int) -> list[Score]:
    """Return the scores with their bootstrap distribution, from the same resampled rows for all."""
    rng, draws = np.random.default_rng(seed), max(50, min(RESAMPLES, MOST_DRAWS // n))
    values = np.empty((len(measures), draws))
    for b in range(draws):
        rows = rng.integers(n, size=n)
        values[:, b] = [measure(rows) for _, measure, _, _ in measures]
    everything, scores = np.arange(n), []
    for (name, measure, meaning, baseline), found in zip(measures, values, strict=True):
        found = found[np.isfinite(found)]
        low, high = np.quantile(found, [0.025, 0.975]) if found.size else (np.nan, np.nan)
        error = float(found.std(ddof=1)) if found.size > 1 else np.nan
        scores.append(Score(name, measure(everything), error, float(low), float(high), meaning, baseline))
    return scores
