"""What a job says: its start, its counters, the times of its rounds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.strategy.cluster import ROOT, MakeRunner
from tests.strategy.stats_cases import ROUNDS
from tf_rdmabatch import ops
from tf_rdmabatch.strategy.describe import describe_contents, describe_job
from tf_rdmabatch.strategy.stats import communication_seconds, step_seconds

pytestmark = pytest.mark.timeout(300)
# Of the variable in `stats_cases:rounds`.
BYTES = 40_000


def test_stats_and_times_of_rounds(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("stats_cases:rounds", allotment=[1, 3])
    for worker, replicas in (("worker:0", 1), ("worker:1", 3)):
        assert found[f"{worker} rounds"] == ROUNDS
        assert found[f"{worker} micro_steps"] == ROUNDS * replicas
        assert ROUNDS * BYTES <= found[f"{worker} bytes_sent"] < 1.1 * ROUNDS * BYTES
        assert ROUNDS * BYTES <= found[f"{worker} bytes_received"] < 1.1 * ROUNDS * BYTES
        assert found[f"{worker} messages"] >= ROUNDS
        assert found[f"{worker} doorbells"] >= ROUNDS
        seconds = [found[f"{worker} {p}_s"] for p in ("pull", "compute", "push", "wait", "idle")]
        assert min(seconds) >= 0
        assert 0 < sum(seconds) <= found["seconds"]
        assert (found[f"{worker} rounds micro_steps"] == replicas).all()
        ends = found[f"{worker} rounds micro_step_end"]
        assert (ends[:, :replicas] > 0).all()
        assert not ends[:, replicas:].any()
        ordered(found, worker, "pull_begin pull_end compute_end push_end")
        assert (found[f"{worker} rounds compute_end"] == ends[:, replicas - 1]).all()
        assert (found[f"{worker} rounds step_s"] > 0).all()
        assert (found[f"{worker} rounds communication_s"] > 0).all()
        # They came with the results of the rounds, whose every time was known by then.
        for field in ops.REPORT_FIELDS[1:]:
            reported = found[f"{worker} reports {field}"]
            np.testing.assert_array_equal(reported, found[f"{worker} rounds {field}"], field)
    assert found["reports after"].tolist() == [1, 2]
    assert found["ps:0 rounds"] == ROUNDS
    ordered(found, "ps:0", "publish_begin publish_end collect_end update_end")
    assert found["ps:0 publish_s"] > 0
    assert found["ps:0 update_s"] > 0
    assert 0 < found["ps:0 wait_s"] <= found["seconds"]
    # On one host the clocks are one: sums are collected after they were pushed.
    pushed = np.minimum(*(found[f"worker:{w} rounds push_begin"] for w in (0, 1)))
    assert (found["ps:0 rounds collect_end"] > pushed).all()
    assert (found["ps:0 rounds version"] == found["worker:0 rounds version"]).all()


def ordered(found: Mapping[str, Any], task: str, fields: str) -> None:
    """Check that the times of a round follow each other, and those of the next one them."""
    times = np.stack([found[f"{task} rounds {field}"] for field in fields.split()], axis=1)
    assert (np.diff(times.ravel()) >= 0).all(), fields


def test_a_worker_without_replicas(runners: MakeRunner) -> None:
    found = runners("cluster", 4, 2, 1).run("stats_cases:rounds", allotment=[0, 4])
    assert found["worker:0 micro_steps"] == 0
    assert found["worker:0 compute_s"] == 0
    assert found["worker:0 rounds"] == ROUNDS
    assert np.isnan(found["worker:0 rounds step_s"]).all()


def test_the_first_round_says_where_the_variables_are(runners: MakeRunner) -> None:
    lines = runners("cluster", 4, 2, 1).run("stats_cases:first_round")["lines"].tolist()
    assert len(lines) == 1
    assert lines[0].startswith("ps:0 has ")


def test_waits_are_nobodys_own_time() -> None:
    fields = "pull_begin pull_end pull_wait push_begin compute_end push_end push_wait micro_steps"
    rows = np.array(
        [
            (100, 400, 200, 1000, 1400, 1600, 50, 5),
            (100, 400, 200, 0, 0, 0, 0, 0),  # an evaluation
            (100, 400, 200, 1000, 0, 1200, 0, 0),  # no micro-step
        ],
        dtype=[(name, np.int64) for name in fields.split()],
    )
    np.testing.assert_allclose(step_seconds(rows) * 1e9, [200, np.nan, np.nan])
    np.testing.assert_allclose(communication_seconds(rows) * 1e9, [250, np.nan, 300])


def test_the_line_at_the_start() -> None:
    tasks = {"worker:0": "10.0.0.1:1", "worker:1": "10.0.0.2:2", "ps:0": "10.0.0.1:3"}
    connections = {
        ("worker:0", "ps:0"): "shm (first choice)",
        ("worker:1", "ps:0"): "verbs (shm: the peer is on another host)",
    }
    line = describe_job(tasks, connections, 4, 65536)
    assert line == (
        "worker:0 at 10.0.0.1:1, worker:1 at 10.0.0.2:2, ps:0 at 10.0.0.1:3; transport shm (first "
        "choice) for worker:0-ps:0, verbs (shm: the peer is on another host) for worker:1-ps:0; "
        "block size 65536 bytes; 4 virtual replicas"
    )
    one = describe_job(tasks, dict.fromkeys(connections, "shm (first choice)"), 4, None)
    assert "; transport shm (first choice); block size of a slot; " in one
    auto = describe_job(tasks, connections, 4, "auto")
    assert "; block size found out in the first rounds; " in auto
    assert describe_contents([[4, 8], [1000]]) == (
        "ps:0 has 2 variables, 12 bytes; ps:1 has 1 variable, 1,000 bytes"
    )


@pytest.mark.parametrize(
    ("before", "level", "shown"),
    [
        ("", None, ["tf_rdmabatch: info", "tf_rdmabatch: warning"]),
        ("", "warning", ["tf_rdmabatch: warning"]),
        ("", "nonsense", ["tf_rdmabatch: info", "tf_rdmabatch: warning"]),
        (
            "logging.basicConfig(level='INFO', format='mine %(message)s')",
            None,
            ["mine info", "mine warning"],
        ),
        ("logging.basicConfig()", "warning", ["tf_rdmabatch: warning"]),
        ("logging.getLogger('tf_rdmabatch').setLevel('ERROR')", None, []),
    ],
)
def test_what_is_shown(before: str, level: str | None, shown: list[str]) -> None:
    script = f"""
import logging
from tf_rdmabatch import _logs
{before}
_logs.show()
_logs.show()
_logs.LOGGER.info("info")
_logs.LOGGER.warning("warning")
"""
    environment = {} if level is None else {"TF_RDMABATCH_LOG_LEVEL": level}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines() == shown
