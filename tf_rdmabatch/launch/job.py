"""The tasks of a job: started together, ended together.

One thread waits for everything, so nothing is missed between two of them: lines of the tasks, the
ends of processes, and signals.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Protocol

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import Task
from tf_rdmabatch.launch.output import RunningTask
from tf_rdmabatch.launch.processes import GRACE_SECONDS, Process

# How long the cause of a failure may come after its effect.
CAUSE_SECONDS = 0.5
# For what is still in the pipes; somebody who fled the session may write on for ever.
DRAIN_SECONDS = 2.0


class Source(Protocol):
    """Where tasks run: a process of this host, or another host."""

    @property
    def tasks(self) -> Sequence[RunningTask]:
        """The tasks that run there."""

    @property
    def files(self) -> Sequence[IO[bytes]]:
        """What is read of it."""

    def take(self, file: IO[bytes]) -> bool:
        """Read one of `files` once and pass it on; false at its end."""

    def poll(self) -> bool:
        """Note which tasks have ended; return whether anything of it is left."""

    def end(self, number: signal.Signals) -> None:
        """Ask its tasks to end with SIGTERM, force them with SIGKILL."""


class Job:
    """Tasks that run until the script has ended or one of them fails; `start` starts them."""

    # Of a task that was asked to end.
    grace = GRACE_SECONDS

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.interrupted: signal.Signals | None = None
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """Call `add` for all sources; return early when interrupted."""
        raise NotImplementedError

    def add(self, source: Source) -> None:
        """Take part of the job in."""
        self.sources.append(source)
        for file in source.files:
            self._selector.register(file, selectors.EVENT_READ, source)

    def run(self) -> int:
        """Start all tasks, wait for the end, end what is left; return the exit status.

        Raises
        ------
        CommandError
            A task failed or could not be started; it has the task's last lines and exit status.
        OSError
            What tasks write cannot be passed on; `BrokenPipeError` where the reader is gone.
        """
        with self._signals():
            try:
                self.start()
                failed = self._wait()
            finally:
                self._end_all()
        if failed is not None:
            raise CommandError(failed.describe(), failed.status or 1)
        if self.interrupted is not None:
            return 128 + self.interrupted
        unwritten = self._unwritten()
        if unwritten is not None:
            raise unwritten
        return 0

    def pass_on(self, timeout: float) -> None:
        """Wait until something can be read, and pass it on."""
        if not self._selector.get_map():
            time.sleep(timeout)
            return
        for key, _ in self._selector.select(timeout):
            if not key.data.take(key.fileobj):
                self._selector.unregister(key.fileobj)

    def _poll(self) -> int:
        """Return how many sources are left."""
        return sum([source.poll() for source in self.sources])

    def _ended(self) -> list[RunningTask]:
        self._poll()
        return [t for source in self.sources for t in source.tasks if t.status is not None]

    def _unwritten(self) -> OSError | None:
        tasks = [t for source in self.sources for t in source.tasks]
        return next((t.unwritten for t in tasks if t.unwritten is not None), None)

    def _wait(self) -> RunningTask | None:
        """Return the task that failed, or None where another reason ends the job.

        The script is done, the job was interrupted, or nobody reads what it writes.
        """
        while self.interrupted is None and self._unwritten() is None:
            self.pass_on(0.2)
            ended = self._ended()
            if not ended:
                continue
            if all(one.task.job == "chief" and one.status == 0 for one in ended):
                return None
            return self._cause()
        return None

    def _cause(self) -> RunningTask:
        # The script may fail because a task did: that one is to be shown.
        until = time.monotonic() + CAUSE_SECONDS
        while True:
            ended = self._ended()
            cause = next((one for one in ended if one.task.job != "chief"), None)
            if cause is not None or time.monotonic() >= until:
                return cause or ended[0]
            self.pass_on(0.05)

    def _end_all(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for source in self.sources:
                if source.poll():
                    source.end(number)
            until = time.monotonic() + self.grace
            while time.monotonic() < until and self._poll():
                self.pass_on(0.05)
        for source in self.sources:
            # Whatever a task left behind in its session.
            source.end(signal.SIGKILL)
        until = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < until and self._selector.get_map() and self._selector.select(0):
            self.pass_on(0)
        for source in self.sources:
            for file in source.files:
                file.close()
        self._selector.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def note(number: int, _: object) -> None:
            self.interrupted = signal.Signals(number)

        # One that is ignored, as under nohup, was so on purpose.
        numbers = [
            number
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        before = [signal.signal(number, note) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


class LocalTask:
    """A task that is a process of this host; the script has the terminal."""

    def __init__(self, task: Task, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._running = RunningTask(task)
        self.tasks = [self._running]
        self._process = Process(task.name, command, environment, terminal=task.job == "chief")
        self.files = self._process.files

    def take(self, file: IO[bytes]) -> bool:
        """Read once and pass on; false at the end."""
        chunk = os.read(file.fileno(), 65536)
        self._running.write(chunk, self._process.is_errors(file))
        return bool(chunk)

    def poll(self) -> bool:
        """Return whether it runs."""
        self._running.status = self._process.status
        return self._running.status is None

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the task and all that it started."""
        self._process.end(number)


class LocalJob(Job):
    """A job on this host."""

    def __init__(self) -> None:
        super().__init__()
        self._planned: list[tuple[Task, Sequence[str], Mapping[str, str]]] = []

    def plan(self, task: Task, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Have `start` start a task; `environment` is added to this process's."""
        self._planned.append((task, command, environment))

    def start(self) -> None:
        """Start the planned tasks."""
        for planned in self._planned:
            self.add(LocalTask(*planned))
