"""Cases of training while steps move from a slow worker."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tf_rdmabatch
from tests.strategy.keras_cases import BATCH, data, mlp, results
from tf_rdmabatch.bench.slowdown import SlowDown
from tf_rdmabatch.strategy import step_reallocation

DELAY = 0.04
# Times that the steps of a slow worker take, and rounds until it has lost them.
SLOW = 4
SETTLED = 10
# Seconds, in which also a busy machine shows who is slow.
PATIENCE = 100
EPOCHS = 3


@contextlib.contextmanager
def slow_worker(strategy: Any, worker: int) -> Iterator[None]:
    """Slow a worker of the cluster."""
    slow_down = SlowDown(strategy)
    slow_down.set({worker: DELAY})
    try:
        yield
    finally:
        slow_down.set({worker: 0.0})
        strategy.extended.slowed = False


@contextlib.contextmanager
def given_times(strategy: Any, worker: int) -> Iterator[None]:
    """Have all rounds looked at, and a worker report that it is slow, however fast it is.

    Where steps go then does not hang on what else the machine does. The reference has no workers.
    """
    if not hasattr(strategy, "allotment"):
        yield
        return
    reports_of = strategy.round_reports

    def reports(after: int = 0) -> Any:
        rows = reports_of(after).copy()
        # Much longer than the rounds really are.
        seconds = np.full(rows.shape[1], 10.0)
        seconds[worker] *= SLOW
        computing = (1e9 * rows["micro_steps"] * seconds).astype(np.int64)
        rows["compute_end"] = np.where(computing > 0, rows["pull_end"] + computing, 0)
        rows["pull_begin"] = rows["pull_end"] - 1000
        rows["push_end"] = np.maximum(rows["compute_end"], rows["push_begin"]) + 1000
        rows["pull_wait"] = rows["push_wait"] = 0
        return rows

    with (
        mock.patch.object(strategy, "round_reports", reports),
        mock.patch.object(step_reallocation, "SHARE", 1e9),
    ):
        yield


def check(reallocation: Any, strategy: Any, worker: int) -> None:
    """Check that all steps but one left the slow worker, within some rounds and for good."""
    allotments = reallocation.history["allotment"]
    assert (allotments[0] == 2).all()
    assert (allotments[SETTLED:, worker] == 1).all(), (allotments, reallocation.decisions)
    assert strategy.allotment == tuple(allotments[-1])


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
    with given_times(strategy, 0):
        history = train(callbacks=[reallocation])
    check(reallocation, strategy, 0)
    return results(model, history)


def measured(strategy: Any) -> dict[str, Any]:
    """Rounds with a worker that is slow, until its own times have moved steps to the other."""
    with strategy.scope():
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step() -> None:
        strategy.run(lambda: total.assign_add(1.0))

    with slow_worker(strategy, 1):
        step()
        reallocation = tf_rdmabatch.StepReallocation(strategy)
        rounds = 1
        until = time.monotonic() + PATIENCE
        while strategy.allotment[1] >= strategy.allotment[0] and time.monotonic() < until:
            step()
            reallocation.update()
            rounds += 1
    return {
        "allotment": np.asarray(strategy.allotment),
        "each round": total.numpy() / rounds,
        "moved": np.asarray([decision.moved for decision in reallocation.decisions]),
    }


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
        with given_times(strategy, 1):
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
    with given_times(strategy, 1):
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
