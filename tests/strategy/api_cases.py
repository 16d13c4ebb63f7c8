"""What users call on a strategy, and several models under one."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.strategy.keras_cases import BATCH, data, mlp, results


def two_models(strategy: Any) -> dict[str, Any]:
    """Two models trained in one step, and their weights read and set in between."""
    keras.utils.set_random_seed(1)
    x, y = data(256)
    with strategy.scope():
        models = [mlp(), mlp()]
        optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05)]
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.build(model.trainable_variables)
    batches = strategy.experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    )

    def replica(inputs: Any) -> Any:
        features, labels = inputs
        with tf.GradientTape(persistent=True) as tape:
            first = models[0](features, training=True)
            # The second learns what the first leaves over.
            errors = [labels - first, labels - first - models[1](features, training=True)]
            losses = [
                tf.nn.compute_average_loss(tf.reduce_sum(e**2, -1), global_batch_size=BATCH)
                for e in errors
            ]
        for model, optimizer, loss in zip(models, optimizers, losses, strict=True):
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return losses

    @tf.function
    def step(inputs: Any) -> Any:
        per_replica = strategy.run(replica, args=(inputs,))
        return [strategy.reduce("SUM", loss, axis=None) for loss in per_replica]

    losses, seen = [], []
    for batch in batches:
        losses.append([float(v) for v in step(batch)])
        seen.append(models[0].get_weights()[1].copy())
        models[0].set_weights([w * 0.9 for w in models[0].get_weights()])
        models[1].trainable_variables[0].assign_add(tf.fill([16, 32], 0.01))
        optimizers[1].learning_rate = optimizers[1].learning_rate * 0.5
    found = {f"second {i}": w for i, w in enumerate(models[1].get_weights())}
    models[0].optimizer = optimizers[0]
    return results(models[0], losses=np.asarray(losses), seen=np.asarray(seen)) | found


def fits_in_turn(strategy: Any) -> dict[str, Any]:
    """Two compiled models fit in turn; one gets the other's weights, and one is made anew."""
    keras.utils.set_random_seed(1)
    x, y = data(256)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    found = {}
    with strategy.scope():
        first, second = mlp(), mlp()
        first.compile(keras.optimizers.Adam(0.01), "mse")
        second.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mae")
    for turn in range(2):
        first.fit(dataset, epochs=1, verbose=0)
        second.set_weights(first.get_weights())
        found[f"loss {turn}"] = np.asarray(second.evaluate(dataset, verbose=0))
        second.fit(dataset, epochs=1, verbose=0)
        first.set_weights([(a + b) / 2 for a, b in _pairs(first, second)])
    with strategy.scope():
        clone = keras.models.clone_model(first)
        clone.set_weights(first.get_weights())
        clone.compile(keras.optimizers.SGD(0.05), "mse")
    clone.fit(dataset, epochs=1, verbose=0)
    found |= {f"clone {i}": w for i, w in enumerate(clone.get_weights())}
    return results(second, **found)


def _pairs(first: Any, second: Any) -> Any:
    return zip(first.get_weights(), second.get_weights(), strict=True)


def values(strategy: Any) -> dict[str, Any]:
    """Reductions and gathers of per-replica values, in eager mode and in functions."""

    def ragged(context: Any) -> Any:
        number = context.replica_id_in_sync_group
        return tf.reshape(tf.range(2.0 * (number + 1)), [number + 1, 2])

    def pair(context: Any) -> Any:
        number = float(context.replica_id_in_sync_group)
        return {"a": tf.constant(number), "b": (tf.constant([number, 1.0]), tf.constant(3))}

    rows = strategy.experimental_distribute_values_from_function(ragged)
    pairs = strategy.experimental_distribute_values_from_function(pair)
    doubled = strategy.run(lambda p: tf.nest.map_structure(lambda t: t * 2, p), args=(pairs,))
    found = {
        "gathered": strategy.gather(rows, axis=0),
        "gathered in a function": tf.function(lambda: strategy.gather(rows, axis=0))(),
        "columns": strategy.gather(strategy.run(lambda r: r[:1], args=(rows,)), axis=1),
        "sum": strategy.reduce("SUM", doubled["a"], axis=None),
        "mean": strategy.reduce(tf.distribute.ReduceOp.MEAN, doubled["b"][0], axis=None),
        "sum of rows": strategy.reduce("SUM", rows, axis=0),
        "mean of rows": strategy.reduce("MEAN", rows, axis=0),
        "mean in a function": tf.function(lambda v: strategy.reduce("MEAN", v, axis=0))(rows),
        "integers": strategy.reduce("SUM", doubled["b"][1], axis=None),
    }
    local = strategy.experimental_local_results
    found["locals"] = tf.stack(local(doubled["a"]))
    found["nested"] = tf.stack(local(doubled)[1]["b"][0])
    with strategy.scope():
        found["same"] = strategy.reduce("MEAN", tf.constant(5.0), axis=None)
    found["one"] = tf.stack(local(tf.constant(2.0)))
    sizes = {"count": np.asarray([len(local(rows)), len(local(doubled))])}
    return {name: np.asarray(value) for name, value in found.items()} | sizes


def variables(strategy: Any) -> dict[str, Any]:
    """Variables as users handle them outside of replicas."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0], name="kept")
        with strategy.extended.colocate_vars_with(variable):
            beside = tf.Variable([3.0, 4.0])
        counter = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.SUM)
    outside = tf.Variable(1.0)
    strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(tf.ones([2]),))
    variable.assign(variable + beside)
    variable.assign_sub([0.5, 0.5])
    counter.assign_add(3)
    strategy.run(lambda: counter.assign_add(tf.constant(1, tf.int64)))
    function = tf.function(lambda: variable * 2.0)
    return {
        "variable": variable.numpy(),
        "function": function().numpy(),
        "item": variable[1].numpy(),
        "counter": np.asarray(int(counter.read_value())),
        "in scope": np.asarray(
            [strategy.extended.variable_created_in_scope(v) for v in (variable, beside, outside)]
        ),
        "locals": np.asarray(strategy.experimental_local_results(variable)[0]),
        "replicas": np.asarray(
            [
                strategy.num_replicas_in_sync,
                tf.distribute.has_strategy(),
                tf.distribute.in_cross_replica_context(),
            ]
        ),
    }


def extended(strategy: Any) -> dict[str, Any]:
    """Properties and methods of `strategy.extended`."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    e = strategy.extended
    numbers = strategy.experimental_distribute_values_from_function(
        lambda c: tf.constant([float(c.replica_id_in_sync_group), 1.0])
    )
    with strategy.scope():
        reduced = e.reduce_to("SUM", numbers, variable)
        batch = e.batch_reduce_to("MEAN", [(numbers, variable), (numbers, numbers)])
        inside = [
            tf.distribute.in_cross_replica_context(),
            tf.distribute.get_strategy() is strategy,
        ]
    local = strategy.experimental_local_results
    devices = [tf.DeviceSpec.from_string(d).job for d in e.parameter_devices]
    if hasattr(strategy, "allotment"):
        assert set(devices) == {"ps"}
    return {
        "reduced": np.asarray(local(reduced)[0]),
        "batch": np.asarray([local(b)[0] for b in batch]),
        "inside": np.asarray(inside),
        "flags": np.asarray([e.experimental_require_static_shapes, len(e.worker_devices)]),
    }
