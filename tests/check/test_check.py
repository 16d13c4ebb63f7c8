"""``tf-rdmabatch check`` on one host: what it finds, and what it says of what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.check.tasks import CHECK, CheckTask, run_check
from tests.strategy.cluster import free_ports

QUICK = ("--seconds", "0.05", "--timeout", "30", "--wait", "20")
# For what will not come.
IN_VAIN = ("--seconds", "0.05", "--timeout", "5", "--wait", "1")


def addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def test_tasks_that_reach_each_other() -> None:
    status, result = run_check(addresses(3), *QUICK)
    assert (status, result["problems"]) == (0, [])
    names = ["task:0", "task:1", "task:2"]
    assert [task["name"] for task in result["tasks"]] == list(result["facts"]) == names
    assert len({(pair["source"], pair["target"]) for pair in result["pairs"]}) == 6
    for pair in result["pairs"]:
        assert pair["transport"] == "shm"
        assert pair["latency_us"] > 0
        assert pair["gb_per_s"] > 0


def test_job_by_tf_config(tmp_path: Path) -> None:
    """The chief shows tables and draws the picture."""
    one, two, three = addresses(3)
    cluster = {"chief": [one], "worker": [two], "ps": [three]}
    processes = {
        job: subprocess.Popen(
            [*CHECK, *QUICK, "--plot", str(tmp_path / f"{job}.png")],
            env=os.environ
            | {
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}}),
                "TF_RDMABATCH_TOKEN": "secret",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for job in cluster
    }
    outputs = {job: process.communicate(timeout=60)[0] for job, process in processes.items()}
    assert [process.returncode for process in processes.values()] == [0, 0, 0]
    assert outputs["worker"] == "worker:0 was checked; chief:0 shows the result\n"
    assert "Round trip" in outputs["chief"]
    assert "All 3 tasks reach each other." in outputs["chief"]
    assert [path.name for path in tmp_path.iterdir()] == ["chief.png"]
    assert (tmp_path / "chief.png").read_bytes().startswith(b"\x89PNG")


@contextlib.contextmanager
def answering(data: bytes | None) -> Iterator[str]:
    """Yield the address of a program that takes connections and sends each the same, or nothing."""
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(server.accept()[0])
                    if data is not None:
                        kept[-1].sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


def only_problem(all_addresses: Sequence[str], *options: str) -> tuple[str, str]:
    """Check two tasks and a third that is none; return what all see of it, and what is said."""
    status, result = run_check(all_addresses, *options, absent=[2])
    assert status == 1
    assert result["missing"].keys() == {"task:2"}
    kinds = {pair["kind"] for pair in result["pairs"] if pair["target"] == "task:2"}
    (problem,) = result["problems"]
    assert problem.startswith(f"task:2 at {all_addresses[2]} can be reached by no other task: ")
    (kind,) = kinds
    return kind, problem


def test_task_that_is_not_there() -> None:
    kind, problem = only_problem(addresses(3), *IN_VAIN)
    assert kind == "refused"
    assert "Connection refused" in problem
    assert "is the task started" in problem


def test_program_of_another_kind() -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        kind, problem = only_problem([*addresses(2), address], *QUICK)
    assert kind == "stranger"
    assert "another program" in problem


def test_program_that_says_nothing() -> None:
    with answering(None) as address:
        kind, problem = only_problem([*addresses(2), address], *IN_VAIN)
    assert kind == "silent"
    assert "does not answer in 5 s" in problem


def test_name_that_does_not_resolve() -> None:
    # Reserved: no name server knows it.
    kind, problem = only_problem([*addresses(2), "node.invalid:29400"], *IN_VAIN)
    assert kind == "name"
    assert "The name node.invalid does not resolve" in problem


def test_another_token() -> None:
    all_addresses = addresses(2)
    other = CheckTask(all_addresses, 1, *QUICK, token="another")
    try:
        status, output, _ = CheckTask(all_addresses, 0, *QUICK).finish()
    finally:
        other.close()
    assert status == 1
    assert "WRONG: task:1 at" in output
    assert "TF_RDMABATCH_TOKEN" in output


def test_task_without_a_leading_one() -> None:
    status, _, errors = CheckTask(addresses(2), 1, "--wait", "0.5", "--timeout", "0.5").finish()
    assert status == 1
    assert "task:0 at" in errors
    assert "asked nothing of task:1" in errors
    assert errors.count("error:") == 1
    assert "nor can it be reached from here: the host answers, and nothing listens" in errors


@pytest.mark.parametrize(
    ("arguments", "config", "message"),
    [
        ([], None, "which hosts?"),
        (["--cluster", "a:1,b:2"], None, "--cluster and --task belong together"),
        (["--cluster", "a:1,b:2", "--task", "2"], None, "not one of the 2 tasks"),
        (["--cluster", "a,b:2", "--task", "0"], None, "'a' is not host:port"),
        (["--cluster", "a:1,a:1", "--task", "0"], None, "have the same address, a:1"),
        (["--cluster", "a:1", "--task", "0"], None, "at least two tasks"),
        (
            ["--cluster", "127.0.0.1:1,b:2", "--task", "0", "--transport", "pigeon"],
            None,
            'no transport "pigeon"',
        ),
        (
            ["--cluster", "127.0.0.1:1,b:2", "--task", "0", "--ports", "9-1"],
            None,
            '"9-1" is not a range of ports',
        ),
        (["--timeout", "-1"], None, "not a positive number"),
        ([], "{", "TF_CONFIG describes no job"),
        ([], '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 1}}', "has no ps:1"),
        (["--cluster", "10.255.255.1:1,b:2", "--task", "0"], None, "task:0 cannot listen"),
    ],
)
def test_wrong_input(arguments: list[str], config: str | None, message: str) -> None:
    environment = os.environ | {"TF_RDMABATCH_TOKEN": "secret"}
    environment.pop("TF_CONFIG", None)
    if config is not None:
        environment["TF_CONFIG"] = config
    done = subprocess.run(
        [*CHECK, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_token_is_asked_for() -> None:
    status, _, errors = CheckTask(addresses(2), 0, token="").finish()
    assert status == 2
    assert "TF_RDMABATCH_TOKEN" in errors
