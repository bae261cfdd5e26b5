"""Callbacks of scikit-learn 1.9 and later, told of the stages and steps of a fit."""

from __future__ import annotations

import threading
from typing import Any

from relvec.runtime.progress import Progress


class CallbackTasks:
    """A watcher that tells scikit-learn's callbacks: a task for each stage of a fit, and in it one for each step."""

    def __init__(self, context: Any, data: dict[str, Any]) -> None:
        self._context, self._data, self._lock = context, data, threading.Lock()
        self._stage: Any = None

    def __call__(self, progress: Progress) -> bool:
        with self._lock:  # outputs of a model may be fitted in several threads
            if self._stage is None or self._stage.task_name != progress.stage:
                self.close()
                self._stage = self._context.subcontext(task_name=progress.stage, max_subtasks=None)
                self._stage.call_on_fit_task_begin(**self._data)
            step = self._stage.subcontext(task_name=str(progress))
            step.progress = progress
            step.call_on_fit_task_begin(**self._data)
            return bool(step.call_on_fit_task_end(**self._data))

    def close(self) -> None:
        """End the stage that is open."""
        if self._stage is not None:
            self._stage.call_on_fit_task_end(**self._data)
            self._stage = None
