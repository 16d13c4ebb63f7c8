"""The hosts of these tests are hosts: they share no memory, and what is between them can break."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.netns.hosts import BOOT_ID, ROOT, Host, Network, end

MakeNetwork = Callable[[Sequence[str]], Network]

LISTEN = """
import socket
with socket.create_server(("", 7000)) as server:
    print("listening", flush=True)
    while True:
        server.accept()
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2]))
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


def connect(host: Host, name: str, timeout: float = 5) -> str:
    return host.run(sys.executable, "-c", CONNECT, name, str(timeout)).strip()


def listen(host: Host) -> subprocess.Popen[str]:
    process = host.start([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return process


def test_hosts_are_apart(make_network: MakeNetwork) -> None:
    network = make_network(["left", "right"])
    left, right = network["left"], network["right"]
    assert [host.run("hostname").strip() for host in network] == ["left", "right"]
    own = Path(BOOT_ID).read_text()
    assert len({left.run("cat", BOOT_ID), right.run("cat", BOOT_ID), own}) == 3
    left.run("touch", "/dev/shm/memory")
    assert right.run("ls", "/dev/shm") == ""
    left.share_boot_id()
    assert left.run("cat", BOOT_ID) == own


def test_link_breaks_and_heals(make_network: MakeNetwork) -> None:
    network = make_network(["left", "right"])
    left, right = network["left"], network["right"]
    assert connect(left, "right") == "ConnectionRefusedError"
    server = listen(right)
    try:
        assert connect(left, "right") == "connected"
        right.disconnect()
        assert connect(left, "right", timeout=0.5) == "TimeoutError"
        right.reconnect()
        assert connect(left, "right") == "connected"
    finally:
        end(server)


def test_hosts_go_with_their_maker(hosts_can_be_made: None) -> None:
    """Also when it is killed, with everything that runs on them."""
    del hosts_can_be_made
    maker = (
        "from tests.netns.hosts import Network\n"
        "network = Network(['one'])\n"
        "sleeper = network['one'].start(['sleep', '1000'])\n"
        "print(network['one'].pid, sleeper.pid, flush=True)\n"
        "sleeper.wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", maker], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 30
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "XZ"


@pytest.mark.netem
@pytest.mark.usefixtures("delays")
def test_delay(make_network: MakeNetwork) -> None:
    network = make_network(["near", "far"])
    network["far"].shape(delay_ms=200)
    server = listen(network["far"])
    try:
        begin = time.monotonic()
        assert connect(network["near"], "far") == "connected"
        assert time.monotonic() - begin >= 0.2
    finally:
        end(server)
