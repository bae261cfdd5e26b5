"""What the commands print: plain text, tables that rich draws on a terminal where it is installed, or JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


class Console:
    """Prints for people, or nothing until `result` prints one JSON object for machines."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    def say(self, text: str = "") -> None:
        """A line for people."""
        if not self.as_json:
            print(text)

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names and what they are, one below the other."""
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            self.say(f"  {name:{width}}  {value}")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table for people."""
        if self.as_json or not rows:
            return
        cells = [[shown(cell) for cell in row] for row in rows]
        if sys.stdout.isatty() and _with_rich(header, cells):
            return
        widths = [min(40, max(len(row[i]) for row in [list(header), *cells])) for i in range(len(header))]
        for row in [list(header), *cells]:
            line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
            print(f"  {line}".rstrip())

    def result(self, value: dict[str, Any]) -> None:
        """The object for machines."""
        if self.as_json:
            print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def _with_rich(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether rich is installed and has drawn the table."""
    try:
        from rich.console import Console as RichConsole
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        return False
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])  # Text: no markup in what comes from the data
    RichConsole().print(table)
    return True


def shown(value: Any) -> str:
    r"""A cell for people: numbers with four digits, control characters escaped.

    >>> shown(3.14159), shown(12345.6), shown(None), shown("two\nlines")
    ('3.142', '12,346', '', 'two lines')
    """
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1e4 <= abs(float(value)) < 1e9 else f"{value:.4g}"
    text = " ".join(str(value).split())
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def rounded(value: float) -> float:
    """An uncertainty with two digits.

    >>> rounded(561.2), rounded(0.0321)
    (560.0, 0.032)
    """
    return float(f"{value:.2g}")


def plain(value: Any) -> Any:
    """The value in types that JSON knows; NaN and infinities become null.

    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2), True)})
    {'a': [1.0, None], 'b': [2, True]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
