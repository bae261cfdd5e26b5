"""HTML for the report: tables that scroll, figures as pictures, and text from data escaped."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import numpy as np

from relvec import plot
from relvec.tables.text import format_cell

STYLE = """
:root { --ink: #1d2330; --soft: #5b6472; --line: #dfe3ea; --back: #ffffff; --card: #f6f8fb;
  --blue: #1f5fa8; --red: #b3364a; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 8px 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 44px 0 8px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 4px; overflow-wrap: anywhere; }
p { margin: 8px 0; max-width: 74ch; overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px; margin: 20px 0 8px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.card b { display: block; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.card span { color: var(--soft); font-size: 0.86rem; }
.warnings { list-style: none; margin: 16px 0; padding: 0; }
.warnings li { border-left: 4px solid var(--red); background: #fcf2f3; padding: 10px 14px; margin: 8px 0;
  max-width: 84ch; border-radius: 0 6px 6px 0; overflow-wrap: anywhere; }
.fine li { border-left-color: #3f8f5b; background: #f1f8f3; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 20px;
  margin: 14px 0; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr)); }
figure { margin: 0; max-width: 600px; }
.plain { font-size: 1.12rem; line-height: 1.6; margin: 18px 0; }
.plain p { max-width: 66ch; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: 0.88rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 12px 0; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 6px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { background: var(--card); font-weight: 600; white-space: nowrap; }
td { max-width: 44ch; overflow-wrap: break-word; }
td small { color: var(--soft); display: block; min-width: 20ch; }
.rows td { max-width: 26ch; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.n { text-align: right; }
footer { margin-top: 48px; color: var(--soft); font-size: 0.85rem; }
nav { font-size: 0.9rem; margin: 12px 0; display: flex; flex-wrap: wrap; gap: 4px 16px; }
a, summary { color: var(--blue); }
summary { cursor: pointer; margin: 12px 0; }
@media (max-width: 520px) {
  main { padding: 14px 14px 48px; } h1 { font-size: 1.35rem; } .plain { font-size: 1.02rem; }
  th, td { padding: 5px 8px; }
  .stack { border: 0; overflow-x: visible; } .stack thead { display: none; }
  .stack table, .stack tbody, .stack tr { display: block; }
  .stack tr { border: 1px solid var(--line); border-radius: 8px; margin: 8px 0; padding: 4px 0; }
  .stack td { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2px 12px; max-width: none;
    text-align: right; white-space: normal; border-bottom: 0; padding: 3px 10px; overflow-wrap: anywhere; }
  .stack td::before { content: attr(data-label); color: var(--soft); text-align: left; flex: none; max-width: 45%; }
  .stack td:empty { display: none; }
  .stack td:first-child { font-weight: 600; }
  .stack td small { flex-basis: 100%; text-align: left; font-weight: 400; min-width: 0; }
}
@media print { main { max-width: none; } h2 { break-after: avoid; } figure, .card { break-inside: avoid; } }
"""


def text(value: Any) -> str:
    """A value as HTML text: no markup, no control characters.

    >>> text("<script>'x' & y</script>")
    '&lt;script&gt;&#x27;x&#x27; &amp; y&lt;/script&gt;'
    """
    return escape(format_cell(value), quote=True)


Draw = Callable[..., str]


def html_table(
    header: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Any = (), name: str = "", notes: Sequence[str] = ()
) -> str:
    """A table; the columns in `numbers` are set right, and `notes` stand in small print below the first cells.

    Where the page is narrow a row becomes a block with a line for each cell, which has its heading before it.
    """
    right = set(numbers)
    head = "".join(f"<th{' class=n' if i in right else ''}>{text(cell)}</th>" for i, cell in enumerate(header))

    def line(row: Sequence[Any], note: str) -> str:
        small = f"<small>{text(note)}</small>" if note else ""
        return "".join(
            f'<td{" class=n" if i in right else ""} data-label="{text(header[i])}">{text(cell)}'
            f"{small if i == 0 else ''}</td>"
            for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{line(row, notes[i] if notes else '')}</tr>" for i, row in enumerate(rows))
    return frame_table(head, body, f"stack {name}")


def frame_table(head: str, body: str, name: str = "") -> str:
    """A table that scrolls sideways where the page is narrow."""
    content = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll {name}" tabindex="0">{content}</div>'


def fold(words: str, content: str) -> str:
    """Content that is shown when the reader asks for it."""
    return f"<details><summary>{text(words)}</summary>{content}</details>"


def figure_grid(figures: Sequence[str], name: str = "figures") -> str:
    """Figures side by side where there is room."""
    return f'<div class="{name}">{"".join(figures)}</div>'


def make_drawer() -> Draw:
    """A function that draws into new axes and returns the figure's HTML; a sentence where matplotlib is missing."""
    try:
        plot.new_figure()
    except ImportError as error:
        sentence = f'<p class="soft">No figure: {text(error)}</p>'
        return lambda *ignored: sentence
    return _draw


def _draw(function: Callable[[Any], Any], caption: str, width: float = 6.4, height: float = 4.2) -> str:
    figure = plot.new_figure(width, height)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names may hold letters that matplotlib's font does not have
        function(figure.subplots())
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    data = base64.b64encode(out.getvalue()).decode()
    return (f'<figure><img alt="{text(caption)}" src="data:image/svg+xml;base64,{data}"><figcaption>{text(caption)}'
            "</figcaption></figure>")  # fmt: skip


def sample_rows(n: int, most: int = 2000) -> np.ndarray:
    """Rows to draw: all, or some thousand of them."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def shorten(name: str, most: int = 28) -> str:
    """A name that fits beside an axis; control characters are no XML."""
    clean = format_cell(name)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
