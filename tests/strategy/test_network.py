"""A job whose tasks each have a host of their own: what it computes, and what a cut link does."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.netns.hosts import Network, why_not
from tests.strategy.cluster import MakeRunner, Runner

pytestmark = pytest.mark.timeout(400)
WORKERS, SERVERS, REPLICAS = 3, 2, 6
# Far beyond what a test waits for: it is hosts that do not answer here, and they are soon given up.
STRATEGY = {"task_timeout": 1000.0}
PORT = 29400


class NetworkRunner(Runner):
    """A cluster on hosts, which have the names of their tasks: ``worker0``."""

    def __init__(self, network: Network) -> None:
        self.network = network
        super().__init__("cluster", REPLICAS, WORKERS, SERVERS)

    def addresses(self, counts: dict[str, int]) -> dict[str, list[str]]:
        return {job: [f"{job}{i}:{PORT}" for i in range(n)] for job, n in counts.items()}

    def popen(self, task: str, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return self.network[task.replace(":", "")].start(command, **options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[NetworkRunner]:
    if reason := why_not():
        pytest.skip(reason)
    names = [f"{job}{i}" for job, n in (("worker", WORKERS), ("ps", SERVERS)) for i in range(n)]
    with Network([*names, "chief0"]) as network:
        runner = NetworkRunner(network)
        yield runner
        runner.close()


@pytest.fixture(scope="module")
def expected(runners: MakeRunner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of one process."""
    folder = tmp_path_factory.mktemp("plain")
    return runners("plain", REPLICAS).run("resume_cases:loop", folder=str(folder))


def assert_same(found: dict[str, Any], expected: dict[str, Any], first: int) -> None:
    assert int(found["first"]) == first
    assert sorted(found) == sorted(expected)
    for name in expected.keys() - {"first"}:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_hosts_compute_what_one_process_does(
    cluster: NetworkRunner, expected: dict[str, Any], tmp_path: Path
) -> None:
    found = cluster.run("resume_cases:loop", folder=str(tmp_path))
    assert_same(found, expected, first=0)
    transports = re.findall(r"transport (\w+)", cluster.logs())
    assert set(transports) == {"tcp"}


@pytest.mark.parametrize(
    ("cut", "named"), [("worker:1", "worker:1"), ("ps:1", "ps:1"), ("chief:0", "(worker|ps):[0-2]")]
)
def test_cut_link(
    cluster: NetworkRunner, expected: dict[str, Any], tmp_path: Path, cut: str, named: str
) -> None:
    """An error that names the task; when the link is there again, training goes on as before."""
    host, working = cluster.network[cut.replace(":", "")], tmp_path / "working"
    options: dict[str, Any] = {"strategy": STRATEGY, "folder": str(tmp_path / "checkpoints")}
    cluster.begin("resume_cases:loop", interrupted=True, working=str(working), **options)
    cluster.wait_for_file(working)
    host.disconnect()
    working.unlink()
    try:
        result = cluster.result(60)
    finally:
        host.reconnect()
    assert result["ended"] == "UnavailableError"
    assert re.search(named.replace(":", "(:|/replica:0/task:)"), str(result["text"]))
    assert_same(cluster.run("resume_cases:loop", **options), expected, first=20)
