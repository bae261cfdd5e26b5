"""Write docs/reproduction.md from the results of `make reproduce`.

    make reproduce ARGS="--full --out relvec-reproduce"
    python docs/make_reproduction.py relvec-reproduce

takes the results (docs/reproduction.json) and the papers' figures (docs/images/reproduction/) over and writes the page.
A run of some experiments replaces these alone. Without a folder the page is written from the results that are there;
--check tells whether it would change.
"""

import json
import math
import re
import shutil
import sys
from pathlib import Path

from reproduction._figures import ratio
from reproduction._page import PAPERS
from reproduction._results import write_overview

DOCS = Path(__file__).resolve().parent
PAGE, RESULTS, IMAGES = DOCS / "reproduction.md", DOCS / "reproduction.json", DOCS / "images" / "reproduction"
GROUPS = ("better", "within two standard errors", "worse")
BASELINES = re.compile(r"\b(SVM|GP)\b")
# Tables of T00 whose numbers T01 prints again, by the names of T01's experiments that measure them.
SAME = {"Friedman #1": "T01-table-4.4.1-friedman-1", "Friedman #2": "T01-table-4.4.1-friedman-2",
        "Friedman #3": "T01-table-4.4.1-friedman-3", "Boston housing": "T01-table-4.4.1-boston",
        "Pima": "T01-table-4.4.2-pima", "U.S.P.S.": "T01-table-4.4.2-usps"}  # fmt: skip
# Experiments whose numbers do not count, by how their names begin, and why.
_OWN_WIDTHS = "scales by relvec's own learning of widths, not by T01 Appendix C"
OTHER_METHOD = {
    "T01-tables-1-2": "the scales are held at the published ones, where the paper learns them",
    "T01-tables-1-2-learned": _OWN_WIDTHS,
    "T01-table-4.4.1-eta": _OWN_WIDTHS,
    "T00-section-6-friedman-2": "printed for one width, to be improved on",
    "T00-section-6-friedman-3": "printed for one width, to be improved on",
    "T00-section-6-boston": "printed for one width, to be improved on",
    "T01-table-4.4.2-usps-multinomial": "one softmax model, where the paper has ten dichotomies",
    "T01-table-4.4.1-means": "the mean of a table's rows, which count",
    "T01-table-4.4.2-means": "the mean of a table's rows, which count",
    "RQ05-table-1": _OWN_WIDTHS,
    "RQ05-table-2": _OWN_WIDTHS,
}
# Experiments that only count where they were measured since the day on which their method became callable.
CALLABLE_SINCE = {"RQ05-table-2-interleaved": "2026-11-19"}
EXACT = "the width is by the exact Hessian, where the paper's section 5 has a diagonal one"
# Numbers that no method can have measured as printed; the reasons stand in the table at the end.
MISPRINTS = {"T01-tables-1-2", "T01-tables-1-2-learned", "T01-tables-1-2-interleaved"}
MARKS = {"better": "**better**", "within two standard errors": "within", "worse": "**worse**", "": ""}


def take_over(folder):
    """Copy the results and the figures that show what the papers' figures show."""
    found, record = json.loads((folder / "results.json").read_text()), json.loads(RESULTS.read_text())
    measured = {e["name"]: e for e in found["experiments"] if e["rows"]}
    record["experiments"] = [measured.pop(e["name"], e) for e in record["experiments"]] + list(measured.values())
    for experiment in found["experiments"]:
        experiment["figures"] = [name for name in experiment["figures"] if not name.endswith("-draws")]
        for name in experiment["figures"]:
            shutil.copyfile(folder / f"{name}.png", IMAGES / f"{name}.png")
    record["seconds"] = sum(e["seconds"] for e in record["experiments"])
    own = [row for _, row in compared_rows(record) if not is_baseline(row)]
    counted = [
        {**e, "rows": [row for row in e["rows"] if any(row is other for other in own)]} for e in record["experiments"]
    ]
    drawn = {"experiments": counted, "verdicts": dict(zip(GROUPS, count_groups([("", row) for row in own])))}
    write_overview(drawn, IMAGES)
    record["overview"] = drawn["overview"]
    shown = {name for e in record["experiments"] for name in e["figures"]} | {record["overview"]}
    for path in IMAGES.iterdir():
        if path.suffix != ".png" or path.stem not in shown:
            path.unlink()
    RESULTS.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def compared_rows(record):
    """Pairs of an experiment and a row whose number counts."""
    return [(e, row) for e, row in printed_rows(record) if not why_not(e, row)]


def printed_rows(record):
    """Pairs of an experiment and a row with a published number."""
    return [(e, row) for e in record["experiments"] for row in e["rows"] if row["published"]]


