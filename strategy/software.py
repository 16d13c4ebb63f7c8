"""All tasks of a job have one version of TensorFlow and of this package."""

from __future__ import annotations

import socket

import tensorflow as tf

import tf_rdmabatch
from tf_rdmabatch import ops


def own_software() -> dict[str, str]:
    """Return what `ops.software` returns for this process's host and programs."""
    return {
        "host": socket.gethostname(),
        "tf_rdmabatch": tf_rdmabatch.__version__,
        "TensorFlow": tf.__version__,
    }


def check_software(task: str, address: str) -> None:
    """Compare the software of the current device's process with this one's.

    Parameters
    ----------
    task
        Its name, such as ``"worker:0"``.
    address
        Of its TensorFlow server.

    Raises
    ------
    RuntimeError
        The minor version of a program differs; the message names both hosts and versions.
    """
    own, other = own_software(), ops.software()
    for program in ("tf_rdmabatch", "TensorFlow"):
        if _minor(own[program]) != _minor(other.get(program, "0.0")):
            raise RuntimeError(
                f"{task} at {address} (host {other.get('host')}) has {program} "
                f"{other.get(program)}, and the chief (host {own['host']}) has {own[program]}: "
                "install the same version on all hosts of the job"
            )


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
