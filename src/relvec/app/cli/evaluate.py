"""`relvec evaluate`: compare a model's predictions with the targets of a table."""

from __future__ import annotations

import argparse

from sklearn.pipeline import Pipeline

from relvec.app.cli.console import Console
from relvec.app.cli.files import read_data, read_model
from relvec.app.tables.evaluation import BASELINE_MEANING, SCORE_HEADER, Evaluation, evaluate_table
from relvec.app.tables.text import plural


def run(arguments: argparse.Namespace) -> int:
    """Print the scores of a model on a table."""
    console = Console(arguments.json)
    evaluation = evaluate(read_model(arguments.model), arguments)
    how = f", {evaluation.folds}-fold cross-validation" if evaluation.folds else ""
    console.print(f"{arguments.data}: {plural(len(evaluation.observed), 'row')}{how}")
    print_scores(console, evaluation)
    console.print_json({"model": arguments.model, "data": arguments.data, **scores_as_dict(evaluation)})
    return 0


def evaluate(pipeline: Pipeline, arguments: argparse.Namespace) -> Evaluation:
    """Evaluate a pipeline on the table that the arguments name."""
    return evaluate_table(pipeline, read_data(arguments), folds=arguments.cv, seed=arguments.seed)


def print_scores(console: Console, evaluation: Evaluation) -> None:
    """Print the scores with their uncertainty and meaning."""
    console.print_table(SCORE_HEADER, [score.cells() for score in evaluation.scores])
    console.print(f"  {BASELINE_MEANING}")
    for note in evaluation.notes:
        console.print(f"  note: {note}")


def scores_as_dict(evaluation: Evaluation) -> dict[str, object]:
    """Return the scores for machines."""
    scores = {s.name: {"value": s.value, "error": s.error, "low": s.low, "high": s.high, "baseline": s.baseline}
              for s in evaluation.scores}  # fmt: skip
    return {"rows": len(evaluation.observed), "folds": evaluation.folds, "scores": scores, "notes": evaluation.notes}
