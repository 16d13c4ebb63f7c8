"""Jobs of a few processes: what they are told, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tf_rdmabatch import cli
from tf_rdmabatch.launch.cluster import Task, free_ports, lay_out
from tf_rdmabatch.launch.remote import remote_command

# A job of small programs instead of TensorFlow's: the command line of each task by its name.
JOB = """
import json, sys
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import free_ports, lay_out
from tf_rdmabatch.launch import processes
from tf_rdmabatch.launch.processes import Job
programs = json.loads(sys.argv[1])
processes.CAUSE_SECONDS = programs.pop("cause:seconds", processes.CAUSE_SECONDS)
tasks = lay_out(2, 1, ["127.0.0.1"], free_ports(4))
job = Job()
for task in tasks:
    command = [sys.executable, "-c", programs.get(task.name, "import time; time.sleep(60)")]
    job.add(task, command, {"TF_CONFIG": task.tf_config})
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


def alive(marker: str) -> list[int]:
    """Return the processes whose command line has the marker."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and marker in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture
def marker(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"# {request.node.name} {os.getpid()} {time.monotonic_ns()}"
    yield name
    until = time.monotonic() + 30
    while alive(name) and time.monotonic() < until:
        time.sleep(0.02)
    assert alive(name) == [], "processes were left behind"


def test_tasks_are_laid_out_over_hosts() -> None:
    tasks = lay_out(3, 2, ["a", "b"], range(100, 106))
    assert [task.name for task in tasks] == [
        "ps:0",
        "ps:1",
        "worker:0",
        "worker:1",
        "worker:2",
        "chief:0",
    ]
    config = json.loads(tasks[3].tf_config)
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"] == {
        "ps": ["a:100", "b:101"],
        "worker": ["a:102", "b:103", "a:104"],
        "chief": ["a:105"],
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


def test_tasks_do_not_outlive_a_launcher_that_was_killed(marker: str) -> None:
    job = start(
        worker_0=f"print('ready', flush=True); import time; time.sleep(60) {marker}",
        chief_0=f"import time; time.sleep(60) {marker}",
    )
    assert job.stdout is not None
    job.stdout.readline()
    job.kill()
    job.communicate(timeout=60)


def start_remote(program: str, directory: Path) -> subprocess.Popen[str]:
    task = Task("worker", 0, "node1", '{"it\'s": 1}')
    command = remote_command(task, [sys.executable, "-c", program], str(directory))
    assert "secret" not in command
    shell = subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert shell.stdin is not None
    shell.stdin.write("the secret\n")
    shell.stdin.flush()
    return shell


def test_a_remote_shell_gets_the_token_by_its_input(tmp_path: Path) -> None:
    shell = start_remote("import os; print(dict(os.environ)); raise SystemExit(5)", tmp_path)
    assert shell.stdout is not None
    line = shell.stdout.readline()
    assert shell.wait(timeout=60) == 5
    shell.communicate()
    assert "'TF_RDMABATCH_TOKEN': 'the secret'" in line
    assert """'TF_CONFIG': '{"it\\'s": 1}'""" in line


def test_a_remote_task_ends_with_the_connection(marker: str, tmp_path: Path) -> None:
    shell = start_remote(
        f"print('ready', flush=True); import time; time.sleep(60) {marker}", tmp_path
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == "ready\n"
    shell.communicate(timeout=60)


FAKE_SSH = """#!/bin/sh
# As ssh does it: options, a host, and a line for the shell there.
echo "$@" >> "$SSH_LOG"
while [ "$1" = -o ]; do shift 2; done
shift
exec sh -c "$*"
"""


def test_a_job_over_hosts(tmp_path: Path) -> None:
    ssh, log, script = tmp_path / "bin" / "ssh", tmp_path / "log", tmp_path / "script.py"
    ssh.parent.mkdir()
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o755)
    script.write_text("import os; print(os.environ['TF_RDMABATCH_TOKEN'], os.environ['TF_CONFIG'])")
    path = os.pathsep.join([str(ssh.parent), os.environ["PATH"]])
    port = free_ports(1)[0] % 60000
    arguments = ["--workers", "2", "--hosts", "node1,node2", "--port", str(max(port, 1024))]
    done = subprocess.run(
        [sys.executable, "-m", "tf_rdmabatch", "launch", *arguments, str(script), "--x"],
        env=os.environ | {"PATH": path, "SSH_LOG": str(log), "TF_RDMABATCH_TOKEN": "very-secret"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    token, config = done.stdout.splitlines()[-1].split(" ", 1)
    assert token == "very-secret"
    assert json.loads(config)["task"] == {"type": "chief", "index": 0}
    commands = log.read_text()
    assert "very-secret" not in commands
    assert sorted(re.findall(r"^-o BatchMode=yes (\w+) ", commands, re.MULTILINE)) == [
        "node1",
        "node1",
        "node1",
        "node2",
    ]


def test_what_would_run_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "--hosts", "a,b", "--print", "train.py", "--epochs", "3"]) == 0
    output = capsys.readouterr().out
    assert "# chief:0 on a" in output
    assert "# worker:1 on b" in output
    assert "train.py --epochs 3" in output
    assert output.count("-m tf_rdmabatch serve") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["launch"], "the following arguments are required: script"),
        (["launch", "--workers", "0", "x.py"], "'0' is not a number from 1 to 1024"),
        (["launch", "--hosts", "a,,b", "x.py"], "'a,,b' is not a list of hosts"),
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


def test_a_script_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["launch", "no such script.py"]) == 2
    assert "no such script" in capsys.readouterr().err
