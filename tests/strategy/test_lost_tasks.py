"""A task that is lost ends the training with an error that names it."""

from __future__ import annotations

import re
import time

import pytest

from tests.strategy.cluster import Runner

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("job", "index"), [("worker", 1), ("ps", 0)])
def test_lost_task(job: str, index: int) -> None:
    runner = Runner("cluster", 4, 2, 1)
    try:
        runner.begin("error_cases:train_on")
        time.sleep(15)
        runner.tasks[f"{job}:{index}"].kill()
        killed = time.monotonic()
        text = str(runner.result(60)["message"])
        assert time.monotonic() - killed < 10
    finally:
        runner.close()
    assert text.startswith("UnavailableError")
    assert re.search(rf"{job}(:|/replica:0/task:){index}", text)
