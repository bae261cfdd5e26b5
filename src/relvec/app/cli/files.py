"""Files that the commands read and write. Outputs are checked before the work begins."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from relvec import load
from relvec.app.tables.cells import mark_missing
from relvec.app.tables.columns import TableColumns
from relvec.app.tables.files import read_table
from relvec.app.tables.table import Table, TableError
from relvec.runtime.files import check_writable


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


def read_model(path: str) -> Pipeline:
    """Return the pipeline in a file that `relvec fit` wrote."""
    try:
        model: Any = load(path)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    if not (isinstance(model, Pipeline) and isinstance(model[0], TableColumns) and model[0].target is not None):
        raise TableError(f"{path}: holds a {type(model).__name__} that was not made by relvec fit; load it in Python "
                         "with relvec.load")  # fmt: skip
    return model
