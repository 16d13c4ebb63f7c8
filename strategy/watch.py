"""Notices on the chief that a task does not answer, which TensorFlow alone would wait for.

The kernel of a task's host tells when its process ends, and nobody when it is stopped or when the
host is gone: TensorFlow's connections have no keep-alive. But its server greets whoever connects.
So each task is asked now and then, and where no greeting comes in time, this process's connections
with it are ended: what waits for the task then fails as if it had been killed.

A process may be slow to greet, and is given time; a kernel answers at once or is not there, as the
engine's connections take it, too. Between two questions the last connection stays open, with
keep-alives, so that a host which vanishes is noticed within two seconds or little more.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import tensorflow as tf

from tf_rdmabatch.addresses import split_address
from tf_rdmabatch.strategy import _tensorflow as private

LOGGER = logging.getLogger("tf_rdmabatch")
# Seconds between two questions to a task.
_INTERVAL = 2.0
_PAUSE = 0.1
# To a host that is lost: how long to wait for it, and how often to end what waits for it.
_LOST_HOST_SECONDS = 0.5
_LOST_INTERVAL = 0.25
# As the kernel writes a socket's state.
_SYN_SENT = "02"
# Seconds in which a host answers, whatever its processes do. A lost packet is sent again after one.
_HOST_SECONDS = 2.5
# As the engine's: a host that vanishes is noticed at the second question that it does not answer.
_UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
_KEEP_ALIVE = {
    socket.TCP_KEEPIDLE: 1,
    socket.TCP_KEEPINTVL: 1,
    socket.TCP_KEEPCNT: 2,
    socket.TCP_USER_TIMEOUT: 1900,
}
# At the start: seconds for an answer, between questions to those that are missing, and between
# lines that say so.
_START_ANSWER = 2.0
_START_INTERVAL = 0.2
_START_LOG_INTERVAL = 10.0


class HostUnreachableError(OSError):
    """The kernel of a task's host does not answer."""


@contextlib.contextmanager
def greeted(
    address: str, timeout: float, host_timeout: float = _HOST_SECONDS
) -> Iterator[socket.socket]:
    """Yield a connection once the TensorFlow server at an address has greeted over it.

    Parameters
    ----------
    address
        Of the server.
    timeout
        Seconds for the greeting.
    host_timeout
        Seconds for the kernel of its host to answer.

    Raises
    ------
    HostUnreachableError
        The host does not answer: it is off, or the network is cut.
    TimeoutError
        It does, and there was no greeting in `timeout` seconds.
    OSError
        Nobody listens there.
    """
    deadline = time.monotonic() + timeout
    with host_errors():
        try:
            connection = socket.create_connection(
                split_address(address), timeout=min(timeout, host_timeout)
            )
        except TimeoutError as error:
            raise HostUnreachableError(errno.ETIMEDOUT, "Connection timed out") from error
        with connection:
            keep_alive(connection)
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            if not connection.recv(1):
                raise ConnectionError("it ended the connection")
            yield connection


def _hold(connection: socket.socket, seconds: float) -> None:
    """Wait, or return early where the peer ends the connection; errors as of `greeted`."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(TimeoutError, ConnectionError), host_errors():
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(4096):
                return


@contextlib.contextmanager
def host_errors() -> Iterator[None]:
    """Raise what tells that a peer's kernel does not answer as `HostUnreachableError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _UNREACHABLE:
            raise HostUnreachableError(error.errno, error.strerror) from error
        raise


def keep_alive(connection: socket.socket) -> None:
    """Have a connection end when the peer's host is gone, in some two seconds."""
    # This host's kernel can be too busy to answer itself, and knows when a process of it ends.
    if connection.getpeername()[0] == connection.getsockname()[0]:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def wait_for_tasks(tasks: Mapping[str, str], timeout: float) -> None:
    """Return once all tasks are up.

    Parameters
    ----------
    tasks
        The address of each, by its name, such as ``"worker:0"``.
    timeout
        Seconds for all together.

    Raises
    ------
    tf.errors.UnavailableError
        Some are not; the message names them and says what to do.
    """
    deadline = time.monotonic() + timeout
    log_at = time.monotonic() + _START_LOG_INTERVAL
    waiting = dict(tasks)
    while True:
        reasons = {}
        for name, address in list(waiting.items()):
            try:
                with greeted(address, _START_ANSWER):
                    del waiting[name]
            except socket.gaierror as error:
                reasons[name] = f"that name does not resolve here: {error.strerror}"
            except OSError as error:
                reasons[name] = str(error)
        if not waiting:
            return
        missing = ", ".join(f"{n} at {a} ({reasons[n]})" for n, a in waiting.items())
        if time.monotonic() >= deadline:
            raise tf.errors.UnavailableError(
                None,
                None,
                f"not up after {timeout:g} s: {missing}. Start each there with `python -m "
                "tf_rdmabatch serve`, or correct its address in the cluster (TF_CONFIG), or wait "
                "longer (start_timeout and task_timeout of ParameterServerStrategy)",
            )
        if time.monotonic() >= log_at:
            LOGGER.warning("waiting for %s", missing)
            log_at = time.monotonic() + _START_LOG_INTERVAL
        time.sleep(_START_INTERVAL)


