"""Engines in several processes: deaths, forks, interrupts, and what remains."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tf_rdmabatch.engine import Engine, EngineError, PeerLost

MakeEngine = Callable[..., Engine]
Until = Callable[[Callable[[], bool]], None]
StartPeer = Callable[..., "subprocess.Popen[str]"]

PRELUDE = """
import os, sys, time
import numpy as np
from tf_rdmabatch.engine import Engine, EngineError
address, transport = sys.argv[1:]
def engine(name="peer", **options):
    return Engine("the token of these tests", name, transport=transport, **options)
def fill(connection):
    try:
        while True:
            connection.send(bytes(60_000), timeout=0.1)
    except TimeoutError:
        pass
"""


@pytest.fixture
def start(transport: str) -> Iterator[StartPeer]:
    """Return a function that runs Python in another process and waits for its first line."""
    started = []

    def start_peer(program: str, address: str = "") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + program, address, transport],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
        return process

    yield start_peer
    for process in started:
        # With what it forked, which would keep the pipes open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ends_of(waits: list[Callable[[], object]], kill: Callable[[], None]) -> list[BaseException]:
    """Run `waits` in threads, then `kill`; return how each ended."""
    ends: list[BaseException] = []

    def run(wait: Callable[[], object]) -> None:
        try:
            wait()
        except EngineError as error:
            ends.append(error)

    threads = [threading.Thread(target=run, args=(wait,)) for wait in waits]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert ends == []
    kill()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    return ends


def test_a_killed_peer_ends_every_wait_by_name(
    make_engine: MakeEngine, start: StartPeer, until: Until
) -> None:
    engine = make_engine("server", receive_buffer=1 << 16)
    address = engine.listen()
    peer = start(
        """
e = engine("worker:7", receive_buffer=1)
c = e.connect(address)
print("ready", flush=True)
time.sleep(60)
""",
        address,
    )
    until(lambda: len(engine.connections) == 1)
    connection = engine.connections[0]
    # Until every slot of the peer is taken.
    with contextlib.suppress(TimeoutError):
        while True:
            connection.send(bytes(60_000), timeout=0.1)

    def send_for_ever() -> None:
        while True:
            connection.send(bytes(60_000), timeout=None)

    ends = ends_of(
        [
            lambda: connection.receive(timeout=None),
            lambda: list(connection),
            send_for_ever,
            lambda: connection.send(bytes(100 << 20), timeout=None),
            lambda: connection.parameter("never", timeout=None),
        ],
        peer.kill,
    )
    assert len(ends) == 5
    for end in ends:
        assert isinstance(end, PeerLost)
        assert "worker:7" in str(end)
        assert f"pid {peer.pid}" in str(end)
    assert connection.closed
    until(lambda: engine.connections == [])
    with pytest.raises(TimeoutError):
        engine.receive(timeout=0.01)


def shared_files() -> set[Path]:
    """Return the files in shared memory that are this project's; other programs have theirs."""
    return {path for path in Path("/dev/shm").iterdir() if "rdmabatch" in path.name}


def test_a_killed_process_leaves_nothing_behind(
    make_engine: MakeEngine, start: StartPeer, until: Until
) -> None:
    files = shared_files()
    engine = make_engine()
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    peer = start(
        """
e = engine()
c = e.connect(address)
r = e.allocate(1 << 20, access="write")
c.send(c.export(r))
print("ready", flush=True)
time.sleep(60)
""",
        engine.listen(),
    )
    message = engine.receive()
    message.connection.import_region(message.data)
    peer.kill()
    peer.wait()
    with pytest.raises(PeerLost):
        message.connection.receive(timeout=60)
    del message
    # The listener remains.
    until(lambda: sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before + 1 + len("12"))
    assert shared_files() <= files


