"""Starts the engines of a job's tasks and connects them, or says why that cannot be."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_rdmabatch import _core, ops
from tf_rdmabatch.strategy.addresses import listen_addresses
from tf_rdmabatch.strategy.errors import explain_task_errors
from tf_rdmabatch.strategy.software import check_software
from tf_rdmabatch.transports import Transport, as_rules, tasks_of


@dataclass(frozen=True)
class EngineSettings:
    """What a program says of the engines of all tasks.

    Parameters
    ----------
    transport
        Rules, as `as_rules` returns them.
    ports
        The range that engines listen in, or nothing.
    confirm
        ``"batch"`` or ``"each"``.
    tune_blocks
        Whether workers find out into what they cut gradients.
    """

    transport: str = ""
    ports: str = ""
    confirm: str = "batch"
    tune_blocks: bool = False

    @classmethod
    def of(
        cls, transport: Transport, ports: str | None, confirm: str, tune_blocks: bool
    ) -> EngineSettings:
        """Check what was given; what was not is as this process's environment says.

        Raises
        ------
        ValueError
            Something is wrong; the message says what.
        """
        rules = as_rules(transport) or _from_environment("TF_RDMABATCH_TRANSPORT", as_rules)
        tasks_of(rules)
        if ports:
            _core.check_ports(ports)
        else:
            ports = _from_environment("TF_RDMABATCH_PORTS", _core.check_ports)
        return cls(rules or "auto", ports, confirm, tune_blocks)


def _from_environment(variable: str, check: Callable[[str], object]) -> str:
    """Return a variable's value, or nothing; an error of the check names the variable."""
    value = os.environ.get(variable, "")
    try:
        check(value)
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from error
    return value


def check_rules(rules: str, tasks: Mapping[str, str]) -> None:
    """Raise a `ValueError` where rules for transports name a task that the job does not have."""
    for key, (job, index) in tasks_of(rules).items():
        known = [name for name in tasks if name.partition(":")[0] == job]
        if not known or (index is not None and f"{job}:{index}" not in tasks):
            raise ValueError(
                f"transport= has a rule for {key!r}, which is no task of the cluster: it has "
                f"{', '.join(tasks)}"
            )


def start_engines(
    tasks: Mapping[str, str], devices: Mapping[str, str], settings: EngineSettings
) -> dict[tuple[str, str], str]:
    """Start the engine of each task, and connect workers to parameter servers.

    Parameters
    ----------
    tasks
        The address of each task's TensorFlow server by its name, ``"ps:0"``.
    devices
        The device of each; parameter servers come first.
    settings
        Of all engines.

    Returns
    -------
    dict
        By the names of two tasks what carries their connection, and why.

    Raises
    ------
    RuntimeError
        A task has other versions of programs than this process.
    tf.errors.OpError
        An engine cannot start, or cannot reach another; the message names the tasks.
    """
    token = os.environ.get("TF_RDMABATCH_TOKEN") or secrets.token_hex(16)
    listen = listen_addresses(tasks)
    for name, device in devices.items():
        with tf.device(device), explain_task_errors(name, tasks[name]):
            check_software(name, tasks[name])
    servers: dict[str, Any] = {}
    connections: dict[tuple[str, str], str] = {}
    for name, device in devices.items():
        job, _, index = name.partition(":")
        with tf.device(device), explain_task_errors(name, tasks[name]):
            started = ops.configure(
                name,
                token,
                listen[name],
                transport=settings.transport,
                ports=settings.ports,
                contributor=int(index),
                confirm=settings.confirm,
                tune_blocks=settings.tune_blocks,
            )
            if job == "ps":
                servers[name] = started
                continue
            ops.connect(servers)
            connections |= {(name, peer): how for peer, how in ops.transports().items()}
    return connections
