"""Scalars for TensorBoard, written without it: an event file is a TFRecord file of protos."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import tensorflow as tf

# Seconds after which what was written has to be in the file.
_FLUSH = 30.0


class ScalarLog:
    """Writes scalars of each worker to a folder that TensorBoard reads.

    Parameters
    ----------
    folder
        Created with the first scalars.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._writer: Any = None
        self._flushed = 0.0

    def write(self, step: int, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write numbers of a step.

        Parameters
        ----------
        step
            The number of the round.
        values
            By name the number of each worker, shape (workers,); what is not finite is left out.
        """
        if self._writer is None:
            self._open()
        event = tf.compat.v1.Event(wall_time=time.time(), step=step)
        for name, numbers in values.items():
            for worker, number in enumerate(numbers.tolist()):
                if math.isfinite(number):
                    event.summary.value.add(tag=f"{name}/worker_{worker}", simple_value=number)
        self._writer.write(event.SerializeToString())
        if time.monotonic() > self._flushed + _FLUSH:
            self.flush()

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.steps"
        self._writer = tf.io.TFRecordWriter(str(self._folder / name))
        first = tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2")
        self._writer.write(first.SerializeToString())
        self.flush()

    def flush(self) -> None:
        """Put what was written into the file."""
        if self._writer is not None:
            self._writer.flush()
            self._flushed = time.monotonic()
