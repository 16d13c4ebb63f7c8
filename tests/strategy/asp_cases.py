"""Programs for tf.distribute.coordinator, as they are written for TensorFlow's own strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def linear_regression(strategy: Any, steps: int = 60) -> dict[str, Any]:
    """Steps are scheduled on whichever worker is free, each with a dataset of its own."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([4, 1]))
        count = tf.Variable(0, dtype=tf.int64)

    def dataset_fn(context: Any) -> tf.data.Dataset:
        x = tf.random.stateless_normal([256, 4], [7, context.input_pipeline_id])
        y = tf.linalg.matmul(x, tf.constant([[1.0], [-2.0], [3.0], [0.5]]))
        return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(32)

    @tf.function
    def per_worker() -> Any:
        return strategy.distribute_datasets_from_function(dataset_fn)

    batches = iter(coordinator.create_per_worker_dataset(per_worker))

    @tf.function
    def step(iterator: Any) -> Any:
        def replica(inputs: Any) -> Any:
            x, y = inputs
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.linalg.matmul(x, weights) - y) ** 2)
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            count.assign_add(1)
            return loss

        losses = strategy.run(replica, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    values = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
    coordinator.join()
    assert coordinator.done()
    return {
        "losses": np.asarray(coordinator.fetch(values)),
        "weights": weights.numpy(),
        "count": count.numpy(),
        "replicas": np.asarray(strategy.num_replicas_in_sync),
    }


def failing_step(strategy: Any) -> dict[str, Any]:
    """What goes wrong in a step is raised by join, and the next steps run."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    message = "nothing was raised"

    @tf.function
    def wrong(value: Any) -> Any:
        tf.debugging.assert_less(value, 0, "a wrong step")
        return value

    coordinator.schedule(wrong, args=(tf.constant(1),))
    try:
        coordinator.join()
    except tf.errors.InvalidArgumentError as error:
        message = str(error)
    value = coordinator.schedule(tf.function(lambda: tf.constant(2) + 3))
    return {"message": np.asarray(message), "next": np.asarray(value.fetch())}
