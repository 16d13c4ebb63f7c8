"""Rounds that fail, values that are kept, and how often a function is traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

# The first lies where workers read it, the others share a pack.
SHAPES = [(300, 300), (7,), ()]


def failed_rounds(strategy: Any, fail: bool) -> dict[str, Any]:
    """Train; some rounds fail in the middle of a worker's replicas, and leave nothing behind."""
    with strategy.scope():
        variables = [tf.Variable(tf.ones(shape)) for shape in SHAPES]

    @tf.function
    def step(failing: Any) -> None:
        def replica() -> None:
            context = tf.distribute.get_replica_context()
            number = context.replica_id_in_sync_group
            with tf.GradientTape() as tape:
                factor = tf.cast(number + 1, tf.float32)
                loss = tf.add_n([tf.reduce_sum(v * v) * factor for v in variables])
            gradients = tape.gradient(loss, variables)
            with tf.control_dependencies([gradients[1]]):
                tf.debugging.assert_none_equal(number, failing, message="this replica fails")
            for variable, gradient in zip(
                variables, context.all_reduce("SUM", gradients), strict=True
            ):
                strategy.extended.update(variable, lambda v, g: v.assign_sub(0.01 * g), (gradient,))

        strategy.run(replica)

    failures = 0
    for number in range(9):
        step(tf.constant(-1))
        if fail and number % 3 == 1:
            try:
                step(tf.constant(3 if number == 1 else 1))
            except tf.errors.InvalidArgumentError as error:
                failures += "this replica fails" in str(error)
    assert failures == (3 if fail else 0)
    return {str(i): v.numpy() for i, v in enumerate(variables)}


def kept_values(strategy: Any) -> dict[str, Any]:
    """What a user keeps of a variable stays what it was, whatever becomes of the variable."""
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]

    @tf.function
    def add() -> Any:
        def replica() -> Any:
            total = tf.distribute.get_replica_context().all_reduce(
                "SUM", [tf.ones(v.shape) for v in variables]
            )
            values = [v.read_value() for v in variables]
            for variable, one in zip(variables, total, strict=True):
                strategy.extended.update(variable, lambda v, g: v.assign_add(g / 4), (one,))
            return values, [v.read_value() for v in variables]

        return strategy.run(replica)

    @tf.function
    def look() -> Any:
        return strategy.run(lambda: [v + 0.0 for v in variables])

    @tf.function
    def around() -> Any:
        before = [v.read_value() for v in variables]
        add()
        return before, [v.read_value() for v in variables]

    kept: list[tuple[float, Any]] = []
    value = 0.0
    for number in range(6):
        kept.append((value, [v.read_value() for v in variables]))
        before, after = add()
        kept += [(value, before), (value + 1, after), (value + 1, look())]
        value += 1
        kept += [(value, around()[0]), (value + 1, [v.value() for v in variables])]
        value += 1
        if number % 2:
            value = 100.0 * number
            for variable in variables:
                variable.assign(tf.fill(variable.shape, value))
            kept.append((value, look()))
    found = [
        (expected, strategy.experimental_local_results(tensor)[0].numpy())
        for expected, tensors in kept
        for tensor in tensors
    ]
    return {
        "expected": np.asarray([expected for expected, _ in found]),
        "least": np.asarray([array.min() for _, array in found]),
        "most": np.asarray([array.max() for _, array in found]),
    }


def traces(strategy: Any) -> dict[str, Any]:
    """Count how often a replica function is traced, over epochs and allotments."""
    dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.range(64).batch(16))
    with strategy.scope():
        variable = tf.Variable(tf.zeros([], tf.int64), aggregation=tf.VariableAggregation.SUM)
    traced = []

    @tf.function
    def step(batch: Any) -> None:
        def replica(numbers: Any) -> None:
            traced.append(1)
            variable.assign_add(tf.reduce_sum(numbers))

        strategy.run(replica, args=(batch,))

    def epoch() -> None:
        for batch in dataset:
            step(batch)

    epoch()
    first = len(traced)
    allotments = [strategy.allotment, (1, 3), (4, 0)]
    for allotment in allotments:
        strategy.allotment = allotment
        epoch()
    return {
        "first": np.asarray(first),
        "later": np.asarray(len(traced) - first),
        "sum": variable.numpy(),
    }
