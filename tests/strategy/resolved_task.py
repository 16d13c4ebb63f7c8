"""A task of a cluster that a resolver describes: serves, or is the chief and prints a sum.

Arguments: ``simple CLUSTER JOB INDEX``, with the cluster as JSON, or ``slurm PORT_BASE``, in an
environment that looks like a Slurm job step of three tasks.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorflow as tf

import tf_rdmabatch


def resolver(kind: str, *arguments: str) -> Any:
    if kind == "simple":
        cluster, job, index = arguments
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(json.loads(cluster)),
            task_type=job,
            task_id=int(index),
            rpc_layer="grpc",
        )
    return tf.distribute.cluster_resolver.SlurmClusterResolver(
        {"chief": 1, "ps": 1, "worker": 1},
        int(arguments[0]),
        # It cannot count to none.
        gpus_per_node=3,
        gpus_per_task=1,
        auto_set_gpu=False,
    )


def main() -> None:
    found = resolver(*sys.argv[1:])
    found.cluster_spec()
    if found.task_type in ("worker", "ps"):
        tf_rdmabatch.serve(found, linger=2.0)
        return
    strategy = tf_rdmabatch.ParameterServerStrategy(found, num_virtual_replicas=3)
    with strategy.scope():
        total = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
    strategy.run(lambda: total.assign_add(2.0))
    print("total", total.numpy())


if __name__ == "__main__":
    main()