@pytest.mark.parametrize(
    "wait",
    [
        "c.receive(timeout=None)",
        "e.receive(timeout=None)",
        "e.connect('127.0.0.1:1', timeout=None)",
        "c.parameter('never', timeout=None)",
        "list(c)",
        "[c.send(bytes(60_000), timeout=None) for _ in range(10_000)]",
        "c.send_many([bytes(60_000)] * 10_000, timeout=None)",
        "fill(c) or c.send(bytes(100 << 20), timeout=None)",
    ],
)
def test_an_interrupt_ends_a_wait(make_engine: MakeEngine, start: StartPeer, wait: str) -> None:
    engine = make_engine(receive_buffer=1)
    peer = start(
        f"""
e = engine()
c = e.connect(address)
try:
    print("ready", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
e.close()
""",
        engine.listen(),
    )
    # Mostly it waits by then.
    time.sleep(0.3)
    peer.send_signal(signal.SIGINT)
    assert peer.stdout is not None
    assert peer.stdout.readline() == "interrupted\n", peer.communicate()
    _, errors = peer.communicate(timeout=60)
    assert errors == ""
    assert peer.returncode == 0


def test_an_engine_is_of_no_use_after_fork(start: StartPeer) -> None:
    peer = start(
        """
e = engine()
own = engine()
c = own.connect(e.listen())
a = own.allocate(4)
print("ready", flush=True)
if os.fork() == 0:
    for call in (e.listen, e.receive, c.receive, lambda: c.send(b""), lambda: e.allocate(1),
                 lambda: c.closed, e.counters):
        try:
            call()
        except EngineError as error:
            print(type(error).__name__, error)
    with engine("child") as fresh:
        fresh.listen()
    e.close()
    del e, own, c, a
    print("child done", flush=True)
    sys.exit()
_, status = os.wait()
c.send(b"parent goes on")
print(e.receive().data.decode(), status)
""",
    )
    output, errors = peer.communicate(timeout=60)
    lines = output.splitlines()
    assert errors == ""
    assert lines[-2:] == ["child done", "parent goes on 0"]
    assert len(lines) == 9
    for line in lines[:7]:
        assert line.startswith("WrongState this engine belongs to process"), line


def test_a_program_may_end_without_closing(start: StartPeer, make_engine: MakeEngine) -> None:
    engine = make_engine()
    peer = start(
        """
import threading
e = engine("hasty")
c = e.connect(address)
threading.Thread(target=c.receive, args=(None,), daemon=True).start()
c.send(b"good bye")
print("ready", flush=True)
""",
        engine.listen(),
    )
    _, errors = peer.communicate(timeout=60)
    assert peer.returncode == 0
    assert "Fatal" not in errors
    assert engine.receive(timeout=60).data == b"good bye"


def test_peers_push_and_pull_across_processes(start: StartPeer, make_engine: MakeEngine) -> None:
    engine = make_engine("ps:0")
    weights = engine.serve("weights", np.zeros(1000, np.float32), contributors=2)
    address = engine.listen()
    program = """
with engine("worker:INDEX") as e:
    weights = e.connect(address).parameter("weights")
    print("ready", flush=True)
    for step in range(1, 6):
        weights.push(np.full(1000, step + INDEX, np.float32), step, contributor=INDEX)
        print(weights.pull(version=step + 1).sum())
"""
    workers = [start(program.replace("INDEX", str(i)), address) for i in range(2)]
    for _ in range(5):
        weights.array[:] += weights.collect(timeout=60)
        weights.publish()
    expected = [float(1000 * total) for total in (3, 8, 15, 24, 35)]
    for worker in workers:
        output, errors = worker.communicate(timeout=60)
        assert errors == ""
        assert [float(line) for line in output.splitlines()] == expected


def test_the_example_runs(transport: str) -> None:
    if transport != "shm":
        pytest.skip("the example chooses its transport itself")
    example = Path(__file__).resolve().parent.parent / "examples" / "push_pull.py"
    done = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stderr == ""
    assert "the worker pulled [0.5 0.5 0.5 0.5]" in done.stdout
    assert os.waitstatus_to_exitcode(done.returncode << 8) == 0
