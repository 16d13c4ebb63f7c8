"""Finds the cluster, and this process's role in it."""

from __future__ import annotations

import json
import os
from typing import Any

import tensorflow as tf

from tf_rdmabatch.strategy.addresses import check_distinct

HOW_TO_START = (
    "start the job with `tf-rdmabatch launch`, or set TF_CONFIG in each process, or pass a "
    "tf.distribute.cluster_resolver.ClusterResolver"
)


def find_resolver(resolver: Any = None) -> Any:
    """Return `resolver`, or the one that TF_CONFIG describes.

    Raises
    ------
    ValueError
        There is neither, or TF_CONFIG cannot be read, or two tasks have one address.
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
    check_distinct(jobs)
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


def task_addresses(resolver: Any) -> dict[str, str]:
    """Return the address of each ps and worker, by its name, such as ``"worker:0"``."""
    spec = resolver.cluster_spec()
    return {
        f"{job}:{index}": spec.task_address(job, index)
        for job in ("ps", "worker")
        for index in spec.task_indices(job)
    }
