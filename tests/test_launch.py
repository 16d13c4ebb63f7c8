"""Jobs of a few processes: what they are told, and how they end."""

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

from tests.processes import wait_until_gone
from tf_rdmabatch import cli
from tf_rdmabatch.launch.cluster import free_ports, lay_out

# A job of small programs instead of TensorFlow's: the command line of each task by its name.
JOB = """
import json, sys
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import free_ports, lay_out, places_of
from tf_rdmabatch.launch import job as jobs
from tf_rdmabatch.launch.job import LocalJob
programs = json.loads(sys.argv[1])
jobs.CAUSE_SECONDS = programs.pop("cause:seconds", jobs.CAUSE_SECONDS)
job = LocalJob()
for task in lay_out(places_of(2, 1, "127.0.0.1"), free_ports(4)):
    command = [sys.executable, "-c", programs.get(task.name, "import time; time.sleep(60)")]
    job.plan(task, command, {"TF_CONFIG": task.tf_config})
try:
    sys.exit(job.run())
except CommandError as error:
    print("error:", error, file=sys.stderr)
    sys.exit(error.status)
"""


def start(**programs: str | float) -> subprocess.Popen[str]:
    named = {name.replace("_", ":"): program for name, program in programs.items()}
    return subprocess.Popen(
        [sys.executable, "-c", JOB, json.dumps(named)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def marker(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"# {request.node.name} {os.getpid()} {time.monotonic_ns()}"
    yield name
    assert wait_until_gone(name, 30) == [], "processes were left behind"


def test_tasks_are_laid_out() -> None:
    places = [("ps", "a"), ("worker", "a"), ("chief", "b"), ("worker", "c")]
    tasks = lay_out(places, range(100, 104))
    assert [task.name for task in tasks] == ["ps:0", "worker:0", "chief:0", "worker:1"]
    config = json.loads(tasks[3].tf_config)
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"] == {
        "ps": ["a:100"],
        "worker": ["a:101", "c:103"],
        "chief": ["b:102"],
    }


def test_free_ports_differ() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50


def test_lines_of_tasks_are_prefixed_and_the_script_ends_the_job(
    marker: str, tmp_path: Path
) -> None:
    def said(worker: int) -> str:
        """Tell the script that a worker has said what it says, and sleep."""
        path = str(tmp_path / f"worker{worker}")
        return f"import pathlib, time; pathlib.Path({path!r}).touch(); time.sleep(60) {marker}"

    job = start(
        chief_0=f"""
import os, sys, time
while len(os.listdir({str(tmp_path)!r})) < 2: time.sleep(0.05)
print("done")
print("bar\\r", file=sys.stderr)
""",
        worker_0=f"print('one\\ntwo', flush=True); {said(0)}",
        worker_1="import os, json; print(json.loads(os.environ['TF_CONFIG'])['task'], flush=True);"
        + said(1),
        ps_0=f"import time; time.sleep(60) {marker}",
    )
    output, errors = job.communicate(timeout=60)
    assert job.returncode == 0
    assert sorted(output.splitlines()) == [
        "[worker:0] one",
        "[worker:0] two",
        "[worker:1] {'type': 'worker', 'index': 1}",
        "done",
    ]
    assert errors == "bar\n"


@pytest.mark.parametrize(
    ("task", "program", "status", "shown"),
    [
        ("worker_1", "raise ValueError('out of luck')", 1, "ValueError: out of luck"),
        ("ps_0", "import sys; sys.exit(7)", 7, "ps:0 ended with status 7"),
        ("ps_0", "pass", 1, "ps:0 ended with status 0 before the script had ended"),
        ("chief_0", "import sys; sys.exit(3)", 3, "chief:0 ended with status 3"),
        (
            "worker_0",
            "import os; os.kill(os.getpid(), 9)",
            137,
            "worker:0 ended with signal SIGKILL",
        ),
    ],
)
def test_a_task_that_fails_ends_the_job(
    task: str, program: str, status: int, shown: str, marker: str
) -> None:
    others = {
        name: f"import time; time.sleep(60) {marker}"
        for name in ("chief_0", "worker_0", "worker_1", "ps_0")
        if name != task
    }
    job = start(**others, **{task: program})
    _, errors = job.communicate(timeout=60)
    assert job.returncode == status
    assert shown in errors.split("error:", 1)[1]


def test_the_cause_is_shown_rather_than_the_script_that_it_brought_down(marker: str) -> None:
    job = start(
        chief_0=f"raise RuntimeError('a worker is gone') {marker}",
        worker_0=f"import time; time.sleep(1); raise MemoryError('too large') {marker}",
        cause_seconds=60,
    )
    _, errors = job.communicate(timeout=60)
    assert "MemoryError: too large" in errors.split("error:", 1)[1]
    assert job.returncode == 1


def test_an_interrupt_ends_everything(marker: str) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"print('ready', flush=True); time.sleep(60) {marker}"
    )
    job = start(worker_0=stubborn, chief_0=f"import time; time.sleep(60) {marker}")
    assert job.stdout is not None
    assert job.stdout.readline() == "[worker:0] ready\n"
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=60)
    assert job.returncode == 130


