"""Starts the tests' clusters: each task a process."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
START = 120.0
CASE = 240.0


class CaseError(AssertionError):
    """A case raised an error in its process."""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Runner:
    """A process that runs cases, and the worker and ps processes that it needs.

    Parameters
    ----------
    kind
        ``"mirrored"``, ``"plain"``, ``"cluster"`` or ``"sharded"``; see runner.py.
    replicas, workers, servers
        Their numbers.
    """

    def __init__(self, kind: str, replicas: int, workers: int = 0, servers: int = 0) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.tasks: dict[str, subprocess.Popen[bytes]] = {}
        self.cluster = self.addresses({"worker": workers, "ps": servers, "chief": 1})
        for job, count in (("worker", workers), ("ps", servers)):
            for index in range(count):
                self.start_task(job, index)
        self._arguments = ["runner", kind, str(replicas)]
        try:
            self.start_chief()
        except CaseError:
            self.close()
            raise

    def addresses(self, counts: dict[str, int]) -> dict[str, list[str]]:
        """Return the addresses of that many tasks of each job."""
        self.ports = free_ports(sum(counts.values()))
        free = iter(self.ports)
        return {job: [f"127.0.0.1:{next(free)}" for _ in range(n)] for job, n in counts.items()}

    def popen(self, task: str, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start the process of a task, such as ``"worker:0"``."""
        del task
        return subprocess.Popen(command, **options)

    def start_chief(self) -> None:
        self.chief = self._process("chief", 0, self._arguments, pipes=True)
        self._expect("ready", START)

    def restart_chief(self) -> None:
        _end(self.chief)
        self.start_chief()

    def restart_task(self, name: str) -> None:
        _end(self.tasks[name])
        job, _, index = name.partition(":")
        self.start_task(job, int(index))

    def start_task(self, job: str, index: int) -> None:
        self.tasks[f"{job}:{index}"] = self._process(job, index, ["server"])

    def _process(
        self, job: str, index: int, arguments: list[str], pipes: bool = False
    ) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_VISIBLE_DEVICES": "",
        }
        if self.cluster["worker"]:
            task = {"type": job, "index": index}
            environment["TF_CONFIG"] = json.dumps({"cluster": self.cluster, "task": task})
        pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
        with (Path(self.folder.name) / f"{job}{index}.log").open("ab") as log:
            return self.popen(
                f"{job}:{index}",
                [sys.executable, "-m", f"tests.strategy.{arguments[0]}", *arguments[1:]],
                cwd=ROOT,
                env=environment,
                stdin=pipe,
                stdout=pipe if pipes else log,
                stderr=log,
            )

    def run(self, case: str, timeout: float = CASE, **options: Any) -> dict[str, Any]:
        """Run a case ``module:function`` of this folder and return its arrays.

        An option ``strategy`` has it create the strategy anew, with these arguments.
        """
        self.begin(case, **options)
        return self.result(timeout)

    def begin(self, case: str, **options: Any) -> None:
        """Begin to run a case."""
        path = Path(self.folder.name) / "result.npz"
        request = {"case": f"tests.strategy.{case}", "options": options, "result": str(path)}
        assert self.chief.stdin is not None
        self.chief.stdin.write(json.dumps(request).encode() + b"\n")
        self.chief.stdin.flush()

    def result(self, timeout: float) -> dict[str, Any]:
        """Wait for the case that runs and return its arrays."""
        self._expect("done", timeout)
        return dict(np.load(Path(self.folder.name) / "result.npz"))

    def wait_for_file(self, path: Path, timeout: float = 120) -> None:
        """Wait until the case that runs has created a file."""
        deadline = time.monotonic() + timeout
        while not path.exists():
            if time.monotonic() > deadline:
                raise CaseError(f"no {path} in {timeout} s:\n{self.logs()}")
            time.sleep(0.05)

    def _expect(self, word: str, timeout: float) -> None:
        answer = self._line(timeout)
        if answer == word:
            return
        if answer is None:
            # A late answer would be taken for the next case's.
            self.chief.kill()
            raise CaseError(f"no answer in {timeout} s, or the process ended:\n{self.logs()}")
        raise CaseError(f"{json.loads(answer)}\n{self.logs(15)}")

    def _line(self, timeout: float) -> str | None:
        assert self.chief.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.chief.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                if selector.select(deadline - time.monotonic()):
                    line = self.chief.stdout.readline().decode().strip()
                    return line or None
        return None

    @property
    def alive(self) -> bool:
        return all(p.poll() is None for p in (self.chief, *self.tasks.values()))

    def logs(self, lines: int = 40) -> str:
        texts = []
        for path in sorted(Path(self.folder.name).glob("*.log")):
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            texts.append("\n".join([f"== {path.name}", *tail]))
        return "\n".join(texts)

    def close(self) -> None:
        for process in (self.chief, *self.tasks.values()):
            _end(process)
        self.folder.cleanup()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


# Kind, replicas, workers, servers.
MakeRunner = Callable[..., Runner]


def compare(
    runners: MakeRunner,
    case: str,
    workers: int = 2,
    servers: int = 1,
    replicas: int = 4,
    reference: str = "mirrored",
    rtol: float = 2e-5,
    kind: str = "cluster",
    **options: Any,
) -> None:
    """Compare what a case returns on a cluster with what it returns in a reference process."""
    cluster, single = runners(kind, replicas, workers, servers), runners(reference, replicas)
    # At the same time: both wait more than they compute.
    cluster.begin(case, **options)
    try:
        expected = single.run(case, **options)
    finally:
        found = cluster.result(CASE)
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        scale = max(float(np.abs(value).max(initial=0)), 1e-6)
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=rtol * scale, err_msg=name)
