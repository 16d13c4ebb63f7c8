"""Cases of training while steps move from a slow worker."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tf_rdmabatch
from tests.strategy.keras_cases import BATCH, data, mlp, results
from tf_rdmabatch.bench.slowdown import SlowDown

DELAY = 0.04
EPOCHS = 3


@contextlib.contextmanager
def slow_worker(strategy: Any, worker: int) -> Iterator[None]:
    """Slow a worker of the cluster; the reference has none."""
    if not hasattr(strategy, "allotment"):
        yield
        return
    slow_down = SlowDown(strategy)
    slow_down.set({worker: DELAY})
    try:
        yield
    finally:
        slow_down.set({worker: 0.0})
        strategy.extended.slowed = False


def check(reallocation: Any, strategy: Any, worker: int) -> None:
    """Check that steps left the slow worker."""
    assert reallocation.decisions, "nothing moved"
    others = [count for w, count in enumerate(strategy.allotment) if w != worker]
    assert strategy.allotment[worker] < max(others), strategy.allotment
    ran = list(map(tuple, reallocation.history["allotment"].tolist()))
    assert strategy.allotment in ran, (strategy.allotment, ran, reallocation.decisions)


def fit(strategy: Any, steps_per_execution: int = 1, log_dir: str | None = None) -> dict[str, Any]:
    """Keras 3's fit with the callback; the last batch of an epoch is not full."""
    keras.utils.set_random_seed(1)
    dataset = tf.data.Dataset.from_tensor_slices(data(1000)).batch(BATCH)
    with strategy.scope():
        model = mlp()
        model.compile("adam", "mse", metrics=["mae"], steps_per_execution=steps_per_execution)
    train = functools.partial(
        model.fit, dataset, validation_data=dataset.take(2), epochs=EPOCHS, verbose=0
    )
    if not hasattr(strategy, "allotment"):
        return results(model, train())
    reallocation = tf_rdmabatch.StepReallocation(log_dir=log_dir)
    with slow_worker(strategy, 0):
        history = train(callbacks=[reallocation])
        check(reallocation, strategy, 0)
    return results(model, history)


def fit_keras_2(strategy: Any) -> dict[str, Any]:
    """Keras 2's fit with the callback."""
    tf_keras.utils.set_random_seed(1)
    x, y = data(1000)
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Dense(8, activation="tanh", input_shape=(16,)),
                tf_keras.layers.Dense(1),
            ]
        )
        model.compile(tf_keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    train = functools.partial(
        model.fit, x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0
    )
    if hasattr(strategy, "allotment"):
        reallocation = tf_rdmabatch.StepReallocation()
        with slow_worker(strategy, 1):
            train(callbacks=[reallocation])
            check(reallocation, strategy, 1)
    else:
        train()
    return {f"weight {i}": w for i, w in enumerate(model.get_weights())}


def loop(strategy: Any) -> dict[str, Any]:
    """A loop of one's own that also counts how often each example is seen in an epoch."""
    examples = 512
    order = np.random.default_rng(1).permutation(examples)
    dataset = tf.data.Dataset.from_tensor_slices(order).batch(BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)
    with strategy.scope():
        seen = tf.Variable(tf.zeros([examples]), aggregation=tf.VariableAggregation.SUM)
        last = tf.Variable(tf.zeros([examples]), aggregation=tf.VariableAggregation.SUM)

    def replica(numbers: Any) -> None:
        once = tf.reduce_sum(tf.one_hot(numbers, examples), 0)
        seen.assign_add(once)
        last.assign(once)

    @tf.function
    def step(batch: Any) -> None:
        strategy.run(replica, args=(batch,))

    found = {}
    reallocation = None
    if hasattr(strategy, "allotment"):
        reallocation = tf_rdmabatch.StepReallocation(strategy)
    with slow_worker(strategy, 1):
        for epoch in range(EPOCHS):
            for number, batch in enumerate(batches):
                step(batch)
                found[f"{epoch} {number}"] = last.numpy()
                if reallocation is not None:
                    reallocation.update()
            np.testing.assert_array_equal(seen.numpy(), epoch + 1)
    if reallocation is not None:
        check(reallocation, strategy, 1)
    return found
