"""`relvec predict`: predict the rows of a table."""

from __future__ import annotations

import argparse
import sys

import numpy as np
from sklearn.pipeline import Pipeline

from relvec.cli.console import Console
from relvec.cli.files import check_output, read_data, read_model
from relvec.tables.columns import names_of
from relvec.tables.files import output_format, write_table
from relvec.tables.pipelines import Prediction, predict_table
from relvec.tables.table import Table
from relvec.tables.text import escape_controls, plural


def run(arguments: argparse.Namespace) -> int:
    """Predict the target for every row of a table."""
    output_format(arguments.out)  # raises for a format that cannot be written
    if arguments.out != "-":
        check_output(arguments.out)
    pipeline = read_model(arguments.model)
    table = read_data(arguments)
    step = pipeline["columns"]
    for name in arguments.keep or ():
        table[name]  # raises where there is none
    copied = [name for name in names_of(step.columns, "identifier") if name in table.columns]
    copied += [name for name in arguments.keep or () if name not in copied]
    prediction = predict_table(pipeline, table, arguments.interval)
    notes = step.unseen(table)
    out = predictions_table(pipeline, table, prediction, copied)
    for note in notes:
        print(f"note: {escape_controls(note)}", file=sys.stderr)
    if arguments.out == "-":
        write_table(out, "-", "jsonl" if arguments.json else "csv")
        return 0
    write_table(out, arguments.out)
    console = Console(arguments.json)
    console.print(f"written: {arguments.out} ({plural(len(out), 'row')}: {', '.join(out.names)})")
    console.print_json({"out": arguments.out, "rows": len(out), "columns": out.names, "notes": notes})
    return 0


def predictions_table(pipeline: Pipeline, table: Table, prediction: Prediction, copied: list[str]) -> Table:
    """The predictions as a table, beside the columns copied from the input, or the numbers of the rows."""
    columns = {name: table[name] for name in copied} or {"row": table.numbers}
    if prediction.proba is not None:
        made = {"class": np.array(prediction.label, dtype=object)}
        made |= {f"probability {label}": prediction.proba[:, k] for k, label in enumerate(pipeline[-1].classes_)}
    else:
        assert prediction.mean is not None and prediction.std is not None and prediction.interval is not None
        made = {"mean": prediction.mean, "std": prediction.std}
        made |= {"lower": prediction.interval[:, 0], "upper": prediction.interval[:, 1]}
    return Table({**{f"{name} (input)" if name in made else name: c for name, c in columns.items()}, **made})
