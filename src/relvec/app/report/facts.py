"""The content of a report: sentences, warnings, scores, worst rows, columns and the fit, before it becomes a page."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import sklearn.model_selection
from sklearn.pipeline import Pipeline

from relvec.app.report.summary import summary
from relvec.app.tables.columns import names_of
from relvec.app.tables.evaluation import COVERAGE, Evaluation, Score
from relvec.app.tables.importance import Importance, column_importance, error_of, measure_of, negative_error
from relvec.app.tables.text import format_cell, format_range, format_to_error, format_with_error, plural

__all__ = ["CURES", "Facts", "LearningCurve", "gather_facts", "learning_curve", "plain_warnings"]

# Advice by the name of a fit's status (relvec.solvers.Status).
CURES = {
    "noise_floor": "The fit found almost no noise: the targets have none, or rows repeat. The share of rows within the "
    "90% intervals says how far the error bars can be trusted.",
    "max_iter": "The search reached its limit of steps. The model is usable; a longer search may find a better one.",
    "time_limit": "The time limit ended the search. The model is the best found by then.",
    "memory_limit": "More rows would have been kept if the memory limit had allowed for them. The model is usable.",
    "interrupted": "The fit was stopped early. The model is the best found by then.",
    "stalled": "The search ended with a small improvement left, lost in rounding errors. This is seldom serious.",
    "baseline": "A constant or a straight line predicts rows that were left out better than any richer model, and is "
    "the model: the columns tell little of the target, or rows are few, or repeat each other.",
    "constant_target": "All targets are equal, so the model is a constant.",
}


def plain_warnings(pipeline: Pipeline, evaluation: Evaluation) -> list[str]:
    """Return the warnings for the reader of a report, in sentences.

    >>> from relvec.app.tables.evaluation import evaluate_table
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "y").pipeline
    >>> len(plain_warnings(pipeline, evaluate_table(pipeline, table))) > 1
    True
    """
    model, scores = pipeline[-1], evaluation.by_name
    n, rows = len(evaluation.observed), pipeline["columns"].record_["rows"]
    cut = [note for note in pipeline["columns"].record_["notes"] if note.startswith("the time limit")]
    found = [f"{note[:1].upper()}{note[1:]}." for note in (*evaluation.notes, *cut)]
    found += [CURES[name] for name in dict.fromkeys(model.fitted_.status) if name in CURES]
    if n < 30:
        found.append(f"Only {plural(n, 'row')} to evaluate on: the scores are rough.")
    fitted = model.fitted_
    if not fitted.compared and len(fitted.kept_rows) > 0.5 * rows:
        found.append(f"{len(fitted.kept_rows):,} of {rows:,} rows were kept: the model is not sparse, often because "
                     "the kernel is too narrow for these data. Try a larger --width.")  # fmt: skip
    return found + (_doubt_error_bars(scores) if "coverage" in scores else _doubt_classes(scores))


def _doubt_error_bars(scores: dict[str, Score]) -> list[str]:
    """Warn of the scores of a regression."""
    found, held = [], scores["coverage"]
    if held.high < COVERAGE:
        found.append(f"The error bars are too narrow: the {COVERAGE:.0%} interval holds {held.value:.0%} of the "
                     "targets. Widen them before you base a decision on them.")  # fmt: skip
    elif held.low > COVERAGE + 0.05:
        found.append(f"The error bars are wide: the {COVERAGE:.0%} interval holds {held.value:.0%} of the targets.")
    if scores["R2"].low < 0:
        found.append("The predictions may be no better than the mean of the targets: the interval of R2 contains 0.")
    return found


def _doubt_classes(scores: dict[str, Score]) -> list[str]:
    """Warn of the scores of a classification."""
    found, right = [], scores["accuracy"]
    if "AUC" in scores and scores["AUC"].low < 0.5:
        found.append("The predictions may be no better than chance: the interval of the AUC contains 0.5.")
    if right.value <= right.baseline:
        found.append(f"Always predicting the most frequent class would be right as often ({right.baseline:.0%}).")
    return found


SHARES = (0.125, 0.25, 0.5)  # of the rows outside the last part; together less than one more fit
MIN_ROWS = 20  # a fit to fewer is not informative


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Errors of fits to more and more rows, at the same rows.

    Attributes
    ----------
    rows : (k,) rows that were fitted.
    error : (k,) RMSE, or log loss, at the rows of one fold.
    measure : "RMSE" or "log loss".

    Examples
    --------
    >>> curve = LearningCurve(np.array([25, 50, 100]), np.array([0.4, 0.2, 0.1]), "RMSE")
    >>> bool(curve.error[-1] < 0.75 * curve.error[-2])  # twice the rows: more of them would help
    True
    """

    rows: np.ndarray
    error: np.ndarray
    measure: str


