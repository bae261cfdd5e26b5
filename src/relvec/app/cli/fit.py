"""`relvec fit`: fit a model to a table and save it."""

from __future__ import annotations

import argparse
import math
import shlex
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from relvec import save
from relvec.app.cli.console import Console, check_output
from relvec.app.cli.evaluate import print_importance, print_scores, scores_as_dict
from relvec.app.cli.inspect import COLUMN_HEADER, column_rows, describe_model, model_title
from relvec.app.report.summary import summary
from relvec.app.tables.baselines import BASELINES
from relvec.app.tables.evaluation import Evaluation, calibrate_table, evaluate_table
from relvec.app.tables.families import (
    FAMILIES,
    MIN_ROWS_TO_COMPARE,
    ComparedFamily,
    compare_families,
    compared_header,
    default_family,
    folds_compared,
    make_model,
)
from relvec.app.tables.files import read_table
from relvec.app.tables.pipelines import FittedTable, Plan, fit_plan, inputs_of, plan_table
from relvec.app.tables.table import Table, TableError
from relvec.app.tables.target import has_known_class, target_of
from relvec.app.tables.text import list_names, plural
from relvec.estimators.base import BaseModel
from relvec.runtime.clock import Clock

CUT_STATUSES = {"time_limit", "interrupted"}
CUT_WARNINGS = ("warning: TIME_LIMIT", "warning: INTERRUPTED")
MIN_SECONDS = 0.01  # a fit needs a limit above 0, however late it is
MAX_ROWS_FITTED_TWICE = 2000  # without --holdout, a second model is fitted to a part of so many rows
CHECKED_SHARE = 0.2  # of these rows, kept out of the second fit
HELD_OUT_OF_MORE = 0.1  # share of more rows that is kept out of the only fit: they are enough for both
MAX_HELD_OUT_ROWS = 2000  # of that share: scores of as many have errors of 2 percent
FOLDS = 5  # of the cross-validation that is proposed next
MIN_CHECKED_ROWS = 50  # a fifth of fewer says next to nothing
ALL = ("linear", "rvm", "gp")  # the families that are compared, the simplest first
MAX_COMPARED_ROWS = 5000  # of more, so many are drawn for the comparison
COMPARISON_SHARE = 0.4  # of a time limit
MIN_SECONDS_TO_COMPARE = 1.0  # a fit: one that is cut short says little of its family
OPTIONS = {"kernel": "--kernel", "width": "--width", "max_functions": "--functions", "max_vectors": "--functions"}
# parameters of the estimator for the words of --noise
NOISES: dict[str, dict[str, Any]] = {"normal": {}, "student-t": {"likelihood": "student-t"},
                                     "heteroscedastic": {"noise": "heteroscedastic"}}  # fmt: skip


