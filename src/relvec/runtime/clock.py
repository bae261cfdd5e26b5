"""One time limit for all stages, and reports of how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[str, float], bool | None]


class TimeUp(Exception):
    """The time limit was reached."""


class Clock:
    """Seconds left of a limit, and a callback `progress(stage, fraction)`; both may be None."""

    def __init__(self, limit: float | None = None, progress: Progress | None = None):
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