def learning_curve(pipeline: Pipeline, evaluation: Evaluation, seed: int = 0) -> LearningCurve | None:
    """Fit parts of the rows of a cross-validation, and compare with its own predictions; None where there was none.

    Examples
    --------
    >>> from relvec import RVR
    >>> from relvec.app.tables.evaluation import evaluate_table
    >>> from relvec.app.tables.pipelines import fit_table
    >>> x = np.linspace(0.0, 12.0, 200)
    >>> table = {"x": x, "y": np.sin(x) + 0.1 * np.random.default_rng(0).normal(size=200)}
    >>> pipeline = fit_table(table, "y", model=RVR(width=1.0)).pipeline
    >>> learning_curve(pipeline, evaluate_table(pipeline, table, folds=2)).rows
    array([ 25,  50, 100])
    """
    n, y = len(evaluation.observed), evaluation.observed
    if not evaluation.folds:
        return None
    order = np.random.default_rng(seed).permutation(n)
    held, rest = np.sort(order[: n // evaluation.folds]), order[n // evaluation.folds :]
    sizes = [size for share in SHARES if (size := round(share * len(rest))) >= MIN_ROWS]
    sizes = [size for size in sizes if len(np.unique(y[rest[:size]])) == len(np.unique(y)) or y.dtype.kind == "f"]
    if not sizes:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit on all rows has said it
        scores = sklearn.model_selection.learning_curve(
            pipeline, evaluation.table.frame, y, train_sizes=sizes, cv=[(rest, held)], scoring=negative_error
        )[2][:, 0]
    classes = pipeline[-1].classes_ if pipeline["columns"].task == "classification" else None
    predicted = evaluation.prediction.mean if classes is None else evaluation.prediction.proba
    assert predicted is not None
    whole = error_of(y[held], predicted[held], classes)
    return LearningCurve(np.array([*sizes, len(rest)]), np.array([*-scores, whole]), measure_of(pipeline))


MAX_WORST_ROWS = 10
MAX_SHOWN_COLUMNS = 4  # of a worst row, the most important first
MIN_IMPORTANCE = 0.02  # of the largest: columns with less hardly matter


@dataclass(frozen=True, eq=False)
class Facts:
    """The content of a report.

    Attributes
    ----------
    heading : the task and the target, or a title that was given.
    sentences : the result for a reader who knows no statistics.
    warnings : what to be careful about.
    how : which rows were predicted, and by which model.
    scores : with their uncertainty and baseline.
    worst : header and rows of a table of the predictions that missed most.
    importance : loss of accuracy by shuffling each column.
    curve : errors of fits to parts of the rows, after a cross-validation.
    columns : name, kind and treatment of each column.
    notes : what was done with the table.
    model : names and values of what was fitted.
    options : of the estimator.

    Examples
    --------
    >>> from relvec import RVR
    >>> from relvec.app.tables.evaluation import evaluate_table
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": np.linspace(0.0, 6.0, 20), "y": np.sin(np.linspace(0.0, 6.0, 20))}
    >>> pipeline = fit_table(table, "y", model=RVR(width=1.0, noise_variance=0.01)).pipeline
    >>> facts = gather_facts(pipeline, evaluate_table(pipeline, table), title="Waves")
    >>> facts.heading, [name for name, *_ in facts.columns]
    ('Waves', ['x'])
    """

    heading: str
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    how: str
    scores: tuple[Score, ...]
    worst: tuple[list[str], list[list[object]]]
    importance: Importance
    curve: LearningCurve | None
    columns: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]
    model: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]


def gather_facts(pipeline: Pipeline, evaluation: Evaluation, title: str | None = None) -> Facts:
    """Gather the content of the report on a pipeline and its evaluation.

    Examples
    --------
    >>> from relvec.app.tables.evaluation import evaluate_table
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "y").pipeline
    >>> gather_facts(pipeline, evaluate_table(pipeline, table)).heading
    'Regression of y'
    """
    step, model = pipeline["columns"], pipeline[-1]
    importance = column_importance(pipeline, evaluation)
    done = [(c.name, c.kind, c.note or ("scaled to unit variance" if c.is_input else "")) for c in step.columns]
    facts = [*summary(pipeline), ("seconds", f"{step.record_['seconds']:.1f}")]
    options = [(name, repr(value)) for name, value in sorted(model.get_params(deep=False).items())]
    return Facts(
        heading=title or f"{step.task.capitalize()} of {step.target.name}",
        sentences=tuple(_sentences(pipeline, evaluation, importance)),
        warnings=tuple(plain_warnings(pipeline, evaluation)),
        how=_how(evaluation),
        scores=tuple(evaluation.scores),
        worst=find_worst_rows(pipeline, evaluation, importance.names),
        importance=importance,
        curve=learning_curve(pipeline, evaluation),
        columns=tuple(done),
        notes=tuple(step.record_["notes"]),
        model=tuple(facts),
        options=tuple(options),
    )


