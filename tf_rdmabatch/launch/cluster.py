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
    host: str  # the address by which others reach it
    port: int
    tf_config: str  # as TensorFlow's cluster resolver reads it from the environment

    @property
    def name(self) -> str:
        """The task as messages name it."""
        return f"{self.job}:{self.index}"


def lay_out(places: Sequence[tuple[str, str]], ports: Iterable[int]) -> list[Task]:
    """Give each task its index and its port.

    Parameters
    ----------
    places
        Job and host of each task, of one chief among them; those of a job are numbered in this
        order.
    ports
        One for each task: no two on a host have the same, and two names may be one host's.

    Returns
    -------
    list of Task
        In the order of `places`.
    """
    cluster: dict[str, list[str]] = {}
    numbered: list[tuple[str, int, str, int]] = []
    free = iter(ports)
    for job, host in places:
        port, addresses = next(free), cluster.setdefault(job, [])
        numbered.append((job, len(addresses), host, port))
        addresses.append(f"{host}:{port}")
    return [
        Task(
            job, i, host, port, json.dumps({"cluster": cluster, "task": {"type": job, "index": i}})
        )
        for job, i, host, port in numbered
    ]


def places_of(workers: int, servers: int, host: str) -> list[tuple[str, str]]:
    """Return job and host of the tasks of one host, the chief last."""
    return [("ps", host)] * servers + [("worker", host)] * workers + [("chief", host)]


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
