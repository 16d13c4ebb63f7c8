"""Cases with models of other layers and inputs, and ways in which models leave the job."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.strategy.fit_cases import batches, small
from tests.strategy.keras_cases import data, results

ROWS, BATCH = 64, 16


def _recurrent() -> Any:
    inputs = keras.layers.Input((16,))
    x = keras.layers.Reshape((4, 4))(inputs)
    x = keras.layers.LSTM(4, return_sequences=True)(x)
    x = keras.layers.Bidirectional(keras.layers.GRU(3))(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


# A bias whose gradient is zero but for rounding errors would be moved by them in Adam: none here.
def _attention() -> Any:
    inputs = keras.layers.Input((16,))
    x = keras.layers.Reshape((4, 4))(inputs)
    x = x + keras.layers.MultiHeadAttention(2, 4, dropout=0.1, seed=5, use_bias=False)(x, x)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.Dropout(0.2, seed=6)(keras.layers.Flatten()(x))
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def _convolution(normalization: Callable[[], Any]) -> Any:
    inputs = keras.layers.Input((16,))
    x = keras.layers.Reshape((4, 4, 1))(inputs)
    x = keras.layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
    x = keras.layers.Activation("relu")(normalization()(x))
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


MODELS: dict[str, Any] = {
    "recurrent": _recurrent,
    "attention": _attention,
    "batch": lambda: _convolution(keras.layers.BatchNormalization),
    "group": lambda: _convolution(lambda: keras.layers.GroupNormalization(2)),
    "spectral": lambda: keras.Sequential(
        [
            keras.layers.Input((16,)),
            keras.layers.SpectralNormalization(keras.layers.Dense(4)),
            keras.layers.Dense(1),
        ]
    ),
}


def layers(strategy: Any, model: str) -> dict[str, Any]:
    keras.utils.set_random_seed(1)
    x, y = data(ROWS)
    with strategy.scope():
        made = MODELS[model]()
        made.compile(keras.optimizers.Adam(0.01), "mse")
    return results(made, made.fit(batches(x, y), epochs=2, verbose=0))


def structured(strategy: Any) -> dict[str, Any]:
    """A dictionary of inputs, embeddings of which some rows get gradients, two outputs."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x, y = data(ROWS)
    with strategy.scope():
        ids = keras.layers.Input((3,), dtype="int32", name="ids")
        dense = keras.layers.Input((16,), name="dense")
        both = keras.layers.Concatenate()(
            [keras.layers.Flatten()(keras.layers.Embedding(20, 4)(ids)), dense]
        )
        outputs = {
            "value": keras.layers.Dense(1, name="value")(both),
            "kind": keras.layers.Dense(2, activation="softmax", name="kind")(both),
        }
        model = keras.Model({"ids": ids, "dense": dense}, outputs)
        model.compile(
            keras.optimizers.Adam(0.01),
            {"value": "mse", "kind": "sparse_categorical_crossentropy"},
            metrics={"value": ["mae"], "kind": ["accuracy"]},
            loss_weights={"value": 2.0, "kind": 0.5},
        )
    features = {"ids": rng.integers(0, 20, (ROWS, 3)), "dense": x}
    labels = {"value": y, "kind": (y[:, 0] > 0).astype("int32")}
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)
    history = model.fit(dataset, epochs=2, verbose=0)
    predicted = model.predict(features, batch_size=BATCH, verbose=0)
    return results(model, history, **{f"predicted {k}": v for k, v in predicted.items()})


