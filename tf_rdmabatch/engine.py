"""The engine: messages, memory and parameters between processes, in batches.

>>> with Engine(token="secret") as engine:
...     address = engine.listen("127.0.0.1:0")
...     weights = engine.serve("weights", np.zeros(1000, np.float32))

and in another process

>>> with Engine(token="secret") as engine:
...     weights = engine.connect(address).parameter("weights")
...     weights.push(np.ones(1000, np.float32), step=1)
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy.typing as npt

from tf_rdmabatch import _core, _logs, memory, parameters
from tf_rdmabatch.connection import Connection, Message, Peer
from tf_rdmabatch.counters import Counters
from tf_rdmabatch.errors import (
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    EngineError,
    InternalError,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PeerLost,
    PermissionDenied,
    ProtocolViolation,
    ResourceExhausted,
    Unimplemented,
    WrongState,
)
from tf_rdmabatch.memory import Array, RegisteredArray, RemoteRegion, as_seconds
from tf_rdmabatch.parameters import Parameter, ServedParameter
from tf_rdmabatch.transports import Transport, as_rules

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = [
    "AlreadyExists",
    "Cancelled",
    "Connection",
    "Counters",
    "DeadlineExceeded",
    "Engine",
    "EngineError",
    "InternalError",
    "InvalidArgument",
    "Message",
    "NotFound",
    "OutOfRange",
    "Parameter",
    "Peer",
    "PeerLost",
    "PermissionDenied",
    "ProtocolViolation",
    "RegisteredArray",
    "RemoteRegion",
    "ResourceExhausted",
    "ServedParameter",
    "Unimplemented",
    "WrongState",
]

TOKEN_VARIABLE = "TF_RDMABATCH_TOKEN"

_CONFIRM = {"batch": _core.Confirm.BATCH, "each": _core.Confirm.EACH}


class Engine:
    """One task's end of the engine. A context manager; all methods may be called from any thread.

    Parameters
    ----------
    token
        The job's secret, the same in every task; None takes the environment variable
        TF_RDMABATCH_TOKEN.
    name
        Of this task, for messages and logs: "worker:0".
    transport
        "auto" takes, for each connection, the first of "shm", "verbs" and "tcp" that reaches the
        peer, and logs why, with a warning where one fails that might have worked. A name asks for
        that transport; a mapping does so by peer, such as ``{"ps:1": "tcp", "*": "auto"}``. None
        takes the environment variable TF_RDMABATCH_TRANSPORT, and "auto" without it.
    ports
        Listen at one of these, "20000-20100", where no port is given; "" takes the environment
        variable TF_RDMABATCH_PORTS, and any free ports without it.
    tls
        Encrypt what leaves this host, by TLS 1.3 with keys made of the token; all tasks of a job
        do, or none. Only "shm" and "tcp" can. None takes the environment variable TF_RDMABATCH_TLS,
        1 or 0, and False without it.
    confirm
        "batch": chains of messages are confirmed together. "each": one by one, the baseline.
        The connecting side decides for both directions.
    window
        With ``confirm="each"``: messages unconfirmed at a time; 0 is as many as there are slots.
    slots
        Slots that each connection receives into, a multiple of 64.
    slot_bytes
        Their size in bytes, headers included, a multiple of 64.
    queue_pairs
        Queue pairs of a connection.
    max_batch
        Most slots in a chain.
    spin_us
        Microseconds of polling before the progress thread sleeps; None chooses.
    max_message_bytes
        Longest message accepted from a peer.
    max_peers
        Most connections at a time.
    handshake_timeout
        Seconds that an arriving peer has to introduce itself.
    receive_buffer
        Bytes of messages that are kept for each connection until they are received. Beyond,
        messages stay in their slots, and the sender stalls once these are taken; a message
        larger than a slot cannot stay there, so it closes the connection.
    huge_pages
        Use huge pages for `allocate` where there are some.

    Raises
    ------
    InvalidArgument
        An option is wrong, or there is no token.
    PeerLost
        The transport asked for cannot run here; the message says why.
    """

    def __init__(
        self,
        token: str | None = None,
        name: str = "",
        *,
        transport: Transport = None,
        ports: str = "",
        tls: bool | None = None,
        confirm: str = "batch",
        window: int = 0,
        slots: int = 64,
        slot_bytes: int = 65536,
        queue_pairs: int = 1,
        max_batch: int = 16,
        spin_us: float | None = None,
        max_message_bytes: int = 1 << 30,
        max_peers: int = 1024,
        handshake_timeout: float = 10.0,
        receive_buffer: int = 256 << 20,
        huge_pages: bool = False,
    ) -> None:
        if confirm not in _CONFIRM:
            raise InvalidArgument(f"confirm must be 'batch' or 'each', not {confirm!r}")
        options = _core.EngineOptions()
        options.token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        options.name = name
        options.transport = as_rules(transport)
        options.ports = ports
        options.tls = tls
        options.confirm = _CONFIRM[confirm]
        options.window = window
        options.slots = slots
        options.slot_bytes = slot_bytes
        options.queue_pairs = queue_pairs
        options.max_batch = max_batch
        options.spin_us = -1.0 if spin_us is None else spin_us
        options.max_message_bytes = max_message_bytes
        options.max_peers = max_peers
        options.handshake_timeout_s = handshake_timeout
        options.huge_pages = huge_pages
        self.name = name
        _logs.acquire()
        try:
            self._native = _core.Engine(options, receive_buffer)
        except BaseException:
            _logs.release()
            raise
        # Also when the engine is forgotten, and before the interpreter ends.
        self._finalizer = weakref.finalize(self, _finish, self._native, os.getpid())

    def __repr__(self) -> str:
        return f"<Engine {self.name!r}, {'open' if self._finalizer.alive else 'closed'}>"

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
    def closed(self) -> bool:
        """Whether the engine was closed."""
        return not self._finalizer.alive

    def close(self) -> None:
        """End every connection, wait and thread. Any number of times.

        Arrays of this engine stay valid; peers see a close, not a death.
        """
        self._finalizer()

    def listen(self, address: str = "127.0.0.1:0") -> str:
        """Accept peers from now on.

        Parameters
        ----------
        address
            "host:port"; port 0 takes a free one, of `ports` where these were given.

        Returns
        -------
        str
            The "ip:port" to which peers connect.

        Raises
        ------
        AlreadyExists
            The port is in use, or all of `ports` are.
        """
        return self._native.listen(address)

    def connect(self, address: str, timeout: float | None = 30.0) -> Connection:
        """Connect to a listening engine, which may start later.

        Raises
        ------
        DeadlineExceeded
            Nobody listened at `address` within `timeout` seconds.
        PermissionDenied
            The peer has another token.
        """
        return Connection(self._native.connect(address, as_seconds(timeout)))

    @property
    def connections(self) -> list[Connection]:
        """The live connections, in both directions of connecting."""
        return [Connection(native) for native in self._native.connections()]

    def receive(self, timeout: float | None = 30.0) -> Message:
        """Return the next message of any connection; every peer gets its turn.

        Raises
        ------
        DeadlineExceeded
            None came within `timeout` seconds.
        Cancelled
            The engine was closed.
        """
        native, tag, data = self._native.receive(as_seconds(timeout))
        return Message(tag, data, Connection(native))

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages of all connections until the engine is closed."""
        while True:
            try:
                message = self.receive(timeout=None)
            except Cancelled:
                return
            yield message

    def allocate(
        self,
        shape: int | Sequence[int],
        dtype: npt.DTypeLike = "float32",
        access: str = "local",
    ) -> RegisteredArray:
        """Return an array of zeros in registered memory.

        Parameters
        ----------
        shape
            Of the array; at least one element.
        dtype
            Of its elements.
        access
            What peers may do with it once it was exported to them: nothing ("local"), "read" it,
            or "write" it as well.

        Raises
        ------
        PermissionDenied
            More than this process may lock; the message says how to raise the limit.
        """
        return memory.allocate(self._native, shape, dtype, access)

    def serve(
        self,
        name: str,
        initial: Array | None = None,
        *,
        shape: int | Sequence[int] | None = None,
        dtype: npt.DTypeLike | None = None,
        contributors: int = 1,
        block_bytes: int = 0,
        consistency: str = "bsp",
    ) -> ServedParameter:
        """Serve a parameter to all peers.

        Parameters
        ----------
        name
            1 to 256 bytes; peers open it by this name, before or after.
        initial
            Its value, published as version 1. None: nothing is published; give `shape` and `dtype`.
        shape, dtype
            Where there is no initial value. The dtype is float32, float64, float16, bfloat16,
            int32 or int64; None is float32.
        contributors
            Pushes that make a step complete.
        block_bytes
            Size of the blocks in which it travels; 0: as much as fits in a slot.
        consistency
            "bsp": steps, each complete before it is collected. "asp": contributions are added as
            they come.

        Raises
        ------
        AlreadyExists
            The name is taken.
        """
        return parameters.serve(
            self._native, name, initial, shape, dtype, contributors, block_bytes, consistency
        )

    def counters(self) -> Counters:
        """Return the sums over all connections, ended ones included, since `reset_counters`."""
        return Counters(**self._native.counters())

    def reset_counters(self) -> None:
        """Count from 0 again."""
        self._native.reset_counters()


def _finish(native: _core.Engine, process: int) -> None:
    # A forked process has neither the engine's threads nor that of the log.
    if process != os.getpid():
        return
    native.close()
    _logs.release()
