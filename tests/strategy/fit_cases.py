"""Cases with Keras's fit and its relatives: callbacks, kinds of input, metrics, ways to run."""

from __future__ import annotations

import csv
import importlib.util
import math
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.strategy.keras_cases import data, results

ROWS, BATCH = 88, 16
# Its callback needs a package that TensorFlow does not bring.
TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


def small(strategy: Any, optimizer: Any = None, **options: Any) -> Any:
    """A model of few weights."""
    keras.utils.set_random_seed(1)
    options.setdefault("loss", "mse")
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((16,)),
                keras.layers.Dense(4, activation="tanh"),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer or keras.optimizers.Adam(0.01), **options)
    return model


def batches(x: Any, y: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def callbacks(strategy: Any, steps_per_execution: int = 1) -> dict[str, Any]:
    """What callbacks see, save, change and bring back; the last batch is not full."""
    x, y = data(ROWS)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        best = folder / "best.keras"
        weights = folder / "epoch{epoch}.weights.h5"
        with strategy.scope():
            ema = keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.8)
        model = small(strategy, ema, metrics=["mae"], steps_per_execution=steps_per_execution)
        board = [keras.callbacks.TensorBoard(folder / "board")] if TENSORBOARD else []
        # Validation data that no training fits: the loss rises, early stopping and plateau act.
        history = model.fit(
            batches(x, y),
            validation_data=batches(x, -y),
            epochs=5,
            verbose=0,
            callbacks=[
                keras.callbacks.ModelCheckpoint(best, save_best_only=True, monitor="loss"),
                keras.callbacks.ModelCheckpoint(weights, save_weights_only=True),
                keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True),
                keras.callbacks.ReduceLROnPlateau("val_loss", patience=2, factor=0.5),
                keras.callbacks.CSVLogger(folder / "log.csv"),
                keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
                *board,
            ],
        )
        with (folder / "log.csv").open() as log:
            rows = [[float(v) for v in row.values()] for row in csv.DictReader(log)]
        found["csv"] = np.asarray(rows)
        found["board"] = np.asarray(len(list((folder / "board").rglob("*tfevents*"))))
        first = keras.models.load_model(best)
        found["best"] = first.predict(x, verbose=0)
        found |= results(model, history)
        model.load_weights(str(weights).format(epoch=1))
        found["first epoch"] = model.predict(x, batch_size=BATCH, verbose=0)
        found["evaluated"] = np.asarray(model.evaluate(batches(x, y), verbose=0))
    return found


def schedules(strategy: Any) -> dict[str, Any]:
    """A learning-rate callback, and training that BackupAndRestore goes on with."""
    x, y = data(ROWS)

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            if epoch == 1:
                raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        rate = keras.callbacks.LearningRateScheduler(lambda epoch: 0.02 / (1 + epoch))
        model = small(strategy)
        try:
            backup = keras.callbacks.BackupAndRestore(folder)
            model.fit(batches(x, y), epochs=4, verbose=0, callbacks=[rate, backup, Stop()])
        except KeyboardInterrupt:
            pass
        again = small(strategy)
        backup = keras.callbacks.BackupAndRestore(folder)
        history = again.fit(batches(x, y), epochs=4, verbose=0, callbacks=[rate, backup])
    return results(again, history)


class _Sequence(keras.utils.PyDataset):
    def __init__(self, x: Any, y: Any) -> None:
        super().__init__()
        self._x, self._y = x, y

    def __len__(self) -> int:
        return math.ceil(len(self._x) / BATCH)

    def __getitem__(self, i: int) -> Any:
        rows = slice(i * BATCH, (i + 1) * BATCH)
        return self._x[rows], self._y[rows]


def inputs(strategy: Any) -> dict[str, Any]:
    """The same model trained on each kind of input in turn.

    Keras under any strategy takes batches from a generator before it trains: that is for predict.
    """
    x, y = data(ROWS)
    model = small(strategy, metrics=["mae"], weighted_metrics=["mse"])
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.deterministic = True
    rows = np.arange(ROWS)

    def generate() -> Any:
        for i in range(0, ROWS, BATCH):
            yield x[i : i + BATCH], y[i : i + BATCH]

    weights = np.linspace(0.5, 2, ROWS).astype("float32")
    weighted = tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(BATCH)
    kinds: dict[str, Any] = {
        "sequence": {"x": _Sequence(x, y)},
        "options": {"x": batches(x, y).with_options(options)},
        "repeated": {"x": batches(x, y).repeat(), "steps_per_epoch": 3, "epochs": 2},
        "no remainder": {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, True)},
        "weighted": {"x": weighted, "validation_data": weighted, "validation_steps": 2},
        "class weight": {"x": x, "y": (rows % 2)[:, None], "class_weight": {0: 1.0, 1: 3.0}},
    }
    found = {}
    for kind, arguments in kinds.items():
        history = model.fit(**arguments, batch_size=None, shuffle=False, verbose=0)
        for metric, values in history.history.items():
            found[f"{kind} {metric}"] = np.asarray(values)
    evaluated = model.evaluate(_Sequence(x, y), verbose=0)
    predicted = model.predict(generate(), verbose=0)
    return results(model, evaluated=np.asarray(evaluated), predicted=predicted, **found)


