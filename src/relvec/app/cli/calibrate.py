"""`relvec calibrate`: make the intervals, or sets of classes, of a model hold their coverage."""

from __future__ import annotations

import argparse
import shlex

from relvec import save
from relvec.app.cli.console import Console
from relvec.app.cli.files import check_output, read_data, read_model
from relvec.app.report.summary import summary
from relvec.app.tables.evaluation import calibrate_table


def run(arguments: argparse.Namespace) -> int:
    """Calibrate a model on a table and save it."""
    out = arguments.out or arguments.model
    check_output(out, arguments.data)
    console, pipeline = Console(arguments.json), read_model(arguments.model)
    n = calibrate_table(pipeline, read_data(arguments))
    save(pipeline, out)
    facts = dict(summary(pipeline))
    console.print(f"calibrated {facts['calibrated']}")
    console.print(f"saved: {out}\nnext:  relvec predict {shlex.quote(str(out))} NEW_DATA")
    console.print_json({"model": str(out), "rows": n, "max_coverage": pipeline[-1].calibration_.max_coverage})
    return 0
