"""Finds the cluster, and this process's role in it."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

LOGGER = logging.getLogger("tf_rdmabatch")
# Seconds in which all tasks have to answer; environment variable and default.
START_TIMEOUT = "TF_RDMABATCH_START_TIMEOUT"
_START_TIMEOUT = 300.0
# Seconds between attempts to reach a task.
_INTERVAL = 0.2

HOW_TO_START = (
    "start the job with `tf-rdmabatch launch`, or set TF_CONFIG in each process, or pass a "
    "tf.distribute.cluster_resolver.ClusterResolver"
)


def find_resolver(resolver: Any = None) -> Any:
    """Return `resolver`, or the one that TF_CONFIG describes.

    Raises
    ------
    ValueError
        There is neither, or TF_CONFIG cannot be read.
    """
    if resolver is None:
        text = os.environ.get("TF_CONFIG")
        if not text:
            raise ValueError(f"there is no cluster, since TF_CONFIG is not set: {HOW_TO_START}")
        try:
            json.loads(text)
        except ValueError as error:
            raise ValueError(f"TF_CONFIG is not JSON ({error}): {text!r}") from error
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    spec = resolver.cluster_spec()
    jobs = spec.as_dict() if spec else {}
    for job in ("worker", "ps"):
        if not jobs.get(job):
            raise ValueError(
                f"the cluster has no {job} task, it has {sorted(jobs) or 'none at all'}: it needs "
                f"at least one worker and one ps; {HOW_TO_START}"
            )
    unknown = set(jobs) - {"worker", "ps", "chief", "evaluator"}
    if unknown:
        raise ValueError(
            f"the cluster has tasks that a parameter-server job does not know: {sorted(unknown)}; "
            "its tasks are worker, ps and chief"
        )
    return resolver


def require_chief(resolver: Any) -> None:
    """Raise an error unless this process is the chief's."""
    role = resolver.task_type
    if role in ("worker", "ps"):
        raise RuntimeError(
            f"this process is {role}:{resolver.task_id} of the cluster, which serves: call "
            "tf_rdmabatch.serve() in it, or run `python -m tf_rdmabatch serve`. "
            "ParameterServerStrategy belongs into the chief's process"
        )


def start_timeout() -> float:
    """Return how many seconds tasks have to answer.

    Raises
    ------
    ValueError
        The environment variable does not say.
    """
    text = os.environ.get(START_TIMEOUT)
    try:
        seconds = float(text) if text else _START_TIMEOUT
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise ValueError(f"{START_TIMEOUT} is a number of seconds above 0, not {text!r}")
    return seconds


def wait_for_tasks(spec: Any, timeout: float) -> None:
    """Return when all workers and parameter servers listen; tasks may start in any order.

    TensorFlow's own connecting would wait for ever.

    Parameters
    ----------
    spec
        The cluster.
    timeout
        Seconds.

    Raises
    ------
    TimeoutError
        Some do not; names them.
    """
    missing = {
        f"{job}:{index}": spec.task_address(job, index)
        for job in ("worker", "ps")
        for index in spec.task_indices(job)
    }
    begin = time.monotonic()
    announced = False
    while missing := {task: a for task, a in missing.items() if not _listens(a)}:
        waited = time.monotonic() - begin
        if waited > timeout:
            raise TimeoutError(
                f"no answer in {timeout:g} s from {_listed(missing)}: start each with "
                f"`python -m tf_rdmabatch serve`, check the addresses, or set {START_TIMEOUT} to "
                "wait longer"
            )
        if waited > 5 and not announced:
            LOGGER.info("waiting for %s", _listed(missing))
            announced = True
        time.sleep(_INTERVAL)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def _listed(tasks: Mapping[str, str]) -> str:
    return ", ".join(f"{task} at {address}" for task, address in tasks.items())


def require_server(resolver: Any) -> tuple[str, int]:
    """Return job and index of this process, which has to be a worker or a ps."""
    role, index = resolver.task_type, resolver.task_id
    if role not in ("worker", "ps") or index is None:
        raise RuntimeError(
            f"serve() is for worker and ps tasks, and this process is {role or 'none'!s}: its role "
            "is the task in TF_CONFIG, or the resolver's task_type and task_id. The chief runs the "
            "training program"
        )
    return role, int(index)
