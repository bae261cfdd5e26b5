"""One page on a fitted pipeline and a table: how good it is, what it rests on, and what to be careful about.

The page needs no network and runs no script. Everything that comes from the data is escaped: text through
`html.escape`, and figures are images (``data:`` URLs), in which nothing can run.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from sklearn.pipeline import Pipeline

from relvec._version import __version__
from relvec.app.report import sections
from relvec.app.report.facts import Facts, gather_facts, table_columns
from relvec.app.report.html import STYLE, make_drawer, text
from relvec.app.tables.evaluation import BASELINE_MEANING, SCORE_HEADER, Evaluation
from relvec.app.tables.importance import partial_dependence
from relvec.app.tables.text import format_cell, to_json_types

__all__ = ["write_report"]


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
        _escape(facts.importance.meaning),
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


MAX_CURVES = 6  # columns whose effect is drawn
FORMATS = ("html", "markdown", "json")


def write_report(pipeline: Pipeline, evaluation: Evaluation, *, title: str | None = None, format: str = "html") -> str:
    """Write the report as one page.

    Parameters
    ----------
    pipeline : as `relvec.app.tables.pipelines.fit_table` makes it
    evaluation : of the pipeline, by `relvec.app.tables.evaluation.evaluate_table`
    title : str, optional
        The heading; by default the task and the target.
    format : {"html", "markdown", "json"}, default "html"
        Markdown and JSON have the same content without figures.

    Returns
    -------
    page : str
        Without matplotlib (``pip install 'relvec[plot]'``) the page has no figures and says so.

    Examples
    --------
    >>> from relvec.app.tables.evaluation import evaluate_table
    >>> from relvec.app.tables.pipelines import fit_table
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0], "<b>y</b>": [0.1, 0.9, 2.1, 2.9]}
    >>> pipeline = fit_table(table, "<b>y</b>").pipeline
    >>> page = write_report(pipeline, evaluate_table(pipeline, table))
    >>> page.startswith("<!doctype html>"), "<b>y</b>" in page
    (True, False)
    >>> print(write_report(pipeline, evaluate_table(pipeline, table), format="markdown").splitlines()[0])
    # Regression of &lt;b>y&lt;/b>
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    facts = gather_facts(pipeline, evaluation, title)
    if format == "markdown":
        return to_markdown(facts)
    if format == "json":
        return json.dumps(to_dict(facts), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    return _write_html(pipeline, evaluation, facts)


def _write_html(pipeline: Pipeline, evaluation: Evaluation, facts: Facts) -> str:
    step, heading = pipeline["columns"], facts.heading
    curves = [partial_dependence(pipeline, evaluation.table, name) for name in facts.importance.names[:MAX_CURVES]]
    draw, bars = make_drawer(), "probabilities" if step.task == "classification" else "error bars"
    parts = [
        ("summary", "", sections.summary_section(pipeline, facts)),
        ("quality", "How good it is", sections.quality_section(pipeline, evaluation, facts, draw)),
        ("worst", "The largest errors", sections.worst_section(facts)),
        ("calibration", f"Can the {bars} be believed?", sections.calibration_section(pipeline, evaluation, draw)),
        ("columns", "Which columns matter", sections.importance_section(facts.importance, draw)),
        ("effects", "How they matter", sections.effects_section(pipeline, curves, draw)),
        ("vectors", "The rows it rests on", sections.vectors_section(pipeline)),
        ("preparation", "How the columns were read", sections.preparation_section(facts)),
        ("fit", "The fit", sections.fit_section(pipeline, facts, draw)),
    ]
    links = "".join(f'<a href="#{key}">{name}</a>' for key, name, _ in parts if name)
    body = "".join(
        f'<section id="{key}">{f"<h2>{name}</h2>" if name else f"<nav>{links}</nav>"}{content}</section>'
        for key, name, content in parts
    )
    now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src 'unsafe-inline'\"><title>{text(heading)}</title><style>{STYLE}</style></head><body><main>"
        f'<p class="soft">Report on a model of relvec</p><h1>{text(heading)}</h1>{body}'
        f"<footer>relvec {__version__}, {now}. Model fitted to {text(PurePath(step.record_['source']).name)}; "
        f"evaluated on {text(PurePath(evaluation.table.source).name)}.</footer></main></body></html>\n"
    )
