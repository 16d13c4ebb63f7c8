"""The demo's program on the chief: trains the digits network, and measures steps when it is told.

`run.py` starts it once for each system, with ``tf-rdmabatch launch``, and sends it requests.
"""

from __future__ import annotations

import argparse
import logging
import time
from multiprocessing.connection import Client
from typing import Any

import keras
import tensorflow as tf

import tf_rdmabatch
from examples.demo.clock import StepClock
from examples.demo.straggler import Straggler
from examples.keras_digits import digits, network

BATCH = 60
WORKERS = 2
LEARNING_RATE = 2e-3
# Steps between two looks of Keras's.
STEPS_PER_EXECUTION = 5


def loss_function(**options: Any) -> Any:
    """Return the loss."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def batches(images: int) -> tf.data.Dataset:
    """Return the training images in batches of as many, in another order each time."""
    train, _ = digits()
    dataset = tf.data.Dataset.from_tensor_slices(train).cache()
    return dataset.shuffle(len(train[1]), seed=1).batch(images, drop_remainder=True).prefetch(2)


class Rdmabatch:
    """Synchronous training with Keras `fit`: each batch is shared by the workers."""

    def __init__(self) -> None:
        self.strategy = tf_rdmabatch.ParameterServerStrategy(num_virtual_replicas=WORKERS)
        keras.utils.set_random_seed(1)
        with self.strategy.scope():
            self.model = network()
            self.model.compile(
                optimizer=keras.optimizers.Adam(LEARNING_RATE),
                loss=loss_function(),
                metrics=["accuracy"],
                steps_per_execution=STEPS_PER_EXECUTION,
            )

    def train(self, epochs: int) -> float:
        """Train with a progress bar, and return the accuracy on the test images."""
        self.model.fit(batches(BATCH), epochs=epochs, shuffle=False)
        _, accuracy = self.model.evaluate(*digits()[1], batch_size=99, verbose=0)
        return float(accuracy)

    def measure(self, steps: int) -> dict[str, float]:
        """Run steps of `fit` and return the seconds and bytes that one took."""
        clock = StepClock()
        before = self._worker_bytes()
        all_steps = steps + STEPS_PER_EXECUTION
        dataset = batches(BATCH).repeat().take(all_steps)
        self.model.fit(dataset, shuffle=False, verbose=0, callbacks=[clock])
        sent, received = (
            (now - then) / all_steps for now, then in zip(self._worker_bytes(), before, strict=True)
        )
        return {"seconds": clock.seconds / steps, "pushed": sent, "pulled": received}

    def _worker_bytes(self) -> tuple[float, float]:
        stats = self.strategy.stats()
        workers = [values for task, values in stats.items() if task.startswith("worker")]
        return (
            sum(worker["bytes_sent"] for worker in workers),
            sum(worker["bytes_received"] for worker in workers),
        )

    def round_times(self, rounds: int) -> dict[str, Any]:
        """Return each task's last rounds."""
        times: dict[str, Any] = self.strategy.round_times(rounds)
        return times


class Stock:
    """TensorFlow's own strategy over gRPC: asynchronous, each worker takes batches of its own.

    Keras 3's `fit` does not support it, so the loop is written by hand, as fast as it can be:
    steps are scheduled ahead, and nothing is computed for a progress bar.
    """

    def __init__(self) -> None:
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        keras.utils.set_random_seed(1)
        share = BATCH // WORKERS
        with strategy.scope():
            model = network()
            optimizer = keras.optimizers.Adam(LEARNING_RATE)
            optimizer.build(model.trainable_variables)
            loss = loss_function(reduction="sum")

        def replica(images: Any, labels: Any) -> None:
            with tf.GradientTape() as tape:
                value = loss(labels, model(images, training=True)) / share
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        @tf.function
        def step(iterator: Any) -> None:
            strategy.run(replica, args=next(iterator))

        self._step = step
        dataset = self._coordinator.create_per_worker_dataset(lambda: batches(share).repeat())
        self._iterator = iter(dataset)

    def measure(self, steps: int) -> dict[str, float]:
        """Run as many batches through the workers and return the seconds that one took."""
        begin = time.perf_counter()
        for _ in range(steps * WORKERS):
            self._coordinator.schedule(self._step, args=(self._iterator,))
        self._coordinator.join()
        return {"seconds": (time.perf_counter() - begin) / steps}


# What answers requests, by its name: they name its methods.
SYSTEMS = {"tf_rdmabatch": Rdmabatch, "stock": Stock, "straggler": Straggler}


def main() -> None:
    """Answer requests until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("socket", help="where requests come from")
    options = parser.parse_args()
    with Client(options.socket, "AF_UNIX") as requests:
        system = SYSTEMS[options.system]()
        requests.send("ready")
        for name, argument in iter(requests.recv, None):
            requests.send(getattr(system, name)(argument))


if __name__ == "__main__":
    main()
