"""The arguments of all commands. Nothing heavy is imported here: `--help` and mistakes are answered at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from relvec._version import __version__

KERNELS = ("gaussian", "matern52", "matern32", "laplace", "cauchy", "log_distance", "linear_spline", "polynomial",
           "linear")  # fmt: skip
FORMATS = ("csv", "tsv", "jsonl", "npz", "parquet", "feather", "excel")
NOISES = ("normal", "student-t", "heteroscedastic")
MODELS = ("auto", "rvm", "gp", "linear")
TASKS = ("auto", "regression", "classification", "count")

OVERVIEW = """examples:
  relvec fit houses.csv --target price     fit a model to a table and save it as model.relvec
  relvec predict model.relvec new.csv      predict new rows, with error bars
  relvec report model.relvec held_out.csv  write report.html: how good and how honest it is, and what matters
  relvec demo                              try it: two small fits; pictures and a table in relvec-demo/
"""
DATA = """DATA is a file (CSV, TSV, JSON lines, Excel, Parquet, Feather, .npz), also .gz or .zst, or - for standard
input."""
FIT = f"""{DATA} Numbers, booleans, dates and categories are recognised, and missing cells are filled. Left out are
constant columns, free text, identifiers, copies of other columns, and columns that give the target away. The command
prints what it does with each column before the fit, and stores it with the model.

examples:
  relvec fit houses.csv --target price -o houses.relvec
  relvec fit patients.parquet --target outcome --id patient --drop notes
  relvec fit cars.csv --target power --missing unknown -999 --drop-rows
  relvec fit wine.csv --target quality --compare
  relvec fit calls.csv --target calls --task count --holdout 0.2
  gunzip -c big.csv.gz | relvec fit - --target y --time-limit 60 --json
"""
PREDICT = f"""{DATA}
Numbers and counts get the columns mean, std, lower and upper; classes get the most probable class and the probability
of each. Identifiers are copied.

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
Every score comes with a standard error and a 95% interval, by resampling the rows.

examples:
  relvec evaluate houses.relvec held_out.csv
  relvec evaluate houses.relvec houses.csv --cv 5     five models, each tested on rows it has not seen
"""
CALIBRATE = f"""{DATA}
After calibration, 90% intervals, or sets of classes, contain at least 90% of new targets, however wrong the model is,
if new rows come from the same distribution as DATA. DATA must not contain rows that the model was fitted to. Use 200
rows or more, or intervals may be wider than necessary; 90% needs at least 9.

examples:
  relvec calibrate houses.relvec held_out.csv
  relvec fit houses.csv --target price --calibrate 0.2   sets a fifth of the rows aside for it
"""
REPORT = f"""{DATA}
The report is one HTML file that needs no network: the result in plain words, accuracy beside a baseline, the largest
errors, calibration, which columns matter and how. The suffix .md or .json, or --as, writes Markdown or JSON instead.

examples:
  relvec report houses.relvec held_out.csv -o report.html
  relvec report houses.relvec houses.csv --cv 5
  relvec report houses.relvec held_out.csv -o report.md
"""
EXPORT = """The exported model takes numbers: the command prints which, and in which order. ONNX is for all models. C is
for relevance vector machines and linear models (relvec fit --model rvm, or linear), and with --distill for Gaussian
processes.

