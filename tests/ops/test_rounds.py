"""Whole rounds over two workers and a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import tensorflow as tf

    from tests.ops.conftest import Job
else:
    tf = pytest.importorskip("tensorflow")
from tf_rdmabatch import ops


def test_a_training_loop_in_one_function(job: Job) -> None:
    served, pulled = job.handles("w", "float32", [3])
    with tf.device(job.server):
        weights = tf.Variable([1.0, 2.0, 3.0])
    ops.serve(served, contributors=2)
    ops.publish(served, weights.read_value(), 1)

    @tf.function
    def rounds(count: Any) -> None:
        for step in tf.range(1, count + 1):
            for index, handle in enumerate(pulled):
                value = ops.pull(handle, step)
                with tf.device(handle.device):
                    ops.push(handle, value * 0.1 * (index + 1), step)
            gradient = ops.collect(served, step)
            with tf.device(job.server):
                weights.assign_sub(gradient)
                ops.publish(served, weights.read_value(), step + 1)

    rounds(tf.constant(20, tf.int64))
    np.testing.assert_allclose(weights.numpy(), np.array([1, 2, 3]) * 0.7**20, rtol=1e-5)
    np.testing.assert_array_equal(ops.pull(pulled[1], 21).numpy(), weights.numpy())
