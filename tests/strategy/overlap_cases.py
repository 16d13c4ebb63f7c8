"""Cases of what travels while something else is computed."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy.bench.layers import make_layers, set_compute_seconds

ELEMENTS = 300_000
ATTEMPTS = 10


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
        if name != "transports"
    }
    return blocks | {"values": np.asarray(values), "traced": np.asarray(len(traced))}


def layers(strategy: Any, count: int, seconds: float) -> dict[str, Any]:
    """Run rounds of layers that compute for some seconds; look at the server meanwhile."""
    workers = strategy.extended.worker_count
    shapes = [[1000, 100]] * count
    program = make_layers(strategy, shapes)

    @tf.function
    def step() -> None:
        strategy.run(program.step)

    step()

    def summed() -> int:
        with tf.device(strategy.extended.server_devices[0]):
            return ops.stats()["bytes_copied"]

    def watched() -> list[int]:
        """Run a round, and return what was summed in it whenever it was looked at."""
        before, seen = summed(), set()
        round_ = threading.Thread(target=step)
        round_.start()
        while round_.is_alive():
            seen.add(summed() - before)
            time.sleep(seconds / 100)
        round_.join()
        seen.add(summed() - before)
        return sorted(seen)

    set_compute_seconds(workers, count, seconds)
    rounds = 1
    try:
        # A busy machine may look too late.
        for _ in range(ATTEMPTS):
            seen = watched()
            rounds += 1
            if len(seen) > count:
                break
    finally:
        set_compute_seconds(workers, count, 0)
    times = strategy.round_times(1)
    result = {
        f"{task} {field}": times[task][field][0]
        for task in ("worker:0", "worker:1")
        for field in ("pull_end", "push_begin", "compute_end", "push_end")
    }
    values = [v.numpy() for v in program.variables]
    return result | {
        "summed": np.asarray(seen),
        "rounds": np.asarray(rounds),
        "least": np.asarray(min(v.min() for v in values)),
        "most": np.asarray(max(v.max() for v in values)),
    }


def order(strategy: Any) -> dict[str, Any]:
    """Return the numbers of layers in the order in which they are pulled and pushed.

    They are created from the last to the first, and the backward pass ends with the first.
    """
    count = 6
    with strategy.scope():
        created = [
            # Each travels alone.
            tf.Variable(
                tf.ones([130, 130]), aggregation=tf.VariableAggregation.SUM, name=f"layer_{i}"
            )
            for i in reversed(range(count))
        ]
    layers = created[::-1]

    def replica() -> None:
        with tf.GradientTape() as tape:
            value = tf.ones([1, 130])
            for layer in layers:
                value = tf.matmul(value, layer) / 130
        gradients = tape.gradient(value, layers)
        for layer, gradient in reversed(list(zip(layers, gradients, strict=True))):
            layer.assign_sub(gradient)

    packed = []
    table = strategy.extended.parameters
    pack = table.pack

    def spy(items: Any, members: Any) -> Any:
        packs = pack(items, members)
        packed.append([p.parameter for p in packs])
        return packs

    table.pack = spy
    try:
        tf.function(lambda: strategy.run(replica))()
    finally:
        del table.pack
    pushed, pulled = packed[-2:]

    def numbers(parameters: Any) -> np.ndarray:
        ordered = sorted(parameters, key=lambda parameter: parameter.priority)
        return np.asarray([int(p.name.partition("layer_")[2].partition(":")[0]) for p in ordered])

    return {"pulled": numbers(pulled), "pushed": numbers(pushed), "count": np.asarray(count)}
