"""What the engine raises: one class for each kind of failure, all of them `EngineError`.

Each is also the built-in exception that a Python program would expect, so that
``except TimeoutError`` and ``except ConnectionError`` work without this module.
"""

from __future__ import annotations


class EngineError(Exception):
    """Anything that the engine reports."""


class InvalidArgument(EngineError, ValueError):  # noqa: N818
    """The call is wrong whatever the state: a shape, a dtype, an option."""


class OutOfRange(EngineError, ValueError):  # noqa: N818
    """An offset or a length lies outside of a region."""


class WrongState(EngineError, RuntimeError):  # noqa: N818
    """The call is wrong in this state: engine closed, process forked, parameter unpublished."""


class NotFound(EngineError, LookupError):  # noqa: N818
    """There is nothing of that name."""


class AlreadyExists(EngineError):  # noqa: N818
    """The name is taken, or the port is in use."""


class PermissionDenied(EngineError, PermissionError):  # noqa: N818
    """The token was refused, a region lacks the right, or memory may not be locked."""


class ResourceExhausted(EngineError):  # noqa: N818
    """Out of memory, descriptors or peers: later it may work."""


class DeadlineExceeded(EngineError, TimeoutError):  # noqa: N818
    """The timeout passed first."""


class PeerLost(EngineError, ConnectionError):  # noqa: N818
    """The peer, or the device towards it, is gone; the message names it."""


class Cancelled(EngineError, ConnectionError):  # noqa: N818
    """The connection or the engine was closed while or before this was called."""


class ProtocolViolation(EngineError, ConnectionError):  # noqa: N818
    """The peer sent what no program of this kind sends, or is no such program."""


class Unimplemented(EngineError, NotImplementedError):  # noqa: N818
    """The transport cannot do this."""


class InternalError(EngineError, RuntimeError):
    """A mistake of the engine itself."""


# In the order of rdmabatch::StatusCode, without kOk. _core takes its exceptions from here.
BY_CODE: tuple[type[EngineError], ...] = (
    InvalidArgument,
    WrongState,
    NotFound,
    AlreadyExists,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    DeadlineExceeded,
    PeerLost,
    Cancelled,
    ProtocolViolation,
    Unimplemented,
    InternalError,
)
