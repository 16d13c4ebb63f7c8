"""A connection to a host, by ``ssh``, and to the launcher's program that runs there."""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.hostfile import Host
from tf_rdmabatch.launch.messages import Lines, encode, to_bytes
from tf_rdmabatch.launch.output import RunningTask, put

# In which a program that is there takes something of what it is told.
STUCK_SECONDS = 20.0
# For what was said before the end; another process may hold the pipes.
UNREAD_SECONDS = 2.0
# After those of the user, which win: nobody is asked anything, a host that vanishes is noticed in
# 15 s, and nothing else goes through the connection.
_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
)
_SHOWN_LINES = 5


def add_arguments(parser: argparse._ActionsContainer) -> None:
    """Add the options that say how programs are run on hosts."""
    parser.add_argument(
        "--ssh", default="ssh", metavar="COMMAND", help="ssh, and options of it; default: ssh"
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="with --hosts: the Python there; default: the same path as here",
    )


@dataclass(frozen=True)
class Access:
    """How programs are run on the hosts.

    Attributes
    ----------
    ssh
        The client and options of it.
    python
        The Python there that has this package.
    directory
        The folder to run in.
    """

    ssh: Sequence[str]
    python: str
    directory: str

    def command(self, host: Host, arguments: Sequence[str]) -> list[str]:
        """Return what runs the Python of a host with arguments, none of them a secret."""
        # Whatever the user's shell there is. A folder that is not there is told by the program.
        line = ["sh", "-c", 'cd "$1" 2>/dev/null; shift; exec "$@"', "sh"]
        line += [self.directory, self.python, *arguments]
        if host.ssh is None:
            return line
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return [*self.ssh, *options, "-T", host.ssh, "exec " + shlex.join(line)]

    def why_failed(self, host: Host, status: int, last: str) -> str:
        """Return why this package did not run there: `status` of the command, its last line."""
        if status == 255 and host.ssh is not None:
            line = shlex.join([*self.ssh, host.ssh])
            return f"ssh cannot reach it ({last}); `{line}` has to work by itself"
        if status in (126, 127):
            return f"there is no Python at {self.python} ({last}): give --python"
        return (
            f"tf_rdmabatch cannot be run by {self.python} there ({last}): install the same "
            "version, or give --python"
        )


class Connection:
    """A host on which tasks run, as a source of a job.

    Attributes
    ----------
    host
        Which one.
    tasks
        That run there.
    hello, checked
        What its program said of the host, and of the request; None before. `ahead` in the first
        are the seconds by which its clock is ahead of this host's.
    problem
        Why the host cannot be used; empty while it can.
    """

    def __init__(self, host: Host, access: Access, tasks: Sequence[RunningTask]) -> None:
        self.host = host
        self.tasks = tasks
        self.hello: Mapping[str, Any] | None = None
        self.checked: Mapping[str, Any] | None = None
        self.problem = ""
        self._access = access
        self._named = {one.task.name: one for one in tasks}
        self._lines = Lines()
        self._errors: collections.deque[str] = collections.deque(maxlen=_SHOWN_LINES)
        self._partial = b""
        # Also the launcher's second thread says something.
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._sent_at = time.monotonic()
        self._ended_at: float | None = None
        command = access.command(host, ["-m", "tf_rdmabatch.launch.remote"])
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A signal from the terminal is for the launcher.
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(f"{command[0]} cannot be run: {error}") from error
        assert self._popen.stdin is not None
        self._input = self._popen.stdin
        self._unread = set(self.files)
        # A program that reads nothing may not hold up the launcher.
        os.set_blocking(self._input.fileno(), False)

    @property
    def files(self) -> list[IO[bytes]]:
        """What is read of it."""
        return [file for file in (self._popen.stdout, self._popen.stderr) if file is not None]

    def say(self, message: dict[str, Any]) -> None:
        """Send a message, as soon as it is taken; where it cannot be, the connection ends.

        May be called from any thread, and never blocks.
        """
        with self._lock:
            if not self._unsent:
                self._sent_at = time.monotonic()
            self._unsent += encode(message)
            self._send()

    def _send(self) -> None:
        """Write what is taken now, with the lock held."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self._input.fileno(), self._unsent)]
                self._sent_at = time.monotonic()
        except BlockingIOError:
            if time.monotonic() - self._sent_at > STUCK_SECONDS:
                self.problem = self.problem or f"it took nothing for {STUCK_SECONDS:.0f} s"
                self._popen.kill()
        except (OSError, ValueError):
            # It has closed its input, or `end` has.
            self._unsent.clear()
            self._popen.kill()

    def take(self, file: IO[bytes]) -> bool:
        """Read once and pass on; false at the end."""
        chunk = os.read(file.fileno(), 65536)
        if not chunk:
            self._unread.discard(file)
        if file is self._popen.stderr:
            self._take_errors(chunk)
            return bool(chunk)
        try:
            messages, others = self._lines.take(chunk)
        except ValueError as error:
            self.problem = self.problem or f"what it says cannot be understood: {error}"
            self._popen.kill()
            return False
        if self.hello is None:
            # Mostly of a shell's start-up files; where nothing else comes, they may tell why.
            self._errors += others
        for message in messages:
            self._understand(message)
        return bool(chunk)

    def _understand(self, message: Mapping[str, Any]) -> None:
        if "hello" in message:
            hello = message["hello"]
            self.hello = {**hello, "ahead": hello.get("time", 0.0) - time.time()}
        elif "checked" in message:
            self.checked = message["checked"]
        elif "failed" in message:
            self.problem = str(message["failed"])
            self._lose(1)
        elif "text" in message:
            self._named[message["task"]].write(to_bytes(message["text"]), message["errors"])
        elif "status" in message:
            task = self._named[message["task"]]
            task.write(b"", True)
            if task.status is None:
                task.status = message["status"]

    def _take_errors(self, chunk: bytes) -> None:
        lines = (self._partial + chunk).split(b"\n")
        self._partial = lines.pop()
        if not chunk and self._partial:
            lines.append(self._partial)
        for line in filter(None, (one.decode(errors="replace").rstrip() for one in lines)):
            self._errors.append(line)
            if self.hello is not None:
                put(sys.stderr, f"[{self.host.name}] {line}\n".encode())

    def poll(self) -> bool:
        """Note that the connection has ended, or write on what it has not taken yet."""
        now = time.monotonic()
        if self._popen.poll() is None:
            with self._lock:
                self._send()
            return True
        self._ended_at = self._ended_at or now
        if self._unread and now - self._ended_at < UNREAD_SECONDS:
            return True
        self.problem = self.problem or self._why()
        self._lose(255)
        return False

    def _lose(self, status: int) -> None:
        for task in self.tasks:
            if task.status is None:
                task.status, task.lost = status, f"{self.host.name}: {self.problem}"

    def _why(self) -> str:
        last = self._errors[-1] if self._errors else "it says nothing"
        if self.hello is not None:
            return f"the connection has ended ({last})" if self._errors else "it has ended"
        return self._access.why_failed(self.host, self._popen.returncode, last)

    def end(self, number: signal.Signals) -> None:
        """Ask the tasks there to end; with SIGKILL, end the connection, which ends them."""
        if number == signal.SIGTERM and self.hello is not None:
            self.say({"end": True})
            return
        with self._lock, contextlib.suppress(OSError):
            self._input.close()
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
