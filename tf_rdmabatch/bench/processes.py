"""The processes of a benchmark, as the process that orchestrates them sees them."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, cast

from tf_rdmabatch.cli import CommandError


class TaskProcess:
    """A process that runs `task`: calls are sent, and answered in order."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tf_rdmabatch.bench.task"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, call: str, **arguments: Any) -> None:
        """Begin a call; `receive` waits for its result."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self, timeout: float) -> Any:
        """Return the result of the call; raise `CommandError` when it failed or took too long."""
        output = self._process.stdout
        assert output is not None
        if not select.select([output], [], [], timeout)[0]:
            raise CommandError(f"a process of the benchmark did not answer within {timeout:.0f} s")
        line = output.readline()
        if not line:
            raise self._ended()
        answer = cast(dict[str, Any], json.loads(line))
        if "error" in answer:
            raise CommandError(f"the benchmark failed: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End the process, whatever it does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ended(self) -> CommandError:
        status = self._process.wait()
        return CommandError(f"a process of the benchmark ended with status {status}")


class ProcessPool:
    """Processes that serve one case after the other, started when they are first needed.

    After a call that failed the pool is good for nothing but closing.
    """

    def __init__(self) -> None:
        self._processes: list[TaskProcess] = []

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.close()

    def take(self, count: int) -> list[TaskProcess]:
        """Return `count` processes without a task."""
        while len(self._processes) < count:
            self._processes.append(TaskProcess())
        return self._processes[:count]


def call_all(
    processes: list[TaskProcess], call: str, arguments: list[dict[str, Any]], timeout: float
) -> list[Any]:
    """Call all processes at the same time, each with its arguments, and return the results."""
    for process, own in zip(processes, arguments, strict=True):
        process.send(call, **own)
    end = time.monotonic() + timeout
    return [process.receive(max(0.0, end - time.monotonic())) for process in processes]
