"""Addresses of a cluster's tasks: whether each has its own, and where engines listen."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from tf_rdmabatch.addresses import is_loopback, split_address


def check_distinct(cluster: Mapping[str, Any]) -> None:
    """Raise a `ValueError` where two tasks have one address.

    Parameters
    ----------
    cluster
        The addresses of the tasks of each job, as `tf.train.ClusterSpec.as_dict` returns them.
    """
    seen: dict[str, str] = {}
    for job, addresses in cluster.items():
        numbered = addresses.items() if isinstance(addresses, Mapping) else enumerate(addresses)
        for index, address in numbered:
            name = f"{job}:{index}"
            if address in seen:
                raise ValueError(
                    f"{seen[address]} and {name} have one address in the cluster, {address}: each "
                    "task needs a port of its own"
                )
            seen[address] = name


def check_resolved(tasks: Mapping[str, str]) -> None:
    """Raise a `ValueError` where two names of tasks with one port are one host's.

    Parameters
    ----------
    tasks
        The address of each task by its name. Names that do not resolve are left alone.
    """
    ports = [split_address(address)[1] for address in tasks.values()]
    seen: dict[tuple[str, int], str] = {}
    for name, address in tasks.items():
        host, port = split_address(address)
        if ports.count(port) == 1:
            continue
        try:
            place = resolve(host), port
        except OSError:
            continue
        if place in seen:
            other = seen[place]
            raise ValueError(
                f"{other} at {tasks[other]} and {name} at {address} are one place, {place[0]} port "
                f"{port}: each task needs a port of its own"
            )
        seen[place] = name


def resolve(host: str) -> str:
    """Return an IP address of a host, of version 4 if it has one.

    Raises
    ------
    OSError
        The name does not resolve.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def listen_addresses(tasks: Mapping[str, str]) -> dict[str, str]:
    """Return where the engine of each task listens: a free port, on the cluster's interface.

    A host's own name is often one of its loopback addresses, which other hosts cannot reach: where
    there are others, it is the address of this host towards them.

    Parameters
    ----------
    tasks
        The address of each task by its name.
    """
    places = {name: resolve(split_address(address)[0]) for name, address in tasks.items()}
    away = next((place for place in places.values() if not is_loopback(place)), None)
    if away is not None:
        own = own_address(away)
        places = {name: own if is_loopback(at) else at for name, at in places.items()}
    return {name: f"[{at}]:0" if ":" in at else f"{at}:0" for name, at in places.items()}


def own_address(peer: str) -> str:
    """Return the IP address from which this host would reach another one; nothing is sent."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return str(probe.getsockname()[0])
