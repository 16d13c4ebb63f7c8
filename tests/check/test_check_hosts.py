"""``tf-rdmabatch check --hosts``; each address of an ssh server of the tests is a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import sshd
from tests.check.tasks import CHECK
from tests.strategy.cluster import free_ports

pytestmark = pytest.mark.skipif(sshd.MISSING is not None, reason=sshd.MISSING or "")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Cluster]:
    with sshd.cluster(tmp_path_factory.mktemp("sshd")) as one:
        yield one


def check(
    cluster: sshd.Cluster, folder: Path, hosts: str, *options: str
) -> tuple[int, dict[str, Any], str]:
    (folder / "hosts").write_text(hosts)
    command = [*CHECK, "--hosts", str(folder / "hosts"), "--ssh", cluster.ssh]
    command += ["--port", str(free_ports(1)[0]), "--seconds", "0.05"]
    environment = os.environ | {"TF_RDMABATCH_TOKEN": "never on a command line"}
    done = subprocess.run(
        [*command, *options, "--json", "-"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_hosts(cluster: sshd.Cluster, tmp_path: Path) -> None:
    status, result, _ = check(
        cluster,
        tmp_path,
        "node1 address=127.0.0.2\nnode2 address=127.0.0.3\nhere local\n".replace(
            "here", "here address=127.0.0.9"
        ),
    )
    assert (status, result["problems"]) == (0, [])
    assert [task["name"] for task in result["tasks"]] == ["node1", "node2", "here"]
    assert len([pair for pair in result["pairs"] if pair["gb_per_s"] > 0]) == 6
    assert "never on a command line" not in cluster.log.read_text()


def test_hosts_that_cannot_be_used(cluster: sshd.Cluster, tmp_path: Path) -> None:
    """The others are checked."""
    status, result, _ = check(
        cluster,
        tmp_path,
        # Where the server of the tests does not listen.
        "away address=127.0.0.5 ssh=127.0.0.250\n"
        "node1 address=127.0.0.2\n"
        "node2 address=127.0.0.3\n"
        # Not one of this host's: it cannot listen there.
        "node3 address=192.0.2.1\n",
        "--timeout",
        "10",
        "--wait",
        "20",
    )
    assert status == 1
    assert len([pair for pair in result["pairs"] if not pair["kind"]]) == 2
    by_name = {problem.split()[0]: problem for problem in result["problems"]}
    assert "ssh cannot reach it" in by_name.pop("away")
    assert "node3 cannot listen" in by_name.pop("node3")
    assert by_name == {}


def test_output_of_start_up_files(cluster: sshd.Cluster, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho Welcome\necho "$@" >>{tmp_path}/told\n{sys.executable} "$@"\n'
        "status=$?\necho Goodbye\nexit $status\n"
    )
    python.chmod(0o755)
    hosts = "a local address=127.0.0.5\nb local address=127.0.0.6\n"
    options = ["--python", str(python), "--ports", "20000-20100"]
    status, result, errors = check(cluster, tmp_path, hosts, *options)
    assert (status, errors) == (0, "")
    assert result["facts"].keys() == {"a", "b"}
    assert (tmp_path / "told").read_text().count("--ports 20000-20100") == 2


def test_too_few_hosts(cluster: sshd.Cluster, tmp_path: Path) -> None:
    status, _, errors = check(cluster, tmp_path, "node1\n")
    assert (status, "at least two hosts" in errors) == (2, True)
    status, _, errors = check(cluster, tmp_path, "node1\nnode2\n", "--python", "/nowhere/python")
    assert status == 1
    assert errors.count("there is no Python at /nowhere/python") == 2
