"""The launcher's program on a host, and a launcher that does not behave or whose reader does not.

No ssh takes part.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import wait_until_gone
from tests.sshd import ports_in_a_row
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


# A job of small programs on this host: what Python is given for each task by its name.
JOB = """
import json, sys
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch import hosts
from tf_rdmabatch.launch.hostfile import parse
from tf_rdmabatch.launch.ssh import Access
hosts.ALIVE_SECONDS = 0.2
python, directory, port = sys.argv[1:]
here = parse("here local address=127.0.0.1 chief ps=1 workers=1", "hosts")
arguments = {name: ["-c", *given] for name, given in json.loads(sys.stdin.readline()).items()}
access = Access([], python, directory)
job = hosts.HostsJob(here, hosts.tasks_of(here, int(port)), access, arguments, ".hidden", {}, "")
try:
    sys.exit(job.run())
except CommandError as error:
    print("error:", error, file=sys.stderr)
    sys.exit(error.status)
"""


def launch(
    directory: Path, silence: float, programs: dict[str, list[str]]
) -> subprocess.Popen[bytes]:
    (directory / ".hidden").touch()
    python = directory / "python"
    program = shlex.join([sys.executable, "-c", PROGRAM.format(silence=silence)])
    python.write_text(f"#!/bin/sh\nexec {program}\n")
    python.chmod(0o755)
    arguments = [str(python), str(directory), str(ports_in_a_row(3))]
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert job.stdin is not None
    job.stdin.write(json.dumps(programs).encode() + b"\n")
    job.stdin.flush()
    return job


def test_output_that_is_held_up_ends_no_job(tmp_path: Path, marker: str) -> None:
    sleep = f"import time; time.sleep(60) {marker}"
    job = launch(
        tmp_path,
        6,
        {"chief:0": [f"print('x' * 1000000) {marker}"], "ps:0": [sleep], "worker:0": [sleep]},
    )
    time.sleep(10)
    output, errors = job.communicate(timeout=60)
    assert (job.returncode, errors) == (0, b"")
    assert output == b"x" * 1000000 + b"\n"


def test_a_task_that_cannot_be_started(tmp_path: Path, marker: str) -> None:
    """The request is longer than a pipe takes at once, as well."""
    sleep = f"import time; time.sleep(60) {marker}"
    # The system starts no program with an argument of that length.
    programs = {"chief:0": [sleep], "ps:0": [sleep], "worker:0": [sleep, "x" * 300000]}
    job = launch(tmp_path, 60, programs)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 1
    assert b"is lost, since here: worker:0 cannot be started: " in errors
