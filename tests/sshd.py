"""An ssh server of the tests' own, at several addresses of this host: each is a host."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Debian has it where only root looks.
SSHD = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
NODES = {"node1": "127.0.0.2", "node2": "127.0.0.3", "node3": "127.0.0.4"}


def _missing() -> str | None:
    if not SSHD or not shutil.which("ssh"):
        return "needs openssh-server and openssh-client"
    try:
        _user()
    except KeyError:
        return "needs a user with a name, which ssh asks for"
    return None


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


MISSING = _missing()


@dataclass(frozen=True)
class Cluster:
    """Hosts that ssh reaches by the names of `NODES`."""

    ssh: str  # the client with its options
    log: Path  # of the server


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Serve while it lasts; keys and configuration are in the folder."""
    assert SSHD is not None
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    if os.getuid() == 0:
        # Its place to lock a process in; started by the system, the system makes it.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = ports_in_a_row(1)
    log = folder / "sshd.log"
    (folder / "sshd_config").write_text(_server_config(folder, port))
    (folder / "ssh_config").write_text(_client_config(folder, port))
    key = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"{node} {key}" for node in NODES))
    server = subprocess.Popen([SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(log)])
    try:
        _wait_for(port, server, log)
        yield Cluster(f"ssh -F {folder / 'ssh_config'}", log)
    finally:
        server.terminate()
        server.wait(timeout=30)


def ports_in_a_row(count: int) -> int:
    """Return the first of some ports that nobody has, below those that connections are given."""
    while True:
        first = random.randrange(15000, 30000)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            return first


def _server_config(folder: Path, port: int) -> str:
    addresses = "".join(f"ListenAddress {address}\n" for address in NODES.values())
    return (
        f"Port {port}\n{addresses}HostKey {folder / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {folder / 'user.pub'}\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )


def _client_config(folder: Path, port: int) -> str:
    hosts = "".join(
        f"Host {node}\n  HostName {address}\n  HostKeyAlias {node}\n"
        for node, address in NODES.items()
    )
    return (
        f"{hosts}Host *\n  Port {port}\n  User {_user()}\n"
        f"  IdentityFile {folder / 'user'}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder / 'known_hosts'}\n  StrictHostKeyChecking yes\n"
    )


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 20
    for address in NODES.values():
        while True:
            try:
                socket.create_connection((address, port), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < until, "sshd does not listen"
                time.sleep(0.05)
