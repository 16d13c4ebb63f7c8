"""A job whose processes are forked after one import of TensorFlow, which takes long where it runs.

Arguments: the transport, and the file for the weights after a short Keras `fit`.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_rdmabatch
from tests.strategy.cluster import free_ports

WORKERS = 2
REPLICAS = 4
# Loopback, where the engines introduce themselves; the transport has addresses of its own.
HOST = "127.0.0.1"


def train(strategy: Any) -> dict[str, Any]:
    """Return the weights of a small network after a few rounds, some larger than a slot."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(128, 64)).astype(np.float32)
    y = rng.normal(size=(128, 4)).astype(np.float32)
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((64,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(4)]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")
    model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    variables = [*model.variables, *model.optimizer.variables]
    return {v.path: np.asarray(v) for v in variables}


def fork(function: Callable[[], None]) -> int:
    """Run a function in a process of its own and return the process's number."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # The end of the interpreter would take as long as it does with all that is imported.
        os._exit(status)


def main() -> int:
    transport, result = sys.argv[1:]
    ports = free_ports(WORKERS + 2)
    addresses = [f"{HOST}:{port}" for port in ports]
    cluster = {"ps": addresses[:1], "chief": addresses[1:2], "worker": addresses[2:]}

    def serve(job: str, index: int) -> None:
        task = {"type": job, "index": index}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        tf_rdmabatch.serve()

    def chief() -> None:
        task = {"type": "chief", "index": 0}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        strategy = tf_rdmabatch.ParameterServerStrategy(
            num_virtual_replicas=REPLICAS, transport=transport
        )
        strategy.allotment = [1, 3]
        np.savez(result, **train(strategy))

    def alone() -> None:
        reference = train(tf.distribute.get_strategy())
        np.savez(Path(result).with_suffix(".reference.npz"), **reference)

    names = [("ps", 0), *(("worker", index) for index in range(WORKERS))]
    tasks = [fork(functools.partial(serve, job, index)) for job, index in names]
    status = max(os.waitpid(fork(function), 0)[1] for function in (chief, alone))
    for task in tasks:
        os.kill(task, signal.SIGKILL)
        os.waitpid(task, 0)
    return min(status, 1)


if __name__ == "__main__":
    sys.exit(main())
