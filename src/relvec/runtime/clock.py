"""One time limit for all stages, and reports of how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Progress = Callable[[str, float], bool | None]


Recall = Callable[[str, Callable[[], Any]], Any]


class TimeUp(Exception):
    """The time limit was reached."""


class Clock:
    """Seconds left of a limit, a callback `progress(stage, fraction)`, and a store for finished steps; all may be None.

    The store is a function `recall(name, compute)`: the result of an earlier run under this name, or of `compute`.
    """

    def __init__(self, limit: float | None = None, progress: Progress | None = None, recall: Recall | None = None):
        self._recall, self.fresh = recall, True  # whether the last step recalled was computed now
        self._end = None if limit is None else time.monotonic() + limit
        self._progress = progress
        self.cut: list[str] = []
        self.stopped = False

    def left(self) -> float:
        """Seconds left; infinite without a limit."""
        return float("inf") if self._end is None else self._end - time.monotonic()

    def check(self) -> None:
        """Raise `TimeUp` where no time is left."""
        if self.left() <= 0:
            raise TimeUp

    def recall(self, name: str, compute: Callable[[], Any]) -> Any:
        """What `compute` returns, from the store where it is known."""
        self.fresh = self._recall is None

        def compute_now() -> Any:
            self.fresh = True
            return compute()

        return compute() if self._recall is None else self._recall(name, compute_now)

    def up(self, stage: str) -> bool:
        """Whether no time is left; the stage that had to go without is noted in `cut`."""
        if self.left() > 0:
            return False
        self.cut.append(stage)
        return True

    def take_over(self, other: Clock) -> None:
        """Note what another clock has cut, and stop where that was asked to."""
        self.cut += other.cut
        if other.stopped:
            self.stopped, self._end = True, time.monotonic()

    def report(self, stage: str, fraction: float) -> None:
        """Tell the callback that `stage` is done to a fraction of 0 to 1; it asks to stop by returning True."""
        if self._progress is not None and self._progress(stage, fraction) is True:
            self.stopped, self._end = True, time.monotonic()
