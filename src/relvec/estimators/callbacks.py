"""Callbacks of scikit-learn 1.9 and later, told of the stages and steps of a fit."""

from __future__ import annotations

import threading
from typing import Any

from relvec.runtime.progress import Progress, watch


def fit_with_callbacks(estimator, X, y, sample_weight) -> None:
    """Fit an estimator, and tell its callbacks."""
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    @with_callbacks
    def fit(self) -> None:
        context = CallbackSupportMixin._init_callback_context(self, max_subtasks=None)
        data = {"estimator": self, "X": X, "y": y, "metadata": {"sample_weight": sample_weight}}
        context.call_on_fit_task_begin(**data)
        tasks = _Tasks(context, data)
        with watch(tasks):
            self._fit(X, y, sample_weight)
        tasks.close()
        context.call_on_fit_task_end(**data, reconstruction_attributes={})

    fit(estimator)


class _Tasks:
    """A watcher that tells scikit-learn's callbacks: a task for each stage of a fit, and in it one for each step."""

    def __init__(self, context, data: dict[str, Any]) -> None:
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
