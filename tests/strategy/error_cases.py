"""Mistakes: each case returns what the error says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def message(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        function()
    except Exception as error:
        return {"message": np.asarray(f"{type(error).__name__}: {error}")}
    return {"message": np.asarray("nothing was raised")}


def bad_allotment(strategy: Any) -> dict[str, Any]:
    return message(lambda: setattr(strategy, "allotment", [1, 1]))


def coordinator(strategy: Any) -> dict[str, Any]:
    return message(lambda: tf.distribute.coordinator.ClusterCoordinator(strategy))


def small_batch(strategy: Any) -> dict[str, Any]:
    dataset = tf.data.Dataset.range(10).batch(2)
    return message(lambda: strategy.experimental_distribute_dataset(dataset))


def variable_in_run(strategy: Any) -> dict[str, Any]:
    return message(lambda: strategy.run(lambda: tf.Variable(tf.random.normal([2]))))


def merge_call(strategy: Any) -> dict[str, Any]:
    def replica() -> None:
        tf.distribute.get_replica_context().merge_call(print)

    return message(lambda: strategy.run(replica))


def printed_reduction(strategy: Any) -> dict[str, Any]:
    def replica() -> None:
        total = tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))
        tf.print(total)

    return message(lambda: strategy.run(replica))


def nested_function(strategy: Any) -> dict[str, Any]:
    with strategy.scope():
        variable = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)

    def replica() -> None:
        tf.function(lambda: variable.assign_add(1.0))()

    return message(lambda: strategy.run(replica))


def scatter(strategy: Any) -> dict[str, Any]:
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    slices = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))
    return message(lambda: strategy.run(lambda: variable.scatter_add(slices)))


def next_in_replica(strategy: Any) -> dict[str, Any]:
    batches = iter(strategy.experimental_distribute_dataset(tf.data.Dataset.range(8).batch(8)))
    return message(lambda: strategy.run(lambda: next(batches)))


def two_steps_in_one(strategy: Any) -> dict[str, Any]:
    with strategy.scope():
        variable = tf.Variable(1.0)
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([variable])

    def replica() -> None:
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = variable**2
            optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

    return message(lambda: strategy.run(replica))


def failing_replica(strategy: Any) -> dict[str, Any]:
    """An error in a replica is the user's to see, and the strategy goes on."""
    with strategy.scope():
        variable = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step(limit: Any) -> None:
        def replica() -> None:
            tf.debugging.assert_less(variable.read_value(), limit)
            variable.assign_add(1.0)

        strategy.run(replica)

    return message(lambda: step(tf.constant(0.0)))
