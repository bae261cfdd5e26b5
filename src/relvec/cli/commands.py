"""The commands on tables: fit, predict, inspect, evaluate, report, export."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from relvec import RVC, RVR, load, save, solvers
from relvec.cli.console import Console, rounded, shown
from relvec.tables.columns import Column, TableColumns, names_of, plural
from relvec.tables.evaluation import Evaluation, evaluate_table
from relvec.tables.files import FORMATS, Table, TableError, read_table, write_table
from relvec.tables.pipelines import TASKS, FittedTable, Prediction, fit_table, predict_table, summary, vectors_of

KERNELS = ("gaussian", "matern52", "matern32", "laplace", "cauchy", "log_distance", "linear_spline", "polynomial",
           "linear")  # fmt: skip

DATA = """DATA is a file (CSV, TSV, JSON lines, .npz; Parquet and Feather with relvec[data]), also .gz or .zst, or - for
standard input."""
FIT = f"""{DATA} Numbers, booleans, dates and categories are recognised; missing cells are filled; columns that are
constant, free text or identifiers are left out. What was done is printed and stored with the model.

examples:
  relvec fit houses.csv --target price -o houses.relvec
  relvec fit patients.parquet --target outcome --id patient --drop notes
  relvec fit calls.csv --target calls --task count --holdout 0.2
  gunzip -c big.csv.gz | relvec fit - --target y --time-limit 60 --json
"""
PREDICT = f"""{DATA}
For numbers and counts the columns are mean, std, lower and upper; for classes the class and each one's probability.
Identifiers are carried through.

examples:
  relvec predict houses.relvec new.csv -o predicted.csv
  relvec predict houses.relvec new.csv --interval 0.95 --keep street city
  cat new.csv | relvec predict houses.relvec - | head
"""
INSPECT = """examples:
  relvec inspect houses.relvec
  relvec inspect houses.relvec --vectors 50
  relvec inspect houses.relvec --json | jq .noise
"""
EVALUATE = f"""{DATA}
Every score comes with a standard error and a 95% interval, from resampled rows.

examples:
  relvec evaluate houses.relvec held_out.csv
  relvec evaluate houses.relvec houses.csv --cv 5     the rows it was fitted on: fit anew on parts of them
"""
REPORT = f"""{DATA}
The report is one HTML file that needs no network: what was kept, how good it is, calibration, the relevance vectors
as rows of your table, which columns matter and how.

examples:
  relvec report houses.relvec held_out.csv -o report.html
  relvec report houses.relvec houses.csv --cv 5
"""
EXPORT = """The exported model begins where the table has become numbers; the inputs it takes are printed.

examples:
  relvec export houses.relvec --onnx                  houses.onnx
  relvec export houses.relvec --onnx there.onnx --c there.c
