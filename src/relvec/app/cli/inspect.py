"""`relvec inspect`: describe a fitted model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from sklearn.pipeline import Pipeline

from relvec.app.cli.console import Console, read_pipeline
from relvec.app.report.summary import column_facts, learned_relevance, learned_widths, summary, vectors_of
from relvec.app.tables.columns import Column
from relvec.app.tables.families import FAMILIES, family_of
from relvec.app.tables.text import plural

MAX_PLAIN_ROWS = 12  # columns in a row that are told one by one though there is nothing to tell
COLUMN_HEADER = ("column", "kind", "what was done")


def run_inspect(arguments: argparse.Namespace) -> int:
    """Print a fitted model: its vectors, noise, evidence, options and columns."""
    console, pipeline = Console(arguments.json), read_pipeline(arguments.model)
    step = pipeline["columns"]
    console.print(f"{arguments.model}: {model_title(pipeline)}, fitted to {step.record_['source']}")
    console.print_facts([*summary(pipeline), *column_facts(pipeline)])
    console.print("\noptions")
    console.print_facts([(name, repr(value)) for name, value in sorted(pipeline[-1].get_params(deep=False).items())])
    console.print("\ncolumns")
    console.print_table(COLUMN_HEADER, column_rows(step.columns))
    header, rows = vectors_of(pipeline)
    listed = max(0, arguments.vectors)
    console.print(f"\ntraining rows that are kept ({min(listed, len(rows))} of {len(rows)})")
    console.print_table(header, rows[:listed])
    for note in step.record_["notes"]:
        console.print(f"  {note}")
    vectors = [dict(zip(header, row, strict=True)) for row in rows]
    console.print_json({"file": arguments.model, **describe_model(pipeline), "vectors": vectors})
    return 0


def model_title(pipeline: Pipeline) -> str:
    """Return the family of the model, the task and the target."""
    step = pipeline["columns"]
    return f"{FAMILIES[family_of(pipeline[-1])]}, {step.task} of {step.target.name!r}"


def column_rows(columns: Sequence[Column]) -> list[tuple[str, str, str]]:
    """Return the columns of a table for people; a long run of columns with nothing to tell is one row.

    >>> column_rows([Column(f"x{i}", "number") for i in range(1, 34)])
    [('x1 to x33', 'number', '33 columns')]
    """
    rows: list[tuple[str, str, str]] = []
    for (kind, note), run in groupby(columns, key=lambda column: (column.kind, column.note)):
        names = [column.name for column in run]
        joined = [(f"{names[0]} to {names[-1]}", kind, plural(len(names), "column"))]
        rows += joined if len(names) > MAX_PLAIN_ROWS and not note else [(name, kind, note) for name in names]
    return rows


def describe_model(pipeline: Pipeline) -> dict[str, object]:
    """Return the model for machines."""
    step, model = pipeline["columns"], pipeline[-1]
    fitted = model.fitted_
    noise = float(fitted.noise_variance[0]) if step.task == "regression" else None
    return {
        "task": step.task,
        "target": step.target.name,
        "classes": list(step.target.levels) or None,
        "rows": step.record_["rows"],
        "source": step.record_["source"],
        "model": FAMILIES[family_of(model)],
        "kept": fitted.n_kept,
        "noise": None if noise is None else float(np.sqrt(noise)),
        "log_evidence": float(np.sum(fitted.log_evidence)),
        "status": model.status_,
        "width": None if fitted.width is None else np.asarray(fitted.width).tolist(),
        "width_rule": fitted.width_rule,
        "column_widths": learned_widths(pipeline),
        "column_relevance": learned_relevance(pipeline),
        "seconds": step.record_["seconds"],
        "options": model.get_params(deep=False),
        "columns": [{"name": c.name, "kind": c.kind, "note": c.note, "levels": list(c.levels)} for c in step.columns],
        "notes": step.record_["notes"],
    }  # fmt: skip
