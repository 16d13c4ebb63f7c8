"""Parameters between two engines of one process."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tf_rdmabatch.engine import (
    AlreadyExists,
    Connection,
    DeadlineExceeded,
    Engine,
    InvalidArgument,
    PeerLost,
)

Pair = tuple[Engine, Engine, Connection]
MakeEngine = Callable[..., Engine]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
def test_rounds_of_every_dtype(pair: Pair, dtype: str) -> None:
    server, _, connection = pair
    if dtype == "bfloat16" and importlib.util.find_spec("ml_dtypes") is None:
        with pytest.raises(InvalidArgument, match="pip install ml_dtypes"):
            server.serve("p", shape=4, dtype=dtype)
        return
    served = server.serve("p", shape=(7, 11), dtype=dtype, contributors=2, block_bytes=64)
    served.publish(np.ones((7, 11), served.dtype))
    parameter = connection.parameter("p")
    assert (parameter.shape, parameter.dtype) == (served.shape, served.dtype)
    assert parameter.nbytes == served.nbytes == 77 * served.dtype.itemsize
    for step in range(1, 5):
        assert served.step == step
        for contributor in range(2):
            value = np.full((7, 11), step + contributor, parameter.dtype)
            parameter.push(value, step, contributor)
        total = served.collect(timeout=60)
        assert (total == 2 * step + 1).all()
        assert served.publish(total) == step + 1
        pulled = parameter.pull(step + 1, timeout=60)
        assert pulled.dtype == parameter.dtype
        assert (pulled == total).all()
        assert parameter.version == served.version == step + 1


def test_the_published_memory_is_updated_in_place(pair: Pair) -> None:
    server, client, connection = pair
    initial = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    served = server.serve("w", initial)
    assert np.array_equal(served.array, initial)
    parameter = connection.parameter("w")
    landing = client.allocate(parameter.shape, parameter.dtype)
    assert parameter.pull(out=landing) is landing
    assert np.array_equal(landing, initial)
    served.array[:] *= 2
    assert served.publish() == 2
    parameter.wait_version(2, timeout=60)
    assert np.array_equal(parameter.pull(2), 2 * initial)


def test_a_parameter_may_be_opened_before_it_is_served(pair: Pair) -> None:
    server, _, connection = pair
    late = threading.Timer(0.2, server.serve, ("late", np.full(3, 5, np.int64)))
    late.start()
    assert connection.parameter("late", timeout=60).pull().tolist() == [5, 5, 5]
    late.join()


def test_waits_for_what_does_not_come_time_out(pair: Pair) -> None:
    server, _, connection = pair
    served = server.serve("p", shape=4, dtype="float32")
    with pytest.raises(TimeoutError):
        connection.parameter("other", timeout=0.2)
    parameter = connection.parameter("p")
    with pytest.raises(DeadlineExceeded):
        parameter.pull(timeout=0.2)
    with pytest.raises(DeadlineExceeded):
        parameter.wait_version(1, timeout=0.2)
    with pytest.raises(DeadlineExceeded):
        served.collect(timeout=0.2)
    parameter.push(np.ones(4, np.float32), step=1)
    assert served.collect(timeout=60).tolist() == [1, 1, 1, 1]


def test_asynchronous_contributions_are_added_as_they_come(pair: Pair) -> None:
    server, _, connection = pair
    served = server.serve("a", np.zeros(1000), contributors=4, consistency="asp")
    parameter = connection.parameter("a")
    for step in range(1, 4):
        parameter.push(np.ones(1000), step, contributor=2)
    total = np.zeros(1000)
    while (total < 3).any():
        total += served.collect()
    served.publish(total)
    assert (parameter.pull(2) == 3).all()


def test_steps_of_the_past_and_steps_left_out_are_dropped(pair: Pair) -> None:
    server, _, connection = pair
    served = server.serve("p", np.zeros(4, np.float32), contributors=2)
    parameter = connection.parameter("p")
    parameter.push(np.full(4, 100, np.float32), step=1)
    parameter.push(np.full(4, 2, np.float32), step=3)
    parameter.push(np.full(4, 100, np.float32), step=1, contributor=1)
    parameter.push(np.full(4, 3, np.float32), step=3, contributor=1)
    assert served.collect(3, timeout=60).tolist() == [5] * 4
    parameter.push(np.full(4, 100, np.float32), step=2)
    for contributor in range(2):
        parameter.push(np.ones(4, np.float32), step=4, contributor=contributor)
    assert served.collect(timeout=60).tolist() == [2] * 4
    assert not connection.closed


def test_mismatches_are_one_clear_error(pair: Pair) -> None:
    server, _, connection = pair
    served = server.serve("p", np.zeros((2, 3), np.float32))
    parameter = connection.parameter("p")
    text = r"parameter 'p' is float32 of shape \(2, 3\), the array float64 of shape \(2, 3\)"
    for call in (
        lambda array: parameter.push(array, step=1),
        lambda array: parameter.pull(out=array),
        served.publish,
        lambda array: served.collect(out=array),
    ):
        with pytest.raises(ValueError, match=text):
            call(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"shape \(3, 2\)"):
        parameter.push(np.zeros((3, 2), np.float32), step=1)
    with pytest.raises(ValueError, match="C order"):
        parameter.pull(out=np.zeros((3, 2), np.float32).T)
    parameter.push(np.ones((3, 2), np.float32).T, step=1)
    assert (served.collect(timeout=60) == 1).all()


def test_serving_wrongly_is_one_clear_error(make_engine: MakeEngine) -> None:
    server = make_engine()
    server.serve("taken", shape=3)
    with pytest.raises(AlreadyExists, match="taken"):
        server.serve("taken", shape=3)
    with pytest.raises(InvalidArgument, match="float32, float64"):
        server.serve("complex", np.zeros(3, np.complex64))
    with pytest.raises(InvalidArgument, match="initial array, or a shape"):
        server.serve("nothing")
    with pytest.raises(InvalidArgument, match="eventually"):
        server.serve("p", shape=3, consistency="eventually")
    with pytest.raises(InvalidArgument):
        server.serve("", shape=3)
    with pytest.raises(InvalidArgument):
        server.serve("p", shape=3, contributors=0)


def test_the_memory_of_a_closed_engine_may_still_be_read(make_engine: MakeEngine) -> None:
    server = make_engine()
    array = server.serve("p", np.arange(5)).array
    server.close()
    del server
    assert array.tolist() == [0, 1, 2, 3, 4]


def test_the_end_of_the_server_ends_the_waits_of_a_worker(pair: Pair) -> None:
    server, _, connection = pair
    server.serve("p", np.zeros(4, np.float32))
    parameter = connection.parameter("p")
    closing = threading.Timer(0.2, server.close)
    closing.start()
    with pytest.raises((PeerLost, ConnectionError), match="server"):
        parameter.wait_version(2, timeout=60)
    closing.join()
    with pytest.raises(ConnectionError, match="server"):
        parameter.pull(2, timeout=60)
