"""A worker that is made slow is slow alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategy.cluster import MakeRunner
from tests.strategy.slow_cases import DELAY

pytestmark = pytest.mark.timeout(300)


def test_a_delay_slows_its_worker_alone(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("slow_cases:one_slow_worker", allotment=[2, 2])
    assert (found["during worker:1"] >= 0.9 * DELAY).all()
    for name in ("before worker:0", "before worker:1", "during worker:0", "after worker:1"):
        assert found[name].min() < DELAY / 2, name
    # The first round has other values than these, and all of them are counted.
    rounds = 1 + sum(len(found[f"{name} worker:0"]) for name in ("before", "during", "after"))
    np.testing.assert_allclose(found["weights"], 1.004**rounds, rtol=1e-4)
    unknown, *ranges = found["refused"].tolist()
    assert unknown == "there is no worker 2: they are 0 to 1"
    assert [message.split(", not ")[0] for message in ranges] == [
        "a delay is from 0 to 3600 seconds"
    ] * 3
