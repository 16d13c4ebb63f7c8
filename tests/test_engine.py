"""Two engines in one process: messages, regions, counters and what is refused."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tf_rdmabatch import _core
from tf_rdmabatch.engine import (
    Cancelled,
    Connection,
    Counters,
    DeadlineExceeded,
    Engine,
    EngineError,
    InvalidArgument,
    OutOfRange,
    PermissionDenied,
    RegisteredArray,
)

Pair = tuple[Engine, Engine, Connection]
MakeEngine = Callable[..., Engine]
Until = Callable[[Callable[[], bool]], None]


def test_a_message_arrives_with_its_tag_and_can_be_answered(pair: Pair, transport: str) -> None:
    server, client, connection = pair
    assert connection.transport == transport
    assert connection.choice == f"{transport} (asked for)"
    assert connection.peer.name == "server"
    assert connection.peer.pid == os.getpid()
    connection.send(b"hello", tag=2**64 - 1)
    message = server.receive(timeout=60)
    assert (message.tag, message.data) == (2**64 - 1, b"hello")
    assert message.connection.peer.name == "client"
    message.connection.send(np.arange(6, dtype=np.int64).reshape(2, 3).T, tag=1)
    answer = connection.receive(timeout=60)
    assert np.array_equal(answer.array(np.int64, (3, 2)), [[0, 3], [1, 4], [2, 5]])
    assert [each.peer.name for each in server.connections] == ["client"]
    assert [each.peer.name for each in client.connections] == ["server"]


@pytest.mark.parametrize("confirm", ["batch", "each"])
@pytest.mark.parametrize("queue_pairs", [1, 3])
def test_messages_of_every_size_arrive_once(
    make_engine: MakeEngine, confirm: str, queue_pairs: int
) -> None:
    server = make_engine()
    client = make_engine(confirm=confirm, queue_pairs=queue_pairs)
    connection = client.connect(server.listen(), timeout=60)
    assert connection.confirm == confirm
    limit = connection.max_payload
    sizes = [0, 1, 7, 8, 9, limit - 1, limit, limit + 1, 3 * limit, 1 << 20]
    sent = [bytes([i]) * size for i, size in enumerate(sizes)]
    for message in sent:
        connection.send(message, timeout=60)
    got = [server.receive(timeout=60).data for _ in sent]
    assert Counter(got) == Counter(sent)
    with pytest.raises(DeadlineExceeded):
        server.receive(timeout=0.05)


def test_send_many_sends_each_row_in_few_chains(pair: Pair) -> None:
    server, client, connection = pair
    rows = np.arange(1000 * 16, dtype=np.float32).reshape(1000, 16)
    before = client.counters()
    received: list[bytes] = []
    reader = threading.Thread(
        target=lambda: received.extend(server.receive(60).data for _ in range(1000))
    )
    reader.start()
    connection.send_many(rows, timeout=60)
    reader.join()
    assert Counter(received) == Counter(row.tobytes() for row in rows)
    made = client.counters() - before
    assert made.messages_sent == 1000
    assert made.bytes_sent == rows.nbytes
    assert made.doorbells < 1000 / 16


def test_send_many_of_mixed_sizes(pair: Pair) -> None:
    server, _, connection = pair
    messages = [b"a", bytes(300_000), b"", b"b" * 70_000, b"c"]
    connection.send_many(messages, tag=9, timeout=60)
    got = [server.receive(timeout=60) for _ in messages]
    assert Counter(each.data for each in got) == Counter(messages)
    assert {each.tag for each in got} == {9}


def test_iteration_ends_when_this_side_closes(pair: Pair, until: Until) -> None:
    server, _, connection = pair
    connection.send_many([b"1", b"2", b"3"])
    from_client = server.connections[0]
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.extend(each.data for each in from_client))
    reader.start()
    until(lambda: len(got) == 3)
    from_client.close()
    reader.join(timeout=60)
    assert not reader.is_alive()
    assert sorted(got) == [b"1", b"2", b"3"]


def test_a_receiver_that_does_not_receive_stalls_the_sender(make_engine: MakeEngine) -> None:
    server = make_engine(receive_buffer=64 << 10)
    client = make_engine()
    connection = client.connect(server.listen(), timeout=60)
    message = bytes(32 << 10)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 1000:
            connection.send(message, timeout=0.2)
            sent += 1
    # What the buffer and the slots hold.
    assert 64 <= sent <= 64 * 2 + 8
    assert client.counters().slot_stalls > 0
    for _ in range(sent):
        assert server.receive(timeout=60).data == message
    connection.send(b"again", timeout=60)
    assert server.receive(timeout=60).data == b"again"


def test_a_large_message_for_a_full_buffer_closes_the_connection(
    make_engine: MakeEngine, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = make_engine(receive_buffer=1), make_engine()
    connection = client.connect(server.listen(), timeout=60)
    connection.send(bytes(1 << 20))
    connection.send(bytes(1 << 20))
    until(lambda: connection.closed)
    until(lambda: "receive buffer is full" in caplog.text)
    assert len(server.receive(timeout=60).data) == 1 << 20
    with pytest.raises(ConnectionError):
        connection.send(b"any more?")


def test_messages_that_came_before_the_end_are_delivered(pair: Pair, until: Until) -> None:
    server, client, connection = pair
    connection.send(b"last words")
    from_client = server.connections[0]
    client.close()
    assert from_client.receive(timeout=60).data == b"last words"
    with pytest.raises(ConnectionError, match="client"):
        from_client.receive(timeout=60)
    until(lambda: from_client.closed)
    with pytest.raises(ConnectionError, match="client"):
        from_client.send(b"anybody there?")


def test_every_peer_gets_its_turn(make_engine: MakeEngine, until: Until) -> None:
    server = make_engine()
    address = server.listen()
    peers = [make_engine(f"worker:{i}").connect(address, 60) for i in range(3)]
    for i, peer in enumerate(peers):
        peer.send_many([bytes([i])] * 10)
    until(lambda: server.counters().messages_received == 30)
    first = [server.receive(timeout=60).connection.peer.name for _ in range(3)]
    assert sorted(first) == ["worker:0", "worker:1", "worker:2"]


def test_regions_are_read_and_written(pair: Pair) -> None:
    server, client, connection = pair
    mine = client.allocate((4, 256), "int32")
    theirs = server.allocate((4, 256), "int32", access="write")
    theirs[:] = np.arange(1024).reshape(4, 256)
    remote = connection.import_region(server.connections[0].export(theirs))
    assert remote.writable
    assert remote.nbytes >= theirs.nbytes
    connection.read(mine, remote)
    assert np.array_equal(mine, theirs)
    connection.read(mine[3], remote, offset=1024)
    assert np.array_equal(mine[3], theirs[1])
    mine[0] = -1
    connection.write(mine[0], remote, offset=2048)
    assert np.array_equal(theirs[2], np.full(256, -1))
    connection.write_many([(mine[0], remote, 0), (mine[0], remote, 3072)], timeout=60)
    assert (theirs[[0, 2, 3]] == -1).all()
    assert (theirs[1] == np.arange(256, 512)).all()
    counters = client.counters()
    assert counters.bytes_written == 3 * 1024
    assert counters.bytes_read == 4096 + 1024


def test_large_regions_go_in_pieces(pair: Pair) -> None:
    server, client, connection = pair
    mine = client.allocate(40 << 20, "uint8")
    theirs = server.allocate(40 << 20, "uint8", access="read")
    theirs[:: 1 << 20] = np.arange(1, 41)
    connection.read(mine, connection.import_region(server.connections[0].export(theirs)))
    assert np.array_equal(mine, theirs)


def test_transfers_that_are_not_allowed_are_refused(pair: Pair) -> None:
    server, client, connection = pair
    back = server.connections[0]
    mine = client.allocate(1024, "float32", access="read")
    theirs = server.allocate(1024, access="read")
    remote = connection.import_region(back.export(theirs))
    with pytest.raises(PermissionDenied, match="only be read"):
        connection.write(mine, remote)
    with pytest.raises(OutOfRange, match="remote region"):
        connection.read(mine, remote, offset=4)
    with pytest.raises(InvalidArgument, match="negative"):
        connection.read(mine, remote, offset=-4)
    with pytest.raises(InvalidArgument, match="another connection"):
        back.read(server.allocate(1), remote)
    with pytest.raises(InvalidArgument, match="C order"):
        connection.read(mine[::2], remote)
    with pytest.raises(InvalidArgument, match=r"Engine\.allocate"):
        connection.read(np.zeros(4), remote)
    with pytest.raises(PermissionDenied, match="read or write access"):
        connection.export(client.allocate(4))
    with pytest.raises(EngineError):
        connection.import_region(b"no descriptor")
    connection.read(mine, remote)


def test_registered_arrays_are_arrays(make_engine: MakeEngine) -> None:
    engine = make_engine()
    array = engine.allocate((3, 4), np.float64)
    assert array.shape == (3, 4)
    assert (array == 0).all()
    part = array[1, 2:]
    assert isinstance(part, RegisteredArray)
    assert part.region is array.region
    assert part.region_offset == (4 + 2) * 8
    assert type(array + 1) is np.ndarray
    assert type(array.sum()) is np.float64
    array += 1
    assert isinstance(array, RegisteredArray)
    assert array.region is not None
    copy = array.copy()
    assert not isinstance(copy, RegisteredArray) or copy.region is None
    engine.close()
    assert array.sum() == 12
    with pytest.raises(InvalidArgument, match="access"):
        engine.allocate(1, access="execute")
    with pytest.raises(EngineError):
        engine.allocate(1)


def test_counters_are_those_of_the_engine_and_subtract(pair: Pair) -> None:
    server, client, connection = pair
    assert list(Counters.__dataclass_fields__) == list(_core.COUNTERS)
    before = client.counters()
    connection.send(b"x" * 100)
    server.receive()
    made = client.counters() - before
    assert (made.messages_sent, made.bytes_sent) == (1, 100)
    assert made.messages == 1
    assert made.doorbells_per_message == 1
    assert made + before == client.counters()
    assert connection.counters().messages_sent == 1
    client.reset_counters()
    assert client.counters().messages_sent == 0
    assert Counters().acks_per_message == 0


def test_timeouts_are_kept(pair: Pair, make_engine: MakeEngine) -> None:
    _, client, connection = pair
    for wait in (connection.receive, client.receive):
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            wait(timeout=0.2)
        assert time.monotonic() - begin >= 0.2
    with pytest.raises(DeadlineExceeded, match=r"127\.0\.0\.1:1"):
        make_engine().connect("127.0.0.1:1", timeout=0.2)


def test_other_threads_run_while_one_waits(pair: Pair) -> None:
    server, _, connection = pair
    ticks = 0
    stopped = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while ticks < 50 and not stopped.wait(0.001):
            ticks += 1
        server.connections[0].send(b"enough")

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        # It comes from the other thread, once that has run often enough.
        assert connection.receive(timeout=60).data == b"enough"
    finally:
        stopped.set()
        ticker.join()
    assert ticks == 50


def test_close_ends_the_waits_of_other_threads(pair: Pair) -> None:
    _, client, connection = pair
    ends: list[BaseException] = []

    def wait(receive: Callable[..., object]) -> None:
        try:
            receive(timeout=None)
        except EngineError as error:
            ends.append(error)

    waits = [threading.Thread(target=wait, args=(f,)) for f in (client.receive, connection.receive)]
    for thread in waits:
        thread.start()
    time.sleep(0.1)
    client.close()
    for thread in waits:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert [type(end) for end in ends] == [Cancelled, Cancelled]
    client.close()
    assert client.closed


def test_nothing_is_left_after_close(transport: str, until: Until) -> None:
    def held() -> tuple[int, int, set[str]]:
        descriptors, threads = (
            sum(1 for _ in Path("/proc/self", kind).iterdir()) for kind in ("fd", "task")
        )
        return descriptors, threads, {path.name for path in Path("/dev/shm").iterdir()}

    def run() -> None:
        with (
            Engine("t", transport=transport) as server,
            Engine("t", transport=transport) as client,
        ):
            connection = client.connect(server.listen(), timeout=60)
            connection.send(bytes(100_000))
            server.receive(timeout=60)

    run()
    before = held()
    for _ in range(5):
        run()
    until(lambda: held() == before)
