"""The demo's second part, on the chief: training with a worker that is four times slower."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_rdmabatch
from examples.demo.clock import StepClock
from examples.keras_digits import digits, network
from tf_rdmabatch.bench.slowdown import SlowDown

BATCH = 64
REPLICAS = 8
# Seconds that a replica takes each worker, besides its computing: this needs no processor, so that
# the workers' speeds are what is said here even if they share one.
SECONDS = {0: 0.005, 1: 0.020}


class Straggler:
    """Trains the same network from the same weights, as often as it is told."""

    def __init__(self) -> None:
        self.strategy = tf_rdmabatch.ParameterServerStrategy(num_virtual_replicas=REPLICAS)
        self._equal = self.strategy.allotment
        SlowDown(self.strategy).set(SECONDS)

    def static(self, epochs: int) -> dict[str, Any]:
        """Train with as many replicas on each worker; return what `_train` does."""
        return self._train(epochs, [])

    def reallocated(self, epochs: int) -> dict[str, Any]:
        """Train with steps that move to the faster worker; return what `_train` does."""
        return self._train(epochs, [tf_rdmabatch.StepReallocation()])

    def _train(self, epochs: int, callbacks: list[Any]) -> dict[str, Any]:
        """Train; return seconds per step, the allotment at the end, and the weights."""
        self.strategy.allotment = self._equal
        keras.utils.set_random_seed(1)
        with self.strategy.scope():
            model = network()
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss)
        train, _ = digits()
        dataset = tf.data.Dataset.from_tensor_slices(train).batch(BATCH, drop_remainder=True)
        clock = StepClock()
        model.fit(dataset, epochs=epochs, shuffle=False, verbose=0, callbacks=[*callbacks, clock])
        weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
        return {
            "seconds": clock.seconds / (clock.steps - 1),
            "allotment": list(self.strategy.allotment),
            "weights": weights,
        }

    def round_times(self, rounds: int) -> dict[str, Any]:
        """Return each task's last rounds."""
        times: dict[str, Any] = self.strategy.round_times(rounds)
        return times
