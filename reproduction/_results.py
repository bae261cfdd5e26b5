"""Running experiments, and what is written about them: text, CSV, JSON, and figures as PNG and SVG."""

from __future__ import annotations

import csv
import json
import os
import platform
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from relvec._version import __version__
from reproduction._data import DATASETS, MissingData
from reproduction._experiment import Context, Experiment, NothingKept, Outcome, Progress, Verdict
from reproduction._figures import overview_figure, spread_figure
from reproduction._store import Part, Store

PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib", "matplotlib")


@dataclass(frozen=True)
class Row:
    """One measured number: `ours` is the mean of the draws, `spread` their standard deviation (nan for one draw)."""

    experiment: str
    quantity: str
    published: str
    published_draws: int  # repetitions that the paper averaged over, 0 where nothing was published
    where: str
    ours: float
    standard_error: float
    spread: float
    draws: int
    decimals: int
    verdict: Verdict
    seconds: float

    def ours_text(self) -> str:
        """Mean and standard error, with the digits the error leaves."""
        if not self.standard_error > 0.0:
            return f"{self.ours:.{self.decimals}f}" if self.published else f"{self.ours:.4g}"
        digits = max(0, 1 - int(np.floor(np.log10(self.standard_error))))
        return f"{self.ours:.{digits}f} ± {self.standard_error:.{digits}f}"


@dataclass(frozen=True)
class Result:
    """An experiment that was run, skipped (`problem` says why), or that failed (`problem`).

    `seconds` are of CPU, added up over its own parts, kept ones too: what it takes from other experiments (`shared`)
    counts there. `days` are those on which all of them were measured.
    """

    experiment: Experiment
    outcome: Outcome | None
    parts: Sequence[Part] = field(default=())
    shared: Sequence[Part] = field(default=())
    problem: str = ""
    failed: bool = False

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def days(self) -> list[str]:
        return sorted({part.day for part in (*self.parts, *self.shared)})

    @property
    def state(self) -> str:
        """Measured, skipped or failed."""
        return "failed" if self.failed else "skipped" if self.outcome is None else "measured"

    def rows(self) -> list[Row]:
        """Return the published numbers in their order, then what else was measured."""
        if self.outcome is None:
            return []
        published = self.experiment.published
        names = [name for name in published if name in self.outcome.values]
        return [self._row(name) for name in (*names, *(n for n in self.outcome.values if n not in published))]

    def why(self, row: Row) -> str:
        """Return the reason of a number that is worse; empty for others."""
        if row.verdict is not Verdict.WORSE or self.outcome is None:
            return ""
        return self.outcome.explained.get(row.quantity, "not explained")

    def _row(self, name: str) -> Row:
        assert self.outcome is not None
        there, draws = self.experiment.published.get(name), self.outcome.draws(name)
        spread = float(np.std(draws, ddof=1)) if len(draws) > 1 else float("nan")
        return Row(
            experiment=self.experiment.name,
            quantity=name,
            published="" if there is None else there.value,
            published_draws=0 if there is None else there.draws,
            where="" if there is None else there.where,
            ours=float(draws.mean()),
            standard_error=spread / np.sqrt(len(draws)),
            spread=spread,
            draws=len(draws),
            decimals=0 if there is None else there.decimals,
            verdict=Verdict.ALONE if there is None else there.verdict(draws),
            seconds=self.seconds,
        )


def run(
    experiment: Experiment,
    *,
    count: Callable[[Experiment], int] | None = None,
    jobs: int = 1,
    data_dir: Path | None = None,
    progress: Progress | None = None,
    store: Store | None = None,
) -> Result:
    """Run one experiment; missing data or an error becomes part of the result.

    `count` is the number of draws of this experiment and of others it rests on: the quick ones by default.
    """
    draws = experiment.quick if count is None else count(experiment)
    if draws == 0:
        return Result(experiment, None, problem="too long for --quick: give --full, or --draws 1")
    context = Context(
        experiment.name, draws, jobs, data_dir=data_dir, progress=progress, store=store or Store(), count=count
    )
    start = time.process_time()
    try:
        for name in experiment.data:
            DATASETS[name].load(data_dir)
        with threadpool_limits(1):  # the matrices are small: threads would only wait for each other
            outcome = experiment.run(context)
    except (MissingData, NothingKept) as missing:
        return Result(experiment, None, problem=str(missing))
    except Exception as error:  # the other experiments go on
        return Result(experiment, None, context.used, context.shared, f"{type(error).__name__}: {error}", failed=True)
    if not (context.used or context.shared):  # small enough to be done without parts
        context.used.append(Part(None, time.process_time() - start, day=date.today().isoformat()))
    return Result(experiment, outcome, _once(context.used), _once(context.shared))


def _once(parts: Sequence[Part]) -> list[Part]:
    """Each part once, where an experiment asked for it twice."""
    return list({id(part): part for part in parts}.values())


def table(results: Iterable[Result]) -> str:
    """Return the rows as text, followed by the assumptions and notes of every experiment."""
    results = list(results)
    header = ("experiment", "number", "published", "ours ± s.e.", "verdict", "CPU s")
    lines, blocks = [header], []
    for result in results:
        for i, row in enumerate(result.rows()):
            first = (result.experiment.name, f"{row.seconds:.1f}") if i == 0 else ("", "")
            lines.append((first[0], row.quantity, row.published, row.ours_text(), row.verdict.value, first[1]))
        if result.outcome is None:
            lines.append((result.experiment.name, result.state, "", "", "", f"{result.seconds:.1f}"))
        blocks.append(_explanation(result))
    return "\n".join([*_aligned(lines), "", *blocks])


