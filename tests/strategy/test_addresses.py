"""Addresses of a cluster's tasks: each has its own, and engines listen where peers reach them."""

from __future__ import annotations

import socket

import pytest

from tf_rdmabatch.strategy import addresses

NAMES = {"node1": "127.0.1.1", "node2": "10.9.0.2", "alias2": "10.9.0.2", "six": "fd00::2"}


@pytest.fixture(autouse=True)
def resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str) -> str:
        if host in NAMES:
            return NAMES[host]
        if host[0].isdigit():
            return host
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(addresses, "resolve", resolve)
    monkeypatch.setattr(addresses, "own_address", lambda peer: f"10.9.0.1 towards {peer}")


def test_each_task_has_an_address_of_its_own() -> None:
    cluster = {"ps": ["a:1"], "worker": ["a:2", "b:2", "a:2"], "chief": ["a:3"]}
    with pytest.raises(ValueError, match=r"worker:0 and worker:2 have one address .*, a:2"):
        addresses.check_distinct(cluster)
    addresses.check_distinct(cluster | {"worker": {0: "a:2", 7: "b:2"}})
    with pytest.raises(ValueError, match="ps:0 and worker:7"):
        addresses.check_distinct(cluster | {"worker": {7: "a:1"}})


def test_two_names_of_one_host() -> None:
    addresses.check_resolved({"ps:0": "node2:1", "worker:0": "alias2:2", "worker:1": "node1:1"})
    addresses.check_resolved({"ps:0": "unknown:1", "worker:0": "unheard:1"})
    with pytest.raises(ValueError, match=r"ps:0 at node2:1 and worker:0 at alias2:1 are one place"):
        addresses.check_resolved({"ps:0": "node2:1", "worker:0": "alias2:1"})


def test_where_engines_listen() -> None:
    assert addresses.listen_addresses({"ps:0": "127.0.0.1:1", "worker:0": "node1:2"}) == {
        "ps:0": "127.0.0.1:0",
        "worker:0": "127.0.1.1:0",
    }
    # Its own name is a loopback address on many a host.
    assert addresses.listen_addresses({"ps:0": "node1:1", "worker:0": "node2:2"}) == {
        "ps:0": "10.9.0.1 towards 10.9.0.2:0",
        "worker:0": "10.9.0.2:0",
    }
    assert addresses.listen_addresses({"ps:0": "six:1"}) == {"ps:0": "[fd00::2]:0"}


def test_names_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert addresses.resolve("127.0.0.1") == "127.0.0.1"
    assert addresses.resolve("localhost") == "127.0.0.1"
    assert addresses.own_address("127.0.0.1") == "127.0.0.1"
    # Whether its name server says so or does not answer, the system words differently.
    with pytest.raises(socket.gaierror):
        addresses.resolve("no-such-host.invalid")