def test_a_reader_that_has_seen_enough_ends_the_job_in_order(marker: str) -> None:
    """As `head` does, while a task ignores that it is asked to end."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    job = start(
        worker_0=f"{stubborn}while True: print('x', flush=True); time.sleep(0.01) {marker}",
        chief_0=f"import time; time.sleep(60) {marker}",
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "[worker:0] x\n"
    job.stdout.close()
    assert job.wait(timeout=60) != 0
    assert job.stderr is not None
    assert "BrokenPipeError" in job.stderr.read()
    job.stderr.close()


def test_a_signal_that_is_ignored_stays_so(marker: str, tmp_path: Path) -> None:
    """As under nohup."""
    go = tmp_path / "go"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        job = start(
            worker_0=f"print('ready', flush=True); import time; time.sleep(60) {marker}",
            chief_0=f"""
import os, time
while not os.path.exists({str(go)!r}): time.sleep(0.05)
""",
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert job.stdout is not None
    assert job.stdout.readline() == "[worker:0] ready\n"
    job.send_signal(signal.SIGHUP)
    go.touch()
    job.communicate(timeout=60)
    assert job.returncode == 0


def test_tasks_do_not_outlive_a_launcher_that_was_killed(marker: str) -> None:
    job = start(
        worker_0=f"print('ready', flush=True); import time; time.sleep(60) {marker}",
        chief_0=f"import time; time.sleep(60) {marker}",
    )
    assert job.stdout is not None
    job.stdout.readline()
    job.kill()
    job.communicate(timeout=60)


def test_what_would_run_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "--hosts", "a,b", "--print", "train.py", "--epochs", "3"]) == 0
    output = capsys.readouterr().out
    assert "# chief:0 on a" in output
    assert "# worker:0 on a" in output
    assert "# worker:1 on b" in output
    assert '"worker": ["a:29401", "b:29403"]' in output
    assert "train.py --epochs 3" in output
    assert output.count("-m tf_rdmabatch serve") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["launch"], "the following arguments are required: script"),
        (["launch", "--workers", "0", "x.py"], "'0' is not a number from 1 to 1024"),
        (["launch", "--env", "2=3", "x.py"], "'2=3' is not NAME or NAME=VALUE"),
        (["launch", "--env", "NOT_SET_ANYWHERE", "x.py"], "NOT_SET_ANYWHERE is not set here"),
        (["launch", "--start-timeout", "0", "x.py"], "'0' is not a number of seconds"),
        (["launch", "--port", "80", "x.py"], "'80' is not a port"),
    ],
)
def test_wrong_input_is_one_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_not_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "--hosts", "a,b", "--directory", "work", "--print", "x.py"]) == 2
    assert "--directory work has to begin with /" in capsys.readouterr().err


def test_ports_that_are_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.touch()
    assert cli.main(["launch", "--port", "31000", "--print", str(script)]) == 0
    output = capsys.readouterr().out
    assert '"worker": ["127.0.0.1:31001", "127.0.0.1:31002"]' in output
    assert '"chief": ["127.0.0.1:31003"]' in output


def test_a_script_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "no such script.py"]) == 2
    assert "no such script" in capsys.readouterr().err
