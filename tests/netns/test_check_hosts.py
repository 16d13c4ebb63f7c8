"""``tf-rdmabatch check`` between hosts: what connects them, what it says of a broken network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.check.tasks import run_check
from tests.netns.hosts import Network

MakeNetwork = Callable[[Sequence[str]], Network]
QUICK = ("--seconds", "0.05", "--timeout", "8")
NAMES = ["node0", "node1", "node2"]


def check(
    network: Network, *options: str, absent: Sequence[int] = ()
) -> tuple[int, dict[str, Any], dict[tuple[str, str], dict[str, Any]]]:
    """Return status, result and pairs; a host's name is also its address."""
    addresses = [f"{host.name}:29400" for host in network]
    starts = [host.start for host in network]
    status, result = run_check(addresses, *QUICK, *options, absent=absent, starts=starts)
    pairs = {(p["source"][-1:], p["target"][-1:]): p for p in result["pairs"]}
    return status, result, pairs


def test_hosts_use_tcp_and_say_why(make_network: MakeNetwork) -> None:
    network = make_network(NAMES)
    # Two containers of one kernel, whose memory is not shared all the same.
    network["node1"].share_boot_id()
    network["node2"].share_boot_id()
    status, result, pairs = check(network)
    assert (status, result["problems"]) == (0, [])
    assert {pair["transport"] for pair in pairs.values()} == {"tcp"}
    assert "another host" in pairs["0", "1"]["choice"]
    assert "shm" in pairs["1", "2"]["choice"]
    assert [facts["host"] for facts in result["facts"].values()] == NAMES


def test_host_behind_a_cut_link(make_network: MakeNetwork) -> None:
    network = make_network(NAMES)
    network["node2"].disconnect()
    status, result, pairs = check(network, "--timeout", "3", "--wait", "10", absent=[2])
    assert status == 1
    assert pairs["0", "1"]["gb_per_s"] > 0
    assert {pairs["0", "2"]["kind"], pairs["1", "2"]["kind"]} <= {"timeout", "route"}
    assert all("node2:29400" in problem for problem in result["problems"])


@pytest.mark.usefixtures("rates")
def test_slow_link(make_network: MakeNetwork) -> None:
    network = make_network(NAMES)
    network["node1"].shape(mbit=20)
    status, _, pairs = check(network)
    assert status == 0
    # 20 Mbit/s, and what its bucket holds.
    assert pairs["1", "0"]["gb_per_s"] < 0.01


@pytest.mark.netem
@pytest.mark.usefixtures("delays")
def test_far_host(make_network: MakeNetwork) -> None:
    network = make_network(NAMES)
    network["node2"].shape(delay_ms=50)
    status, result, pairs = check(network)
    assert status == 0
    assert pairs["0", "2"]["latency_us"] >= 50_000
    assert any(note.startswith("the connections of task:2 are slow") for note in result["notes"])
