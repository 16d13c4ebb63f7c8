"""Cases of workers that are made slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch.bench.slowdown import SlowDown
from tf_rdmabatch.strategy.stats import step_seconds

DELAY = 0.1
ROUNDS = 3


def one_slow_worker(strategy: Any) -> dict[str, Any]:
    """Rounds without a delay, with one on worker 1, and without it again."""
    with strategy.scope():
        weights = tf.Variable(tf.ones([1000]), aggregation=tf.VariableAggregation.SUM)

    def replica() -> None:
        weights.assign_add(weights * 0.1)

    @tf.function
    def step() -> None:
        strategy.run(replica)

    try:
        slow_down = SlowDown(strategy)
        step()
        result: dict[str, Any] = {}
        for name, delay in (("before", 0.0), ("during", DELAY), ("after", 0.0)):
            slow_down.set({1: delay})
            for _ in range(ROUNDS):
                step()
            for task, times in strategy.round_times(ROUNDS).items():
                if task.startswith("worker"):
                    result[f"{name} {task}"] = step_seconds(times)
        refused = []
        for bad in ({2: 0.1}, {0: -1.0}, {0: float("nan")}, {0: 1e9}):
            try:
                slow_down.set(bad)
            except ValueError as error:
                refused.append(str(error))
        return result | {"refused": np.asarray(refused), "weights": weights.numpy()[:1]}
    finally:
        strategy.extended.slowed = False
