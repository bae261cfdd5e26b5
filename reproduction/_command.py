"""What `make reproduce` does: chooses, runs, tells how far it is, and writes the page and the tables."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from reproduction import _page, _results, select
from reproduction._experiment import Experiment
from reproduction._store import Store


def reproduce(arguments: argparse.Namespace, plots: bool) -> int:
    """Run the chosen experiments; 0 where at least one was measured and none failed."""
    chosen, out = select(arguments.names), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    store = Store(out / "parts", fresh=arguments.fresh, only_kept=arguments.kept)
    count = partial(_draws, arguments)
    clock = Clock([e.seconds * count(e) for e in chosen])
    results, figures = [], {}
    for i, experiment in enumerate(chosen):
        head = f"[{i + 1}/{len(chosen)}] {experiment.name}"
        print(head, end="", file=sys.stderr, flush=True)
        result = _results.run(
            experiment,
            count=count,
            jobs=arguments.jobs,
            data_dir=arguments.data_dir,
            progress=clock.display(head, i),
            store=store,
        )
        clock.done(i)
        print(f"{_start_line(head)} {result.state}, {result.seconds:.1f} CPU s", file=sys.stderr)
        results.append(result)
        if plots:
            figures[experiment.name] = _results.write_figures(result, out)
        _results.write_csv(results, out / "results.csv")
    found = _results.record(results, figures, _how(arguments))
    if plots:
        _results.write_overview(found, out)
    _results.write_json(found, out / "results.json")
    (out / "index.html").write_text(_page.page(found, out), encoding="utf-8")
    print(f"\n{_results.table(results)}\n{_results.summary(results)}")
    print(f"written: {out / 'index.html'}, the same as results.csv and results.json{', figures' if plots else ''}")
    return int(any(r.failed for r in results) or all(r.outcome is None for r in results))


def _draws(arguments: argparse.Namespace, experiment: Experiment) -> int:
    if arguments.draws is not None:
        return min(arguments.draws, experiment.full)
    return experiment.full if arguments.full or arguments.kept else experiment.quick


def _how(arguments: argparse.Namespace) -> str:
    if arguments.kept:
        return "the repetitions measured so far"
    if arguments.draws is not None:
        return f"at most {arguments.draws} repetitions"
    return "the published repetitions (--full)" if arguments.full else "few repetitions (--quick)"


def print_list(chosen: Sequence[Experiment]) -> None:
    """Names, titles, repetitions and data."""
    width = max(len(e.name) for e in chosen)
    for e in chosen:
        more = f", {e.full} with --full" if e.full > e.quick else ""
        draws = "" if e.full == 1 else f"; {e.quick} draw{'s' if e.quick > 1 else ''}{more}"
        draws = "; only with --full" if e.quick == 0 else draws
        needs = f"; data: {', '.join(e.data)}" if e.data else ""
        time_ = f"; about {format_seconds(e.seconds * max(1, e.quick))} of a core"
        print(f"{e.name:{width}}  {e.title}\n{'':{width}}  {e.source}{draws}{needs}{time_}")


class Clock:
    """The time left: by the rate of the draws for this experiment, by the expected seconds for those to come."""

    def __init__(self, expected: Sequence[float]) -> None:
        self.expected, self.start, self.finished = list(expected), time.perf_counter(), 0.0

    def done(self, i: int) -> None:
        """Experiment i has ended."""
        self.finished += self.expected[i]

    def later(self, i: int) -> float:
        """Seconds for the experiments after i, at the rate of those that have ended."""
        rate = (time.perf_counter() - self.start) / self.finished if self.finished else 1.0
        return sum(self.expected[i + 1 :]) * rate

    def display(self, head: str, i: int):
        """Write a line that counts the parts, again and again in place, on a terminal only."""
        if not sys.stderr.isatty():
            return None
        start = time.perf_counter()

        def show(done: int, of: int, kept: int) -> None:
            nonlocal start
            if done == kept:
                start = time.perf_counter()
            left = (
                ""
                if done == kept
                else f", about {format_seconds((time.perf_counter() - start) * (of - done) / (done - kept))} left"
            )
            later = f", then about {format_seconds(self.later(i))}" if self.later(i) >= 1.0 else ""
            print(f"{_start_line(head)} {done} of {of}{left}{later}", end="", file=sys.stderr, flush=True)

        return show


def format_seconds(seconds: float) -> str:
    """Seconds or minutes, for people.

    >>> format_seconds(42.3), format_seconds(600.0)
    ('42 s', '10 min')
    """
    return f"{seconds:.0f} s" if seconds < 120.0 else f"{seconds / 60.0:.0f} min"


def _start_line(head: str) -> str:
    """Write the beginning of a line once more, on a terminal."""
    return f"\r\033[K{head}" if sys.stderr.isatty() else ""
