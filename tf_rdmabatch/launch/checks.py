"""What has to hold on a host before tasks start there, so that no job starts half."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tf_rdmabatch

# Of clocks, within which the time that a message takes is nothing.
CLOCK_SECONDS = 600.0
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu")


def describe_host() -> dict[str, Any]:
    """Return what the hosts of a job compare."""
    return {
        "package": tf_rdmabatch.__version__,
        "tensorflow": _tensorflow_version(),
        "time": time.time(),
    }


def _tensorflow_version() -> str | None:
    for name in _TENSORFLOW:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def problems_of(request: Mapping[str, Any]) -> list[str]:
    """Return what keeps this host from running its tasks, and go to the job's folder."""
    found = []
    directory, script = request["directory"], request["script"]
    try:
        os.chdir(directory)
    except OSError as error:
        found.append(
            f"no folder {directory} ({error.strerror}): it has to be there, or give --directory"
        )
    else:
        if script is not None and not Path(script).is_file():
            found.append(f"no script {script} in {directory}, and the chief runs it here")
    for task in request["tasks"]:
        problem = _port_problem(task["host"], task["port"])
        if problem:
            where = f"{task['host']}:{task['port']}"
            found.append(f"{task['job']}:{task['index']} cannot listen at {where}: {problem}")
    return found


def resolve(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the number of each name as this host sees it, and the names that have none."""
    numbers, unknown = {}, []
    for name in names:
        try:
            numbers[name] = _number(name)
        except OSError:
            unknown.append(name)
    return numbers, unknown


def _number(name: str) -> str:
    return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])


def _port_problem(host: str, port: int) -> str | None:
    try:
        number = _number(host)
    except OSError:
        # Said once for each name, not once for each task.
        return None
    # TensorFlow's server listens at all addresses of the host.
    for address in (number, ""):
        with socket.socket() as listener:
            # Connections of an earlier job that are closed for good do not count.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
                # Two of them may be bound, but not listen.
                listener.listen()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return "the port is taken; end what has it, or choose others by --port"
                if error.errno == errno.EADDRNOTAVAIL:
                    return "that is no address of this host; correct the hostfile's address="
                return str(error.strerror)
    return None


def compare(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what differs between hosts, or from this one, and must not.

    Parameters
    ----------
    hosts
        By name, what `describe_host` returned there.
    """
    here = tf_rdmabatch.__version__
    found = [
        f"{name}: tf_rdmabatch is {host.get('package')} there and {here} here: install the same "
        "version"
        for name, host in hosts.items()
        if host.get("package") != here
    ]
    if found:
        # Another version may mean something else by the rest.
        return found
    found += [
        f"{name}: TensorFlow is not installed for the Python there (--python)"
        for name, host in hosts.items()
        if host["tensorflow"] is None
    ]
    versions: dict[str, str] = {}
    for name, host in hosts.items():
        if host["tensorflow"] is not None:
            versions.setdefault(host["tensorflow"], name)
    if len(versions) > 1:
        which = " and ".join(f"{version} on {name}" for version, name in versions.items())
        found.append(f"TensorFlow is {which}: install the same version")
    return found


def compare_clocks(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return whose clock differs from this host's: no reason not to start, but worth to know."""
    found = []
    for name, host in hosts.items():
        if abs(host["ahead"]) > CLOCK_SECONDS:
            way = "ahead of" if host["ahead"] > 0 else "behind"
            found.append(
                f"{name}: its clock is {abs(host['ahead']) / 3600:.1f} hours {way} this one, and "
                "so will be the times of its lines and files"
            )
    return found


def compare_addresses(seen: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names by which a host would listen where the others cannot reach it.

    Such a name means the host itself on one host and another address elsewhere, as a host's own in
    its /etc/hosts may; or it means the host itself everywhere, and other names do not.

    Parameters
    ----------
    seen
        By host, the number of each name as that host sees it.
    """
    found = []
    several = any(
        not number.startswith("127.") for numbers in seen.values() for number in numbers.values()
    )
    for name in dict.fromkeys(name for numbers in seen.values() for name in numbers):
        by_loopback: dict[bool, tuple[str, str]] = {}
        for host, numbers in seen.items():
            if name in numbers:
                loopback = numbers[name].startswith("127.")
                by_loopback.setdefault(loopback, (numbers[name], host))
        if len(by_loopback) == 2:
            (inner, inside), (outer, outside) = by_loopback[True], by_loopback[False]
            found.append(
                f"{name} is {inner} on {inside} and {outer} on {outside}: give it "
                f"address={outer} in the hostfile, or correct /etc/hosts on {inside}"
            )
        elif True in by_loopback and several:
            found.append(
                f"{name} is {by_loopback[True][0]}, where no other host can reach it: give it an "
                "address= in the hostfile that all hosts know"
            )
    return found
