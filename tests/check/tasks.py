"""Starts the tasks of a check, each a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.netns.hosts import end

TOKEN = "the token of these tests"
CHECK = [sys.executable, "-m", "tf_rdmabatch", "check"]
# Starts the process with a command and options of Popen: on this host, or on one of a network.
Start = Callable[..., "subprocess.Popen[str]"]


def start_here(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command, start_new_session=True, **options)


class CheckTask:
    """A task of a check that lists its cluster.

    Parameters
    ----------
    addresses
        Of all tasks.
    index
        Of this one.
    options
        More of the command line.
    token
        Of the job.
    start
        What starts the process.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        index: int,
        *options: str,
        token: str = TOKEN,
        start: Start = start_here,
    ) -> None:
        self._address = addresses[index]
        command = [*CHECK, "--cluster", ",".join(addresses), "--task", str(index), *options]
        self._process = start(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TF_RDMABATCH_TOKEN": token},
        )

    def finish(self, timeout: float = 60) -> tuple[int, str, str]:
        """Wait for the end and return exit status, output and errors."""
        try:
            output, errors = self._process.communicate(timeout=timeout)
        finally:
            self.close()
        assert "Traceback" not in errors, errors
        return self._process.returncode, output, errors

    def wait_until_up(self) -> None:
        host, _, port = self._address.rpartition(":")
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except ConnectionRefusedError:
                assert self._process.poll() is None
                assert time.monotonic() < deadline
            time.sleep(0.02)

    def close(self) -> None:
        end(self._process)


def run_check(
    addresses: Sequence[str],
    *options: str,
    absent: Sequence[int] = (),
    starts: Sequence[Start] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Run all tasks but the absent ones; return the first one's exit status and result."""
    tasks: list[CheckTask] = []
    try:
        # The leading one last: where others are absent, it is not to wait for long.
        for index in reversed(range(len(addresses))):
            if index in absent:
                continue
            if index == 0 and starts is None:
                for task in tasks:
                    task.wait_until_up()
            start = starts[index] if starts else start_here
            # The others' patience is not what is tested.
            more = ("--wait", "60") if index else ("--json", "-")
            tasks.append(CheckTask(addresses, index, *options, *more, start=start))
        status, output, _ = tasks.pop().finish()
        for task in tasks:
            assert task.finish()[0] == 0
    finally:
        for task in tasks:
            task.close()
    return status, json.loads(output)