"""


def add_commands(commands: Any, options: dict[str, Any]) -> None:
    """Add the parsers of these commands."""
    p = _command(commands, options, "fit", "fit a model to a table", FIT, _fit)
    _data(p)
    p.add_argument("--target", required=True, metavar="COL", help="the column to predict")
    p.add_argument("--task", choices=TASKS, default="auto", help="by default the target decides")
    p.add_argument(
        "-o", "--out", type=Path, default=Path("model.relvec"), metavar="FILE", help="model.relvec by default"
    )
    for name, what in (("features", "the inputs, all other columns by default"), ("drop", "columns to leave out"),
                       ("id", "columns carried through to the predictions"),
                       ("categorical", "columns of numbers that name categories")):  # fmt: skip
        p.add_argument(f"--{name}", nargs="+", action="extend", metavar="COL", help=what)
    p.add_argument("--kernel", choices=KERNELS, help="gaussian by default")
    p.add_argument("--width", type=_width, help="a number, auto, scale, learn or learn-per-feature")
    p.add_argument(
        "--time-limit", type=_positive, metavar="S", help="seconds after which the best model so far is taken"
    )
    p.add_argument("--seed", type=int, default=0, help="of whatever is drawn (0)")
    p.add_argument("--holdout", type=_share, metavar="SHARE", help="share of the rows to keep out and evaluate on")

    p = _command(commands, options, "predict", "predict the rows of a table", PREDICT, _predict)
    _model(p)
    _data(p)
    p.add_argument("-o", "--out", default="-", metavar="FILE", help="standard output by default; the ending says how")
    p.add_argument(
        "--interval", type=_share, default=0.9, metavar="P", help="probability that it holds a new target (0.9)"
    )
    p.add_argument("--keep", nargs="+", action="extend", metavar="COL", help="further columns to carry through")

    p = _command(commands, options, "inspect", "what a fitted model is", INSPECT, _inspect)
    _model(p)
    p.add_argument("--vectors", type=int, default=10, metavar="N", help="relevance vectors to list (10)")

    p = _command(commands, options, "evaluate", "how good a model is on a table", EVALUATE, _evaluate)
    _model(p)
    _data(p)
    _folds(p)

    p = _command(commands, options, "report", "write an HTML report of a model on a table", REPORT, _report)
    _model(p)
    _data(p)
    _folds(p)
    p.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="report.html by default")

    p = _command(commands, options, "export", "write a model for ONNX runtimes or C compilers", EXPORT, _export)
    _model(p)
    p.add_argument("--onnx", nargs="?", const="", metavar="FILE", help="write ONNX, beside the model by default")
    p.add_argument("--c", nargs="?", const="", metavar="FILE", help="write C99, beside the model by default")


def _command(commands: Any, options: dict[str, Any], name: str, help: str, epilog: str, function: Any) -> Any:
    parser = commands.add_parser(name, help=help, description=function.__doc__, epilog=epilog, **options)
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of text")
    parser.set_defaults(function=function, parser=parser)
    return parser


def _data(parser: Any) -> None:
    parser.add_argument("data", metavar="DATA", help="a table, or - for standard input")
    parser.add_argument("--format", choices=FORMATS, help="of DATA, where its name and content do not say")


def _model(parser: Any) -> None:
    parser.add_argument("model", metavar="MODEL", help="a file written by relvec fit")


def _folds(parser: Any) -> None:
    parser.add_argument(
        "--cv", type=int, default=0, metavar="K", help="fit anew on all but each of K parts of the rows"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the resampling and the parts (0)")


def _width(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _positive(text: str) -> float:
    value = _number(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie between 0 and 1")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


# relvec fit ------------------------------------------------------------------------------------------------------


def _fit(arguments: argparse.Namespace) -> int:
    """Fit a relevance vector machine to a table and store it with all that is needed to read another one."""
    console = Console(arguments.json)
    table = read_table(arguments.data, arguments.format)
    console.say(f"{table.source}: {plural(len(table), 'row')}, {plural(len(table.names), 'column')}")
    held = None
    if arguments.holdout is not None:
        table, held = _split(table, arguments.target, arguments.holdout, arguments.seed)
    fitted = fit_table(
        table,
        arguments.target,
        task=arguments.task,
        features=arguments.features,
        drop=arguments.drop or (),
        identifiers=arguments.id or (),
        categorical=arguments.categorical or (),
        model=lambda task: estimator(task, arguments),
    )
    save(fitted.pipeline, arguments.out)
    _print_fit(console, fitted)
    evaluation = None if held is None else evaluate_table(fitted.pipeline, held, seed=arguments.seed)
    if evaluation is not None:
        console.say(f"\non {plural(len(evaluation.observed), 'row')} kept out of the fit:")
        _print_scores(console, evaluation)
    console.say(f"\nwritten: {arguments.out}")
    more = {} if evaluation is None else {"holdout": _scores(evaluation)}
    console.result({"model": str(arguments.out), **_about(fitted.pipeline), **more})
    return 0


def estimator(task: str, arguments: argparse.Namespace) -> Any:
    """The estimator of a task with the options that were given."""
    model: Any = RVC() if task == "classification" else RVR(likelihood="poisson" if task == "count" else "gaussian")
    given = {"kernel": arguments.kernel, "width": arguments.width, "random_state": arguments.seed}
    if arguments.time_limit is not None:
        given["solver"] = solvers.Sequential(time_limit=arguments.time_limit)
    return model.set_params(**{name: value for name, value in given.items() if value is not None})


def _split(table: Table, target: str, share: float, seed: int) -> tuple[Table, Table]:
    table[target]
    order = np.random.default_rng(seed).permutation(len(table))
    kept_out = max(1, round(share * len(table)))
    return table.take(np.sort(order[kept_out:])), table.take(np.sort(order[:kept_out]))


def _print_fit(console: Console, fitted: FittedTable) -> None:
    step = fitted.pipeline["columns"]
    console.table(("column", "kind", "what was done"), [(c.name, c.kind, c.note) for c in step.columns])
    for note in fitted.notes:
        console.say(f"  {note}")
    seconds = step.record_["seconds"]
    console.say(f"\n{_title(step)}" + (f", fitted in {seconds:.0f} s" if seconds >= 2 else ""))
    console.facts(summary(fitted.pipeline))


def _title(step: TableColumns) -> str:
    return f"{step.task} of {step.target.name!r}"


# relvec predict --------------------------------------------------------------------------------------------------


def _predict(arguments: argparse.Namespace) -> int:
    """Predict the target for every row of a table."""
    pipeline = read_model(arguments.model)
    table = read_table(arguments.data, arguments.format)
    step = pipeline["columns"]
    prediction = predict_table(pipeline, table, arguments.interval)
    notes = step.unseen(table)
    kept = [name for name in names_of(step.columns, "identifier") if name in table.columns]
    kept += [name for name in arguments.keep or () if name not in kept]
    out = predictions_table(pipeline, table, prediction, kept)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if arguments.out == "-":
        write_table(out, "-", "jsonl" if arguments.json else "csv")
        return 0
    write_table(out, arguments.out)
    console = Console(arguments.json)
    console.say(f"written: {arguments.out} ({plural(len(out), 'row')}: {', '.join(out.names)})")
    console.result({"out": arguments.out, "rows": len(out), "columns": out.names, "notes": notes})
    return 0


def predictions_table(pipeline: Pipeline, table: Table, prediction: Prediction, kept: list[str]) -> Table:
    """The predictions as a table, beside the columns of the input that are kept; row numbers where none are."""
    columns = {name: table[name] for name in kept} or {"row": table.numbers}
    if prediction.proba is not None:
        made = {"class": np.array(prediction.label, dtype=object)}
        made |= {f"probability {label}": prediction.proba[:, k] for k, label in enumerate(pipeline[-1].classes_)}
    else:
        assert prediction.mean is not None and prediction.std is not None and prediction.interval is not None
        made = {"mean": prediction.mean, "std": prediction.std}
        made |= {"lower": prediction.interval[:, 0], "upper": prediction.interval[:, 1]}
    return Table({**{f"{name} (input)" if name in made else name: c for name, c in columns.items()}, **made})


def read_model(path: str) -> Pipeline:
    """A pipeline on tables, as `relvec fit` writes it."""
    try:
        model = load(path)
    except OSError as error:
        raise TableError(f"{path}: {error.strerror or error}") from error
    if not (isinstance(model, Pipeline) and isinstance(model[0], TableColumns) and model[0].target is not None):
        raise TableError(
            f"{path}: holds a {type(model).__name__} that was not made by relvec fit; use relvec.load in Python"
        )
    return model


# relvec inspect --------------------------------------------------------------------------------------------------


def _inspect(arguments: argparse.Namespace) -> int:
    """Print what a fitted model is: its vectors, noise, evidence, options and columns."""
    console, pipeline = Console(arguments.json), read_model(arguments.model)
    step = pipeline["columns"]
    console.say(f"{arguments.model}: {_title(step)}, fitted to {step.record_['source']}")
    console.facts(summary(pipeline))
    console.say("\noptions")
    console.facts([(name, repr(value)) for name, value in sorted(pipeline[-1].get_params(deep=False).items())])
    console.say("\ncolumns")
    console.table(("column", "kind", "what was done"), [(c.name, c.kind, c.note) for c in step.columns])
    header, rows = vectors_of(pipeline)
    console.say(f"\nrelevance vectors, the largest weights first ({min(arguments.vectors, len(rows))} of {len(rows)})")
    console.table(header, rows[: max(0, arguments.vectors)])
    for note in step.record_["notes"]:
        console.say(f"  {note}")
    vectors = [dict(zip(header, row, strict=True)) for row in rows]
    console.result({"model": arguments.model, **_about(pipeline), "vectors": vectors})
    return 0


def _about(pipeline: Pipeline) -> dict[str, Any]:
    """The model for machines."""
    step, model = pipeline["columns"], pipeline[-1]
    noise = getattr(model, "noise_variance_", None) if step.task == "regression" else None
    return {
        "task": step.task,
        "target": step.target.name,
        "classes": list(step.target.levels) or None,
        "rows": step.record_["rows"],
        "source": step.record_["source"],
        "vectors_kept": len(model.relevance_),
        "noise": None if noise is None else float(np.sqrt(noise)),
        "log_evidence": float(np.sum(model.log_marginal_likelihood_)),
        "status": model.status_,
        "seconds": step.record_["seconds"],
        "options": {name: value for name, value in model.get_params(deep=False).items()},
        "columns": [_column(column) for column in step.columns],
        "notes": step.record_["notes"],
    }


def _column(column: Column) -> dict[str, Any]:
    return {"name": column.name, "kind": column.kind, "note": column.note, "levels": list(column.levels)}


# relvec evaluate, report, export ---------------------------------------------------------------------------------


def _evaluate(arguments: argparse.Namespace) -> int:
    """Compare a model's predictions with the targets of a table."""
    console = Console(arguments.json)
    evaluation = _evaluated(read_model(arguments.model), arguments)
    how = f", {evaluation.folds}-fold cross-validation" if evaluation.folds else ""
    console.say(f"{arguments.data}: {plural(len(evaluation.observed), 'row')}{how}")
    _print_scores(console, evaluation)
    console.result({"model": arguments.model, "data": arguments.data, **_scores(evaluation)})
    return 0


