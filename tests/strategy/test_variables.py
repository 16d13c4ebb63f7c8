"""Variables that a partitioner cuts, and variables that are large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.strategy.cluster import MakeRunner, Runner, compare

pytestmark = pytest.mark.timeout(600)
GIB = 1 << 30


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("sharded_cases:raw", {}),
        ("sharded_cases:keras_2", {}),
        ("loop_cases:raw", {}),
        ("loop_cases:saved", {}),
        ("loop_cases:written_by_chief", {}),
        ("keras_cases:embedding", {}),
        ("keras_cases:fit", {"optimizer": "adam", "allotment": [1, 3]}),
        ("keras_cases:fit", {"optimizer": "ftrl"}),
        ("keras_cases:loop", {"clip": "global_clipnorm"}),
        ("keras_cases:features", {"options": {"use_ema": True}}),
        ("keras_cases:features", {"policy": "mixed_float16"}),
        ("keras_cases:features", {"layers": "constraint"}),
    ],
    ids=str,
)
def test_shards(runners: MakeRunner, case: str, options: dict[str, Any]) -> None:
    """A model whose variables are cut has the results of one whose variables are whole."""
    compare(runners, case, 2, 2, kind="sharded", **options)


def test_where_shards_are(runners: MakeRunner) -> None:
    found = runners("sharded", 4, 2, 2).run("sharded_cases:placement")
    assert found["is sharded"]
    assert found["rows"].tolist() == [334, 333, 333]
    # By bytes: two of the three on one server, and then what is smaller on the other.
    assert sorted(found["shards on"].tolist()) in ([0, 0, 1], [0, 1, 1])
    assert found["slot shards on"].tolist() == found["shards on"].tolist()
    assert abs(found["loads"][0] - found["loads"][1]) <= 334 * 10 * 4


@pytest.mark.parametrize(("kind", "servers"), [("cluster", 1), ("sharded", 2)])
def test_a_gradient_is_sent_once(runners: MakeRunner, kind: str, servers: int) -> None:
    """Each server gets what it updates, and nothing else."""
    found = runners(kind, 4, 2, servers).run("sharded_cases:pushed_bytes")
    assert found["variables"] <= found["sent"] < 1.05 * found["variables"]


@pytest.mark.parametrize("optimizer", ["Lamb", "Adafactor", "Muon"])
def test_optimizers_that_need_all_shards(runners: MakeRunner, optimizer: str) -> None:
    runner = runners("sharded", 4, 2, 2)
    found = runner.run("error_cases:not_elementwise", optimizer=optimizer)
    assert "NotImplementedError" in str(found["message"])
    assert "a variable_partitioner that does not cut" in str(found["message"])


def test_write_in_an_update_of_shards(runners: MakeRunner) -> None:
    found = runners("sharded", 4, 2, 2).run("error_cases:written_in_update_of_shard")
    assert "which is done once for each shard" in str(found["message"])


def free_memory() -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10


@pytest.fixture
def one_of_each(runners: MakeRunner) -> Iterator[Runner]:
    runner = runners("cluster", 1, 1, 1, alone=True)
    yield runner
    # It holds memory.
    runner.close()


def test_more_than_two_gib(one_of_each: Runner) -> None:
    """No size on its way is an int32, and no message or constant holds the whole."""
    free = free_memory()
    # Nine times the variable: the servers' sums and published memory, the worker's gradient.
    if free < 20 * GIB:
        pytest.skip(f"needs 20 GiB of free memory, there are {free / GIB:.1f}")
    check_large(one_of_each.run("large_cases:from_server", timeout=400), (1 << 19) + 1)


def test_a_value_in_several_messages(one_of_each: Runner) -> None:
    rows = (1 << 16) + 3
    check_large(one_of_each.run("large_cases:from_chief", rows=rows), rows)


def check_large(found: Any, rows: int) -> None:
    assert found["shape"].tolist() == [rows, 1024]
    for column in (0, -1):
        assert found["some"][:, column].tolist() == [-1.0, -1.0, -1.0, -1.0, 6.0, 6.0]
