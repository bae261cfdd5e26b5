"""How a search went: its steps as a table, and a warning where it ended without its certificate."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from relvec.solvers import Result, Step

HISTORY = np.dtype(
    [("action", "U10"), ("atom", np.int64), ("row", np.int64), ("gain", float), ("objective", float),
     ("size", np.int64), ("noise_variance", float)]
)  # fmt: skip


def history_table(steps: list[Step], rows: np.ndarray, shift: float, unit: float) -> np.ndarray:
    """Steps as a structured array. An atom of a model with several outputs counts on beyond M, output by output."""
    table = [
        (h.action, h.atom, rows[h.atom % len(rows)] if h.atom >= 0 else -1, h.gain, h.objective + shift, h.size,
         h.noise_variance * unit**2)
        for h in steps
    ]  # fmt: skip
    return np.array(table, dtype=HISTORY)


def warn_unless_converged(result: Result, tol: float, where: str = "") -> None:
    """A fit that ended without its certificate says what to do."""
    status = result.status
    if not status.success:
        gain = result.state.largest_gain
        offer = f" (the best single move still gains {gain:.2g} nats, tol is {tol:g})" if tol < gain < np.inf else ""
        warnings.warn(f"{where}{status.name}: {status.value}{offer}.", ConvergenceWarning, stacklevel=_to_the_caller())


def _to_the_caller() -> int:
    """The stacklevel, for a warning of the function that asks, of the first caller outside of relvec."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("relvec."):
        frame, level = frame.f_back, level + 1
    return level
