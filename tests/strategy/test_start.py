"""How a job starts, or says in one error why it does not; then the next attempt works."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest
import tensorflow as tf

import tf_rdmabatch
from tests.strategy.cluster import Runner
from tf_rdmabatch import _core
from tf_rdmabatch.strategy.engines import EngineSettings, check_rules

pytestmark = pytest.mark.timeout(300)

TASKS = {"ps:0": "a:1", "worker:0": "a:2"}


def failing(breakable: Runner, **options: Any) -> str:
    return str(breakable.run("start_cases:failing", **options)["message"])


def test_the_software_of_a_task(breakable: Runner) -> None:
    found = breakable.run("start_cases:software_of_tasks", strategy={})
    assert found["tf_rdmabatch"] == tf_rdmabatch.__version__
    assert found["host"] == socket.gethostname()
    assert tf.__version__.startswith(str(found["TensorFlow"]))


@pytest.mark.parametrize(
    ("program", "version"), [("TensorFlow", "2.99.0"), ("tf_rdmabatch", "9.0.1")]
)
def test_another_version(breakable: Runner, program: str, version: str) -> None:
    error = str(
        breakable.run("start_cases:other_software", program=program, version=version)["message"]
    )
    here = re.escape(socket.gethostname())
    assert re.match(rf"RuntimeError: ps:0 at 127.0.0.1:\d+ \(host {here}\) has {program} ", error)
    assert error.endswith(
        f"and the chief (host node9) has {version}: install the same version on all hosts of the "
        "job"
    )


def test_all_ports_of_the_range_are_taken(breakable: Runner) -> None:
    found = breakable.run("start_cases:ports_taken")
    error = str(found["message"])
    assert error.startswith("AlreadyExistsError: ")
    assert f"every port of the range {found['ports']} is in use" in error
    assert re.search(r"the engine of ps:0 at 127.0.0.1:\d+: cannot listen on", error)


@pytest.mark.parametrize(
    ("transport", "first", "second"),
    [
        ({"/job:ps/task:0": "shm", "*": "auto"}, "shm", "shm"),
        ({"worker:1": "tcp", "*": "auto"}, "shm", "tcp"),
        ("tcp", "tcp", "tcp"),
    ],
)
def test_what_is_asked_for_is_used_in_the_range_of_ports(
    breakable: Runner, transport: object, first: str, second: str
) -> None:
    found = breakable.run("start_cases:chosen", transport=transport)
    assert found["value"] == 9
    # Each engine has one port, and what a browser says there changes nothing.
    assert len(found["heard"]) == 3
    assert found["ps:0 transports"].tolist() == [f"worker:0 {first}", f"worker:1 {second}"]
    assert found["worker:1 transports"].tolist() == [f"ps:0 {second}"]


def test_a_rule_for_a_task_that_there_is_not(breakable: Runner) -> None:
    error = failing(breakable, transport={"worker:7": "shm"})
    assert "a rule for 'worker:7', which is no task of the cluster: it has ps:0, worker:0" in error


def test_the_environment_counts(breakable: Runner) -> None:
    options: dict[str, Any] = {"variable": "TF_RDMABATCH_TRANSPORT", "value": "pigeon"}
    error = str(breakable.run("start_cases:of_environment", **options)["message"])
    assert 'TF_RDMABATCH_TRANSPORT: no transport "pigeon": choose one of auto, shm' in error
    options = {"variable": "TF_RDMABATCH_PORTS", "value": "9-1"}
    error = str(breakable.run("start_cases:of_environment", **options)["message"])
    assert 'TF_RDMABATCH_PORTS: "9-1" is not a range of ports' in error


def test_a_transport_that_cannot_run_here(breakable: Runner) -> None:
    reasons = {name: reason for name, ok, reason in _core.transports() if not ok}
    if "verbs" not in reasons:
        pytest.skip("verbs runs here")
    error = failing(breakable, transport="verbs")
    assert error.startswith("UnavailableError: ")
    assert "the engine of ps:0 at " in error
    assert f"no transport can run here: verbs: {reasons['verbs']}" in error


def test_settings() -> None:
    assert EngineSettings.of(None, None, "each", True) == EngineSettings("auto", "", "each", True)
    check_rules("ps:0=shm,worker=shm,*=auto", TASKS)
    for bad in ("ps:1=shm", "chief=shm"):
        with pytest.raises(ValueError, match="no task of the cluster"):
            check_rules(bad, TASKS)
