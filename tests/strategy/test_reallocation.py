"""Training while steps move from a slow worker gives what it gives without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.strategy.cluster import MakeRunner, compare

pytestmark = pytest.mark.timeout(300)
EQUAL = (2, 2)


def test_steps_leave_a_worker_that_is_slow(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("reallocation_cases:measured", allotment=EQUAL)
    fast, slow = found["allotment"]
    assert slow < fast
    assert found["moved"].sum() >= 1
    assert found["each round"] == 4


def test_fit(runners: MakeRunner) -> None:
    compare(runners, "reallocation_cases:fit", allotment=EQUAL)


def test_fit_with_many_steps_a_call(runners: MakeRunner) -> None:
    # MirroredStrategy cannot end such an epoch.
    compare(
        runners,
        "reallocation_cases:fit",
        reference="plain",
        allotment=EQUAL,
        steps_per_execution=4,
    )


def test_fit_of_keras_2(runners: MakeRunner) -> None:
    compare(runners, "reallocation_cases:fit_keras_2", allotment=EQUAL)


def test_each_example_is_in_its_batch_once(runners: MakeRunner) -> None:
    compare(runners, "reallocation_cases:loop", allotment=EQUAL, reference="plain")


def test_four_workers_with_scalars(runners: MakeRunner, tmp_path: Path) -> None:
    logs = str(tmp_path / "logs")
    compare(
        runners,
        "reallocation_cases:fit",
        workers=4,
        replicas=8,
        reference="plain",
        allotment=(2, 2, 2, 2),
        log_dir=logs,
    )
    (file,) = Path(logs).iterdir()
    assert b"allotment/worker_3" in file.read_bytes()
