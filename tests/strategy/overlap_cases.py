"""Cases of what travels while something else is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

ELEMENTS = 300_000


def rounds(strategy: Any, count: int, calls: int) -> dict[str, Any]:
    """Run rounds of one variable, some in each call, and return it as it is after each call."""
    with strategy.scope():
        variable = tf.Variable(tf.zeros([ELEMENTS]), aggregation=tf.VariableAggregation.SUM)
    traced = []

    def replica() -> None:
        traced.append(1)
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        variable.assign_add(tf.cast(tf.range(ELEMENTS) % 1000 + number, tf.float32))

    @tf.function
    def some() -> None:
        for _ in tf.range(count):
            strategy.run(replica)

    values = []
    for _ in range(calls):
        some()
        values.append(variable.numpy())
    blocks = {
        f"{task} {name}": np.asarray(value)
        for task, stats in strategy.stats().items()
        for name, value in stats.items()
    }
    return blocks | {"values": np.asarray(values), "traced": np.asarray(len(traced))}
