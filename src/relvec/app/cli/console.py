"""What the commands read and print: text for people, or one JSON object for machines."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from relvec import load
from relvec.app.tables.cells import mark_missing
from relvec.app.tables.columns import TableColumns
from relvec.app.tables.files import read_table
from relvec.app.tables.table import Table, TableError
from relvec.app.tables.text import escape_controls, format_cell, on_terminal, to_json_types
from relvec.runtime.files import check_writable

MAX_CELL_WIDTH = 40


class Console:
    """Prints text for people; or, for machines, nothing but one JSON object at the end."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    def print(self, text: str = "") -> None:
        """Print lines for people."""
        if not self.as_json:
            print(escape_controls(text))

    def print_facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one pair a line."""
        width = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            self.print(f"  {name:{width}}  {value}")

    def print_table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table for people."""
        if self.as_json or not rows:
            return
        cells = [[format_cell(cell) for cell in row] for row in [header, *rows]]
        widths = [min(MAX_CELL_WIDTH, max(len(row[i]) for row in cells)) for i in range(len(header))]
        for row in cells:
            line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
            print(f"  {line}".rstrip())

    def print_json(self, value: dict[str, object]) -> None:
        """Print the object for machines."""
        if self.as_json:
            # A terminal obeys signs that JSON need not escape, such as U+009B.
            print(json.dumps(to_json_types(value), ensure_ascii=on_terminal(), allow_nan=False))


def check_output(path: str | Path, *inputs: str | Path) -> None:
    """Raise an error if no file can be written to this path, or if it is one of the files that the command reads."""
    check_writable(path)
    if any(str(name) != "-" and os.path.isfile(name) and os.path.isfile(path) and os.path.samefile(path, name)
           for name in inputs):  # fmt: skip
        raise TableError(f"{path}: the command reads this file, and its output would replace it; give another name")


def read_data(arguments: argparse.Namespace) -> Table:
    """Return the table that the arguments name, with the values that they call missing read as such."""
    table = read_table(arguments.data, arguments.format, arguments.sheet)
    for name in table.names if arguments.missing else ():
        table = table.with_column(name, mark_missing(table[name], arguments.missing))
    return table


def read_pipeline(path: str) -> Pipeline:
    """Return the pipeline in a file that `relvec fit` wrote."""
    try:
        model: Any = load(path)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    if not (isinstance(model, Pipeline) and isinstance(model[0], TableColumns) and model[0].target is not None):
        raise TableError(f"{path}: holds a {type(model).__name__} that was not made by relvec fit; load it in Python "
                         "with relvec.load")  # fmt: skip
    return model
