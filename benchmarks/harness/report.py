"""Tables and plots of finished fits. Only the standard library, but for the plots."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable
from pathlib import Path

from .competitors import PEERS
from .problems import PROBLEMS

TIMES = ("fit_s", "cpu_s", "predict_s")
COLUMNS = (
    "problem", "n", "peer", "status", "repeats", "fit_s", "fit_min_s", "fit_max_s", "cpu_s", "vectors", "evidence",
    "own_evidence", "maximised", "peak_mb", "base_mb", "predict_s", "threads", "source", "note",
)  # fmt: skip


# Ratios are of these: relvec's rows, the sparse peers it is compared with in time and evidence, one fit of an SVM.
RATIOS = {
    "regression": (("relvec", "relvec-r0"), ("fastrvm", "fastrvm-bias"), "SVR"),
    "classification": (
        ("relvec-classes", "relvec-classes-r0"), ("fastrvm-classes", "fastrvm-classes-bias"), "SVC-sigmoid",
    ),
}  # fmt: skip


def summarise(fits: list[dict]) -> list[dict]:
    """One row per problem, size and peer: medians of the times, the largest of the memories."""
    groups: dict[tuple, list[dict]] = {}
    for fit in fits:
        groups.setdefault((fit["problem"], fit["n"], fit["peer"]), []).append(fit)
    order = list(PEERS)
    rows = [_row(group) for group in groups.values()]
    return sorted(rows, key=lambda r: (list(PROBLEMS).index(r["problem"]), r["n"], order.index(r["peer"])))


def _row(group: list[dict]) -> dict:
    good = [fit for fit in group if fit["status"] == "ok"]
    bad = [fit for fit in group if fit["status"] != "ok"]
    row = dict((good or group)[0])
    row.pop("repeat")
    if good:
        for name in TIMES:
            values = [fit[name] for fit in good if name in fit]
            row[name] = statistics.median(values) if values else None
        row["fit_min_s"], row["fit_max_s"] = (f(fit["fit_s"] for fit in good) for f in (min, max))
        row["peak_mb"] = max(fit["peak_mb"] for fit in good)
    row["repeats"] = len(good)
    row["sources"] = list(dict.fromkeys(fit["source"] for fit in group if fit.get("source")))
    row["source"] = " ".join(row["sources"])
    notes = [row["note"]]
    if good and bad:
        notes.append(f"{len(bad)} of {len(group)} fits: {bad[0]['status']}")
    if len({fit["vectors"] for fit in good}) > 1:
        notes.append("vectors from " + " to ".join(str(f(fit["vectors"] for fit in good)) for f in (min, max)))
    row["note"] = "; ".join(filter(None, notes))
    return row


def markdown(rows: list[dict], heading: Iterable[str]) -> str:
    """The tables of all problems, with what was run where."""
    sources = list(dict.fromkeys(source for row in rows for source in row.get("sources", [])))
    changed = " **CHANGED DURING THE RUN: the rows of relvec are not of one version**" if len(sources) > 1 else ""
    lines = [*heading, f"relvec's source: {', '.join(sources) or 'not found'}{changed}"]
    parts = ["# relvec and its peers", "\n".join(f"- {line}" for line in lines)]
    for name in dict.fromkeys(row["problem"] for row in rows):
        mine = [row for row in rows if row["problem"] == name]
        parts += [f"## {name}", PROBLEMS[name].about + ".", _table(mine)]
        parts += [p for p in (_footnotes(mine), _ratios(mine)) if p]
    used = dict.fromkeys(row["peer"] for row in rows)
    parts += ["## Peers", "\n".join(f"- {p.name}: {p.about}." for p in PEERS.values() if p.name in used)]
    return "\n\n".join(parts) + "\n"


def _table(rows: list[dict]) -> str:
    scores = list(dict.fromkeys(name for row in rows for name in row.get("scores", {})))
    head = ["N", "peer", "fit s", "CPU s", "vectors", "log evidence", *scores, "peak MB", "predict s", "notes"]
    lines = []
    for row in rows:
        evidence = _number(row.get("evidence"), ".2f") + ("\\*" if row.get("maximised") else "")
        found = [_number(row.get("scores", {}).get(name), ".4g") for name in scores]
        note = row["note"] if row["status"] == "ok" else f"{row['status']} {row['note']}".strip()
        line = [str(row["n"]), row["peer"], _number(row.get("fit_s"), ".3g"), _number(row.get("cpu_s"), ".3g")]
        line += [_number(row.get("vectors"), "d"), evidence, *found, _number(row.get("peak_mb"), ".0f")]
        lines.append([*line, _number(row.get("predict_s"), ".2g"), _cell(note)])
    return _grid(head, lines)


def _footnotes(rows: list[dict]) -> str:
    seen = {row["peer"]: row["maximised"] for row in rows if row.get("maximised")}
    lines = [f"{peer}: {' and '.join(names)} maximised for its support" for peer, names in seen.items()]
    return "\\* not exposed. " + "; ".join(lines) + "." if lines else ""


def _ratios(rows: list[dict]) -> str:
    """How many times faster relvec is than fastrvm and one SVM fit, and at how much more evidence."""
    relvec, sparse, machine = RATIOS[PROBLEMS[rows[0]["problem"]].task]
    cell = {(row["n"], row["peer"]): row for row in rows}
    lines = []
    for n in dict.fromkeys(row["n"] for row in rows):
        for ours in relvec:
            mine = cell.get((n, ours))
            if mine is None:
                continue
            line = [str(n), ours]
            for theirs in sparse:
                other = cell.get((n, theirs), {})
                line += [_quotient(other.get("fit_s"), mine.get("fit_s"))]
                line += [_difference(mine.get("evidence"), other.get("evidence"))]
            line.append(_quotient(cell.get((n, machine), {}).get("fit_s"), mine.get("fit_s")))
            lines.append([*line, "" if mine["status"] == "ok" else mine["status"]])  # a fit that failed stays in view
    if not lines:
        return ""
    head = ["N", "", *(text for peer in sparse for text in (f"{peer} : relvec", "nats over"))]
    head += [f"{machine} : relvec", "notes"]
    return "Fit time of a peer divided by relvec's, and relvec's log evidence less the peer's:\n\n" + _grid(head, lines)


def _grid(head: list[str], lines: list[list[str]]) -> str:
    body = [head, *lines]
    width = [max(len(line[i]) for line in body) for i in range(len(head))]
    text = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, width, strict=True)) + " |" for line in body]
    return "\n".join([text[0], "|" + "|".join("-" * (w + 2) for w in width) + "|", *text[1:]])


def _number(value, form: str) -> str:
    return "-" if value is None else format(value, form)


def _quotient(a, b) -> str:
    return "-" if a is None or b is None else f"{a / b:.3g}"


def _difference(a, b) -> str:
    return "-" if a is None or b is None else f"{a - b:+.2f}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:120]


def write_csv(rows: list[dict], fits: list[dict], folder: Path) -> None:
    """peers.csv, one row per problem, size and peer, and fits.csv, one row per fit."""
    scores = list(dict.fromkeys(name for fit in fits for name in fit.get("scores", {})))
    for name, table, columns in (
        ("peers.csv", rows, COLUMNS),
        ("fits.csv", fits, [c for c in COLUMNS if c not in ("repeats", "fit_min_s", "fit_max_s")] + ["repeat"]),
    ):
        with open(folder / name, "w", newline="") as file:
            writer = csv.DictWriter(file, [*columns, *scores], extrasaction="ignore")
            writer.writeheader()
            for row in table:
                maximised = " ".join(row.get("maximised") or [])
                writer.writerow(row | row.get("scores", {}) | {"maximised": maximised})


def plot(rows: list[dict], folder: Path) -> list[Path]:
    """peers-<problem>.png: fit time and peak memory against N, both axes logarithmic; nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made = []
    for name in dict.fromkeys(row["problem"] for row in rows):
        good = [row for row in rows if row["problem"] == name and row["status"] == "ok"]
        if not good:
            continue
        figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
        for i, peer in enumerate(PEERS):
            mine = [row for row in good if row["peer"] == peer]
            if not mine:
                continue
            ours = peer.startswith("relvec")
            style = {"marker": "o", "lw": 2.2} if ours else {"marker": "s", "lw": 1.2}
            style |= {"color": f"C{i}", "ms": 4, "label": peer}
            for ax, column in zip(axes, ("fit_s", "peak_mb"), strict=True):
                ax.loglog([row["n"] for row in mine], [row[column] for row in mine], **style)
        for ax, label in zip(axes, ("fit, seconds", "peak memory of the process, MB"), strict=True):
            ax.set(xlabel="training rows N", ylabel=label)
            ax.grid(alpha=0.3, which="both", lw=0.4)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
        figure.suptitle(name)
        made.append(folder / f"peers-{name}.png")
        figure.savefig(made[-1], dpi=150)
        plt.close(figure)
    return made
