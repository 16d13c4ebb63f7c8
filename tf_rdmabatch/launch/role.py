"""A process that Slurm or Kubernetes started, as one task of a job."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch import kubernetes, slurm
from tf_rdmabatch.launch.cluster import Task

MANAGERS = ("slurm", "kubernetes")
# There is no other attempt to wait for: the next one is a job of its own.
LINGER_SECONDS = 5.0


def manager_of(environment: Mapping[str, str]) -> str | None:
    """Return who has started this process as one of several, if anybody has."""
    if slurm.is_step(environment):
        return "slurm"
    return "kubernetes" if kubernetes.is_pod(environment) else None


def find_task(manager: str, options: argparse.Namespace, environment: Mapping[str, str]) -> Task:
    """Return the task that this process is.

    Raises
    ------
    CommandError
        Status 2: the environment does not tell.
    """
    ps = options.ps or 1
    if manager == "slurm":
        return slurm.task_of(environment, options.workers, ps, options.port)
    workers = options.workers or 2
    return kubernetes.task_of(
        environment, socket.gethostname(), workers, ps, options.port or options.default_port
    )


def arguments_for(task: Task, options: argparse.Namespace) -> list[str]:
    """Return the arguments of Python for a task."""
    if task.job == "chief":
        return [options.script, *options.arguments]
    waits = ["--linger", str(LINGER_SECONDS), "--start-timeout", str(options.start_timeout)]
    return ["-m", "tf_rdmabatch", "serve", *waits]


def become(task: Task, options: argparse.Namespace) -> None:
    """Turn this process into the task, so that signals and exit statuses are its own.

    Raises
    ------
    CommandError
        There is no such script.
    """
    if task.job == "chief" and not Path(options.script).is_file():
        raise CommandError(f"no such script: {options.script}", status=2)
    print(f"tf-rdmabatch: {task.name} at {task.host}:{task.port}", file=sys.stderr, flush=True)
    os.environ["TF_CONFIG"] = task.tf_config
    os.execv(sys.executable, [sys.executable, *arguments_for(task, options)])