def _explanation(result: Result) -> str:
    """Source, draws, assumptions and notes of one experiment."""
    experiment, outcome = result.experiment, result.outcome
    sentences = [f"assumed: {text}" for text in experiment.assumptions]
    if outcome is None:
        sentences = [f"{result.state}: {result.problem}"]
    else:
        sentences += [f"found: {text}" for text in outcome.notes]
        sentences += [f"worse, {row.quantity}: {why}" for row in result.rows() if (why := result.why(row))]
    draws = max((row.draws for row in result.rows()), default=1)
    title = f"{experiment.name}: {experiment.title} ({experiment.source}{f'; {draws} draws' if draws > 1 else ''})"
    wrapped = [textwrap.fill(s, 116, initial_indent="  ", subsequent_indent="    ") for s in sentences]
    return "\n".join([textwrap.fill(title, 118, subsequent_indent="  "), *wrapped, ""])


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    right = (2, 5)  # numbers
    texts = [
        "  ".join(cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths)))
        for line in lines
    ]
    return [texts[0].rstrip(), "-" * len(texts[0]), *(text.rstrip() for text in texts[1:])]


def verdicts(results: Iterable[Result]) -> dict[str, int]:
    """How many published numbers ended better, within two standard errors, and worse; timings are not counted."""
    groups = [row.verdict.group for result in results for row in result.rows()]
    return {group: groups.count(group) for group in ("better", "within two standard errors", "worse")}


def summary(results: Iterable[Result]) -> str:
    """One sentence: how many numbers ended in each verdict."""
    counts = verdicts(results)
    if not (total := sum(counts.values())):
        return "no number was measured that can be compared"
    good = 1.0 - counts["worse"] / total
    listed = ", ".join(f"{n} {group}" for group, n in counts.items() if n)
    return f"{total} published numbers compared: {listed}; {good:.0%} not worse"


# Files -----------------------------------------------------------------------------------------------------------


def write_csv(results: Iterable[Result], path: Path) -> None:
    """All rows, full precision; no error or spread where there was one draw."""
    names = ("experiment", "quantity", "published", "where", "ours", "standard_error", "spread", "draws")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "verdict", "cpu_seconds", "assumptions", "notes"])
        for result in results:
            for row in result.rows():
                cells = [value if value == value else "" for value in (getattr(row, name) for name in names)]  # nan
                notes = result.outcome.notes if result.outcome is not None else ()
                texts = ["; ".join(result.experiment.assumptions), "; ".join(notes)]
                writer.writerow([*cells, row.verdict.value, f"{row.seconds:.2f}", *texts])
            if result.outcome is None:
                blanks = [""] * (len(names) - 1)
                seconds = f"{result.seconds:.2f}"
                writer.writerow([result.experiment.name, *blanks, result.state, seconds, "", result.problem])


def record(results: Iterable[Result], figures: dict[str, list[str]], how: str) -> dict[str, Any]:
    """Everything the pages show, as JSON: figures are the file names (without ending) of each experiment."""
    results = list(results)
    return {
        "summary": summary(results),
        "verdicts": verdicts(results),
        "seconds": sum(part.seconds for part in _once([p for r in results for p in (*r.parts, *r.shared)])),
        "how": how,
        "overview": "",
        "machine": machine(),
        "experiments": [_described(result, figures.get(result.experiment.name, [])) for result in results],
    }


def _described(result: Result, figures: list[str]) -> dict[str, Any]:
    experiment, outcome = result.experiment, result.outcome
    return {
        "name": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "state": result.state,
        "problem": result.problem,
        "seconds": result.seconds,
        "days": result.days,
        "draws": max((row.draws for row in result.rows()), default=0),
        "full": experiment.full,
        "assumptions": list(experiment.assumptions),
        "notes": list(outcome.notes) if outcome is not None else [],
        "figures": figures,
        "rows": [
            {
                "quantity": row.quantity,
                "published": row.published,
                "published_draws": row.published_draws,
                "where": row.where,
                "ours": row.ours_text(),
                "mean": row.ours,
                "draws": row.draws,
                "verdict": row.verdict.value,
                "group": row.verdict.group,
                "why": result.why(row),
            }
            for row in result.rows()
        ],
    }


def machine() -> dict[str, str]:
    """Return the day, the machine and the versions."""
    found = {
        "day": date.today().isoformat(),
        "relvec": __version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    """Return the processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def write_json(found: dict[str, Any], path: Path) -> None:
    """Return the record as a file."""
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_figures(result: Result, folder: Path) -> list[str]:
    """Return the figures of one experiment as PNG and SVG, and their names without ending; needs matplotlib."""
    if result.outcome is None:
        return []
    figures = dict(result.outcome.figures)
    published = {n: p for n, p in result.experiment.published.items() if n in result.outcome.values and not p.timing}
    draws = {name: result.outcome.draws(name) for name in published}
    repeated = {name: published[name] for name, values in draws.items() if len(values) >= 5}
    if repeated:
        figures["draws"] = partial(spread_figure, draws, repeated)
    names = []
    for name, make in figures.items():
        names.append(f"{result.experiment.name}-{name}")
        with threadpool_limits(1):  # some figures fit a model
            save(make(), folder / names[-1])
    return names


def write_overview(found: dict[str, Any], folder: Path) -> None:
    """All compared numbers of a record in one picture; needs matplotlib."""
    if sum(found["verdicts"].values()):
        save(overview_figure(found["experiments"]), folder / "overview")
        found["overview"] = "overview"


def save(figure: Any, path: Path) -> None:
    """Return a figure as PNG and as SVG; `path` has no ending."""
    figure.savefig(path.with_name(f"{path.name}.png"), dpi=110)
    figure.savefig(path.with_name(f"{path.name}.svg"), metadata={"Date": None})
