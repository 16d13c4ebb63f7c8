"""Runs cases under a strategy, one after the other: the chief's process of the tests.

Arguments: ``mirrored K``, ``plain K`` (no strategy), ``cluster K``, ``sharded K`` whose partitioner
cuts all but the smallest variables, or ``asp 1``. Reads a line for each case,
``{"case": ..., "options": {...}, "result": path}``, and answers with ``done`` or the error.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_rdmabatch


def make_strategy(kind: str, replicas: int, **options: Any) -> Any:
    if kind == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        devices = [tf.config.LogicalDeviceConfiguration()] * replicas
        tf.config.set_logical_device_configuration(cpu, devices)
        return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    if kind == "plain":
        return tf.distribute.get_strategy()
    partitioner = None
    if kind == "sharded":
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(16, max_shards=3)
    if kind == "asp":
        return tf_rdmabatch.ParameterServerStrategy(consistency="asp")
    return tf_rdmabatch.ParameterServerStrategy(
        variable_partitioner=partitioner, num_virtual_replicas=replicas, **options
    )


def set_allotment(strategy: Any, allotment: Sequence[int] | None) -> None:
    """Set what a case asks for, or equal shares, whatever the case before left behind."""
    if not hasattr(strategy, "allotment"):
        return
    workers = len(strategy.allotment)
    share, more = divmod(strategy.num_replicas_in_sync, workers)
    wanted = tuple(allotment or (share + (i < more) for i in range(workers)))
    if tuple(strategy.allotment) != wanted:
        strategy.allotment = wanted


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    strategy = make_strategy(sys.argv[1], int(sys.argv[2]))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        module, _, name = request["case"].partition(":")
        try:
            anew = request["options"].pop("strategy", None)
            if anew is not None:
                strategy = make_strategy(sys.argv[1], int(sys.argv[2]), **anew)
            set_allotment(strategy, request["options"].pop("allotment", None))
            keras.utils.clear_session()
            case = getattr(importlib.import_module(module), name)
            np.savez(request["result"], **case(strategy, **request["options"]))
            print("done", file=answers, flush=True)
        except Exception:
            print(json.dumps(traceback.format_exc()), file=answers, flush=True)


if __name__ == "__main__":
    main()
