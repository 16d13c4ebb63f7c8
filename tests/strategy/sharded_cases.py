"""Cases with variables that a partitioner may have cut; whether it did is not to be seen."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tests.strategy.keras_cases import legacy_fit
from tf_rdmabatch import ops


def raw(strategy: Any) -> dict[str, Any]:
    """A variable read as a whole, by rows and with operators, assigned, and differentiated."""
    start = np.arange(21, dtype="float32").reshape(7, 3)
    with strategy.scope():
        scattered = tf.Variable(start)
        table = tf.Variable(start, name="table", aggregation=tf.VariableAggregation.MEAN)
        total = tf.Variable(lambda: tf.zeros([7, 3]), aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step() -> Any:
        def replica() -> Any:
            number = tf.cast(
                tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32
            )
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_sum((table * 2.0 + number) ** 2)
                rows = tf.reduce_sum(tf.nn.embedding_lookup(table, [0, 6, 6]) ** 2)
                nested = tf.function(lambda: tf.reduce_sum(table**3))()
            gradients = [tape.gradient(x, table) for x in (loss, rows, nested)]
            dense = tf.add_n([tf.convert_to_tensor(g) for g in gradients])
            total.assign_add(dense)
            table.assign_sub(0.01 * dense)
            return dense, table[2:5], loss

        return strategy.run(replica)

    found = {}
    for i in range(2):
        for name, value in zip(("gradient", "rows", "loss"), step(), strict=True):
            found[f"{name} {i}"] = np.asarray(strategy.experimental_local_results(value))
    found |= {"table": table.numpy(), "total": total.numpy(), "sum": (table + total).numpy()}
    table.assign(table * 0.5)
    table.assign_add(tf.ones([7, 3]))
    scattered.scatter_update(tf.IndexedSlices(tf.constant([[9.0, 9.0, 9.0]]), tf.constant([5])))
    found |= {
        "assigned": tf.convert_to_tensor(table).numpy(),
        "some": table[1:6:2].numpy(),
        "looked up": tf.nn.embedding_lookup(table, [[0, 5], [6, 3]]).numpy(),
        "scattered": scattered.numpy(),
        "array": np.asarray(table),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(table=table).save(f"{folder}/checkpoint")
        before = table.numpy()
        table.assign(tf.zeros([7, 3]))
        tf.train.Checkpoint(table=table).restore(path).assert_consumed()
        np.testing.assert_array_equal(table.numpy(), before)
        # As a variable in one piece.
        other = tf.Variable(tf.zeros([7, 3]))
        tf.train.Checkpoint(table=other).restore(path)
        np.testing.assert_array_equal(other.numpy(), before)
    return found


def keras_2(strategy: Any) -> dict[str, Any]:
    """Keras 2, to which each shard is a variable."""
    found = legacy_fit(strategy)
    return {k: v for k, v in found.items() if k.startswith(("history", "predicted"))}


def placement(strategy: Any) -> dict[str, Any]:
    """Which servers a variable's and its slot's shards are on, and what the servers hold."""
    with strategy.scope():
        variable = tf.Variable(lambda: tf.random.normal([1000, 10]))
        with strategy.extended.colocate_vars_with(variable):
            slot = tf.Variable(tf.zeros([1000, 10]))
        for _ in range(20):
            tf.Variable(tf.zeros([200, 10]))
    assert isinstance(slot, type(variable))
    return {
        "is sharded": np.asarray(isinstance(variable, tf.__internal__.distribute.ShardedVariable)),
        "rows": np.asarray([v.shape[0] for v in variable.variables]),
        "shards on": np.asarray([v.server for v in variable.variables]),
        "slot shards on": np.asarray([v.server for v in slot.variables]),
        "loads": np.asarray(strategy.extended.placement.loads),
    }


def pushed_bytes(strategy: Any) -> dict[str, Any]:
    """What the first worker sends in a round, and the bytes of the variables that it updates."""
    with strategy.scope():
        pair = [
            tf.Variable(lambda: tf.ones([512, 1024])),
            tf.Variable(lambda: tf.ones([256, 1024])),
        ]

    @tf.function
    def step() -> None:
        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(v**2) for v in pair])
            gradients = tape.gradient(loss, pair)
            sums = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
            for variable, total in zip(pair, sums, strict=True):
                strategy.extended.update(variable, lambda v, g: v.assign_sub(0.1 * g), [total])

        strategy.run(replica)

    def sent() -> int:
        with tf.device(strategy.extended.worker_cpus[0]):
            return ops.stats()["bytes_sent"]

    step()
    before = sent()
    step()
    return {
        "sent": np.asarray(sent() - before),
        "variables": np.asarray(sum(4 * int(v.shape.num_elements()) for v in pair)),
    }
