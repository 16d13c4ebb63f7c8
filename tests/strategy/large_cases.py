"""A variable of more bytes than 31 bits count."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def large(strategy: Any, rows: int = (1 << 19) + 1, width: int = 1024) -> dict[str, Any]:
    """Train for a round what came from the chief, and return the rows around the boundary."""
    start = np.zeros([rows, width], np.float32)
    start[-2:] = 7.0
    with strategy.scope():
        variable = tf.Variable(start)
    del start

    def replica() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable)
        gradient = tape.gradient(loss, variable)
        total = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
        strategy.extended.update(variable, lambda v, g: v.assign_sub(g), [total])

    strategy.run(replica)
    value = variable.numpy()
    return {
        "shape": np.asarray(value.shape),
        "ends": value[[0, 1, -3, -2, -1]],
        "mean": np.mean(value[:-2]),
    }
