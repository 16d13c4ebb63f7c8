"""Connections: messages, one-sided transfers, and a peer's parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tf_rdmabatch import _core
from tf_rdmabatch.counters import Counters
from tf_rdmabatch.errors import Cancelled, InvalidArgument
from tf_rdmabatch.memory import (
    Array,
    BytesLike,
    RemoteRegion,
    as_dtype,
    as_seconds,
    flat_bytes,
    owned_region,
)
from tf_rdmabatch.parameters import Parameter

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Peer(NamedTuple):
    """What a peer said of itself, and the address, "ip:port", of its end."""

    name: str
    address: str
    host: str
    pid: int


@dataclass(frozen=True)
class Message:
    """A message that arrived.

    Attributes
    ----------
    tag
        What the sender gave it: 0 to 2**64 - 1.
    data
        The payload.
    connection
        Where it came from; an answer goes through it.
    """

    tag: int
    data: bytes
    connection: Connection

    def array(self, dtype: npt.DTypeLike, shape: int | Sequence[int] = -1) -> Array:
        """Return the payload as a read-only array, without a copy."""
        return np.frombuffer(self.data, np.uint8).view(as_dtype(dtype)).reshape(shape)


class Connection:
    """A connection to a peer; `Engine.connect` and `Engine.connections` return them.

    All methods may be called from any thread. Timeouts are in seconds, None waits without one;
    whatever waits lets other threads run and ends with `KeyboardInterrupt` on Ctrl-C. Once the
    peer is gone every call, those that wait included, raises `PeerLost` with the peer's name;
    after `close` it is `Cancelled`. Both are a `ConnectionError`.
    """

    def __init__(self, native: _core.Connection) -> None:
        self._native = native
        self.peer = Peer(*native.peer)

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.transport
        return f"<Connection to {self.peer.name or 'peer'} at {self.peer.address}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def transport(self) -> str:
        """The name of the transport: "shm", "verbs" or "tcp"."""
        return self._native.transport

    @property
    def choice(self) -> str:
        """The transport, and why it was chosen."""
        return self._native.choice

    @property
    def confirm(self) -> str:
        """How messages are confirmed: "batch" or "each"; the connecting side decides."""
        return self._native.confirm

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, by whichever side."""
        return self._native.closed

    @property
    def max_payload(self) -> int:
        """Bytes that fit in one slot; a larger message is cut into several."""
        return self._native.max_payload

    @property
    def memory_bytes(self) -> int:
        """Bytes of registered memory that the connection holds on this side."""
        return self._native.memory_bytes

    def counters(self) -> Counters:
        """Return the counters of this connection, since it began."""
        return Counters(**self._native.counters())

    def send(self, data: BytesLike, tag: int = 0, timeout: float | None = 30.0) -> None:
        """Send one message; returns when `data` may be used again.

        Parameters
        ----------
        data
            Bytes, or an array, whose elements are sent in C order.
        tag
            Any number from 0 to 2**64 - 1, for the receiver.
        timeout
            Seconds to wait for free slots, where the receiver is slow.

        Raises
        ------
        DeadlineExceeded
            Nothing was sent. Only of a message larger than `max_payload` a part may have been:
            the connection is closed then, and by Ctrl-C as well.
        """
        self._native.send(flat_bytes(data), tag, as_seconds(timeout))

    def send_many(
        self, messages: Sequence[BytesLike] | Array, tag: int = 0, timeout: float | None = 30.0
    ) -> None:
        """Send messages in chains: faster than one `send` each, and otherwise the same.

        Parameters
        ----------
        messages
            A sequence of messages, or an array whose rows are.
        tag
            Of all of them.
        timeout
            Seconds for all of them; those before the deadline were sent.
        """
        if isinstance(messages, np.ndarray):
            if messages.ndim == 0:
                raise InvalidArgument("send_many takes an array of at least one dimension")
            messages = np.ascontiguousarray(messages)
        self._native.send_many([flat_bytes(each) for each in messages], tag, as_seconds(timeout))

    def receive(self, timeout: float | None = 30.0) -> Message:
        """Return the next message from this peer. What came before its end is still delivered.

        Raises
        ------
        DeadlineExceeded
            None came within `timeout` seconds.
        """
        tag, data = self._native.receive(as_seconds(timeout))
        return Message(tag, data, self)

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until this side closes the connection."""
        while True:
            try:
                message = self.receive(timeout=None)
            except Cancelled:
                return
            yield message

    def export(self, array: Array) -> bytes:
        """Make the whole region of a registered array reachable for this peer.

        Keep the array for as long as the peer may use it: a transfer that finds it gone breaks the
        connection.

        Returns
        -------
        bytes
            A descriptor, for the peer's `import_region`: send it in a message.

        Raises
        ------
        PermissionDenied
            The array was allocated with local access.
        """
        return self._native.export_region(owned_region(array))

    def import_region(self, descriptor: bytes) -> RemoteRegion:
        """Return the region that the peer exported over this connection."""
        return RemoteRegion(self._native.import_region(descriptor))

    def read(
        self,
        array: Array,
        remote: RemoteRegion,
        offset: int = 0,
        timeout: float | None = 30.0,
    ) -> None:
        """Fill `array` from a peer's region, without the peer's help.

        Parameters
        ----------
        array
            Contiguous and registered, e.g. a row of what `Engine.allocate` returned.
        remote
            The peer's region.
        offset
            Where in it to begin, in bytes.
        timeout
            Seconds. A transfer that misses them closes the connection.

        Raises
        ------
        OutOfRange
            The region is too small. Nothing was transferred then.
        """
        self.read_many([(array, remote, offset)], timeout)

    def write(
        self,
        array: Array,
        remote: RemoteRegion,
        offset: int = 0,
        timeout: float | None = 30.0,
    ) -> None:
        """Copy `array` into a peer's region; as `read`, for regions with write access.

        Raises
        ------
        OutOfRange
            The region is too small.
        PermissionDenied
            The region may only be read.
        """
        self.write_many([(array, remote, offset)], timeout)

    def read_many(
        self,
        transfers: Iterable[tuple[Array, RemoteRegion, int]],
        timeout: float | None = 30.0,
    ) -> None:
        """Do several reads (array, remote, offset) in chains."""
        self._native.transfer(False, _transfers(transfers), as_seconds(timeout))

    def write_many(
        self,
        transfers: Iterable[tuple[Array, RemoteRegion, int]],
        timeout: float | None = 30.0,
    ) -> None:
        """Do several writes (array, remote, offset) in chains."""
        self._native.transfer(True, _transfers(transfers), as_seconds(timeout))

    def parameter(self, name: str, timeout: float | None = 30.0) -> Parameter:
        """Open a parameter of this peer; waits until it is served."""
        return Parameter(_core.open_parameter(self._native, name, as_seconds(timeout)), name)

    def close(self) -> None:
        """End the connection; what was sent still arrives. Any number of times."""
        self._native.close()


def _transfers(
    transfers: Iterable[tuple[Array, RemoteRegion, int]],
) -> list[tuple[_core.Region, int, _core.RemoteRegion, int, int]]:
    natives = []
    for array, remote, offset in transfers:
        region = owned_region(array)
        if not array.flags.c_contiguous:
            raise InvalidArgument("only arrays in C order can be read into or written from")
        if offset < 0:
            raise InvalidArgument(f"the offset {offset} is negative")
        natives.append(
            (region, array.ctypes.data - region.address, remote._native, offset, array.nbytes)
        )
    return natives
