"""The role of a pod of an Indexed Job, from its environment."""

from __future__ import annotations

from collections.abc import Mapping

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch.cluster import Task, lay_out

# The pods' `subdomain`, a headless service, by which they find each other.
SERVICE = "TF_RDMABATCH_SERVICE"


def is_pod(environment: Mapping[str, str]) -> bool:
    """Return whether this is a pod of an Indexed Job."""
    return "KUBERNETES_SERVICE_HOST" in environment and "JOB_COMPLETION_INDEX" in environment


def task_of(
    environment: Mapping[str, str], hostname: str, workers: int, ps: int, port: int
) -> Task:
    """Return the task that this pod is: the first the chief, then parameter servers, then workers.

    Parameters
    ----------
    environment
        Of the pod.
    hostname
        The pod's, which Kubernetes makes of the Job's name and the index.
    workers, ps
        How many of each; with the chief they are the Job's completions.
    port
        At which each pod's task listens.

    Raises
    ------
    CommandError
        Status 2: the pod is none of such a Job.
    """
    index = environment.get("JOB_COMPLETION_INDEX", "")
    service = environment.get(SERVICE, "")
    job, dash, number = hostname.rpartition("-")
    if not index.isdecimal() or not dash or number != index:
        raise CommandError(
            f"the pod {hostname} with the index {index!r} is not of a Job whose completionMode is "
            "Indexed",
            status=2,
        )
    if not service:
        raise CommandError(
            f"set {SERVICE} to the headless service that is the pods' subdomain", status=2
        )
    count = workers + ps + 1
    if int(index) >= count:
        raise CommandError(
            f"this is pod {index}, and the chief, {ps} ps and {workers} workers are {count} pods: "
            "set the Job's completions and parallelism to that, or change --workers and --ps",
            status=2,
        )
    jobs = ["chief", *["ps"] * ps, *["worker"] * workers]
    places = [(role, f"{job}-{i}.{service}") for i, role in enumerate(jobs)]
    return lay_out(places, [port] * count)[int(index)]
