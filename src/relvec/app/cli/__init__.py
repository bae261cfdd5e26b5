"""The command `relvec`."""

from relvec.app.cli.entry import main

__all__ = ["main"]
