"""The climb of an evidence by L-BFGS-B: it ends at the best point that was seen, whatever ends the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import minimize

_LOWEST = -1e10  # stands for a value that is not finite
_MEMORY = 20  # pairs of steps that L-BFGS-B keeps

Found = TypeVar("Found")


class _Over(Exception):
    """The search is to end."""


@dataclass(frozen=True, eq=False)
class Summit(Generic[Found]):
    """The best point that was seen: its value, what the function said there, and the evaluations until now."""

    value: float
    found: Found
    evaluations: int


def ascend(
    function: Callable[[np.ndarray], tuple[float, np.ndarray, Found]], start: np.ndarray,
    bounds: Sequence[tuple[float, float]] | np.ndarray, nothing: Found,
    is_over: Callable[[Summit[Found]], bool] = lambda summit: False, **options: float,
) -> Summit[Found]:  # fmt: skip
    """Climb from `start` (p,), by L-BFGS-B and its `options`, and return the best point seen.

    The function gives at a point its value, its derivatives (p,), and anything to keep of the best point; `nothing`
    stands for that until a value is finite. Before each evaluation but the first `is_over` is asked whether to end.

    >>> summit = ascend(lambda x: (-float(x @ x), -2.0 * x, x), np.ones(2), [(0.5, 2.0), (-2.0, 2.0)], np.ones(2))
    >>> summit.value, summit.found.tolist()
    (-0.25, [0.5, 0.0])
    """
    summit = Summit(-np.inf, nothing, 0)

    def negative(point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal summit
        if summit.evaluations and is_over(summit):
            raise _Over
        value, slope, found = function(point)
        known, better = np.isfinite(value), value > summit.value and np.isfinite(value)
        best = (float(value), found) if better else (summit.value, summit.found)
        summit = Summit(*best, summit.evaluations + 1)
        return (-value, -slope) if known else (-_LOWEST, np.zeros_like(point))

    try:
        minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxcor": _MEMORY, **options})
    except _Over:
        pass
    return summit
