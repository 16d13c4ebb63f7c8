"""A cluster on this host whose script does what it is told, as ``tf-rdmabatch bench`` needs it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import tf_rdmabatch
from tf_rdmabatch.bench.cpu_time import descendants
from tf_rdmabatch.cli import CommandError

# A first step may take long to trace; later ones are as long as was asked, or as one step.
SETUP_SECONDS = 600.0
RUN_SECONDS = 120.0
END_SECONDS = 30.0
SHOWN_LINES = 20
# With this the script begins its answers; see strategy/bench/chief.py.
MARK = b"bench:"
_SCRIPT = Path(tf_rdmabatch.__file__).parent / "strategy" / "bench" / "chief.py"


class StrategyJob:
    """Runs ``tf-rdmabatch launch`` with a script that answers.

    Parameters
    ----------
    name
        For errors.
    request
        What the script is told, as its argument.
    workers, servers
        Their numbers.
    script
        Reads requests from its input and answers each with a line of `MARK` and JSON, and so when
        it is ready; the default is that of ``bench strategy``.
    environment
        Variables to add.
    """

    def __init__(
        self,
        name: str,
        request: dict[str, Any],
        workers: int,
        servers: int,
        script: Path = _SCRIPT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._pending = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        launch = [sys.executable, "-m", "tf_rdmabatch", "launch"]
        counts = ["--workers", str(workers), "--ps", str(servers)]
        self._process = subprocess.Popen(
            [*launch, *counts, str(script), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Parameters are in main memory on every task, and the tasks share this host.
            env={"TF_CPP_MIN_LOG_LEVEL": "2"}
            | os.environ
            | {"CUDA_VISIBLE_DEVICES": ""}
            | dict(environment or {}),
            # A signal from the terminal reaches the benchmark alone, which ends its jobs.
            start_new_session=True,
        )
        self.processes: list[int] = []

    def __enter__(self) -> StrategyJob:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all processes of the job."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        # With this `launch` ends its tasks and itself; where it is killed, they die with it.
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            # A full pipe would hold it up.
            process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        self._errors.close()

    def wait_ready(self) -> dict[str, Any]:
        """Wait until the script has run its first step, and return what it says of it."""
        answer = self._receive(SETUP_SECONDS)
        self.processes = descendants(self._process.pid)
        return answer

    def run(self, seconds: float, part: str = "whole") -> dict[str, Any]:
        """Run steps, or a part of each, for about so many seconds, and return what was done."""
        return self.ask({"part": part, "seconds": seconds}, 10 * seconds + RUN_SECONDS)

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Have the script do something, and return what it answers within so many seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._receive(timeout)

    def _receive(self, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while (line := self._line(deadline)) is not None:
            if line.startswith(MARK):
                answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return answer
        raise CommandError(f"{self._name}: no answer came within {timeout:.0f} s")

    def _line(self, deadline: float) -> bytes | None:
        """Return the next line that the job writes, or None after the deadline."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                return None
            chunk = os.read(output, 65536)
            if not chunk:
                raise self._ended()
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _ended(self) -> CommandError:
        """Return the error of a job that has ended, with the last that it said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        # What `launch` says at its end, where it could.
        _, found, reason = text.rpartition("tf-rdmabatch: error: ")
        lines = (reason if found else text).strip().splitlines()[-SHOWN_LINES:]
        return CommandError(
            "\n".join([f"{self._name} failed: {lines[0] if lines else ''}", *lines[1:]])
        )
