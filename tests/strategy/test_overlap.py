"""What travels while something else is computed, and in how large pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.strategy.cluster import MakeRunner, Runner
from tests.strategy.overlap_cases import ELEMENTS

pytestmark = pytest.mark.timeout(300)
REPLICAS = 4
# What fits into a slot, once and twice.
SIZES = {32704, 65408}
# The first rounds, and 7 for each of two sizes, three times.
TRIED_ROUNDS = 6 + 7 * 2 * 3


@pytest.fixture
def automatic(runners: MakeRunner) -> Iterator[Runner]:
    """Return a cluster whose next case may make another strategy."""
    runner = runners("cluster", REPLICAS, 2, 1)
    yield runner
    if runner.alive:
        runner.run("overlap_cases:rounds", strategy={}, count=1, calls=1)


def test_block_size_is_found_out(automatic: Runner) -> None:
    calls, count = 8, 10
    found = automatic.run(
        "overlap_cases:rounds", strategy={"block_size": "auto"}, count=count, calls=calls
    )
    assert calls * count > TRIED_ROUNDS
    # Each round adds the same, whatever is tried.
    one = REPLICAS * (np.arange(ELEMENTS) % 1000) + sum(range(REPLICAS))
    for call, values in enumerate(found["values"]):
        np.testing.assert_array_equal(values, count * (call + 1) * one)
    assert found["traced"] == 1
    logs = automatic.logs()
    for worker in (0, 1):
        kept = int(found[f"worker:{worker} block_bytes"])
        assert kept in SIZES
        log = logs.partition(f"== worker{worker}.log")[2].partition("==")[0]
        tried = [line for line in log.splitlines() if "block size: tried 32704 bytes (" in line]
        assert tried
        assert tried[-1].endswith(f"; keeps {kept} bytes")


@pytest.mark.parametrize(("size", "blocks"), [(None, 19), (10_000, 121)])
def test_block_size_that_is_given(automatic: Runner, size: int | None, blocks: int) -> None:
    count, calls = 10, 2
    found = automatic.run(
        "overlap_cases:rounds", strategy={"block_size": size}, count=count, calls=calls
    )
    for worker in ("worker:0", "worker:1"):
        assert found[f"{worker} block_bytes"] == 0
        # Beside the blocks there is the end of reading, and in the first round questions.
        assert blocks < found[f"{worker} messages_sent"] / (count * calls) < blocks + 3


def test_gradients_travel_and_are_summed_while_others_are_computed(runners: MakeRunner) -> None:
    count, seconds = 4, 0.9
    found = runners("cluster", REPLICAS, 2, 1).run(
        "overlap_cases:layers", count=count, seconds=seconds
    )
    # Each worker computes for two replicas; layers do so once forward and twice back.
    delay = seconds / (3 * count) * 1e9
    for worker in ("worker:0", "worker:1"):
        begun, end = found[f"{worker} push_begin"], found[f"{worker} compute_end"]
        # After the last pull its layer's way forward, the way back, and once more as far as the
        # last layer's gradient.
        assert begun - found[f"{worker} pull_end"] >= (1 + 2 * count + count + 2) * delay
        assert found[f"{worker} push_end"] >= end > begun
    # The server was seen to have sums of the last layers while the first were under way.
    total = found["summed"].max()
    steps = {value for value in found["summed"].tolist() if 0 < value < total}
    assert len(steps) >= count - 1
    # Four replicas.
    expected = (1 - 4e-6) ** found["rounds"]
    np.testing.assert_allclose([found["least"], found["most"]], expected, rtol=1e-6)


def test_first_layers_are_pulled_and_pushed_first(runners: MakeRunner) -> None:
    found = runners("cluster", REPLICAS, 2, 1).run("overlap_cases:order")
    expected = list(range(int(found["count"])))
    assert found["pulled"].tolist() == expected
    # Lower numbers go first where there is a queue, whatever is computed first.
    assert found["pushed"].tolist() == expected
