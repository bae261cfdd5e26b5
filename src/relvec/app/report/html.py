"""HTML for the report: tables that scroll, figures as pictures, and text from data escaped."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from relvec import plot
from relvec.app.tables.text import format_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE = files("relvec.app.report").joinpath("style.css").read_text(encoding="utf-8")


def text(value: object) -> str:
    """Write a value as HTML text: no markup, no control characters.

    >>> text("<script>'x' & y</script>")
    '&lt;script&gt;&#x27;x&#x27; &amp; y&lt;/script&gt;'
    """
    return escape(format_cell(value), quote=True)


Draw = Callable[..., str]


def html_table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    numbers: Iterable[int] = (),
    name: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Write a table; the columns in `numbers` are set right, and `notes` stand in small print below first cells.

    Where the page is narrow a row becomes a block with a line for each cell, which has its heading before it.
    """
    right = set(numbers)
    head = "".join(f"<th{' class=n' if i in right else ''}>{text(cell)}</th>" for i, cell in enumerate(header))

    def line(row: Sequence[object], note: str) -> str:
        small = f"<small>{text(note)}</small>" if note else ""
        return "".join(
            f'<td{" class=n" if i in right else ""} data-label="{text(header[i])}">{text(cell)}'
            f"{small if i == 0 else ''}</td>"
            for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{line(row, notes[i] if notes else '')}</tr>" for i, row in enumerate(rows))
    return frame_table(head, body, f"stack {name}")


def frame_table(head: str, body: str, name: str = "") -> str:
    """Write a table that scrolls sideways where the page is narrow."""
    content = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll {name}" tabindex="0">{content}</div>'


def fold(words: str, content: str) -> str:
    """Write content that is shown when the reader asks for it."""
    return f"<details><summary>{text(words)}</summary>{content}</details>"


def figure_grid(figures: Sequence[str], name: str = "figures") -> str:
    """Write figures side by side where there is room."""
    return f'<div class="{name}">{"".join(figures)}</div>'


def make_drawer() -> Draw:
    """Return a function that draws into new axes and returns the HTML; a sentence where matplotlib is missing."""
    try:
        plot.new_figure()
    except ImportError as error:
        sentence = f'<p class="soft">No figure: {text(error)}</p>'
        return lambda *ignored: sentence
    return _draw


def _draw(function: Callable[[Axes], object], caption: str, width: float = 6.4, height: float = 4.2) -> str:
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
    """Draw rows to show: all, or some thousand of them."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def shorten(name: str, most: int = 28) -> str:
    """Write a name that fits beside an axis; control characters are no XML."""
    clean = format_cell(name)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
