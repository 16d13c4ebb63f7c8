"""Train a linear model with two workers and a parameter server, with nothing but ops.

Usage: ``python examples/ops_without_strategy.py``. It starts the worker and server processes, runs
one `tf.function` over all of them, and compares the result with the weights that made the data.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import socket
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tf_rdmabatch import ops

WORKERS = 2
FEATURES = 8
EXAMPLES = 256  # of each worker
STEPS = 200
Cluster = dict[str, list[str]]


def free_cluster() -> Cluster:
    """Return a cluster of free ports on this host."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS + 2)]
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for s in sockets:
        s.close()
    return {"worker": addresses[:WORKERS], "ps": [addresses[-2]], "chief": [addresses[-1]]}


def run_server(cluster: Cluster, job: str, index: int) -> None:
    """Be a worker or ps task until the process is ended. Importing the ops has loaded them."""
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=WORKERS + 1)
    tf.distribute.Server(cluster, job, index, protocol="grpc", config=config).join()


def train(cluster: Cluster) -> float:
    """Train on the cluster; return the largest error of a weight."""
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(cluster), job_name="chief", protocol="grpc"
    )
    server = "/job:ps/task:0/device:CPU:0"
    workers = [f"/job:worker/task:{i}/device:CPU:0" for i in range(WORKERS)]

    # Each process starts its engine; the workers connect to the server's.
    token = secrets.token_hex()
    with tf.device(server):
        address = ops.configure("ps:0", token)
    for index, device in enumerate(workers):
        with tf.device(device):
            ops.configure(f"worker:{index}", token, contributor=index)
            ops.connect({"ps:0": address})

    # One parameter, and a handle of it on each device.
    parameter = ops.parameter("weights", "float32", [FEATURES, 1], server="ps:0")
    served = parameter.handle(server)
    handles = [parameter.handle(device) for device in workers]
    with tf.device(server):
        weights = tf.Variable(tf.zeros([FEATURES, 1]))
        ops.serve(parameter, contributors=WORKERS)
    ops.publish_variable(served, weights, 1)

    truth = tf.random.stateless_normal([FEATURES, 1], seed=(1, 2))

    def gradient(worker: int, value: Any, step: Any) -> Any:
        x = tf.random.stateless_normal([EXAMPLES, FEATURES], seed=tf.stack([worker, step]))
        return 2 * tf.matmul(x, x @ (value - truth), transpose_a=True) / (WORKERS * EXAMPLES)

    @tf.function
    def training() -> None:
        for step in tf.range(1, STEPS + 1, dtype=tf.int64):
            for worker, handle in enumerate(handles):
                value = ops.pull(handle, version=step)
                with tf.device(handle.device):
                    ops.push(handle, gradient(worker, value, step), step)
            total = ops.collect(served, step)
            with tf.device(server):
                weights.assign_sub(0.1 * total)
                ops.publish_variable(served, weights, version=step + 1)

    training()
    return float(np.abs(weights.numpy() - truth.numpy()).max())


def main() -> None:
    """Start the processes, train, end them."""
    cluster = free_cluster()
    spawn = multiprocessing.get_context("spawn")
    tasks = [("worker", index) for index in range(WORKERS)] + [("ps", 0)]
    processes = [spawn.Process(target=run_server, args=(cluster, *task)) for task in tasks]
    for process in processes:
        process.start()
    try:
        error = train(cluster)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    print(f"after {STEPS} steps the weights differ from those that made the data by {error:.1e}")
    if error > 1e-4:
        raise SystemExit("that is too much")


if __name__ == "__main__":
    main()
