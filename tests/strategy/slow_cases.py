"""Cases of workers that are made slow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch.bench.slowdown import SlowDown
from tf_rdmabatch.strategy.stats import step_seconds

DELAY = 0.1
ROUNDS = 3
PATIENCE = 60


def one_slow_worker(strategy: Any) -> dict[str, Any]:
    """Rounds without a delay, with one on worker 1, and without it again.

    Of each kind there are `ROUNDS`, and more where a worker without a delay, which a busy machine
    holds up, has not been quick in any of them.
    """
    with strategy.scope():
        weights = tf.Variable(tf.ones([1000]), aggregation=tf.VariableAggregation.SUM)

    def replica() -> None:
        weights.assign_add(weights * 0.001)

    @tf.function
    def step() -> None:
        strategy.run(replica)

    def times_of(kind: float) -> dict[str, Any]:
        """Return the times of a micro-step of each worker, in rounds of a kind."""
        until = time.monotonic() + PATIENCE
        count, slow = 0, True
        while count < ROUNDS or (slow and time.monotonic() < until):
            step()
            count += 1
            times = strategy.round_times(count)
            seconds = {f"worker:{w}": step_seconds(times[f"worker:{w}"]) for w in range(2)}
            quick = ["worker:0"] if kind else ["worker:0", "worker:1"]
            slow = any(seconds[worker].min() > DELAY / 2 for worker in quick)
        return seconds

    try:
        slow_down = SlowDown(strategy)
        step()
        result: dict[str, Any] = {}
        for name, delay in (("before", 0.0), ("during", DELAY), ("after", 0.0)):
            slow_down.set({1: delay})
            result |= {f"{name} {worker}": s for worker, s in times_of(delay).items()}
        refused = []
        for bad in ({2: 0.1}, {0: -1.0}, {0: float("nan")}, {0: 1e9}):
            try:
                slow_down.set(bad)
            except ValueError as error:
                refused.append(str(error))
        return result | {"refused": np.asarray(refused), "weights": weights.numpy()[:1]}
    finally:
        strategy.extended.slowed = False
