"""The launcher's program on a host, where the launcher does not behave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import wait_until_gone
from tf_rdmabatch.launch.cluster import free_ports
from tf_rdmabatch.launch.messages import Lines, encode

PROGRAM = """
from tf_rdmabatch.launch import remote
remote.SILENCE_SECONDS = {silence}
remote.main()
"""


@pytest.fixture
def marker(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"# {request.node.name} {os.getpid()} {time.monotonic_ns()}"
    yield name
    assert wait_until_gone(name, 30) == [], "processes were left behind"


def start(directory: Path, programs: list[str], silence: float = 60) -> subprocess.Popen[bytes]:
    """Return the program, which was told to run a worker for each of `programs`."""
    remote = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(silence=silence)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    tasks = [
        {"job": "worker", "index": i, "host": "127.0.0.1", "port": port, "arguments": ["-c", text]}
        for i, (port, text) in enumerate(zip(free_ports(len(programs)), programs, strict=True))
    ]
    request: dict[str, Any] = {"token": "", "environment": {}, "cluster": {}, "addresses": []}
    request |= {"directory": str(directory), "script": None, "tasks": tasks}
    assert remote.stdin is not None
    remote.stdin.write(encode({"request": request}) + encode({"start": True}))
    remote.stdin.flush()
    return remote


def test_a_launcher_that_neither_reads_nor_speaks(tmp_path: Path, marker: str) -> None:
    """As one whose host has vanished: the tasks end, though what they write goes nowhere."""
    program = f"while True: print('x' * 10000) {marker}"
    remote = start(tmp_path, [program], silence=2)
    assert remote.wait(timeout=60) == 0
    remote.communicate()


def test_all_that_was_written_arrives_late(tmp_path: Path, marker: str) -> None:
    """The launcher's output may be held up, as by a pager."""
    done = tmp_path / "written"
    program = f"print('x' * 1000000, flush=True); open({str(done)!r}, 'w') {marker}"
    remote = start(tmp_path, [program])
    time.sleep(1)
    assert not done.exists()
    assert remote.stdout is not None
    messages, _ = Lines().take(remote.stdout.read())
    assert sum(len(message.get("text", "")) for message in messages) == 1000001
    assert messages[-1] == {"task": "worker:0", "status": 0}
    assert remote.wait(timeout=60) == 0
    remote.communicate()
