"""The systems that are compared: each runs a step as many times as it is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tf_rdmabatch.strategy.strategy import ParameterServerStrategy

# Rounds in one call of a tf.function, as Keras has them with steps_per_execution.
ROUNDS_PER_CALL = 32


class System(Protocol):
    """Runs steps on all workers."""

    strategy: Any

    def prepare(self, step: Callable[[], None]) -> None:
        """Make ready to run `step`, a replica's function."""

    def run(self, rounds: int) -> None:
        """Have each worker run a step that many times, on average; return when all are done."""


class Rdmabatch:
    """Synchronous training with this package: a round is a step on each worker and an update.

    Parameters
    ----------
    workers
        Of the cluster.
    """

    def __init__(self, workers: int) -> None:
        self.strategy = ParameterServerStrategy(num_virtual_replicas=workers)

    def prepare(self, step: Callable[[], None]) -> None:
        """Make ready to run `step`, a replica's function."""
        strategy = self.strategy

        @tf.function  # type: ignore[untyped-decorator]
        def rounds(count: tf.Tensor) -> None:
            for _ in tf.range(count):
                strategy.run(step)

        self._rounds = rounds

    def run(self, rounds: int) -> None:
        """Run synchronous rounds."""
        for done in range(0, rounds, ROUNDS_PER_CALL):
            self._rounds(tf.constant(min(ROUNDS_PER_CALL, rounds - done)))


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

    def prepare(self, step: Callable[[], None]) -> None:
        """Make ready to run `step`, a replica's function."""
        strategy = self.strategy

        @tf.function  # type: ignore[untyped-decorator]
        def one() -> None:
            strategy.run(step)

        self._step = one

    def run(self, rounds: int) -> None:
        """Schedule a step for each worker and round, and wait for all."""
        for _ in range(rounds * self._workers):
            self._coordinator.schedule(self._step)
        self._coordinator.join()


SYSTEMS: dict[str, Callable[[int], System]] = {"tf_rdmabatch": Rdmabatch, "stock": Stock}
