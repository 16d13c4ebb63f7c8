"""Measures Keras's steps."""

from __future__ import annotations

import time
from typing import Any

import keras


class StepClock(keras.callbacks.Callback):
    """Seconds from the end of the first steps that Keras executes to the end of the last ones."""

    _begin: float | None = None
    seconds = 0.0
    steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Look at the clock."""
        del batch, logs
        now = time.perf_counter()
        self._begin = self._begin or now
        self.seconds = now - self._begin
        self.steps += 1
