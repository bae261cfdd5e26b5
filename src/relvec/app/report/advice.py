"""Warnings in plain words: what a reader of a report should be careful about, and what to do."""

from __future__ import annotations

from sklearn.pipeline import Pipeline

from relvec.app.tables.evaluation import COVERAGE, Evaluation
from relvec.app.tables.text import plural

# Advice by the name of a fit's status (relvec.solvers.Status).
CURES = {
    "noise_floor": "The fit found almost no noise: either the targets have none, or the model passes through every "
    "row. Do not trust its error bars; try a wider kernel (--width).",
    "max_iter": "The search reached its limit of steps. The model is usable; a longer search may find a better one.",
    "time_limit": "The time limit ended the search. The model is the best found by then.",
    "memory_limit": "More rows would have been kept if the memory limit had allowed for them. The model is usable.",
    "interrupted": "The fit was stopped early. The model is the best found by then.",
    "candidates": "Only some of the rows were candidates for the model, because all of them exceed the memory limit. "
    "The model is usable; more memory may find a better one.",
    "stalled": "The search ended with a small improvement left, lost in rounding errors. This is seldom serious.",
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
    model, scores = pipeline[-1], {score.name: score for score in evaluation.scores}
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
    if "coverage" in scores:
        held = scores["coverage"]
        if held.high < COVERAGE:
            found.append(f"The error bars are too narrow: the {COVERAGE:.0%} interval holds {held.value:.0%} of the "
                         "targets. Widen them before you base a decision on them.")  # fmt: skip
        elif held.low > COVERAGE + 0.05:
            found.append(f"The error bars are wide: the {COVERAGE:.0%} interval holds {held.value:.0%} of the targets.")
        if scores["R2"].low < 0:
            found.append(
                "The predictions may be no better than the mean of the targets: the interval of R2 contains 0."
            )
    if "AUC" in scores and scores["AUC"].low < 0.5:
        found.append("The predictions may be no better than chance: the interval of the AUC contains 0.5.")
    if "accuracy" in scores and scores["accuracy"].value <= (common := scores["accuracy"].baseline):
        found.append(f"Always predicting the most frequent class would be right as often ({common:.0%}).")
    return found
