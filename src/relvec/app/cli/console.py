"""Print for people, or for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence

from relvec.app.tables.text import escape_controls, format_cell, on_terminal, to_json_types

MAX_CELL_WIDTH = 40


class Console:
    """Prints text for people; or, for machines, nothing but one JSON object at the end."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json

    def print(self, text: str = "") -> None:
        """Print lines for people."""
        if not self.as_json:
            print(escape_controls(text))

    def print_facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print names and values, one pair a line."""
        width = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            self.print(f"  {name:{width}}  {value}")

    def print_table(self, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table for people."""
        if self.as_json or not rows:
            return
        cells = [[format_cell(cell) for cell in row] for row in [header, *rows]]
        widths = [min(MAX_CELL_WIDTH, max(len(row[i]) for row in cells)) for i in range(len(header))]
        for row in cells:
            line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
            print(f"  {line}".rstrip())

    def print_json(self, value: dict[str, object]) -> None:
        """Print the object for machines."""
        if self.as_json:
            # A terminal obeys signs that JSON need not escape, such as U+009B.
            print(json.dumps(to_json_types(value), ensure_ascii=on_terminal(), allow_nan=False))