def run_fit(arguments: argparse.Namespace) -> int:
    """Fit a model to a table, save it, and print what was found."""
    limit = arguments.time_limit
    clock = Clock(None if limit is None else limit - (time.monotonic() - arguments.began))
    check_output(arguments.out, arguments.data)
    console = Console(arguments.json)
    table = read_table(arguments.data, arguments.format, arguments.sheet)
    if arguments.target is None:
        raise TableError(f"{table.source}: which column is to be predicted? Give --target one of "
                         f"{list_names(table.names)}")  # fmt: skip
    console.print(f"{table.source}: {plural(len(table), 'row')}, {plural(len(table.names), 'column')}")
    share = _share_held_out(len(table), arguments.holdout)
    table, held_out = _split(table, arguments.target, share, arguments.seed)
    table, calibration = _split(table, arguments.target, arguments.calibrate, arguments.seed + 1, "--calibrate")
    plan = _plan(table, arguments)
    _print_plan(console, plan)
    family, compared, why = choose_family(plan, arguments, clock.left())
    if why:
        console.print(f"  model: {FAMILIES[family]}, {why}")
    if compared:
        several = sum(item.family in FAMILIES for item in compared) > 1
        choice = ": the smallest model within a standard error of the best" if several else ""
        console.print(f"\n{_rows_compared(len(plan.table))}{choice}")
        console.print_table(compared_header(plan.task), [item.cells() for item in compared])
    fitted = _fit(plan, family, arguments, clock)
    if calibration is not None:
        calibrate_table(fitted.pipeline, calibration)
    _save(fitted.pipeline, arguments.out)
    _print_fit(console, fitted, plan)
    found = {"file": str(arguments.out), **describe_model(fitted.pipeline), "compared": [vars(c) for c in compared]}
    if held_out is not None:
        evaluation = _evaluate(fitted.pipeline, held_out, arguments.seed)
        found |= _print_scores(
            console,
            fitted.pipeline,
            evaluation,
            len(fitted.table),
            _HELD_OUT if arguments.holdout else _HELD_OUT_UNASKED,
        )
    elif arguments.holdout is None and (why := _why_not_to_check(fitted, clock)):
        console.print(f"\nno scores of rows held out: {why}")
    elif arguments.holdout is None:
        try:
            pipeline, evaluation, rows = _evaluate_second_fit(fitted, family, arguments, clock, calibration)
            how = f"rows, by a second model fitted to the other {rows:,}; the one saved has seen all rows"
            found |= _print_scores(console, pipeline, evaluation, rows, how)
        except ValueError as error:  # such as a class that only rows held out have; the model is saved all the same
            console.print(f"\nno scores of rows held out: {error}")
    console.print(f"\nsaved: {arguments.out}\n{_next_command(arguments, fitted)}")
    console.print_json(found)
    return 0


_HELD_OUT = "rows kept out of the fit"
_HELD_OUT_UNASKED = f"{_HELD_OUT}, as there are many; --holdout 0 fits all rows, without scores"


def _print_scores(
    console: Console, pipeline: Pipeline, evaluation: Evaluation, rows: int, how: str
) -> dict[str, object]:
    """Print the scores of a model that was fitted to so many rows, and which columns matter; return all of it."""
    console.print(f"\nscores on {len(evaluation.observed):,} {how}")
    print_scores(console, evaluation)
    importance = print_importance(console, pipeline, evaluation)
    return {"holdout": scores_as_dict(evaluation) | {"fitted_rows": rows, "importance": importance}}


def _save(pipeline: Pipeline, path: Path) -> None:
    """Save a model; where that fails, save it in the folder for temporary files, and raise an error that says so."""
    try:
        save(pipeline, path)
    except OSError as error:
        kept = ""
        with suppress(OSError):
            save(pipeline, place := Path(tempfile.mkdtemp(prefix="relvec-")) / "model.relvec")
            kept = f"; the model was saved as {place}"
        raise OSError(error.errno, f"{error.strerror or error}{kept}", str(path)) from error


def _evaluate_second_fit(
    fitted: FittedTable, family: str, arguments: argparse.Namespace, clock: Clock, calibration: Table | None
) -> tuple[Pipeline, Evaluation, int]:
    """Fit a model to a part of the rows and evaluate it on the others; also return the number of the former."""
    rest, held_out = _split(fitted.table, arguments.target, CHECKED_SHARE, arguments.seed)
    assert held_out is not None
    second = _fit(_plan(rest, arguments), family, arguments, clock)
    if calibration is not None:
        calibrate_table(second.pipeline, calibration)
    return second.pipeline, _evaluate(second.pipeline, held_out, arguments.seed), len(second.table)


def _evaluate(pipeline: Pipeline, held_out: Table, seed: int) -> Evaluation:
    """Evaluate on rows held out, without those of a class that the fit has not seen."""
    known = has_known_class(pipeline["columns"].target, held_out)
    evaluation = evaluate_table(pipeline, held_out.take(np.flatnonzero(known)), seed=seed)
    note = f"{plural(int((~known).sum()), 'row')} not evaluated: no row of the fit has the same class"
    return evaluation if known.all() else replace(evaluation, notes=(*evaluation.notes, note))


