"""What a task says of its host."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import os
import platform
import resource
import socket
import time
from typing import Any

import tf_rdmabatch
from tf_rdmabatch import _core
from tf_rdmabatch.devices import list_devices

_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-rocm")


def collect(listens: str) -> dict[str, Any]:
    """Return what the leading task wants to know, as JSON can hold it.

    Parameters
    ----------
    listens
        The ``ip:port`` at which the task listens.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "host": socket.gethostname(),
        "listens": listens,
        "version": tf_rdmabatch.__version__,
        "tensorflow": _tensorflow(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "memlock": None if soft == resource.RLIM_INFINITY else soft,
        "devices": [device.name for device in list_devices().devices],
        "transports": {name: "" if here else why for name, here, why in _core.transports()},
        "time": time.time(),
    }


def is_loopback(listens: str) -> bool:
    """Return whether nobody on another host can reach an ``ip:port``."""
    ip = listens.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return False


def _tensorflow() -> str | None:
    """Return the installed version; importing it would take seconds."""
    for name in _TENSORFLOW:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
