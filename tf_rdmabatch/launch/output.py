"""What tasks write: it is passed on, and its end is kept for the error of a failed one."""

from __future__ import annotations

import collections
import signal
import sys
from typing import TextIO

from tf_rdmabatch.launch.cluster import Task

# Of what a failed task wrote.
SHOWN_LINES = 20


def put(stream: TextIO, data: bytes) -> OSError | None:
    """Write at once; return why that failed, since an exception would keep a job from its end."""
    try:
        stream.buffer.write(data)
        stream.flush()
    except OSError as error:
        return error
    return None


class RunningTask:
    """A task that was started.

    Attributes
    ----------
    task
        Which one.
    status
        Its exit status as a shell gives it; None while it runs.
    lost
        Why nothing is known of it any more; empty while something is.
    unwritten
        Why what it writes is not passed on any more, such as a reader that is gone; None while it
        is.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.status: int | None = None
        self.lost = ""
        self.unwritten: OSError | None = None
        self._tail: collections.deque[str] = collections.deque(maxlen=SHOWN_LINES)
        self._partial = b""

    def write(self, chunk: bytes, errors: bool) -> None:
        """Pass on what it wrote, the script's as it comes; nothing at all is the end of it."""
        if self.task.job == "chief":
            # Unchanged: a progress bar ends no line.
            self._put(sys.stderr if errors else sys.stdout, chunk)
        lines = (self._partial + chunk).split(b"\n")
        self._partial = lines.pop()
        if not chunk and self._partial:
            lines.append(self._partial)
            self._partial = b""
        self._tail += [line.decode(errors="replace") for line in lines]
        if self.task.job != "chief":
            name = self.task.name.encode()
            self._put(sys.stdout, b"".join(b"[%s] %s\n" % (name, line) for line in lines))

    def _put(self, stream: TextIO, data: bytes) -> None:
        if self.unwritten is None:
            self.unwritten = put(stream, data)

    def describe(self) -> str:
        """Return how it ended, and the last lines that it wrote."""
        shown = "".join(f"\n  {line}" for line in self._tail if line.strip())
        lines = f"; its last lines:{shown}" if shown else ""
        if self.lost:
            return f"{self.task.name} is lost, since {self.lost}{lines}"
        status = self.status or 0
        how = f"status {status}"
        if status == 0:
            how = "status 0 before the script had ended"
        elif status > 128:
            how = f"signal {_signal_name(status - 128)}"
        return f"{self.task.name} ended with {how}{lines}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
