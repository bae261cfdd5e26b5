"""The commands that compare a model with a table: `relvec evaluate`, `relvec calibrate` and `relvec report`."""

from __future__ import annotations

import argparse
import shlex

from sklearn.pipeline import Pipeline

from relvec import save
from relvec.app.cli.console import Console, check_output, read_data, read_pipeline
from relvec.app.report import write_report
from relvec.app.report.summary import MAX_LISTED_COLUMNS, summary
from relvec.app.tables.evaluation import BASELINE_MEANING, SCORE_HEADER, Evaluation, calibrate_table, evaluate_table
from relvec.app.tables.importance import column_importance
from relvec.app.tables.table import TableError
from relvec.app.tables.text import format_with_error, plural
from relvec.runtime.files import write_atomically

MAX_SHUFFLED_COLUMNS = 30  # more take long to shuffle one by one: they are left to the report


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Print the scores of a model on a table."""
    console = Console(arguments.json)
    pipeline = read_pipeline(arguments.model)
    evaluation = evaluate_model(pipeline, arguments)
    how = f", {evaluation.folds}-fold cross-validation" if evaluation.folds else ""
    console.print(f"{arguments.data}: {plural(len(evaluation.observed), 'row')}{how}")
    print_scores(console, evaluation)
    shuffled = print_importance(console, pipeline, evaluation)
    found = {"model": arguments.model, "data": arguments.data, **scores_as_dict(evaluation), "importance": shuffled}
    console.print_json(found)
    return 0


def evaluate_model(pipeline: Pipeline, arguments: argparse.Namespace) -> Evaluation:
    """Evaluate a pipeline on the table that the arguments name."""
    return evaluate_table(pipeline, read_data(arguments), folds=arguments.cv, seed=arguments.seed)


def print_scores(console: Console, evaluation: Evaluation) -> None:
    """Print the scores with their uncertainty and meaning."""
    console.print_table(SCORE_HEADER, [score.cells() for score in evaluation.scores])
    console.print(f"  {BASELINE_MEANING}")
    for note in evaluation.notes:
        console.print(f"  note: {note}")


def print_importance(console: Console, pipeline: Pipeline, evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """Print how much each column matters on the rows of an evaluation, where columns are few; return it by column."""
    if not 0 < len(pipeline["columns"].inputs()) <= MAX_SHUFFLED_COLUMNS:
        return {}
    found = column_importance(pipeline, evaluation)
    every = list(zip(found.names, found.loss.tolist(), found.error.tolist(), strict=True))
    used = [f"{name} {format_with_error(rise, error)}" for name, rise, error in every if rise != 0.0]
    idle = f"; {plural(len(every) - len(used), 'other')} of no effect" if 0 < len(used) < len(every) else ""
    more = f" and {plural(len(used) - MAX_LISTED_COLUMNS, 'column')} more" if len(used) > MAX_LISTED_COLUMNS else ""
    listed = f"{', '.join(used[:MAX_LISTED_COLUMNS])}{more}" or "no column has an effect"
    rows = "these rows, which took part in the fit," if evaluation.seen else "these rows"
    console.print(f"  importance (rise of the {found.measure} when a column of {rows} is shuffled): {listed}{idle}")
    return {name: {"rise": rise, "error": error} for name, rise, error in every}


def scores_as_dict(evaluation: Evaluation) -> dict[str, object]:
    """Return the scores for machines."""
    scores = {s.name: {"value": s.value, "error": s.error, "low": s.low, "high": s.high, "baseline": s.baseline}
              for s in evaluation.scores}  # fmt: skip
    return {"rows": len(evaluation.observed), "folds": evaluation.folds, "scores": scores, "notes": evaluation.notes}


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Calibrate a model on a table and save it."""
    out = arguments.out or arguments.model
    check_output(out, arguments.data)
    console, pipeline = Console(arguments.json), read_pipeline(arguments.model)
    n = calibrate_table(pipeline, read_data(arguments))
    save(pipeline, out)
    facts = dict(summary(pipeline))
    console.print(f"calibrated {facts['calibrated']}")
    console.print(f"saved: {out}\nnext:  relvec predict {shlex.quote(str(out))} NEW_DATA")
    console.print_json({"model": str(out), "rows": n, "max_coverage": pipeline[-1].calibration_.max_coverage})
    return 0


SUFFIXES = {"": "html", ".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}


def run_report(arguments: argparse.Namespace) -> int:
    """Write the report of a model on a table."""
    check_output(arguments.out, arguments.model, arguments.data)
    format = arguments.form or SUFFIXES.get(arguments.out.suffix.lower())
    if format is None:
        raise TableError(f"{arguments.out}: reports cannot be written as {arguments.out.suffix!r}; use .html, .md or "
                         ".json, or name the format with --as")  # fmt: skip
    console, pipeline = Console(arguments.json), read_pipeline(arguments.model)
    page = write_report(pipeline, evaluate_model(pipeline, arguments), format=format).encode()
    write_atomically(arguments.out, page)
    console.print(f"written: {arguments.out} ({len(page) / 1024:.0f} kB)")
    console.print_json({"out": str(arguments.out), "format": format, "bytes": len(page)})
    return 0
