"""The command `relvec`."""

from relvec.cli.entry import main

__all__ = ["main"]
