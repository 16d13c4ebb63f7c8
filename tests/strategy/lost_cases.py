"""Work without an end: each case returns the error that ended it.

They create the file `working` once rounds succeed; what has a file then ends a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

ENDLESS = 10**9


def ending(function: Callable[[], Any]) -> dict[str, Any]:
    """Return the error with which a function ends."""
    try:
        function()
    except Exception as error:
        return {"error": np.asarray(f"{type(error).__name__}: {error}")}
    return {"error": np.asarray("none")}


def model_of(strategy: Any) -> Any:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4)])
        model.compile("adam", "mse")
    return model


def batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors((tf.ones([8]), tf.ones([4]))).repeat().batch(16)


class Touch(keras.callbacks.Callback):
    """Creates a file at the end of a step."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._path.touch()

    on_test_batch_end = on_train_batch_end


def fit(strategy: Any, working: str) -> dict[str, Any]:
    model, touch = model_of(strategy), [Touch(working)]
    return ending(lambda: model.fit(batches(), steps_per_epoch=ENDLESS, callbacks=touch, verbose=0))


def evaluate(strategy: Any, working: str) -> dict[str, Any]:
    model, touch = model_of(strategy), [Touch(working)]
    return ending(lambda: model.evaluate(batches(), steps=ENDLESS, callbacks=touch, verbose=0))


def loop(strategy: Any, working: str) -> dict[str, Any]:
    model = model_of(strategy)

    @tf.function
    def step(iterator: Any) -> None:
        def replica(batch: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(batch[0]) - batch[1]) ** 2)
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

        strategy.run(replica, args=(next(iterator),))

    def train() -> None:
        iterator = iter(strategy.experimental_distribute_dataset(batches()))
        while True:
            step(iterator)
            Path(working).touch()

    return ending(train)


def tracing(strategy: Any, working: str) -> dict[str, Any]:
    """The task is lost while the replica function is traced, for 2 s."""
    model = model_of(strategy)

    @tf.function
    def step() -> Any:
        def replica() -> Any:
            Path(working).touch()
            time.sleep(2)
            return model(tf.ones([4, 8]))

        return strategy.run(replica)

    return ending(step)


def variables(strategy: Any, working: str) -> dict[str, Any]:
    """Nothing runs in rounds: the chief creates and reads variables."""

    def create() -> None:
        while True:
            with strategy.scope():
                tf.Variable(tf.ones([8])).numpy()
            Path(working).touch()

    return ending(create)


def missing(strategy: Any) -> dict[str, Any]:
    """Reached only where a strategy could be created."""
    del strategy
    return {}
