"""Reaching a task, in steps that fail one by one, so that a failure says what is wrong."""

from __future__ import annotations

import errno
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from tf_rdmabatch.addresses import split_address, split_host
from tf_rdmabatch.engine import (
    Connection,
    DeadlineExceeded,
    Engine,
    EngineError,
    InvalidArgument,
    PeerLost,
    PermissionDenied,
    ProtocolViolation,
    WrongState,
)


@dataclass(frozen=True)
class Kind:
    """A way of failing: a word or two for a table, and what it means and asks for."""

    short: str
    meaning: str


# What stands for {address}, {host}, {port} and {seconds} is known where it failed.
KINDS = {
    "name": Kind(
        "no name",
        "the name {host} does not resolve there: correct it in the cluster, or add it to DNS or "
        "/etc/hosts",
    ),
    "refused": Kind(
        "refused",
        "the host answers, and nothing listens at {address}: is the task started, with this port "
        "and address? A firewall that rejects looks the same",
    ),
    "timeout": Kind(
        "timed out",
        "nothing answers from {address} in {seconds:g} s: the host is down, the address is "
        "another's, the link is cut, or a firewall drops what goes to port {port}",
    ),
    "route": Kind(
        "no route",
        "there is no way to {host}: the host is off, or the network has no route to it",
    ),
    "token": Kind(
        "token",
        "{address} has another token: set the same TF_RDMABATCH_TOKEN in every task, and look for "
        "a task of another job at that port",
    ),
    "version": Kind(
        "version",
        "{address} runs a version of tf_rdmabatch that cannot talk to this one: install the same "
        "everywhere",
    ),
    "stranger": Kind(
        "stranger",
        "what listens at {address} is another program: choose another port, or end it",
    ),
    "silent": Kind(
        "silent",
        "{address} accepts connections, and does not answer in {seconds:g} s: its process is "
        "stopped or overloaded, or another program has the port",
    ),
    "transport": Kind(
        "transport",
        "the tasks talk, and no transport connects them to {address}",
    ),
    "other": Kind(
        "other task",
        "another task of the job listens at {address}: two have one address, or they are mixed up",
    ),
    "start": Kind("not started", "the task could not be started there"),
    "lost": Kind("lost", "the connection with {address} broke"),
}


class ReachError(Exception):
    """A task cannot be reached.

    Parameters
    ----------
    kind
        One of `KINDS`.
    detail
        What the system or the engine said.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def explain(kind: str, address: str, seconds: float) -> str:
    """Return what a failure to reach an address in that time means."""
    host, port = split_host(address)
    return KINDS[kind].meaning.format(address=address, host=host, port=port, seconds=seconds)


def reach(engine: Engine, address: str, timeout: float) -> Connection:
    """Connect to a task that listens already.

    Parameters
    ----------
    engine
        Which connects.
    address
        ``host:port``.
    timeout
        Seconds for each of three steps: to resolve, to connect, to agree.

    Raises
    ------
    ReachError
        It cannot be reached.
    """
    _knock(_resolve(address, timeout), timeout)
    try:
        return engine.connect(address, timeout)
    except PermissionDenied as error:
        raise ReachError("token", str(error)) from error
    except WrongState as error:
        raise ReachError("version", str(error)) from error
    except ProtocolViolation as error:
        raise ReachError("stranger", str(error)) from error
    except DeadlineExceeded as error:
        raise ReachError("silent", str(error)) from error
    except (PeerLost, InvalidArgument) as error:
        kind = "transport" if "no transport" in str(error) else "lost"
        raise ReachError(kind, str(error)) from error
    except EngineError as error:
        raise ReachError("lost", str(error)) from error


def _resolve(address: str, timeout: float) -> list[Any]:
    """Return what ``getaddrinfo`` does, which itself knows no bound."""
    host, port = split_address(address)
    results: list[Any] = []
    errors: list[OSError] = []

    def run() -> None:
        try:
            results.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise ReachError("name", f"{host}: {errors[0].strerror or errors[0]}")
    if not results:
        raise ReachError("name", f"{host}: the name server did not answer in {timeout:g} s")
    return results


def _knock(addresses: list[Any], timeout: float) -> None:
    """Return if a plain TCP connection to one of the addresses is possible."""
    last = ReachError("timeout", "")
    deadline = time.monotonic() + timeout
    for family, kind, protocol, _, address in addresses:
        try:
            with socket.socket(family, kind, protocol) as plain:
                plain.settimeout(max(0.01, deadline - time.monotonic()))
                plain.connect(address)
                return
        except OSError as error:
            last = ReachError(_kind_of(error), f"{address[0]}: {error.strerror or error}")
    raise last


def _kind_of(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, TimeoutError):
        return "timeout"
    unreachable = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
    return "route" if error.errno in unreachable else "lost"
