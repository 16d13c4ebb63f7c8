"""`tf-rdmabatch launch` with the real strategy: however a job ends, nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.strategy.cluster import ROOT, free_ports

pytestmark = pytest.mark.timeout(300)

SHARED = Path("/dev/shm")
SCRIPT = """
import sys
sys.path.insert(0, {root!r})
import tf_rdmabatch
from tests.strategy import lost_cases
strategy = tf_rdmabatch.ParameterServerStrategy()
print(lost_cases.fit(strategy, {working!r}))
raise SystemExit("the training ended")
"""


def processes(marker: str) -> dict[int, str]:
    """Return number and command line of the processes that have the marker in the environment."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and marker in _read(folder / "environ"):
                found[int(folder.name)] = _read(folder / "cmdline")
        except OSError:
            continue
    return found


def _read(path: Path) -> str:
    return path.read_text(errors="replace")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a job that trains; later nothing may be left of it."""
    working = tmp_path / "working"
    (tmp_path / "script.py").write_text(SCRIPT.format(root=str(ROOT), working=str(working)))
    shared = set(SHARED.iterdir())
    command = ["-m", "tf_rdmabatch", "launch", "--workers", "1", "--ps", "1"]
    launcher = subprocess.Popen(
        [sys.executable, *command, str(tmp_path / "script.py")],
        env=os.environ | {"JOB": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until = time.monotonic() + 150
    while not working.exists():
        assert launcher.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    yield launcher
    left = processes(f"JOB={tmp_path}")
    for process in left:
        os.kill(process, signal.SIGKILL)
    launcher.communicate()
    assert left == {}
    assert [path for path in set(SHARED.iterdir()) - shared if "rdmabatch" in path.name] == []


def test_interrupt(job: subprocess.Popen[str]) -> None:
    job.send_signal(signal.SIGINT)
    assert job.wait(timeout=60) == 130


def test_killed_worker(job: subprocess.Popen[str], tmp_path: Path) -> None:
    running = processes(f"JOB={tmp_path}")
    worker = next(p for p, command in running.items() if "serve" in command and is_worker(p))
    os.kill(worker, signal.SIGKILL)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGKILL
    assert "tf-rdmabatch: error: worker:0 ended with signal SIGKILL" in output


def is_worker(process: int) -> bool:
    return '"task": {"type": "worker"' in _read(Path(f"/proc/{process}/environ"))


def test_a_task_whose_chief_never_comes() -> None:
    """As where Slurm or Kubernetes has started it, and the script fails before its strategy."""
    chief, worker, ps = (f"127.0.0.1:{port}" for port in free_ports(3))
    cluster = {"chief": [chief], "worker": [worker], "ps": [ps]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    done = subprocess.run(
        [sys.executable, "-m", "tf_rdmabatch", "serve", "--start-timeout", "0.5"],
        env=os.environ | {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert f"tf-rdmabatch: error: no chief has come at {chief} in " in done.stderr
