"""The parameters that the engine carries for a strategy: packs of what is pulled or pushed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_rdmabatch import ops
from tf_rdmabatch.strategy import _tensorflow as private
from tf_rdmabatch.strategy import wire

# Tensors of up to the first size share packs of up to the second. What travels alone travels as
# soon as it is ready, and costs some tens of microseconds.
SMALL_BYTES = 64 << 10
PACK_BYTES = 1 << 20


@dataclass(frozen=True)
class Item:
    """A tensor that is to be carried.

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

    label: str
    server: int
    dtype: tf.DType
    shape: tf.TensorShape
    first: bool = False

    @property
    def wire_dtype(self) -> tf.DType:
        """The dtype that travels."""
        return wire.wire_dtype(self.dtype, self.label)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return int(self.wire_dtype.size) * int(self.shape.num_elements())


class Pack:
    """Tensors of one server that travel as one.

    Parameters
    ----------
    parameter
        As the engine knows it.
    server
        Number of the parameter server.
    first
        Whether the first replica's contribution counts, or the sum.
    members
        What the tensors are of: variables or contributions.
    """

    def __init__(
        self, parameter: ops.Parameter, server: int, first: bool, members: Sequence[Any]
    ) -> None:
        self.parameter = parameter
        self.server = server
        self.first = first
        self.members = members


class ParameterTable:
    """Names parameters and has them served.

    Parameters
    ----------
    server_devices
        Of each parameter server.
    workers
        Their number.
    """

    def __init__(self, server_devices: Sequence[str], workers: int) -> None:
        # What parameters are cut into, as `ops.serve` has it.
        self.block_bytes = 0
        self._servers = server_devices
        self._workers = workers
        self._numbers = itertools.count()
        # On each server: what workers contribute to when they have read, in each round.
        self.readings = [
            ops.parameter("reading", "int32", [], server=f"ps:{i}")
            for i, _ in enumerate(server_devices)
        ]
        self._unserved = list(self.readings)

    def pack(self, items: Sequence[Item], members: Sequence[Any]) -> list[Pack]:
        """Put tensors into packs, in their order, which is the order of their priorities.

        Parameters
        ----------
        items
            Descriptions of the tensors.
        members
            What each is of.
        """
        packs = []
        for group in _groups(items):
            first = items[group[0]]
            number = next(self._numbers)
            more = f" and {len(group) - 1} more" if len(group) > 1 else ""
            parameter = ops.pack(
                f"{number}/{first.label[:200]}{more}",
                first.wire_dtype,
                [items[i].shape for i in group],
                server=f"ps:{first.server}",
                priority=number,
            )
            packs.append(Pack(parameter, first.server, first.first, [members[i] for i in group]))
        return packs

    def serve(self, packs: Sequence[Pack]) -> None:
        """Have packs served from now on: one op for each server."""
        parameters = self._unserved + [p.parameter for p in packs]
        self._unserved = []
        for number, device in enumerate(self._servers):
            own = [p for p in parameters if p.server == f"ps:{number}"]
            if own:
                with tf.init_scope(), tf.device(device):
                    ops.serve(own, self._workers, block_bytes=self.block_bytes)


def _groups(items: Sequence[Item]) -> list[list[int]]:
    """Return the indices of the items of each pack."""
    groups: list[list[int]] = []
    # By what has to be the same: the pack that is being filled, and its bytes.
    filling: dict[Any, tuple[list[int], int]] = {}
    for i, item in enumerate(items):
        if item.nbytes > SMALL_BYTES:
            groups.append([i])
            continue
        key = item.server, item.wire_dtype, item.dtype, item.first
        group, nbytes = filling.get(key, ([], PACK_BYTES))
        if nbytes + item.nbytes > PACK_BYTES:
            group, nbytes = [], 0
            groups.append(group)
        group.append(i)
        filling[key] = group, nbytes + item.nbytes
    return groups


class Handles:
    """The handles that a graph uses, each made once.

    Parameters
    ----------
    graph
        Where they are made, free of control dependencies; graphs in it capture them.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._made: dict[str, ops.ParameterHandle] = {}

    def __call__(self, parameter: ops.Parameter, device: str | None = None) -> ops.ParameterHandle:
        """Return a parameter's handle, on `device` or on whatever device the graph is called."""
        key = f"{parameter.server} {parameter.name}"
        if key not in self._made:
            with private.outside_dependencies(self.graph):
                self._made[key] = parameter.handle(device)
        return self._made[key]


def unique_packs(packs: Sequence[Pack]) -> Iterator[Pack]:
    """Yield each pack once, in order."""
    seen = set()
    for pack in packs:
        if id(pack) not in seen:
            seen.add(id(pack))
            yield pack
