"""What hosts of a job must agree on, and what the launcher and its program there say."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import tf_rdmabatch
from tf_rdmabatch.launch import checks
from tf_rdmabatch.launch.messages import Lines, encode, to_bytes, to_text


def host(**changes: Any) -> dict[str, Any]:
    return {
        "package": tf_rdmabatch.__version__,
        "tensorflow": "2.21.0",
        "ahead": 0.5,
    } | changes


def test_hosts_that_agree() -> None:
    hosts = {"a": host(), "b": host(ahead=-300)}
    assert checks.compare(hosts) == checks.compare_clocks(hosts) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"package": "0.0.1"}, "b: tf_rdmabatch is 0.0.1 there and"),
        ({"tensorflow": None}, "b: TensorFlow is not installed"),
        ({"tensorflow": "2.20.0"}, "TensorFlow is 2.21.0 on a and 2.20.0 on b"),
    ],
)
def test_hosts_that_differ(changes: dict[str, Any], message: str) -> None:
    problems = checks.compare({"a": host(), "b": host(**changes)})
    assert len(problems) == 1
    assert problems[0].startswith(message)


@pytest.mark.parametrize(
    ("ahead", "message"),
    [
        (7200.0, "b: its clock is 2.0 hours ahead of this one"),
        (-5400.0, "b: its clock is 1.5 hours behind this one"),
    ],
)
def test_clocks_that_differ(ahead: float, message: str) -> None:
    hosts = {"a": host(), "b": host(ahead=ahead)}
    assert checks.compare(hosts) == []
    (warning,) = checks.compare_clocks(hosts)
    assert warning.startswith(message)


def test_another_version_is_not_understood_further() -> None:
    assert len(checks.compare({"a": host(), "b": {"package": "9"}})) == 1
    assert len(checks.compare({"a": {}})) == 1


def test_what_a_host_says_of_itself() -> None:
    told = checks.describe_host()
    assert told["package"] == tf_rdmabatch.__version__
    assert set(told) == {"package", "tensorflow", "time"}


def test_names_that_mean_the_host_itself() -> None:
    seen = {
        "a": {"a": "127.0.1.1", "b": "10.0.0.2", "c": "10.0.0.3"},
        "b": {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.1.0.3"},
    }
    assert checks.compare_addresses(seen) == [
        "a is 127.0.1.1 on a and 10.0.0.1 on b: give it address=10.0.0.1 in the hostfile, or "
        "correct /etc/hosts on a"
    ]
    assert checks.compare_addresses({"a": {"a": "127.0.0.1", "b": "127.0.0.1"}}) == []


def test_a_name_that_means_each_host_itself() -> None:
    numbers = {"localhost": "127.0.0.1", "b": "10.0.0.2"}
    (problem,) = checks.compare_addresses({"localhost": numbers, "b": numbers})
    assert problem.startswith("localhost is 127.0.0.1, where no other host can reach it")


def test_names_are_resolved() -> None:
    numbers, unknown = checks.resolve(["127.0.0.7", "no.such.host.invalid"])
    assert numbers == {"127.0.0.7": "127.0.0.7"}
    assert unknown == ["no.such.host.invalid"]


def request(directory: Path, **changes: Any) -> dict[str, Any]:
    task = {"job": "worker", "index": 3, "host": "127.0.0.1", "port": 0}
    return {"directory": str(directory), "script": None, "tasks": [task | changes]}


def test_a_host_that_can_run_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checks.problems_of(request(tmp_path)) == []


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9"])
def test_a_port_that_is_taken(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whichever address of the host: TensorFlow's server takes it at all of them."""
    monkeypatch.chdir(tmp_path)
    with socket.socket() as other:
        other.bind((address, 0))
        port = other.getsockname()[1]
        other.listen()
        found = checks.problems_of(request(tmp_path, port=port))
    assert len(found) == 1
    assert found[0].startswith(f"worker:3 cannot listen at 127.0.0.1:{port}: the port is taken")
    assert checks.problems_of(request(tmp_path, port=port)) == []


def test_messages_come_in_pieces_and_among_other_lines() -> None:
    lines = Lines()
    data = b"Welcome\n" + encode({"a": 1}) + encode({"b": [2]})
    messages: list[dict[str, Any]] = []
    others: list[str] = []
    for i in range(len(data)):
        more, other = lines.take(data[i : i + 1])
        messages += more
        others += other
    assert messages == [{"a": 1}, {"b": [2]}]
    assert others == ["Welcome"]


@pytest.mark.parametrize("line", [b"{", b"[1]", b"1"])
def test_messages_that_are_none(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|not an object"):
        Lines().take(b"tf-rdmabatch:" + line + b"\n")


def test_a_line_without_an_end() -> None:
    with pytest.raises(ValueError, match="a line of more than"):
        Lines().take(b"x" * (1 << 23))


def test_bytes_survive_however_they_are_cut() -> None:
    data = "aé€😀".encode() + bytes(range(256))
    assert b"".join(to_bytes(to_text(data[i : i + 1])) for i in range(len(data))) == data
    assert to_bytes(to_text(data)) == data
