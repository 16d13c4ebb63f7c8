"""One-by-one confirmation, which the batched mode is compared with."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.cluster import Job
from tf_rdmabatch import ops


@pytest.mark.parametrize("confirm", ["batch", "each"])
def test_each_message_is_acknowledged_or_only_batches(job: Job, confirm: str) -> None:
    job.start(confirm=confirm)
    served, (a, b) = job.handles("w", "float32", (1 << 20,))
    job.serve(served, contributors=2)
    value = tf.ones([1 << 20])
    ops.push(a, value, 1)
    ops.push(b, job.on(1, value) * 2, 1)
    np.testing.assert_array_equal(ops.collect(served, 1).numpy(), np.full(1 << 20, 3.0))
    with tf.device(job.server):
        counters = ops.stats()
    messages = counters["messages_received"]
    assert messages >= 2
    if confirm == "each":
        assert counters["acks"] >= messages
    else:
        assert counters["acks"] < messages


def test_another_way_to_confirm_is_refused(job: Job) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="never"):
        job.start(confirm="never")
