"""Rounds over two workers and a server: what arrives is what was sent, however it travels."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.cluster import Job
from tf_rdmabatch import ops

DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64"]
# Scalar, empty, small, several blocks, more blocks than slots.
SHAPES = [(), (0, 3), (7,), (300, 300), (3, 600, 800)]


def count(shape: tuple[int, ...], dtype: str) -> Any:
    """Return small whole numbers, whose sums are exact in every dtype."""
    return tf.cast(np.arange(np.prod(shape)).reshape(shape) % 50, dtype)


def equal(actual: Any, expected: Any) -> None:
    if hasattr(expected, "numpy"):
        expected = expected.numpy()
    np.testing.assert_array_equal(actual.numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape(job: Job, dtype: str) -> None:
    for number, shape in enumerate(SHAPES):
        served, (a, b) = job.handles(f"w{number}", dtype, shape)
        value = count(shape, dtype)
        job.serve(served, contributors=2)
        ops.publish(served, value, 1)
        pulled = ops.pull(a, 1)
        assert pulled.dtype == dtype
        assert pulled.device.endswith("/job:worker/replica:0/task:0/device:CPU:0")
        equal(pulled, value)
        ops.push(a, value, 1)
        ops.push(b, job.on(1, value) * 3, 1)
        collected = ops.collect(served, 1)
        assert collected.shape == shape
        equal(collected, value * 4)


@pytest.mark.parametrize("versions", [1, 2])
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_training_loop_in_one_function(
    job: Job, versions: int, copy: bool, in_place: bool
) -> None:
    shape = (200, 300)
    initial = np.arange(60000, dtype=np.float32).reshape(shape)
    served, pulled = job.handles("w", "float32", shape)
    with tf.device(job.server):
        weights = tf.Variable(initial)
    job.serve(served, contributors=2, versions=versions)
    ops.publish(served, weights.read_value(), 1)

    @tf.function
    def rounds(first: Any, last: Any) -> None:
        for step in tf.range(first, last):
            for index, handle in enumerate(pulled):
                value = ops.pull(handle, step, copy=copy)
                with tf.device(handle.device):
                    ops.push(handle, value * 0.1 * (index + 1), step)
            gradient = ops.collect(served, step)
            with tf.device(job.server):
                weights.assign_sub(gradient)
                if in_place:
                    ops.publish_variable(served, weights, step + 1)
                else:
                    ops.publish(served, weights.read_value(), step + 1)

    for first in (1, 11, 21):
        rounds(tf.constant(first, tf.int64), tf.constant(first + 10, tf.int64))
    np.testing.assert_allclose(weights.numpy(), initial * 0.7**30, rtol=1e-4)
    equal(ops.pull(pulled[1], 31), weights)


def test_a_pack(job: Job) -> None:
    shapes = [(), (0, 3), *((1 + i % 5, 1 + i % 70) for i in range(200))]
    served, pulled = job.handles_of(ops.pack("w", "float16", shapes, server="ps:0"))
    values = [count(shape, "float16") for shape in shapes]
    job.serve(served, contributors=2)
    ops.publish(served, values, 1)

    @tf.function
    def step(micro_steps: Any) -> list[Any]:
        for handle in pulled:
            tensors = ops.pull(handle, 1)
            for number in tf.range(micro_steps):
                ops.push(handle, tensors, 1, number, micro_steps)
        totals: list[Any] = ops.collect(served, 1)
        return totals

    for total, value in zip(step(tf.constant(3)), values, strict=True):
        equal(total, 6 * value)


def test_a_pack_of_variables_is_published_in_place(job: Job) -> None:
    shapes = [(50000,), (), (7, 3)]
    served, (a, _) = job.handles_of(ops.pack("w", "float32", shapes, server="ps:0"))
    job.serve(served, contributors=1)
    with tf.device(job.server):
        variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]

        @tf.function
        def update(version: Any) -> None:
            for variable in variables:
                variable.assign_add(tf.ones(variable.shape))
            ops.publish_variable(served, variables, version)

        for version in range(1, 4):
            update(tf.constant(version))
            for value, shape in zip(ops.pull(a, version), shapes, strict=True):
                equal(value, np.full(shape, float(version)))
        assert ops.stats()["in_place"] == 2


# With a thread for each wait they would need eight hundred.
def test_waits_end_whatever_their_order(job: Job) -> None:
    job.start(threads=2)
    number = 400
    handles = [job.handles(f"w{i}", "float32", [4]) for i in range(number)]
    served = [h[0] for h in handles]
    job.serve(*served, contributors=2)

    @tf.function
    def step() -> Any:
        pulled = [ops.pull(h, 1) for _, pair in handles for h in pair]
        for value, handle in zip(pulled, [h for _, pair in handles for h in pair], strict=True):
            ops.push(handle, value, 1)
        # Each is published when the one behind it was collected.
        total = tf.ones([4])
        for handle in reversed(served):
            ops.publish(handle, total, 1)
            total = ops.collect(handle, 1) / 2 + 1
        return total

    equal(step(), np.full(4, number + 1.0))


def test_micro_steps_are_summed_before_they_are_sent(job: Job) -> None:
    served, pulled = job.handles("w", "float32", [20000])
    job.serve(served, contributors=2)

    @tf.function
    def worker(index: int, step: Any, micro_steps: Any) -> None:
        with tf.device(job.workers[index]):
            for number in tf.range(micro_steps):
                value = tf.fill([20000], tf.cast(10 ** (2 * index), tf.float32))
                ops.push(pulled[index], value, step, number, micro_steps)

    with tf.device(job.server):
        before = ops.stats()["bytes_received"]
    for step, (one, other) in enumerate([(1, 1), (3, 1), (2, 4)], start=1):
        worker(0, tf.constant(step), tf.constant(one))
        worker(1, tf.constant(step), tf.constant(other))
        equal(ops.collect(served, step), np.full(20000, one + 100.0 * other))
    with tf.device(job.server):
        received = ops.stats()["bytes_received"] - before
    assert 6 * 80000 < received < 7 * 80000


def test_what_was_pushed_may_change_afterwards(job: Job) -> None:
    served, (a, b) = job.handles("w", "float32", [50000])
    job.serve(served, contributors=2)
    with tf.device(job.workers[0]):
        variable = tf.Variable(tf.ones([50000]))

    @tf.function
    def step() -> Any:
        # The sum of the micro-steps may not be made in the variable's memory.
        ops.push(a, variable.read_value(), 1, 0, 3)
        ops.push(a, variable.read_value(), 1, 1, 3)
        variable.assign_add(tf.ones([50000]))
        ops.push(a, variable.read_value(), 1, 2, 3)
        ops.push_nothing(b, 1)
        return variable.read_value(), ops.collect(served, 1)

    value, total = step()
    equal(value, np.full(50000, 2.0))
    equal(total, np.full(50000, 4.0))


@pytest.mark.parametrize("allotment", [(2, 2), (3, 1), (0, 4), (4, 0)])
def test_the_first_replica_wins(job: Job, allotment: tuple[int, int]) -> None:
    served, pulled = job.handles("w", "int64", [3])
    job.serve(served, contributors=2)
    replica = 0
    for worker, micro_steps in enumerate(allotment):
        first = replica
        for number in range(micro_steps):
            with tf.device(job.workers[worker]):
                value = tf.fill([3], tf.constant(replica + 7, tf.int64))
            ops.push(
                pulled[worker],
                value,
                1,
                number,
                micro_steps,
                reduction="first",
                first_replica=first,
            )
            replica += 1
        if micro_steps == 0:
            ops.push_nothing(pulled[worker], 1)
    equal(ops.collect(served, 1), [7, 7, 7])


def test_where_nobody_contributes_the_sum_is_zero(job: Job) -> None:
    served, (a, b) = job.handles("w", "float32", [5])
    job.serve(served, contributors=2)
    for step in (1, 2):
        ops.push_nothing([a], step)
        ops.push_nothing(b, step)
        equal(ops.collect(served, step), np.zeros(5))


def test_what_was_pulled_without_a_copy_stays_what_it_was(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [50000])
    job.serve(served, contributors=1, versions=2)
    kept = []
    for version in range(1, 8):
        with tf.device(job.server):
            ops.publish(served, tf.fill([50000], float(version)), version)
        kept.append(ops.pull(a, version, copy=False))
        equal(kept[-1][:1], [float(version)])  # it was pulled before more is published
    for version, value in enumerate(kept, start=1):
        equal(value, np.full(50000, float(version)))
    with tf.device(job.workers[0]):
        assert ops.stats()["views"] == 7
        # TensorFlow writes neither into that memory nor by way of it.
        relu = tf.nn.relu(kept[-1])
        variable = tf.Variable(kept[-1])
        variable.assign_add(relu)
    equal(variable, np.full(50000, 14.0))
    equal(ops.pull(a, 7), np.full(50000, 7.0))


def test_what_is_still_used_when_it_is_released_stays_what_it_was(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [50000])
    job.serve(served, contributors=1)
    kept = []
    for version in range(1, 5):
        with tf.device(job.server):
            ops.publish(served, tf.fill([50000], float(version)), version)
        kept.append(ops.pull(a, version, copy=False))
        equal(kept[-1][:1], [float(version)])
        ops.release(a)
        with tf.device(job.workers[0]):
            assert ops.stats()["views"] == version  # and it is released before more is published
    for version, value in enumerate(kept, start=1):
        equal(value, np.full(50000, float(version)))


def test_a_variable_is_published_in_place(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [50000])
    job.serve(served, contributors=1)
    with tf.device(job.server):
        variable = tf.Variable(tf.zeros([50000]))

        @tf.function
        def update(version: Any) -> None:
            variable.assign_add(tf.ones([50000]))
            ops.publish_variable(served, variable, version)

    for version in range(1, 6):
        update(tf.constant(version))
        equal(ops.pull(a, version), np.full(50000, float(version)))
    with tf.device(job.server):
        assert ops.stats()["in_place"] == 4
        # A new buffer is copied, and the variable is back in place afterwards.
        variable.assign(tf.fill([50000], 9.0))
        for version in (6, 7):
            ops.publish_variable(served, variable, version)
        assert ops.stats()["in_place"] == 5
    equal(ops.pull(a, 7), np.full(50000, 9.0))
    # The variable outlives the engine whose memory it is in.
    job.start()
    equal(variable, np.full(50000, 9.0))


def test_asynchronous_contributions_are_summed_as_they_come(job: Job) -> None:
    served, (a, b) = job.handles("w", "float32", [4])
    job.serve(served, contributors=2, consistency="asp")
    ops.publish(served, tf.zeros([4]), 1)
    equal(ops.collect(served, 1), np.zeros(4))
    for _ in range(3):
        ops.push(a, tf.ones([4]), 1)
    ops.push(b, tf.ones([4]), 1)
    total = tf.zeros([4])
    deadline = time.monotonic() + 60
    while total[0] < 4 and time.monotonic() < deadline:
        total = total + ops.collect(served, 1)
    equal(total, np.full(4, 4.0))


def test_shapes_are_known_when_a_function_is_traced(job: Job) -> None:
    served, (a, _) = job.handles("w", "bfloat16", [5, 6])
    scalar, (b, _) = job.handles("s", "int32", [])

    @tf.function
    def step() -> list[Any]:
        return [ops.pull(a, 1), ops.pull(b, 1), ops.collect(served, 1), ops.collect(scalar, 1)]

    graph = step.get_concrete_function()
    assert [t.shape.as_list() for t in graph.outputs] == [[5, 6], [], [5, 6], []]
    assert [t.dtype for t in graph.outputs] == [tf.bfloat16, tf.int32] * 2


def test_a_value_travels_in_blocks(job: Job) -> None:
    served, (a, _) = job.handles("w", "float32", [1 << 14])
    job.serve(served, contributors=1, block_bytes=4096)
    with tf.device(job.server):
        before = ops.stats()["messages_received"]
    ops.push(a, job.on(0, count((1 << 14,), "float32")), 1)
    equal(ops.collect(served, 1), count((1 << 14,), "float32"))
    with tf.device(job.server):
        # 64 KiB in blocks of 4 KiB, and what opened the parameter.
        assert ops.stats()["messages_received"] - before == 17
