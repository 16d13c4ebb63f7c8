"""Cases with Keras: each trains something under a strategy and returns what came of it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

BATCH = 64
ROUNDS = 50


def data(rows: int = 1024, width: int = 16, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, width)).astype("float32")
    w = rng.standard_normal((width, 1)).astype("float32")
    return x, np.tanh(x @ w) + 0.1 * rng.standard_normal((rows, 1)).astype("float32")


def mlp(*layers: Any) -> Any:
    return keras.Sequential(
        [
            keras.layers.Input((16,)),
            keras.layers.Dense(32, activation="relu"),
            *layers,
            keras.layers.Dense(1),
        ]
    )


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.003),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05, l1_regularization_strength=1e-3),
    "lion": lambda: keras.optimizers.Lion(1e-3),
}


def results(model: Any, history: Any = None, **more: Any) -> dict[str, Any]:
    found = {f"weight {i}": w for i, w in enumerate(model.get_weights())}
    for i, v in enumerate(model.optimizer.variables):
        found[f"optimizer {i} {v.path}"] = v.numpy()
    if history is not None:
        for name, values in history.history.items():
            found[f"history {name}"] = np.asarray(values)
    return found | more


def fit(
    strategy: Any,
    optimizer: str = "adam",
    change: list[list[int]] | None = None,
    **fit_options: Any,
) -> dict[str, Any]:
    """Dense layers; the allotment changes after each epoch, if `change` says so."""
    keras.utils.set_random_seed(1)
    x, y = data()
    with strategy.scope():
        model = mlp()
        model.compile(OPTIMIZERS[optimizer](), "mse", metrics=["mae"])
    callbacks = []
    changes = change or []
    if changes and hasattr(strategy, "allotment"):

        class Change(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
                strategy.allotment = changes[epoch % len(changes)]

        callbacks.append(Change())
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    history = model.fit(
        dataset,
        epochs=4,
        verbose=0,
        callbacks=callbacks,
        validation_data=dataset.take(3),
        **fit_options,
    )
    loss = model.evaluate(dataset, verbose=0)
    return results(
        model, history, evaluated=np.asarray(loss), predicted=model.predict(x, verbose=0)
    )


def loop(
    strategy: Any, optimizer: str = "adam", clip: str | None = None, rounds: int = ROUNDS
) -> dict[str, Any]:
    """A custom training loop whose optimizer is built in its first step."""
    keras.utils.set_random_seed(1)
    x, y = data()
    options = {clip: 0.05} if clip else {}
    with strategy.scope():
        model = mlp()
        opt = keras.optimizers.get({"class_name": optimizer, "config": options})
        # MirroredStrategy with Keras 3 cannot build it inside the step.
        if not hasattr(strategy, "allotment"):
            opt.build(model.trainable_variables)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat()
    batches = iter(strategy.experimental_distribute_dataset(dataset))

    def replica_step(inputs: Any) -> Any:
        features, labels = inputs
        with tf.GradientTape() as tape:
            error = tf.reduce_sum((model(features, training=True) - labels) ** 2, -1)
            loss = tf.nn.compute_average_loss(error, global_batch_size=BATCH)
        variables = model.trainable_variables
        opt.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step() -> Any:
        losses = strategy.run(replica_step, args=(next(batches),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    losses = [step() for _ in range(rounds)]
    model.optimizer = opt
    return results(model, losses=np.asarray([float(v) for v in losses]))


LAYERS = {
    "batch normalization": lambda: [keras.layers.BatchNormalization()],
    "dropout": lambda: [keras.layers.Dropout(0.3, seed=3), keras.layers.Dropout(0.2, seed=4)],
    "constraint": lambda: [keras.layers.Dense(8, kernel_constraint="max_norm")],
    "regularizer": lambda: [keras.layers.Dense(8, kernel_regularizer="l2")],
}


def features(
    strategy: Any,
    layers: str | None = None,
    optimizer: str = "Adam",
    options: dict[str, Any] | None = None,
    schedule: bool = False,
    policy: str | None = None,
    evaluate: bool = True,
    metrics: list[str] | None = None,
    loss: str = "mse",
    steps_per_execution: int = 1,
    **fit_options: Any,
) -> dict[str, Any]:
    """What users add to a model or an optimizer."""
    keras.utils.set_random_seed(1)
    x, y = data()
    if policy:
        keras.mixed_precision.set_global_policy(policy)
    options = dict(options or {})
    if schedule:
        options["learning_rate"] = keras.optimizers.schedules.CosineDecay(
            0.001, 40, warmup_target=0.02, warmup_steps=10
        )
    try:
        with strategy.scope():
            model = mlp(*(LAYERS[layers]() if layers else []))
            opt = getattr(keras.optimizers, optimizer)(**options)
            model.compile(
                opt, loss, metrics=metrics or ["mae"], steps_per_execution=steps_per_execution
            )
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        history = model.fit(dataset, epochs=4, verbose=0, **fit_options)
        more = {"evaluated": np.asarray(model.evaluate(dataset, verbose=0))} if evaluate else {}
        return results(model, history, **more)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def partial_batch(
    strategy: Any, rows: int = 1000, source: str = "dataset", epochs: int = 3
) -> dict[str, Any]:
    """The rows do not fill the last batch; from NumPy arrays, tensors or a dataset."""
    keras.utils.set_random_seed(1)
    x, y = data(rows)
    with strategy.scope():
        model = mlp()
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    weights = np.linspace(0.5, 1.5, rows).astype("float32")
    if source == "dataset":
        arguments = {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)}
    elif source == "numpy":
        arguments = {"x": x, "y": y, "batch_size": BATCH, "shuffle": False}
    elif source == "weights":
        arguments = {
            "x": x,
            "y": y,
            "batch_size": BATCH,
            "shuffle": False,
            "sample_weight": weights,
        }
    elif source == "split":
        arguments = {"x": x, "y": y, "batch_size": BATCH, "shuffle": False, "validation_split": 0.3}
    else:
        arguments = {
            "x": tf.constant(x),
            "y": tf.constant(y),
            "batch_size": BATCH,
            "shuffle": False,
        }
    history = model.fit(**arguments, epochs=epochs, verbose=0)
    predicted = model.predict(x, batch_size=BATCH, verbose=0)
    assert predicted.shape == (rows, 1)
    return results(model, history, predicted=predicted)


def embedding(strategy: Any, optimizer: str = "Adam") -> dict[str, Any]:
    """A functional model with an embedding, and a classification loss and metrics."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 50, (640, 6))
    labels = (tokens.sum(1) % 3).astype("int64")
    with strategy.scope():
        inputs = keras.layers.Input((6,), dtype="int64")
        x = keras.layers.Embedding(50, 8)(inputs)
        x = keras.layers.GlobalAveragePooling1D()(x)
        outputs = keras.layers.Dense(3, activation="softmax")(x)
        model = keras.Model(inputs, outputs)
        model.compile(
            getattr(keras.optimizers, optimizer)(0.05),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
    dataset = tf.data.Dataset.from_tensor_slices((tokens, labels)).batch(BATCH)
    return results(model, model.fit(dataset, epochs=5, verbose=0))


class Subclassed(keras.Model):
    """A model with a training step of its own, and two inputs and outputs in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="tanh")
        self.out = keras.layers.Dense(1)
        self.seen = keras.metrics.Sum(name="seen")

    def call(self, inputs: Any) -> Any:
        return {"out": self.out(self.hidden(inputs["a"]) + self.hidden(inputs["b"]))}

    def train_step(self, data: Any) -> Any:
        features, labels = data
        with tf.GradientTape() as tape:
            outputs = self(features, training=True)
            loss = self.compute_loss(x=features, y=labels, y_pred=outputs)
            loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.seen.update_state(tf.cast(tf.shape(features["a"])[0], tf.float32))
        return self.compute_metrics(features, labels, outputs) | {"seen": self.seen.result()}


def subclassed(strategy: Any) -> dict[str, Any]:
    keras.utils.set_random_seed(1)
    x, y = data()
    with strategy.scope():
        model = Subclassed()
        model.compile(keras.optimizers.Adam(0.01), {"out": "mse"}, metrics={"out": ["mae"]})
    features = {"a": x, "b": x[::-1]}
    dataset = tf.data.Dataset.from_tensor_slices((features, {"out": y})).batch(BATCH)
    return results(model, model.fit(dataset, epochs=4, verbose=0))


def batch_logs(strategy: Any) -> dict[str, Any]:
    """What a callback sees after each batch."""
    seen = []

    class Collect(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            seen.append([float(v) for v in logs.values()])

    keras.utils.set_random_seed(1)
    x, y = data()
    with strategy.scope():
        model = mlp()
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    if hasattr(strategy, "allotment"):
        strategy.allotment = [3, 1]
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    model.fit(dataset, epochs=2, verbose=0, callbacks=[Collect()])
    return results(model, logs=np.asarray(seen))


def legacy_fit(strategy: Any, optimizer: str = "Adam") -> dict[str, Any]:
    """Keras 2."""
    import tf_keras  # noqa: PLC0415  Only this case needs it.

    tf_keras.utils.set_random_seed(1)
    x, y = data()
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Dense(32, activation="relu", input_shape=(16,)),
                tf_keras.layers.BatchNormalization(),
                tf_keras.layers.Dense(1),
            ]
        )
        model.compile(getattr(tf_keras.optimizers, optimizer)(0.01), "mse", metrics=["mae"])
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    history = model.fit(dataset, epochs=4, verbose=0, validation_data=dataset)
    found = {f"weight {i}": w for i, w in enumerate(model.get_weights())}
    for i, variable in enumerate(model.optimizer.variables):
        found[f"optimizer {i}"] = variable.numpy()
    found["predicted"] = model.predict(x, verbose=0)
    return found | {f"history {k}": np.asarray(v) for k, v in history.history.items()}
