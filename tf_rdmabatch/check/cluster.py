"""The tasks that take part in a check, and which of them this process is."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch import FIRST_PORT, role

# The chief leads; then as they are listed everywhere.
_JOBS = ("chief", "ps", "worker")


@dataclass(frozen=True)
class Task:
    """A task: its name, such as ``worker:0``, and the ``host:port`` at which it listens."""

    name: str
    address: str


@dataclass(frozen=True)
class Role:
    """All tasks, of which the first leads, and the index of this one."""

    tasks: tuple[Task, ...]
    index: int

    @property
    def own(self) -> Task:
        """The task of this process."""
        return self.tasks[self.index]


def from_addresses(addresses: Sequence[str], names: Sequence[str] | None, index: int) -> Role:
    """Return the role in a cluster that the command line lists; None is to name tasks by number.

    Raises
    ------
    CommandError
        Status 2: an address or the index is wrong.
    """
    if names is None:
        names = [f"task:{i}" for i in range(len(addresses))]
    if len(names) != len(addresses):
        raise CommandError("--names and --cluster have not as many", status=2)
    tasks = tuple(
        Task(name, address.strip()) for name, address in zip(names, addresses, strict=True)
    )
    if not 0 <= index < len(tasks):
        raise CommandError(
            f"--task {index} is not one of the {len(tasks)} tasks of --cluster, counted from 0",
            status=2,
        )
    return _checked(Role(tasks, index))


def from_environment(workers: int | None, ps: int | None) -> Role:
    """Return the role that TF_CONFIG describes, or Slurm or Kubernetes, which started this process.

    Parameters
    ----------
    workers, ps
        Of the job, for Slurm and Kubernetes; None is what `tf-rdmabatch launch` takes there.

    Raises
    ------
    CommandError
        Status 2: nothing does, or it describes no job.
    """
    text = os.environ.get("TF_CONFIG")
    manager = role.manager_of(os.environ)
    if not text and manager is not None:
        options = argparse.Namespace(workers=workers, ps=ps, port=None, default_port=FIRST_PORT)
        text = role.find_task(manager, options, os.environ).tf_config
    if not text:
        raise CommandError(
            "which hosts? Give --hosts HOSTFILE; or run it in every task of a job, where TF_CONFIG "
            "is set; or everywhere with --cluster HOST:PORT,HOST:PORT,... --task N",
            status=2,
        )
    return _from_tf_config(text)


def _from_tf_config(text: str) -> Role:
    try:
        config = json.loads(text)
        jobs, task = config["cluster"], config["task"]
        own = f"{task['type']}:{int(task['index'])}"
        tasks = tuple(
            Task(f"{job}:{i}", address)
            for job in _JOBS
            for i, address in enumerate(_listed(jobs.get(job, [])))
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"TF_CONFIG describes no job ({error!r}): {text}", status=2) from error
    names = [each.name for each in tasks]
    if own not in names:
        raise CommandError(f"TF_CONFIG: the cluster has no {own}", status=2)
    return _checked(Role(tasks, names.index(own)))


def _listed(addresses: object) -> list[str]:
    """Return the addresses of a job, which TensorFlow also takes as a dict by index."""
    if isinstance(addresses, dict):
        return [str(addresses[key]) for key in sorted(addresses, key=int)]
    if isinstance(addresses, str):
        raise TypeError("a job's addresses are a list")
    return [str(address) for address in addresses]  # type: ignore[attr-defined]


def _checked(role: Role) -> Role:
    known: dict[str, str] = {}
    for task in role.tasks:
        host, colon, port = task.address.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise CommandError(f"{task.name}: {task.address!r} is not host:port", status=2)
        if task.address in known:
            raise CommandError(
                f"{known[task.address]} and {task.name} have the same address, {task.address}",
                status=2,
            )
        known[task.address] = task.name
    if len(role.tasks) < 2:
        raise CommandError("a check needs at least two tasks", status=2)
    return role
