"""`relvec fit`: fit a model to a table and save it."""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from typing import Any

import numpy as np

from relvec import RVC, RVR, save, solvers
from relvec.cli.console import Console
from relvec.cli.evaluate import print_scores, scores_as_dict
from relvec.cli.files import check_output, naming_output
from relvec.cli.inspect import COLUMN_HEADER, column_rows, describe_model, model_title
from relvec.runtime.progress import Progress, watch
from relvec.tables.evaluation import evaluate_table
from relvec.tables.files import read_table
from relvec.tables.pipelines import FittedTable, fit_table, summary
from relvec.tables.table import Table, TableError
from relvec.tables.text import plural

STAGES = {"widths": "the widths were being learned", "kernel": "the kernel was being factorised",
          "search": "the model was being searched for", "process": "the process was being fitted"}  # fmt: skip


class Deadline:
    """A progress callback that stops the fit when the command has run for so many seconds.

    Attributes
    ----------
    note : which part of the fit was cut short, in words; empty if none was.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began, self.note = seconds, time.monotonic(), ""

    def __call__(self, progress: Progress) -> bool:
        over = time.monotonic() - self.began > self.seconds
        if over and not self.note:
            doing = STAGES.get(progress.stage, "the model was being fitted")
            self.note = (f"the time limit of {self.seconds:g} s ended the fit while {doing}: the model is the best "
                         "found by then, and more time may find a better one")  # fmt: skip
        return over


def run(arguments: argparse.Namespace) -> int:
    """Fit a model to a table, save it, and print what was found."""
    deadline = None if arguments.time_limit is None else Deadline(arguments.time_limit)
    check_output(arguments.out)
    console = Console(arguments.json)
    table = read_table(arguments.data, arguments.format)
    console.print(f"{table.source}: {plural(len(table), 'row')}, {plural(len(table.names), 'column')}")
    held_out = None
    if arguments.holdout is not None:
        table, held_out = _split(table, arguments.target, arguments.holdout, arguments.seed)
    with nullcontext() if deadline is None else watch(deadline):
        fitted = _fit(table, arguments)
    if deadline is not None and deadline.note:
        fitted.pipeline["columns"].record_["notes"].append(deadline.note)
    with naming_output(arguments.out):
        save(fitted.pipeline, arguments.out)
    _print_fit(console, fitted)
    found = {"model": str(arguments.out), **describe_model(fitted.pipeline)}
    if held_out is not None:
        evaluation = evaluate_table(fitted.pipeline, held_out, seed=arguments.seed)
        console.print(f"\non {plural(len(evaluation.observed), 'row')} kept out of the fit:")
        print_scores(console, evaluation)
        found["holdout"] = scores_as_dict(evaluation)
    console.print(f"\nsaved: {arguments.out}\n{_next_command(arguments)}")
    console.print_json(found)
    return 0


def _fit(table: Table, arguments: argparse.Namespace) -> FittedTable:
    return fit_table(
        table,
        arguments.target,
        task=arguments.task,
        features=arguments.features,
        drop=arguments.drop or (),
        identifiers=arguments.id or (),
        categorical=arguments.categorical or (),
        missing=arguments.missing,
        drop_rows=arguments.drop_rows,
        strict=arguments.strict,
        model=lambda task: make_estimator(task, arguments),
    )


def make_estimator(task: str, arguments: argparse.Namespace) -> Any:
    """The estimator of a task with the options that were given."""
    model: Any = RVC() if task == "classification" else RVR(likelihood="poisson" if task == "count" else "gaussian")
    given = {"kernel": arguments.kernel, "width": arguments.width, "random_state": arguments.seed}
    if arguments.time_limit is not None:
        if "time_limit" in model.get_params():
            given["time_limit"] = arguments.time_limit
        else:
            given["solver"] = solvers.Sequential(time_limit=arguments.time_limit)
    return model.set_params(**{name: value for name, value in given.items() if value is not None})


def _split(table: Table, target: str, share: float, seed: int) -> tuple[Table, Table]:
    table[target]  # raises where there is none
    held_out = max(1, round(share * len(table)))
    if len(table) - held_out < 2:
        raise TableError(f"{table.source}: --holdout {share:g} leaves {plural(len(table) - held_out, 'row')} to fit")
    order = np.random.default_rng(seed).permutation(len(table))
    return table.take(np.sort(order[held_out:])), table.take(np.sort(order[:held_out]))


def _print_fit(console: Console, fitted: FittedTable) -> None:
    step = fitted.pipeline["columns"]
    console.print_table(COLUMN_HEADER, column_rows(step.columns))
    for note in step.record_["notes"]:
        console.print(f"  {note}")
    seconds = step.record_["seconds"]
    console.print(f"\n{model_title(step)}" + (f", fitted in {seconds:.0f} s" if seconds >= 2 else ""))
    console.print_facts(summary(fitted.pipeline))


def _next_command(arguments: argparse.Namespace) -> str:
    if arguments.data == "-":
        return f"next:  relvec predict {arguments.out} NEW_DATA"
    return f"next:  relvec report {arguments.out} {arguments.data} --cv 5"
