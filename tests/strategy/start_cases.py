"""Cases of a job's start. Each makes its own strategy, whatever becomes of it."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

import tf_rdmabatch
from tests.strategy.error_cases import message
from tf_rdmabatch import ops
from tf_rdmabatch.strategy import software

REPLICAS = 4


def make(**options: Any) -> Any:
    return tf_rdmabatch.ParameterServerStrategy(num_virtual_replicas=REPLICAS, **options)


def failing(_: Any, **options: Any) -> dict[str, Any]:
    """What the error says of a strategy with these arguments."""
    return message(lambda: make(**options))


def of_environment(_: Any, variable: str, value: str) -> dict[str, Any]:
    """The same of one without arguments, in this environment."""
    with mock.patch.dict(os.environ, {variable: value}):
        return message(make)


def other_software(_: Any, program: str, version: str) -> dict[str, Any]:
    """The same on a host with another version of a program."""
    own = software.own_software() | {program: version, "host": "node9"}
    with mock.patch.object(software, "own_software", return_value=own):
        return message(make)


@contextlib.contextmanager
def taken(count: int) -> Iterator[str]:
    """Listen at all ports of a range of so many, which is returned."""
    for first in range(23000, 30000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    listener = stack.enter_context(socket.socket())
                    listener.bind(("127.0.0.1", port))
                    listener.listen()
            except OSError:
                continue
            yield f"{first}-{first + count - 1}"
            return
    raise AssertionError("all ports are taken")


def ports_taken(_: Any) -> dict[str, Any]:
    with taken(2) as ports:
        return message(lambda: make(ports=ports)) | {"ports": np.asarray(ports)}


def rounds(strategy: Any) -> float:
    """Return what two rounds make of a variable: 1 + 2 x 4."""
    with strategy.scope():
        variable = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)

    @tf.function
    def step() -> None:
        strategy.run(lambda: variable.assign_add(1.0))

    for _ in range(2):
        step()
    return float(variable.numpy())


def chosen(_: Any, transport: Any) -> dict[str, Any]:
    """A job that is told what to use, in a range of ports, and what its figures say of it."""
    with taken(40) as ports:
        pass
    strategy = make(transport=transport, ports=ports)
    first, last = map(int, ports.split("-"))
    heard = []
    for port in range(first, last + 1):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as browser:
            browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            browser.settimeout(30)
            with contextlib.suppress(ConnectionError):
                assert browser.recv(100) == b""
            heard.append(port)
    result = {"value": np.asarray(rounds(strategy)), "heard": np.asarray(heard)}
    for task, stats in strategy.stats().items():
        pairs = [f"{peer} {how}" for peer, how in sorted(stats["transports"].items())]
        result[f"{task} transports"] = np.asarray(pairs)
    return result


def software_of_tasks(_: Any) -> dict[str, Any]:
    with tf.device("/job:worker/task:1"):
        return {name: np.asarray(value) for name, value in ops.software().items()}


def clocks(strategy: Any) -> dict[str, Any]:
    """Rounds whose times move steps, and when the last one began on each worker's clock."""
    reallocation = tf_rdmabatch.StepReallocation(strategy)
    result = {"value": np.asarray(rounds(strategy))}
    reallocation.update()
    for worker, begun in enumerate(strategy.round_reports()["pull_begin"][-1]):
        result[f"worker:{worker}"] = np.asarray(begun / 1e9)
    return result | {"allotment": np.asarray(strategy.allotment)}
