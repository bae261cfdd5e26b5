"""The clock of a fit: its time limit, whether it was asked to stop, and reports of how far its stages are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

Progress = Callable[[str, float], bool | None]


class TimeUp(Exception):
    """The time limit was reached."""


class Clock:
    """Seconds left of a limit, and a callback `progress(stage, fraction)`; both may be None.

    One is made when a fit begins and is passed down to all its loops; stages that may take a share of the time have a
    clock of their own (`part`), which never ends later.

    >>> clock = Clock(60.0)
    >>> clock.part(0.5).left() <= 30.0 < clock.left() <= 60.0, Clock().left()
    (True, inf)
    """

    def __init__(self, limit: float | None = None, progress: Progress | None = None):
        self._end = math.inf if limit is None else time.monotonic() + limit
        self._progress = progress
        self.cut: list[str] = []
        self.stopped = False

    @property
    def end(self) -> float:
        """When the limit is reached, in the time of `time.monotonic`; infinite without a limit."""
        return self._end

    def left(self) -> float:
        """Return the seconds left; infinite without a limit."""
        return self._end - time.monotonic()

    def part(self, share: float = 1.0, progress: Progress | None = None) -> Clock:
        """Return a clock for a stage, with a share of the seconds that are left, and a callback of its own if given."""
        left = self.left()
        own = self._progress if progress is None else progress
        return Clock(None if left == math.inf else share * max(left, 0.0), own)

    def check(self) -> None:
        """Raise `TimeUp` where no time is left."""
        if self.left() <= 0:
            raise TimeUp

    def up(self, stage: str) -> bool:
        """Tell whether no time is left; the stage that had to go without is noted in `cut`."""
        if self.left() > 0:
            return False
        self.cut.append(stage)
        return True

    def take_over(self, other: Clock) -> None:
        """Note what another clock has cut, and stop where that was asked to."""
        self.cut += other.cut
        if other.stopped:
            self.stop()

    def stop(self) -> None:
        """Leave no time, as somebody who was told asked for it."""
        self.stopped, self._end = True, time.monotonic()

    def report(self, stage: str, fraction: float) -> None:
        """Tell the callback that `stage` is done to a fraction of 0 to 1; it asks to stop by returning True."""
        if self._progress is not None and self._progress(stage, fraction) is True:
            self.stop()


NO_LIMIT = Clock()
