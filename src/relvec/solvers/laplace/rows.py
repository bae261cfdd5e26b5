"""Rows of one output in memory, whose modes and slopes are found by compiled loops (`_native/laplace.pyx`)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from relvec.inference.laplace import NEWTON
from relvec.inference.laplace_posterior import PosteriorOnRows
from relvec.inference.likelihoods import MAX_LOG_RATE, Bernoulli, Likelihood, Poisson
from relvec.inference.linalg import NORMAL_EQUATIONS_LIMIT
from relvec.runtime.machine import n_threads
from relvec.solvers._native.laplace import Mode, Rows

MIN_PIVOT_SHARE = 1e-8  # of its diagonal: a larger pivot shows that normal equations beyond their limit lost few digits
_MAX_EXCESS = 20.0  # of the logarithm of a rate where Newton's steps start, above that of the largest count
_PER_SAMPLE_NS, _PER_COLUMN_NS, _PER_PAIR_NS = 25.0, 0.5, 0.05  # of a row in a pass


def rows_in_memory(target: Any, weights: Any, likelihood: Likelihood) -> Rows | None:
    """Hold targets and weights, both (n,), as rows; None where there are several outputs, or rows elsewhere."""
    if type(likelihood) not in (Bernoulli, Poisson) or not isinstance(target, np.ndarray):
        return None
    t, w = (np.ascontiguousarray(values, dtype=float) for values in (target, weights))
    constant = likelihood.constant(t, w)
    return Rows(
        t, w, type(likelihood) is Poisson, constant, MAX_LOG_RATE, run_parts, NEWTON.max_steps, NEWTON.max_idle_steps,
        NEWTON.rough_decrement, NEWTON.exact_decrement, NEWTON.still_nats, NORMAL_EQUATIONS_LIMIT, MIN_PIVOT_SHARE,
    )  # fmt: skip


def shorten_start(start: np.ndarray, Phi: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights (k,) to start from, scaled down where rates are far above all counts: there Newton's steps are slow."""
    highest, most = float((Phi @ start).max()), float(np.log1p(counts.max()))
    return start * (most / highest) if highest > most + _MAX_EXCESS else start


def posterior_of(mode: Mode) -> PosteriorOnRows:
    """Return a mode as a posterior."""
    f, r, W = mode.state
    outputs = np.zeros(len(mode.alpha), dtype=np.intp)
    return PosteriorOnRows(outputs, mode.alpha, mode.mean, mode.root, mode.log_evidence, mode.Phi, f, r, W)


def pass_ns(n_rows: int, n_outputs: int, n_weights: int) -> float:
    """Nanoseconds of a pass over the rows on one core of about 20 GFlop/s."""
    return n_rows * (_PER_SAMPLE_NS * n_outputs + _PER_COLUMN_NS * n_weights + _PER_PAIR_NS * n_weights**2)


def run_parts(part: Callable[[int], None], count: int) -> None:
    """Every part of a sum over many rows, in threads where there are some."""
    workers = min(n_threads(), count)
    if workers < 2:
        for i in range(count):
            part(i)
        return
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(part, range(count)):
            pass