_connecting: threading.Thread | None = None
_NO_MORE = "Start the program again: this process cannot connect to the job's tasks any more"


def run_while_up(function: Callable[[], object], tasks: Mapping[str, str], timeout: float) -> None:
    """Run what connects TensorFlow to all tasks, which waits without an end for one that is lost.

    Where it does, its thread stays behind, and this process cannot connect any more.

    Parameters
    ----------
    function
        What connects.
    tasks
        The address of each, by its name.
    timeout
        Seconds after which a task that does not answer is given up.

    Raises
    ------
    tf.errors.UnavailableError
        Some tasks are lost; the message names them.
    RuntimeError
        A thread of an earlier attempt is left, which TensorFlow keeps waiting.
    """
    global _connecting  # noqa: PLW0603
    if _connecting is not None and _connecting.is_alive():
        raise RuntimeError(f"{_NO_MORE}, since a task was lost while it did")
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    _connecting = threading.Thread(target=run, name="connect", daemon=True)
    _connecting.start()
    while _connecting.is_alive():
        _connecting.join(_INTERVAL)
        try:
            if _connecting.is_alive():
                wait_for_tasks(tasks, timeout)
        except tf.errors.UnavailableError as error:
            message = f"{error.message}. {_NO_MORE}"
            raise tf.errors.UnavailableError(None, None, message) from None
    if errors:
        raise errors[0]


def cut_connections(address: str) -> int:
    """End this process's TCP connections to an address and return their number.

    What uses them finds them ended by the peer. Those that are being made end too: TensorFlow would
    wait 20 s for a host that is not there.
    """
    host, port = split_address(address)
    with contextlib.suppress(OSError):
        peers = {_normal(info[4][0]) for info in socket.getaddrinfo(host, port)}
        waiting = _connecting_sockets(port)
        return sum(
            _cut(int(entry.name), peers, port, waiting) for entry in Path("/proc/self/fd").iterdir()
        )
    return 0


def _connecting_sockets(port: int) -> dict[int, str]:
    """Return the peers of sockets that have asked for a connection to a port, by inode."""
    found = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                host, _, number = words[2].partition(":")
                if int(number, 16) == port and words[3] == _SYN_SENT:
                    found[int(words[9])] = _normal(_kernel_address(host))
    return found


def _kernel_address(text: str) -> str:
    """Return an address that the kernel writes as words in the order of this processor."""
    words = [int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def _cut(descriptor: int, hosts: set[str], port: int, waiting: Mapping[int, str]) -> bool:
    """Shut a descriptor's connection down if it leads to that port of one of the hosts."""
    try:
        # A copy, since the number may be another file's at any time.
        copy = os.dup(descriptor)
    except OSError:
        return False
    try:
        status = os.fstat(copy)
        if not stat.S_ISSOCK(status.st_mode):
            return False
        with socket.socket(fileno=os.dup(copy)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            if waiting.get(status.st_ino) not in hosts:
                peer = connection.getpeername()
                if peer[1] != port or _normal(peer[0]) not in hosts:
                    return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False
    finally:
        os.close(copy)


def _normal(host: str | int) -> str:
    """Return an IP address in the one form that all its forms have."""
    address = ipaddress.ip_address(str(host).partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


class Watch:
    """Asks tasks whether they are alive, a thread for each, until it is stopped.

    Parameters
    ----------
    tasks
        The address of each, by its name.
    timeout
        Seconds after which a task that does not answer is given up.
    """

    def __init__(self, tasks: Mapping[str, str], timeout: float) -> None:
        self._timeout = timeout
        self._stopped = threading.Event()
        for name, address in tasks.items():
            thread = threading.Thread(
                target=self._watch, args=(name, address), name=f"watch-{name}", daemon=True
            )
            thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def _watch(self, name: str, address: str) -> None:
        lost = False
        while not self._stopped.is_set():
            try:
                patience = _LOST_HOST_SECONDS if lost else _HOST_SECONDS
                with greeted(address, self._timeout, patience) as connection:
                    lost = False
                    _hold(connection, _INTERVAL)
                self._stopped.wait(_PAUSE)
                continue
            except HostUnreachableError as error:
                reason = f"its host does not answer ({error.strerror})"
            except TimeoutError:
                reason = f"it has not answered for {self._timeout:g} s"
            except OSError as error:
                reason = f"it has ended ({error})"
            if self._stopped.is_set():
                return
            private.keep_functions(True)
            cut_connections(address)
            if not lost:
                LOGGER.error("%s at %s is lost: %s", name, address, reason)
            lost = True
            deadline = time.monotonic() + _INTERVAL
            while time.monotonic() < deadline and not self._stopped.wait(_LOST_INTERVAL):
                cut_connections(address)


_current: Watch | None = None


def watch(tasks: Mapping[str, str], timeout: float) -> None:
    """Watch the tasks of this process's job, and those of its job before no more."""
    global _current  # noqa: PLW0603
    if _current is not None:
        _current.stop()
    private.keep_functions(False)
    _current = Watch(tasks, timeout)
