"""`relvec predict`: predict the rows of a table."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import numpy as np
from sklearn.pipeline import Pipeline

from relvec.app.cli.console import Console, check_output, read_data, read_pipeline
from relvec.app.tables.columns import names_of
from relvec.app.tables.files import output_format, write_table
from relvec.app.tables.pipelines import Prediction, predict_table
from relvec.app.tables.table import Table, make_table, text_type
from relvec.app.tables.text import escape_controls, escape_formula, plural

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from pandas import Series


def run_predict(arguments: argparse.Namespace) -> int:
    """Predict the target for every row of a table."""
    output_format(arguments.out)  # raises for a format that cannot be written
    if arguments.out != "-":
        check_output(arguments.out, arguments.model, arguments.data)
    pipeline = read_pipeline(arguments.model)
    table = read_data(arguments)
    step = pipeline["columns"]
    for name in arguments.keep or ():
        table[name]  # raises where there is none
    copied = [name for name in names_of(step.columns, "identifier") if name in table.names]
    copied += [name for name in arguments.keep or () if name not in copied]
    prediction = predict_table(pipeline, table, arguments.interval)
    write_predictions(arguments, predictions_table(pipeline, table, prediction, copied), list(prediction.notes))
    return 0


def write_predictions(arguments: argparse.Namespace, out: Table, notes: list[str]) -> None:
    """Write predictions to the file or standard output that the arguments name, and the notes to standard error."""
    if arguments.escape_formulas:
        out = escape_formulas(out)
    elif output_format(arguments.out) in ("csv", "tsv") and not arguments.json and has_formulas(out):
        notes = [*notes, "cells that begin with =, +, - or @ are written as they are, and a spreadsheet may run them: "
                 "--escape-formulas writes an apostrophe before them"]  # fmt: skip
    for note in notes:
        print(f"note: {escape_controls(note)}", file=sys.stderr)
    if arguments.out == "-":
        write_table(out, "-", "jsonl" if arguments.json else "csv")
        return
    write_table(out, arguments.out)
    console = Console(arguments.json)
    console.print(f"written: {arguments.out} ({plural(len(out), 'row')}: {', '.join(out.names)})")
    console.print_json({"out": arguments.out, "rows": len(out), "columns": out.names, "notes": notes})


def has_formulas(table: Table) -> bool:
    """Tell whether a spreadsheet would run a name or a cell of the table."""
    texts = [table[name] for name in table.names if table[name].dtype == text_type()]
    return any(escape_formula(value) != value for values in (table.names, *texts) for value in values)


def escape_formulas(table: Table) -> Table:
    """Return the table with an apostrophe before every name and cell that a spreadsheet would run."""
    columns = {name: table[name] for name in table.names}
    return make_table({str(escape_formula(name)): c.map(escape_formula) if c.dtype == text_type() else c
                       for name, c in columns.items()}, table.source)  # fmt: skip


def predictions_table(pipeline: Pipeline, table: Table, prediction: Prediction, copied: list[str]) -> Table:
    """Return the predictions as a table, beside the columns copied from the input, or the numbers of the rows."""
    columns = {name: table[name] for name in copied} or {"row": table.numbers}
    made = _columns_of_numbers(prediction) if prediction.proba is None else _columns_of_classes(pipeline, prediction)
    return make_table({**{f"{name} (input)" if name in made else name: c for name, c in columns.items()}, **made})


Columns = dict[str, "Series | ArrayLike"]


def _columns_of_numbers(prediction: Prediction) -> Columns:
    assert prediction.mean is not None and prediction.std is not None and prediction.interval is not None
    lower, upper = prediction.interval.T
    return {"mean": prediction.mean, "std": prediction.std, "lower": lower, "upper": upper}


def _columns_of_classes(pipeline: Pipeline, prediction: Prediction) -> Columns:
    assert prediction.label is not None and prediction.proba is not None
    labels = np.asarray(pipeline[-1].classes_)
    made: Columns = {"class": list(map(str, prediction.label))}
    made |= {f"probability {label}": column for label, column in zip(labels, prediction.proba.T, strict=True)}
    if prediction.members is not None:
        made["classes"] = [" | ".join(map(str, labels[row].tolist())) for row in prediction.members]
    return made
