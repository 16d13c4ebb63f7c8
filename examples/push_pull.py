"""Two processes: a worker pushes a gradient, the server updates, the worker pulls the result."""

import multiprocessing

import numpy as np

from tf_rdmabatch.engine import Engine


def work(address: str) -> None:
    """Be the worker of the server at `address`."""
    with Engine(token="a secret of this job", name="worker:0") as engine:
        weights = engine.connect(address).parameter("weights")
        weights.push(np.full(weights.shape, 0.5, weights.dtype), step=1)
        print("the worker pulled", weights.pull(version=2))


if __name__ == "__main__":
    with Engine(token="a secret of this job", name="ps:0") as engine:
        weights = engine.serve("weights", np.ones(4, np.float32))
        context = multiprocessing.get_context("spawn")
        worker = context.Process(target=work, args=(engine.listen(),))
        worker.start()
        weights.array[:] -= weights.collect()
        weights.publish()
        worker.join()
        print("what it took:", engine.counters())
