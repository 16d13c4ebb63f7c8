"""Delays of a step."""

from __future__ import annotations

import threading
import time

import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation

from tests.ops.cluster import Job, fails
from tf_rdmabatch import ops

# Seconds in which even a starved process does what takes it none.
LONG = 60


@tf.function
def delayed() -> tf.Tensor:
    with tf.control_dependencies([ops.delay()]):
        return tf.identity(1)


def seconds_of_a_delay(device: str) -> float:
    begin = time.monotonic()
    with tf.device(device):
        delayed().numpy()
    return time.monotonic() - begin


def test_a_delay_is_of_one_process(job: Job) -> None:
    slow, other = job.workers
    for device in (slow, other):
        seconds_of_a_delay(device)
    with tf.device(slow):
        assert ops.set_delay(0.3).numpy() == 0.3
    assert seconds_of_a_delay(slow) >= 0.3
    with tf.device(slow):
        ops.set_delay(LONG)
    assert seconds_of_a_delay(other) < LONG
    with tf.device(slow):
        ops.set_delay(0)
    assert seconds_of_a_delay(slow) < LONG


def test_a_delay_is_counted_from_a_time(job: Job) -> None:
    seconds, count = 0.2, 5

    @tf.function
    def chained() -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor]:
        begin = ops.delay()
        ends: list[tf.Tensor] = []
        for _ in range(count):
            ends.append(ops.delay([begin, *ends[-1:]]))
        with tf.control_dependencies(ends):
            return begin, ends, ops.arrival(tf.identity(ends[-1]))

    with tf.device(job.workers[0]):
        ops.set_delay(seconds)
        begin, ends, after = chained()
        # A time that is over makes no delay; one that is to come counts as now.
        early, late = ops.delay([begin]), ops.delay([after + 10**15])
        ops.set_delay(0)
    # However late each began.
    assert [int(e - begin) for e in ends] == [int(seconds * 1e9) * (i + 1) for i in range(count)]
    assert after >= ends[-1]
    assert early == ends[0]
    assert after + int(seconds * 1e9) <= late < after + 10**15


@pytest.mark.parametrize("seconds", [-0.1, float("nan"), float("inf"), 3601, "long"])
def test_times_that_no_delay_has(seconds: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 3600 seconds, not"):
        ops.set_delay(seconds)


def test_a_tensor_that_no_delay_has(job: Job) -> None:
    def set_delay() -> None:
        with tf.device(job.workers[0]):
            ops.set_delay(tf.constant(float("nan"), tf.float64))

    fails(tf.errors.InvalidArgumentError, "from 0 to 3600 seconds, not nan", set_delay)


@pytest.mark.parametrize("end", ["cancel", "new engine"])
def test_a_delay_ends_early(job: Job, end: str) -> None:
    device = job.workers[0]
    with tf.device(device):
        ops.set_delay(LONG)

    @tf.function
    def step() -> tf.Tensor:
        with tf.device(device):
            return delayed()

    manager = cancellation.CancellationManager()
    cancelable = manager.get_cancelable_function(step.get_concrete_function())
    timer = threading.Timer(0.5, manager.start_cancel if end == "cancel" else job.start)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(tf.errors.CancelledError):
        cancelable()
    assert time.monotonic() - begin < LONG
    timer.join()
    with tf.device(device):
        ops.set_delay(0)
