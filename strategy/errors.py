"""Makes errors of tasks say what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

# What TensorFlow says where a graph's tensor is asked for its value.
_NO_VALUE = ("object has no attribute 'numpy'", "to a numpy array", "numpy() is only available")


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
            f"{task} at {address} is a TensorFlow server without tf_rdmabatch, or with an older "
            "version: start it with tf_rdmabatch.serve(), or `python -m tf_rdmabatch serve`, of "
            "the version that is installed here"
        ) from error
    except tf.errors.OpError as error:
        message = f"the engine of {task} at {address}: {error.message}"
        if "Cannot assign requested address" in error.message:
            message += (
                f". {address} has to be an address of the host that runs {task}: is its place in "
                "the cluster, or the index of the task, that of another one?"
            )
        raise type(error)(error.node_def, error.op, message) from error


@contextlib.contextmanager
def explain_traced_values() -> Iterator[None]:
    """Explain why a tensor has no value in a function that `strategy.run` traces."""
    try:
        yield
    except (AttributeError, NotImplementedError, TypeError) as error:
        if not any(text in str(error) for text in _NO_VALUE):
            raise
        raise TypeError(
            "a tensor's value was asked for inside the function that strategy.run calls, which is "
            "traced as a tf.function is, and sums of the replicas are known after the round alone: "
            "return the tensor and use its value after strategy.run, or print it with tf.print if "
            f"it is no sum ({error})"
        ) from error
