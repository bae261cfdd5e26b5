"""`relvec report`: write a page on a fitted model and a table."""

from __future__ import annotations

import argparse

from relvec.app.cli.console import Console
from relvec.app.cli.evaluate import evaluate
from relvec.app.cli.files import check_output, read_model
from relvec.app.report import report
from relvec.app.tables.table import TableError
from relvec.runtime.files import write_atomically

SUFFIXES = {"": "html", ".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown", ".json": "json"}


def run(arguments: argparse.Namespace) -> int:
    """Write the report of a model on a table."""
    check_output(arguments.out, arguments.model, arguments.data)
    format = arguments.form or SUFFIXES.get(arguments.out.suffix.lower())
    if format is None:
        raise TableError(f"{arguments.out}: reports cannot be written as {arguments.out.suffix!r}; use .html, .md or "
                         ".json, or name the format with --as")  # fmt: skip
    console, pipeline = Console(arguments.json), read_model(arguments.model)
    page = report(pipeline, evaluate(pipeline, arguments), format=format).encode()
    write_atomically(arguments.out, page)
    console.print(f"written: {arguments.out} ({len(page) / 1024:.0f} kB)")
    console.print_json({"out": str(arguments.out), "format": format, "bytes": len(page)})
    return 0
