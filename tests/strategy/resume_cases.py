"""Training that is interrupted in its second epoch and resumed, or not interrupted at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.strategy.keras_cases import mlp, results

EPOCHS = 3
STEPS = 12
BATCH = 16
# Of the second epoch.
LAST_STEP = 8


class InterruptionError(Exception):
    """Ends the training of a process that has no task to lose."""


def interrupt(working: str | None) -> None:
    """Let a task be killed, for which `working` is created and removed again; or raise an error."""
    if working is None:
        raise InterruptionError
    Path(working).touch()
    while Path(working).exists():
        time.sleep(0.05)


def ended(function: Callable[[], Any]) -> dict[str, Any]:
    """Return the name of the error that a function ends with, and its text."""
    try:
        function()
    except (tf.errors.UnavailableError, InterruptionError) as error:
        return {"ended": np.asarray(type(error).__name__), "text": np.asarray(str(error))}
    return {"ended": np.asarray("done")}


def dataset() -> tf.data.Dataset:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(STEPS * BATCH, 16)).astype(np.float32)
    y = rng.normal(size=(STEPS * BATCH, 1)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


class Interrupt(keras.callbacks.Callback):
    def __init__(self, working: str | None) -> None:
        super().__init__()
        self._working = working
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        if (self._epoch, batch) == (1, LAST_STEP):
            interrupt(self._working)


def fit(
    strategy: Any,
    folder: str,
    interrupted: bool = False,
    save_freq: str | int = "epoch",
    working: str | None = None,
) -> dict[str, Any]:
    """Keras fit with a backup, which is used where it exists."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = mlp()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    callbacks = [keras.callbacks.BackupAndRestore(folder, save_freq=save_freq)]
    if interrupted:
        callbacks.append(Interrupt(working))

    def train() -> Any:
        return model.fit(dataset(), epochs=EPOCHS, callbacks=callbacks, verbose=0)

    return ended(train) if interrupted else results(model, train())


def loop(
    strategy: Any, folder: str, interrupted: bool = False, working: str | None = None
) -> dict[str, Any]:
    """A loop with a checkpoint every 5 steps, which is used where it exists."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = mlp()
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.optimizer.build(model.trainable_variables)
    done = tf.Variable(0, dtype=tf.int64, trainable=False)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, done=done)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint)
    first = int(done)

    @tf.function
    def step(batch: Any) -> None:
        def replica(batch: Any) -> None:
            with tf.GradientTape() as tape:
                # Summed over the replicas by the optimizer.
                loss = tf.reduce_sum((model(batch[0]) - batch[1]) ** 2) / BATCH
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

        strategy.run(replica, args=(batch,))

    def train() -> None:
        batches = dataset().repeat().skip(first).take(EPOCHS * STEPS - first)
        for batch in strategy.experimental_distribute_dataset(batches):
            step(batch)
            if int(done.assign_add(1)) % 5 == 0:
                manager.save()
            if interrupted and int(done) == STEPS + LAST_STEP:
                interrupt(working)

    if interrupted:
        return ended(train)
    train()
    return results(model, first=np.asarray(first))
