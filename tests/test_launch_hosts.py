"""Jobs over several hosts: what reaches them, and how they end. Each host is an address of sshd."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sshd
from tests.processes import alive, wait_until_gone

pytestmark = pytest.mark.skipif(sshd.MISSING is not None, reason=sshd.MISSING or "")

# A job of small programs instead of TensorFlow's: the program of each task by its name.
JOB = """
import json, os, sys
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.hostfile import parse
from tf_rdmabatch.launch.hosts import HostsJob, tasks_of
from tf_rdmabatch.launch.ssh import Access
ssh, directory, port, hostfile, programs = sys.argv[1:]
programs = json.loads(programs)
hosts = parse(hostfile, "hosts")
tasks = tasks_of(hosts, int(port))
names = [task.name for own in tasks.values() for task in own]
arguments = {n: ["-c", programs.get(n, "import time; time.sleep(60)")] for n in names}
access = Access(ssh.split(), sys.executable, directory)
token = sys.stdin.readline().strip()
try:
    sys.exit(HostsJob(hosts, tasks, access, arguments, "script", {"SOME": "thing"}, token).run())
except CommandError as error:
    print("error:", error, file=sys.stderr)
    sys.exit(error.status)
"""
HOSTS = """
node1 address=127.0.0.2 chief ps=1
node2 address=127.0.0.3 workers=2
"""
SLEEP = "import time; time.sleep(60)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Cluster]:
    with sshd.cluster(tmp_path_factory.mktemp("sshd")) as one:
        yield one


@pytest.fixture
def marker(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"# {request.node.name} {os.getpid()} {time.monotonic_ns()}"
    yield name
    assert wait_until_gone(name, 30) == [], "processes were left behind"


def start(
    cluster: sshd.Cluster, directory: Path, hosts: str = HOSTS, **programs: str
) -> subprocess.Popen[bytes]:
    (directory / "script").touch()
    named = {name.replace("_", ":"): program for name, program in programs.items()}
    port = str(sshd.ports_in_a_row(8))
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, cluster.ssh, str(directory), port, hosts, json.dumps(named)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert job.stdin is not None
    job.stdin.write(b"very-secret\n")
    job.stdin.flush()
    return job


def test_tasks_get_what_they_need_and_end_with_the_script(
    cluster: sshd.Cluster, tmp_path: Path, marker: str
) -> None:
    show = (
        "import os, json; print(json.dumps({k: os.environ[k] for k in ('TF_CONFIG', "
        "'TF_RDMABATCH_TOKEN', 'SOME', 'SSH_CONNECTION')} | {'cwd': os.getcwd()}), flush=True)"
    )
    job = start(
        cluster,
        tmp_path,
        # The hosts share a file system: the workers tell it that they have said what they say.
        chief_0="""
import os, sys, time
while not {"said0", "said1"} <= set(os.listdir()): time.sleep(0.05)
print("bar\\r", end="", file=sys.stderr)
sys.stdout.buffer.write(bytes(range(256)))
""",
        worker_1=f"{show}; open('said1', 'w').close(); {SLEEP} {marker}",
        worker_0=f"print('one\\ntwo', flush=True); open('said0', 'w').close(); {SLEEP} {marker}",
        ps_0=f"{SLEEP} {marker}",
    )
    output, errors = job.communicate(timeout=60)
    assert job.returncode == 0, errors
    assert errors == b"bar\r"
    assert bytes(range(256)) in output
    assert b"[worker:0] one\n[worker:0] two\n" in output
    shown = next(line for line in output.split(b"\n") if line.startswith(b"[worker:1] "))
    seen = json.loads(shown.partition(b" ")[2])
    assert seen["TF_RDMABATCH_TOKEN"] == "very-secret"
    assert seen["SOME"] == "thing"
    assert seen["SSH_CONNECTION"].split()[2] == sshd.NODES["node2"]
    assert seen["cwd"] == str(tmp_path)
    config = json.loads(seen["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert [address.partition(":")[0] for address in config["cluster"]["worker"]] == [
        "127.0.0.3",
        "127.0.0.3",
    ]


def test_the_token_is_on_no_command_line(
    cluster: sshd.Cluster, tmp_path: Path, marker: str
) -> None:
    job = start(cluster, tmp_path, worker_0=f"print('up', flush=True); {SLEEP} {marker}")
    assert job.stdout is not None
    assert job.stdout.readline() == b"[worker:0] up\n"
    assert alive(marker)
    assert alive("very-secret") == []
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("task", "program", "status", "shown"),
    [
        ("worker_1", "raise ValueError('out of luck')", 1, "ValueError: out of luck"),
        ("ps_0", "pass", 1, "ps:0 ended with status 0 before the script had ended"),
        ("chief_0", "import sys; print('no', file=sys.stderr); sys.exit(3)", 3, "  no"),
        ("worker_0", "import os; os.kill(os.getpid(), 9)", 137, "worker:0 ended with signal SIGK"),
    ],
)
def test_a_task_that_fails_ends_the_job(
    task: str,
    program: str,
    status: int,
    shown: str,
    cluster: sshd.Cluster,
    tmp_path: Path,
    marker: str,
) -> None:
    others = {
        name: f"{SLEEP} {marker}"
        for name in ("chief_0", "worker_0", "worker_1", "ps_0")
        if name != task
    }
    job = start(cluster, tmp_path, **others, **{task: program})
    _, errors = job.communicate(timeout=60)
    assert job.returncode == status
    assert shown in errors.decode().split("error:", 1)[1]


def test_an_interrupt_ends_stubborn_tasks(
    cluster: sshd.Cluster, tmp_path: Path, marker: str
) -> None:
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"print('ready', flush=True); {SLEEP} {marker}"
    )
    job = start(cluster, tmp_path, worker_0=stubborn, chief_0=f"{SLEEP} {marker}")
    assert job.stdout is not None
    assert job.stdout.readline() == b"[worker:0] ready\n"
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=60)
    assert job.returncode == 130


def test_tasks_do_not_outlive_a_launcher_that_was_killed(
    cluster: sshd.Cluster, tmp_path: Path, marker: str
) -> None:
    """Nor does what they have started themselves."""
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP} {marker}'])"
    job = start(
        cluster,
        tmp_path,
        worker_0=f"{child}; print('ready', flush=True); {SLEEP} {marker}",
        chief_0=f"{SLEEP} {marker}",
    )
    assert job.stdout is not None
    assert job.stdout.readline() == b"[worker:0] ready\n"
    assert len(alive(marker)) >= 3
    job.kill()
    job.communicate(timeout=60)


def test_a_connection_that_is_lost_ends_the_job(
    cluster: sshd.Cluster, tmp_path: Path, marker: str
) -> None:
    job = start(
        cluster,
        tmp_path,
        worker_0=f"print('ready', flush=True); {SLEEP} {marker}",
        chief_0=f"{SLEEP} {marker}",
    )
    assert job.stdout is not None
    assert job.stdout.readline() == b"[worker:0] ready\n"
    for client in clients(job.pid):
        if "node2" in (Path("/proc") / str(client) / "cmdline").read_text(errors="replace").split(
            "\0"
        ):
            os.kill(client, signal.SIGKILL)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 255
    assert b"error: worker:0 is lost, since node2: it has ended" in errors


def clients(launcher: int) -> list[int]:
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text()
    return [int(child) for child in children.split()]


def test_a_job_does_not_start_half(cluster: sshd.Cluster, tmp_path: Path, marker: str) -> None:
    """One host cannot be reached, one has no such address: the others' tasks are not started."""
    hosts = HOSTS + "node3 address=192.0.2.1 workers=1\naway ssh=127.0.0.250 workers=1\n"
    program = f"from pathlib import Path; Path('started').touch(); {SLEEP} {marker}"
    job = start(cluster, tmp_path, hosts, chief_0=program, ps_0=program, worker_0=program)
    _, errors = job.communicate(timeout=100)
    assert job.returncode == 1
    assert errors.startswith(b"error: the job was not started: away: ssh cannot reach it")
    job = start(
        cluster, tmp_path, hosts.rsplit("\n", 2)[0], chief_0=program, ps_0=program, worker_0=program
    )
    _, errors = job.communicate(timeout=100)
    assert job.returncode == 1
    assert errors.startswith(
        b"error: the job was not started: node3: worker:2 cannot listen at 192"
    )
    assert b"that is no address of this host; correct the hostfile's address=" in errors
    assert not (tmp_path / "started").exists()


