"""A task that is lost ends what runs with an error that names it; the others serve on."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.strategy.cluster import CaseError, Runner, free_ports

pytestmark = pytest.mark.timeout(300)
# After which a task that does not answer is given up.
TASK_TIMEOUT = 3.0


@pytest.mark.parametrize(
    ("case", "number", "task"),
    [
        ("fit", signal.SIGKILL, "worker:1"),
        ("fit", signal.SIGKILL, "ps:0"),
        ("fit", signal.SIGSTOP, "worker:0"),
        ("evaluate", signal.SIGSTOP, "ps:0"),
        ("loop", signal.SIGKILL, "worker:0"),
        ("tracing", signal.SIGKILL, "worker:1"),
        ("variables", signal.SIGSTOP, "ps:0"),
    ],
)
def test_lost_task(
    breakable: Runner, case: str, number: signal.Signals, task: str, tmp_path: Path
) -> None:
    working = tmp_path / "working"
    options = {"task_timeout": TASK_TIMEOUT}
    breakable.begin(f"lost_cases:{case}", strategy=options, working=str(working))
    breakable.wait_for_file(working)
    breakable.tasks[task].send_signal(number)
    try:
        error = str(breakable.result(60)["error"])
    finally:
        breakable.restart_task(task)
    assert error.startswith("UnavailableError")
    assert re.search(task.replace(":", "(:|/replica:0/task:)"), error)
    assert breakable.alive


def test_task_that_does_not_come_up(breakable: Runner) -> None:
    breakable.tasks["worker:1"].kill()
    address = breakable.cluster["worker"][1]
    try:
        with pytest.raises(CaseError, match="UnavailableError") as raised:
            breakable.run("lost_cases:missing", strategy={"start_timeout": 2})
    finally:
        breakable.restart_task("worker:1")
    assert re.search(rf"not up after 2 s: .*worker:1 at {address} \(", str(raised.value))
    assert "Start each there with `python -m tf_rdmabatch serve`" in str(raised.value)


def test_tasks_end_with_the_chief() -> None:
    """It waits for a chief however late, lives on between two attempts, and then ends."""
    port, own = free_ports(2)
    cluster = {
        "worker": [f"127.0.0.1:{own}"],
        "ps": ["127.0.0.1:1"],
        "chief": [f"127.0.0.1:{port}"],
    }
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    task = subprocess.Popen(
        [sys.executable, "-m", "tf_rdmabatch", "serve", "--linger", "3"],
        env=os.environ | {"TF_CONFIG": json.dumps(config)},
    )
    try:
        for _ in range(2):
            with socket.create_server(("127.0.0.1", port)) as chief:
                chief.settimeout(60)
                connection, _ = chief.accept()
            connection.close()
            assert task.poll() is None
        assert task.wait(timeout=60) == 0
    finally:
        task.kill()
        task.wait()


def test_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        cluster = {"worker": [address], "ps": ["127.0.0.1:1"], "chief": ["127.0.0.1:2"]}
        config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
        done = subprocess.run(
            [sys.executable, "-m", "tf_rdmabatch", "serve"],
            env=os.environ | {"TF_CONFIG": json.dumps(config)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert f"error: worker:0 cannot listen at {address}" in done.stderr


def test_lost_while_connecting() -> None:
    """TensorFlow would wait for it without an end."""
    import tensorflow as tf  # noqa: PLC0415  Takes long, where this is only collected.

    from tf_rdmabatch.strategy.watch import run_while_up  # noqa: PLC0415

    tasks, restarted = {"worker:1": f"127.0.0.1:{free_ports(1)[0]}"}, threading.Event()
    try:
        with pytest.raises(tf.errors.UnavailableError, match=r"worker:1 at .* Start the program"):
            run_while_up(restarted.wait, tasks, timeout=0.5)
        with pytest.raises(RuntimeError, match="a task was lost while it did"):
            run_while_up(lambda: None, tasks, timeout=0.5)
    finally:
        restarted.set()