def _evaluated(pipeline: Pipeline, arguments: argparse.Namespace) -> Evaluation:
    if arguments.cv < 0 or arguments.cv == 1:
        arguments.parser.error("--cv: 0 for none, or the number of parts, 2 or more")
    table = read_table(arguments.data, arguments.format)
    return evaluate_table(pipeline, table, folds=arguments.cv, seed=arguments.seed)


def _print_scores(console: Console, evaluation: Evaluation) -> None:
    rows = [
        (s.name, s.value, f"± {shown(rounded(s.error))}", f"{shown(s.low)} to {shown(s.high)}", s.meaning)
        for s in evaluation.scores
    ]
    console.table(("score", "value", "", "95% interval", "meaning"), rows)
    for note in evaluation.notes:
        console.say(f"  note: {note}")


def _scores(evaluation: Evaluation) -> dict[str, Any]:
    scores = {s.name: {"value": s.value, "error": s.error, "low": s.low, "high": s.high} for s in evaluation.scores}
    return {"rows": len(evaluation.observed), "folds": evaluation.folds, "scores": scores, "notes": evaluation.notes}


def _report(arguments: argparse.Namespace) -> int:
    """Write an HTML page on a fitted model and a table."""
    from relvec.report import report

    console, pipeline = Console(arguments.json), read_model(arguments.model)
    page = report(pipeline, _evaluated(pipeline, arguments))
    arguments.out.write_text(page, encoding="utf-8")
    console.say(f"written: {arguments.out} ({len(page) / 1024:.0f} kB)")
    console.result({"out": str(arguments.out), "bytes": len(page.encode())})
    return 0


