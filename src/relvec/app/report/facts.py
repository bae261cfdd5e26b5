"""The content of a report: sentences, scores, worst rows, columns and the fit, before it becomes a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from sklearn.pipeline import Pipeline

from relvec.app.report.advice import plain_warnings
from relvec.app.report.learning_curve import LearningCurve, learning_curve
from relvec.app.report.summary import summary
from relvec.app.tables.columns import names_of
from relvec.app.tables.evaluation import COVERAGE, Evaluation, Score, holds_training_rows
from relvec.app.tables.importance import Importance, column_importance
from relvec.app.tables.text import format_cell, format_range, format_to_error, format_with_error, plural

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
    step, scores = pipeline["columns"], {score.name: score for score in evaluation.scores}
    seen = not evaluation.folds and holds_training_rows(pipeline, evaluation.table)
    where = "On the rows it was fitted to" if seen else "On rows that it had not seen"
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
    p, y, table = evaluation.prediction, evaluation.observed, evaluation.table
    if p.proba is not None:
        assert p.label is not None
        own = p.proba[np.arange(len(y)), np.searchsorted(pipeline[-1].classes_, y)]
        order = np.array([i for i in np.argsort(own, kind="stable") if p.label[i] != y[i]], int)[:MAX_WORST_ROWS]
        header = ["observed", "its probability", "predicted"]
        found: list[list[object]] = [[str(y[i]), round(float(own[i]), 3), str(p.label[i])] for i in order]
    else:
        assert p.mean is not None and p.interval is not None and p.std is not None
        order = np.argsort(-np.abs(y - p.mean), kind="stable")[:MAX_WORST_ROWS]
        header = ["observed", "predicted", f"{COVERAGE:.0%} interval"]
        found = [
            [float(y[i]), float(p.mean[i]), format_range(p.interval[i, 0], p.interval[i, 1], p.std[i])] for i in order
        ]
    names = [name for name in names_of(pipeline["columns"].columns, "identifier") if name in table.names][:1]
    names += [name for name in columns if name not in names][:MAX_SHOWN_COLUMNS]
    shown = table.take(order).frame[names].astype(object)
    cells = shown.where(shown.notna(), None).to_numpy().tolist()
    rows = [[int(table.numbers[i]), *row, *own] for i, row, own in zip(order, found, cells, strict=True)]
    return ["row", *header, *names], rows