def why_not(e, row):
    """Why a published number does not count; empty where it does.

    What counts was measured by the method that the paper describes, called through the public API, once.
    """
    name, table = e["name"], row["quantity"].rpartition(": ")[0]
    if row["group"] not in GROUPS:
        return "a timing on another machine"
    if name.startswith("T00-table-") and table in SAME:
        return f"T01 prints it again: {SAME[table]}"
    if name in MISPRINTS and row["quantity"].startswith("RMS error"):
        return "cannot have been measured as printed"
    if is_baseline(row) and not name.endswith("-means"):
        return ""
    if e.get("days", ["9999"])[0] < CALLABLE_SINCE.get(name, ""):
        return "measured before the method was callable, by code of the reproduction"
    if name.startswith("GRVM-table-1") and row["quantity"].endswith("RVM ME"):
        return EXACT
    return OTHER_METHOD.get(name, "")


def is_single(row):
    """Whether the paper has a number from a single draw, picture or split."""
    return row["published_draws"] == 1


def is_baseline(row):
    """Whether a number is that of another method, which the paper compares with."""
    return bool(BASELINES.search(row["quantity"])) and " over " not in row["quantity"]


def count_groups(rows):
    """How many rows came out better, within two standard errors, and worse."""
    groups = [row["group"] for _, row in rows]
    return [groups.count(group) for group in GROUPS]


def counts_in_words(rows):
    better, within, worse = count_groups(rows)
    total = better + within + worse
    return (f"{better} came out better, {within} within two standard errors, {worse} worse "
            f"({1 - worse / max(1, total):.0%} not worse)")  # fmt: skip


def page(record):
    """The page's text."""
    machine, rows = record["machine"], list(compared_rows(record))
    own, baselines = ([pair for pair in rows if is_baseline(pair[1]) == other] for other in (False, True))
    single, averaged = ([pair for pair in own if is_single(pair[1]) == one] for one in (True, False))
    papers = list(dict.fromkeys(e["name"].split("-")[0] for e in record["experiments"]))
    days = sorted({day for e in record["experiments"] for day in e["days"]})
    lines = [
        "# Reproduction",
        "",
        "The numbers and figures of the papers, measured again. This page is written by `python "
        "docs/make_reproduction.py` from what `make reproduce` found; nothing on it is typed.",
        "",
        "**The rule**: a published number counts where it was measured by the method that the paper describes, called "
        "through the public API of relvec, and it counts once. Numbers that a paper averaged over repetitions are "
        "counted apart from those that it has of one draw, picture or split, for which the tolerance is as wide as the "
        "spread of draws. [Every number that does not count](#every-number) is listed with the reason.",
        "",
        f"**{len(own)} published numbers on these methods count: {counts_in_words(own)}.**",
        "",
        f"- Of {len(averaged)} averaged numbers {counts_in_words(averaged)}.",
        f"- Of {len(single)} numbers of a single draw {counts_in_words(single)}.",
        f"- Of {len(baselines)} numbers on other methods, support vector machines and Gaussian processes of "
        f"scikit-learn in the place of the papers', {counts_in_words(baselines)}. What T01 prints again of T00 is not "
        "counted twice.",
        "",
        f"Measured {' to '.join(sorted({days[0], days[-1]}))} ({record['how']}), {record['seconds'] / 60:.0f} minutes "
        "of CPU in all (what an experiment takes from another one counts there alone), on "
        f"{machine['processor']} ({machine['cores']} cores, one thread a fit), relvec "
        f"{machine['relvec']}, Python {machine['Python']}, numpy {machine['numpy']}, scipy {machine['scipy']}, "
        f"scikit-learn {machine['scikit-learn']}. Seconds are of CPU. Each entry has the days on which it was "
        "measured; the code has changed since the earlier ones.",
        "",
        "A paper's mean of K repetitions is as uncertain as K of ours, and rounded: two standard errors of the "
        "difference decide (Student's t for few repetitions). "
        "For a single published picture or split it is the spread of our draws, or the binomial error of its "
        "percentage. Published timings are of other machines and are not compared.",
        "",
        "```bash",
        "make reproduce ARGS=--list               # what there is",
        "make reproduce ARGS=--quick              # few repetitions; --list tells about how long each takes",
        'make reproduce ARGS="--full --jobs -1"   # the published repetitions; may be interrupted and continued',
        'make reproduce ARGS="T01-figure-3 TF03"  # by name, or all of a paper',
        "```",
        "",
        "Every run writes `index.html`, one page with all figures, filters and sorting, beside `results.csv` and the "
        "figures as PNG and SVG. Data sets are read from `--data-dir`; one that is missing is named with the way to "
        "get it, and its experiments are skipped.",
        "",
        *overview(record),
    ]
    for paper in papers:
        lines += [f"## {paper}", "", f"{PAPERS.get(paper, paper)}.", ""]
        for e in record["experiments"]:
            if e["name"].startswith(f"{paper}-"):
                lines += entry(e)
    lines += [*misses(record), *every_number(record)]
    return "\n".join(lines).rstrip() + "\n"


