"""Fixtures of the engine's tests: each runs over every transport that can run here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tf_rdmabatch import _core
from tf_rdmabatch.engine import Connection, Engine

TOKEN = "the token of these tests"

# Jobs that a shell runs in the background ignore interrupts, and so would the tests' processes.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs an RDMA device where no device is named."""
    if "TF_RDMABATCH_DEVICE" in os.environ:
        return
    skip = pytest.mark.skip(
        reason="needs an RDMA device, named by TF_RDMABATCH_DEVICE: tests/testbed/run provides two"
    )
    for item in items:
        if item.get_closest_marker("verbs") is not None:
            item.add_marker(skip)


@pytest.fixture(params=["shm", pytest.param("verbs", marks=pytest.mark.verbs)])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    for known, available, reason in _core.transports():
        if known == name:
            if not available:
                pytest.skip(reason)
            return name
    pytest.skip(f"this build has no transport {name}")


@pytest.fixture
def make_engine(transport: str) -> Iterator[Callable[..., Engine]]:
    engines = []

    def make(name: str = "", **options: Any) -> Engine:
        engine = Engine(**({"token": TOKEN, "transport": transport} | options), name=name)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def pair(
    make_engine: Callable[..., Engine], until: Callable[[Callable[[], bool]], None]
) -> tuple[Engine, Engine, Connection]:
    """Return a listening engine, one that connected to it, and the connection."""
    server, client = make_engine("server"), make_engine("client")
    connection = client.connect(server.listen(), timeout=60)
    until(lambda: len(server.connections) == 1)
    return server, client, connection


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Return a function that waits until a condition holds, at most a minute."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.005)

    return wait