def ragged(strategy: Any) -> dict[str, Any]:
    """Ragged and sparse features, in a loop."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 5, ROWS)
    words = tf.RaggedTensor.from_row_lengths(rng.integers(0, 9, lengths.sum()), lengths)
    dense = (rng.random((ROWS, 6)) * (rng.random((ROWS, 6)) < 0.3)).astype("float32")
    with strategy.scope():
        table = tf.Variable(np.linspace(-1, 1, 18).reshape(9, 2).astype("float32"))
        matrix = tf.Variable(np.linspace(-1, 1, 12).reshape(6, 2).astype("float32"))
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([table, matrix])
    dataset = tf.data.Dataset.from_tensor_slices((words, tf.sparse.from_dense(dense)))
    iterator = iter(strategy.experimental_distribute_dataset(dataset.batch(BATCH)))

    def replica(words: Any, values: Any) -> Any:
        with tf.GradientTape() as tape:
            looked_up = tf.ragged.map_flat_values(lambda v: tf.gather(table, v), words)
            summed = tf.reduce_sum(looked_up, 1) + tf.sparse.sparse_dense_matmul(values, matrix)
            loss = tf.reduce_sum(summed**2) / BATCH
        gradients = tape.gradient(loss, [table, matrix])
        optimizer.apply_gradients(zip(gradients, [table, matrix], strict=True))
        return loss

    @tf.function
    def step() -> Any:
        losses = strategy.run(replica, args=next(iterator))
        return strategy.reduce("SUM", losses, axis=None)

    losses = [float(step()) for _ in range(ROWS // BATCH)]
    return {"losses": np.asarray(losses), "table": table.numpy(), "matrix": matrix.numpy()}


def function_in_run(strategy: Any) -> dict[str, Any]:
    """`strategy.run` of a tf.function with Python control flow, in eager mode and in another."""
    x, _ = data(BATCH)
    with strategy.scope():
        kernel = tf.Variable(tf.ones([16]))
        steps = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build([kernel])

    @tf.function
    def replica(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            if tf.shape(rows)[0] > 1:
                loss = tf.reduce_sum((rows * kernel) ** 2) / BATCH
            else:
                loss = tf.constant(0.0)
        optimizer.apply_gradients([(tape.gradient(loss, kernel), kernel)])
        steps.assign_add(1)
        return loss

    iterator = iter(
        strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensors(x).repeat().unbatch().batch(BATCH)
        )
    )
    losses = [strategy.run(replica, args=(next(iterator),))]
    losses.append(tf.function(lambda: strategy.run(replica, args=(next(iterator),)))())
    total = [strategy.reduce("SUM", value, axis=None).numpy() for value in losses]
    return {"kernel": kernel.numpy(), "steps": steps.numpy(), "losses": np.asarray(total)}


_LOAD = """
import sys
sys.modules["tf_rdmabatch"] = None
import numpy as np
import tensorflow as tf
folder = sys.argv[1]
x = np.load(folder + "/x.npy")
exported = tf.saved_model.load(folder + "/exported")
module = tf.saved_model.load(folder + "/module")
found = {"exported": exported.serve(x), "module": module.predict(x)}
import keras
model = keras.models.load_model(folder + "/model.keras")
found["loaded"] = model.predict(x, verbose=0)
model.load_weights(folder + "/model.weights.h5")
found["weights"] = model.predict(x, verbose=0)
fresh = keras.models.clone_model(model)
fresh.compile("adam", "mse")
fresh.optimizer.build(fresh.trainable_variables)
checkpoint = tf.train.Checkpoint(model=fresh, optimizer=fresh.optimizer)
checkpoint.restore(folder + "/checkpoint-1").assert_existing_objects_matched()
found["restored"] = fresh.predict(x, verbose=0)
fresh.fit(x, x[:, :1], epochs=1, verbose=0)
found["steps"] = np.asarray(int(fresh.optimizer.iterations))
checkpoint.write(folder + "/back")
found["back"] = fresh.predict(x, verbose=0)
np.savez(folder + "/found.npz", **found)
"""


def portable(strategy: Any) -> dict[str, Any]:
    """What is saved loads in a process that cannot import the package, and comes back."""
    x, y = data(ROWS)
    model = small(strategy, "adam")
    model.fit(batches(x, y), epochs=1, verbose=0)
    predicted = model.predict(x, verbose=0)
    module = tf.Module()
    module.model = model
    rows = tf.TensorSpec([None, 16], tf.float32)
    module.predict = tf.function(model.call, input_signature=[rows])
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", x)
        model.export(folder + "/exported", verbose=False)
        tf.saved_model.save(module, folder + "/module")
        model.save(folder + "/model.keras")
        model.save_weights(folder + "/model.weights.h5")
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        checkpoint.save(folder + "/checkpoint")
        done = subprocess.run(
            [sys.executable, "-c", _LOAD, folder], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found = dict(np.load(folder + "/found.npz"))
        checkpoint.restore(folder + "/back").assert_existing_objects_matched()
        for name in ("exported", "module", "loaded", "weights", "restored"):
            np.testing.assert_allclose(found[name], predicted, rtol=1e-4, atol=1e-5, err_msg=name)
        back = model.predict(x, verbose=0)
        np.testing.assert_allclose(found["back"], back, rtol=1e-4, atol=1e-5)
        assert model.optimizer.iterations.numpy() == found["steps"]
        with strategy.scope():
            loaded = keras.models.load_model(folder + "/model.keras")
        history = loaded.fit(batches(x, y), epochs=1, verbose=0)
    return results(loaded, history, predicted=predicted)