def overview(record):
    """All compared numbers in one picture, and counted by paper."""
    lines = (
        [f"![Ours over published, these methods](images/reproduction/{record['overview']}.png)", ""]
        if record["overview"]
        else []
    )
    lines += ["| paper | better | within two standard errors | worse | other methods | CPU minutes |",
              "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    rows = list(compared_rows(record))
    for paper in dict.fromkeys(e["name"].split("-")[0] for e in record["experiments"]):
        entries = [e for e in record["experiments"] if e["name"].startswith(f"{paper}-")]
        here = [(e, row) for e, row in rows if e["name"].startswith(f"{paper}-")]
        if entries:
            counts = count_groups([pair for pair in here if not is_baseline(pair[1])])
            others = sum(is_baseline(row) for _, row in here)
            minutes = sum(e["seconds"] for e in entries) / 60
            cells = " | ".join(map(str, (*counts, others)))
            lines.append(f"| [{paper}](#{paper.lower()}) | {cells} | {minutes:.1f} |")
    return [*lines, "", "What came out worse is listed, with reasons, [at the end](#what-came-out-worse).", ""]


def misses(record):
    """The numbers that came out worse, each with its reason."""
    counted = [(e, row) for e, row in compared_rows(record) if row["group"] == "worse"]
    rest = [(e, row) for e, row in printed_rows(record) if row["group"] == "worse" and why_not(e, row)]
    parts = (
        ("these methods", [pair for pair in counted if not is_baseline(pair[1])]),
        ("other methods", [pair for pair in counted if is_baseline(pair[1])]),
        ("not counted", rest),
    )
    lines = [
        "## What came out worse", "",
        '"Ours / published" is 1 where both are the same; of negative log densities it is the published density over '
        "ours.", "",
    ]  # fmt: skip
    for title, rows in parts:
        if rows:
            lines += [f"**{title[0].upper()}{title[1:]}**", ""]
            lines += [
                "| experiment | number | published | ours | ours / published | why |",
                "|---|---|---:|---:|---:|---|",
            ]
        for e, row in rows:
            times = "" if math.isnan(ratio(row)) else f"{ratio(row):.2f}"
            cells = (f"[{e['name']}](#{anchor(e)})", row["quantity"], row["published"], row["ours"], times, row["why"])
            lines.append("| " + " | ".join(map(plain, cells)) + " |")
        lines += [""] if rows else []
    return lines


def every_number(record):
    """Every published number on these methods: what it came to, and whether it counts."""
    rows = [(e, row) for e, row in printed_rows(record) if not is_baseline(row)]
    kept = sum(not why_not(e, row) for e, row in rows)
    lines = [
        "## Every number", "",
        f"The {len(rows)} numbers that the papers print of these methods, {kept} of which count. \"Draws\" are the "
        "repetitions that the paper averaged over.", "",
        "| experiment | number | published | draws | ours | verdict | not counted because |",
        "|---|---|---:|---:|---:|---|---|",
    ]  # fmt: skip
    for e, row in rows:
        verdict = MARKS[row["group"]] if row["group"] else row["verdict"]
        cells = (row["quantity"], row["published"], row["published_draws"], row["ours"])
        name = f"[{plain(e['name'])}](#{anchor(e)})"
        lines.append(" | ".join((f"| {name}", *(plain(str(c)) for c in cells), verdict, f"{why_not(e, row)} |")))
    return [*lines, ""]


def anchor(e):
    """The label of an experiment's section."""
    return e["name"].lower().replace(".", "-")


def entry(e):
    """One experiment: figures, numbers, what was assumed and found."""
    draws = f", {e['draws']} of {e['full']} repetitions" if e["full"] > 1 and e["draws"] else ""
    lines = [f"({anchor(e)})=", f"### {plain(e['title'])}", "", f"`{e['name']}`: {plain(e['source'])}{draws}, "
             f"{e['seconds']:.1f} CPU s, {' to '.join(dict.fromkeys((e['days'][0], e['days'][-1])))}.", ""]  # fmt: skip
    for name in e["figures"]:
        lines += [f"![{plain(e['title'])}](images/reproduction/{name}.png)", ""]
    if e["problem"]:
        lines += [f"Not measured: {plain(e['problem'])}", ""]
    if e["rows"]:
        lines += ["| number | published | ours ± s.e. | verdict |", "|---|---:|---:|---|"]
        for row in e["rows"]:
            mark = MARKS[row["group"]] if row["group"] else row["verdict"]
            lines.append(f"| {plain(row['quantity'])} | {row['published']} | {row['ours']} | {mark} |")
        lines.append("")
    for title, sentences in (("Assumed", e["assumptions"]), ("Found", e["notes"])):
        lines += [f"- {title}: {plain(sentence)}." for sentence in sentences]
    return [*lines, ""]


def plain(text):
    """Text without what Markdown would read as markup."""
    return "".join(f"\\{c}" if c in "*_<>|$`" else c for c in text)


def main(arguments):
    if folders := [a for a in arguments if a != "--check"]:
        take_over(Path(folders[0]))
    text = page(json.loads(RESULTS.read_text()))
    if "--check" in arguments:
        return int(not PAGE.is_file() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