def table_columns(found: Importance) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: every column with its importance."""
    losses = zip(found.names, found.loss.tolist(), found.error.tolist(), strict=True)
    rows = [[name, format_with_error(loss, error)] for name, loss, error in losses]
    return ["column", f"rise of the {found.measure} ± error"], rows


def _how(evaluation: Evaluation) -> str:
    n = plural(len(evaluation.observed), "row")
    if evaluation.folds:
        return f"Each of {n} was predicted by a model fitted without it ({evaluation.folds}-fold cross-validation)."
    return f"The fitted model on {n} of {PurePath(evaluation.table.source).name}."


def _sentences(pipeline: Pipeline, evaluation: Evaluation, importance: Importance) -> list[str]:
    """Return the result for a reader who knows no statistics."""
    step, scores = pipeline["columns"], evaluation.by_name
    where = "On the rows it was fitted to" if evaluation.seen else "On rows that it had not seen"
    target = format_cell(step.target.name)
    if step.task == "classification":
        right = scores["accuracy"]
        found = [f"{where}, the model names the right class of {target} in {_in_100(right.value)} of 100 cases. Always "
                 f"naming the most frequent class would be right in {_in_100(right.baseline)}."]  # fmt: skip
    else:
        off, held = scores["MAE"], scores["coverage"]
        found = [
            f"{where}, the model's predictions of {target} are off by {_rounded(off.value, off)} on average. Always "
            f"predicting the same value would be off by {_rounded(off.baseline, off)}.",
            f"Every prediction comes with a range that should hold the true value in {_in_100(COVERAGE)} of 100 cases; "
            f"it did in {_in_100(held.value)}.",
        ]
    return [*found, _name_columns(importance)]


def _rounded(value: float, score: Score) -> str:
    return format_to_error(value, score.error)


def _in_100(share: float) -> str:
    return f"{100 * share:.0f}"


def _name_columns(importance: Importance) -> str:
    """Say which columns matter."""
    least = MIN_IMPORTANCE * max(float(importance.loss.max(initial=0.0)), 1e-300)
    found = zip(importance.names, importance.loss, importance.error, strict=True)
    matter = [format_cell(name) for name, loss, error in found if loss > max(least, 2 * error)]
    rest = len(importance.names) - len(matter)
    if not matter:
        return "No single column changes the predictions much."
    listed = matter[0] if len(matter) == 1 else f"{', '.join(matter[:5][:-1])} and {matter[:5][-1]}"
    more = len(matter) - 5
    others = f" ({more} more {'matters' if more == 1 else 'matter'} a little)" if more > 0 else ""
    tail = f"; {plural(rest, 'other column')} hardly {'matters' if rest == 1 else 'matter'}" if rest else ""
    return f"The predictions depend most on {listed}{others}{tail}."


def find_worst_rows(
    pipeline: Pipeline, evaluation: Evaluation, columns: Sequence[str]
) -> tuple[list[str], list[list[object]]]:
    """Return header and rows of a table of the predictions that missed most, with the first few of these columns."""
    table = evaluation.table
    if evaluation.prediction.proba is not None:
        header = ["observed", "its probability", "predicted"]
        order, found = _worst_classes(pipeline[-1].classes_, evaluation)
    else:
        header = ["observed", "predicted", f"{COVERAGE:.0%} interval"]
        order, found = _worst_numbers(evaluation)
    names = [name for name in names_of(pipeline["columns"].columns, "identifier") if name in table.names][:1]
    names += [name for name in columns if name not in names][:MAX_SHOWN_COLUMNS]
    shown = table.take(order).frame[names].astype(object)
    cells = shown.where(shown.notna(), None).to_numpy().tolist()
    rows = [[int(table.numbers[i]), *row, *own] for i, row, own in zip(order, found, cells, strict=True)]
    return ["row", *header, *names], rows


def _worst_classes(classes: np.ndarray, evaluation: Evaluation) -> tuple[np.ndarray, list[list[object]]]:
    """Return the rows whose own class was least probable among those predicted wrong, and what to tell of them."""
    p, y = evaluation.prediction, evaluation.observed
    assert p.label is not None and p.proba is not None
    own = p.proba[np.arange(len(y)), np.searchsorted(classes, y)]
    order = np.argsort(own, kind="stable")
    order = order[p.label[order] != y[order]][:MAX_WORST_ROWS]
    return order, [[str(y[i]), round(float(own[i]), 3), str(p.label[i])] for i in order]


def _worst_numbers(evaluation: Evaluation) -> tuple[np.ndarray, list[list[object]]]:
    """Return the rows with the largest errors, and what to tell of them."""
    p, y = evaluation.prediction, evaluation.observed
    assert p.mean is not None and p.interval is not None and p.std is not None
    order = np.argsort(-np.abs(y - p.mean), kind="stable")[:MAX_WORST_ROWS]
    ranges = [format_range(p.interval[i, 0], p.interval[i, 1], p.std[i]) for i in order]
    return order, [[float(y[i]), float(p.mean[i]), told] for i, told in zip(order, ranges, strict=True)]
