"""The systems that are compared: each runs a step as many times as it is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tf_rdmabatch.strategy.strategy import ParameterServerStrategy

# Rounds in one call of a tf.function, as Keras has them with steps_per_execution.
ROUNDS_PER_CALL = 32


Rounds = Callable[[int], None]


class System(Protocol):
    """Runs steps on all workers."""

    strategy: Any

    def prepare(self, step: Callable[[], None]) -> Rounds:
        """Return what runs rounds of `step`, a replica's function.

        It has each worker run the step that many times, on average, and returns when all are done.
        """


class Rdmabatch:
    """Synchronous training with this package: a round is a step on each worker and an update.

    Parameters
    ----------
    workers
        Of the cluster.
    """

    def __init__(self, workers: int) -> None:
        self.strategy = ParameterServerStrategy(num_virtual_replicas=workers)

    def prepare(self, step: Callable[[], None]) -> Rounds:
        """Return what runs synchronous rounds of `step`, a replica's function."""
        strategy = self.strategy

        @tf.function  # type: ignore[untyped-decorator]
        def some(count: tf.Tensor) -> None:
            for _ in tf.range(count):
                strategy.run(step)

        def run(rounds: int) -> None:
            for done in range(0, rounds, ROUNDS_PER_CALL):
                some(tf.constant(min(ROUNDS_PER_CALL, rounds - done)))

        return run


class Stock:
    """TensorFlow's own over gRPC: asynchronous, the next steps scheduled while others run.

    Parameters
    ----------
    workers
        Of the cluster.
    """

    def __init__(self, workers: int) -> None:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self._workers = workers

    def prepare(self, step: Callable[[], None]) -> Rounds:
        """Return what schedules steps for all workers and waits for them."""
        strategy = self.strategy

        @tf.function  # type: ignore[untyped-decorator]
        def one() -> None:
            strategy.run(step)

        def run(rounds: int) -> None:
            for _ in range(rounds * self._workers):
                self._coordinator.schedule(one)
            self._coordinator.join()

        return run


SYSTEMS: dict[str, Callable[[int], System]] = {"tf_rdmabatch": Rdmabatch, "stock": Stock}
