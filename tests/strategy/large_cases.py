"""A variable of more bytes than 31 bits count."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def from_server(strategy: Any, rows: int = (1 << 19) + 1, width: int = 1024) -> dict[str, Any]:
    """Train for a round what was made on its server, and return rows from both ends."""
    with strategy.scope():
        variable = tf.Variable(lambda: tf.zeros([rows, width]))
    end = tf.IndexedSlices(tf.fill([2, width], 7.0), tf.constant([rows - 2, rows - 1]))
    variable.scatter_update(end)
    train(strategy, variable)
    some = tf.constant([0, 1, rows // 2, rows - 3, rows - 2, rows - 1])
    return {"shape": np.asarray(variable.shape), "some": variable.sparse_read(some).numpy()}


def from_chief(strategy: Any, rows: int, width: int = 1024) -> dict[str, Any]:
    """Train for a round what came from the chief, which gets it back."""
    start = np.zeros([rows, width], np.float32)
    start[-2:] = 7.0
    with strategy.scope():
        variable = tf.Variable(start)
    train(strategy, variable)
    value = variable.numpy()
    assert np.all(value[:-2] == -1.0)
    variable.assign(value)
    np.testing.assert_array_equal(variable.numpy(), value)
    return {"shape": np.asarray(value.shape), "some": value[[0, 1, rows // 2, -3, -2, -1]]}


def train(strategy: Any, variable: Any) -> None:
    """Subtract the gradient of a sum: 1 from each element."""

    def replica() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable)
        gradient = tape.gradient(loss, variable)
        total = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
        strategy.extended.update(variable, lambda v, g: v.assign_sub(g), [total])

    strategy.run(replica)
