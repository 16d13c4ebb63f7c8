"""Hosts made of namespaces: a bridge, and behind it hosts that share nothing but the file system.

Each host has a network, a host name, processes, shared memory, a boot id and an ``/etc/hosts`` of
its own. Nothing exists outside of these namespaces, and each lives as long as its first process,
which ends when its input does: a test run that is killed leaves nothing behind.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SECONDS = 60
_NAMESPACES = ["--net", "--mount", "--ipc", "--uts", "--pid"]
# Debian has the administrator's commands where not everybody looks.
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def why_not() -> str:
    """Return why no hosts can be made here, or nothing."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    for tool in ("ip", "unshare", "nsenter"):
        if shutil.which(tool, path=_PATH) is None:
            return f"making network namespaces needs {tool}: install iproute2 and util-linux"
    try:
        with Network(["one"]):
            return ""
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
        return f"this kernel makes no hosts of namespaces: {said}".strip()


def has_scheduler(kind: str) -> bool:
    """Return whether the kernel can shape traffic with ``netem`` (delays) or ``tbf`` (rates)."""
    try:
        with Network(["one"]) as network:
            network["one"].shape(**{"netem": {"delay_ms": 1}, "tbf": {"mbit": 100}}[kind])
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    return True


class _Namespaces:
    """Namespaces, and the process that keeps them."""

    def __init__(self, namespaces: Sequence[str], setup: str) -> None:
        # The process's number outside, which the old /proc still tells.
        script = f"set -e; read -r pid rest </proc/self/stat; {setup}\necho $pid; exec cat"
        self._keeper = subprocess.Popen(
            ["unshare", *namespaces, "--fork", "--kill-child", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PATH": _PATH},
        )
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        if not line:
            _, errors = self._keeper.communicate()
            raise subprocess.CalledProcessError(1, "unshare", stderr=errors)
        self.pid = int(line)
        self._enter = ["nsenter", "-t", str(self.pid), *namespaces]

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command inside; `end` it as a group of processes."""
        options["env"] = options.get("env", os.environ) | {"PATH": _PATH}
        line = f"cd {shlex.quote(str(options.pop('cwd', ROOT)))} && exec {shlex.join(command)}"
        return subprocess.Popen([*self._enter, "sh", "-c", line], start_new_session=True, **options)

    def run(self, *command: str, timeout: float = SECONDS) -> str:
        """Run a command inside and return what it prints; raise `CalledProcessError`."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            output, errors = process.communicate(timeout=timeout)
        finally:
            end(process)
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, command, output, errors)
        return str(output)

    def close(self) -> None:
        """End all that runs inside; the namespaces go with the last process."""
        self._keeper.kill()
        self._keeper.communicate()


class Host(_Namespaces):
    """A host of a `Network`, which makes it.

    Attributes
    ----------
    name
        By which the hosts of the network know each other.
    address
        Its IPv4 address.
    """

    def __init__(self, name: str, number: int, switch: _Namespaces, folder: Path) -> None:
        self.name, self.address = name, f"10.99.0.{number}"
        boot_id = folder / f"boot_id.{number}"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        super().__init__(
            _NAMESPACES,
            f"hostname {shlex.quote(name)}; mount -t proc proc /proc; mount -t tmpfs shm /dev/shm; "
            f"mount --bind {boot_id} {BOOT_ID}; mount --bind {folder}/hosts /etc/hosts",
        )
        self._switch, self._port = switch, f"port{number}"
        switch.run(
            *["ip", "link", "add", self._port, "type", "veth"],
            *["peer", "name", "eth0", "netns", str(self.pid)],
        )
        switch.run("ip", "link", "set", self._port, "master", "bridge", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.run("ip", "link", "set", device, "up")

    def disconnect(self) -> None:
        """Pull the plug: from now on packets to and from the host are lost."""
        self._switch.run("ip", "link", "set", self._port, "down")

    def reconnect(self) -> None:
        """Undo `disconnect`."""
        self._switch.run("ip", "link", "set", self._port, "up")

    def shape(self, delay_ms: float | None = None, mbit: float | None = None) -> None:
        """Make what the host sends late by `delay_ms`, or slow; `mbit` is megabits a second."""
        if delay_ms is not None:
            self._queue("netem", "delay", f"{delay_ms}ms", "limit", "10000")
        if mbit is not None:
            self._queue("tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "50ms")

    def _queue(self, *arguments: str) -> None:
        self.run("tc", "qdisc", "replace", "dev", "eth0", "root", *arguments)

    def share_boot_id(self) -> None:
        """Become a container: another host's network and memory on one kernel."""
        self.run("umount", BOOT_ID)


class Network:
    """Hosts that reach each other through a bridge; a context manager.

    Parameters
    ----------
    names
        Of the hosts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="netns-")
        folder = Path(self._folder.name)
        lines = [f"10.99.0.{number} {name}\n" for number, name in enumerate(names, 1)]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        self._hosts: dict[str, Host] = {}
        self._switch: _Namespaces | None = None
        try:
            self._switch = _Namespaces(["--net"], "ip link add bridge type bridge")
            self._switch.run("ip", "link", "set", "bridge", "up")
            for number, name in enumerate(names, 1):
                self._hosts[name] = Host(name, number, self._switch, folder)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Switch everything off."""
        for host in self:
            host.close()
        if self._switch is not None:
            self._switch.close()
        self._folder.cleanup()


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that `Host.start` returned, with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