examples:
  relvec export houses.relvec --onnx                  writes houses.onnx
  relvec export small.relvec --onnx there.onnx --c there.c
  relvec export houses.relvec --c --distill houses.csv     C of the functions that predict as the process does
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; what it parses names the ``module`` and the function that do the work."""
    parser = argparse.ArgumentParser(
        prog="relvec",
        description="Small models with error bars, for scikit-learn and the command line: relevance vector machines, "
        "Gaussian processes and sparse linear models.",
        epilog=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"relvec {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, help, description, epilog, add_arguments in (
        ("fit", "fit a model to a table", "Fit a model to a table and save it.", FIT, _fit),
        ("predict", "predict the rows of a table", "Predict the target for every row of a table.", PREDICT, _predict),
        ("inspect", "describe a fitted model", "Describe a fitted model: vectors, noise, evidence, options, columns.",
         INSPECT, _inspect),
        ("calibrate", "make intervals reach their stated coverage", "Calibrate a model on rows that it was not "
         "fitted to.", CALIBRATE, _calibrate),
        ("evaluate", "measure how good a model is on a table", "Compare a model's predictions with the targets of a "
         "table.", EVALUATE, _evaluate),
        ("report", "write an HTML report on a model and a table", "Write an HTML page on a fitted model and a table.",
         REPORT, _report),
        ("export", "write a model for ONNX runtimes or C compilers", "Write a model in a form that other programs run.",
         EXPORT, _export),
    ):  # fmt: skip
        command = commands.add_parser(name, help=help, description=description, epilog=epilog,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        command.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        module = "evaluate" if name in ("calibrate", "report") else name
        command.set_defaults(module=f"relvec.app.cli.{module}", run=f"run_{name}", parser=command)
        add_arguments(command)
    _add_demo(commands)
    return parser


def _fit(parser: argparse.ArgumentParser) -> None:
    _add_data(parser)
    add = parser.add_argument
    add("--target", metavar="COL", help="the column to predict; without it the columns are listed")
    add("--task", choices=TASKS, default="auto", help="kind of target; by default the column itself decides")
    add("-o", "--out", type=Path, default=Path("model.relvec"), metavar="FILE", help="the model file (model.relvec)")
    for name, what in (("features", "the inputs; all other columns by default"), ("drop", "columns to leave out"),
                       ("id", "columns to copy to the predictions"),
                       ("categorical", "columns of numbers that name categories"),
                       ("use", "columns to use even if they look like identifiers, codes or copies")):  # fmt: skip
        add(f"--{name}", nargs="+", action="extend", metavar="COL", help=what)
    add("--drop-rows", action="store_true", help="leave out rows with a missing input instead of filling it")
    add("--strict", action="store_true", help="refuse cells that are not numbers in a column of numbers, instead of "
        "reading a few as missing, and columns with mixed percent signs or currencies")  # fmt: skip
    add("--model", choices=MODELS, default="auto", help="rvm: a relevance vector machine, few functions; gp: a "
        "Gaussian process, where predictions matter more than size; linear: few columns; auto compares them on "
        "held-out rows and takes the smallest that is within a standard error of the best; with fewer than 20 rows "
        "or seconds, a process (auto)")  # fmt: skip
    add("--compare", action="store_true", help="show how a constant, a line and boosted trees of scikit-learn do on "
        "the same held-out rows")  # fmt: skip
    add("--functions", type=_count, metavar="K", help="keep at most K functions, columns or rows")
    add("--kernel", choices=KERNELS, help="kernel of a relevance vector machine")
    add("--noise", choices=NOISES, default="normal", help="noise of a regression: student-t for gross errors, "
        "heteroscedastic for noise that depends on the inputs (normal)")  # fmt: skip
    add("--upper", metavar="COL", help="for censored targets: the column with upper limits; --target then names the "
        "lower limits. Both are equal where the target was observed, and empty where there is no limit")  # fmt: skip
    add("--width", type=_width, help="width of that kernel: a number, auto, scale, learn or learn-per-feature")
    add("--time-limit", type=_positive, metavar="S", help="seconds for the whole command: the best model by then is "
        "saved, and the output says that the fit was cut short")  # fmt: skip
    add("--memory-limit", metavar="SIZE", help="memory that the fit may use in addition to its data, such as 500MB "
        "(4GB)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of all random choices (0)")
    add("--holdout", type=_holdout, metavar="SHARE",
        help="share of the rows to keep out of the fit and evaluate on; by default the model is fitted to all rows, "
        "and a second model, fitted to a part of them, is evaluated on the rest; of more than 2,000 rows a tenth is "
        "kept out; 0 evaluates nothing")  # fmt: skip
    add("--calibrate", type=_share, metavar="SHARE", help="share of the rows to keep out of the fit and use to "
        "calibrate intervals, or sets of classes, so that they reach their coverage")  # fmt: skip


def _predict(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_data(parser)
    add = parser.add_argument
    add("-o", "--out", default="-", metavar="FILE", help="standard output by default; the suffix decides the format")
    add("--interval", type=_share, default=0.9, metavar="P", help="probability that the interval contains the "
        "target (0.9)")  # fmt: skip
    add("--keep", nargs="+", action="extend", metavar="COL", help="further columns to copy")
    add("--escape-formulas", action="store_true", help="write an apostrophe before text that begins with =, +, - or @, "
        "which a spreadsheet would run")  # fmt: skip


def _inspect(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument("--vectors", type=int, default=10, metavar="N", help="relevance vectors to list (10)")


def _calibrate(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_data(parser)
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="where to save the calibrated model; by default "
                        "it replaces MODEL")  # fmt: skip


def _evaluate(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    _add_data(parser)
    parser.add_argument("--cv", type=_folds, default=0, metavar="K", help="cross-validation with K folds, and K fits")
    parser.add_argument("--seed", type=int, default=0, help="seed of the resampling and the folds (0)")


def _report(parser: argparse.ArgumentParser) -> None:
    _evaluate(parser)
    add = parser.add_argument
    add("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="the report (report.html)")
    add("--as", dest="form", choices=("html", "markdown", "json"), help="format of the report; by default the suffix "
        "of FILE decides")  # fmt: skip


def _export(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    for name, form in (("onnx", "ONNX"), ("c", "C99")):
        parser.add_argument(f"--{name}", nargs="?", const="", metavar="FILE", help=f"write {form}; by default next to "
                            "the model")  # fmt: skip
    parser.add_argument("--interval", type=_share, default=0.9, metavar="P",
                        help="coverage of the intervals or sets of a calibrated model (0.9)")  # fmt: skip
    parser.add_argument("--distill", metavar="DATA", help="write the few functions that predict as a Gaussian process "
                        "does, found at the rows of this table, in its place: best rows that no fit has "
                        "seen")  # fmt: skip
    parser.add_argument("--loss", type=_positive, default=0.02, metavar="NATS",
                        help="of its density that they may lose, nats a row (0.02)")  # fmt: skip


def _add_demo(commands: argparse._SubParsersAction) -> None:
    text = ("Fit a noisy sinc and scikit-learn's diabetes table, print what was found and draw the fits. The table is "
            "written to the same folder, to try the other commands on.")  # fmt: skip
    demo = commands.add_parser("demo", help="fit a noisy sinc and a small real table", description=text)
    demo.add_argument("--out", type=Path, default=Path("relvec-demo"), metavar="DIR", help="folder for all files")
    demo.add_argument("--no-plots", action="store_true", help="print the summary only")
    demo.set_defaults(module="relvec.app.cli.demo", run="run_demo", parser=demo)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="a table, or - for standard input")
    parser.add_argument("--format", choices=FORMATS, help="format of DATA, if its name and content do not show it")
    parser.add_argument("--sheet", metavar="NAME", help="sheet of a workbook (the first)")
    parser.add_argument("--missing", nargs="+", action="extend", default=[], metavar="VALUE",
                        help="values that stand for a missing cell, besides empty, NA, NaN, null, ? and -")  # fmt: skip


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a file written by relvec fit")


def _width(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _number(text: str, convert: Callable[[str], float], valid: Callable[[float], bool], expected: str) -> float:
    try:
        value = convert(text)
    except ValueError:
        value = None
    if value is None or not valid(value):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


_positive = partial(_number, convert=float, valid=lambda value: value > 0, expected="a positive number")
_count = partial(_number, convert=int, valid=lambda value: value >= 1, expected="a whole number, 1 or more")
_share = partial(_number, convert=float, valid=lambda value: 0 < value < 1, expected="a number between 0 and 1")
_holdout = partial(_number, convert=float, valid=lambda value: 0 <= value < 1, expected="a number from 0 to below 1")
_folds = partial(_number, convert=int, valid=lambda k: k == 0 or k >= 2, expected="0 for none, or 2 or more folds")
