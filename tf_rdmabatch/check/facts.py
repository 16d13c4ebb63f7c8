"""What a task says of its host."""

from __future__ import annotations

import os
import platform
import resource
import socket
from typing import Any

from tf_rdmabatch import _core
from tf_rdmabatch.devices import list_devices
from tf_rdmabatch.launch.checks import describe_host


def collect(listens: str) -> dict[str, Any]:
    """Return what the leading task wants to know, as JSON can hold it.

    Parameters
    ----------
    listens
        The ``ip:port`` at which the task listens.
    """
    software = describe_host()
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "host": socket.gethostname(),
        "listens": listens,
        "version": software["package"],
        "tensorflow": software["tensorflow"],
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "memlock": None if soft == resource.RLIM_INFINITY else soft,
        "devices": [device.name for device in list_devices().devices],
        "transports": {name: "" if here else why for name, here, why in _core.transports()},
        "time": software["time"],
    }