def launch(
    cluster: sshd.Cluster, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tf_rdmabatch", "launch", "--ssh", cluster.ssh, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def hostfile(tmp_path: Path) -> str:
    path = tmp_path / "hosts"
    path.write_text(HOSTS)
    return str(path)


def test_the_command(cluster: sshd.Cluster, hostfile: str, tmp_path: Path) -> None:
    """The script ends before the workers have imported TensorFlow."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "print(*map(os.environ.get, ['TF_RDMABATCH_TOKEN', 'TF_X', 'Y', 'Z']), sys.argv[1:])\n"
    )
    arguments = ["--env", "Y", "--env", "Z=3", "--port", str(sshd.ports_in_a_row(4))]
    environment = {"TF_RDMABATCH_TOKEN": "very-secret", "TF_X": "1", "Y": "2"}
    done = launch(cluster, "--hosts", hostfile, *arguments, str(script), "--a", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "very-secret 1 2 3 ['--a']" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--python", "/no/python"], 1, "\n  node1: there is no Python at /no/python"),
        (
            ["--python", "/usr/bin/env", "--directory", "/"],
            1,
            "tf_rdmabatch cannot be run by /usr/bin/env there",
        ),
        (["--directory", "/no/folder"], 1, "\n  node2: no folder /no/folder"),
        ([], 1, "node1: no script no-such-script.py in /"),
        (["--workers", "3"], 2, "leave --workers and --ps out"),
        (["--port", "64999"], 1, "no script"),
    ],
)
def test_what_a_host_lacks(
    arguments: list[str], status: int, message: str, cluster: sshd.Cluster, hostfile: str
) -> None:
    done = launch(cluster, "--hosts", hostfile, *arguments, "no-such-script.py")
    assert done.returncode == status
    assert message in done.stderr


def test_a_port_that_is_taken(cluster: sshd.Cluster, hostfile: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.touch()
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        other.listen()
        port = other.getsockname()[1]
        if port < 1024 or port > 65000:
            pytest.skip(f"the port {port} cannot be given")
        done = launch(cluster, "--hosts", hostfile, "--port", str(port), str(script))
    assert done.returncode == 1
    assert f"node1: ps:0 cannot listen at 127.0.0.2:{port}: the port is taken" in done.stderr


def test_a_shell_that_greets_is_understood(
    cluster: sshd.Cluster, hostfile: str, tmp_path: Path
) -> None:
    """As start-up files do that print something."""
    script, ssh = tmp_path / "script.py", tmp_path / "ssh"
    script.write_text("print('done')")
    ssh.write_text(f'#!/bin/sh\necho Welcome\necho "to this host" >&2\nexec {cluster.ssh} "$@"\n')
    ssh.chmod(0o755)
    done = launch(
        cluster,
        "--ssh",
        str(ssh),
        "--hosts",
        hostfile,
        "--port",
        str(sshd.ports_in_a_row(4)),
        str(script),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "done\n"
