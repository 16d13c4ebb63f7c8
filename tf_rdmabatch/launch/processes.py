"""The processes of a job: started together, ended together.

One thread waits for everything, so nothing is missed between two of them: lines of the tasks, the
ends of processes, and signals.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import Task

# After an end was asked for; then it is forced.
GRACE_SECONDS = 5.0
# Of what a failed task wrote.
SHOWN_LINES = 20
# How long the cause of a failure may come after its effect.
CAUSE_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Process:
    """A task that runs, with the last lines that it wrote."""

    def __init__(
        self,
        task: Task,
        command: Sequence[str],
        environment: Mapping[str, str],
        first_line: str | None,
    ) -> None:
        self.task = task
        self.tail: collections.deque[str] = collections.deque(maxlen=SHOWN_LINES)
        self._partial = b""
        script = task.job == "chief"
        try:
            self.popen: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE if first_line is not None else _input_of(script),
                stdout=None if script else subprocess.PIPE,
                stderr=subprocess.PIPE if script else subprocess.STDOUT,
                # A signal from the terminal reaches this process alone, which ends them in order.
                start_new_session=True,
                # With no other thread here, nothing can be locked in the child.
                preexec_fn=_die_with_parent,  # noqa: PLW1509
            )
        except OSError as error:
            raise CommandError(f"{task.name} cannot be started: {error}") from error
        if first_line is not None:
            assert self.popen.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.write(first_line.encode() + b"\n")
                self.popen.stdin.flush()

    @property
    def output(self) -> IO[bytes]:
        """What is read of it: all output of a served task, the script's errors."""
        output = self.popen.stderr if self.task.job == "chief" else self.popen.stdout
        assert output is not None
        return output

    def take(self) -> bool:
        """Pass on what has arrived; false at its end."""
        chunk = os.read(self.output.fileno(), 65536)
        lines = (self._partial + chunk).split(b"\n")
        self._partial = lines.pop()
        if not chunk and self._partial:
            lines.append(self._partial)
        self.tail += [line.decode(errors="replace") for line in lines]
        if self.task.job == "chief":
            # As it comes: a progress bar ends no line.
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
        else:
            for line in lines:
                sys.stdout.buffer.write(b"[%s] %s\n" % (self.task.name.encode(), line))
            sys.stdout.flush()
        return bool(chunk)

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the task and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    @property
    def status(self) -> int | None:
        """Its exit status as a shell gives it; None while it runs."""
        status = self.popen.poll()
        return 128 - status if status is not None and status < 0 else status


def _input_of(script: bool) -> int | None:
    return None if script else subprocess.DEVNULL


class Job:
    """Tasks that run until the script has ended or one of them fails."""

    def __init__(self) -> None:
        self._planned: list[tuple[Task, Sequence[str], Mapping[str, str], str | None]] = []
        self._processes: list[_Process] = []
        self._selector = selectors.DefaultSelector()
        self._interrupted: signal.Signals | None = None

    def add(
        self,
        task: Task,
        command: Sequence[str],
        environment: Mapping[str, str],
        first_line: str | None = None,
    ) -> None:
        """Plan a task: `environment` is added to this process's, `first_line` is its input."""
        self._planned.append((task, command, environment, first_line))

    def run(self) -> int:
        """Start all tasks, wait for the end, end what is left; return the exit status.

        Raises
        ------
        CommandError
            A task failed or could not be started; it has the task's last lines and exit status.
        """
        with self._signals():
            try:
                for planned in self._planned:
                    process = _Process(*planned)
                    self._processes.append(process)
                    self._selector.register(process.output, selectors.EVENT_READ, process)
                failed = self._wait()
            finally:
                self._end_all()
        if failed is None:
            return 128 + self._interrupted if self._interrupted is not None else 0
        status = failed.status or 1
        raise CommandError(_describe(failed, status), status)

    def _wait(self) -> _Process | None:
        """Return the process that failed, or None when the script is done or was interrupted."""
        while self._interrupted is None:
            self._pass_on(0.2)
            ended = [process for process in self._processes if process.status is not None]
            if not ended:
                continue
            if all(p.task.job == "chief" and p.status == 0 for p in ended):
                return None
            return self._cause()
        return None

    def _cause(self) -> _Process:
        # The script may fail because a task did: that one is to be shown.
        until = time.monotonic() + CAUSE_SECONDS
        while True:
            ended = [process for process in self._processes if process.status is not None]
            cause = next((p for p in ended if p.task.job != "chief"), None)
            if cause is not None or time.monotonic() >= until:
                return cause or ended[0]
            self._pass_on(0.05)

    def _pass_on(self, timeout: float) -> None:
        if not self._selector.get_map():
            time.sleep(timeout)
            return
        for key, _ in self._selector.select(timeout):
            if not key.data.take():
                self._selector.unregister(key.fileobj)

    def _end_all(self) -> None:
        for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
            for process in self._processes:
                if process.status is None:
                    process.end(number)
            until = time.monotonic() + seconds
            while time.monotonic() < until and any(p.status is None for p in self._processes):
                self._pass_on(0.05)
        for process in self._processes:
            # Whatever a task left behind in its session.
            process.end(signal.SIGKILL)
            while process.output in self._selector.get_map():
                if not self._selector.select(0):
                    break
                self._pass_on(0)
            process.output.close()
        self._selector.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def note(number: int, _: object) -> None:
            self._interrupted = signal.Signals(number)

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, note) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def _describe(failed: _Process, status: int) -> str:
    lines = "".join(f"\n  {line}" for line in failed.tail if line.strip())
    how = f"signal {signal.Signals(status - 128).name}" if status > 128 else f"status {status}"
    if failed.status == 0:
        how = "status 0 before the script had ended"
    return f"{failed.task.name} ended with {how}" + (f"; its last lines:{lines}" if lines else "")
