"""Cases with Keras 2: what `tf.keras` is where TF_USE_LEGACY_KERAS is set."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from tests.strategy.keras_cases import data


def results(model: Any, history: Any) -> dict[str, Any]:
    found = {f"weight {i}": w for i, w in enumerate(model.get_weights())}
    for i, variable in enumerate(model.optimizer.variables):
        found[f"optimizer {i}"] = variable.numpy()
    return found | {f"history {k}": np.asarray(v) for k, v in history.history.items()}


def callbacks(strategy: Any) -> dict[str, Any]:
    """Callbacks, saving and loading, metrics; the last batch is not full."""
    tf_keras.utils.set_random_seed(1)
    x, y = data(88)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    other = tf.data.Dataset.from_tensor_slices((x, -y)).batch(16)
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Dense(4, activation="tanh", input_shape=(16,)),
                tf_keras.layers.Dropout(0.0),
                tf_keras.layers.Dense(1),
            ]
        )
        model.compile(tf_keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    with tempfile.TemporaryDirectory() as name:
        best = Path(name) / "best.keras"
        weights = str(Path(name) / "weights")
        history = model.fit(
            dataset,
            validation_data=other,
            epochs=5,
            verbose=0,
            callbacks=[
                tf_keras.callbacks.ModelCheckpoint(str(best), save_best_only=True, monitor="loss"),
                tf_keras.callbacks.ModelCheckpoint(weights, save_weights_only=True),
                tf_keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
                tf_keras.callbacks.ReduceLROnPlateau(patience=2, factor=0.5),
                tf_keras.callbacks.CSVLogger(str(Path(name) / "log.csv")),
            ],
        )
        found = results(model, history)
        found["evaluated"] = np.asarray(model.evaluate(dataset, verbose=0))
        found["predicted"] = model.predict(x, batch_size=16, verbose=0)
        found["best"] = tf_keras.models.load_model(best).predict(x, verbose=0)
        model.load_weights(weights)
        found["last"] = model.predict(x, verbose=0)
        model.save(Path(name) / "exported")
        loaded = tf_keras.models.load_model(Path(name) / "exported")
        found["exported"] = loaded.predict(x, verbose=0)
    return found
