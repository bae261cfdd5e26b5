"""One HTML page on a run of `make reproduce`: every number beside the published one, every figure, filters, sorting.

The page needs no network. Its one script is named by its hash in the page's security policy; figures are pictures
(``data:`` URLs).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from relvec.app.report.html import STYLE, frame_table, html_table, text

PAPERS = {
    "T00": "M. E. Tipping, The Relevance Vector Machine, NIPS 12, 2000",
    "T01": "M. E. Tipping, Sparse Bayesian Learning and the Relevance Vector Machine, JMLR 1:211-244, 2001",
    "TF03": "M. E. Tipping and A. C. Faul, Fast Marginal Likelihood Maximisation for Sparse Bayesian Models, "
    "AISTATS 2003",
    "RQ05": "C. E. Rasmussen and J. Quiñonero-Candela, Healing the Relevance Vector Machine through Augmentation, "
    "ICML 2005",
    "GRVM": "Bayesian kernel selection: the Generalized Relevance Vector Machine, believed to be D. Kropotov, "
    "N. Ptashko and D. Vetrov, CIARP 2005",
}
LARGE = 250_000  # bytes of an SVG above which the PNG is taken
DRAWS = "Our repetitions, their mean (line) and the published number (dashed)."
OVERVIEW = "Every number that can be compared, ours over the published one."
TITLE = "The papers' numbers, measured again"

_STYLE = """
.bar { display: flex; flex-wrap: wrap; gap: 10px; align-items: center; margin: 14px 0 4px; }
.bar label { font-size: 0.9rem; color: var(--soft); }
.bar select, .bar input[type=search] { font: inherit; font-size: 0.9rem; padding: 5px 8px;
  border: 1px solid var(--line); border-radius: 6px; background: var(--back); color: var(--ink); max-width: 100%; }
.chips { display: flex; flex-wrap: wrap; gap: 6px; }
.chips button { font: inherit; font-size: 0.88rem; padding: 4px 12px; border: 1px solid var(--line);
  border-radius: 99px; background: var(--back); color: var(--ink); cursor: pointer; }
