"""What bad things get: one clear error, and everybody else goes on."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

import pytest

from tf_rdmabatch import errors
from tf_rdmabatch.engine import (
    AlreadyExists,
    Connection,
    Engine,
    InvalidArgument,
    PeerLost,
)

Pair = tuple[Engine, Engine, Connection]
MakeEngine = Callable[..., Engine]
Until = Callable[[Callable[[], bool]], None]


def test_an_engine_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_RDMABATCH_TOKEN", raising=False)
    with pytest.raises(InvalidArgument, match="TF_RDMABATCH_TOKEN"):
        Engine()
    monkeypatch.setenv("TF_RDMABATCH_TOKEN", "from the environment")
    with Engine() as server, Engine(token="from the environment") as client:
        client.connect(server.listen(), timeout=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transport": "pigeon"}, "pigeon"),
        ({"confirm": "never"}, "never"),
        ({"slots": 65}, "multiple of 64"),
        ({"queue_pairs": 0}, "queue_pairs"),
        ({"token": ""}, "no token"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"token": "x"} | options
    with pytest.raises(ValueError, match=message):
        Engine(**arguments)  # type: ignore[arg-type]


def test_a_wrong_token_is_refused_on_both_sides(
    make_engine: MakeEngine, caplog: pytest.LogCaptureFixture, until: Until
) -> None:
    server, stranger = make_engine(), make_engine(token="guessed")
    address = server.listen()
    with caplog.at_level(logging.WARNING, "tf_rdmabatch"):
        with pytest.raises(PermissionError, match=address):
            stranger.connect(address, timeout=60)
        until(lambda: len(caplog.records) > 0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "refused 127.0.0.1" in caplog.text
    assert server.counters().refused == 1
    assert server.connections == []
    make_engine().connect(address, timeout=60)


def test_a_peer_that_is_another_program_is_refused(pair: Pair, until: Until) -> None:
    server, _, connection = pair
    host, port = server.listen().rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # Closed or reset, but no answer.
        with contextlib.suppress(ConnectionResetError):
            assert browser.recv(100) == b""
    until(lambda: server.counters().refused == 1)
    connection.send(b"still here")
    assert server.receive(timeout=60).data == b"still here"


def test_a_port_in_use_is_one_error(make_engine: MakeEngine) -> None:
    address = make_engine().listen()
    with pytest.raises(AlreadyExists, match=address):
        make_engine().listen(address)
    with pytest.raises(InvalidArgument):
        make_engine().listen("nonsense")


def test_a_listener_may_come_later(make_engine: MakeEngine) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    server = make_engine()
    late = threading.Timer(0.3, server.listen, (address,))
    late.start()
    connection = make_engine().connect(address, timeout=60)
    late.join()
    assert not connection.closed


def test_errors_are_the_built_in_ones_too() -> None:
    assert len(set(errors.BY_CODE)) == 13
    assert all(issubclass(kind, errors.EngineError) for kind in errors.BY_CODE)
    assert issubclass(PeerLost, ConnectionError)
    assert issubclass(errors.NotFound, LookupError)
    assert issubclass(errors.BY_CODE[7], TimeoutError)
