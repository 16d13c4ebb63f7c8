"""Calls from the leading task to the others: messages of JSON over the engine's connections.

A call is ``{"call": name, ...arguments}``, its answer ``{"result": ...}`` or ``{"error": text}``; a
region's answer is the descriptor that `Connection.import_region` takes.
"""

from __future__ import annotations

import json
from typing import Any

from tf_rdmabatch.engine import Connection, RemoteRegion

_CALL, _ANSWER, _REGION = 1, 2, 3


class CallError(Exception):
    """The other task could not do what it was asked for."""


def call(connection: Connection, name: str, bound: float, /, **arguments: Any) -> Any:
    """Call a task and return its answer; one call at a time on a connection.

    Raises
    ------
    CallError
        It could not do it.
    EngineError
        It did not answer in `bound` seconds, or is lost.
    """
    connection.send(json.dumps({"call": name, **arguments}).encode(), _CALL, bound)
    answer = json.loads(connection.receive(bound).data)
    if "error" in answer:
        raise CallError(answer["error"])
    return answer["result"]


def call_for_region(connection: Connection, timeout: float) -> RemoteRegion:
    """Return a region of the other task, to measure with; raises as `call` does."""
    connection.send(json.dumps({"call": "region"}).encode(), _CALL, timeout)
    message = connection.receive(timeout)
    if message.tag != _REGION:
        raise CallError(json.loads(message.data)["error"])
    return connection.import_region(message.data)


def answer(connection: Connection, timeout: float, **answer: Any) -> None:
    """Answer a call, with `result` or `error`."""
    connection.send(json.dumps(answer).encode(), _ANSWER, timeout)


def answer_with_region(connection: Connection, descriptor: bytes, timeout: float) -> None:
    """Answer a call for a region."""
    connection.send(descriptor, _REGION, timeout)