.chips button[aria-pressed=true] { background: var(--blue); border-color: var(--blue); color: #fff; }
th button { font: inherit; font-weight: 600; background: none; border: 0; padding: 0; cursor: pointer; color: inherit; }
th button::after { content: " ↕"; color: var(--soft); font-weight: 400; }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
.v { display: inline-block; padding: 0 8px; border-radius: 99px; font-size: 0.84rem; white-space: nowrap;
  background: var(--card); color: var(--soft); }
.v.better { background: #e4f3e9; color: #23613a; }
.v.within { background: #e8eef7; color: #1f4b83; }
.v.worse { background: #fbe6e9; color: #93243a; }
.summary td:first-child { white-space: nowrap; }
.summary { max-height: 72vh; overflow-y: auto; }
.summary th { position: sticky; top: 0; }
article { border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; margin: 18px 0; }
article h3 { font-size: 1.08rem; }
article .figures { align-items: start; }
article figure { max-width: 760px; }
main > figure { margin-top: 18px; }
figure.wide { grid-column: 1 / -1; max-width: 980px; }
article ul { margin: 4px 0; padding-left: 20px; font-size: 0.92rem; max-width: 90ch; overflow-wrap: anywhere; }
article h4 { margin: 12px 0 0; font-size: 0.86rem; color: var(--soft); font-weight: 600; }
code { font-size: 0.92em; overflow-wrap: anywhere; }
[hidden] { display: none !important; }
@media (max-width: 520px) { article { padding: 12px; } .summary td:first-child { white-space: normal; min-width: 15ch; }
  td { min-width: 6ch; } }
"""

_SCRIPT = """
"use strict";
const all = s => [...document.querySelectorAll(s)];
const state = { paper: "", group: "", words: "" };
const count = document.getElementById("count");
function fits(e) {
  const d = e.dataset;
  const group = state.group === "" ? true : state.group === "any" ? d.group !== "" : d.group === state.group;
  return (!state.paper || d.paper === state.paper) && group && d.words.includes(state.words);
}
function show() {
  const rows = all("#numbers tbody tr"), names = new Set();
  let shown = 0;
  for (const row of rows) {
    row.hidden = !fits(row);
    if (!row.hidden) { shown += 1; names.add(row.dataset.name); }
  }
  for (const article of all("article")) {
    const bare = article.dataset.bare === "1" && !state.group && article.dataset.words.includes(state.words);
    article.hidden = !(names.has(article.dataset.name)
      || (bare && (!state.paper || article.dataset.paper === state.paper)));
  }
  for (const section of all("section.paper"))
    section.hidden = ![...section.querySelectorAll("article")].some(a => !a.hidden);
  count.textContent = shown + " of " + rows.length + " numbers";
}
for (const chip of all("#papers button")) chip.addEventListener("click", () => {
  state.paper = chip.value;
  for (const other of all("#papers button")) other.setAttribute("aria-pressed", String(other === chip));
  show();
});
document.getElementById("group").addEventListener("change", e => { state.group = e.target.value; show(); });
document.getElementById("words").addEventListener("input", e => {
  state.words = e.target.value.toLowerCase();
  show();
});
function key(row, column) { return row.children[column].dataset.key ?? row.children[column].textContent; }
for (const button of all("#numbers th button")) button.addEventListener("click", () => {
  const head = button.parentElement, column = [...head.parentElement.children].indexOf(head);
  const down = head.getAttribute("aria-sort") === "ascending", number = head.classList.contains("n");
  for (const other of all("#numbers th")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = document.querySelector("#numbers tbody"), rows = [...body.children];
  const place = new Map(rows.map((row, i) => [row, i]));
  rows.sort((a, b) => {
    const x = key(a, column), y = key(b, column);
    if (number && (x === "" || y === "")) return (x === "") - (y === "") || place.get(a) - place.get(b);
    const order = number ? Number(x) - Number(y) : x.localeCompare(y);
    return (down ? -order : order) || place.get(a) - place.get(b);
  });
  body.append(...rows);
});
document.querySelector(".filters").hidden = false;
show();
"""

_GROUPS = {"better": "better", "within two standard errors": "within", "worse": "worse", "": ""}


def page(record: dict[str, Any], folder: Path) -> str:
    """Return the page on a record (`_results.record`), with the figures of `folder`."""
    experiments = record["experiments"]
    papers = list(dict.fromkeys(map(_paper, experiments)))
    links = "".join(f'<a href="#{p}">{p}</a>' for p in papers) + '<a href="#machine">machine and versions</a>'
    body = "".join(_section(paper, [e for e in experiments if _paper(e) == paper], folder) for paper in papers)
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    machine = record["machine"]
    overview = _figure(record["overview"], OVERVIEW, folder, OVERVIEW) if record["overview"] else ""
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>relvec: {TITLE.lower()}</title><style>{STYLE}{_STYLE}</style></head><body><main>"
        f'<p class="soft">relvec {text(machine["relvec"])}, {text(machine["day"])}, {text(record["how"])}</p>'
        f"<h1>{TITLE}</h1><nav>{links}</nav>{_cards(record)}{overview}{_numbers(experiments, papers)}{body}"
        f'<section id="machine"><h2>Machine and versions</h2>{html_table(("what", "value"), list(machine.items()))}'
        '<p class="soft">Seconds are of CPU, added up over all repetitions; published seconds are of the machines of '
        "their time and are not compared. Two standard errors are of the difference, the paper's own uncertainty "
        "included, by Student's t for few repetitions; a single published split has its binomial error.</p></section>"
        f"</main><script>{_SCRIPT}</script></body></html>\n"
    )


def _paper(experiment: dict[str, Any]) -> str:
    return text(experiment["name"].split("-")[0])


def _cards(record: dict[str, Any]) -> str:
    counts = record["verdicts"]
    total, seconds = sum(counts.values()), record["seconds"]
    good = f"{1.0 - counts['worse'] / total:.0%}" if total else "none"
    cards = [
        (good, f"of {total} comparable published numbers are better or within two standard errors"),
        (counts["better"], "better than published"),
        (counts["within two standard errors"], "within two standard errors, or within the spread of single draws"),
        (counts["worse"], "worse: the entries say why, as far as it is known"),
        (f"{seconds / 60.0:.1f} min", "of CPU"),
    ]
    listed = "".join(f'<div class="card"><b>{text(value)}</b><span>{text(what)}</span></div>' for value, what in cards)
    return f'<div class="cards">{listed}</div>'


def _chip(row: dict[str, Any]) -> str:
    return f'<span class="v {_GROUPS[row["group"]]}">{text(row["verdict"])}</span>' if row["verdict"] else ""


def _numbers(experiments: Sequence[dict[str, Any]], papers: Sequence[str]) -> str:
    """Return the summary table with its filters, which the script unhides."""
    chips = "".join(
        f'<button value="{p}" aria-pressed="{"false" if p else "true"}">{p or "all papers"}</button>'
        for p in ("", *papers)
    )
    options = "".join(
        f'<option value="{value}">{name}</option>'
        for value, name in (("", "any verdict"), ("better", "better"), ("within", "within two standard errors"),
                            ("worse", "worse"), ("any", "all that are compared"))
    )  # fmt: skip
    bar = (
        f'<div class="filters" hidden><div class="bar"><div class="chips" id="papers">{chips}</div></div>'
        f'<div class="bar"><select id="group" aria-label="verdict">{options}</select>'
        '<input type="search" id="words" placeholder="search" aria-label="search">'
        '<span class="soft" id="count"></span></div></div>'
    )
    head = "".join(
        f"<th{' class=n' if right else ''}><button>{name}</button></th>"
        for name, right in (("experiment", 0), ("number", 0), ("published", 1), ("ours ± s.e.", 1), ("verdict", 0),
                            ("draws", 1), ("CPU s", 1))
    )  # fmt: skip
    return (
        f'<h2>All numbers</h2>{bar}<div id="numbers">{frame_table(head, "".join(_lines(experiments)), "summary")}</div>'
    )


def _lines(experiments: Sequence[dict[str, Any]]) -> Iterator[str]:
    for e in experiments:
        for row in e["rows"] or ({"quantity": e["state"], "verdict": "", "group": ""},):
            words = text(f"{e['name']} {e['title']} {row['quantity']} {row['verdict']}".lower())
            link = f'<a href="#{text(e["name"])}">{text(e["name"])}</a>'
            seconds = _number(e["seconds"], f"{e['seconds']:.1f}")
            cells = [_number(row.get("published", "")), _number(row.get("mean", ""), row.get("ours", ""))]
            yield (
                f'<tr data-paper="{_paper(e)}" data-name="{text(e["name"])}" data-group="{_GROUPS[row["group"]]}" '
                f'data-words="{words}"><td>{link}</td><td>{text(row["quantity"])}</td>{"".join(cells)}'
                f"<td>{_chip(row)}</td>{_number(row.get('draws', ''))}{seconds}</tr>"
            )


def _number(key: Any, shown: Any = None) -> str:
    """Return a cell that is sorted by its number."""
    order = repr(key) if isinstance(key, float) else key
    return f'<td class=n data-key="{text(order)}">{text(key if shown is None else shown)}</td>'


def _section(paper: str, experiments: Sequence[dict[str, Any]], folder: Path) -> str:
    content = "".join(_article(e, folder) for e in experiments)
    head = f'<h2>{paper}</h2><p class="soft">{text(PAPERS.get(paper, ""))}</p>'
    return f'<section class="paper" id="{paper}">{head}{content}</section>'


def _article(e: dict[str, Any], folder: Path) -> str:
    """Figures first, then the numbers, what was assumed and what was found."""
    facts = [e["source"], *([f"{e['draws']} draws"] if e["draws"] > 1 else []), f"{e['seconds']:.1f} CPU s",
             *([f"measured {' and '.join(sorted({e['days'][0], e['days'][-1]}))}"] if e["days"] else [])]  # fmt: skip
    figures = "".join(_figure(name, e["title"], folder) for name in e["figures"])
    rows = "".join(
        f"<tr><td>{text(row['quantity'])}<small>{text(row['where'])}</small></td>"
        f"<td class=n>{text(row['published'])}</td><td class=n>{text(row['ours'])}</td>"
        f"<td>{_chip(row)}<small>{text(row['why'])}</small></td></tr>"
        for row in e["rows"]
    )
    head = "<th>number</th><th class=n>published</th><th class=n>ours ± s.e.</th><th>verdict</th>"
    parts = [
        f"<h3>{text(e['title'])}</h3>",
        f'<p class="soft"><code>{text(e["name"])}</code> · {text(" · ".join(facts))}</p>',
        f'<div class="figures">{figures}</div>' if figures else "",
        frame_table(head, rows) if rows else "",
        f'<ul class="warnings"><li>{text(e["state"])}: {text(e["problem"])}</li></ul>' if e["problem"] else "",
        _list("Assumed", e["assumptions"]),
        _list("Found", e["notes"]),
    ]
    words = text(f"{e['name']} {e['title']}".lower())
    return (
        f'<article id="{text(e["name"])}" data-name="{text(e["name"])}" data-paper="{_paper(e)}" data-words="{words}" '
        f'data-bare="{int(not e["rows"])}">{"".join(parts)}</article>'
    )


def _list(title: str, sentences: Sequence[str]) -> str:
    return f"<h4>{title}</h4><ul>{''.join(f'<li>{text(s)}</li>' for s in sentences)}</ul>" if sentences else ""


def _figure(name: str, title: str, folder: Path, words: str = "") -> str:
    """Return a picture inside the page; a large drawing as PNG."""
    drawing, kind = folder / f"{name}.svg", "svg+xml"
    if drawing.stat().st_size > LARGE:
        drawing, kind = folder / f"{name}.png", "png"
    data = base64.b64encode(drawing.read_bytes()).decode()
    what = name.rsplit("-", 1)[-1]
    words = DRAWS if what == "draws" else words
    caption = f"<figcaption>{text(words)}</figcaption>" if words else ""
    wide = ' class="wide"' if _aspect(folder / f"{name}.png") > 1.9 else ""
    return (
        f'<figure{wide}><img alt="{text(title)}: {text(what)}" src="data:image/{kind};base64,{data}">{caption}</figure>'
    )


def _aspect(png: Path) -> float:
    """Width over height, from the head of a PNG file."""
    head = png.read_bytes()[:24]
    return int.from_bytes(head[16:20], "big") / int.from_bytes(head[20:24], "big")
