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


def bad_allotment(strategy: Any, value: list[int]) -> dict[str, Any]:
    return message(lambda: setattr(strategy, "allotment", value))


def allotment_in_function(strategy: Any) -> dict[str, Any]:
    return message(tf.function(lambda: setattr(strategy, "allotment", [2, 2]), autograph=False))


def coordinator(strategy: Any) -> dict[str, Any]:
    return message(lambda: tf.distribute.coordinator.ClusterCoordinator(strategy))


def small_batch(strategy: Any) -> dict[str, Any]:
    dataset = tf.data.Dataset.range(10).batch(2)
    return message(lambda: strategy.experimental_distribute_dataset(dataset))


def too_few_values(strategy: Any) -> dict[str, Any]:
    values = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(1.0))
    fewer = type(values)(values.values[:3])
    return message(lambda: strategy.run(lambda value: value, args=(fewer,)))


def changing_shape(strategy: Any) -> dict[str, Any]:
    """A sum of tensors whose number of rows the graph does not know."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def step(rows: Any) -> Any:
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("SUM", rows * 2.0)
        )

    return message(lambda: step(tf.ones([3, 2])))


def changed_shape(strategy: Any) -> dict[str, Any]:
    """A variable whose shape is not fixed."""
    with strategy.scope():
        variable = tf.Variable(tf.ones([2]), shape=[None])
    return message(lambda: strategy.run(lambda: variable * 2.0))


def unknown_dtype(strategy: Any, dtype: str) -> dict[str, Any]:
    with strategy.scope():
        variable = tf.Variable(tf.zeros([2], dtype) if dtype != "string" else ["a", "b"])
    return message(lambda: strategy.run(variable.read_value))


def value_of_reduction(strategy: Any, how: str) -> dict[str, Any]:
    def replica() -> Any:
        total = tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))
        return total.numpy() if how == "numpy" else np.asarray(total)

    return message(lambda: strategy.run(replica))


def branch_on_reduction(strategy: Any) -> dict[str, Any]:
    with strategy.scope():
        variable = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    def replica() -> None:
        total = tf.distribute.get_replica_context().all_reduce("SUM", variable + 1.0)
        tf.cond(total > 0.0, lambda: tf.print("positive"), tf.no_op)

    return message(lambda: strategy.run(replica))


def not_elementwise(strategy: Any, optimizer: str) -> dict[str, Any]:
    """An optimizer that takes norms or means, for a variable that is cut."""
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
        model.compile(getattr(keras.optimizers, optimizer)(), "mse")
    return message(lambda: model.fit(np.ones((8, 8)), np.ones((8, 4)), batch_size=8, verbose=0))


def written_in_update_of_shard(strategy: Any) -> dict[str, Any]:
    with strategy.scope():
        table, count = tf.Variable(tf.zeros([4, 4])), tf.Variable(0.0)

    def replica() -> None:
        strategy.extended.update(table, lambda _: count.assign_add(1.0))

    return message(lambda: strategy.run(replica))


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


def nested_reduction(strategy: Any) -> dict[str, Any]:
    @tf.function
    def total() -> Any:
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))

    return message(lambda: strategy.run(lambda: total() + 1.0))


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
