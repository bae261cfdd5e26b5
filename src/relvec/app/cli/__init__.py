"""The command `relvec`: run a command and turn its errors into a message and an exit code.

Exit codes: 0 success, 1 the command failed, 2 wrong arguments, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from relvec.app.cli.arguments import make_parser

__all__ = ["main"]

# Errors that are the user's to solve, so that a message is enough. Others are ours and show a traceback.
EXPECTED_ERRORS = (ValueError, OSError, ImportError, MemoryError, NotImplementedError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process, and return its exit code."""
    began = time.monotonic()
    arguments, unknown = make_parser().parse_known_args(argv)
    if unknown:
        near = get_close_matches(unknown[0], re.findall(r"--[\w-]+", arguments.parser.format_usage()), n=1)
        arguments.parser.error(f"unknown argument {unknown[0]!r}" + (f"; did you mean {near[0]}?" if near else ""))
    arguments.began = began  # a time limit counts from here
    try:
        code = getattr(import_module(arguments.module), arguments.run)(
            arguments
        )  # only the modules that the command needs
        if sys.stdout is not None:  # it is None where the caller has closed it
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except EXPECTED_ERRORS as error:
        _print_error(error, getattr(arguments, "json", False))
        return 1


def _print_error(error: BaseException, as_json: bool) -> None:
    from relvec.app.tables.text import escape_controls

    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    print(json.dumps({"error": message}) if as_json else f"relvec: {escape_controls(message)}", file=sys.stderr)
