"""What a program may ask of its connections."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tf_rdmabatch.engine import Engine, InvalidArgument
from tf_rdmabatch.transports import as_rules, tasks_of


@pytest.mark.parametrize(
    ("transport", "rules"),
    [
        (None, ""),
        ("", ""),
        ("shm", "shm"),
        ({"ps:1": "shm", "*": "auto"}, "ps:1=shm,*=auto"),
        ({"/job:ps/task:1": "shm"}, "/job:ps/task:1=shm"),
        ("ps=shm,*=auto", "ps=shm,*=auto"),
    ],
)
def test_rules(transport: object, rules: str) -> None:
    assert as_rules(transport) == rules  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["pigeon", {"ps:1": "pigeon"}, {"ps:1": ""}, {"": "shm"}])
def test_no_transport_of_that_name(transport: object) -> None:
    with pytest.raises(ValueError, match=r"choose one of auto, shm"):
        as_rules(transport)  # type: ignore[arg-type]


def test_no_rules_at_all() -> None:
    with pytest.raises(InvalidArgument, match="a mapping from tasks to names, not 7"):
        as_rules(7)  # type: ignore[arg-type]


def test_tasks_of_rules() -> None:
    rules = "/job:ps/task:1=shm,ps:2=shm,worker=shm,/job:chief/task:*=auto,*=auto"
    assert tasks_of(rules) == {
        "/job:ps/task:1": ("ps", 1),
        "ps:2": ("ps", 2),
        "worker": ("worker", None),
        "/job:chief/task:*": ("chief", None),
    }
    assert tasks_of("shm") == {}
    with pytest.raises(InvalidArgument, match="'/task:1' is no task"):
        tasks_of("/task:1=shm")


def test_engines_use_what_they_are_told() -> None:
    rules = {"server": "shm", "*": "auto"}
    with (
        Engine(token="x", name="server") as server,
        Engine(token="x", name="client", transport=rules) as client,
    ):
        connection = client.connect(server.listen(), timeout=30)
        assert connection.transport == "shm"


def test_ports_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="20100-20000"):
        Engine(token="x", ports="20100-20000")
    with Engine(token="x") as probe:
        free = probe.listen().rpartition(":")[2]
    with Engine(token="x", ports=free) as first, Engine(token="x", ports=free) as second:
        assert first.listen() == f"127.0.0.1:{free}"
        with pytest.raises(Exception, match=f"every port of the range {free}-{free} is in use"):
            second.listen()
    monkeypatch.setenv("TF_RDMABATCH_PORTS", free)
    with Engine(token="x") as engine:
        assert engine.listen() == f"127.0.0.1:{free}"
    monkeypatch.setenv("TF_RDMABATCH_PORTS", "many")
    with pytest.raises(InvalidArgument, match='TF_RDMABATCH_PORTS: "many" is not a range'):
        Engine(token="x")


@pytest.mark.parametrize("tensorflow_first", [False, True])
def test_tls(tensorflow_first: bool) -> None:
    program = """
import numpy as np
from tf_rdmabatch.engine import Engine, WrongState
with (
    Engine(token="x", name="server", transport="tcp", tls=True) as server,
    Engine(token="x", name="client", transport="tcp", tls=True) as client,
    Engine(token="x", name="plain", transport="tcp") as plain,
):
    served = server.serve("weights", np.zeros(300_000, np.float32))
    address = server.listen()
    connection = client.connect(address)
    connection.send(b"hello" * 100_000, tag=7)
    message = server.receive()
    assert (message.tag, bytes(message.data)) == (7, b"hello" * 100_000)
    weights = connection.parameter("weights")
    weights.push(np.ones(300_000, np.float32), step=1)
    assert served.collect(1).sum() == 300_000
    try:
        plain.connect(address)
    except WrongState as error:
        assert "uses TLS and this side, 127.0.0.1, does not" in str(error), error
    else:
        raise AssertionError("connected without TLS")
print("done")
"""
    # TensorFlow puts functions of OpenSSL's names into the process.
    first = "import tensorflow\n" if tensorflow_first else ""
    done = subprocess.run(
        [sys.executable, "-c", first + program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
