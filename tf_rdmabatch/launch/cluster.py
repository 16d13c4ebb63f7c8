"""The tasks of a job: which there are, where they run, and what each has to know."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One process of the cluster."""

    job: str  # "chief", "worker" or "ps"
    index: int
    host: str
    tf_config: str  # as TensorFlow's cluster resolver reads it from the environment

    @property
    def name(self) -> str:
        """The task as messages name it."""
        return f"{self.job}:{self.index}"


def lay_out(workers: int, servers: int, hosts: Sequence[str], ports: Iterable[int]) -> list[Task]:
    """Lay tasks out over hosts: servers and workers in turn, and the chief on the first.

    Parameters
    ----------
    workers, servers
        How many of each, at least 1.
    hosts
        Names or addresses, at least one.
    ports
        One for each task: no two have the same, since two names may be one host's.

    Returns
    -------
    list of Task
        The servers and the workers, then the chief.
    """
    free = iter(ports)
    places: list[tuple[str, int, str]] = []
    for job, count in (("ps", servers), ("worker", workers)):
        places += [(job, i, hosts[i % len(hosts)]) for i in range(count)]
    places.append(("chief", 0, hosts[0]))
    cluster: dict[str, list[str]] = {}
    for job, _, host in places:
        cluster.setdefault(job, []).append(f"{host}:{next(free)}")
    return [
        Task(job, i, host, json.dumps({"cluster": cluster, "task": {"type": job, "index": i}}))
        for job, i, host in places
    ]


def free_ports(count: int) -> list[int]:
    """Return ports of this host's loopback address that nobody has at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
