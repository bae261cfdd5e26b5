"""Running experiments, and what is written about them: a table in text, the same as CSV, figures as PNG."""

from __future__ import annotations

import csv
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from relvec.papers._data import DATASETS, MissingData
from relvec.papers._experiment import Context, Experiment, Outcome, Verdict
from relvec.papers._figures import spread_figure

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Row:
    """One measured number: `ours` is the mean of the draws, `spread` their standard deviation (nan for one draw)."""

    experiment: str
    quantity: str
    published: str
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
            return f"{self.ours:.{self.decimals}f}"
        digits = max(0, 1 - int(np.floor(np.log10(self.standard_error))))
        return f"{self.ours:.{digits}f} ± {self.standard_error:.{digits}f}"


@dataclass(frozen=True)
class Result:
    """An experiment that was run, skipped (its data is missing: `problem`), or that failed (`problem`)."""

    experiment: Experiment
    outcome: Outcome | None
    seconds: float
    problem: str = ""
    failed: bool = False

    def rows(self) -> list[Row]:
        """The published numbers in their order, then what else was measured."""
        if self.outcome is None:
            return []
        published = self.experiment.published
        return [self._row(name) for name in (*published, *(n for n in self.outcome.values if n not in published))]

    def _row(self, name: str) -> Row:
        assert self.outcome is not None
        there, draws = self.experiment.published.get(name), self.outcome.draws(name)
        spread = float(np.std(draws, ddof=1)) if len(draws) > 1 else float("nan")
        return Row(
            experiment=self.experiment.name,
            quantity=name,
            published="" if there is None else there.value,
            where="" if there is None else there.where,
            ours=float(draws.mean()),
            standard_error=spread / np.sqrt(len(draws)),
            spread=spread,
            draws=len(draws),
            decimals=4 if there is None else there.decimals,
            verdict=Verdict.ALONE if there is None else there.verdict(draws),
            seconds=self.seconds,
        )


def run(
    experiment: Experiment,
    *,
    full: bool = False,
    jobs: int = 1,
    data_dir: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run one experiment; a missing data set or an error becomes part of the result."""
    draws = experiment.full if full else experiment.quick
    context = Context(experiment.name, draws, jobs=jobs, data_dir=data_dir, progress=progress)
    start = time.perf_counter()
    try:
        for name in experiment.data:
            DATASETS[name].load(data_dir)
        with threadpool_limits(1):  # the matrices are small: threads would only wait for each other
            outcome = experiment.run(context)
    except MissingData as missing:
        return Result(experiment, None, time.perf_counter() - start, str(missing))
    except Exception as error:  # the other experiments go on
        problem = f"{type(error).__name__}: {error}"
        return Result(experiment, None, time.perf_counter() - start, problem, failed=True)
    return Result(experiment, outcome, time.perf_counter() - start)


def table(results: Iterable[Result]) -> str:
    """The rows as text, followed by the assumptions and notes of every experiment."""
    results = list(results)
    header = ("experiment", "number", "published", "ours ± s.e.", "verdict", "seconds")
    lines, blocks = [header], []
    for result in results:
        for i, row in enumerate(result.rows()):
            first = (result.experiment.name, f"{row.seconds:.1f}") if i == 0 else ("", "")
            lines.append((first[0], row.quantity, row.published, row.ours_text(), row.verdict.value, first[1]))
        if result.outcome is None:
            what = "failed" if result.failed else "skipped"
            lines.append((result.experiment.name, what, "", "", "", f"{result.seconds:.1f}"))
        blocks.append(_explanation(result))
    return "\n".join([*_aligned(lines), "", *blocks])


def _explanation(result: Result) -> str:
    """Source, draws, assumptions and notes of one experiment."""
    experiment, outcome = result.experiment, result.outcome
    sentences = [f"assumed: {text}" for text in experiment.assumptions]
    if outcome is None:
        sentences = [f"{'failed' if result.failed else 'skipped'}: {result.problem}"]
    else:
        sentences += [f"found: {text}" for text in outcome.notes]
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


def summary(results: Iterable[Result]) -> str:
    """One sentence: how many numbers ended in each verdict."""
    rows = [row for result in results for row in result.rows() if row.published]
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict if verdict.value}
    if not rows:
        return "no number was measured"
    return f"{len(rows)} published numbers: " + ", ".join(f"{n} {v.value}" for v, n in counts.items() if n)


def write_csv(results: Iterable[Result], path: Path) -> None:
    """All rows, full precision; no error or spread where there was one draw."""
    names = ("experiment", "quantity", "published", "where", "ours", "standard_error", "spread", "draws")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "verdict", "seconds", "assumptions", "notes"])
        for result in results:
            for row in result.rows():
                cells = [value if value == value else "" for value in (getattr(row, name) for name in names)]  # nan
                notes = result.outcome.notes if result.outcome is not None else ()
                texts = ["; ".join(result.experiment.assumptions), "; ".join(notes)]
                writer.writerow([*cells, row.verdict.value, f"{row.seconds:.2f}", *texts])
            if result.outcome is None:
                what = "failed" if result.failed else "skipped"
                blanks = [""] * (len(names) - 1)
                writer.writerow([result.experiment.name, *blanks, what, f"{result.seconds:.2f}", "", result.problem])


def write_figures(result: Result, folder: Path) -> list[Path]:
    """The figures of one experiment; needs matplotlib."""
    if result.outcome is None:
        return []
    figures = dict(result.outcome.figures)
    draws = {name: result.outcome.draws(name) for name in result.experiment.published}
    repeated = {name: p for name, p in result.experiment.published.items() if len(draws[name]) > 1}
    if repeated:
        figures["draws"] = partial(spread_figure, draws, repeated)
    paths = []
    for name, make in figures.items():
        paths.append(folder / f"{result.experiment.name}-{name}.png")
        with threadpool_limits(1):  # some figures fit a model
            make().savefig(paths[-1], dpi=110)
    return paths
