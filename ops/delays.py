"""Ops that make a worker slower without using a processor, to study stragglers."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch.ops._library import library
from tf_rdmabatch.ops.task import settled

MOST_SECONDS = 3600.0


def delay(begins: Sequence[Any] = ()) -> Any:
    """Wait for as long as `set_delay` said last in the process that this op runs in.

    It holds no thread while it waits. Cancelling the step ends it, and so does the end of the
    task's engine.

    Parameters
    ----------
    begins
        Times of that host's monotonic clock, int64, ns: the delay is counted from the latest of
        them, as the work of an accelerator is that was queued ahead, however late this op runs.
        Times to come count as now. Without any it is counted from now.

    Returns
    -------
    tf.Tensor
        When it was to end, by the same clock: scalar, int64, ns.

    Raises
    ------
    tf.errors.FailedPreconditionError
        The process has no engine, and the delay is not 0: see `configure`.
    """
    return library.rdmabatch_delay(begins=list(begins))


def arrival(value: Any) -> Any:
    """Return when a tensor was there, for `delay`.

    Parameters
    ----------
    value
        What is computed or received in each step: no constant.

    Returns
    -------
    tf.Tensor
        Scalar, int64: ns of the monotonic clock of the host that this op runs on.
    """
    return library.rdmabatch_arrival(value=value)


def set_delay(seconds: float) -> Any:
    """Set how long `delay` waits in the process of the current device, from the next one on.

    Parameters
    ----------
    seconds
        From 0, which is no wait and what it begins with, to 3600. A float64 tensor is checked by
        the op.

    Returns
    -------
    tf.Tensor
        The seconds, float64.

    Raises
    ------
    ValueError
        The number is not in this range.
    tf.errors.InvalidArgumentError
        The tensor is not.
    """
    if not isinstance(seconds, tf.Tensor) and not _fits(seconds):
        raise ValueError(f"a delay is from 0 to {MOST_SECONDS:.0f} seconds, not {seconds!r}")
    return settled(library.rdmabatch_set_delay(seconds=tf.convert_to_tensor(seconds, tf.float64)))


def _fits(seconds: Any) -> bool:
    # NaN is not in the range.
    return isinstance(seconds, numbers.Real) and 0 <= float(seconds) <= MOST_SECONDS
