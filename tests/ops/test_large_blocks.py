"""Blocks that are larger than a slot, of parameters that are larger than all slots."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.cluster import Job
from tf_rdmabatch import ops

COUNT = 3 << 20


@pytest.mark.parametrize("block_bytes", [65536, 1 << 20, 4 * COUNT])
@pytest.mark.parametrize("confirm", ["batch", "each"])
def test_more_bytes_than_the_slots_have(job: Job, block_bytes: int, confirm: str) -> None:
    job.start(confirm=confirm)
    served, workers = job.handles("w", "float32", (COUNT,))
    job.serve(served, contributors=2, block_bytes=block_bytes)
    for step in (1, 2):
        for number, handle in enumerate(workers):
            ops.push(handle, job.on(number, tf.range(COUNT, dtype=tf.float32)), step)
        expected = 2 * np.arange(COUNT, dtype=np.float32)
        np.testing.assert_array_equal(ops.collect(served, step).numpy(), expected)
