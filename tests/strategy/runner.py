"""Runs cases under a strategy, one after the other: the chief's process of the tests.

Arguments: ``mirrored K``, ``plain K`` (no strategy) or ``cluster K``. Reads a line ``{"case": ..., "options": {...}, "result": path}`` for each
case, and answers with ``done`` or the error.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from typing import Any

import numpy as np


def make_strategy(kind: str, replicas: int) -> Any:
    import tensorflow as tf

    if kind == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        devices = [tf.config.LogicalDeviceConfiguration()] * replicas
        tf.config.set_logical_device_configuration(cpu, devices)
        return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    if kind == "plain":
        return tf.distribute.get_strategy()
    from tf_rdmabatch import ParameterServerStrategy

    return ParameterServerStrategy(num_virtual_replicas=replicas)


def reset() -> None:
    """Forget what the last case left, so that names and random seeds begin anew."""
    import keras

    keras.utils.clear_session()


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    strategy = make_strategy(sys.argv[1], int(sys.argv[2]))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        module, _, name = request["case"].partition(":")
        try:
            if allotment := request["options"].pop("allotment", None):
                if sys.argv[1] == "cluster":
                    strategy.allotment = allotment
            reset()
            case = getattr(importlib.import_module(module), name)
            np.savez(request["result"], **case(strategy, **request["options"]))
            print("done", file=answers, flush=True)
        except Exception:
            print(json.dumps(traceback.format_exc()), file=answers, flush=True)


if __name__ == "__main__":
    main()
