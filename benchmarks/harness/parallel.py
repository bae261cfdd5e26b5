"""Measures cases in several processes, with one thread each."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from threadpoolctl import threadpool_limits


def measure_all(measure: Callable[[tuple], Any], cases: list[tuple], jobs: int) -> Iterator[Any]:
    """Yield the result of each case, in their order; CPU seconds taken inside `measure` are those of one thread."""
    with threadpool_limits(1):
        if jobs == 1:
            yield from map(measure, cases)
            return
        with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
            yield from pool.map(measure, cases)


def measure_groups(measure: Callable[[tuple], Any], cases: list[tuple], jobs: int) -> Iterator[tuple[tuple, list[Any]]]:
    """Yield the cases that differ in their last item only, without that item, with the list of their results."""
    pairs = zip(cases, measure_all(measure, cases, jobs))
    for group, some in itertools.groupby(pairs, key=lambda pair: pair[0][:-1]):
        yield group, [result for _, result in some]


def _begin() -> None:
    threadpool_limits(1)
    warnings.simplefilter("ignore")