def _export(arguments: argparse.Namespace) -> int:
    """Write a model in a form that other programs run."""
    if arguments.onnx is None and arguments.c is None:
        arguments.parser.error("say --onnx, --c or both")
    console, pipeline = Console(arguments.json), read_model(arguments.model)
    numbers, inputs = pipeline[1:], export_inputs(pipeline)
    written = []
    if arguments.onnx is not None:
        from relvec import to_onnx

        graph = to_onnx(numbers, np.zeros((1, len(inputs))))
        for key, value in (("relvec.inputs", json.dumps(inputs)), ("relvec.target", pipeline["columns"].target.name)):
            graph.metadata_props.add(key=key, value=value)
        written.append(_write(graph.SerializeToString(), arguments.onnx, arguments.model, ".onnx"))
    if arguments.c is not None:
        from relvec import to_c

        written.append(_write(to_c(numbers).encode(), arguments.c, arguments.model, ".c"))
    console.say(f"written: {', '.join(map(str, written))}")
    console.say("inputs, in this order; a category is given as the number of its level, a missing number as NaN")
    console.table(
        ("input", "kind", "levels"), [(i["name"], i["kind"], ", ".join(_numbered(i["levels"]))) for i in inputs]
    )
    console.result({"written": [str(path) for path in written], "inputs": inputs})
    return 0


def export_inputs(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The numbers that an exported model takes, in order: name, kind and, for a category, its levels."""
    return [
        {"name": name, "column": column.name, "kind": column.kind, "levels": list(column.levels)}
        for column in pipeline["columns"].inputs()
        for name in column.features()
    ]


def _numbered(levels: list[str]) -> list[str]:
    return [f"{i} {level}" for i, level in enumerate(levels)]


def _write(data: bytes, path: str, model: str, suffix: str) -> Path:
    place = Path(path) if path else Path(model).with_suffix(suffix)
    place.write_bytes(data)
    return place
