"""Networks of hosts, for what has to run on more than one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.netns.hosts import Network, has_scheduler, why_not


@pytest.fixture(scope="session")
def hosts_can_be_made() -> None:
    """Skip where they cannot."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def make_network(hosts_can_be_made: None) -> Iterator[Callable[[Sequence[str]], Network]]:
    """Return a function that makes a `Network` of hosts with these names."""
    del hosts_can_be_made
    networks = []

    def make(names: Sequence[str]) -> Network:
        networks.append(Network(names))
        return networks[-1]

    yield make
    for network in networks:
        network.close()


@pytest.fixture(scope="session")
def delays(hosts_can_be_made: None) -> None:
    """Skip where the kernel cannot delay packets."""
    del hosts_can_be_made
    if not has_scheduler("netem"):
        pytest.skip("this kernel has no netem: the one of tests/testbed/run has")


@pytest.fixture(scope="session")
def rates(hosts_can_be_made: None) -> None:
    """Skip where the kernel cannot limit rates."""
    del hosts_can_be_made
    if not has_scheduler("tbf"):
        pytest.skip("this kernel has no tbf: the one of tests/testbed/run has")