def _share_held_out(n: int, asked: float | None) -> float:
    """Return the share of n rows to keep out of the fit: as asked for, or where n is large."""
    if asked is not None or n <= MAX_ROWS_FITTED_TWICE:
        return asked or 0.0
    return min(HELD_OUT_OF_MORE, MAX_HELD_OUT_ROWS / n)


def _why_not_to_check(fitted: FittedTable, clock: Clock) -> str:
    """Return why no second model is fitted to a part of the rows, in words; empty where there is no reason."""
    seconds = fitted.pipeline["columns"].record_["seconds"]
    if len(fitted.table) < MIN_CHECKED_ROWS:
        return f"fewer than {MIN_CHECKED_ROWS} rows say little; see relvec evaluate --cv"
    if seconds > clock.left():
        return (f"a second fit takes {seconds:.0f} s more than --time-limit leaves; --holdout {CHECKED_SHARE:g} keeps "
                "rows out of the first")  # fmt: skip
    return ""


def _plan(table: Table, arguments: argparse.Namespace) -> Plan:
    same = {name: getattr(arguments, name) for name in ("task", "features", "missing", "drop_rows", "strict", "upper")}
    return plan_table(table, arguments.target, **same, drop=arguments.drop or (), identifiers=arguments.id or (),
                      categorical=arguments.categorical or (), use=arguments.use or ())  # fmt: skip


def _fit(plan: Plan, family: str, arguments: argparse.Namespace, clock: Clock) -> FittedTable:
    """Fit within the time that is left; a cut is one note, in place of the warnings of the stages it cut."""
    seconds = max(clock.left(), MIN_SECONDS)
    fitted = fit_plan(plan, lambda task: make_estimator(family, task, arguments, seconds))
    model, record = fitted.pipeline[-1], fitted.pipeline["columns"].record_
    model.set_params(time_limit=arguments.time_limit)  # as asked for, where folds are fitted later
    cut = [note for note in record["notes"] if "cut short" in note or note.startswith(CUT_WARNINGS)]
    if arguments.time_limit is not None and (cut or CUT_STATUSES.intersection(model.fitted_.status)):
        record["notes"] = [note for note in record["notes"] if note not in cut]
        record["notes"].append(f"the time limit of {arguments.time_limit:g} s ended the fit: the model is the best "
                               "found by then, and a longer --time-limit may find a better one")  # fmt: skip
    return fitted


def choose_family(plan: Plan, arguments: argparse.Namespace, seconds: float) -> tuple[str, list[ComparedFamily], str]:
    """Return the family to fit, the comparison by held-out rows, and why there is none where one was asked for."""
    families, why = _families(plan.task, arguments)
    if len(families) == 1 and not arguments.compare:
        return families[0], [], why
    only = families[0] if len(families) == 1 else default_family(plan.task)
    if len(plan.table) < MIN_ROWS_TO_COMPARE:
        return only, [], f"as fewer than {MIN_ROWS_TO_COMPARE} rows cannot tell which is best"
    each = COMPARISON_SHARE * seconds / (len(families) * folds_compared(min(len(plan.table), MAX_COMPARED_ROWS)))
    if each < MIN_SECONDS_TO_COMPARE:
        return only, [], "as --time-limit leaves no time to compare models"
    X, y = inputs_of(plan)
    if len(y) > MAX_COMPARED_ROWS:
        some = np.sort(np.random.default_rng(arguments.seed).permutation(len(y))[:MAX_COMPARED_ROWS])
        X, y = X[some], y[some]
    if arguments.compare and arguments.upper is None:
        families = [*BASELINES, *families]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that are only compared
        found = compare_families(
            families, lambda family: make_estimator(family, plan.task, arguments, each), X, y, plan.task, arguments.seed
        )
    return next(item.family for item in found if item.chosen), found, why


def _rows_compared(n: int) -> str:
    """Say which of n rows were held out to compare families."""
    used = min(n, MAX_COMPARED_ROWS)
    of = f" of {used:,} rows drawn from {n:,}" if n > used else ""
    if folds_compared(used) == 1:
        return f"held-out rows: a third{of or f' of {n:,} rows'}"
    return f"held-out rows, {folds_compared(used)} folds{of}"


