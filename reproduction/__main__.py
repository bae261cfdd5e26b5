"""The command `python -m reproduction`, which `make reproduce ARGS=...` calls: the papers' numbers, measured again.

Exit codes: 0 done, 1 something failed or nothing could be run, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from relvec import plot
from reproduction import Experiment, _command, select

EXAMPLES = """A name stands for every experiment that begins with it: T01 is the whole paper.
A data set that is missing is reported, with the way to get it, and its experiments are skipped.
Finished repetitions are kept in --out: an interrupted run continues where it stopped.

examples:
  make reproduce ARGS=--list                          what can be reproduced
  make reproduce ARGS=T01-figure-1                    one experiment
  make reproduce ARGS="T01 --full --data-dir ~/data"  all of one paper, with the published repetitions
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the numbers of the papers again, and set them beside the published ones: text, CSV and one HTML page."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        chosen = select(arguments.names)
    except ValueError as error:
        parser.error(str(error))  # exits with code 2
    if arguments.data_dir is not None and not arguments.data_dir.is_dir():
        parser.error(f"--data-dir: {arguments.data_dir} is not a folder")
    try:
        code = _print_list(chosen) if arguments.list else _command.reproduce(arguments, _plots(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _print_list(chosen: Sequence[Experiment]) -> int:
    _command.print_list(chosen)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description=main.__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments, all by default")
    parser.add_argument("--list", action="store_true", help="list the experiments and stop")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer repetitions (the default)")
    size.add_argument("--full", action="store_true", help="the published number of repetitions")
    size.add_argument("--draws", type=_count, metavar="N", help="at most N repetitions")
    size.add_argument("--kept", action="store_true", help="measure nothing: report what --out has so far")
    parser.add_argument("--fresh", action="store_true", help="measure again what --out has already")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder of data sets (default: $RELVEC_DATA)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("relvec-reproduce"),
        metavar="DIR",
        help="folder for the page, tables and figures, and for finished parts: a second run continues there",
    )
    parser.add_argument("--jobs", type=_jobs, default=-1, metavar="N", help="cores, -1 (the default) for all")
    parser.add_argument("--no-plots", action="store_true", help="no figures")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of repetitions: give 1, 2, ...")
    return int(text)


def _jobs(text: str) -> int:
    try:
        jobs = int(text)
    except ValueError:
        jobs = 0
    if jobs == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cores: give 1, 2, ... or -1 for all")
    return jobs


def _plots(arguments: argparse.Namespace) -> bool:
    """Whether pictures are drawn; says why not where they were asked for."""
    if arguments.no_plots:
        return False
    try:
        plot.new_figure()
    except ImportError as error:
        print(f"No pictures: {error}\n", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
