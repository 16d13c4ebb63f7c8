"""The parameters that the engine carries for a strategy: what is pulled, what is pushed."""

from __future__ import annotations

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
        Whether one contribution makes a step complete, or one of each worker.
    """

    name: str
    server: int
    dtype: tf.DType
    shape: tf.TensorShape
    first: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return int(self.dtype.size) * int(self.shape.num_elements())

    def handle(self) -> Any:
        """Return its handle in the current graph, for the device that the graph runs on."""
        return ops.parameter_handle(
            self.name,
            self.dtype,
            self.shape,
            server=f"ps:{self.server}",
            in_graph=True,
            contributor=0 if self.first else None,
        )


class ParameterTable:
    """Names parameters and has them served.

    What contributions go into is shared by all the programs of a strategy: rounds follow each
    other, so that the gradients of two programs are never on their way together.

    Parameters
    ----------
    workers
        How many contribute.
    server_devices
        Of each parameter server.
    """

    def __init__(self, workers: int, server_devices: Sequence[str]) -> None:
        self._workers = workers
        self._devices = server_devices
        # What parameters are cut into; 0 leaves it to the engine.
        self.block_bytes = 0
        self._numbers = itertools.count()
        self._accumulators: dict[Any, list[Parameter]] = defaultdict(list)

    def add(
        self, label: str, server: int, dtype: tf.DType, shape: Any, first: bool = False
    ) -> Parameter:
        """Return a new parameter, served from now on."""
        shape = tf.TensorShape(shape)
        parameter = Parameter(f"{next(self._numbers)}/{label}"[:200], server, dtype, shape, first)
        with tf.init_scope(), tf.device(self._devices[server]):
            ops.serve([parameter.handle()], contributors=1 if first else self._workers, block_bytes=self.block_bytes)
        return parameter

    def lend(self) -> Lender:
        """Return what lends accumulators to one program."""
        return Lender(self, self._accumulators)


class Lender:
    """Lends each accumulator once: to one program.

    Parameters
    ----------
    table
        Where missing ones are added.
    pool
        The accumulators there are, by what they hold.
    """

    def __init__(self, table: ParameterTable, pool: dict[Any, list[Parameter]]) -> None:
        self._table = table
        self._pool = pool
        self._lent: dict[Any, int] = defaultdict(int)

    def accumulator(
        self, label: str, server: int, dtype: tf.DType, shape: tf.TensorShape, first: bool
    ) -> Parameter:
        """Return one that this program does not use yet."""
        key = (server, wire.wire_dtype(dtype, label), tuple(shape), first)
        number = self._lent[key]
        self._lent[key] += 1
        if number == len(self._pool[key]):
            self._pool[key].append(self._table.add(label, server, key[1], shape, first))
        return self._pool[key][number]


def grouped(parameters: Sequence[Parameter]) -> list[list[int]]:
    """Return the indices of parameters that one op carries: the small ones of each server."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, parameter in enumerate(parameters):
        small = parameter.nbytes <= SMALL_BYTES
        groups[parameter.server if small else (parameter.server, i)].append(i)
    return list(groups.values())