def unknown_size(strategy: Any) -> dict[str, Any]:
    """The end of a dataset of unknown size is no step: neither a number nor an update."""
    x, y = data(ROWS)
    found = {}
    for name, dataset in {
        "known": batches(x, y),
        "unknown": batches(x, y).filter(lambda *_: True),
    }.items():
        model = small(strategy)
        history = model.fit(dataset, epochs=3, verbose=0)
        found[name] = np.concatenate([w.ravel() for w in model.get_weights()])
        found[f"{name} loss"] = np.asarray(history.history["loss"])
        found[f"{name} steps"] = model.optimizer.iterations.numpy()
    return found


def batch_methods(strategy: Any, **options: Any) -> dict[str, Any]:
    """Training, evaluation and prediction a batch at a time."""
    x, y = data(ROWS)
    model = small(strategy, metrics=["mae"], **options)
    logs = [model.train_on_batch(x[:BATCH], y[:BATCH]) for _ in range(3)]
    weights = np.linspace(0.5, 2, 13).astype("float32")
    logs.append(model.train_on_batch(x[:13], y[:13], sample_weight=weights))
    model.reset_metrics()
    logs.append(model.test_on_batch(x[:13], y[:13]))
    predicted = model.predict_on_batch(x[:13])
    return results(model, logs=np.asarray(logs, float), predicted=predicted)


def running(strategy: Any, **options: Any) -> dict[str, Any]:
    """Eager steps, and steps of several batches."""
    x, y = data(ROWS)
    model = small(strategy, metrics=["mae"], **options)
    history = model.fit(batches(x, y), epochs=2, verbose=0, validation_data=batches(x, y))
    evaluated = np.asarray(model.evaluate(batches(x, y), verbose=0))
    predicted = model.predict(x, batch_size=BATCH, verbose=0)
    return results(model, history, evaluated=evaluated, predicted=predicted)


def compiled(strategy: Any) -> dict[str, Any]:
    """A function that XLA compiles, within the replicas."""
    x, y = data(BATCH)
    model = small(strategy)
    reference = model.predict(x, verbose=0)
    model.jit_compile = True
    predicted = model.predict(x, verbose=0)
    try:
        model.fit(x, y, verbose=0)
        text = "nothing was raised"
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    return {"predicted": predicted, "reference": reference, "message": np.asarray(text)}


def metrics(strategy: Any) -> dict[str, Any]:
    """Metrics that keep more than sums, with logits of three classes."""
    x, y = data(ROWS)
    labels = np.digitize(y[:, 0], [-0.3, 0.3])
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((16,)), keras.layers.Dense(3, activation="softmax")]
        )
        model.compile(
            keras.optimizers.Adam(0.01),
            "categorical_crossentropy",
            metrics=[
                keras.metrics.AUC(num_thresholds=20),
                keras.metrics.F1Score(average="macro"),
                keras.metrics.OneHotMeanIoU(3),
                keras.metrics.Precision(top_k=1),
                keras.metrics.Recall(0.4),
                "accuracy",
            ],
        )
    dataset = batches(x, keras.utils.to_categorical(labels, 3))
    history = model.fit(dataset, epochs=2, verbose=0, validation_data=dataset)
    return results(model, history, evaluated=np.asarray(model.evaluate(dataset, verbose=0)))


def overflow(strategy: Any) -> dict[str, Any]:
    """mixed_float16: a step whose gradients overflow is skipped, and the scale changes."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        x, y = data(BATCH)
        with strategy.scope():
            optimizer = keras.optimizers.LossScaleOptimizer(
                keras.optimizers.Adam(0.01), initial_scale=2.0**10, dynamic_growth_steps=2
            )
        model = small(strategy, optimizer)
        found = {}
        for step, factor in enumerate([1.0, 1e6, 1.0, 1.0, 1.0]):
            model.train_on_batch(x * np.float32(factor), y)
            found[f"scale {step}"] = optimizer.dynamic_scale.numpy()
            found[f"steps {step}"] = optimizer.inner_optimizer.iterations.numpy()
            found[f"kernel {step}"] = model.layers[0].kernel.numpy()
        return results(model) | found
    finally:
        keras.mixed_precision.set_global_policy("float32")
