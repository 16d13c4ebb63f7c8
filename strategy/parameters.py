"""The parameters that the engine carries for a strategy: what is pulled, what is pushed."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import wire

# Parameters of up to this size share ops.
SMALL_BYTES = 64 << 10


@dataclass(frozen=True)
class Parameter:
    """Something with a name on a server: it is pulled, or contributions to it are collected.

    Parameters
    ----------
    name
        Unique in the job.
    server
        Number of the parameter server.
    dtype
        On the wire.
    shape
        Fully defined.
    first
        Whether the first replica's contribution counts, or the sum.
    on_server
        Its handle on the server.
    on_workers
        Its handle on each worker.
    """

    name: str
    server: int
    dtype: tf.DType
    shape: tf.TensorShape
    first: bool
    on_server: Any
    on_workers: Sequence[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return int(self.dtype.size) * int(self.shape.num_elements())

    @property
    def in_program(self) -> Any:
        """Its handle in the workers' program: the first worker's, free of its device.

        `ParameterTable.on_worker` says what stands for it on the others.
        """
        return dataclasses.replace(self.on_workers[0], device=None)


class ParameterTable:
    """Names parameters and has them served.

    Parameters
    ----------
    server_devices, worker_devices
        Of each parameter server and each worker.
    """

    def __init__(self, server_devices: Sequence[str], worker_devices: Sequence[str]) -> None:
        # What parameters are cut into; 0 leaves it to the engine.
        self.block_bytes = 0
        self._servers = server_devices
        self._workers = worker_devices
        self._numbers = itertools.count()
        # By the first worker's: the resources of all.
        self._resources: dict[int, list[tf.Tensor]] = {}

    def add(
        self, label: str, server: int, dtype: tf.DType, shape: Any, first: bool = False
    ) -> Parameter:
        """Return a new parameter, served from now on.

        Parameters
        ----------
        label
            What it is, for people.
        server
            Number of the parameter server.
        dtype
            Of the tensor; another may travel for it.
        shape
            Fully defined.
        first
            Whether the first replica's contribution counts, or the sum.
        """
        number = next(self._numbers)
        name = f"{number}/{label}"[:200]
        dtype, shape = wire.wire_dtype(dtype, label), tf.TensorShape(shape)

        def handle(device: str, contributor: int = 0) -> Any:
            return ops.parameter_handle(
                name,
                dtype,
                shape,
                server=f"ps:{server}",
                device=device,
                contributor=contributor,
                priority=number,
            )

        on_server = handle(self._servers[server])
        with tf.init_scope():
            ops.serve([on_server], len(self._workers), block_bytes=self.block_bytes)
        on_workers = [handle(device, i) for i, device in enumerate(self._workers)]
        self._resources[id(on_workers[0].resource)] = [h.resource for h in on_workers]
        return Parameter(name, server, dtype, shape, first, on_server, on_workers)

    def on_worker(self, tensor: tf.Tensor, worker: int) -> tf.Tensor | None:
        """Return a worker's resource for the first worker's; None if it is of no parameter."""
        resources = self._resources.get(id(tensor))
        return None if resources is None else resources[worker]


def grouped(parameters: Sequence[Parameter]) -> list[list[int]]:
    """Return the indices of parameters that one op carries: the small ones of each server."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, parameter in enumerate(parameters):
        small = parameter.nbytes <= SMALL_BYTES
        groups[parameter.server if small else (parameter.server, i)].append(i)
    return list(groups.values())
