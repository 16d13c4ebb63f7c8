"""Hostfiles: what their lines mean, and that wrong ones are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import Task
from tf_rdmabatch.launch.hostfile import Host, parse, read_hosts
from tf_rdmabatch.launch.hosts import tasks_of

FILE = """
# the head
head    chief local address=10.0.0.1
node1   ps=1 workers=2   # a server, too
node2   workers=3 address=10.0.0.3 ssh=me@node2.example
"""


def test_lines() -> None:
    assert parse(FILE, "hosts") == [
        Host("head", "10.0.0.1", None, chief=True),
        Host("node1", "node1", "node1", workers=2, ps=1),
        Host("node2", "10.0.0.3", "me@node2.example", workers=3),
    ]


def test_the_file_that_is_documented(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[1] / "docs" / "clusters.md"
    (text,) = re.findall(r"```\n(# name .*?)```", docs.read_text(), re.DOTALL)
    (tmp_path / "hosts").write_text(text)
    hosts = read_hosts(str(tmp_path / "hosts"))
    assert [(h.name, h.chief, h.ps, h.workers) for h in hosts] == [
        ("head", True, 0, 0),
        ("node1", False, 1, 1),
        ("node2", False, 1, 2),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a b", "'b' is not known; after the host may stand chief, local, workers=N"),
        ("a workers", "'workers' is not known"),
        ("a slots=4", "'slots=4' is not known"),
        ("a chief=1", "'chief=1' is not known"),
        ("a workers=x", "workers=x is not a number from 0 to 1024"),
        ("a ps=-1", "ps=-1 is not a number"),
        ("a workers=9999", "workers=9999 is not a number"),
        ("a ps=1 ps=2", "ps is given twice"),
        ("me@a", "'me@a' is not a host: write its name, and ssh=me@a"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is not the name or IPv4 address of a host"),
        ("a ssh=-oProxyCommand=x", "ssh=-oProxyCommand=x is not [USER@]NAME"),
        ("a ssh=", "ssh= is not [USER@]NAME"),
        ("a address=fd00::1", "address=fd00::1 is neither a name nor an IPv4 address"),
        ("a address=", "address= is neither"),
        ("a local ssh=b", "local is for the host that needs no ssh"),
        ("node", "node is already in line 1: a host has one line, with all its tasks"),
        ("a address=node", "node is already in line 1"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(CommandError) as refused:
        parse(f"node\n\n{line}\n", "hosts")
    assert str(refused.value).startswith(f"hosts, line 3: {message}")
    assert refused.value.status == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# none", "names no host"),
        ("a workers=1\nb ps=1", "exactly one line needs the word chief"),
        ("a chief workers=1\nb ps=1 chief", "a and b both have it"),
        ("a chief workers=1", "ps= adds up to 0, and has to be from 1 to 1024"),
        ("a chief ps=1 workers=1000\nb workers=25", "workers= adds up to 1025"),
    ],
)
def test_a_job_that_lacks_something(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(CommandError, match=message):
        read_hosts(str(path))


def test_counts_are_in_one_place(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a chief ps=1 workers=1")
    with pytest.raises(CommandError, match="leave --workers and --ps out"):
        read_hosts(str(path), ps=1)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no such hostfile"):
        read_hosts(str(tmp_path / "hosts"))
    (tmp_path / "hosts").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="cannot be read"):
        read_hosts(str(tmp_path / "hosts"))
    with pytest.raises(CommandError, match="'a,,b' is neither a file nor names"):
        read_hosts("a,,b")


def names(tasks: dict[str, list[Task]]) -> dict[str, list[str]]:
    return {host: [f"{t.name} {t.host}:{t.port}" for t in own] for host, own in tasks.items()}


def test_tasks_go_round_hosts_that_have_none_of_their_own() -> None:
    tasks = tasks_of(read_hosts("a,b,a,c", workers=4, ps=2), 100)
    assert names(tasks) == {
        "a": ["ps:0 a:100", "worker:0 a:101", "worker:1 a:102", "chief:0 a:103"],
        "b": ["ps:1 b:104", "worker:2 b:105"],
        "c": ["worker:3 c:106"],
    }


def test_tasks_of_a_file() -> None:
    assert names(tasks_of(parse(FILE, "hosts"), 100)) == {
        "head": ["chief:0 10.0.0.1:100"],
        "node1": ["ps:0 node1:101", "worker:0 node1:102", "worker:1 node1:103"],
        "node2": [f"worker:{i} 10.0.0.3:{102 + i}" for i in (2, 3, 4)],
    }


def test_a_host_without_a_task_is_left_alone() -> None:
    assert list(tasks_of(read_hosts("a,b,c", workers=1, ps=1), 100)) == ["a"]
