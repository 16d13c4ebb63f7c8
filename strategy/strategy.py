"""`ParameterServerStrategy`, with which a program replaces tf.distribute's."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy.extended import SynchronousExtended


class ParameterServerStrategy(private.pss.ParameterServerStrategyV2):  # type: ignore[misc, name-defined]
    """Parameter-server training whose parameters travel through the batched RDMA engine."""

    def __init__(
        self,
        cluster_resolver: Any = None,
        variable_partitioner: Any = None,
        *,
        consistency: str = "bsp",
        num_virtual_replicas: int | None = None,
        transport: str = "auto",
        block_size: int | None = None,
    ) -> None:
        resolver = cluster_resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
        self._cluster_resolver = resolver
        self._verify_args_and_config(resolver)
        self._cluster_coordinator = None
        self._connect_to_cluster(coordinator_name="chief")
        extended = SynchronousExtended(
            self, resolver, variable_partitioner, num_virtual_replicas or 2 * self._num_workers
        )
        tf.distribute.Strategy.__init__(self, extended)
        # What the base class's constructor sets.
        self._should_use_with_coordinator = False
        self._canonicalize_devices = False
        self._is_parameter_server_strategy_v2 = True
        self._start_engines(transport, block_size)
        extended.start()

    def _start_engines(self, transport: str, block_size: int | None) -> None:
        extended = self.extended
        token = secrets.token_hex(16)
        ops.WORKERS[0] = self._num_workers
        addresses = {}
        for i, device in enumerate(extended.server_devices):
            with tf.device(device):
                addresses[f"ps:{i}"] = ops.configure(f"ps:{i}", token, transport=transport)
        for i, device in enumerate(extended.worker_devices_of_tasks):
            with tf.device(device):
                ops.configure(f"worker:{i}", token, transport=transport, contributor=i)
                ops.connect(addresses)

    @property
    def allotment(self) -> tuple[int, ...]:
        """How many virtual replicas each worker runs in a round; may be set between rounds."""
        return self.extended.allotment  # type: ignore[no-any-return]

    @allotment.setter
    def allotment(self, value: Sequence[int]) -> None:
        self.extended.allotment = value

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` in each virtual replica; see `tf.distribute.Strategy.run`."""
        return super().run(fn, args, kwargs, options)