def _families(task: str, arguments: argparse.Namespace) -> tuple[list[str], str]:
    """Return the families in question, the simplest first, and what leaves but one of them."""
    if arguments.model != "auto":
        return [arguments.model], ""
    only = "the only one for"
    if arguments.kernel is not None or arguments.width is not None:
        return ["rvm"], f"{only} --kernel and --width here"
    if arguments.upper is not None or arguments.noise == "heteroscedastic":
        return ["gp"], f"{only} --upper" if arguments.upper is not None else f"{only} --noise heteroscedastic"
    found = ["linear", "rvm"] if task == "count" else ["rvm", "gp"] if arguments.noise != "normal" else list(ALL)
    return found, ""


def make_estimator(family: str, task: str, arguments: argparse.Namespace, seconds: float) -> BaseModel:
    """Return the estimator of a family for a task with the options that were given, and a limit of so many seconds."""
    if arguments.upper is not None and arguments.noise != "normal":
        raise TableError("--upper is for normal noise: leave --noise out")
    model = make_model(family, task, arguments.upper is not None)
    given = {"kernel": arguments.kernel, "width": arguments.width, "memory_limit": arguments.memory_limit,
             "time_limit": seconds if seconds < math.inf else None}  # fmt: skip
    if task == "regression":
        given |= NOISES[arguments.noise]
    elif arguments.noise != "normal":
        raise TableError(f"--noise is for regression, and the task is {task}: leave it out, or give --task regression")
    if arguments.functions is not None:
        given["max_vectors" if family == "gp" else "max_functions"] = arguments.functions
    given = {name: value for name, value in given.items() if value is not None}
    unknown = [name for name in given if name not in model.get_params()]
    if unknown:
        option = OPTIONS.get(unknown[0], "--noise")
        raise TableError(f"a {FAMILIES[family]} for {task} has no {option}: leave it out, or choose another --model")
    if "random_state" in model.get_params():
        given["random_state"] = arguments.seed
    return model.set_params(**given)


def _split(
    table: Table, target: str, share: float | None, seed: int, option: str = "--holdout"
) -> tuple[Table, Table | None]:
    """Draw a share of the rows; return the others, and them."""
    if not share:
        return table, None
    table[target]  # raises where there is none
    held_out = max(1, round(share * len(table)))
    if len(table) - held_out < 2:
        raise TableError(f"{table.source}: {option} {share:g} leaves {plural(len(table) - held_out, 'row')} to fit")
    order = np.random.default_rng(seed).permutation(len(table))
    return table.take(np.sort(order[held_out:])), table.take(np.sort(order[:held_out]))


def _print_plan(console: Console, plan: Plan) -> None:
    console.print_table(COLUMN_HEADER, column_rows(plan.columns))
    for note in plan.notes:
        console.print(f"  {note}")


def _print_fit(console: Console, fitted: FittedTable, plan: Plan) -> None:
    step = fitted.pipeline["columns"]
    for note in step.record_["notes"]:
        if note not in plan.notes:
            console.print(f"  {note}")
    seconds = step.record_["seconds"]
    console.print(f"\n{model_title(fitted.pipeline)}" + (f", fitted in {seconds:.0f} s" if seconds >= 2 else ""))
    console.print_facts(summary(fitted.pipeline))


def _next_command(arguments: argparse.Namespace, fitted: FittedTable) -> str:
    if arguments.data == "-":
        return f"next:  relvec predict {shlex.quote(str(arguments.out))} NEW_DATA"
    words = ["relvec", "report", str(arguments.out), arguments.data]
    for option in ("format", "sheet"):
        words += [f"--{option}", value] if (value := getattr(arguments, option)) is not None else []
    most = len(fitted.table)
    if fitted.pipeline["columns"].task == "classification":  # two classes with so many rows are needed
        most = np.sort(np.unique(target_of(fitted.pipeline, fitted.table), return_counts=True)[1])[-2]
    words += ["--cv", str(min(FOLDS, most))] if arguments.upper is None and most >= 2 else []
    return f"next:  {shlex.join(words)}"
