"""Kills a task in the middle of a round and prints the error that the round ends with, as JSON.

Arguments: the task. Run as a module: its cluster is lost.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import tensorflow as tf

from tests.ops.cluster import Job
from tf_rdmabatch import ops


def main(task: str) -> dict[str, Any]:
    job = Job()
    job.start()
    served, pulled = job.handles("w", "float32", [3])
    job.serve(served, contributors=2)
    ops.publish(served, tf.ones([3]), 1)

    def round_of_survivors() -> Any:
        """Return what waits for the lost task, on the tasks that are left."""
        if task == "ps:0":
            return ops.pull(pulled[0], 3)
        ops.push(pulled[0], ops.pull(pulled[0], 1), 2)
        return ops.collect(served, 2)

    @tf.function
    def first_round() -> Any:
        for handle in pulled:
            ops.push(handle, ops.pull(handle, 1), 1)
        return ops.collect(served, 1)

    survivors = tf.function(round_of_survivors).get_concrete_function()
    assert first_round().numpy().tolist() == [2, 2, 2]
    timer = threading.Timer(1, job.processes[task].kill)
    timer.start()
    try:
        survivors()
        return {"error": None}
    except tf.errors.OpError as error:
        return {"error": type(error).__name__, "message": error.message}
    finally:
        timer.join()
        job.close()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
