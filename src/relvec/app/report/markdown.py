"""The report as Markdown, for a repository or a message, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from relvec.app.report.facts import Facts, table_columns
from relvec.app.tables.evaluation import BASELINE_MEANING, SCORE_HEADER
from relvec.app.tables.text import format_cell, to_json_types


def to_markdown(facts: Facts) -> str:
    """Write the content of a report as a page of Markdown; nothing from the data becomes markup."""
    parts = [
        f"# {_escape(facts.heading)}",
        "\n".join(_escape(sentence) for sentence in facts.sentences),
        *(f"> **Note.** {_escape(warning)}" for warning in facts.warnings),
        "## How good it is",
        _escape(facts.how),
        _table(SCORE_HEADER, [score.cells() for score in facts.scores]),
        _escape(BASELINE_MEANING),
        "## The largest errors",
        _table(*facts.worst) if facts.worst[1] else "None.",
        "## Which columns matter",
        "How much worse the predictions become when a column's cells are shuffled.",
        _table(*table_columns(facts.importance)),
        "## How the columns were read",
        _table(("column", "kind", "what was done"), facts.columns),
        *(f"- {_escape(note)}" for note in facts.notes),
        "## The fit",
        _table(("what", "value"), facts.model),
    ]
    return "\n\n".join(parts) + "\n"


def to_dict(facts: Facts) -> dict[str, Any]:
    """Write the content of a report in types that JSON has."""
    header, rows = facts.worst
    found = asdict(facts) | {"worst": [dict(zip(header, row, strict=True)) for row in rows]}
    found |= {name: dict(found[name]) for name in ("model", "options")}
    found["columns"] = [dict(zip(("name", "kind", "note"), column, strict=True)) for column in facts.columns]
    return to_json_types(found)


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_escape(cell) for cell in line) + " |" for line in lines)


def _escape(value: object) -> str:
    r"""Write a value as Markdown text.

    >>> print(_escape("<b>*a*|b</b>"))
    &lt;b>\*a\*\|b&lt;/b>
    """
    text = format_cell(value).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{c}" if c in "|*_`[]" else c for c in text)
