"""Cases without Keras's fit: raw variables, datasets of each worker, gathers, checkpoints."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.strategy.keras_cases import data, mlp, results


def raw(strategy: Any) -> dict[str, Any]:
    """Variables of every aggregation, assigned to in replicas, in eager mode and in a function."""
    kinds = {
        "none": tf.VariableAggregation.NONE,
        "mean": tf.VariableAggregation.MEAN,
        "sum": tf.VariableAggregation.SUM,
        "first": tf.VariableAggregation.ONLY_FIRST_REPLICA,
    }
    with strategy.scope():
        variables = {k: tf.Variable([1.0, 2.0], aggregation=a) for k, a in kinds.items()}
        local = tf.Variable(
            3.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def replica() -> Any:
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        for variable in variables.values():
            variable.assign_add(tf.stack([number + 1.0, number]))
        local.assign_add(number)
        return number, variables["none"].read_value()

    first = strategy.run(replica)
    values = [strategy.experimental_local_results(first[0])]
    function = tf.function(lambda: strategy.run(replica))
    for _ in range(3):
        values.append(strategy.experimental_local_results(function()[0]))
    total = strategy.reduce("SUM", first[0], axis=None)
    return {k: v.numpy() for k, v in variables.items()} | {
        "local": local.numpy(),
        "replicas": np.asarray(values),
        "total": total.numpy(),
    }


def reductions(strategy: Any) -> dict[str, Any]:
    """Results that take an all-reduce or a gather, and the strategy's own reductions."""

    def value(context: Any) -> Any:
        return tf.constant([[float(context.replica_id_in_sync_group)], [1.0]])

    values = strategy.experimental_distribute_values_from_function(value)

    @tf.function
    def step(values: Any) -> Any:
        def replica(value: Any) -> Any:
            context = tf.distribute.get_replica_context()
            total = context.all_reduce("SUM", tf.reduce_sum(value))
            return value / total, context.all_reduce("MEAN", value), context.all_gather(value, 0)

        return strategy.run(replica, args=(values,))

    shares, means, gathered = step(values)
    return {
        "shares": np.asarray(strategy.experimental_local_results(shares)),
        "means": np.asarray(strategy.experimental_local_results(means)),
        "gathered": np.asarray(strategy.experimental_local_results(gathered)),
        "reduced": strategy.reduce("MEAN", values, axis=0).numpy(),
        "gather": strategy.gather(values, axis=0).numpy(),
    }


def worker_datasets(strategy: Any) -> dict[str, Any]:
    """Each worker has a dataset of its own: every number is seen once, in as many rounds."""

    def make(context: Any) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(96, output_type=tf.int64)
        return numbers.shard(context.num_input_pipelines, context.input_pipeline_id).batch(4)

    dataset = strategy.distribute_datasets_from_function(make)
    with strategy.scope():
        seen = tf.Variable(
            tf.zeros([96], tf.int64),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    @tf.function
    def step(iterator: Any) -> None:
        def replica(numbers: Any) -> None:
            seen.assign_add(tf.reduce_sum(tf.one_hot(numbers, 96, dtype=tf.int64), 0))

        strategy.run(replica, args=(next(iterator),))

    iterator = iter(dataset)
    while True:
        try:
            step(iterator)
        except tf.errors.OutOfRangeError:
            break
    eager = sum(int(tf.size(v)) for v in strategy.experimental_local_results(next(iter(dataset))))
    return {"seen": seen.numpy(), "eager": np.asarray(eager)}


def saved(strategy: Any) -> dict[str, Any]:
    """Checkpoints, weights and saved models, of a model that trains on."""
    keras.utils.set_random_seed(1)
    x, y = data(256)
    with strategy.scope():
        model = mlp()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
    model.fit(dataset, epochs=2, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.keras")
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        path = checkpoint.save(str(Path(folder) / "checkpoint"))
        model.export(str(Path(folder) / "exported"))
        predicted = model.predict(x, verbose=0)
        loaded = keras.models.load_model(Path(folder) / "model.keras")
        exported = tf.saved_model.load(str(Path(folder) / "exported"))
        model.fit(dataset, epochs=1, verbose=0)
        after = model.get_weights()
        checkpoint.restore(path).assert_consumed()
        model.fit(dataset, epochs=1, verbose=0)
        for a, b in zip(after, model.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(loaded.predict(x, verbose=0), predicted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(exported.serve(x), predicted, rtol=1e-4, atol=1e-5)
        with strategy.scope():
            again = keras.models.load_model(Path(folder) / "model.keras")
        again.fit(dataset, epochs=1, verbose=0)
        for a, b in zip(after, again.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return results(model)


def saved_metric(strategy: Any) -> dict[str, Any]:
    """A variable that is synchronised on read, in a checkpoint and a SavedModel: its sum."""
    with strategy.scope():
        module = tf.Module()
        module.total = tf.Variable(
            [1.0, 0.0],
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def replica() -> None:
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
        module.total.assign_add(tf.stack([number, 1.0]))

    strategy.run(replica)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = tf.train.Checkpoint(module=module)
        path = checkpoint.save(f"{folder}/checkpoint")
        plain = tf.Module()
        plain.total = tf.Variable([0.0, 0.0])
        tf.train.Checkpoint(module=plain).restore(path).assert_consumed()
        saved = plain.total.numpy()
        tf.saved_model.save(module, f"{folder}/module")
        loaded = tf.saved_model.load(f"{folder}/module").total.numpy()
        plain.total.assign([40.0, 4.0])
        back = tf.train.Checkpoint(module=plain).save(f"{folder}/back")
        checkpoint.restore(back).assert_consumed()
        restored = module.total.numpy()
        strategy.run(replica)
    return {
        "saved": saved,
        "loaded": loaded,
        "restored": restored,
        "after": module.total.numpy(),
    }


def written_by_chief(strategy: Any) -> dict[str, Any]:
    """What the chief writes between the rounds counts in the next."""
    keras.utils.set_random_seed(1)
    x, y = data(256)
    with strategy.scope():
        model = mlp()
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
    model.fit(dataset, epochs=1, verbose=0)
    model.set_weights([w * 0.5 for w in model.get_weights()])
    model.optimizer.learning_rate = 0.03
    return results(model, model.fit(dataset, epochs=1, verbose=0))
