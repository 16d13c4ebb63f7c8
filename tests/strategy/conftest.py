"""Clusters of processes, started once for all the cases that want them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.strategy.cluster import MakeRunner, Runner

collect_ignore_glob: list[str] = []
if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob.append("test_*.py")


# What most files of tests use, and which is kept for them.
COMMON = {("cluster", 4, 2, 1), ("mirrored", 4, 0, 0), ("plain", 4, 0, 0)}


@pytest.fixture(scope="session")
def runners() -> Iterator[MakeRunner]:
    """Return a function that returns a running process for cases; a broken one is replaced.

    With `alone` no other runs, for what needs the memory.
    """
    running: dict[tuple[str, int, int, int], Runner] = {}

    def get(
        kind: str, replicas: int, workers: int = 0, servers: int = 0, *, alone: bool = False
    ) -> Runner:
        key = (kind, replicas, workers, servers)
        if key in running and not running[key].alive:
            running.pop(key).close()
        if key not in running:
            # Beside those, one cluster and one process with the reference at a time.
            for other in list(running):
                if alone or (other not in COMMON and bool(other[2]) == bool(workers)):
                    running.pop(other).close()
            running[key] = Runner(kind, replicas, workers, servers)
        return running[key]

    yield get
    for runner in running.values():
        runner.close()


@pytest.fixture(scope="session")
def breakable() -> Iterator[Runner]:
    """Return a cluster whose tasks may be killed by tests that restart them."""
    runner = Runner("cluster", 4, 2, 1)
    yield runner
    runner.close()
