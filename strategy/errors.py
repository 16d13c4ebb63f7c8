"""Makes errors of tasks say what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf


@contextlib.contextmanager
def explain_task_errors(task: str, address: str) -> Iterator[None]:
    """Explain what may go wrong when a task's engine is started.

    Parameters
    ----------
    task
        Such as ``"worker:0"``.
    address
        Of its TensorFlow server.
    """
    try:
        yield
    except tf.errors.NotFoundError as error:
        if "Op type not registered" not in error.message:
            raise
        raise RuntimeError(
            f"{task} at {address} is a TensorFlow server without tf_rdmabatch: start it with "
            "tf_rdmabatch.serve(), or `python -m tf_rdmabatch serve`"
        ) from error
